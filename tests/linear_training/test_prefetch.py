"""Items are made in a thread, one ahead of the item that is used."""

from __future__ import annotations

from collections.abc import Iterator
from threading import Event, current_thread
from threading import enumerate as running_threads

import pytest

from encoder_cls.linear_training.prefetch import prefetched

SECONDS_TO_WAIT = 10


def test_items_come_in_their_order():
    assert list(prefetched(range(5))) == [0, 1, 2, 3, 4]
    assert list(prefetched([])) == []


def test_the_next_item_is_made_while_one_is_used():
    is_second_made = Event()

    def items() -> Iterator[int]:
        yield 1
        is_second_made.set()
        yield 2

    made = prefetched(items())
    assert next(made) == 1
    assert is_second_made.wait(SECONDS_TO_WAIT)


def test_no_more_than_one_item_is_prefetched():
    num_made = 0

    def items() -> Iterator[int]:
        nonlocal num_made
        for number in range(10):
            num_made += 1
            yield number

    for num_used, _ in enumerate(prefetched(items()), start=1):
        assert num_made <= num_used + 1


def test_an_error_is_raised_where_its_item_is_asked_for():
    def items() -> Iterator[int]:
        yield 1
        raise ValueError("no second item")

    made = prefetched(items())
    assert next(made) == 1
    with pytest.raises(ValueError, match="no second item"):
        next(made)


def test_the_thread_ends_with_the_items_that_are_used():
    threads = []

    def items() -> Iterator[int]:
        threads.append(current_thread())
        yield from range(10)

    made = prefetched(items())
    next(made)
    made.close()
    assert threads[0] not in running_threads()
