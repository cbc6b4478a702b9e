"""Arrays and texts that may be larger than memory, read through memory maps: in temporary files, or in a cache.

Small arrays stay in memory; larger ones go to an unnamed file in `TMPDIR` that ends with the process. A cache entry is
a folder that is renamed into place as a whole: `0`, `1`, ... hold the numbers of arrays; the second line of
`record.json` holds their types and hashes, and the value, its first line the hash of the second. A damaged entry is
made again.
"""

from __future__ import annotations

import copy
import json
import mmap
import tempfile
import unicodedata
import weakref
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from itertools import chain, islice
from pathlib import Path
from typing import Any, Generic, Self, TypeVar

import numpy as np
from numpy.typing import NDArray

from encoder_cls.errors import EncoderClsError
from encoder_cls.system.files import (
    locked,
    remove_leftovers,
    reporting_os_errors,
    sha256,
    write_folder,
)
from encoder_cls.system.reporter import SILENT, Reporter

MOST_IN_MEMORY = 1 << 20  # bytes of an array
CHUNK = 1024  # texts, or rows, worked on at once
FORMAT = 4  # raised with any change of the content of an entry
RECORD_FILE, LOCK_FILE = "record.json", ".lock"

Number = TypeVar("Number", bound=np.generic)
Item = TypeVar("Item")
Value = TypeVar("Value")


class DiskBackedArray(Generic[Number]):
    """Numbers of one type that are appended and, after the last, read as an array, (numbers,)."""

    def __init__(self, dtype: type[Number], numbers: NDArray[Number] | None = None) -> None:
        self._dtype = dtype
        self._array = numbers
        self._file = tempfile.SpooledTemporaryFile(MOST_IN_MEMORY)  # noqa: SIM115 - it lives as long as the array
        self._map: mmap.mmap | None = None
        weakref.finalize(self, self._file.close)

    @classmethod
    def of_file(cls, path: Path, dtype: type[Number]) -> Self:
        """Map the numbers of a file into memory; changes there are not written (`OSError`, `ValueError`)."""
        with path.open("rb") as file:  # an empty file cannot be mapped
            mapped = (
                mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_COPY)
                if path.stat().st_size
                else None
            )
        array = cls(dtype, np.frombuffer(mapped or bytearray(), dtype))
        array._map = mapped
        return array

    def append(self, numbers: Sequence[Any] | NDArray[Any]) -> None:
        """Add numbers at the end; `EncoderClsError` where the disk is full."""
        try:
            self._file.write(np.asarray(numbers, dtype=self._dtype).tobytes())
            self._file.flush()
        except OSError as error:
            raise EncoderClsError(
                f"{tempfile.tempdir or 'TMPDIR'}: cannot write the data to a temporary file: "
                f"{error.strerror or error} (TMPDIR can name another folder)"
            ) from error

    def array(self) -> NDArray[Number]:
        """All numbers as a read-only array; after this call none can be appended."""
        if self._array is None:
            if self._file.tell() > MOST_IN_MEMORY:
                self._map = mmap.mmap(self._file.fileno(), 0, access=mmap.ACCESS_READ)
            self._file.seek(0)
            self._array = np.frombuffer(self._map or bytearray(self._file.read()), self._dtype)
            self._file.close()  # the map holds it
        return self._array

    def sha256(self) -> str:
        """The SHA-256 of all numbers."""
        digest = sha256(self.array().data)
        self.forget()
        return digest

    def forget(self) -> None:
        """Release the memory that reading has filled; later reads load it again from the file."""
        if self._map is not None and hasattr(mmap, "MADV_DONTNEED"):  # not on Windows
            self._map.madvise(mmap.MADV_DONTNEED)


