"""Entries of a cache are made once, whole, and again where they are damaged."""

from __future__ import annotations

import shutil
import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import pytest

from encoder_cls.data import load_dataset
from encoder_cls.errors import EncoderClsError
from encoder_cls.system import cache
from encoder_cls.system.cache import CacheEntry, cached
from encoder_cls.text import tokenizer

VALUES = {"name": "café", "parts": [1, None, [2.5]], "more": {"a": ["b"]}}
NUMBERS = np.arange(1000, dtype=np.int32)
ARRAYS = {
    "matrix": NUMBERS.reshape(2, -1),
    "part": NUMBERS[::7],
    "none": NUMBERS[:0],
    "flags": NUMBERS > 3,
}


class Maker:
    """Makes an entry, and counts how often."""

    def __init__(self) -> None:
        self.times = 0

    def __call__(self) -> CacheEntry:
        self.times += 1
        return CacheEntry(VALUES, ARRAYS)


def assert_is_whole(entry: CacheEntry) -> None:
    assert entry.values == VALUES
    assert entry.arrays.keys() == ARRAYS.keys()
    for name, array in ARRAYS.items():
        assert entry.arrays[name].dtype == array.dtype
        assert entry.arrays[name].tolist() == array.tolist()


def folder_of_entry(cache: Path) -> Path:
    (folder,) = cache.glob("kind-*")
    return folder


def test_each_key_and_kind_has_an_entry(tmp_path):
    make = Maker()
    cached(tmp_path, "kind", {"a": 1, "b": 2}, make)
    assert_is_whole(cached(tmp_path, "kind", {"b": 2, "a": 1}, make))
    assert make.times == 1

    cached(tmp_path, "kind", {"a": 1, "b": 3}, make)
    cached(tmp_path, "other", {"a": 1, "b": 2}, make)
    assert make.times == 3


@pytest.mark.parametrize("module", [load_dataset, tokenizer])
def test_other_code_makes_an_entry_of_its_own(tmp_path, monkeypatch, module):
    """A change of how texts are read or normalized is seen without a new version."""
    make = Maker()
    cached(tmp_path, "kind", {}, make)

    code = shutil.copytree(cache.CODE, tmp_path / "code", ignore=shutil.ignore_patterns("*.pyc"))
    monkeypatch.setattr(cache, "CODE", code)
    cached(tmp_path, "kind", {}, make)
    assert make.times == 1

    changed = code / Path(module.__file__).relative_to(Path(cache.__file__).parents[1])
    changed.write_text(changed.read_text() + "CHANGED = True\n")
    cached(tmp_path, "kind", {}, make)
    assert make.times == 2


def test_arrays_are_read_from_a_map_whose_changes_stay_in_memory(tmp_path):
    for _ in range(2):
        numbers = cached(tmp_path, "kind", {}, Maker()).arrays["matrix"]
        assert type(numbers) is np.ndarray
        assert isinstance(numbers.base, np.memmap)
        assert numbers[0, 0] == 0
        numbers[0, 0] = 7


def flipped(content: bytes, place: int) -> bytes:
    return content[:place] + bytes([content[place] ^ 1]) + content[place + 1 :]


# What is left of a file: a changed bit at a place from 0 to 1, or all but the last bytes, or
# nothing.
DAMAGED_CONTENTS = {
    "a bit at the beginning": lambda content: flipped(content, 0),
    "a bit in the middle": lambda content: flipped(content, len(content) // 2),
    "a bit near the middle": lambda content: flipped(content, len(content) // 3),
    "a bit at the end": lambda content: flipped(content, len(content) - 1),
    "the last byte": lambda content: content[:-1],
    "the last number": lambda content: content[:-4],
    "another JSON value": lambda _: b"[]",
    "no content": lambda _: b"",
}


@pytest.mark.parametrize("damage", DAMAGED_CONTENTS.values(), ids=DAMAGED_CONTENTS.keys())
@pytest.mark.parametrize("name", ["matrix.npy", "none.npy", "record.json"])
def test_a_damaged_entry_is_made_again(tmp_path, name, damage):
    make = Maker()
    cached(tmp_path, "kind", {}, make)
    file = folder_of_entry(tmp_path) / name
    file.write_bytes(damage(file.read_bytes()))

    assert_is_whole(cached(tmp_path, "kind", {}, make))
    assert make.times == 2
    names = {path.name for path in tmp_path.iterdir()}
    assert names == {".lock", folder_of_entry(tmp_path).name}


@pytest.mark.parametrize("name", ["matrix.npy", "record.json"])
def test_an_entry_without_a_file_is_made_again(tmp_path, name):
    make = Maker()
    cached(tmp_path, "kind", {}, make)
    (folder_of_entry(tmp_path) / name).unlink()

    assert_is_whole(cached(tmp_path, "kind", {}, make))
    assert make.times == 2


def test_two_at_once_make_one(tmp_path):
    make = Maker()
    started = threading.Barrier(2)

    def get() -> CacheEntry:
        started.wait()
        return cached(tmp_path, "kind", {}, make)

    with ThreadPoolExecutor(2) as pool:
        entries = [pool.submit(get) for _ in range(2)]
    for entry in entries:
        assert_is_whole(entry.result())
    assert make.times == 1


def test_an_entry_stays_readable_when_its_files_are_gone(tmp_path):
    entry = cached(tmp_path, "kind", {}, Maker())
    for path in folder_of_entry(tmp_path).iterdir():
        path.unlink()
    assert_is_whole(entry)


def test_a_folder_that_cannot_be_made_is_named(tmp_path):
    (tmp_path / "cache").write_text("a file in the way")
    with pytest.raises(EncoderClsError, match="cache: cannot write"):
        cached(tmp_path / "cache", "kind", {}, Maker())
