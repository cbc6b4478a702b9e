"""The group of processes that torchrun starts for one training.

All run the same program. The first, of rank 0, decides, writes files and prints; `broadcast_value`
sends its decisions to the others.

PyTorch is imported late: `encoder-cls train` joins the group before it reads its config, and
reports a mistake there at once.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager, nullcontext, suppress
from datetime import timedelta
from typing import TYPE_CHECKING, Any, TypeVar

from encoder_cls.errors import ConfigError, DataError, EncoderClsError
from encoder_cls.system.machine import number_in_environment
from encoder_cls.system.stop import deferring_stops

if TYPE_CHECKING:
    import torch
    from torch import Tensor
    from torch._C._distributed_c10d import Store

# The first byte of each message of the first process. It says whether the process continues, and
# the content of the message follows, or whether the process has ended.
GOES_ON = b"g"
HAS_ENDED = b"e"

# The key under which the number of a signal to stop is in the store.
STOP_KEY = "stop"

T = TypeVar("T")


class LostProcessError(EncoderClsError):
    """Another process of the training has ended."""

    def __init__(self, message: str = "") -> None:
        super().__init__(
            message
            or "another process of this training has ended; "
            "--resume continues from the newest checkpoint"
        )


class ProcessGroup:
    """The processes of a training; by default, this process alone.

    Methods that exchange data must be called in all processes, in the same order; they raise a
    `LostProcessError` if one has ended. A signal to stop may come at any time, so it goes through
    `store`, which a process can use without the others; a process alone has none.
    """

    def __init__(self, rank: int = 0, size: int = 1, store: Store | None = None) -> None:
        self.rank = rank
        self.size = size
        self._store = store
        self._is_over = False

    @property
    def is_first(self) -> bool:
        """Whether this process decides, writes files and prints."""
        return self.rank == 0

    def share(self, count: int) -> range:
        """This process's part of `count` items, divided equally by rank."""
        return range(self.rank * count // self.size, (self.rank + 1) * count // self.size)

    # --- Exchange tensors -------------------------------------------------------------------------

    def sum(self, tensor: Tensor) -> None:
        """Replace a tensor by its sum over all processes, in which its shape is the same."""
        if self.size == 1 or not tensor.numel():
            return

        import torch.distributed as dist

        with self._noticing_loss():
            dist.all_reduce(tensor)

    def summed(self, *numbers: float) -> list[float]:
        """Numbers summed over all processes."""
        import torch

        sums = torch.tensor(numbers, dtype=torch.float64)
        self.sum(sums)
        return [float(number) for number in sums]

    def gather(self, mine: Tensor) -> tuple[Tensor, ...]:
        """The tensors of all processes, by rank; their first dimensions may differ."""
        if self.size == 1:
            return (mine,)

        import torch
        import torch.distributed as dist

        # Find the lengths by a sum: each process has its own length at its place, and zeros at the
        # places of the others.
        my_lengths = [0] * self.size
        my_lengths[self.rank] = len(mine)
        lengths = [int(length) for length in self.summed(*my_lengths)]

        # Pad the tensors, because only tensors of equal shape can be gathered.
        padded = mine.new_zeros((max(lengths), *mine.shape[1:]))
        padded[: len(mine)] = mine
        gathered = [torch.empty_like(padded) for _ in lengths]
        if padded.numel():
            with self._noticing_loss():
                dist.all_gather(gathered, padded)
        return tuple(part[:length] for part, length in zip(gathered, lengths, strict=True))

    # --- Exchange values --------------------------------------------------------------------------

    def gather_bytes(self, mine: bytes) -> list[bytes]:
        """The bytes of all processes, by rank; their lengths may differ."""
        if self.size == 1:
            return [mine]

        import numpy as np
        import torch

        my_tensor = torch.from_numpy(np.frombuffer(mine, dtype=np.uint8).copy())
        return [tensor.numpy().tobytes() for tensor in self.gather(my_tensor)]

    def broadcast_bytes(self, content: bytes) -> bytes:
        """Send the first process's content to all.

        Raises:
            SystemExit: the first process has ended.
        """
        if self.size == 1:
            return content

        my_message = b""
        if self.is_first:
            my_message = GOES_ON + content
        first_message = self.gather_bytes(my_message)[0]

        self._exit_if_ended(first_message)
        if first_message[:1] != GOES_ON:
            # The message is none of `broadcast_bytes`: the first process has ended in the middle of
            # another exchange.
            self._is_over = True
            raise LostProcessError
        return first_message[1:]

    def broadcast_value(self, value: T) -> T:
        """Send a JSON value of the first process to all.

        Raises:
            SystemExit: the first process has ended.
        """
        if self.size == 1:
            return value

        content = b""
        if self.is_first:
            content = json.dumps(value).encode()
        first_value: T = json.loads(self.broadcast_bytes(content))
        return first_value

    def _gather_values(self, mine: Mapping[str, Any]) -> list[dict[str, Any]]:
        contents = self.gather_bytes(json.dumps(mine).encode())
        self._exit_if_ended(contents[0])
        return [json.loads(content) for content in contents]

    def _exit_if_ended(self, first_message: bytes) -> None:
        """Exit if a message, in any exchange, says that the first process has ended."""
        if first_message[:1] == HAS_ENDED:
            # Exit without an error: the first process prints it, and has the exit code for it.
            self._is_over = True
            raise SystemExit(0)

    # --- End together -----------------------------------------------------------------------------

    def exit_if_first_has_ended(self) -> None:
        """Wait for the first process, and exit if it has ended."""
        self.broadcast_value(None)

    def end(self) -> None:
        """Let all processes exit that wait for this one, if it is the first."""
        if self._is_over or not self.is_first or self.size == 1:
            return
        self._is_over = True
        with suppress(LostProcessError):
            self.gather_bytes(HAS_ENDED)

    def end_communication(self) -> None:
        """Exchange nothing from here on: each process may end by itself."""
        self._is_over = True

    @contextmanager
    def failing_together(self) -> Iterator[None]:
        """Run a block in all processes; if it fails in one of them, end all of them.

        The first process raises the error, wherever it occurred; the others exit. Nothing may be
        exchanged in the block, whose messages could meet those of its end.
        """
        my_error: EncoderClsError | None = None
        try:
            yield
        except LostProcessError:
            # There is no group any more: the others would wait for this process, and it for them.
            raise
        except EncoderClsError as error:
            my_error = error

        my_failure: dict[str, Any] = {}
        if my_error is not None:
            my_failure = {"message": str(my_error), "code": my_error.exit_code}

        for rank, failure in enumerate(self._gather_values(my_failure)):
            if not failure:
                continue
            if not self.is_first:
                # Exit without an error: otherwise torchrun would end the first process before it
                # has printed the error.
                raise SystemExit(0)
            if my_error is not None:
                raise my_error
            raise _error_of(rank, failure)

    def check_size(self, num_shards: int) -> None:
        """Raise a `ConfigError` if there are more processes than shards."""
        if self.size > num_shards:
            raise ConfigError(
                f"train.gradient_shards: {num_shards}, for {self.size} processes; --set "
                f"train.gradient_shards={self.size} gives each process a part of every batch"
            )

    def check_equal(self, facts: Mapping[str, Any]) -> None:
        """Raise a `ConfigError` in all processes if named values differ."""
        first, *other_values = self._gather_values(facts)
        for rank, other in enumerate(other_values, start=1):
            different = [name for name in first if other.get(name) != first[name]]
            if different:
                names = ", ".join(different)
                raise ConfigError(
                    f"process {rank} has another {names} than process 0; all must have the same"
                )

    @contextmanager
    def _noticing_loss(self) -> Iterator[None]:
        """Raise a `LostProcessError` in place of torch's error of a broken connection."""
        try:
            yield
        except RuntimeError as error:
            self._is_over = True
            raise LostProcessError from error

    # --- Stop -------------------------------------------------------------------------------------

    def deferring_stops(self) -> AbstractContextManager[None]:
        """A block at whose end a stop takes effect: in the middle, the others would wait."""
        if self.size == 1:
            return nullcontext()
        return deferring_stops()

    def ask_to_stop(self, signal_number: int) -> None:
        """Pass a signal on to the first process."""
        if self._store:
            self._store.set(STOP_KEY, str(signal_number))

    def asked_to_stop(self) -> int | None:
        """The signal that another process has passed on, if any."""
        if self._store is None or not self._store.check([STOP_KEY]):
            return None
        return int(self._store.get(STOP_KEY))


# The group of a training in this process alone.
ALONE = ProcessGroup()


def _error_of(rank: int, failure: Mapping[str, Any]) -> EncoderClsError:
    message = f"process {rank}: {failure['message']}"
    for kind in (ConfigError, DataError):
        if failure["code"] == kind.exit_code:
            return kind(message)
    return EncoderClsError(message)


def is_first_process() -> bool:
    """Whether this process is, or will be, the first."""
    return not number_in_environment("RANK", least=0)


def is_restarted() -> bool:
    """Whether torchrun has restarted the processes after a failure."""
    return _number_of_restarts() != "0"


def _number_of_restarts() -> str:
    return os.environ.get("TORCHELASTIC_RESTART_COUNT", "0")


# The maximum time for which a process waits until all others have begun. One that was killed before
# cannot be told from one that begins slowly. torchrun ends all processes if one of them dies, so
# that only its agents, which may load the libraries at different speeds, need patience.
MAX_WAIT_TO_MEET = timedelta(seconds=8)
MAX_WAIT_TO_MEET_UNDER_TORCHRUN = timedelta(minutes=10)
# The maximum time for which a process waits for the address of another one that has begun. gloo
# waits for five times as long until they are connected.
MAX_WAIT_TO_CONNECT = timedelta(seconds=3)
# The maximum time for which connected processes wait for the first one, which may be fitting a
# linear model for hours. They do not wait for one that has died: they notice that at once.
MAX_WAIT = timedelta(days=7)


@contextmanager
def joined_process_group() -> Iterator[ProcessGroup]:
    """Join the processes that torchrun has started, for the block.

    Raises:
        LostProcessError: another one has ended, or does not begin in time.
        ConfigError: a variable of torchrun is missing or invalid.
    """
    size = number_in_environment("WORLD_SIZE", least=1) or 1
    if size == 1 or number_in_environment("RANK", least=0) is None:
        yield ProcessGroup()
        return

    import torch
    import torch.distributed as dist
    from torch._C._distributed_c10d import PrefixStore
    from torch.distributed.distributed_c10d import _set_pg_timeout
    from torch.distributed.rendezvous import rendezvous

    backend = "gloo"
    if torch.cuda.is_available():
        backend = "cpu:gloo,cuda:nccl"

    try:
        store, rank, size = next(iter(rendezvous("env://", timeout=_max_wait_to_meet())))
        # The store survives a restart. The prefix keeps the keys of the processes before the
        # restart apart from those of the processes after it.
        store = PrefixStore(f"encoder-cls-{_number_of_restarts()}", store)
        _meet(store, rank, size)

        dist.init_process_group(
            backend,
            store=store,
            rank=rank,
            world_size=size,
            timeout=MAX_WAIT_TO_CONNECT,
        )
        # From here on, a dead process is noticed by its connection, so nothing else needs a limit.
        _set_pg_timeout(MAX_WAIT, None)
        store.set_timeout(MAX_WAIT)
    except RuntimeError as error:
        raise LostProcessError(
            f"the {size} processes of this training have not found each other: one of them has "
            "ended, or began too late; start all of them again"
        ) from error
    except ValueError as error:
        raise ConfigError(
            f"WORLD_SIZE is {size}, but the processes cannot reach each other: {error} "
            "(start them by torchrun, or unset WORLD_SIZE and RANK)"
        ) from None

    group = ProcessGroup(rank, size, store)
    try:
        yield group
    finally:
        group.end()
        dist.destroy_process_group()


def _meet(store: Store, rank: int, size: int) -> None:
    """Wait until all processes have begun, for which torchrun's own store does not wait."""
    store.set(f"begun-{rank}", "")
    store.wait([f"begun-{other}" for other in range(size)], _max_wait_to_meet())


def _max_wait_to_meet() -> timedelta:
    if os.environ.get("TORCHELASTIC_USE_AGENT_STORE") == "True":
        return MAX_WAIT_TO_MEET_UNDER_TORCHRUN
    return MAX_WAIT_TO_MEET


def device_of_rank(name: str) -> torch.device:
    """The device of this process: each one of a machine has its own GPU.

    Args:
        name: with `cuda:N`, all use the same.

    Raises:
        ConfigError: there is none, or fewer GPUs than processes.
    """
    import torch

    from encoder_cls.system.machine import resolve_device

    device = resolve_device(name)
    number = number_in_environment("LOCAL_RANK", least=0) or 0
    if device.type != "cuda" or device.index is not None:
        return device

    num_gpus = torch.cuda.device_count()
    if number >= num_gpus:
        raise ConfigError(f"process {number} of this machine has no GPU: there are {num_gpus}")
    return torch.device("cuda", number)
