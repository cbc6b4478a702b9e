"""A key in, the arrays that are made for it out, mapped into memory: made the first time, read from files after that.

    CACHE/rows-0f3a.../
      train.text            an array: its numbers, one after the other
      ...
      record.json           the SHA-256 of its second line: of each array type and SHA-256, and what else was made

An entry is a folder that gets its name as a whole. Processes that share a cache take turns in making entries; the
kernel ends the turn of one that is killed. An entry that is damaged is made again.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from filelock import FileLock
from numpy.typing import NDArray

from encoder_cls.errors import EncoderClsError
from encoder_cls.system.disk_arrays import DiskBackedArray
from encoder_cls.system.files import remove_leftovers, reporting_os_errors, sha256, write_folder

RECORD_FILE, LOCK_FILE = "record.json", ".lock"
BLOCK = 1 << 24  # bytes of an array written or hashed at once


@dataclass(frozen=True)
class Entry:
    """What is made for a key: arrays by name, of one dimension, and values of JSON."""

    arrays: Mapping[str, DiskBackedArray[Any]]
    values: Mapping[str, Any]

    def array(self, name: str) -> NDArray[Any]:
        """An array, not to be changed."""
        return self.arrays[name].array()


Made = tuple[Mapping[str, NDArray[Any]], Mapping[str, Any]]


def cached(folder: Path, kind: str, key: Mapping[str, Any], make: Callable[[], Made]) -> Entry:
    """The entry of a key.

    Args:
        folder: of the cache, made if it is missing.
        kind: what the name of the entry begins with.
        key: values of JSON, all that the entry depends on.
        make: makes its arrays and values.

    Raises:
        EncoderClsError: the disk refuses.
    """
    path = folder / f"{kind}-{sha256(json.dumps(key, sort_keys=True).encode())[:32]}"
    found = _open(path)
    if found is not None:
        return found
    lock = FileLock(folder / LOCK_FILE)
    with reporting_os_errors(folder):
        folder.mkdir(parents=True, exist_ok=True)
        lock.acquire()
    try:
        remove_leftovers(folder)
        found = _open(path)  # another process may have made it in between
        if found is None:
            _write(path, *make())
            found = _open(path)
    finally:
        lock.release()
    if found is None:
        raise EncoderClsError(f"{path}: is not what was written just now; is the disk sound?")
    return found


def _write(path: Path, arrays: Mapping[str, NDArray[Any]], values: Mapping[str, Any]) -> None:
    listed = {name: {"dtype": array.dtype.str, "sha256": _hash(_blocks(array))} for name, array in arrays.items()}
    record = json.dumps({"arrays": listed, "values": values}).encode()
    lines = [sha256(record).encode(), b"\n", record]
    write_folder(path, {name: _blocks(array) for name, array in arrays.items()} | {RECORD_FILE: lines})


def _open(path: Path) -> Entry | None:
    """The entry of this name; none: there is none that is as it was written."""
    try:
        digest, _, content = (path / RECORD_FILE).read_bytes().partition(b"\n")
        if digest != sha256(content).encode():
            return None
        record = json.loads(content)
        listed = record["arrays"]
        arrays = {name: DiskBackedArray.of_file(path / name, np.dtype(it["dtype"]).type) for name, it in listed.items()}
        is_whole = all(
            _hash(_blocks(array.array(), after_each=array.forget)) == listed[name]["sha256"]
            for name, array in arrays.items()
        )
        return Entry(arrays, record["values"]) if is_whole else None
    except (FileNotFoundError, NotADirectoryError):
        return None
    except OSError as error:
        raise EncoderClsError(f"{path}: cannot be read: {error.strerror or error}") from error
    except ValueError:  # an array whose size is none of its type
        return None


def _blocks(array: NDArray[Any], after_each: Callable[[], None] = lambda: None) -> Iterator[bytes]:
    """The bytes of an array in parts, so that not all of it is in memory."""
    numbers = max(1, BLOCK // array.itemsize)
    for start in range(0, len(array), numbers):
        yield array[start : start + numbers].tobytes()
        after_each()


def _hash(blocks: Iterator[bytes]) -> str:
    digest = hashlib.sha256()
    for block in blocks:
        digest.update(block)
    return digest.hexdigest()
