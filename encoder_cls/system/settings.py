"""Compute independently of settings of NumPy and PyTorch that the caller has changed.

A library may set `torch.set_default_dtype(torch.float64)`, a notebook disable gradients, a
debugging session let NumPy raise errors.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from threading import Lock
from typing import Any

import numpy as np

NUMPY_ERRORS: dict[str, Any] = {
    "divide": "warn",
    "over": "warn",
    "under": "ignore",
    "invalid": "warn",
}


@contextmanager
def own_settings() -> Iterator[None]:
    """Compute a block, or a decorated function, with default settings."""
    with ExitStack() as settings:
        settings.enter_context(np.errstate(**NUMPY_ERRORS))

        # Do not import torch here: if it has not been imported, nobody has changed its settings.
        torch: Any = sys.modules.get("torch")
        if torch is not None:
            settings.enter_context(_own_settings_of_process(torch))
            _enter_own_settings_of_thread(settings, torch)
        yield


def _enter_own_settings_of_thread(settings: ExitStack, torch: Any) -> None:
    settings.enter_context(torch.inference_mode(False))
    settings.enter_context(torch.enable_grad())

    # Enter these contexts only if they change something, because each of them makes every call of
    # torch slower.
    if torch.get_default_device().type != "cpu":
        settings.enter_context(torch.device("cpu"))
    for device_type in ("cpu", "cuda"):
        if torch.is_autocast_enabled(device_type):
            settings.enter_context(torch.autocast(device_type, enabled=False))


_lock = Lock()
# The number of blocks of `own_settings` that are running in all threads.
_num_blocks = 0
# The caller's settings, which the last block restores.
_callers_settings: dict[str, Any] = {}


@contextmanager
def _own_settings_of_process(torch: Any) -> Iterator[None]:
    """The first of several threads changes settings that all share, and the last restores them."""
    global _num_blocks, _callers_settings  # noqa: PLW0603 - torch has these settings once, too
    with _lock:
        if _num_blocks == 0:
            _callers_settings = _settings_of_process(torch)
            wanted = {name: _exact(precision) for name, precision in _callers_settings.items()}
            _set_for_process(torch, wanted | {"dtype": torch.float32})
        _num_blocks += 1
    try:
        yield
    finally:
        with _lock:
            _num_blocks -= 1
            if _num_blocks == 0:
                _set_for_process(torch, _callers_settings)


def _settings_of_process(torch: Any) -> dict[str, Any]:
    return {
        "dtype": torch.get_default_dtype(),
        "cpu": torch.backends.mkldnn.matmul.fp32_precision,
        "cuda": torch.backends.cuda.matmul.fp32_precision,
    }


def _exact(precision: Any) -> Any:
    """Replace a precision that rounds the factors of products by "ieee", which is exact.

    "none" is the default, which does not round, either.
    """
    return precision if precision in ("none", "ieee") else "ieee"


def _set_for_process(torch: Any, wanted: dict[str, Any]) -> None:
    current = _settings_of_process(torch)
    if wanted["dtype"] != current["dtype"]:
        torch.set_default_dtype(wanted["dtype"])
    if wanted["cpu"] != current["cpu"]:
        torch.backends.mkldnn.matmul.fp32_precision = wanted["cpu"]
    if wanted["cuda"] != current["cuda"]:
        torch.backends.cuda.matmul.fp32_precision = wanted["cuda"]
