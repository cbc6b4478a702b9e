"""Entries of a cache: made once, whatever happens to their files and to the processes that make them."""

from __future__ import annotations

import os
import threading
from pathlib import Path

import numpy as np
import pytest

from encoder_cls.errors import EncoderClsError
from encoder_cls.system.array_cache import Entry, Made, cached

NUMBERS = np.arange(1000, dtype=np.int32)


class Maker:
    """Makes an entry, and counts how often."""

    def __init__(self) -> None:
        self.times = 0

    def __call__(self) -> Made:
        self.times += 1
        return {"numbers": NUMBERS, "none": NUMBERS[:0], "flags": NUMBERS > 3}, {"name": "café", "parts": [1, None]}


def assert_is_whole(entry: Entry) -> None:
    assert entry.array("numbers").tolist() == NUMBERS.tolist()
    assert entry.array("numbers").dtype == np.int32
    assert entry.array("none").tolist() == []
    assert entry.array("flags").sum() == 996
    assert entry.values == {"name": "café", "parts": [1, None]}


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
    numbers, record = entry_in(tmp_path) / "numbers", entry_in(tmp_path) / "record.json"
    content, written = numbers.read_bytes(), record.read_bytes()
    damages = [
        lambda: numbers.write_bytes(flipped(content, 0)),
        lambda: numbers.write_bytes(content[:-4]),
        lambda: numbers.write_bytes(content[:-1]),
        numbers.unlink,
        lambda: record.write_bytes(written[:-2]),
        lambda: record.write_bytes(b"[]"),
        *(lambda at=at: record.write_bytes(flipped(written, at)) for at in range(0, len(written), 7)),
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

    threads = [threading.Thread(target=get) for _ in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert make.times == 1
    for entry in found:
        assert_is_whole(entry)


def test_what_a_killed_process_left_is_removed(tmp_path):
    make = Maker()
    cached(tmp_path, "kind", {"a": 1}, make)

    class Killed(BaseException):
        pass

    def killed() -> Made:
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


@pytest.mark.skipif(os.name == "nt" or os.geteuid() == 0, reason="root may write anywhere")
def test_a_folder_that_refuses_is_named(tmp_path):
    tmp_path.chmod(0o500)
    with pytest.raises(EncoderClsError, match="cache: cannot write"):
        cached(tmp_path / "cache", "kind", {}, Maker())


def test_a_file_in_the_way_is_named(tmp_path):
    (tmp_path / "cache").write_text("a file")
    with pytest.raises(EncoderClsError, match="cache: cannot write"):
        cached(tmp_path / "cache", "kind", {}, Maker())
