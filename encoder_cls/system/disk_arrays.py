"""Arrays that may be larger than memory.

Larger ones are written to a file in `TMPDIR` and read through a memory map. The file has no name,
so the system removes it when the process ends.
"""

from __future__ import annotations

import mmap
import tempfile
import weakref
from collections.abc import Sequence
from typing import Any, Generic, Self, TypeVar

import numpy as np
from numpy.typing import NDArray

from encoder_cls.errors import EncoderClsError

# The maximum size in bytes of an array that stays in memory.
MAX_IN_MEMORY = 1 << 20

Number = TypeVar("Number", bound=np.generic)


class DiskBackedArray(Generic[Number]):
    """A one-dimensional array, built by appending and then read."""

    def __init__(self, dtype: type[Number]) -> None:
        self._dtype = dtype
        self._array: NDArray[Number] | None = None

        # Close the file when this object is removed from memory.
        self._file = tempfile.SpooledTemporaryFile(MAX_IN_MEMORY)  # noqa: SIM115
        weakref.finalize(self, self._file.close)

    @classmethod
    def from_array(cls, array: NDArray[Number]) -> Self:
        """Wrap an array, to which nothing can be appended."""
        wrapped = cls(array.dtype.type)
        wrapped._array = array
        return wrapped

    def append(self, numbers: Sequence[Any] | NDArray[Any]) -> None:
        """Add numbers; an `EncoderClsError` if the disk is full."""
        try:
            self._file.write(np.asarray(numbers, dtype=self._dtype).tobytes())
            self._file.flush()
        except OSError as error:
            folder = tempfile.tempdir or "TMPDIR"
            raise EncoderClsError(
                f"{folder}: cannot write the data to a temporary file: "
                f"{error.strerror or error} (TMPDIR can name another folder)"
            ) from error

    def array(self) -> NDArray[Number]:
        """All numbers, which must not be changed; nothing can be appended afterwards."""
        if self._array is None:
            if self._file.tell() > MAX_IN_MEMORY:
                # Convert the `np.memmap` to a plain array, which is faster to slice: each slice
                # of a `np.memmap` is a new `np.memmap`.
                self._array = np.asarray(np.memmap(self._file, self._dtype, mode="r"))
            else:
                self._file.seek(0)
                self._array = np.frombuffer(bytearray(self._file.read()), self._dtype)
            # A memory map stays valid after its file is closed.
            self._file.close()
        return self._array

    def forget(self) -> None:
        """Release the memory of numbers that are in the file, but not on Windows."""
        mapped: Any = self._array
        while isinstance(mapped, np.ndarray):
            mapped = mapped.base
        if isinstance(mapped, mmap.mmap) and hasattr(mmap, "MADV_DONTNEED"):
            mapped.madvise(mmap.MADV_DONTNEED)


class DiskBackedRaggedArray(Generic[Number]):
    """Rows of different lengths: a flat array with offsets."""

    def __init__(self, dtype: type[Number]) -> None:
        self._numbers = DiskBackedArray(dtype)
        self._offsets = DiskBackedArray(np.int64)
        self._offsets.append([0])
        self._size = 0
        self._num_rows = 0

    @classmethod
    def from_arrays(cls, numbers: NDArray[Number], offsets: NDArray[np.int64]) -> Self:
        """Wrap the numbers of all rows, and their offsets, (rows + 1,); nothing can be appended."""
        wrapped = cls(numbers.dtype.type)
        wrapped._numbers = DiskBackedArray.from_array(numbers)
        wrapped._offsets = DiskBackedArray.from_array(offsets)
        wrapped._size = len(numbers)
        wrapped._num_rows = len(offsets) - 1
        return wrapped

    def __len__(self) -> int:
        return self._num_rows

    def append(self, numbers: NDArray[Any], lengths: Sequence[int] | NDArray[Any]) -> None:
        """Add rows by their numbers, one row after the other, and lengths, (rows,)."""
        self._numbers.append(numbers)
        self._offsets.append(self._size + np.cumsum(lengths, dtype=np.int64))
        self._size += len(numbers)
        self._num_rows += len(lengths)

    def arrays(self) -> tuple[NDArray[Number], NDArray[np.int64]]:
        """All numbers, and the offsets of rows, (rows + 1,)."""
        return self._numbers.array(), self._offsets.array()

    def forget(self) -> None:
        """See `DiskBackedArray.forget`."""
        self._numbers.forget()
        self._offsets.forget()
