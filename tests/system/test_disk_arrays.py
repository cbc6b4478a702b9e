"""Arrays and texts on disk: read back as appended, and entries of a cache that are made once."""

from __future__ import annotations

import errno
import io
import tempfile
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from encoder_cls.data.rows import DiskBackedLocations, SourceLocation
from encoder_cls.errors import EncoderClsError
from encoder_cls.system import disk_arrays
from encoder_cls.system.disk_arrays import DiskBackedArray, DiskBackedTexts

TEXTS = ["", "a", "naïve 🙂", "", "two\nlines", "\0", "last"]


IN_MEMORY_OR_NOT = pytest.mark.parametrize(
    "most_pending", [1 << 20, 5], ids=["memory", "file"], indirect=True
)


@pytest.fixture(autouse=True)
def most_pending(request, tmp_path, monkeypatch) -> int:
    """Nearly each part is written, if nothing else is asked for."""
    most = getattr(request, "param", 5)
    monkeypatch.setattr(disk_arrays, "MOST_IN_MEMORY", most)
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    return most


@IN_MEMORY_OR_NOT
@pytest.mark.parametrize("dtype", [np.uint8, np.int32, np.int64, np.bool_])
@pytest.mark.parametrize("lengths", [[], [0], [1], [3, 0, 50, 1], [7] * 20])
def test_parts_make_one_array(dtype, lengths):
    column, random = DiskBackedArray(dtype), np.random.default_rng(0)
    parts = [random.integers(0, 2, length) for length in lengths]
    for part in parts:
        column.append(part)
    expected = np.concatenate([np.zeros(0, dtype=dtype), *parts])
    for _ in range(2):
        assert column.array().dtype == dtype
        assert column.array().tolist() == expected.tolist()
        column.forget()


@IN_MEMORY_OR_NOT
@settings(max_examples=60, deadline=None, derandomize=True)
@given(
    parts=st.lists(
        st.lists(st.text(st.characters(exclude_categories=["Cs"]), max_size=9), max_size=5),
        max_size=5,
    )
)
def test_texts_are_read_back(parts):
    column = DiskBackedTexts()
    for part in parts:
        column.append(part)
    expected = [text for part in parts for text in part]
    assert len(column) == len(expected)
    assert list(column) == column[:] == expected


@IN_MEMORY_OR_NOT
def test_texts_are_a_sequence():
    column = DiskBackedTexts(TEXTS)
    places = [0, 3, -1, np.int64(2)]
    assert [column[place] for place in places] == [TEXTS[place] for place in places]
    for part in (slice(2, 5), slice(None, None, -2), slice(5, 99), slice(3, 3)):
        assert column[part] == TEXTS[part]
    for outside in (len(TEXTS), -len(TEXTS) - 1):
        with pytest.raises(IndexError):
            column[outside]


@IN_MEMORY_OR_NOT
def test_a_selection_is_a_sequence_of_its_own():
    """Rows in any order, some of them twice; also a selection of a selection."""
    column = DiskBackedTexts(TEXTS)
    selection = column.select(np.array([6, 1, 1, 2]))
    assert list(selection) == [TEXTS[6], TEXTS[1], TEXTS[1], TEXTS[2]]
    assert list(selection.select(np.array([3, 0]))) == [TEXTS[2], TEXTS[6]]
    assert selection[-1] == TEXTS[2]
    assert list(column.select(np.array([], dtype=np.int64))) == []
    assert list(column) == TEXTS


@IN_MEMORY_OR_NOT
def test_what_is_written_has_no_name(tmp_path, most_pending):
    """The file is in the folder for temporary files, but no name is, so that nothing can be left behind."""
    column = DiskBackedTexts(TEXTS)
    opened = [str(link.readlink()) for link in Path("/proc/self/fd").iterdir() if link.is_symlink()]
    assert any(name.startswith(str(tmp_path)) for name in opened) == (most_pending == 5)
    assert list(column) == TEXTS
    assert list(tmp_path.iterdir()) == []


def test_a_full_disk_is_named(tmp_path, monkeypatch, most_pending):

    class Full(io.BytesIO):
        def write(self, content):
            raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(tempfile, "TemporaryFile", lambda **_: Full())
    with pytest.raises(
        EncoderClsError, match=rf"{tmp_path}: cannot write .*: No space left on device .*TMPDIR"
    ):
        DiskBackedTexts(TEXTS)


NUMBERS = np.arange(1000, dtype=np.int32)
CACHED = ["a", "né", "", "d"]
WHERE = [SourceLocation(*it) for it in (("a.csv", 2), ("b:1.csv", 3), ("c/1.txt",), ("a.csv", 9))]


