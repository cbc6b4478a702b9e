"""Tensors inside named tuples, dataclasses, lists and dictionaries, at any depth."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import fields, is_dataclass, replace
from typing import Any, TypeVar

import torch
from torch import Tensor

Nested = TypeVar("Nested")


def map_tensors(function: Callable[[Tensor], Tensor], value: Nested) -> Nested:
    """Replace each tensor in a value, at any depth, by a function of it.

    Values of other types stay as they are.
    """
    mapped: Nested = _mapped(function, value)
    return mapped


def _mapped(function: Callable[[Tensor], Tensor], value: Any) -> Any:
    if isinstance(value, Tensor):
        return function(value)
    if isinstance(value, list):
        return [_mapped(function, item) for item in value]
    if isinstance(value, dict):
        return {key: _mapped(function, item) for key, item in value.items()}
    if isinstance(value, tuple):
        return type(value)(*(_mapped(function, part) for part in value))
    if is_dataclass(value) and not isinstance(value, type):
        parts = {}
        for field in fields(value):
            parts[field.name] = _mapped(function, getattr(value, field.name))
        return replace(value, **parts)
    return value


def list_tensors(value: Any) -> list[Tensor]:
    """The tensors in a value, always in the same order."""
    tensors: list[Tensor] = []

    def collect(tensor: Tensor) -> Tensor:
        tensors.append(tensor)
        return tensor

    map_tensors(collect, value)
    return tensors


def on_device(value: Nested, device: torch.device) -> Nested:
    """Copy the tensors in a value to a device, without waiting if they are in pinned memory."""
    if device.type == "cpu":
        return value
    return map_tensors(lambda tensor: tensor.to(device, non_blocking=True), value)
