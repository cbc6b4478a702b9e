"""Tables with other rows above the names of their columns: a title, a date, empty rows."""

from __future__ import annotations

from pathlib import Path

import pytest
from support.excel import write_excel
from support.tables import write_table

from encoder_cls.data.reading.columns import Columns
from encoder_cls.data.reading.reading import Reading
from encoder_cls.data.sources import column_names, read_rows
from encoder_cls.errors import MissingColumnError

TITLE = ["Complaints of May", "", "", ""]
DAY = ["", "", "as of", "1 June"]
EMPTY = [""] * 4
NAMES = ["no", "text", "label", "note"]
ROWS = [["1", "late, and broken", "delivery", ""], ["2", "money back", "refund", "x"]]
SHEET = [TITLE, DAY, EMPTY, NAMES, *ROWS]


def write_sheet(name: str) -> str:
    return write_excel(name, *([cell or None for cell in row] for row in SHEET))


def write_padded(name: str) -> str:
    """As a spreadsheet saves the sheet as CSV: each line has all separators."""
    return write_table(name, SHEET, ";")


def write_unpadded(name: str) -> str:
    """As a program writes lines above its table."""
    return write_table(name, [["Complaints of May"], ["as of", "1 June"], [], NAMES, *ROWS])


def write_tabs(name: str) -> str:
    return write_table(name, [TITLE, DAY, EMPTY, NAMES, *ROWS], "\t")


each_table = pytest.mark.parametrize(
    ("write", "name", "unit"),
    [
        (write_sheet, "a.xlsx", "row"),
        (write_padded, "a.csv", "line"),
        (write_unpadded, "a.csv", "line"),
        (write_tabs, "a.tsv", "line"),
    ],
)


@each_table
def test_the_row_that_has_the_columns_is_the_header(write, name, unit):
    """It is so for all that a command reads: rows, their places and all names."""
    notes: list[str] = []
    source = write(name)

    reading = Reading(notify=notes.append)
    rows = list(read_rows(source, Columns(["text"], "label"), reading))

    assert [(row.text, row.label) for row in rows] == [tuple(row[1:3]) for row in ROWS]
    assert [str(row.where) for row in rows] == [f"{name}:5", f"{name}:6"]
    assert [row.where.row for row in rows] == [5, 6]
    assert (
        f"{name}: the names of its columns are in {unit} 4; the {unit}s above are left out" in notes
    )
    assert column_names(Path(source), ["text"], Reading()) == NAMES


@pytest.mark.parametrize(
    ("write", "name"),
    [(write_sheet, "a.xlsx"), (write_unpadded, "a.csv"), (write_tabs, "a.tsv")],
)
def test_where_a_column_is_missing_the_likely_names_are_listed(write, name):
    with pytest.raises(MissingColumnError, match="it has 'no', 'text', 'label', 'note'"):
        list(read_rows(write(name), Columns(["message"]), Reading()))


def test_a_row_with_the_names_of_another_table_is_a_row():
    """The header is the first row that has the columns, and only first rows are looked at."""
    source = write_table("a.csv", [NAMES, ["1", "text", "label", ""], *ROWS])
    reading = Reading()
    rows = list(read_rows(source, Columns(["text"], "label"), reading))
    assert [row.text for row in rows] == ["text", "late, and broken", "money back"]
    assert not reading.notes.messages

    source = write_table("b.csv", [["message"], *[["a"]] * 30, ["text"], ["b"]])
    with pytest.raises(MissingColumnError, match="it has 'message'"):
        list(read_rows(source, Columns(["text"]), Reading()))


def test_texts_with_commas_have_no_likely_header_among_them():
    """In a file of one column without quotes, rows have more fields than the header."""
    Path("a.csv").write_text("message\na, b\nc, d, e\nf\ng, h\n")
    assert column_names(Path("a.csv"), ["text"], Reading()) == ["message"]
