"""Share the work on many items among processes."""

from __future__ import annotations

import os
import sys
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from itertools import islice
from pathlib import Path
from queue import SimpleQueue
from typing import TYPE_CHECKING, Any, Generic, Self, TypeVar

from encoder_cls.errors import EncoderClsError
from encoder_cls.system.machine import number_in_environment

if TYPE_CHECKING:
    from concurrent.futures import Future, ThreadPoolExecutor
    from multiprocessing.connection import Connection
    from subprocess import Popen

MOST_PROCESSES = 8  # each takes some 100 MB
AHEAD = 2  # items per process that are taken ahead of the oldest unfinished one
# Of the libraries that compute.
THREADS = (
    "OMP_NUM_THREADS",
    "OPENBLAS_NUM_THREADS",
    "MKL_NUM_THREADS",
)
# Of a container: microseconds of CPU time, and the period in microseconds.
CPU_LIMIT = Path("/sys/fs/cgroup/cpu.max")

Item = TypeVar("Item")
Made = TypeVar("Made")


def map_in_processes(
    function: Callable[[Item], Made], items: Iterable[Item], *, alone: int
) -> Iterator[Made]:
    """Apply a function to items, in order, taking no more of them than processes are busy with.

    The first `alone` items are worked on in this process: starting others takes about a second.
    """
    items, number = iter(items), usable_processes()
    yield from map(function, islice(items, alone) if number > 1 else items)
    with Workers(function, number) as workers:
        yield from workers.map(items)


def usable_processes() -> int:
    """The processors that the system, or LOKY_MAX_CPU_COUNT, grants this process; ranks of torchrun share them."""
    return min(MOST_PROCESSES, _usable_processors()) if os.name == "posix" else 1


def _usable_processors() -> int:
    granted = (
        os.sched_getaffinity(0) if hasattr(os, "sched_getaffinity") else range(os.cpu_count() or 1)
    )
    limits = [len(granted)]
    of_user = number_in_environment("LOKY_MAX_CPU_COUNT", least=1)
    if of_user is not None:
        limits.append(of_user)
    with suppress(OSError, ValueError):  # no such file, or `max` in it
        busy, of_time = map(int, CPU_LIMIT.read_text(encoding="ascii").split())
        limits.append(-(-busy // of_time))
    ranks = number_in_environment("LOCAL_WORLD_SIZE", least=1) or 1
    return max(1, min(limits) // ranks)


class Workers(Generic[Item, Made]):
    """Processes that apply a function, which each gets once, to items; they start with the first one.

    They share the processors, end with the block, or with this process however it ends, and leave Ctrl-C to it. Unlike
    those of `multiprocessing` they never run the main module again, which a user may have written without a guard.
    """

    def __init__(self, function: Callable[[Item], Made], number: int) -> None:
        self._function, self._number = function, number
        self._threads: ThreadPoolExecutor | None = None  # one waits for each process
        self._processes: list[Popen[bytes]] = []
        self._free: SimpleQueue[Connection[Any, Any]] = SimpleQueue()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        for process in self._processes:
            process.kill()
        if self._threads:
            self._threads.shutdown(cancel_futures=True)
        for process in self._processes:
            process.wait()

    def map(self, items: Iterable[Item]) -> Iterator[Made]:
        """Apply the function to items, in order; raises what it raises, `EncoderClsError` if a process was killed."""
        waiting: deque[Future[Made]] = deque()
        for item in items:
            if self._threads is None:
                self._threads = self._start()
            waiting.append(self._threads.submit(self._applied, item))
            if len(waiting) > AHEAD * self._number:
                yield waiting.popleft().result()
        while waiting:
            yield waiting.popleft().result()

    def _start(self) -> ThreadPoolExecutor:
        import subprocess  # these take a while, which few texts need not wait for
        from concurrent.futures import ThreadPoolExecutor
        from multiprocessing import Pipe

        share = dict.fromkeys(THREADS, str(max(1, _usable_processors() // self._number)))
        environment = os.environ | share | {"PYTHONPATH": os.pathsep.join(sys.path)}
        # Its prints are no results, and a session of its own keeps Ctrl-C away from it.
        options: dict[str, Any] = {
            "stdin": subprocess.DEVNULL,
            "stdout": 2,
            "start_new_session": True,
        }
        connections = []
        for _ in range(self._number):
            here, there = Pipe()
            with there:
                # Not from the current folder, where -c alone would look for modules first.
                command = [
                    sys.executable,
                    "-P",
                    "-c",
                    f"from {__name__} import work; work({there.fileno()})",
                ]
                process = subprocess.Popen(
                    command, pass_fds=[there.fileno()], env=environment, **options
                )
            self._processes.append(process)
            connections.append(here)
        for connection in connections:  # when all are starting: each takes a while to receive it
            with suppress(OSError):  # it has ended, as is noticed with the first item
                connection.send(self._function)
            self._free.put(connection)
        return ThreadPoolExecutor(self._number)

    def _applied(self, item: Item) -> Made:
        connection = self._free.get()
        try:
            connection.send(item)
            made, error = connection.recv()
        except (EOFError, OSError):
            raise EncoderClsError("a worker process was killed: is there enough memory?") from None
        finally:
            self._free.put(connection)
        if error:
            raise error
        result: Made = made
        return result


def work(descriptor: int) -> None:
    """Apply the function that comes first through a connection to each item that comes, until the parent ends."""
    from multiprocessing.connection import Connection

    with suppress(EOFError, OSError), Connection(descriptor) as parent:
        function = parent.recv()
        while True:
            item = parent.recv()
            try:
                answer: tuple[Any, Exception | None] = function(item), None
            except Exception as error:  # raised again in the parent
                answer = None, error
            parent.send(answer)
