"""The table of labels survives kills, full disks, spreadsheets and other programs."""

from __future__ import annotations

import errno
import os
from collections.abc import Sequence
from pathlib import Path

import pytest
from support.labelling import read_table

from encoder_cls.data.key_of_text import key_of_text
from encoder_cls.errors import DataError, EncoderClsError
from encoder_cls.extras.label.label_table import ADDED_COLUMNS, LabelledText, LabelTable
from encoder_cls.extras.label.pool import PoolText
from encoder_cls.system.csv_cells import CsvForm
from encoder_cls.system.row_text import row_text

FORM = CsvForm(has_mark=False)
TEXTS = ["plain", "two\nlines", 'quotes "and", commas', "=1+1", "ünï 😀", "\r\n"]


def row(number: int, text: str, label: str = "a") -> LabelledText:
    key = "k" + "abcdefghijkl"[number:] + "abcdefghijkl"[:number]
    return LabelledText(key, text, label, "2026-01-01", "random", "", cells={"text": text})


def table_at(path: Path, pool: Sequence[PoolText] = (), *, needs_label: bool = False) -> LabelTable:
    table = LabelTable(path, ["text"], FORM, needs_label=needs_label)
    table.read("utf-8", pool)
    return table


@pytest.fixture
def table(tmp_path: Path) -> LabelTable:
    table = table_at(tmp_path / "labels.csv")
    table.create()
    return table


def test_rows_are_read_as_they_were_written(table):
    rows = [row(number, text) for number, text in enumerate(TEXTS)]
    for each in rows:
        table.append(each)

    assert table_at(table.path).rows == rows
    assert [each["text"] for each in read_table(table.path)] == TEXTS


def test_a_line_cut_anywhere_is_moved_aside_and_no_other(table):
    """As a power cut would leave it: no label that was acknowledged is lost."""
    for number, text in enumerate(TEXTS[:-1]):
        table.append(row(number, text))
    before = table.path.read_bytes()
    last = row(11, 'last, with "quotes"\nand lines')
    table.append(last)
    whole = table.path.read_bytes()

    pool = [PoolText(last.key, last.text, last.cells)]
    torn = table.path.with_name("labels-torn.txt")
    for size in range(len(before), len(whole)):
        table.path.write_bytes(whole[:size])
        read = table_at(table.path, pool)
        assert read.rows[:5] == table.rows[:5]
        # The last line is kept if only its line end is missing.
        if read.rows[5:]:
            assert read.rows[5:] == [last]
        elif size > len(before):
            assert torn.read_bytes() == whole[len(before) : size] + b"\r\n"
            torn.unlink()

    table.path.write_bytes(before + b"\0" * 100)
    assert table_at(table.path, pool).path.read_bytes() == before


@pytest.mark.parametrize(
    "end",
    [
        b"my own text,b",
        b'"a quote that is never closed,b,,,,\r\n',
        b"last,a,2026-01-01,random,,kabcdefghijkl,too many\r\n",
    ],
    ids=["row without line end", "open quote", "too many fields"],
)
def test_what_others_have_written_is_never_removed(table, end):
    """A file that is no table any more is refused as it is, whatever its line ends are."""
    table.append(row(0, "first"))
    for saved in (table.path.read_bytes(), table.path.read_bytes().replace(b"\r\n", b"\n")):
        table.path.write_bytes(saved + end)
        with pytest.raises(DataError, match="correct it in a text editor"):
            table_at(table.path, [PoolText("k", "last", {"text": "last"})])
        assert table.path.read_bytes() == saved + end


def test_a_long_text_in_a_file_of_other_line_ends_is_read(table):
    table.append(row(0, "first"))
    table.append(row(1, "long " * 30_000))
    table.path.write_bytes(table.path.read_bytes().replace(b"\r\n", b"\n"))
    assert table_at(table.path).rows == table.rows


@pytest.mark.parametrize("column", ADDED_COLUMNS)
def test_a_pool_may_have_columns_with_the_names_of_the_table(tmp_path, column):
    """Its texts and its other columns keep their names, and are read again."""
    texts = [column, f"label_{column}"]
    table = LabelTable(tmp_path / "labels.csv", texts, FORM, text_columns=texts)
    table.create()
    cells = {column: "first", f"label_{column}": "second"}
    text = row_text(list(cells.items()), {})
    labelled = LabelledText("kabcdefghijkl", text, "a", cells=cells)
    table.append(labelled)

    (saved,) = read_table(table.path)
    assert saved[column] == "first"
    assert saved[f"label_{column}"] == "second"
    assert saved[table.label_column] == "a"
    again = LabelTable(table.path, texts, FORM, text_columns=texts)
    again.read("utf-8")
    assert again.rows == [labelled]


