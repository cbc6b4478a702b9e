"""Arrays and texts that are appended part by part and then read without filling memory.

Little is kept in memory, more goes to a file without a name in the folder for temporary files (`TMPDIR`), which is
gone with the process, however that ends. It is read through a memory map, so data can be larger than memory where that
folder is on a disk.
"""

from __future__ import annotations

import copy
import mmap
import os
import weakref
from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator, Sequence
from itertools import chain, islice
from pathlib import Path
from typing import IO, Any, Generic, Self, TypeVar, overload

import numpy as np
from numpy.typing import NDArray

from encoder_cls.errors import EncoderClsError

MOST_PENDING = 1 << 20  # bytes of an array that wait in memory to be written at once
CHUNK = 1024  # texts, or rows, worked on at once

Number = TypeVar("Number", bound=np.generic)
Item = TypeVar("Item")


class DiskBackedArray(Generic[Number]):
    """Numbers of one type that are appended and, once all are there, read as an array, (numbers,)."""

    def __init__(self, dtype: type[Number], numbers: NDArray[Any] | None = None) -> None:
        self._dtype = dtype
        self._pending: list[NDArray[Number]] = [] if numbers is None else [numbers.astype(dtype, copy=False)]
        self._pending_bytes = 0
        self._file: IO[bytes] | None = None
        self._map: mmap.mmap | None = None

    @classmethod
    def of_file(cls, path: Path, dtype: type[Number]) -> Self:
        """Map the numbers of a file into memory; changes there are not written (`OSError`, `ValueError`)."""
        array = cls(dtype)
        with path.open("rb") as file:
            if os.fstat(file.fileno()).st_size:  # an empty file cannot be mapped
                array._map = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_COPY)
        return array

    def append(self, numbers: Sequence[Any] | NDArray[Any]) -> None:
        """Add numbers at the end; `EncoderClsError` where the disk is full."""
        part = np.asarray(numbers, dtype=self._dtype)
        self._pending.append(part)
        self._pending_bytes += part.nbytes
        if self._pending_bytes > MOST_PENDING:
            self._write()

    def array(self) -> NDArray[Number]:
        """All numbers, not to be changed; after this, none can be appended."""
        if self._file is not None and self._map is None:
            self._write()
            self._map = mmap.mmap(self._file.fileno(), 0, access=mmap.ACCESS_READ)
            self._file.close()  # the map holds it
        if self._map is not None:
            return np.frombuffer(self._map, dtype=self._dtype)
        if len(self._pending) != 1:
            self._pending = [np.concatenate([np.zeros(0, dtype=self._dtype), *self._pending])]
        return self._pending[0]

    def forget(self) -> None:
        """Release the memory that reading has filled; what is read again comes from the file."""
        if self._map is not None and hasattr(mmap, "MADV_DONTNEED"):  # not on Windows
            self._map.madvise(mmap.MADV_DONTNEED)

    def _write(self) -> None:
        import tempfile

        try:
            if self._file is None:
                self._file = tempfile.TemporaryFile()  # noqa: SIM115 - it lives as long as the array
                weakref.finalize(self, self._file.close)
            for part in self._pending:
                self._file.write(part.tobytes())
            self._file.flush()
        except OSError as error:
            raise EncoderClsError(
                f"{tempfile.tempdir or 'TMPDIR'}: cannot write the data to a temporary file: "
                f"{error.strerror or error} (TMPDIR can name another folder)"
            ) from error
        self._pending, self._pending_bytes = [], 0


class DiskBackedRaggedArray(Generic[Number]):
    """Rows of different lengths that are appended and, once all are there, read as one flat array."""

    def __init__(self, dtype: type[Number]) -> None:
        self._numbers = DiskBackedArray(dtype)
        self._offsets = DiskBackedArray(np.int64, np.zeros(1))
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
    """Items that are made when they are asked for: those of all rows, or of selected ones."""

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

    @overload
    def __getitem__(self, index: int) -> Item: ...
    @overload
    def __getitem__(self, index: slice) -> list[Item]: ...
    def __getitem__(self, index: int | slice) -> Item | list[Item]:
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
        """Add texts at the end; `EncoderClsError` where the disk is full."""
        contents = [text.encode() for text in texts]
        self._contents.append(np.frombuffer(b"".join(contents), dtype=np.uint8), [*map(len, contents)])

    def _count(self) -> int:
        return len(self._contents)

    def _at(self, rows: NDArray[np.int64]) -> list[str]:
        content, offsets = self._contents.arrays()
        ends = zip(offsets[rows].tolist(), offsets[rows + 1].tolist(), strict=True)
        texts = [str(content.data[start:end], "utf-8") for start, end in ends]
        self._contents.forget()
        return texts


class ConcatenatedTexts(Iterable[str]):
    """The texts of several sequences, one after the other, as often as they are wanted."""

    def __init__(self, *parts: Sequence[str]) -> None:
        self._parts = parts

    def __iter__(self) -> Iterator[str]:
        return chain.from_iterable(self._parts)


def in_chunks(items: Iterable[Item], size: int | None = None) -> Iterator[list[Item]]:
    """The items, so many at a time (None: `CHUNK`), the last time perhaps fewer."""
    remaining = iter(items)
    while chunk := list(islice(remaining, size or CHUNK)):
        yield chunk