@dataclass
class Entry:
    numbers: np.ndarray
    none: np.ndarray
    flags: np.ndarray
    texts: DiskBackedTexts
    some: DiskBackedTexts
    where: DiskBackedLocations
    name: str = "café"
    parts: tuple[object, ...] = (1, None, [2.5])
    more: dict[str, object] = field(default_factory=lambda: {"a": ("b",)})


class Maker:
    """Makes an entry, and counts how often."""

    def __init__(self) -> None:
        self.times = 0

    def __call__(self) -> Entry:
        self.times += 1
        texts, matrix = DiskBackedTexts(CACHED), NUMBERS.reshape(2, -1)
        some = texts.select(np.array([3, 1]))
        return Entry(matrix, NUMBERS[:0], NUMBERS > 3, texts, some, DiskBackedLocations(WHERE))


def cached(folder: Path, kind: str, key: dict[str, int], make: Callable[[], Entry]) -> Entry:
    return disk_arrays.cached(folder, kind, key, make, Entry, DiskBackedLocations)


def assert_is_whole(entry: Entry) -> None:
    assert entry.numbers.tolist() == NUMBERS.reshape(2, -1).tolist()
    assert entry.numbers.dtype == np.int32
    assert entry.none.tolist() == []
    assert entry.flags.sum() == 996
    assert (list(entry.texts), list(entry.some), list(entry.where)) == (
        CACHED,
        [CACHED[3], CACHED[1]],
        WHERE,
    )
    assert [(it.file, it.line) for it in entry.where] == [(it.file, it.line) for it in WHERE]
    assert (entry.name, entry.parts, entry.more) == ("café", (1, None, [2.5]), {"a": ("b",)})


def flipped(content: bytes, at: int) -> bytes:
    return content[:at] + bytes([content[at] ^ 1]) + content[at + 1 :]


def entry_in(folder: Path) -> Path:
    [entry] = folder.glob("kind-*")
    return entry


def test_each_key_and_kind_has_an_entry(tmp_path):
    make = Maker()
    cached(tmp_path, "kind", {"a": 1, "b": 2}, make)
    cached(tmp_path, "kind", {"b": 2, "a": 1}, make)
    assert make.times == 1
    cached(tmp_path, "kind", {"a": 1, "b": 3}, make)
    cached(tmp_path, "other", {"a": 1, "b": 2}, make)
    assert make.times == 3


def test_any_damage_is_noticed(tmp_path):
    """A bit of an array or of the record, a lost end, a lost file, a record that is none: the entry is made again."""
    make = Maker()
    cached(tmp_path, "kind", {}, make)
    numbers, record = entry_in(tmp_path) / "0", entry_in(tmp_path) / "record.json"
    content, written = numbers.read_bytes(), record.read_bytes()
    damages = [
        lambda: numbers.write_bytes(flipped(content, 0)),
        lambda: numbers.write_bytes(content[:-4]),
        lambda: numbers.write_bytes(content[:-1]),
        numbers.unlink,
        lambda: record.write_bytes(written[:-2]),
        lambda: record.write_bytes(b"[]"),
        *(
            lambda at=at: record.write_bytes(flipped(written, at))
            for at in range(0, len(written), len(written) // 8)
        ),
        record.unlink,
    ]
    for times, damage in enumerate(damages, start=2):
        damage()
        assert_is_whole(cached(tmp_path, "kind", {}, make))
        assert make.times == times
    assert sorted(path.name for path in tmp_path.iterdir() if path.name != ".lock") == [
        entry_in(tmp_path).name
    ]


def test_two_at_once_make_one(tmp_path):
    make, started, found = Maker(), threading.Barrier(2), []

    def get() -> None:
        started.wait()
        found.append(cached(tmp_path, "kind", {}, make))

    with ThreadPoolExecutor(2) as pool:
        for future in [pool.submit(get) for _ in range(2)]:
            future.result()
    assert make.times == 1
    for entry in found:
        assert_is_whole(entry)


def test_an_entry_stays_readable_when_its_files_are_gone(tmp_path):
    entry = cached(tmp_path, "kind", {}, Maker())
    for path in entry_in(tmp_path).iterdir():
        path.unlink()
    assert_is_whole(entry)


def test_a_folder_that_cannot_be_made_is_named(tmp_path):
    (tmp_path / "cache").write_text("a file in the way")
    with pytest.raises(EncoderClsError, match="cache: cannot write"):
        cached(tmp_path / "cache", "kind", {}, Maker())
