"""Columns: what was appended is read back, from memory or from a file that nobody sees."""

from __future__ import annotations

import errno
import io
import tempfile
from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from encoder_cls.errors import EncoderClsError
from encoder_cls.system import disk_arrays as columns
from encoder_cls.system.disk_arrays import CHUNK, DiskBackedArray, DiskBackedRaggedArray, DiskBackedTexts, in_chunks

TEXTS = ["", "a", "naïve 🙂", "", "two\nlines", "\0", "last"]


@pytest.fixture(params=[1 << 20, 5], ids=["memory", "file"], autouse=True)
def most_pending(request, tmp_path, monkeypatch) -> int:
    """With the second, nearly each part is written."""
    monkeypatch.setattr(columns, "MOST_IN_MEMORY", request.param)
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    return request.param


@pytest.mark.parametrize("dtype", [np.uint8, np.int32, np.int64, np.bool_])
@pytest.mark.parametrize("lengths", [[], [0], [1], [3, 0, 50, 1], [7] * 20])
def test_parts_make_one_array(dtype, lengths):
    """In order, of the type asked for, also where there are none."""
    column, random = DiskBackedArray(dtype), np.random.default_rng(0)
    parts = [random.integers(0, 2, length) for length in lengths]
    for part in parts:
        column.append(part)
    expected = np.concatenate([np.zeros(0, dtype=dtype), *parts])
    for _ in range(2):
        assert column.array().dtype == dtype
        assert column.array().tolist() == expected.tolist()
        column.forget()


@pytest.mark.parametrize("parts", [[], [[]], [[[]], [[1, 2], [], [3]], [], [[4], []]], [[[5] * 7] * 5] * 4])
def test_rows_make_one_flat_array(parts):
    """With the places where each begins and the last ends, whatever the parts they came in."""
    ragged, rows = DiskBackedRaggedArray(np.int32), [row for part in parts for row in part]
    for part in parts:
        ragged.append(np.array([number for row in part for number in row]), [*map(len, part)])
    for _ in range(2):
        numbers, offsets = ragged.arrays()
        assert (numbers.dtype, offsets.dtype) == (np.int32, np.int64)
        assert len(offsets) == len(ragged) + 1 == len(rows) + 1
        assert [numbers[start:end].tolist() for start, end in pairwise(offsets)] == rows
        ragged.forget()


@settings(max_examples=60, deadline=None, derandomize=True)
@given(parts=st.lists(st.lists(st.text(st.characters(exclude_categories=["Cs"]), max_size=9), max_size=5), max_size=5))
def test_texts_are_read_back(parts):
    """Any text, in parts of any size."""
    column = DiskBackedTexts()
    for part in parts:
        column.append(part)
    expected = [text for part in parts for text in part]
    assert len(column) == len(expected)
    assert list(column) == column[:] == expected


def test_texts_are_a_sequence():
    """Indices and slices mean what they mean in a list."""
    column = DiskBackedTexts(TEXTS)
    places = [0, 3, -1, np.int64(2)]
    assert [column[place] for place in places] == [TEXTS[place] for place in places]
    for part in (slice(2, 5), slice(None, None, -2), slice(5, 99), slice(3, 3)):
        assert column[part] == TEXTS[part]
    for outside in (len(TEXTS), -len(TEXTS) - 1):
        with pytest.raises(IndexError):
            column[outside]


def test_a_selection_is_a_sequence_of_its_own():
    """Rows in any order, some of them twice; also a selection of a selection."""
    column = DiskBackedTexts(TEXTS)
    selection = column.select(np.array([6, 1, 1, 2]))
    assert list(selection) == [TEXTS[6], TEXTS[1], TEXTS[1], TEXTS[2]]
    assert list(selection.select(np.array([3, 0]))) == [TEXTS[2], TEXTS[6]]
    assert selection[-1] == TEXTS[2]
    assert list(column.select(np.array([], dtype=np.int64))) == []
    assert list(column) == TEXTS


def test_what_is_written_has_no_name(tmp_path, most_pending):
    """The file is in the folder for temporary files, but no name is, so that nothing can be left behind."""
    column = DiskBackedTexts(TEXTS)
    opened = [str(link.readlink()) for link in Path("/proc/self/fd").iterdir() if link.is_symlink()]
    assert any(name.startswith(str(tmp_path)) for name in opened) == (most_pending == 5)
    assert list(column) == TEXTS
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("most_pending", [5], indirect=True)
def test_a_full_disk_is_named(tmp_path, monkeypatch, most_pending):
    """The error names the folder and how to choose another."""

    class Full(io.BytesIO):
        def write(self, content):
            raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(tempfile, "TemporaryFile", lambda **_: Full())
    with pytest.raises(EncoderClsError, match=rf"{tmp_path}: cannot write .*: No space left on device .*TMPDIR"):
        DiskBackedTexts(TEXTS)


@pytest.mark.parametrize("count", [0, 1, CHUNK, 2 * CHUNK + 1])
def test_texts_come_in_chunks(count):
    """All of them, in order, none empty."""
    texts = [str(number) for number in range(count)]
    found = [*in_chunks(iter(texts))]
    assert [text for chunk in found for text in chunk] == texts
    assert all(0 < len(chunk) <= CHUNK for chunk in found)
