"""The processes of one training, as torchrun starts them.

All run the same program. The first one, of rank 0, decides, writes and prints; `decide` sends its
decisions to the others.
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

# The first byte of each message of the first process: it goes on, or it has ended.
GOES_ON = b"g"
HAS_ENDED = b"e"

# The key in the store of the signal to stop.
STOP_KEY = "stop"

T = TypeVar("T")


class LostProcessError(EncoderClsError):
    """Another process of the training has ended."""

    def __init__(self) -> None:
        super().__init__(
            "another process of this training has ended; "
            "--resume goes on from the newest checkpoint"
        )


class ProcessGroup:
    """The processes of a training; without arguments, this one alone.

    Methods that communicate raise a `LostProcessError` where another process has ended. Stops are
    exchanged through the store, which works at any time.

    Args:
        rank: the number of this process, from 0.
        size: the number of processes.
        store: shared by all of them.
    """

    def __init__(self, rank: int = 0, size: int = 1, store: Store | None = None) -> None:
        self.rank = rank
        self.size = size
        self._store = store
        self._is_over = False

    @property
    def leads(self) -> bool:
        """Whether this process decides, writes and prints."""
        return self.rank == 0

    def share(self, count: int) -> range:
        """This process's part of numbered items: equal parts, in order of rank."""
        return range(self.rank * count // self.size, (self.rank + 1) * count // self.size)

    # --- Exchange tensors -------------------------------------------------------------------------

    def sum(self, tensor: Tensor) -> None:
        """Replace a tensor, which has the same shape in all processes, by the sum over them."""
        if self.size == 1 or not tensor.numel():
            return

        import torch.distributed as dist

        with self._noticing_loss():
            dist.all_reduce(tensor)

    def summed(self, *numbers: float) -> list[float]:
        """The sums of numbers over all processes."""
        import torch

        sums = torch.tensor(numbers, dtype=torch.float64)
        self.sum(sums)
        return [float(number) for number in sums]

    def gather(self, mine: Tensor) -> tuple[Tensor, ...]:
        """The tensors of all processes, in order of rank; their first dimensions may differ."""
        if self.size == 1:
            return (mine,)

        import torch
        import torch.distributed as dist

        # Each process adds its length to zeros of the others.
        my_lengths = [0] * self.size
        my_lengths[self.rank] = len(mine)
        lengths = [int(length) for length in self.summed(*my_lengths)]

        # Only tensors of one shape can be gathered.
        padded = mine.new_zeros((max(lengths), *mine.shape[1:]))
        padded[: len(mine)] = mine
        gathered = [torch.empty_like(padded) for _ in lengths]
        if padded.numel():
            with self._noticing_loss():
                dist.all_gather(gathered, padded)
        return tuple(part[:length] for part, length in zip(gathered, lengths, strict=True))

    # --- Exchange values --------------------------------------------------------------------------

    def gather_bytes(self, mine: bytes) -> list[bytes]:
        """The contents of all processes, in order of rank."""
        if self.size == 1:
            return [mine]

        import numpy as np
        import torch

        my_tensor = torch.from_numpy(np.frombuffer(mine, dtype=np.uint8).copy())
        return [tensor.numpy().tobytes() for tensor in self.gather(my_tensor)]

    def broadcast(self, content: bytes) -> bytes:
        """Send the content of the first process to all.

        Raises:
            SystemExit: in the others, where the first one has ended.
        """
        if self.size == 1:
            return content

        my_message = b""
        if self.leads:
            my_message = GOES_ON + content
        first_message = self.gather_bytes(my_message)[0]

        kind = first_message[:1]
        if kind == HAS_ENDED:
            self._is_over = True
            # The first process has the exit code, and prints.
            raise SystemExit(0)
        if kind != GOES_ON:
            # The first process has ended in the middle of another exchange.
            self._is_over = True
            raise LostProcessError
        return first_message[1:]

    def decide(self, value: T) -> T:
        """Send the JSON value of the first process to all. Errors are those of `broadcast`."""
        if self.size == 1:
            return value

        content = b""
        if self.leads:
            content = json.dumps(value).encode()
        decided: T = json.loads(self.broadcast(content))
        return decided

    def _gather_values(self, mine: Mapping[str, Any]) -> list[dict[str, Any]]:
        """The JSON values of all processes, in order of rank."""
        contents = self.gather_bytes(json.dumps(mine).encode())
        return [json.loads(content) for content in contents]

    # --- End together -----------------------------------------------------------------------------

    def end_with_first(self) -> None:
        """Exit here, where the first process has ended. Errors are those of `broadcast`."""
        self.decide(None)

    def end(self) -> None:
        """Let the others exit, where they wait for a decision of this process, the first."""
        if self._is_over or not self.leads or self.size == 1:
            return
        self._is_over = True
        with suppress(LostProcessError):
            self.gather_bytes(HAS_ENDED)

    def separate(self) -> None:
        """Let each process go its own way from here on: nothing is left to do together."""
        self._is_over = True

    @contextmanager
    def agreeing(self) -> Iterator[None]:
        """Let a block that fails in one process fail in all.

        The first process raises the error, whichever process has it, and the others exit.
        """
        my_error: EncoderClsError | None = None
        try:
            yield
        except EncoderClsError as error:
            my_error = error

        my_failure: dict[str, Any] = {}
        if my_error is not None:
            my_failure = {"message": str(my_error), "code": my_error.exit_code}

        for rank, failure in enumerate(self._gather_values(my_failure)):
            if not failure:
                continue
            if not self.leads:
                # The first process has the exit code, and prints before torchrun ends it.
                raise SystemExit(0)
            if my_error is not None:
                raise my_error
            raise _error_of(rank, failure)

    def check_size(self, num_shards: int) -> None:
        """Raise a `ConfigError` if there are more processes than shards."""
        if self.size > num_shards:
            raise ConfigError(
                f"train.gradient_shards: {num_shards}, for {self.size} processes; --set "
                f"train.gradient_shards={self.size} gives each a part of every batch"
            )

    def check_equal(self, facts: Mapping[str, Any]) -> None:
        """Raise a `ConfigError` if JSON values are not equal in all processes."""
        first, *others = self._gather_values(facts)
        for rank, other in enumerate(others, start=1):
            different = [name for name in first if other.get(name) != first[name]]
            if different:
                names = ", ".join(different)
                raise ConfigError(
                    f"process {rank} has another {names} than process 0; all must have the same"
                )

    @contextmanager
    def _noticing_loss(self) -> Iterator[None]:
        """Raise a `LostProcessError` for torch's error that a connection is broken."""
        try:
            yield
        except RuntimeError as error:
            self._is_over = True
            raise LostProcessError from error

    # --- Stop -------------------------------------------------------------------------------------

    def deferring_stops(self) -> AbstractContextManager[None]:
        """Defer stops to the end of work that is shared: the others would wait for a process."""
        return deferring_stops() if self.size > 1 else nullcontext()

    def ask_to_stop(self, signal_number: int) -> None:
        """Pass a signal on to the first process."""
        if self._store:
            self._store.set(STOP_KEY, str(signal_number))

    def asked_to_stop(self) -> int | None:
        """The signal that has reached another process, if any."""
        if self._store is None or not self._store.check([STOP_KEY]):
            return None
        return int(self._store.get(STOP_KEY))


ALONE = ProcessGroup()


def _error_of(rank: int, failure: Mapping[str, Any]) -> EncoderClsError:
    """The error of another process, of the same exit code."""
    message = f"process {rank}: {failure['message']}"
    for kind in (ConfigError, DataError):
        if failure["code"] == kind.exit_code:
            return kind(message)
    return EncoderClsError(message)


def is_restarted() -> bool:
    """Whether torchrun has restarted the processes after one of them failed."""
    return _number_of_restarts() != "0"


def _number_of_restarts() -> str:
    return os.environ.get("TORCHELASTIC_RESTART_COUNT", "0")


# How long the others wait for the first process, which may be fitting a linear model. A process
# that has died is noticed at once.
LONGEST_WAIT = timedelta(days=7)


@contextmanager
def joined_process_group() -> Iterator[ProcessGroup]:
    """The group of the processes that torchrun has started; otherwise this process alone.

    Raises:
        LostProcessError: the others cannot be reached.
        ConfigError: an environment variable of torchrun's is missing or wrong.
    """
    size = number_in_environment("WORLD_SIZE", least=1) or 1
    if size == 1 or number_in_environment("RANK", least=0) is None:
        yield ProcessGroup()
        return

    import torch
    import torch.distributed as dist
    from torch._C._distributed_c10d import PrefixStore
    from torch.distributed.rendezvous import rendezvous

    backend = "gloo"
    if torch.cuda.is_available():
        backend = "cpu:gloo,cuda:nccl"

    try:
        store, rank, size = next(iter(rendezvous("env://")))
        # After a restart, keys of the processes before must not be found.
        store = PrefixStore(f"encoder-cls-{_number_of_restarts()}", store)
        dist.init_process_group(
            backend,
            store=store,
            rank=rank,
            world_size=size,
            timeout=LONGEST_WAIT,
        )
    except RuntimeError as error:
        raise LostProcessError from error
    except ValueError as error:
        raise ConfigError(
            f"the environment names {size} processes, and not how they reach each other: {error} "
            "(start them by torchrun, or unset WORLD_SIZE and RANK)"
        ) from None

    group = ProcessGroup(rank, size, store)
    try:
        yield group
    finally:
        group.end()
        dist.destroy_process_group()


def device_of_rank(name: str) -> torch.device:
    """The device of this process: of several on a machine that use GPUs, each has one of its own.

    Args:
        name: `auto`, `cpu`, `cuda` or `cuda:N`. The number of a GPU is the same for all processes.

    Raises:
        ConfigError: this machine has too few GPUs.
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
