"""Entries of a cache: made once, whatever happens to their files and to the processes that make them."""

from __future__ import annotations

import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
import pytest

from encoder_cls.data.rows import DiskBackedLocations, SourceLocation
from encoder_cls.errors import EncoderClsError
from encoder_cls.system import disk_arrays
from encoder_cls.system.disk_arrays import DiskBackedTexts

NUMBERS = np.arange(1000, dtype=np.int32)
TEXTS = ["a", "né", "", "d"]
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
        texts, matrix = DiskBackedTexts(TEXTS), NUMBERS.reshape(2, -1)
        some = texts.select(np.array([3, 1]))
        return Entry(matrix, NUMBERS[:0], NUMBERS > 3, texts, some, DiskBackedLocations(WHERE))


def cached(folder: Path, kind: str, key: dict[str, int], make: Callable[[], Entry]) -> Entry:
    return disk_arrays.cached(folder, kind, key, make, Entry, DiskBackedLocations)


def assert_is_whole(entry: Entry) -> None:
    assert entry.numbers.tolist() == NUMBERS.reshape(2, -1).tolist()
    assert entry.numbers.dtype == np.int32
    assert entry.none.tolist() == []
    assert entry.flags.sum() == 996
    assert (list(entry.texts), list(entry.some), list(entry.where)) == (TEXTS, [TEXTS[3], TEXTS[1]], WHERE)
    assert [(it.file, it.line) for it in entry.where] == [(it.file, it.line) for it in WHERE]
    assert (entry.name, entry.parts, entry.more) == ("café", (1, None, [2.5]), {"a": ("b",)})


def flipped(content: bytes, at: int) -> bytes:
    """Content of which one bit is another."""
    return content[:at] + bytes([content[at] ^ 1]) + content[at + 1 :]


def entry_in(folder: Path) -> Path:
    [entry] = folder.glob("kind-*")
    return entry


def test_an_entry_is_made_once(tmp_path):
    make = Maker()
    for _ in range(3):
        assert_is_whole(cached(tmp_path / "a" / "cache", "kind", {"a": 1}, make))
    assert make.times == 1


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
        *(lambda at=at: record.write_bytes(flipped(written, at)) for at in range(0, len(written), 29)),
        record.unlink,
    ]
    for times, damage in enumerate(damages, start=2):
        damage()
        assert_is_whole(cached(tmp_path, "kind", {}, make))
        assert make.times == times
    assert sorted(path.name for path in tmp_path.iterdir() if path.name != ".lock") == [entry_in(tmp_path).name]


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


def test_what_a_killed_process_left_is_removed(tmp_path):
    make = Maker()
    cached(tmp_path, "kind", {"a": 1}, make)

    class Killed(BaseException):
        pass

    def killed() -> Entry:
        (tmp_path / ".tmp-left").mkdir()
        raise Killed

    with pytest.raises(Killed):
        cached(tmp_path, "kind", {"a": 2}, killed)
    assert_is_whole(cached(tmp_path, "kind", {"a": 2}, make))
    assert not (tmp_path / ".tmp-left").exists()
    assert make.times == 2


def test_an_entry_stays_readable_when_its_files_are_gone(tmp_path):
    entry = cached(tmp_path, "kind", {}, Maker())
    for path in entry_in(tmp_path).iterdir():
        path.unlink()
    assert_is_whole(entry)


def test_a_folder_that_cannot_be_made_is_named(tmp_path):
    (tmp_path / "cache").write_text("a file in the way")
    with pytest.raises(EncoderClsError, match="cache: cannot write"):
        cached(tmp_path / "cache", "kind", {}, Maker())
