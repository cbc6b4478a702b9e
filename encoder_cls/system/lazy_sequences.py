"""Columns: sequences whose items are made on access, such as texts that are larger than memory."""

from __future__ import annotations

import copy
from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator, Sequence
from itertools import chain, islice
from typing import Any, Self, TypeVar

import numpy as np
from numpy.typing import NDArray

from encoder_cls.system.disk_arrays import DiskBackedRaggedArray

Item = TypeVar("Item")

# Items that are made at once.
CHUNK = 1024


class Column(Sequence[Item], ABC):
    """Items that are made on access: those of all rows, or of selected ones."""

    # The selected rows; None: all.
    _rows: NDArray[np.int64] | None = None

    def select(self, rows: NDArray[np.int64]) -> Self:
        """The items of these rows, in this order; nothing is copied."""
        if self._rows is not None:
            rows = self._rows[rows]

        selection = copy.copy(self)
        selection._rows = rows
        return selection

    @abstractmethod
    def _count(self) -> int:
        """The number of all rows, selected or not."""

    @abstractmethod
    def _items(self, rows: NDArray[np.int64]) -> list[Item]:
        """The items of these of all rows."""

    def __len__(self) -> int:
        if self._rows is None:
            return self._count()
        return len(self._rows)

    def __getitem__(self, index: Any) -> Any:
        # A range checks an index, and knows what a slice means.
        indices = range(len(self))[index]
        rows = np.atleast_1d(np.asarray(indices, dtype=np.int64))
        if self._rows is not None:
            rows = self._rows[rows]

        items = self._items(rows)
        if isinstance(indices, int):
            return items[0]
        return items

    def __iter__(self) -> Iterator[Item]:
        for start in range(0, len(self), CHUNK):
            yield from self[start : start + CHUNK]


class DiskBackedTexts(Column[str]):
    """Texts, kept as UTF-8; half surrogate pairs cannot be appended (`UnicodeEncodeError`)."""

    def __init__(self, texts: Iterable[str] = ()) -> None:
        self._contents = DiskBackedRaggedArray(np.uint8)
        for chunk in in_chunks(texts):
            self.append(chunk)

    @classmethod
    def from_arrays(cls, content: NDArray[np.uint8], offsets: NDArray[np.int64]) -> Self:
        """Wrap arrays as `arrays` returns them; no text can be appended."""
        texts = cls()
        texts._contents = DiskBackedRaggedArray.from_arrays(content, offsets)
        return texts

    def append(self, texts: Sequence[str]) -> None:
        """Add texts at the end."""
        contents = [text.encode() for text in texts]
        lengths = [len(content) for content in contents]
        all_bytes = np.frombuffer(b"".join(contents), dtype=np.uint8)
        self._contents.append(all_bytes, lengths)

    def arrays(self) -> tuple[NDArray[np.uint8], NDArray[np.int64]]:
        """The bytes of all texts, one after the other, and `texts + 1` offsets."""
        if self._rows is not None:
            return DiskBackedTexts(self).arrays()
        return self._contents.arrays()

    def _count(self) -> int:
        return len(self._contents)

    def _items(self, rows: NDArray[np.int64]) -> list[str]:
        content, offsets = self._contents.arrays()
        starts = offsets[rows].tolist()
        ends = offsets[rows + 1].tolist()

        texts = []
        for start, end in zip(starts, ends, strict=True):
            texts.append(str(content.data[start:end], "utf-8"))

        self._contents.forget()
        return texts


class ConcatenatedTexts(Iterable[str]):
    """The texts of several sequences, one after the other; can be iterated any number of times."""

    def __init__(self, *parts: Sequence[str]) -> None:
        self._parts = parts

    def __iter__(self) -> Iterator[str]:
        return chain.from_iterable(self._parts)


def in_chunks(items: Iterable[Item], size: int | None = None) -> Iterator[list[Item]]:
    """Lists of `size` items, by default `CHUNK`; the last one may be shorter."""
    remaining = iter(items)
    while True:
        chunk = list(islice(remaining, size or CHUNK))
        if not chunk:
            return
        yield chunk
