"""Properties of this machine: devices, numerical precision, memory and environment variables."""

from __future__ import annotations

import ctypes
import os
import platform
import sys
from typing import TYPE_CHECKING

from encoder_cls.errors import ConfigError

if TYPE_CHECKING:
    import torch


def resolve_device(name: str) -> torch.device:
    """The device `cpu`, `cuda`, `cuda:N`, or `auto`, a GPU if there is one.

    Raises:
        ConfigError: this machine has no such device.
    """
    import torch

    if name == "auto":
        return torch.device("cuda" if has_gpu() else "cpu")

    kind, colon, index = name.partition(":")
    has_bad_index = colon and (kind == "cpu" or not index.isdecimal())
    if kind not in {"cpu", "cuda"} or has_bad_index:
        raise ConfigError(f"--device {name}: known devices are auto, cpu, cuda and cuda:N")

    if kind == "cuda":
        count = torch.cuda.device_count()
        if int(index or 0) >= count:
            raise ConfigError(
                f"--device {name}: this machine has {count} CUDA devices that torch can use"
            )
    return torch.device(name)


def has_gpu() -> bool:
    """Whether torch can use a GPU; it imports torch, which takes a second."""
    import torch

    return torch.cuda.is_available()


# The names of functions in `torch.cpu` that say whether the processor multiplies matrices in
# bfloat16. They are private, so another version of torch may lack them; it then counts as
# not supported.
CPU_PROBES = ("_is_amx_tile_supported", "_is_avx512_bf16_supported")
# The compute capability of Ampere, the first generation of NVIDIA GPUs that multiply matrices in
# bfloat16.
FIRST_FAST_CAPABILITY = (8, 0)


def resolve_precision(name: str, device: torch.device) -> torch.dtype:
    """The type in which training multiplies matrices: `float32`, `bfloat16` or `auto`.

    `auto` is bfloat16 if the device has instructions for it (CUDA since Ampere, CPUs with AMX or
    AVX-512 bfloat16): without them it is often slower.
    """
    import torch

    if name != "auto":
        return torch.bfloat16 if name == "bfloat16" else torch.float32

    if device.type == "cuda":
        is_fast = torch.cuda.get_device_capability(device) >= FIRST_FAST_CAPABILITY
    else:
        probes = [getattr(torch.cpu, probe, None) for probe in CPU_PROBES]
        is_fast = any(probe() for probe in probes if probe)
    return torch.bfloat16 if is_fast else torch.float32


def autocast(precision: torch.dtype, device: torch.device) -> torch.autocast:
    """Compute matrix products in a precision."""
    import torch

    return torch.autocast(device.type, precision, enabled=precision != torch.float32)


def environment(device: torch.device, precision: torch.dtype) -> dict[str, str | int]:
    """Versions and properties on which the last bits of results depend."""
    from importlib.metadata import version

    import torch

    if device.type == "cuda":
        device_name = torch.cuda.get_device_name(device)
    else:
        device_name = platform.machine()

    return {
        "torch": torch.__version__,
        "scikit-learn": version("scikit-learn"),
        "scipy": version("scipy"),
        "device": device_name,
        "cpu_capability": torch.backends.cpu.get_cpu_capability(),
        "threads": torch.get_num_threads(),
        "precision": str(precision).removeprefix("torch."),
    }


def _use_one_thread_of_torch() -> None:
    """Let torch use one thread: a forked process would wait forever for others, which it lacks."""
    torch = sys.modules.get("torch")
    if torch is not None:
        torch.set_num_threads(1)


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_use_one_thread_of_torch)


def release_memory() -> None:
    """Return freed memory to the system, if the C library is glibc.

    It keeps freed blocks of up to 32 MB for others of the same size: with batches of different
    sizes, many times the memory in use.
    """
    if sys.platform != "linux":
        return
    trim = getattr(ctypes.CDLL(None), "malloc_trim", None)
    if trim:
        trim(0)


def number_in_environment(name: str, *, least: int) -> int | None:
    """The whole number in an environment variable; None if it is unset or empty.

    Raises:
        ConfigError: it is no number of at least `least`.
    """
    written = os.environ.get(name, "")
    if not written:
        return None

    try:
        number = int(written)
    except ValueError:
        number = None
    if number is None or number < least:
        raise ConfigError(
            f"{name}: this environment variable is {written!r}, and must be a whole number from "
            f"{least}; correct or unset it"
        )
    return number
