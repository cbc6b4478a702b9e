"""Apply a function to many items in several processes."""

from __future__ import annotations

import gc
import os
import sys
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from itertools import islice
from pathlib import Path
from queue import SimpleQueue
from typing import TYPE_CHECKING, Any, Generic, NamedTuple, Self, TypeVar

from encoder_cls.errors import EncoderClsError
from encoder_cls.system.machine import number_in_environment

if TYPE_CHECKING:
    from concurrent.futures import Future, ThreadPoolExecutor
    from multiprocessing.connection import Connection

# The maximum number of processes. Each process needs about 100 MB of memory.
MAX_PROCESSES = 16
# The number of items per process that are taken ahead of the oldest unfinished item.
AHEAD = 2

# The number of new objects after which a worker process looks for reference cycles. Items and
# results are many objects without cycles, among which Python would look a hundred times as often.
OBJECTS_BETWEEN_COLLECTIONS = 100_000

# The environment variables that set the number of threads of numerical libraries.
THREAD_VARIABLES = ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS")
# The file with the CPU limit of a container: the CPU time in microseconds that it may use per
# period, and the period in microseconds.
CPU_LIMIT = Path("/sys/fs/cgroup/cpu.max")

Item = TypeVar("Item")
Result = TypeVar("Result")


def map_in_processes(
    function: Callable[[Item], Result], items: Iterable[Item], *, alone: int
) -> Iterator[Result]:
    """Apply a function to items in as many processes as are useful, in order.

    Only a few more items are taken than results have been yielded; the function must be picklable.
    The first `alone` items are handled here: starting processes takes about a second.
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
    """How many can work at once; 1 on Windows, where `Workers` cannot start."""
    if os.name != "posix":
        return 1
    return min(MAX_PROCESSES, _usable_processors())


def _usable_processors() -> int:
    """Count processors; the system, a container, torchrun and LOKY_MAX_CPU_COUNT may limit them."""
    if hasattr(os, "sched_getaffinity"):
        limits = [len(os.sched_getaffinity(0))]
    else:
        limits = [os.cpu_count() or 1]

    user_limit = number_in_environment("LOKY_MAX_CPU_COUNT", least=1)
    if user_limit is not None:
        limits.append(user_limit)

    # There may be no such file, or the word "max" in place of a number.
    with suppress(OSError, ValueError):
        time, period = CPU_LIMIT.read_text(encoding="ascii").split()
        # Round up: a fraction of a processor counts as one processor.
        limits.append(-(-int(time) // int(period)))

    ranks = number_in_environment("LOCAL_WORLD_SIZE", least=1) or 1
    return max(1, min(limits) // ranks)


class Workers(Generic[Item, Result]):
    """Processes that apply a function to items, from the first item to the end of the block.

    They also end if this process is killed; Ctrl-C reaches only this process.

    A `ProcessPoolExecutor` would run the main module again, which fails without a guard, and its
    processes outlive a killed parent, receive Ctrl-C, and print errors. Here, a thread waits for
    each process, which ends when its pipe is closed.

    Args:
        function: sent to each process once.
        number: of processes, which share the processors.
        respond: answers what the function asks by `ask_parent`, here, in a thread for each process.
    """

    def __init__(
        self,
        function: Callable[[Item], Result],
        number: int,
        *,
        respond: Callable[[Any], Any] | None = None,
    ) -> None:
        self._function = function
        self._number = number
        self._respond = respond
        self._threads: ThreadPoolExecutor | None = None
        self._workers: list[_Worker] = []
        self._free: SimpleQueue[_Worker] = SimpleQueue()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        # Kill the processes first: then no thread waits for a result any more.
        for worker in self._workers:
            worker.kill()
        if self._threads:
            self._threads.shutdown(cancel_futures=True)
        for worker in self._workers:
            worker.wait()

    def map(self, items: Iterable[Item]) -> Iterator[Result]:
        """Yield the results in order; what the function raises is raised here.

        Raises:
            EncoderClsError: a process was killed.
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
        from concurrent.futures import ThreadPoolExecutor

        threads = str(max(1, _usable_processors() // self._number))
        environment = dict(os.environ)
        environment["PYTHONPATH"] = os.pathsep.join(sys.path)
        for variable in THREAD_VARIABLES:
            environment[variable] = threads

        for _ in range(self._number):
            self._workers.append(_Worker(environment, self._respond))

        # Send the function only after all processes have been started, because each process takes
        # a while until it receives the function.
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


class _Question(NamedTuple):
    content: Any


class _Worker:
    def __init__(self, environment: dict[str, str], respond: Callable[[Any], Any] | None) -> None:
        self._respond = respond

        # Import these modules here, because most commands start no process.
        import subprocess
        from multiprocessing import Pipe

        self._connection, connection_there = Pipe()
        with connection_there:
            descriptor = connection_there.fileno()
            self._process = subprocess.Popen(
                # The option -P keeps Python from importing modules of the current folder.
                [sys.executable, "-P", "-c", f"from {__name__} import work; work({descriptor})"],
                pass_fds=[descriptor],
                env=environment,
                stdin=subprocess.DEVNULL,
                # Send what the process prints to standard error, because it is not a result.
                stdout=2,
                # A new session keeps Ctrl-C away from the process.
                start_new_session=True,
            )

    def send_function(self, function: Callable[[Any], Any]) -> None:
        """Send the function; if the process has ended, `apply` will raise."""
        with suppress(OSError):
            self._connection.send(function)

    def apply(self, item: Any) -> Any:
        """The result, or its error; an `EncoderClsError` if the process was killed."""
        message = self._message_after(item)
        while isinstance(message, _Question):
            assert self._respond
            message = self._message_after(self._respond(message.content))

        result, error = message
        if error:
            raise error
        return result

    def _message_after(self, sent: Any) -> Any:
        try:
            self._connection.send(sent)
            return self._connection.recv()
        except (EOFError, OSError):
            raise EncoderClsError("a worker process was killed: is there enough memory?") from None

    def kill(self) -> None:
        self._process.kill()

    def wait(self) -> None:
        self._process.wait()


# The pipe to the parent, in a worker process that is working on an item.
_parent: Connection[Any, Any] | None = None


def ask_parent(content: Any) -> Any:
    """Ask the process that started this worker, and return the response of its `respond`.

    Only the thread of the function may call it, while it works on an item.
    """
    assert _parent is not None
    _parent.send(_Question(content))
    return _parent.recv()


def work(descriptor: int) -> None:
    """The main function of a worker: receive a function, and apply it to each item after it.

    It returns when the pipe is closed, as it is when the parent is killed.
    """
    from multiprocessing.connection import Connection

    gc.set_threshold(OBJECTS_BETWEEN_COLLECTIONS)

    global _parent  # noqa: PLW0603 - the function that is applied does not know the pipe
    with suppress(EOFError, OSError), Connection(descriptor) as parent:
        _parent = parent
        function = parent.recv()
        while True:
            _reply(parent, function)


def _reply(parent: Connection[Any, Any], function: Callable[[Any], Any]) -> None:
    item = parent.recv()
    result = None
    error = None
    try:
        result = function(item)
    # The parent raises the error again.
    except Exception as raised:
        error = raised
    parent.send((result, error))
