"""Devices, numerical precision and memory of this machine."""

from __future__ import annotations

import ctypes
import os
import platform
import sys
from functools import partial
from importlib.metadata import version

import torch

from encoder_cls.errors import ConfigError

if hasattr(os, "register_at_fork"):  # a forked child lacks OpenMP's other threads, and would wait for them
    os.register_at_fork(after_in_child=partial(torch.set_num_threads, 1))


def resolve_device(name: str) -> torch.device:
    """The device named `auto`, `cpu`, `cuda` or `cuda:N`; `ConfigError` if this machine has none."""
    if name == "auto":
        return torch.device("cuda" if torch.cuda.is_available() else "cpu")
    kind, colon, index = name.partition(":")
    if kind not in {"cpu", "cuda"} or (colon and (kind == "cpu" or not index.isdecimal())):
        raise ConfigError(f"--device {name}: known devices are auto, cpu, cuda and cuda:N")
    if kind == "cuda" and int(index or 0) >= (count := torch.cuda.device_count()):
        raise ConfigError(f"--device {name}: this machine has {count} CUDA devices that torch can use")
    return torch.device(name)


def resolve_precision(name: str, device: torch.device) -> torch.dtype:
    """The type of matrix products in training.

    `auto` is bfloat16 where the device has instructions for its products (CUDA since Ampere, CPUs with AMX or
    AVX-512 bfloat16) and float32 elsewhere: without them bfloat16 saves memory traffic but often loses time.
    """
    if name == "auto":
        fast = torch.cuda.get_device_capability(device) >= (8, 0) if device.type == "cuda" else _cpu_has_bfloat16()
        return torch.bfloat16 if fast else torch.float32
    return torch.bfloat16 if name == "bfloat16" else torch.float32


def _cpu_has_bfloat16() -> bool:
    # Private in torch, so absence in some version must mean no more than "not known".
    probes = [getattr(torch.cpu, name, None) for name in ("_is_amx_tile_supported", "_is_avx512_bf16_supported")]
    return any(probe() for probe in probes if probe)


def autocast(precision: torch.dtype, device: torch.device) -> torch.autocast:
    """A block in which matrix products are computed in this precision."""
    return torch.autocast(device.type, precision, enabled=precision != torch.float32)


def environment(device: torch.device, precision: torch.dtype) -> dict[str, str | int]:
    """The versions and settings that change the last bits of a result from one machine to another."""
    return {
        "torch": torch.__version__,
        "scikit-learn": version("scikit-learn"),
        "scipy": version("scipy"),
        "device": torch.cuda.get_device_name(device) if device.type == "cuda" else platform.machine(),
        "cpu_capability": torch.backends.cpu.get_cpu_capability(),
        "threads": torch.get_num_threads(),
        "precision": str(precision).removeprefix("torch."),
    }


def release_memory() -> None:
    """Give freed memory back to the system, where the C library would keep it: glibc does.

    It keeps blocks of up to 32 MB for the next of their size. Batches always have other sizes, so these blocks
    come to many times the memory in use.
    """
    trim = getattr(ctypes.CDLL(None), "malloc_trim", None) if sys.platform == "linux" else None
    if trim:
        trim(0)