def test_a_pool_that_has_another_column_since_keeps_both(table):
    """The column `key` of the file is that of the table, as its header shows by its end."""
    table.append(row(0, "first"))
    again = LabelTable(table.path, ["text", "key"], FORM)
    again.read("utf-8")
    second = row(1, "second")
    again.append(second._replace(cells={"text": "second", "key": "SHOP-2"}))

    rows = read_table(table.path)
    assert [each["key"] for each in rows] == ["", "SHOP-2"]
    assert [each["label_key"] for each in rows] == [row(0, "").key, second.key]


def test_rows_without_a_label_stay_until_their_text_is_labelled(tmp_path):
    path = tmp_path / "mine.csv"
    path.write_text("text,label,comment\nfirst,a,\nsecond,,mine\nthird,,mine too\n")
    table = table_at(path, needs_label=True)
    assert [each.text for each in table.rows] == ["first"]

    key = key_of_text("second")
    table.append(LabelledText(key, "second", "b", cells={"text": "second"}))
    rows = {each["text"]: (each["label"], each["comment"]) for each in read_table(path)}
    assert rows == {"first": ("a", ""), "second": ("b", "mine"), "third": ("", "mine too")}

    table.replace([each for each in table.rows if each.key != key])
    assert {each["text"]: each["label"] for each in read_table(path)}["second"] == ""


def test_names_of_columns_are_read_as_they_were_written(tmp_path):
    """Also names that are equal once they are written: a second start adds no columns."""
    columns = ["text", " id", "id", "Id\n", "\udc00", "\\udc00", ""]
    headers = set()
    for _ in range(3):
        table = LabelTable(tmp_path / "labels.csv", columns, FORM)
        table.read("utf-8")
        table.append(row(0, "a text"))
        headers.add(table.path.read_bytes().split(b"\r\n")[0])
    assert len(headers) == 1


def test_a_full_disk_takes_no_part_of_a_label(table, monkeypatch):
    table.append(row(0, "kept"))
    before = table.path.read_bytes()

    def fail(_descriptor: int) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    with monkeypatch.context() as patch:
        patch.setattr(os, "fsync", fail)
        with pytest.raises(EncoderClsError, match="No space left"):
            table.append(row(1, "refused"))

    assert table.path.read_bytes() == before
    assert len(table.rows) == 1
    table.append(row(1, "now there is space"))
    assert [each["text"] for each in read_table(table.path)] == ["kept", "now there is space"]


@pytest.mark.parametrize(
    "changed",
    [
        lambda content: content + b"theirs,b,,,,\r\n",
        lambda content: content.replace(b",a,", b",b,"),
    ],
    ids=["longer", "as long as before"],
)
def test_a_file_that_another_program_has_changed_is_not_written(table, changed):
    table.append(row(0, "mine"))
    table.path.write_bytes(changed(table.path.read_bytes()))
    content = table.path.read_bytes()

    with pytest.raises(EncoderClsError, match="another program"):
        table.append(row(1, "mine, too"))
    with pytest.raises(EncoderClsError, match="another program"):
        table.replace([])
    assert table.path.read_bytes() == content


def test_a_table_that_has_come_meanwhile_is_not_replaced(tmp_path):
    table = table_at(tmp_path / "labels-skipped.csv")
    table.path.write_text("of another program")
    with pytest.raises(EncoderClsError, match="another program"):
        table.append(row(0, "mine"))
    assert table.path.read_text() == "of another program"


def test_a_table_that_a_spreadsheet_has_saved_is_continued(table):
    """With semicolons, another order of columns, a further column, and a row without a key."""
    table.append(row(0, "first"))
    saved = "\ufefflabel;remark;key;text\nb;why;kabcdefghijkl;first\nc;;;second\n"
    table.path.write_text(saved, encoding="utf-8")

    read = table_at(table.path)
    assert [(each.text, each.label) for each in read.rows] == [("first", "b"), ("second", "c")]
    read.append(row(2, "third"))

    rows = read_table(table.path)
    assert [each["text"] for each in rows] == ["first", "second", "third"]
    assert rows[0]["remark"] == "why"
    assert all(each["key"].startswith("k") for each in rows)
