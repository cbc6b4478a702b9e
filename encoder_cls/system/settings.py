"""Independence of the settings of NumPy and PyTorch that the caller has made for a whole program.

A Gaussian process library asks for `torch.set_default_dtype(torch.float64)`, a notebook computes
without gradients, a debugging session lets NumPy raise errors: training and prediction are the same
everywhere.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from threading import Lock
from typing import Any

import numpy as np

# The defaults of NumPy.
NUMPY_ERRORS: dict[str, Any] = {
    "divide": "warn",
    "over": "warn",
    "under": "ignore",
    "invalid": "warn",
}


@contextmanager
def own_settings() -> Iterator[None]:
    """Compute with the libraries' default settings, and restore those of the caller at the end.

    It is also a decorator.
    """
    with ExitStack() as settings:
        settings.enter_context(np.errstate(**NUMPY_ERRORS))

        # A program that has not imported torch has not changed it either.
        torch: Any = sys.modules.get("torch")
        if torch is not None:
            settings.enter_context(_own_settings_of_process(torch))
            _enter_own_settings_of_thread(settings, torch)
        yield


def _enter_own_settings_of_thread(settings: ExitStack, torch: Any) -> None:
    """Compute on the CPU unless a device is named, with gradients, in the tensors' precision."""
    settings.enter_context(torch.inference_mode(False))
    settings.enter_context(torch.enable_grad())

    # Each of these makes every call of torch slower, so it is entered only where it changes
    # something.
    if torch.get_default_device().type != "cpu":
        settings.enter_context(torch.device("cpu"))
    for device_type in ("cpu", "cuda"):
        if torch.is_autocast_enabled(device_type):
            settings.enter_context(torch.autocast(device_type, enabled=False))


_lock = Lock()
# Blocks of `own_settings` in all threads.
_num_inside = 0
# The settings to restore.
_of_caller: dict[str, Any] = {}


@contextmanager
def _own_settings_of_process(torch: Any) -> Iterator[None]:
    """Change what torch keeps for the whole process.

    The first block of all threads changes it, the last one restores it.
    """
    global _num_inside, _of_caller  # noqa: PLW0603 - as the settings are
    with _lock:
        if _num_inside == 0:
            _of_caller = _settings_of_process(torch)
            wanted = {name: _exact(precision) for name, precision in _of_caller.items()}
            _set_for_process(torch, wanted | {"dtype": torch.float32})
        _num_inside += 1
    try:
        yield
    finally:
        with _lock:
            _num_inside -= 1
            if _num_inside == 0:
                _set_for_process(torch, _of_caller)


def _settings_of_process(torch: Any) -> dict[str, Any]:
    """The default type of tensors, and the precision of float32 products on each kind of device."""
    return {
        "dtype": torch.get_default_dtype(),
        "cpu": torch.backends.mkldnn.matmul.fp32_precision,
        "cuda": torch.backends.cuda.matmul.fp32_precision,
    }


def _exact(precision: Any) -> Any:
    """A precision of products without rounding of their factors; none is named by default."""
    return precision if precision in ("none", "ieee") else "ieee"


def _set_for_process(torch: Any, wanted: dict[str, Any]) -> None:
    """Set what differs."""
    current = _settings_of_process(torch)
    if wanted["dtype"] != current["dtype"]:
        torch.set_default_dtype(wanted["dtype"])
    if wanted["cpu"] != current["cpu"]:
        torch.backends.mkldnn.matmul.fp32_precision = wanted["cpu"]
    if wanted["cuda"] != current["cuda"]:
        torch.backends.cuda.matmul.fp32_precision = wanted["cuda"]