class DiskBackedRaggedArray(Generic[Number]):
    """Rows of different lengths that are appended and, after the last, read as one flat array."""

    def __init__(self, dtype: type[Number]) -> None:
        self._numbers = DiskBackedArray(dtype)
        self._offsets = DiskBackedArray(np.int64)
        self._offsets.append([0])
        self._size, self._num_rows = 0, 0

    def __len__(self) -> int:
        return self._num_rows

    def append(self, numbers: NDArray[Any], lengths: Sequence[int] | NDArray[Any]) -> None:
        """Add rows at the end: their numbers, one row after the other, and how many each has."""
        self._numbers.append(numbers)
        self._offsets.append(self._size + np.cumsum(lengths, dtype=np.int64))
        self._size += len(numbers)
        self._num_rows += len(lengths)

    def arrays(self) -> tuple[NDArray[Number], NDArray[np.int64]]:
        """All numbers, and `rows + 1` offsets: row `i` has `numbers[offsets[i]:offsets[i + 1]]`."""
        return self._numbers.array(), self._offsets.array()

    def forget(self) -> None:
        """Release the memory that reading has filled."""
        self._numbers.forget()
        self._offsets.forget()


class Column(Sequence[Item], ABC):
    """Items that are made on access: those of all rows, or of selected ones."""

    _rows: NDArray[np.int64] | None = None  # the selected ones; None: all

    def select(self, rows: NDArray[np.int64]) -> Self:
        """The items of these rows, in this order; nothing is copied."""
        selection = copy.copy(self)
        selection._rows = rows if self._rows is None else self._rows[rows]
        return selection

    @abstractmethod
    def _count(self) -> int: ...

    @abstractmethod
    def _at(self, rows: NDArray[np.int64]) -> list[Item]: ...

    def __len__(self) -> int:
        return self._count() if self._rows is None else len(self._rows)

    def __getitem__(self, index: Any) -> Any:
        indices = range(len(self))[index]
        rows = np.atleast_1d(np.asarray(indices, dtype=np.int64))
        items = self._at(rows if self._rows is None else self._rows[rows])
        return items[0] if isinstance(indices, int) else items

    def __iter__(self) -> Iterator[Item]:
        for start in range(0, len(self), CHUNK):
            yield from self[start : start + CHUNK]


class DiskBackedTexts(Column[str]):
    """Texts, kept as UTF-8; half surrogate pairs cannot be appended (`UnicodeEncodeError`)."""

    def __init__(self, texts: Iterable[str] = ()) -> None:
        self._contents = DiskBackedRaggedArray(np.uint8)
        for chunk in in_chunks(texts):
            self.append(chunk)

    def append(self, texts: Sequence[str]) -> None:
        """Add texts at the end."""
        contents = [text.encode() for text in texts]
        self._contents.append(
            np.frombuffer(b"".join(contents), dtype=np.uint8), [*map(len, contents)]
        )

    def _count(self) -> int:
        return len(self._contents)

    def _at(self, rows: NDArray[np.int64]) -> list[str]:
        content, offsets = self._contents.arrays()
        ends = zip(offsets[rows].tolist(), offsets[rows + 1].tolist(), strict=True)
        texts = [str(content.data[start:end], "utf-8") for start, end in ends]
        self._contents.forget()
        return texts


class ConcatenatedTexts(Iterable[str]):
    """The texts of several sequences, one after the other; can be iterated any number of times."""

    def __init__(self, *parts: Sequence[str]) -> None:
        self._parts = parts

    def __iter__(self) -> Iterator[str]:
        return chain.from_iterable(self._parts)


def in_chunks(items: Iterable[Item], size: int | None = None) -> Iterator[list[Item]]:
    """Lists of `size` items (None: `CHUNK`), the last one perhaps shorter."""
    remaining = iter(items)
    while chunk := list(islice(remaining, size or CHUNK)):
        yield chunk


