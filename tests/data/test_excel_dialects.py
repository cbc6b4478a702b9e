"""Excel files of other programs: rows are read as a spreadsheet shows them, whatever is inside."""

from __future__ import annotations

import datetime
import tracemalloc
import zipfile
from collections.abc import Iterable
from pathlib import Path

import pytest

from encoder_cls.data.reading import xlsx
from encoder_cls.data.reading.columns import Columns
from encoder_cls.data.reading.excel import SheetLayout, sheet_layout
from encoder_cls.data.reading.options import Reading
from encoder_cls.data.reading.xlsx import ColumnLayout
from encoder_cls.data.sources import read_rows
from encoder_cls.errors import DataError

pytest.importorskip("openpyxl")

MAIN = "http://schemas.openxmlformats.org/spreadsheetml/2006/main"
STRICT = "http://purl.oclc.org/ooxml/spreadsheetml/main"
OFFICE = "http://schemas.openxmlformats.org/officeDocument/2006/relationships"
PACKAGE = "http://schemas.openxmlformats.org/package/2006/relationships"


def cell(value: str, kind: str = "str", style: int = 0) -> str:
    return f'<c t="{kind}" s="{style}"><v>{value}</v></c>'


def inline_cell(text: str) -> str:
    return f'<c t="inlineStr"><is><t>{text}</t></is></c>'


def row(*cells: str) -> str:
    return f"<row>{''.join(cells)}</row>"


HEADER = row(inline_cell("text"), inline_cell("label"))


def relationship(identity: str, kind: str, target: str) -> str:
    return f'<Relationship Id="{identity}" Type="{OFFICE}/{kind}" Target="{target}"/>'


def relationships(*parts: str) -> str:
    return f'<Relationships xmlns="{PACKAGE}">{"".join(parts)}</Relationships>'


def write(
    rows: str | Iterable[str],
    *,
    strings: str | Iterable[str] = "",
    styles: str = "",
    namespace: str = MAIN,
    other_sheets: str = "",
) -> str:
    """Write a file with these rows in a sheet; returns its name.

    It has no dimensions, places, themes and properties, which Excel writes. Of `other_sheets` each
    may be the part with the id `d`, which has the header alone.
    """
    sheets = f'<sheet name="main" r:id="a"/>{other_sheets}'
    parts = {
        "_rels/.rels": relationships(relationship("x", "officeDocument", "xl/book.xml")),
        "xl/book.xml": (
            f'<workbook xmlns="{namespace}" xmlns:r="{OFFICE}"><sheets>{sheets}</sheets></workbook>'
        ),
        "xl/_rels/book.xml.rels": relationships(
            relationship("a", "worksheet", "/xl/sheet.xml"),
            relationship("b", "styles", "s.xml"),
            relationship("c", "sharedStrings", "strings.xml"),
            relationship("d", "worksheet", "other.xml"),
        ),
        "xl/s.xml": f'<styleSheet xmlns="{namespace}">{styles}</styleSheet>',
        "xl/other.xml": (
            f'<worksheet xmlns="{namespace}"><sheetData>{HEADER}</sheetData></worksheet>'
        ),
    }
    with zipfile.ZipFile("a.xlsx", "w", zipfile.ZIP_DEFLATED) as file:
        for name, content in parts.items():
            file.writestr(name, content)

        sheet = [f'<worksheet xmlns="{namespace}"><sheetData>', HEADER]
        write_pieces(file, "xl/sheet.xml", [*sheet, *rows, "</sheetData></worksheet>"])
        shared_strings = [f'<sst xmlns="{namespace}">', *strings, "</sst>"]
        write_pieces(file, "xl/strings.xml", shared_strings)
    return "a.xlsx"


def write_pieces(file: zipfile.ZipFile, name: str, pieces: Iterable[str]) -> None:
    """Write a part piece by piece, since it may be larger than memory should hold."""
    with file.open(name, "w") as part:
        for piece in pieces:
            part.write(piece.encode())


def read(source: str, **options: object) -> list[tuple[object, object]]:
    """The text and the label of each row."""
    reading = Reading(**options)
    rows = read_rows(source, Columns(["text"], "label", every=True), reading)
    return [(found.text, found.label) for found in rows]


