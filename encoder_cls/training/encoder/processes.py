"""The processes of one training.

A training of one process has a group, too, of itself alone, in which nothing is sent. All processes call the same
methods in the same order; the first one, of rank 0, leads.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from datetime import timedelta
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from encoder_cls.errors import ConfigError, DataError, EncoderClsError

if TYPE_CHECKING:
    import torch
    from torch import Tensor
    from torch._C._distributed_c10d import Store

# Others wait that long for the first, which may fit a linear classifier meanwhile; one that dies is noticed at once.
LONGEST_WAIT = timedelta(days=7)
STOP_KEY = "stop"
BEGIN, END = {"begin": True}, {"end": True}


class LostProcessError(EncoderClsError):
    """Another process of the training has ended."""

    def __init__(self) -> None:
        super().__init__("another process of this training has ended; --resume goes on from the newest checkpoint")


class ProcessGroup:
    """The processes of a training; made without arguments, this one alone.

    Args:
        rank: the number of this process, from 0.
        size: how many there are.
        store: what all of them can read and write at any time; none in a group of one.
    """

    def __init__(self, rank: int = 0, size: int = 1, store: Store | None = None) -> None:
        self.rank, self.size = rank, size
        self._store = store
        self._has_ended = self._is_broken = False

    @property
    def leads(self) -> bool:
        """Whether this is the process that decides, writes and prints."""
        return self.rank == 0

    def dealt(self, count: int) -> range:
        """Which of so many items are this process's: as many each as can be, in order of rank."""
        return range(self.rank * count // self.size, (self.rank + 1) * count // self.size)

    def gather(self, mine: Tensor, count: int) -> Tensor:
        """The rows of all items in order, (count, ...), where each process has those that are dealt to it.

        Args:
            mine: (items of this process, ...); other dimensions are the same in all processes.
            count: the items of all.

        Raises:
            LostProcessError: another process has ended.
        """
        if self.size == 1:
            return mine
        import torch
        import torch.distributed as dist

        most = -(-count // self.size)
        if len(mine) < most:
            mine = torch.cat([mine, mine.new_zeros((most - len(mine), *mine.shape[1:]))])
        together = mine.new_empty((self.size * most, *mine.shape[1:]))
        received = list(together.chunk(self.size))
        with self._noticing_loss():
            dist.all_gather(received, mine.contiguous())
        if count == len(together):
            return together
        lengths = [len(ProcessGroup(rank, self.size).dealt(count)) for rank in range(self.size)]
        return torch.cat([rows[:length] for rows, length in zip(received, lengths, strict=True)])

    def gather_array(self, mine: NDArray[Any], count: int) -> NDArray[Any]:
        """As `gather`, of an array of numbers."""
        import torch

        return self.gather(torch.from_numpy(mine), count).numpy()

    def sum(self, tensor: Tensor) -> None:
        """Put the sum over all processes in place of a tensor, in whatever order is quickest.

        Raises:
            LostProcessError: another process has ended.
        """
        if self.size == 1:
            return
        import torch.distributed as dist

        with self._noticing_loss():
            dist.all_reduce(tensor)

    def merged(self, rows: NDArray[np.float32]) -> NDArray[np.float32]:
        """The rows of all processes, each of which has zeros for those of others.

        Raises:
            LostProcessError: another process has ended.
        """
        import torch

        self.sum(torch.from_numpy(rows.view(np.int32)))  # bits and zeros: nothing is rounded, and -0.0 stays
        return rows

    def broadcast(self, content: bytes = b"") -> bytes:
        """What the first process gives, in all of them.

        Raises:
            LostProcessError: another process has ended.
        """
        if self.size == 1:
            return content
        import torch
        import torch.distributed as dist

        length = torch.tensor([len(content)])
        with self._noticing_loss():
            dist.broadcast(length, 0)
            received = torch.frombuffer(bytearray(content or int(length)), dtype=torch.uint8)
            dist.broadcast(received, 0)
        return received.numpy().tobytes()

    def begins(self, *, is_for_all: bool) -> bool:
        """Whether this process goes on: the first one, and the others if it lets them.

        Raises:
            LostProcessError: another process has ended.
        """
        if is_for_all:
            self.lead(BEGIN)
        return self.leads or self.follow() == BEGIN

    def lead(self, command: dict[str, Any]) -> None:
        """Tell the others what this process does now, so that they do the same; in them, do nothing.

        Raises:
            LostProcessError: another process has ended.
        """
        if self.leads and self.size > 1:
            self.broadcast(json.dumps(command).encode())

    def follow(self) -> dict[str, Any]:
        """Wait for what the first process does next.

        Raises:
            LostProcessError: another process has ended.
        """
        try:
            command: dict[str, Any] = json.loads(self.broadcast())
        except ValueError as error:  # the first has ended in the middle of something else
            self._is_broken = True
            raise LostProcessError from error
        return command

    def end(self) -> None:
        """Tell the others that nothing more is to be done, if they have not been told."""
        if not (self._has_ended or self._is_broken):  # others are not waiting for a word then
            self._has_ended = True
            with suppress(LostProcessError):
                self.lead(END)

    @contextmanager
    def agreeing(self) -> Iterator[None]:
        """A block that fails in all processes where it fails in one: the first raises the error, the others end.

        Raises:
            EncoderClsError: this is the first process, and there was an error in it or in another.
            SystemExit: this is another one.
        """
        mine: EncoderClsError | None = None
        try:
            yield
        except EncoderClsError as error:
            if self.size == 1:
                raise
            mine = error
        outcomes = self._outcomes({"message": str(mine), "code": mine.exit_code} if mine else {})
        failed = next(((rank, it) for rank, it in enumerate(outcomes) if it), None)
        if failed is None:
            return
        if not self.leads:
            raise SystemExit(0)  # the first has the exit code; torchrun would end it before it has told the error
        rank, outcome = failed
        kinds = {kind.exit_code: kind for kind in (ConfigError, DataError)}
        raise mine or kinds.get(outcome["code"], EncoderClsError)(f"process {rank}: {outcome['message']}")

    def check_size(self, num_shards: int) -> None:
        """Make sure that each process has a shard to compute.

        Raises:
            ConfigError: there are more processes than shards.
        """
        if self.size > num_shards:
            raise ConfigError(
                f"train.gradient_shards: {num_shards}, for {self.size} processes; --set "
                f"train.gradient_shards={self.size} gives each a part of every batch"
            )

    def check_equal(self, facts: Mapping[str, Any]) -> None:
        """Make sure that all processes have the same.

        Args:
            facts: values of JSON by name.

        Raises:
            ConfigError: one has not.
        """
        found = self._outcomes(dict(facts))
        for rank, other in enumerate(found):
            differing = [name for name in found[0] if other.get(name) != found[0][name]]
            if differing:
                names = ", ".join(differing)
                raise ConfigError(f"process {rank} has another {names} than process 0; all are to have the same")

    def ask_to_stop(self, signal_number: int) -> None:
        """Tell the first process that a signal has reached this one."""
        if self._store:
            self._store.set(STOP_KEY, str(signal_number))

    def asked_to_stop(self) -> int | None:
        """The signal that has reached another process, if any."""
        if self._store is None or not self._store.check([STOP_KEY]):
            return None
        return int(self._store.get(STOP_KEY))

    def _outcomes(self, mine: dict[str, Any]) -> list[dict[str, Any]]:
        """A message of each process."""
        if self.size == 1:
            return [mine]
        content = np.frombuffer(json.dumps(mine).encode(), dtype=np.uint8)
        lengths = self.gather_array(np.array([len(content)]), self.size)
        padded = np.zeros((1, lengths.max()), dtype=np.uint8)
        padded[0, : len(content)] = content
        rows = self.gather_array(padded, self.size)
        return [json.loads(row[:length].tobytes()) for row, length in zip(rows, lengths, strict=True)]

    @contextmanager
    def _noticing_loss(self) -> Iterator[None]:
        """Turn what torch says of a broken connection into an error for the user."""
        try:
            yield
        except RuntimeError as error:
            self._is_broken = True
            raise LostProcessError from error


ALONE = ProcessGroup()
"""The group of a training of one process."""


def is_restarted() -> bool:
    """Whether torchrun has started the processes anew after one of them had failed."""
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
        backend = "cpu:gloo,cuda:nccl" if torch.cuda.is_available() else "gloo"
        group_store = PrefixStore(f"group-{attempt}", store)
        dist.init_process_group(backend, store=group_store, rank=rank, world_size=size, timeout=LONGEST_WAIT)
    except RuntimeError as error:
        raise LostProcessError from error
    group = ProcessGroup(rank, size, PrefixStore(f"encoder-cls-{attempt}", store))
    try:
        yield group
    finally:
        group.end()
        dist.destroy_process_group()


def device_of_rank(device: torch.device) -> torch.device:
    """The GPU of this process, where `cuda` means any; each process of a machine has its own.

    Raises:
        ConfigError: there are not so many.
    """
    import torch

    number = int(os.environ.get("LOCAL_RANK", "0"))
    if device.type != "cuda" or device.index is not None:
        return device
    if number >= torch.cuda.device_count():
        raise ConfigError(f"process {number} of this machine has no GPU: there are {torch.cuda.device_count()}")
    return torch.device("cuda", number)
