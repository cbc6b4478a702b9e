"""Columns of texts are sequences, in memory or on disk."""

from __future__ import annotations

import tempfile

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from encoder_cls.system import disk_arrays
from encoder_cls.system.lazy_sequences import DiskBackedTexts

TEXTS = ["", "a", "naïve 🙂", "", "two\nlines", "\0", "last"]


@pytest.fixture(params=[1 << 20, 5], ids=["memory", "file"], autouse=True)
def max_in_memory(request, tmp_path, monkeypatch) -> int:
    """The maximum number of bytes that stay in memory."""
    monkeypatch.setattr(disk_arrays, "MAX_IN_MEMORY", request.param)
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    return request.param


ANY_TEXTS = st.lists(st.text(st.characters(exclude_categories=["Cs"]), max_size=9), max_size=5)


@settings(max_examples=30, deadline=None, derandomize=True)
@given(parts=st.lists(ANY_TEXTS, max_size=5))
def test_texts_are_read_back(parts):
    column = DiskBackedTexts()
    expected = []
    for part in parts:
        column.append(part)
        expected += part

    assert len(column) == len(expected)
    assert list(column) == expected
    assert column[:] == expected


def test_texts_are_a_sequence():
    column = DiskBackedTexts(TEXTS)

    for place in (0, 3, -1, np.int64(2)):
        assert column[place] == TEXTS[place]

    for part in (slice(2, 5), slice(None, None, -2), slice(5, 99), slice(3, 3)):
        assert column[part] == TEXTS[part]


def test_a_place_outside_of_the_texts_is_an_index_error():
    column = DiskBackedTexts(TEXTS)

    for outside in (len(TEXTS), -len(TEXTS) - 1):
        with pytest.raises(IndexError):
            column[outside]


def test_a_selection_is_a_sequence_of_its_own():
    """Rows are in any order, some of them twice; also in a selection of a selection."""
    column = DiskBackedTexts(TEXTS)

    selection = column.select(np.array([6, 1, 1, 2]))

    assert list(selection) == [TEXTS[6], TEXTS[1], TEXTS[1], TEXTS[2]]
    assert list(selection.select(np.array([3, 0]))) == [TEXTS[2], TEXTS[6]]
    assert selection[-1] == TEXTS[2]
    assert list(column.select(np.array([], dtype=np.int64))) == []
    assert list(column) == TEXTS


@pytest.mark.parametrize("rows", [[0, 1, 2, 3, 4, 5, 6], [6, 1, 1, 2], []])
def test_the_arrays_of_texts_make_the_same_texts(rows):
    """The arrays of a selection have its texts alone."""
    selection = DiskBackedTexts(TEXTS).select(np.array(rows, dtype=np.int64))
    content, offsets = selection.arrays()

    expected = [TEXTS[row] for row in rows]
    assert bytes(content).decode() == "".join(expected)
    assert list(DiskBackedTexts.from_arrays(content, offsets)) == expected
