"""Libraries, devices, numerical precision and memory of this machine; and the log.

`encoder-cls-runtime` installs what predicting needs, without PyTorch; `encoder-cls` installs everything.
"""

from __future__ import annotations

import ctypes
import os
import platform
import sys
from contextlib import suppress
from importlib.util import find_spec
from typing import TYPE_CHECKING, Literal

from encoder_cls.errors import ConfigError

if TYPE_CHECKING:
    import torch

WHOLE, RUNTIME = "encoder-cls", "encoder-cls-runtime"  # the distributions
# What `train` and `eval` import, PyTorch first.
TRAINING = (
    "torch",
    "pydantic",
    "yaml",
    "scipy",
    "sklearn",
    "pyarrow",
    "matplotlib",
    "jinja2",
    "tqdm",
    "tensorboard",
)
LOGGER = "encoder_cls"


def installed_version() -> tuple[str, str] | None:
    """The installed distribution and its version; None if there is none."""
    from importlib.metadata import PackageNotFoundError, version

    for distribution in (WHOLE, RUNTIME):
        with suppress(PackageNotFoundError):
            return distribution, version(distribution)
    return None


def is_installed(library: str) -> bool:
    """Whether a library can be imported, as far as is known without doing so."""
    try:
        return find_spec(library) is not None
    except (ImportError, ValueError):  # an import hook refuses it, or it has no `__spec__`
        return False


def check_installed(library: str, *, needed_by: str, install: str | None = None) -> None:
    """Raise a `ConfigError` if a library is missing that only `encoder-cls` requires; `install` is what pip takes."""
    if not is_installed(library):
        raise ConfigError(f"{needed_by}: needs {library}: pip install {install or library}")


def needs_torch() -> str:
    """The message that PyTorch is missing; `encoder-cls` replaces the runtime, since both install the same files."""
    of_runtime = (installed_version() or [""])[0] == RUNTIME
    return (
        "needs PyTorch: " + f"pip uninstall {RUNTIME}, then " * of_runtime + f"pip install {WHOLE}"
    )


def check_training_installed() -> None:
    """Raise a `ConfigError` if a library is missing that training and evaluation import."""
    missing = [library for library in TRAINING if not is_installed(library)]
    if missing:
        others = "" if "torch" in missing else f" (not installed: {', '.join(missing)})"
        raise ConfigError(f"{needs_torch()}{others}")


def number_in_environment(name: str, *, least: int) -> int | None:
    """The whole number in an environment variable, None if it is unset or empty; `ConfigError` if it is another one."""
    written = os.environ.get(name, "")
    if not written:
        return None
    try:
        number = int(written)
    except ValueError:
        number = least - 1
    if number < least:
        raise ConfigError(
            f"{name}: this environment variable is {written!r}, and must be a whole number from {least}; correct or "
            "unset it"
        )
    return number


def log(level: Literal["debug", "info", "warning"], message: str) -> None:
    """Log a message if `logging` is imported already; importing it would slow down every start."""
    if logging := sys.modules.get("logging"):
        logger = logging.getLogger(LOGGER)
        if not logger.handlers:  # else Python itself would print warnings to standard error
            logger.addHandler(logging.NullHandler())
        logger.log(getattr(logging, level.upper()), message)


def _after_fork() -> None:
    """Use one thread of PyTorch: a forked child lacks OpenMP's other threads, and would wait for them."""
    if torch := sys.modules.get("torch"):
        torch.set_num_threads(1)


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_after_fork)


def resolve_device(name: str) -> torch.device:
    """The device named `auto`, `cpu`, `cuda` or `cuda:N`; `ConfigError` if this machine has none."""
    import torch

    if name == "auto":
        return torch.device("cuda" if torch.cuda.is_available() else "cpu")
    kind, colon, index = name.partition(":")
    if kind not in {"cpu", "cuda"} or (colon and (kind == "cpu" or not index.isdecimal())):
        raise ConfigError(f"--device {name}: known devices are auto, cpu, cuda and cuda:N")
    if kind == "cuda" and int(index or 0) >= (count := torch.cuda.device_count()):
        raise ConfigError(
            f"--device {name}: this machine has {count} CUDA devices that torch can use"
        )
    return torch.device(name)


def resolve_precision(name: str, device: torch.device) -> torch.dtype:
    """The type of matrix products in training.

    `auto` is bfloat16 where the device has instructions for its products (CUDA since Ampere, CPUs with AMX or
    AVX-512 bfloat16) and float32 elsewhere: without them bfloat16 saves memory traffic but often loses time.
    """
    import torch

    if name != "auto":
        return torch.bfloat16 if name == "bfloat16" else torch.float32
    # Private in torch, so absence in some version must mean no more than "not known".
    probes = [
        getattr(torch.cpu, name, None)
        for name in ("_is_amx_tile_supported", "_is_avx512_bf16_supported")
    ]
    is_cuda = device.type == "cuda"
    fast = (
        torch.cuda.get_device_capability(device) >= (8, 0)
        if is_cuda
        else any(it() for it in probes if it)
    )
    return torch.bfloat16 if fast else torch.float32


def autocast(precision: torch.dtype, device: torch.device) -> torch.autocast:
    """A block in which matrix products are computed in this precision."""
    import torch

    return torch.autocast(device.type, precision, enabled=precision != torch.float32)


def environment(device: torch.device, precision: torch.dtype) -> dict[str, str | int]:
    """The versions and settings that change the last bits of a result from one machine to another."""
    from importlib.metadata import version

    import torch

    return {
        "torch": torch.__version__,
        "scikit-learn": version("scikit-learn"),
        "scipy": version("scipy"),
        "device": torch.cuda.get_device_name(device)
        if device.type == "cuda"
        else platform.machine(),
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
