"""Excel files: the rows of the sheet that is meant, or an error of one line."""

from __future__ import annotations

import datetime
import zipfile
from pathlib import Path

import pytest
from support.excel import write_excel, write_sheets

from encoder_cls.config.reading_options import ReadingOptions
from encoder_cls.data.reading.columns import Columns
from encoder_cls.data.reading.reading import Reading
from encoder_cls.data.sources import column_names, read_rows
from encoder_cls.errors import DataError

TABLE = [["text", "label"], ["a", "x"]]


def read(source: str, reading: Reading | None = None) -> list[tuple[object, ...]]:
    """The text, label, id and place of each row."""
    rows = read_rows(source, Columns(["text"], "label"), reading or Reading())
    return [(row.text, row.label, row.id, str(row.where)) for row in rows]


def refusal(source: str) -> str:
    with pytest.raises(DataError) as error:
        read(source)
    assert str(error.value).isprintable()
    return str(error.value)


def test_rows_have_their_numbers_and_values():
    """A number among texts is its digits, as a person sees it; empty rows are none."""
    source = write_excel(
        "a.xlsx",
        ["id", "text", "label"],
        [7, "a\nb", "x"],
        [None, None, None],
        [8, 123, 1],
        [9, None, "x"],
    )

    assert read(source) == [
        ("a\nb", "x", 7, "a.xlsx:2"),
        ("123", 1, 8, "a.xlsx:4"),
        ("", "x", 9, "a.xlsx:5"),
    ]


def test_the_sheet_that_has_the_columns_is_read():
    source = write_sheets("a.xlsx", {"notes": [["read", "me"]], "empty": [], "data": TABLE})
    assert read(source) == [("a", "x", None, "a.xlsx:2")]


def test_of_two_sheets_with_the_columns_neither_is_read():
    assert refusal(write_sheets("b.xlsx", {"one": TABLE, "two": TABLE})) == (
        "b.xlsx: several sheets have these columns ('one', 'two'); name one of them in "
        "data.sheet, or save it as a file"
    )


def test_of_two_sheets_with_the_columns_the_named_one_is_read():
    """A name that a file does not have decides nothing: another file of the data may have it."""
    source = write_sheets("a.xlsx", {"one": TABLE, "two": [["text", "label"], ["b", "y"]]})
    assert [row[0] for row in read(source, Reading(ReadingOptions(sheet="two")))] == ["b"]

    source = write_sheets("b.xlsx", {"one": TABLE, "notes": [["read", "me"]]})
    assert [row[0] for row in read(source, Reading(ReadingOptions(sheet="two")))] == ["a"]


def test_a_sheet_that_lacks_the_columns_is_named_with_the_others():
    """A sheet that is named is never left for another one."""
    sheets = {"cover": [["Complaints"]], "data": [["text", "topic"], ["a", "x"]], "more": [[1]]}
    source = write_sheets("a.xlsx", sheets)
    assert refusal(source).endswith(
        "this is sheet 'data'; data.sheet names another one ('cover', 'more')"
    )

    source = write_sheets("b.xlsx", {"one": TABLE, "notes": [["read", "me"]]})
    with pytest.raises(DataError, match=r"it has 'read', 'me' .* this is sheet 'notes'"):
        read(source, Reading(ReadingOptions(sheet="notes")))


def test_a_file_without_a_sheet_with_the_columns_is_refused():
    message = refusal(write_excel("c.xlsx", ["sentence", "label"]))
    assert message.startswith("c.xlsx: no column 'text'; it has 'sentence'")
    assert refusal(write_sheets("d.xlsx", {"one": []})) == "d.xlsx: the file is empty"


def test_a_bad_row_is_named_and_can_be_left_out():
    """A cell to the right of the header and a date in place of a text are bad."""
    source = write_excel(
        "a.xlsx",
        ["text", "label"],
        ["a", "x"],
        ["b", "y", "z"],
        [datetime.datetime(2026, 1, 2), "x"],
        ["c", "y"],
    )
    assert refusal(source) == "a.xlsx:3: a cell to the right of the header's 2 columns: 'z'"

    reading = Reading(ReadingOptions(bad_rows="skip"))
    assert [row[0] for row in read(source, reading)] == ["a", "c"]
    assert reading.notes.skipped.first == ["a.xlsx:3", "a.xlsx:4"]


def test_all_columns_are_there_where_they_are_kept():
    source = write_excel("a.xlsx", ["text", None, "n", "n"], ["a", 1, 2.5, True])

    (row,) = read_rows(source, Columns(["text"], every=True), Reading())

    assert row.record == {"text": "a", "": 1, "n": 2.5, "n.1": True}
    assert column_names(Path(source), ["text"], Reading()) == ["text", "", "n", "n.1"]


def replace_in_sheet(name: str, old: bytes, new: bytes) -> None:
    """Change the XML of a file's first sheet."""
    with zipfile.ZipFile(name) as file:
        parts = {part: file.read(part) for part in file.namelist()}

    sheet = "xl/worksheets/sheet1.xml"
    assert old in parts[sheet]
    parts[sheet] = parts[sheet].replace(old, new)

    with zipfile.ZipFile(name, "w", zipfile.ZIP_DEFLATED) as file:
        for part, content in parts.items():
            file.writestr(part, content)


def write_formulas() -> str:
    """Write a file with formulas without a stored result, and one whose result is an empty text."""
    source = write_excel(
        "a.xlsx",
        ["text", "label"],
        ["a", "x"],
        ["=A2", None],
        ["=A2", "x"],
        ['=""', "x"],
        ["b", "=B2"],
    )
    replace_in_sheet(source, b'<c r="A5">', b'<c r="A5" t="str">')
    return source


def test_a_formula_without_a_stored_result_makes_a_bad_row():
    """It does so also where the row has nothing else."""
    source = write_formulas()
    assert refusal(source).startswith(
        "a.xlsx:3: column 'text' holds a formula without a stored result; save the file"
    )

    reading = Reading(ReadingOptions(bad_rows="skip"))
    assert [row[:2] for row in read(source, reading)] == [("a", "x"), ("", "x")]
    assert reading.notes.skipped.count == 3


def test_a_stored_result_of_a_formula_is_read():
    source = write_formulas()
    replace_in_sheet(source, b"<v></v>", b"<v>7</v>")

    assert [row[:2] for row in read(source)] == [
        ("a", "x"),
        ("7", None),
        ("7", "x"),
        ("7", "x"),
        ("b", 7),
    ]


def test_a_formula_in_another_column_is_noted_once():
    notes: list[str] = []
    source = write_excel("a.xlsx", ["text", "n"], ["a", "=1"], ["b", "=2"])

    reading = Reading(notify=notes.append)
    rows = list(read_rows(source, Columns(["text"], every=True), reading))

    assert [row.record for row in rows] == [{"text": "a", "n": None}, {"text": "b", "n": None}]
    assert notes == [
        "warning: a.xlsx: cells that hold a formula without a stored result are read as empty"
    ]


def test_damaged_files_are_refused():
    """They have the mark of a ZIP file alone, wrong XML, or the first half of a file."""
    Path("a.xlsx").write_bytes(b"PK\x03\x04 nothing")
    with zipfile.ZipFile("b.xlsx", "w") as file:
        file.writestr("[Content_Types].xml", "<a>")
    sound = Path(write_excel("c.xlsx", *TABLE)).read_bytes()
    Path("c.xlsx").write_bytes(sound[: len(sound) // 2])

    for name in ("a.xlsx", "b.xlsx", "c.xlsx"):
        assert refusal(name).startswith(f"{name}: not a readable Excel file: ")
