"""Excel files of other programs: whatever the file has inside, rows are read as a spreadsheet shows them."""

from __future__ import annotations

import datetime
import tracemalloc
import zipfile
from collections.abc import Iterable

import pytest

from encoder_cls.data.reading.columns import Columns
from encoder_cls.data.reading.options import Reading
from encoder_cls.data.sources import read_rows
from encoder_cls.errors import DataError
from encoder_cls.system.encodings import LONGEST_LINE

pytest.importorskip("openpyxl")

MAIN = "http://schemas.openxmlformats.org/spreadsheetml/2006/main"
OFFICE = "http://schemas.openxmlformats.org/officeDocument/2006/relationships"
PACKAGE = "http://schemas.openxmlformats.org/package/2006/relationships"
HEADER = (
    '<row><c t="inlineStr"><is><t>text</t></is></c><c t="inlineStr"><is><t>label</t></is></c></row>'
)


def write(
    rows: str | Iterable[str],
    *,
    strings: str | Iterable[str] = "",
    styles: str = "",
    namespace: str = MAIN,
    others: str = "",
) -> str:
    """A file with these rows, without the dimensions, places, themes and properties that Excel writes."""
    link = f'<Relationship Id="{{}}" Type="{OFFICE}/{{}}" Target="{{}}"/>'
    links = [link.format("a", "worksheet", "/xl/sheet.xml"), link.format("b", "styles", "s.xml")]
    links += [link.format("c", "sharedStrings", "strings.xml")]
    links += [link.format("d", "worksheet", "other.xml")]
    book = f'<sheet name="main" r:id="a"/>{others}'
    whole = {
        "_rels/.rels": f'<Relationships xmlns="{PACKAGE}">'
        f"{link.format('x', 'officeDocument', 'xl/book.xml')}</Relationships>",
        "xl/book.xml": f'<workbook xmlns="{namespace}" xmlns:r="{OFFICE}"><sheets>{book}</sheets></workbook>',
        "xl/_rels/book.xml.rels": f'<Relationships xmlns="{PACKAGE}">{"".join(links)}</Relationships>',
        "xl/s.xml": f'<styleSheet xmlns="{namespace}">{styles}</styleSheet>',
        "xl/other.xml": f'<worksheet xmlns="{namespace}"><sheetData>{HEADER}</sheetData></worksheet>',
    }
    with zipfile.ZipFile("a.xlsx", "w", zipfile.ZIP_DEFLATED) as file:
        for name, content in whole.items():
            file.writestr(name, content)
        for name, tag, content in (
            ("xl/sheet.xml", "worksheet", [f"<sheetData>{HEADER}", *rows, "</sheetData>"]),
            ("xl/strings.xml", "sst", strings),
        ):
            with file.open(name, "w") as part:
                part.write(f'<{tag} xmlns="{namespace}">'.encode())
                for piece in content:
                    part.write(piece.encode())
                part.write(f"</{tag}>".encode())
    return "a.xlsx"


def read(source: str, **options: object) -> list[tuple[object, object]]:
    reading = Reading(**options)
    found = read_rows(source, Columns(["text"], "label", every=True), reading)
    return [(row.text, row.label) for row in found]


def refusal(source: str) -> str:
    with pytest.raises(DataError) as error:
        read(source)
    return str(error.value)


def cell(value: str, kind: str = "str", style: int = 0) -> str:
    return f'<c t="{kind}" s="{style}"><v>{value}</v></c>'


