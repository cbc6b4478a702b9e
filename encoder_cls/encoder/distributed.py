"""The processes of one training; all run the same program, and the first one decides.

The first one, of rank 0, writes and prints; what it decides, `decide` sends to the others.
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

# For the first process, which may be fitting a linear classifier; a dead one is noticed at once.
LONGEST_WAIT = timedelta(days=7)
STOP_KEY = "stop"
# The first byte of a broadcast.
GOES_ON = b"g"
HAS_ENDED = b"e"

T = TypeVar("T")


class LostProcessError(EncoderClsError):
    """Another process of the training has ended."""

    def __init__(self) -> None:
        super().__init__(
            "another process of this training has ended; --resume goes on from the newest checkpoint"
        )


class ProcessGroup:
    """The processes of a training; without arguments, this one alone.

    Methods that communicate raise a `LostProcessError` where another process has ended. Stops are exchanged through the
    store, which works at any time.
    """

    def __init__(self, rank: int = 0, size: int = 1, store: Store | None = None) -> None:
        self.rank, self.size = rank, size
        self._store = store
        self._is_over = False

    @property
    def leads(self) -> bool:
        """Whether this process decides, writes and prints."""
        return self.rank == 0

    def dealt(self, count: int) -> range:
        """This process's share of numbered items: equal shares, in order of rank."""
        return range(self.rank * count // self.size, (self.rank + 1) * count // self.size)

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
        return list(map(float, sums))

    def gather(self, mine: Tensor) -> tuple[Tensor, ...]:
        """The tensors of all processes, in order of rank; their first dimensions may differ."""
        if self.size == 1:
            return (mine,)
        import torch
        import torch.distributed as dist

        lengths = [
            int(it)
            for it in self.summed(*(len(mine) * (rank == self.rank) for rank in range(self.size)))
        ]
        padded = mine.new_zeros((max(lengths), *mine.shape[1:]))
        padded[: len(mine)] = mine
        parts = [torch.empty_like(padded) for _ in lengths]
        if padded.numel():
            with self._noticing_loss():
                dist.all_gather(parts, padded)
        return tuple(part[:length] for part, length in zip(parts, lengths, strict=True))

    def gather_bytes(self, mine: bytes) -> list[bytes]:
        """The contents of all processes, in order of rank."""
        if self.size == 1:
            return [mine]
        import numpy as np
        import torch

        parts = self.gather(torch.from_numpy(np.frombuffer(mine, dtype=np.uint8).copy()))
        return [part.numpy().tobytes() for part in parts]

    def broadcast(self, content: bytes) -> bytes:
        """Send the content of the first process to all; where the first one has ended, the others exit here."""
        if self.size == 1:
            return content
        message = self.gather_bytes(GOES_ON + content if self.leads else b"")[0]
        kind, content = message[:1], message[1:]

        if kind == HAS_ENDED:
            self._is_over = True
            raise SystemExit(0)  # the first process has the exit code, and prints
        if kind != GOES_ON:  # it has ended in the middle of another exchange
            self._is_over = True
            raise LostProcessError
        return content

    def decide(self, value: T) -> T:
        """The JSON value of the first process, in all processes; where the first one has ended, the others exit here."""
        if self.size == 1:
            return value
        content = json.dumps(value) if self.leads else ""
        decided: T = json.loads(self.broadcast(content.encode()))
        return decided

    def deferring_stops(self) -> AbstractContextManager[None]:
        """Defer stops to the end of work that all processes share: the others would wait for one that stops."""
        return deferring_stops() if self.size > 1 else nullcontext()

    def part(self) -> None:
        """Let each process go its own way from here on: there is nothing left to do together."""
        self._is_over = True

    def end(self) -> None:
        """Let the other processes exit, wherever they wait for a decision of this one, the first."""
        if self._is_over or not self.leads or self.size == 1:
            return
        self._is_over = True
        with suppress(LostProcessError):
            self.gather_bytes(HAS_ENDED)

    @contextmanager
    def agreeing(self) -> Iterator[None]:
        """Let a block that fails in one process fail in all: the first raises the error, the others exit."""
        mine: EncoderClsError | None = None
        try:
            yield
        except EncoderClsError as error:
            mine = error
        outcomes = self._outcomes({"message": str(mine), "code": mine.exit_code} if mine else {})
        for rank, outcome in enumerate(outcomes):
            if outcome and not self.leads:
                # The first has the exit code, and prints before torchrun ends it.
                raise SystemExit(0)
            if outcome:
                kinds = {kind.exit_code: kind for kind in (ConfigError, DataError)}
                raise mine or kinds.get(outcome["code"], EncoderClsError)(
                    f"process {rank}: {outcome['message']}"
                )

    def check_size(self, num_shards: int) -> None:
        """Raise a `ConfigError` if there are more processes than shards."""
        if self.size > num_shards:
            raise ConfigError(
                f"train.gradient_shards: {num_shards}, for {self.size} processes; --set "
                f"train.gradient_shards={self.size} gives each a part of every batch"
            )

    def check_equal(self, facts: Mapping[str, Any]) -> None:
        """Raise a `ConfigError` if JSON values are not equal in all processes."""
        first, *others = self._outcomes(facts)
        for rank, other in enumerate(others, 1):
            if names := ", ".join(name for name in first if other.get(name) != first[name]):
                raise ConfigError(
                    f"process {rank} has another {names} than process 0; all must have the same"
                )

    def ask_to_stop(self, signal_number: int) -> None:
        """Pass a signal on to the first process."""
        if self._store:
            self._store.set(STOP_KEY, str(signal_number))

    def asked_to_stop(self) -> int | None:
        """The signal that has reached another process, if any."""
        if self._store is None or not self._store.check([STOP_KEY]):
            return None
        return int(self._store.get(STOP_KEY))

    @contextmanager
    def _noticing_loss(self) -> Iterator[None]:
        """Raise a `LostProcessError` for an error of torch's, of a broken connection."""
        try:
            yield
        except RuntimeError as error:
            self._is_over = True
            raise LostProcessError from error

    def _outcomes(self, mine: Mapping[str, Any]) -> list[dict[str, Any]]:
        """Exchange JSON values with all processes."""
        return [json.loads(content) for content in self.gather_bytes(json.dumps(mine).encode())]


ALONE = ProcessGroup()


def is_restarted() -> bool:
    """Whether torchrun has restarted the processes after one of them failed."""
    return os.environ.get("TORCHELASTIC_RESTART_COUNT", "0") != "0"


@contextmanager
def joined_process_group() -> Iterator[ProcessGroup]:
    """The group of the processes that torchrun, or a program like it, has started; else this process alone.

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

    # Each has its own keys in the store.
    attempt = os.environ.get("TORCHELASTIC_RESTART_COUNT", "0")
    try:
        store, rank, size = next(iter(rendezvous("env://")))
        store = PrefixStore(f"encoder-cls-{attempt}", store)
        backend = "cpu:gloo,cuda:nccl" if torch.cuda.is_available() else "gloo"
        dist.init_process_group(
            backend, store=store, rank=rank, world_size=size, timeout=LONGEST_WAIT
        )
    except RuntimeError as error:
        raise LostProcessError from error
    except ValueError as error:
        raise ConfigError(
            f"the environment names {size} processes, and not how they reach each other: {error} (start them by "
            "torchrun, or unset WORLD_SIZE and RANK)"
        ) from None
    group = ProcessGroup(rank, size, store)
    try:
        yield group
    finally:
        group.end()
        dist.destroy_process_group()


def device_of_rank(name: str) -> torch.device:
    """The device of this process: where several processes of a machine use GPUs (`cuda`, without a number), one each.

    Raises:
        ConfigError: this machine has too few GPUs.
    """
    import torch

    from encoder_cls.system.machine import resolve_device

    device = resolve_device(name)
    number = number_in_environment("LOCAL_RANK", least=0) or 0
    if device.type != "cuda" or device.index is not None:
        return device
    if number >= torch.cuda.device_count():
        raise ConfigError(
            f"process {number} of this machine has no GPU: there are {torch.cuda.device_count()}"
        )
    return torch.device("cuda", number)
