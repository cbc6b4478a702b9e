"""A function and many items in, what it makes of each out, in order; where there are many, processes share them."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator
from itertools import chain, islice
from typing import TypeVar

MOST_PROCESSES = 8  # each takes some 100 MB

Item = TypeVar("Item")
Made = TypeVar("Made")


def map_in_processes(function: Callable[[Item], Made], items: Iterable[Item], *, alone: int) -> Iterator[Made]:
    """What a function makes of each item, in order; no more items are taken than processes are busy with.

    Args:
        function: it and the items can be pickled.
        items: of any number.
        alone: how many of the first are worked on in this process: starting others takes about a second.
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
    """How many processes this one may keep busy: the processors that the system, or LOKY_MAX_CPU_COUNT, grants it.

    The ranks that torchrun has started on a machine share them.
    """
    import joblib

    return int(min(MOST_PROCESSES, joblib.cpu_count() // int(os.environ.get("LOCAL_WORLD_SIZE", "1"))))
