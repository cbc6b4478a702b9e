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

# Each process takes some 100 MB.
MAX_PROCESSES = 8
# The items for each process that are taken ahead of the oldest unfinished one.
AHEAD = 2

# Environment variables with the number of threads of the libraries that compute.
THREAD_VARIABLES = ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS")
# The limit of a container: microseconds of CPU time, and the period in microseconds.
CPU_LIMIT = Path("/sys/fs/cgroup/cpu.max")

Item = TypeVar("Item")
Result = TypeVar("Result")


def map_in_processes(
    function: Callable[[Item], Result], items: Iterable[Item], *, alone: int
) -> Iterator[Result]:
    """Apply a function to items, in order, in as many processes as are usable.

    The first `alone` items are worked on in this process: starting others takes about a second.
    Items are taken only a few ahead of the results.
    """
    items = iter(items)
    number = usable_processes()
    if number == 1:
        yield from map(function, items)
        return

    yield from map(function, islice(items, alone))
    with Workers(function, number) as workers:
        yield from workers.map(items)


def usable_processes() -> int:
    """The number of processes that can work at once; 1 where this system cannot start them."""
    if os.name != "posix":
        return 1
    return min(MAX_PROCESSES, _usable_processors())


def _usable_processors() -> int:
    """The processors that the system, or LOKY_MAX_CPU_COUNT, grants this process.

    The processes of torchrun share them.
    """
    if hasattr(os, "sched_getaffinity"):
        limits = [len(os.sched_getaffinity(0))]
    else:
        limits = [os.cpu_count() or 1]

    user_limit = number_in_environment("LOKY_MAX_CPU_COUNT", least=1)
    if user_limit is not None:
        limits.append(user_limit)

    with suppress(OSError, ValueError):  # there is no such file, or it has no number
        time, period = CPU_LIMIT.read_text(encoding="ascii").split()
        # A part of a processor counts as one.
        limits.append(-(-int(time) // int(period)))

    ranks = number_in_environment("LOCAL_WORLD_SIZE", least=1) or 1
    return max(1, min(limits) // ranks)


class Workers(Generic[Item, Result]):
    """Processes that apply a function to items; each process gets the function once.

    They start with the first item and share the processors. They end with the block, or with this
    process however it ends, and leave Ctrl-C to it.

    `concurrent.futures.ProcessPoolExecutor` does less: its processes run the main module again,
    which fails if a user has written that without a guard; they outlive a parent that was killed;
    and at Ctrl-C they work on, and print errors. So here a thread waits for each process, which
    ends when its pipe does.
    """

    def __init__(self, function: Callable[[Item], Result], number: int) -> None:
        self._function = function
        self._number = number
        self._threads: ThreadPoolExecutor | None = None
        self._workers: list[_Worker] = []
        self._free: SimpleQueue[_Worker] = SimpleQueue()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        # Threads that wait for a process notice its end.
        for worker in self._workers:
            worker.kill()
        if self._threads:
            self._threads.shutdown(cancel_futures=True)
        for worker in self._workers:
            worker.wait()

    def map(self, items: Iterable[Item]) -> Iterator[Result]:
        """Apply the function to items, in order.

        Raises:
            EncoderClsError: a process was killed.
            Exception: what the function raises.
        """
        waiting: deque[Future[Result]] = deque()
        for item in items:
            if self._threads is None:
                self._threads = self._start()
            waiting.append(self._threads.submit(self._apply, item))
            if len(waiting) > AHEAD * self._number:
                yield waiting.popleft().result()

        while waiting:
            yield waiting.popleft().result()

    def _start(self) -> ThreadPoolExecutor:
        """Start the processes, and a thread for each."""
        from concurrent.futures import ThreadPoolExecutor

        threads = str(max(1, _usable_processors() // self._number))
        environment = dict(os.environ)
        environment["PYTHONPATH"] = os.pathsep.join(sys.path)
        for variable in THREAD_VARIABLES:
            environment[variable] = threads

        for _ in range(self._number):
            self._workers.append(_Worker(environment))

        # Only when all are starting: each takes a while to receive the function.
        for worker in self._workers:
            worker.send_function(self._function)
            self._free.put(worker)
        return ThreadPoolExecutor(self._number)

    def _apply(self, item: Item) -> Result:
        worker = self._free.get()
        try:
            result: Result = worker.apply(item)
        finally:
            self._free.put(worker)
        return result


class _Worker:
    """A process that applies a function to one item after the other."""

    def __init__(self, environment: dict[str, str]) -> None:
        # These take a while, which a few texts need not wait for.
        import subprocess
        from multiprocessing import Pipe

        self._connection, connection_there = Pipe()
        with connection_there:
            descriptor = connection_there.fileno()
            self._process = subprocess.Popen(
                # -P: without it, modules would be looked for in the current folder first.
                [sys.executable, "-P", "-c", f"from {__name__} import work; work({descriptor})"],
                pass_fds=[descriptor],
                env=environment,
                stdin=subprocess.DEVNULL,
                # What it prints is no result.
                stdout=2,
                # A session of its own keeps Ctrl-C away from it.
                start_new_session=True,
            )

    def send_function(self, function: Callable[[Any], Any]) -> None:
        """Send the function; that a process has ended is noticed with its first item."""
        with suppress(OSError):
            self._connection.send(function)

    def apply(self, item: Any) -> Any:
        """Return what the function returns for an item, or raise what it raises.

        Raises:
            EncoderClsError: the process was killed.
        """
        try:
            self._connection.send(item)
            result, error = self._connection.recv()
        except (EOFError, OSError):
            raise EncoderClsError("a worker process was killed: is there enough memory?") from None
        if error:
            raise error
        return result

    def kill(self) -> None:
        """End the process at once."""
        self._process.kill()

    def wait(self) -> None:
        """Wait until the process has ended."""
        self._process.wait()


def work(descriptor: int) -> None:
    """Apply the function that comes first through a pipe to each item that follows.

    The process of a worker does this until the other end of the pipe is closed, as it is when the
    parent ends.
    """
    from multiprocessing.connection import Connection

    with suppress(EOFError, OSError), Connection(descriptor) as parent:
        function = parent.recv()
        while True:
            _reply(parent, function)


def _reply(parent: Connection[Any, Any], function: Callable[[Any], Any]) -> None:
    """Receive an item, and send the result or the error."""
    item = parent.recv()
    result = None
    error = None
    try:
        result = function(item)
    except Exception as raised:  # raised again in the parent
        error = raised
    parent.send((result, error))