def refusal(source: str) -> str:
    with pytest.raises(DataError) as error:
        read(source)
    return str(error.value)


@pytest.mark.parametrize(
    ("written", "expected"),
    [
        ("two_x000D_\nlines", "two\nlines"),
        ("end_x000D_", "end"),
        ("end&#13;\n", "end\n"),
        ("old_x000D_Mac", "old\nMac"),
        ("_x005F_x000D_", "_x000D_"),
        ("_x0041_x0042_", "Ax0042_"),
        ("_xD83D__xDE00_", "\U0001f600"),
        ("_xD83D_", "\ufffd"),
        ("_xyz_ _x12_", "_xyz_ _x12_"),
    ],
)
def test_escaped_characters_are_read_as_a_spreadsheet_shows_them(written, expected):
    """They may be in shared strings, in rich text, in a cell, and in results of formulas."""
    plain_string = f"<si><t>{written}</t></si>"
    rich_string = f"<si><r><t>a </t></r><r><t>{written}</t></r><rPh><t>sound</t></rPh></si>"
    rows = [
        row(cell("0", "s"), cell("x")),
        row(cell("1", "s"), cell("x")),
        row(inline_cell(written), cell("x")),
        row(cell(written), cell(written)),
    ]

    assert read(write(rows, strings=[plain_string, rich_string])) == [
        (expected, "x"),
        (f"a {expected}", "x"),
        (expected, "x"),
        (expected, expected),
    ]


@pytest.mark.parametrize(
    ("written", "expected"),
    [
        ("2", 2),
        ("2.0", 2),
        ("2E0", 2),
        ("4.711E3", 4711),
        ("-1.0", -1),
        ("0.10000000000000001", 0.1),
        ("2.5", 2.5),
        ("1E300", 1e300),
    ],
)
def test_whole_numbers_are_integers_however_a_program_writes_them(written, expected):
    number = cell(written, "n")
    ((text, label),) = read(write(row(number, number)))

    assert text == str(expected)
    assert label == expected
    assert type(label) is type(expected)


def write_errors() -> str:
    """Write a text that looks like an error, and errors in both columns."""
    rows = [
        row(cell("#N/A"), cell("x")),
        row(cell("#VALUE!", "e"), cell("x")),
        row(cell("a"), cell("#N/A", "e")),
    ]
    return write(rows)


def test_an_error_in_a_column_that_is_read_makes_a_bad_row():
    source = write_errors()
    assert refusal(source) == (
        "a.xlsx:3: column 'text' shows the error #VALUE!; correct the cell; "
        "data.bad_rows=skip (predict: --bad-rows skip) leaves such rows out"
    )
    assert read(source, bad_rows="skip") == [("#N/A", "x")]


def test_an_error_in_another_column_stays_what_it_shows():
    columns = Columns(["label"], every=True)
    rows = read_rows(write_errors(), columns, Reading(bad_rows="skip"))
    assert [found.record for found in rows] == [
        {"text": "#N/A", "label": "x"},
        {"text": "#VALUE!", "label": "x"},
    ]


# The formats of cells, by their number: of numbers, a built-in one of dates, a program's own.
STYLES = (
    '<numFmts><numFmt numFmtId="200" formatCode="dd/mm/yy"/></numFmts>'
    '<cellStyleXfs><xf numFmtId="14"/></cellStyleXfs>'
    '<cellXfs><xf numFmtId="0"/><xf numFmtId="14"/><xf numFmtId="200"/></cellXfs>'
)


@pytest.mark.parametrize(
    ("written", "expected"),
    [
        (cell("2", "n", style=0), 2),
        (cell("2", "n", style=1), datetime.datetime(1900, 1, 2)),
        (cell("2.5", "n", style=2), datetime.datetime(1900, 1, 2, 12)),
        (cell("2026-01-02", "d"), datetime.date(2026, 1, 2)),
    ],
    ids=["number", "built-in format", "own format", "ISO 8601"],
)
def test_times_are_no_numbers(written, expected):
    """The format of a cell says what its number is."""
    source = write(row(cell("a"), written), styles=STYLES)
    assert read(source) == [("a", expected)]


