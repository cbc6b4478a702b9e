"""Excel files: the rows of the sheet that is meant, or one line that says what is in the way."""

from __future__ import annotations

import datetime
import sys
import zipfile
from pathlib import Path

import pytest

from encoder_cls.data.readers import column_names, read_rows, read_rows_and_columns
from encoder_cls.data.reading import Reading
from encoder_cls.errors import ConfigError, DataError

openpyxl = pytest.importorskip("openpyxl")


def write(name: str, **sheets: list[list[object]]) -> str:
    book = openpyxl.Workbook()
    book.remove(book.active)
    for title, rows in sheets.items():
        sheet = book.create_sheet(title)
        for row in rows:
            sheet.append(row)
    book.save(name)
    return name


def read(source: str, **options) -> list[tuple[object, ...]]:
    found = read_rows(source, role="train", text_columns=["text"], label_column="label", **options)
    return [(row.text, row.label, row.id, str(row.where)) for row in found]


def refusal(source: str) -> str:
    with pytest.raises(DataError) as error:
        read(source)
    assert str(error.value).isprintable()
    return str(error.value)


def test_rows_have_their_numbers_and_values():
    """A number among texts is its digits, as a person sees it; empty rows are none."""
    rows = [["id", "text", "label"], [7, "a\nb", "x"], [None] * 3, [8, 123, 1], [9, None, "x"]]
    expected = [("a\nb", "x", 7, "a.xlsx:2"), ("123", 1, 8, "a.xlsx:4"), ("", "x", 9, "a.xlsx:5")]
    assert read(write("a.xlsx", data=rows)) == expected


def test_the_sheet_that_has_the_columns_is_read():
    """Not one of notes before it; where two have them, nobody knows which is meant."""
    table = [["text", "label"], ["a", "x"]]
    assert read(write("a.xlsx", notes=[["read", "me"]], empty=[], data=table)) == [("a", "x", None, "a.xlsx:2")]
    assert refusal(write("b.xlsx", one=table, two=table)) == (
        "b.xlsx: several sheets have these columns ('one', 'two'); save the one that is meant as a file"
    )
    assert refusal(write("c.xlsx", one=[["sentence", "label"]])).startswith(
        "c.xlsx: no column 'text'; it has 'sentence'"
    )
    assert refusal(write("d.xlsx", one=[])) == "d.xlsx: the file is empty"


def test_a_bad_row_is_named_and_can_be_left_out():
    """A cell beyond the header, and a date where a text is expected."""
    day = datetime.datetime(2026, 1, 2)
    source = write("a.xlsx", data=[["text", "label"], ["a", "x"], ["b", "y", "z"], [day, "x"], ["c", "y"]])
    assert refusal(source) == "a.xlsx:3: a cell to the right of the header's 2 columns: 'z'"
    reading = Reading(bad_rows="skip")
    assert [row[0] for row in read(source, reading=reading)] == ["a", "c"]
    assert reading.skipped.first == ("a.xlsx:3", "a.xlsx:4")


def test_all_columns_are_there_where_they_are_kept():
    """Equal and empty names get numbers."""
    source = write("a.xlsx", data=[["text", None, "n", "n"], ["a", 1, 2.5, True]])
    (found,) = read_rows_and_columns(source, text_columns=["text"])
    assert found[1] == {"text": "a", "": 1, "n": 2.5, "n.1": True}
    assert column_names(Path(source), text_columns=["text"]) == ["text", "", "n", "n.1"]


def test_many_rows_come_in_order():
    """More than are read at once."""
    source = write("a.xlsx", data=[["text", "label"], *([f"t{number}", "x"] for number in range(2500))])
    assert [row[0] for row in read(source)] == [f"t{number}" for number in range(2500)]


def test_damaged_files_are_refused():
    """Whatever the library thinks of them."""
    Path("a.xlsx").write_bytes(b"PK\x03\x04 nothing")
    assert refusal("a.xlsx").startswith("a.xlsx: not a readable Excel file: ")
    with zipfile.ZipFile("b.xlsx", "w") as file:
        file.writestr("[Content_Types].xml", "<a>")
    assert refusal("b.xlsx").startswith("b.xlsx: not a readable Excel file: ")
    good = Path(write("c.xlsx", data=[["text", "label"], ["a", "x"]])).read_bytes()
    Path("d.xlsx").write_bytes(good[: len(good) // 2])
    assert refusal("d.xlsx").startswith("d.xlsx: not a readable Excel file: ")


def test_where_openpyxl_is_missing_it_is_named(monkeypatch):
    """Before anything is read, with what installs it."""
    source = write("a.xlsx", data=[["text", "label"], ["a", "x"]])
    monkeypatch.setitem(sys.modules, "openpyxl", None)
    with pytest.raises(ConfigError, match=r"^a\.xlsx: needs openpyxl: pip install 'encoder-cls\[excel\]'$"):
        read(source)


def test_what_excel_writes_beside_an_open_file_is_no_data():
    """Its name begins with ~$."""
    Path("d").mkdir()
    write("d/a.xlsx", data=[["text", "label"], ["a", "x"]])
    Path("d/~$a.xlsx").write_bytes(b"\5owner")
    assert len(read("d")) == 1