def cached(
    folder: Path,
    kind: str,
    key: Mapping[str, Any],
    make: Callable[[], Value],
    *classes: type[Any],
    reporter: Reporter = SILENT,
) -> Value:
    """The value of a key: made the first time, read from the cache after that.

    The key holds, as JSON values, all that the value depends on besides the versions of libraries. The value consists
    of tuples, dicts, JSON values, arrays, columns and data classes, which are among `classes`.
    """
    from importlib.metadata import version  # not needed to predict

    versions = [
        FORMAT,
        *map(version, ("encoder-cls", "pyarrow", "tokenizers")),
        unicodedata.unidata_version,
    ]
    name = sha256(json.dumps({**key, "versions": versions}, sort_keys=True).encode())[:32]
    path = folder / f"{kind}-{name}"
    known = {it.__name__: it for it in (DiskBackedTexts, DiskBackedRaggedArray, *classes)}
    entry = _read(path)
    if entry is None:
        with reporting_os_errors(folder):
            folder.mkdir(parents=True, exist_ok=True)
        with locked(folder / LOCK_FILE):
            remove_leftovers(folder)
            if _read(path) is None:  # nor has another process made it in between
                _write(path, make())
                reporter.note(f"data.cache: {kind} written to {path}")
            entry = _read(path)
    else:
        reporter.note(f"data.cache: {kind} read from {path}")
    if entry is None:
        raise EncoderClsError(f"{path}: differs from what was just written; check the disk")
    value: Value = _unpacked(*entry, known)
    return value


def _packed(value: Any, arrays: list[DiskBackedArray[Any]]) -> Any:
    """A value as JSON with the kind of each part; an array is its index in `arrays`. `_unpacked` is the inverse."""
    if value is None or isinstance(value, str | int | float):
        return value
    if isinstance(value, DiskBackedArray):
        if value not in arrays:
            arrays.append(value)
        return ["array", arrays.index(value)]
    if isinstance(value, np.ndarray):
        return [
            "shaped",
            _packed(DiskBackedArray(value.dtype.type, value.reshape(-1)), arrays),
            value.shape,
        ]
    if isinstance(value, list | tuple):
        return [type(value).__name__, *(_packed(it, arrays) for it in value)]
    is_dict = isinstance(value, Mapping)
    members = {
        name: _packed(it, arrays) for name, it in (value if is_dict else vars(value)).items()
    }
    return ["dict" if is_dict else type(value).__name__, members]


def _unpacked(
    value: Any, arrays: list[DiskBackedArray[Any]], classes: Mapping[str, type[Any]]
) -> Any:
    if not isinstance(value, list):
        return value
    kind, *content = value
    if kind == "array":
        return arrays[content[0]]
    if kind == "shaped":
        return _unpacked(content[0], arrays, classes).array().reshape(content[1])
    if kind in {"list", "tuple"}:
        items = [_unpacked(it, arrays, classes) for it in content]
        return items if kind == "list" else tuple(items)
    members = {name: _unpacked(it, arrays, classes) for name, it in content[0].items()}
    if kind == "dict":
        return members
    made = object.__new__(classes[kind])
    vars(made).update(members)
    return made


def _write(path: Path, value: Any) -> None:
    arrays: list[DiskBackedArray[Any]] = []
    packed = _packed(value, arrays)
    listed = [{"dtype": it.array().dtype.str, "sha256": it.sha256()} for it in arrays]
    record = json.dumps({"arrays": listed, "value": packed}).encode()
    files = {str(number): [it.array().data] for number, it in enumerate(arrays)}
    write_folder(path, {**files, RECORD_FILE: [sha256(record).encode(), b"\n", record]})


def _read(path: Path) -> tuple[Any, list[DiskBackedArray[Any]]] | None:
    """The packed value of an entry and its arrays; None if it is missing or damaged."""
    try:
        digest, _, content = (path / RECORD_FILE).read_bytes().partition(b"\n")
        if digest != sha256(content).encode():
            return None
        record = json.loads(content)
        listed = record["arrays"]
        types = [np.dtype(it["dtype"]).type for it in listed]
        arrays = [
            DiskBackedArray.of_file(path / str(number), dtype) for number, dtype in enumerate(types)
        ]
        is_whole = all(
            array.sha256() == it["sha256"] for array, it in zip(arrays, listed, strict=True)
        )
    except (
        FileNotFoundError,
        NotADirectoryError,
        ValueError,
    ):  # ValueError: half a number at the end of an array
        return None
    except OSError as error:
        raise EncoderClsError(f"{path}: cannot be read: {error.strerror or error}") from error
    return (record["value"], arrays) if is_whole else None
