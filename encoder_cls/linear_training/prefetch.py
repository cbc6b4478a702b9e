"""Make the next item in a thread, while the current one is used."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from itertools import islice
from typing import TypeVar

T = TypeVar("T")


def prefetched(items: Iterable[T]) -> Iterator[T]:
    """Yield items, while a thread, which alone iterates, makes the next one.

    Both run at once where NumPy works on large arrays. At most two items are in memory; an error is
    raised where its item is asked for.
    """
    iterator = iter(items)

    def next_item() -> list[T]:
        """Make the next item; the list is empty after the last one."""
        return list(islice(iterator, 1))

    with ThreadPoolExecutor(1) as thread:
        made = thread.submit(next_item).result()
        while made:
            future = thread.submit(next_item)
            yield from made
            made = future.result()
