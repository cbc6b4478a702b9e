"""A thread that works beside the page, and waits whenever there is nothing to do."""

from __future__ import annotations

from collections.abc import Callable
from threading import Condition, Thread
from typing import TypeVar

Found = TypeVar("Found")


class BackgroundThread:
    """A thread that waits for work until it is stopped."""

    def __init__(self, run: Callable[[], None]) -> None:
        self._has_news = Condition()
        self._is_stopping = False
        self._thread = Thread(target=run, daemon=True)

    @property
    def is_stopping(self) -> bool:
        """Whether the thread has been stopped."""
        return self._is_stopping

    def start(self) -> None:
        """Start the thread."""
        self._thread.start()

    def notify(self) -> None:
        """Let the thread look for work again."""
        with self._has_news:
            self._has_news.notify()

    def stop(self) -> None:
        """Let `wait_for` return None from now on."""
        with self._has_news:
            self._is_stopping = True
            self._has_news.notify()

    def join(self) -> None:
        """Wait until the thread has ended."""
        self._thread.join()

    def wait_for(self, find_work: Callable[[], Found | None]) -> Found | None:
        """Wait, in the thread, until there is work; None once it is stopped.

        `find_work`, called again after each `notify`, returns None if there is none.
        """
        with self._has_news:
            while not self._is_stopping:
                work = find_work()
                if work is not None:
                    return work
                self._has_news.wait()
        return None