def row(*cells: str) -> str:
    return f"<row>{''.join(cells)}</row>"


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
    """In shared strings, in strings of a cell, in rich text, and in results of formulas."""
    strings = f"<si><t>{written}</t></si>"
    strings += f"<si><r><t>a </t></r><r><t>{written}</t></r><rPh><t>sound</t></rPh></si>"
    rows = row(cell("0", "s"), cell("x"))
    rows += row(cell("1", "s"), cell("x"))
    rows += row(f'<c t="inlineStr"><is><t>{written}</t></is></c>', cell("x"))
    rows += row(cell(written), cell(written))
    found = read(write(rows, strings=strings))
    assert found == [
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
    (found,) = read(write(row(number, number)))
    assert found == (str(expected), expected)
    assert type(found[1]) is type(expected)


def test_an_error_in_a_column_that_is_read_makes_a_bad_row():
    """In another column it stays what it shows; a text that looks like it is a text."""
    rows = row(cell("#N/A"), cell("x")) + row(cell("#VALUE!", "e"), cell("x"))
    rows += row(cell("a"), cell("#N/A", "e"))
    assert refusal(write(rows)) == (
        "a.xlsx:3: column 'text' shows the error #VALUE!; correct the cell; "
        "data.bad_rows=skip (predict: --bad-rows skip) leaves such rows out"
    )
    assert read("a.xlsx", bad_rows="skip") == [("#N/A", "x")]

    columns = Columns(["label"], every=True)
    records = [found.record for found in read_rows("a.xlsx", columns, Reading(bad_rows="skip"))]
    assert records == [{"text": "#N/A", "label": "x"}, {"text": "#VALUE!", "label": "x"}]


def test_times_are_no_numbers():
    """By the cell's format, built in or a program's own; a time that no calendar has is an error."""
    styles = '<numFmts><numFmt numFmtId="200" formatCode="dd/mm/yy"/></numFmts>'
    styles += '<cellStyleXfs><xf numFmtId="14"/></cellStyleXfs>'
    styles += '<cellXfs><xf numFmtId="0"/><xf numFmtId="14"/><xf numFmtId="200"/></cellXfs>'
    rows = "".join(
        row(cell("a"), cell(value, kind, style))
        for value, kind, style in (("2", "n", 0), ("2", "n", 1), ("2.5", "n", 2))
    )
    rows += row(cell("a"), cell("2026-01-02", "d"))
    labels = [label for _, label in read(write(rows, styles=styles))]
    assert labels == [
        2,
        datetime.datetime(1900, 1, 2),
        datetime.datetime(1900, 1, 2, 12),
        datetime.date(2026, 1, 2),
    ]
    assert "shows the error ########" in refusal(
        write(row(cell("a"), cell("-1E9", "n", 1)), styles=styles)
    )


def test_a_hidden_sheet_is_read_only_where_no_other_has_the_columns():
    """A person does not see it; two sheets in sight are an error."""
    rows = row(cell("a"), cell("x"))
    assert read(write(rows, others='<sheet name="old" state="hidden" r:id="d"/>')) == [("a", "x")]
    assert "several sheets have these columns ('main', 'old')" in refusal(
        write(rows, others='<sheet name="old" r:id="d"/>')
    )


def test_the_strict_format_is_refused_by_its_name():
    source = write("", namespace="http://purl.oclc.org/ooxml/spreadsheetml/main")
    assert refusal(source) == (
        "a.xlsx: a Strict Open XML file; save it as an ordinary .xlsx file in a spreadsheet program"
    )


def test_a_header_within_the_sheet_is_left_out():
    """As where somebody has put several sheets below each other."""
    reading = Reading()
    rows = row(cell("a"), cell("x")) + HEADER + row(cell("b"), cell("y"))
    found = read_rows(write(rows), Columns(["text"], "label"), reading)
    assert [found_row.text for found_row in found] == ["a", "b"]
    assert list(reading.notes.warnings("train")) == [
        "rows of train that repeat the header, which are left out: 1 (a.xlsx:3)"
    ]


PIECES = LONGEST_LINE // 1024
TEXT = "a" * 1024
BOMBS = {
    "a cell": (
        ["<row><c t='str'><v>", *[TEXT] * (PIECES + 1), "</v></c></row>"],
        "",
        "a row is longer",
    ),
    "a row": (["<row>", *["<c/>" * 4096] * 40, "</row>"], "", "row 2 has more than 16,384 columns"),
    "a tag": ([f"<row><c t='{TEXT}", *[TEXT] * (2 * PIECES), "'/></row>"], "", "an element of xl/"),
    "a string": ("", ["<si><t>", *[TEXT] * (PIECES + 1), "</t></si>"], "a row is longer"),
    "the strings": ("", [f"<si><t>{TEXT}</t></si>"] * (4 * PIECES), "its texts are more than 100"),
}


@pytest.mark.parametrize("name", BOMBS)
def test_a_small_file_that_unpacks_to_much_is_refused_in_little_memory(name):
    """The error names the file."""
    rows, strings, message = BOMBS[name]
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
