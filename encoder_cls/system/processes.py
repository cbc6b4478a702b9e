"""Share the work on many items among processes."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator
from itertools import chain, islice
from typing import TypeVar

MOST_PROCESSES = 8  # each takes some 100 MB

Item = TypeVar("Item")
Made = TypeVar("Made")


def map_in_processes(function: Callable[[Item], Made], items: Iterable[Item], *, alone: int) -> Iterator[Made]:
    """Apply a function to items, in order, taking no more of them than processes are busy with.

    The first `alone` items are worked on in this process: starting others takes about a second.
    """
    items = iter(items)
    yield from map(function, islice(items, alone))
    further = list(islice(items, 1))
    if not further:
        return
    items = chain(further, items)
    processes = usable_processes()
    if processes < 2:
        yield from map(function, items)
        return
    import joblib

    parallel = joblib.Parallel(n_jobs=processes, return_as="generator", pre_dispatch="2 * n_jobs", batch_size=1)
    yield from parallel(joblib.delayed(function)(item) for item in items)


def usable_processes() -> int:
    """The processors that the system, or LOKY_MAX_CPU_COUNT, grants this process; ranks of torchrun share them."""
    import joblib

    return int(min(MOST_PROCESSES, joblib.cpu_count() // int(os.environ.get("LOCAL_WORLD_SIZE", "1"))))
