"""The batches of steps, made while the device computes.

For a GPU, a thread makes the next batches in pinned memory, from which the device copies them
without waiting.
"""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Generic, TypeVar

import torch
from torch import Tensor

from encoder_cls.encoder.nested_tensors import map_tensors

Batches = TypeVar("Batches")


class BatchLoader(Generic[Batches]):
    """Makes the batches of steps, on the CPU.

    Args:
        make: returns the batches of a step by its index, with a generator of random numbers; None
            is torch's default one.
        makes_ahead: whether a thread makes the batches of the next step, with a generator of its
            own, since this process uses the default one.
    """

    def __init__(
        self,
        make: Callable[[int, torch.Generator | None], Batches],
        *,
        device: torch.device,
        makes_ahead: bool,
    ) -> None:
        self._make = make
        self._device = device
        self._makes_ahead = makes_ahead
        self._thread: ThreadPoolExecutor | None = None
        # The batches that the thread makes, by the index of their step.
        self._next: dict[int, Future[Batches]] = {}

    def batches_of_step(self, step: int) -> Batches:
        """The batches of a step, counted from 0."""
        if self._makes_ahead:
            return self._made_ahead(step)
        return self._make(step, None)

    def close(self) -> None:
        """End the thread."""
        if self._thread:
            self._thread.shutdown(cancel_futures=True)
            self._thread = None
        self._next = {}

    def _made_ahead(self, step: int) -> Batches:
        if self._thread is None:
            self._thread = ThreadPoolExecutor(1)

        made = self._next.pop(step, None)
        if made is None:
            made = self._thread.submit(self._make_pinned, step)
        self._next = {step + 1: self._thread.submit(self._make_pinned, step + 1)}
        return made.result()

    def _make_pinned(self, step: int) -> Batches:
        batches = self._make(step, torch.Generator())
        if self._device.type != "cuda":
            return batches

        # Memory is pinned by the driver of the current GPU, which each thread has for itself.
        with torch.cuda.device(self._device):
            return map_tensors(Tensor.pin_memory, batches)
