"""Locations on disk, and a cache of data classes whose arrays are files mapped into memory.

    CACHE/rows-0f3a.../
      0, 1, ...             arrays: their numbers, one after the other
      record.json           the SHA-256 of its second line: the type and SHA-256 of each array, and the value

An entry is a folder that is renamed into place as a whole. Processes that share a cache take turns in making entries;
the kernel ends the turn of one that is killed. A damaged entry is made again.
"""

from __future__ import annotations

import hashlib
import json
import unicodedata
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from importlib.metadata import version
from pathlib import Path
from typing import Any, TypeVar

import numpy as np
from filelock import FileLock
from numpy.typing import NDArray

from encoder_cls.data.rows import SourceLocation
from encoder_cls.errors import EncoderClsError
from encoder_cls.system.disk_arrays import Column, DiskBackedArray, DiskBackedRaggedArray, DiskBackedTexts, in_chunks
from encoder_cls.system.files import remove_leftovers, reporting_os_errors, sha256, write_folder

FORMAT = 3  # raised with any change of what an entry holds
RECORD_FILE, LOCK_FILE = "record.json", ".lock"
BLOCK = 1 << 24  # bytes of an array that are written or hashed at once

Value = TypeVar("Value")
Arrays = list[DiskBackedArray[Any]]


class DiskBackedLocations(Column[SourceLocation]):
    """Where rows were read: a number for the file of each, and its line."""

    def __init__(self, locations: Iterable[SourceLocation] = ()) -> None:
        self._files: dict[str, int] = {}
        self._numbers = DiskBackedArray(np.int32)
        self._lines = DiskBackedArray(np.int64)
        for chunk in in_chunks(locations):
            self.append(chunk)

    def append(self, locations: Sequence[SourceLocation]) -> None:
        """Add locations at the end."""
        self._numbers.append([self._files.setdefault(it.file, len(self._files)) for it in locations])
        self._lines.append([it.line for it in locations])

    def _count(self) -> int:
        return len(self._lines.array())

    def _at(self, rows: NDArray[np.int64]) -> list[SourceLocation]:
        files = list(self._files)
        numbers = zip(self._numbers.array()[rows].tolist(), self._lines.array()[rows].tolist(), strict=True)
        return [SourceLocation(files[number], line) for number, line in numbers]


def cached(folder: Path, kind: str, key: Mapping[str, Any], make: Callable[[], Value], *classes: type[Any]) -> Value:
    """The value of a key: made the first time, read from the cache after that.

    Args:
        folder: of the cache; created if it is missing.
        kind: what the name of the entry begins with.
        key: JSON values, all that the value depends on besides the versions of libraries.
        make: makes the value, of tuples, dicts, JSON values, arrays, columns and data classes.
        classes: the data classes.
    """
    versions = [FORMAT, *map(version, ("encoder-cls", "pyarrow", "tokenizers")), unicodedata.unidata_version]
    name = sha256(json.dumps({**key, "versions": versions}, sort_keys=True).encode())[:32]
    path = folder / f"{kind}-{name}"
    by_name = {it.__name__: it for it in (*classes, *COLUMNS)}
    record, arrays = _read(path)
    if record is None:
        lock = FileLock(folder / LOCK_FILE)
        with reporting_os_errors(folder):
            folder.mkdir(parents=True, exist_ok=True)
            lock.acquire()
        try:
            remove_leftovers(folder)
            record, arrays = _read(path)  # another process may have made it in between
            if record is None:
                _write(path, make())
                record, arrays = _read(path)
        finally:
            lock.release()
    if record is None:
        raise EncoderClsError(f"{path}: is not what was written just now; is the disk sound?")
    value: Value = _unpacked(record["value"], arrays, by_name)
    return value


COLUMNS: tuple[type[Any], ...] = (DiskBackedTexts, DiskBackedLocations, DiskBackedRaggedArray)


def _packed(value: Any, arrays: Arrays) -> Any:
    """A value as JSON, each array of it as its index in `arrays`, where each is once."""
    if isinstance(value, DiskBackedArray):
        index = next((index for index, it in enumerate(arrays) if it is value), len(arrays))
        arrays[index:] = [*arrays[index:]] or [value]
        return {"array": index}
    if isinstance(value, np.ndarray):
        array = _packed(DiskBackedArray(value.dtype.type, value.reshape(-1)), arrays)
        return array | {"shape": value.shape}
    if isinstance(value, list | tuple):
        return {type(value).__name__: [_packed(it, arrays) for it in value]}
    if isinstance(value, Mapping):
        return {"dict": {name: _packed(it, arrays) for name, it in value.items()}}
    if value is None or isinstance(value, str | int | float):
        return value
    members = {name: _packed(it, arrays) for name, it in vars(value).items()}
    return {"class": type(value).__name__, "members": members}


def _unpacked(value: Any, arrays: Arrays, classes: Mapping[str, type[Any]]) -> Any:
    if not isinstance(value, dict):
        return value
    for make in (list, tuple):
        if make.__name__ in value:
            return make(_unpacked(it, arrays, classes) for it in value[make.__name__])
    if "array" in value:
        array = arrays[value["array"]]
        return array.array().reshape(value["shape"]) if "shape" in value else array
    packed = value["members" if "class" in value else "dict"]
    members = {name: _unpacked(it, arrays, classes) for name, it in packed.items()}
    if "class" not in value:
        return members
    made = object.__new__(classes[value["class"]])
    vars(made).update(members)
    return made


def _write(path: Path, value: Any) -> None:
    arrays: Arrays = []
    packed = _packed(value, arrays)
    listed = [{"dtype": it.array().dtype.str, "sha256": _hash(it)} for it in arrays]
    record = json.dumps({"arrays": listed, "value": packed}).encode()
    lines = [sha256(record).encode(), b"\n", record]
    write_folder(path, {str(number): _blocks(it) for number, it in enumerate(arrays)} | {RECORD_FILE: lines})


def _read(path: Path) -> tuple[dict[str, Any] | None, Arrays]:
    try:
        digest, _, content = (path / RECORD_FILE).read_bytes().partition(b"\n")
        if digest != sha256(content).encode():
            return None, []
        record = json.loads(content)
        listed = record["arrays"]
        arrays = [
            DiskBackedArray.of_file(path / str(number), np.dtype(it["dtype"]).type) for number, it in enumerate(listed)
        ]
        is_whole = all(_hash(array) == it["sha256"] for array, it in zip(arrays, listed, strict=True))
    except (FileNotFoundError, NotADirectoryError, ValueError):  # ValueError: half a number at the end of an array
        return None, []
    except OSError as error:
        raise EncoderClsError(f"{path}: cannot be read: {error.strerror or error}") from error
    return (record, arrays) if is_whole else (None, [])


def _blocks(array: DiskBackedArray[Any]) -> Iterator[bytes]:
    """The bytes of an array in parts, so that not all of it is in memory."""
    numbers = array.array()
    step = max(1, BLOCK // numbers.itemsize)
    for start in range(0, len(numbers), step):
        yield numbers[start : start + step].tobytes()
        array.forget()


def _hash(array: DiskBackedArray[Any]) -> str:
    digest = hashlib.sha256()
    for block in _blocks(array):
        digest.update(block)
    return digest.hexdigest()
