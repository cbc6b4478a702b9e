"""Sequences whose items are made on access, such as texts that do not fit into memory."""

from __future__ import annotations

import copy
from abc import ABC, abstractmethod
from collections.abc import Collection, Iterable, Iterator, Sequence
from itertools import chain, islice
from typing import Any, Self, TypeVar

import numpy as np
from numpy.typing import NDArray

from encoder_cls.system.disk_arrays import DiskBackedRaggedArray

Item = TypeVar("Item")

# The number of items that an iteration makes at once.
CHUNK = 1024


class Column(Sequence[Item], ABC):
    """A column of a table, of all or of selected rows; items are made on access."""

    # The selected rows; None selects all rows.
    _rows: NDArray[np.int64] | None = None

    def select(self, rows: NDArray[np.int64]) -> Self:
        """Some rows of a column, of which no item is copied."""
        if self._rows is not None:
            rows = self._rows[rows]

        selection = copy.copy(self)
        selection._rows = rows
        return selection

    @abstractmethod
    def _count(self) -> int:
        """Rows without a selection."""

    @abstractmethod
    def _items(self, rows: NDArray[np.int64]) -> list[Item]:
        """The items of rows, which are numbered without a selection."""

    def __len__(self) -> int:
        if self._rows is None:
            return self._count()
        return len(self._rows)

    def __getitem__(self, index: Any) -> Any:
        # Index a range, which checks the index and resolves slices and negative indices.
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
    """Texts, kept as UTF-8 in memory or in a temporary file.

    Those with half surrogates cannot be appended (`UnicodeEncodeError`).
    """

    def __init__(self, texts: Iterable[str] = ()) -> None:
        self._contents = DiskBackedRaggedArray(np.uint8)
        for chunk in in_chunks(texts):
            self.append(chunk)

    @classmethod
    def from_arrays(cls, content: NDArray[np.uint8], offsets: NDArray[np.int64]) -> Self:
        """Wrap what `arrays` returns; no text can be appended."""
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
        """The UTF-8 bytes of all selected texts, and their offsets, (texts + 1,)."""
        # Copy selected texts, because the arrays have all texts.
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


class ConcatenatedTexts(Collection[str]):
    """Sequences, one after the other; can be iterated repeatedly."""

    def __init__(self, *parts: Sequence[str]) -> None:
        self._parts = parts

    def __len__(self) -> int:
        return sum(map(len, self._parts))

    def __contains__(self, text: object) -> bool:
        return any(text in part for part in self._parts)

    def __iter__(self) -> Iterator[str]:
        return chain.from_iterable(self._parts)


def in_chunks(items: Iterable[Item], size: int | None = None) -> Iterator[list[Item]]:
    """Lists of `size` items, by default `CHUNK`."""
    remaining = iter(items)
    while True:
        chunk = list(islice(remaining, size or CHUNK))
        if not chunk:
            return
        yield chunk