def test_columns_of_a_file_without_formats_have_none():
    source = write(row(cell("1", "n"), cell("x")))
    layout = sheet_layout(Path(source), ["text"], Reading())
    assert layout == SheetLayout("main", {"text": ColumnLayout(), "label": ColumnLayout()})


def test_a_time_that_no_calendar_has_is_an_error():
    source = write(row(cell("a"), cell("-1E9", "n", style=1)), styles=STYLES)
    assert "shows the error ########" in refusal(source)


def test_a_hidden_sheet_is_not_read_where_another_has_the_columns():
    """A person does not see it."""
    rows = row(cell("a"), cell("x"))
    source = write(rows, other_sheets='<sheet name="old" state="hidden" r:id="d"/>')
    assert read(source) == [("a", "x")]


def test_two_sheets_in_sight_with_the_columns_are_an_error():
    rows = row(cell("a"), cell("x"))
    source = write(rows, other_sheets='<sheet name="old" r:id="d"/>')
    assert "several sheets have these columns ('main', 'old')" in refusal(source)


def test_the_strict_format_is_refused_by_its_name():
    assert refusal(write("", namespace=STRICT)) == (
        "a.xlsx: a Strict Open XML file; save it as an ordinary .xlsx file in a spreadsheet program"
    )


def test_a_header_within_the_sheet_is_left_out():
    """Somebody may have put several sheets below each other."""
    reading = Reading()
    source = write([row(cell("a"), cell("x")), HEADER, row(cell("b"), cell("y"))])

    rows = read_rows(source, Columns(["text"], "label"), reading)

    assert [found.text for found in rows] == ["a", "b"]
    assert list(reading.notes.warnings("train")) == [
        "rows of train that repeat the header, which are left out: 1 (a.xlsx:3)"
    ]


# The longest line in these tests: unpacking the usual 16 MiB takes seconds.
LONGEST_LINE = 1 << 20
TEXT = "a" * 1024
# So many of these texts are as long as the longest line.
PIECES = LONGEST_LINE // len(TEXT)


@pytest.mark.parametrize(
    ("rows", "strings", "message"),
    [
        (
            ["<row><c t='str'><v>", *[TEXT] * (PIECES + 1), "</v></c></row>"],
            "",
            "a row is longer",
        ),
        (
            ["<row>", *["<c/>" * 4096] * 40, "</row>"],
            "",
            "row 2 has more than 16,384 columns",
        ),
        (
            [f"<row><c t='{TEXT}", *[TEXT] * (2 * PIECES), "'/></row>"],
            "",
            "an element of xl/",
        ),
        (
            "",
            ["<si><t>", *[TEXT] * (PIECES + 1), "</t></si>"],
            "a row is longer",
        ),
        (
            "",
            [f"<si><t>{TEXT}</t></si>"] * (4 * PIECES),
            "its texts are more than 100",
        ),
    ],
    ids=["a cell", "a row", "a tag", "a string", "the strings"],
)
def test_a_small_file_that_unpacks_to_much_is_refused_in_little_memory(
    rows, strings, message, monkeypatch
):
    """The error names the file."""
    monkeypatch.setattr(xlsx, "LONGEST_LINE", LONGEST_LINE)
    source = write(rows, strings=strings)

    tracemalloc.start()
    try:
        found = refusal(source)
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()

    assert found.startswith(f"a.xlsx: {message}")
    assert peak < 5 * LONGEST_LINE


def test_many_rows_need_no_more_memory_than_few():
    """Rows are not kept while others are read."""
    peaks = []
    for num_rows in (2_000, 8_000):
        source = write([row(cell("a b c d"), cell("x"))] * num_rows)

        tracemalloc.start()
        count = sum(1 for _ in read_rows(source, Columns(["text"], "label"), Reading()))
        peaks.append(tracemalloc.get_traced_memory()[1])
        tracemalloc.stop()

        assert count == num_rows
    assert peaks[1] < peaks[0] + 200_000
