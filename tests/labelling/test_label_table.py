"""The table of labels survives kills, full disks, spreadsheets and other programs."""

from __future__ import annotations

import errno
import os
from pathlib import Path

import pytest
from support.labelling import read_table

from encoder_cls.data.reading.csv_form import CsvForm
from encoder_cls.errors import EncoderClsError
from encoder_cls.labelling.label_table import LabelledText, LabelTable

FORM = CsvForm(has_mark=False, is_guarded=False)
TEXTS = ["plain", "two\nlines", 'quotes "and", commas', "=1+1", "ünï 😀", "\r\n"]


def row(number: int, text: str, label: str = "a") -> LabelledText:
    key = "k" + "abcdefghijkl"[number:] + "abcdefghijkl"[:number]
    return LabelledText(key, text, label, "2026-01-01", "random", "", cells={"text": text})


def table_at(path: Path) -> LabelTable:
    table = LabelTable(path, ["text"], FORM)
    table.read(["text"], "utf-8")
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


def test_a_line_cut_anywhere_is_removed_and_no_other(table):
    """As a power cut would leave it: no label that was acknowledged is lost."""
    for number, text in enumerate(TEXTS[:-1]):
        table.append(row(number, text))
    before = table.path.read_bytes()
    table.append(row(11, 'last, with "quotes"\nand lines'))
    whole = table.path.read_bytes()

    for size in range(len(before), len(whole)):
        table.path.write_bytes(whole[:size])
        read = table_at(table.path)
        assert read.rows[:5] == table.rows[:5]
        # A last line is kept if only its key or its line end is missing.
        for kept in read.rows[5:]:
            assert kept[1:6] == table.rows[5][1:6]
        assert table_at(table.path).rows == read.rows

    table.path.write_bytes(before + b"\0" * 100)
    assert table_at(table.path).path.read_bytes() == before


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


def test_a_file_that_another_program_has_changed_is_not_written(table):
    table.append(row(0, "mine"))
    changed = table.path.read_bytes() + b"theirs,b,,,,\r\n"
    table.path.write_bytes(changed)

    with pytest.raises(EncoderClsError, match="another program"):
        table.append(row(1, "mine, too"))
    with pytest.raises(EncoderClsError, match="another program"):
        table.replace([])
    assert table.path.read_bytes() == changed


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
