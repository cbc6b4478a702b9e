"""Batches on their way from the texts to the device that trains.

On a GPU, the batches of the next step are made in a thread while the device computes. They are in
pinned memory, from which the device copies them without this process waiting for it.
"""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import fields, is_dataclass, replace
from typing import Any, Generic, Self, TypeVar

import torch
from torch import Tensor

Batches = TypeVar("Batches")


class BatchLoader(Generic[Batches]):
    """Makes the batches of steps, and brings them to a device.

    It is a context manager: the thread ends with the block.

    Args:
        make: takes the index of a step and a generator of random numbers, and returns the batches
            of the step on the CPU. The generator is None if torch's default generator is used.
        device: the device that computes the steps.
        makes_ahead: whether the batches of the next step are made in a thread. They then have a
            random generator of their own, because this process uses the default one meanwhile.
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

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        if self._thread:
            self._thread.shutdown(cancel_futures=True)
            self._thread = None
        self._next = {}

    def batches_of_step(self, step: int) -> Batches:
        """The batches of a step, counted from 0, on the device."""
        if self._makes_ahead:
            return on_device(self._made_ahead(step), self._device)
        return on_device(self._make(step, None), self._device)

    def _made_ahead(self, step: int) -> Batches:
        """The batches of a step from the thread, which then makes those of the step after it."""
        if self._thread is None:
            self._thread = ThreadPoolExecutor(1)

        made = self._next.pop(step, None)
        if made is None:
            made = self._thread.submit(self._make_pinned, step)
        self._next = {step + 1: self._thread.submit(self._make_pinned, step + 1)}
        return made.result()

    def _make_pinned(self, step: int) -> Batches:
        """Make the batches of a step; for a GPU, in pinned memory."""
        batches = self._make(step, torch.Generator())
        if self._device.type != "cuda":
            return batches

        # Memory is pinned by the driver of the current GPU, which each thread has for itself.
        with torch.cuda.device(self._device):
            pinned: Batches = _with_tensors(batches, Tensor.pin_memory)
        return pinned


def on_device(batches: Batches, device: torch.device) -> Batches:
    """Copy the tensors of batches to a device, without waiting if they are in pinned memory.

    The batches are dataclasses or named tuples of tensors, or lists or dictionaries of these.
    """
    if device.type == "cpu":
        return batches
    copied: Batches = _with_tensors(batches, lambda tensor: tensor.to(device, non_blocking=True))
    return copied


def _with_tensors(value: Any, function: Callable[[Tensor], Tensor]) -> Any:
    """Replace each tensor in a value, also in the parts of its parts, by a function of it.

    Values of other types stay as they are.
    """
    if isinstance(value, Tensor):
        return function(value)
    if isinstance(value, list):
        return [_with_tensors(item, function) for item in value]
    if isinstance(value, dict):
        return {key: _with_tensors(item, function) for key, item in value.items()}
    if isinstance(value, tuple):
        return type(value)(*(_with_tensors(part, function) for part in value))
    if is_dataclass(value) and not isinstance(value, type):
        parts = {}
        for field in fields(value):
            parts[field.name] = _with_tensors(getattr(value, field.name), function)
        return replace(value, **parts)
    return value
