"""Excel files of other programs: rows are read as a spreadsheet shows them, whatever is inside."""

from __future__ import annotations

import datetime
import tracemalloc
import zipfile
from collections.abc import Iterable
from pathlib import Path

import pytest

from encoder_cls.config.reading_options import ReadingOptions
from encoder_cls.data.reading.columns import Columns
from encoder_cls.data.reading.excel import SheetLayout, sheet_layout
from encoder_cls.data.reading.reading import Reading
from encoder_cls.data.sources import read_rows
from encoder_cls.errors import DataError
from encoder_cls.system import xlsx
from encoder_cls.system.xlsx import ColumnLayout

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
    columns: str = "",
) -> str:
    """Write a file with these rows in a sheet; returns its name.

    It has no dimensions, places, themes and properties, which Excel writes. Of `other_sheets` each
    may be the part with the id `d`, which has the header alone; `columns` are before the rows.
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

        sheet = [f'<worksheet xmlns="{namespace}">', columns, "<sheetData>", HEADER]
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
    reading = Reading(ReadingOptions(**options))
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
    rows = read_rows(write_errors(), columns, Reading(ReadingOptions(bad_rows="skip")))
    assert [found.record for found in rows] == [
        {"text": "#N/A", "label": "x"},
        {"text": "#VALUE!", "label": "x"},
    ]


# The formats of cells, by their number: of numbers, a built-in one of dates, a program's own.
STYLES = (
    '<numFmts><numFmt numFmtId="200" formatCode="dd/mm/yy"/>'
    '<numFmt numFmtId="201" formatCode="[Red]0.0 &quot;days&quot;"/>'
    '<numFmt numFmtId="202" formatCode="000"/></numFmts>'
    '<cellStyleXfs><xf numFmtId="14"/></cellStyleXfs>'
    '<cellXfs><xf numFmtId="0"/><xf numFmtId="14"/><xf numFmtId="200"/><xf numFmtId="22"/>'
    '<xf numFmtId="46"/><xf numFmtId="201"/><xf numFmtId="202"/></cellXfs>'
)


@pytest.mark.parametrize(
    ("written", "expected"),
    [
        (cell("2", "n", style=0), 2),
        (cell("2", "n", style=1), datetime.date(1900, 1, 2)),
        (cell("61", "n", style=2), datetime.date(1900, 3, 1)),
        (cell("61.5", "n", style=2), datetime.datetime(1900, 3, 1, 12)),
        (cell("61", "n", style=3), datetime.datetime(1900, 3, 1)),
        (cell("0.25", "n", style=3), datetime.time(6)),
        (cell("1.25", "n", style=4), datetime.timedelta(hours=30)),
        (cell("2", "n", style=5), 2),
        (cell("2026-01-02", "d"), datetime.date(2026, 1, 2)),
        (cell("2026-01-02T00:00:00.000", "d"), datetime.date(2026, 1, 2)),
        (cell("2026-13-02", "d"), "2026-13-02"),
    ],
)
def test_times_are_no_numbers(written, expected):
    """The format of a cell says what its number is, and whether it shows a midnight."""
    source = write(row(cell("a"), written), styles=STYLES)
    assert read(source) == [("a", expected)]


@pytest.mark.parametrize(
    ("written", "expected"),
    [("7", "007"), ("1234", 1234), ("7.5", 7.5), ("-7", -7)],
)
def test_a_number_has_the_leading_zeros_of_its_format(written, expected):
    """A class that the sheet shows as 007 has this name."""
    source = write(row(cell("a"), cell(written, "n", style=6)), styles=STYLES)
    assert read(source) == [("a", expected)]


def test_a_file_without_formats_has_the_usual_one():
    source = write(row(cell("1", "n", style=3), cell("x")))
    layout = sheet_layout(Path(source), ["text"], Reading())
    usual = ColumnLayout(number_format="General")
    assert layout == SheetLayout("main", {"text": usual, "label": usual})


def test_widths_of_overlapping_columns_are_read_once():
    """Many elements `col`, each for all columns, would take minutes."""
    columns = '<cols><col min="-9" max="1" width="7"/><col min="1" max="9" width="8"/></cols>'
    source = write(row(cell("1"), cell("x")), columns=columns)

    layout = sheet_layout(Path(source), ["text"], Reading()).columns
    assert [layout["text"].width, layout["label"].width] == [7, 8]


def test_an_endless_code_of_a_format_takes_no_time():
    """Searching it for brackets again from each bracket would take minutes."""
    code = "[" * 1_000_000
    styles = f'<numFmts><numFmt numFmtId="200" formatCode="{code}"/></numFmts>'
    styles += '<cellXfs><xf numFmtId="200"/></cellXfs>'
    assert read(write(row(cell("a"), cell("1", "n")), styles=styles)) == [("a", 1)]


def test_a_cell_that_names_a_text_that_is_not_there_is_an_error():
    """It is not the last text."""
    source = write(row(cell("-1", "s"), cell("x")), strings=["<si><t>a</t></si>"])
    assert refusal(source).endswith("a cell names text -1, which is not there")


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


def test_sheets_that_are_one_part_are_one_sheet():
    """Millions of them would each be searched for the columns."""
    source = write(row(cell("a"), cell("x")), other_sheets='<sheet name="b" r:id="a"/>' * 9)
    assert read(source) == [("a", "x")]


def test_the_strict_format_is_read():
    """It has other namespaces, and dates in words."""
    rows = row(cell("a"), cell("2026-01-02", "d"))
    assert read(write(rows, namespace=STRICT)) == [("a", datetime.date(2026, 1, 2))]


def test_rows_that_a_filter_hides_are_read_with_a_note():
    notes: list[str] = []
    rows = [
        row(cell("a"), cell("x")),
        row(cell("b"), cell("y")).replace("row>", 'row hidden="1">', 1),
    ]
    reading = Reading(notify=notes.append)

    found = list(read_rows(write(rows), Columns(["text"], "label"), reading))

    assert [each.text for each in found] == ["a", "b"]
    assert notes == ["a.xlsx: the sheet hides 1 row, as a filter does; hidden rows are read, too"]


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
            "xl/strings.xml unpacks to more than 100 times the size of the file",
        ),
    ],
    ids=["a cell", "a row", "a tag", "a string", "the strings"],
)
def test_a_small_file_that_unpacks_to_much_is_refused_in_little_memory(
    rows, strings, message, monkeypatch
):
    """The error names the file."""
    monkeypatch.setattr(xlsx, "LONGEST_LINE", LONGEST_LINE)
    monkeypatch.setattr(xlsx, "SMALL_PART", LONGEST_LINE)
    source = write(rows, strings=strings)

    tracemalloc.start()
    try:
        found = refusal(source)
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()

    assert found.startswith(f"a.xlsx: {message}")
    assert peak < 5 * LONGEST_LINE


@pytest.mark.slow
def test_many_rows_need_no_more_memory_than_few():
    """Rows are not kept while others are read."""
    peaks = []
    for num_rows in (1_000, 4_000):
        source = write([row(cell("a b c d"), cell("x"))] * num_rows)

        tracemalloc.start()
        count = sum(1 for _ in read_rows(source, Columns(["text"], "label"), Reading()))
        peaks.append(tracemalloc.get_traced_memory()[1])
        tracemalloc.stop()

        assert count == num_rows
    assert peaks[1] < peaks[0] + 200_000
