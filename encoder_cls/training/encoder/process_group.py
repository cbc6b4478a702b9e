"""The processes of one training, which call the same methods in the same order; the first one, of rank 0, leads."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager, nullcontext, suppress
from datetime import timedelta
from typing import TYPE_CHECKING, Any

from encoder_cls.errors import ConfigError, DataError, EncoderClsError
from encoder_cls.system.stop import deferring_stops

if TYPE_CHECKING:
    import torch
    from torch import Tensor
    from torch._C._distributed_c10d import Store

# Others wait that long for the first, which may fit a linear classifier meanwhile; one that dies is noticed at once.
LONGEST_WAIT = timedelta(days=7)
STOP_KEY = "stop"


class LostProcessError(EncoderClsError):
    """Another process of the training has ended."""

    def __init__(self) -> None:
        super().__init__("another process of this training has ended; --resume goes on from the newest checkpoint")


class ProcessGroup:
    """The processes of a training; made without arguments, this one alone, which sends nothing.

    Methods that communicate raise a `LostProcessError` where another process has ended; all can use the store anytime.
    """

    def __init__(self, rank: int = 0, size: int = 1, store: Store | None = None) -> None:
        self.rank, self.size = rank, size
        self._store = store
        self._is_over = False

    @property
    def leads(self) -> bool:
        """Whether this is the process that decides, writes and prints."""
        return self.rank == 0

    def dealt(self, count: int) -> range:
        """This process's share of numbered items: equal shares, in order of rank."""
        return range(self.rank * count // self.size, (self.rank + 1) * count // self.size)

    def sum(self, tensor: Tensor) -> None:
        """Put the sum over all processes in place of a tensor."""
        if self.size == 1:
            return
        import torch.distributed as dist

        with self._noticing_loss():
            dist.all_reduce(tensor)

    def summed(self, *numbers: float) -> list[float]:
        """The sums of numbers over all processes."""
        if self.size == 1:
            return list(numbers)
        import torch

        sums = torch.tensor(numbers, dtype=torch.float64)
        self.sum(sums)
        return list(map(float, sums))

    def gather(self, mine: Tensor) -> list[Tensor]:
        """The tensors of all processes; their first dimensions may differ."""
        if self.size == 1:
            return [mine]
        import torch
        import torch.distributed as dist

        lengths = [torch.zeros(1, dtype=torch.int64) for _ in range(self.size)]
        with self._noticing_loss():
            dist.all_gather(lengths, torch.tensor([len(mine)]))
            padded = mine.new_zeros((max(1, *map(int, lengths)), *mine.shape[1:]))
            padded[: len(mine)] = mine
            received = [torch.empty_like(padded) for _ in range(self.size)]
            dist.all_gather(received, padded)
        return [rows[: int(length)] for rows, length in zip(received, lengths, strict=True)]

    def broadcast(self, content: bytes = b"") -> bytes:
        """Give all processes the content that the first one has."""
        if self.size == 1:
            return content
        import torch
        import torch.distributed as dist

        length = torch.tensor([len(content)])
        with self._noticing_loss():
            dist.broadcast(length, 0)
            if not length:
                return b""
            received = torch.frombuffer(bytearray(content or int(length)), dtype=torch.uint8)
            dist.broadcast(received, 0)
        return received.numpy().tobytes()

    def deferring_stops(self) -> AbstractContextManager[None]:
        """Take no stop during work of all processes, of which the others would wait for the rest."""
        return deferring_stops() if self.size > 1 else nullcontext()

    def goes_on(self, *, is_for_all: bool) -> bool:
        """Whether this process goes on: the first one, and the others if it lets them."""
        if is_for_all:
            self.lead({"begin": True})
        return self.leads or "begin" in self.follow()

    def lead(self, command: dict[str, Any]) -> None:
        """Let the other processes do what this one, the first, does now; does nothing in them."""
        if self.leads and self.size > 1:
            self.broadcast(json.dumps(command).encode())

    def follow(self) -> dict[str, Any]:
        """Wait for the next command of the first process."""
        try:
            return dict(json.loads(self.broadcast()))
        except ValueError as error:  # the first has ended in the middle of something else
            self._is_over = True
            raise LostProcessError from error

    def end(self) -> None:
        """Let the other processes end, if they wait for a command."""
        if not self._is_over:
            self._is_over = True
            with suppress(LostProcessError):
                self.lead({"end": True})

    @contextmanager
    def agreeing(self) -> Iterator[None]:
        """Let a block fail in all processes where it fails in one: the first raises the error, the others end."""
        if self.size == 1:
            yield
            return
        mine: EncoderClsError | None = None
        try:
            yield
        except EncoderClsError as error:
            mine = error
        outcomes = self._outcomes({"message": str(mine), "code": mine.exit_code} if mine else {})
        for rank, outcome in enumerate(outcomes):
            if outcome and not self.leads:
                raise SystemExit(0)  # the first has the exit code, and prints before torchrun ends it
            if outcome:
                kinds = {kind.exit_code: kind for kind in (ConfigError, DataError)}
                raise mine or kinds.get(outcome["code"], EncoderClsError)(f"process {rank}: {outcome['message']}")

    def check_size(self, num_shards: int) -> None:
        """Refuse more processes than shards with a `ConfigError`."""
        if self.size > num_shards:
            raise ConfigError(
                f"train.gradient_shards: {num_shards}, for {self.size} processes; --set "
                f"train.gradient_shards={self.size} gives each a part of every batch"
            )

    def check_equal(self, facts: Mapping[str, Any]) -> None:
        """Refuse JSON values that are not equal in all processes with a `ConfigError`."""
        first, *others = self._outcomes(facts)
        for rank, other in enumerate(others, 1):
            if names := ", ".join(name for name in first if other.get(name) != first[name]):
                raise ConfigError(f"process {rank} has another {names} than process 0; all are to have the same")

    def ask_to_stop(self, signal_number: int) -> None:
        """Pass a signal on to the first process."""
        if self._store:
            self._store.set(STOP_KEY, str(signal_number))

    def asked_to_stop(self) -> int | None:
        """The signal that has reached another process, if any."""
        if self._store is None or not self._store.check([STOP_KEY]):
            return None
        return int(self._store.get(STOP_KEY))

    def _outcomes(self, mine: Mapping[str, Any]) -> list[dict[str, Any]]:
        """A message of each process."""
        import torch

        content = torch.frombuffer(bytearray(json.dumps(mine).encode()), dtype=torch.uint8)
        return [json.loads(it.numpy().tobytes()) for it in self.gather(content)]

    @contextmanager
    def _noticing_loss(self) -> Iterator[None]:
        """Turn torch's error of a broken connection into one for the user."""
        try:
            yield
        except RuntimeError as error:
            self._is_over = True
            raise LostProcessError from error


ALONE = ProcessGroup()


def is_restarted() -> bool:
    """Whether torchrun has restarted the processes after one of them failed."""
    return os.environ.get("TORCHELASTIC_RESTART_COUNT", "0") != "0"


@contextmanager
def joined_process_group() -> Iterator[ProcessGroup]:
    """The group of the processes that torchrun, or what does as it does, has started; else this one alone.

    Raises:
        LostProcessError: the others cannot be reached.
    """
    if int(os.environ.get("WORLD_SIZE", "1")) == 1 or "RANK" not in os.environ:
        yield ProcessGroup()
        return
    import torch
    import torch.distributed as dist
    from torch._C._distributed_c10d import PrefixStore
    from torch.distributed.rendezvous import rendezvous

    attempt = os.environ.get("TORCHELASTIC_RESTART_COUNT", "0")  # what an earlier one has stored is not for this one
    try:
        store, rank, size = next(iter(rendezvous("env://")))
        store = PrefixStore(f"encoder-cls-{attempt}", store)
        backend = "cpu:gloo,cuda:nccl" if torch.cuda.is_available() else "gloo"
        dist.init_process_group(backend, store=store, rank=rank, world_size=size, timeout=LONGEST_WAIT)
    except RuntimeError as error:
        raise LostProcessError from error
    group = ProcessGroup(rank, size, store)
    try:
        yield group
    finally:
        group.end()
        dist.destroy_process_group()


def device_of_rank(name: str) -> torch.device:
    """The device of this process: of GPUs, where `cuda` means any, each process of a machine has its own.

    Raises:
        ConfigError: there are not so many.
    """
    import torch

    from encoder_cls.system.machine import resolve_device

    device, number = resolve_device(name), int(os.environ.get("LOCAL_RANK", "0"))
    if device.type != "cuda" or device.index is not None:
        return device
    if number >= torch.cuda.device_count():
        raise ConfigError(f"process {number} of this machine has no GPU: there are {torch.cuda.device_count()}")
    return torch.device("cuda", number)
