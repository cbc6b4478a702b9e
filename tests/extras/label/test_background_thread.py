"""The thread beside the page does the work that there is, and waits when there is none."""

from __future__ import annotations

from collections.abc import Iterator
from queue import Queue

import pytest
from support.programs import TIME_LIMIT

from encoder_cls.extras.label.background_thread import BackgroundThread


class Collector:
    """A thread that hands over what is put into a list, and at its end None.

    Attributes:
        work: the work; a `notify` says that it has changed.
        done: what the thread has done, in order.
    """

    def __init__(self) -> None:
        self.work: list[str] = []
        self.done: Queue[str | None] = Queue()
        self.thread = BackgroundThread(self._run)

    def _run(self) -> None:
        found = self.thread.wait_for(self._next)
        while found is not None:
            self.done.put(found)
            found = self.thread.wait_for(self._next)
        self.done.put(None)

    def _next(self) -> str | None:
        return self.work.pop(0) if self.work else None


@pytest.fixture
def collector() -> Iterator[Collector]:
    """A collector whose thread runs."""
    collector = Collector()
    collector.thread.start()
    yield collector
    collector.thread.stop()
    collector.thread.join()


def test_work_is_done_after_each_notice(collector):
    for name in ("first", "second"):
        collector.work.append(name)
        collector.thread.notify()
        assert collector.done.get(timeout=TIME_LIMIT) == name


def test_a_stopped_thread_ends_without_the_work_that_is_left(collector):
    collector.thread.stop()
    assert collector.done.get(timeout=TIME_LIMIT) is None
    assert collector.thread.is_stopping

    collector.work.append("late")
    collector.thread.notify()
    collector.thread.join()
    assert collector.done.empty()
