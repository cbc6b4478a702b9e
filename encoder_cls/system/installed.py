"""Optional libraries, and the log.

`encoder-cls-runtime` installs what predicting needs; `encoder-cls` installs everything.
"""

from __future__ import annotations

import sys
from contextlib import suppress
from importlib.util import find_spec
from typing import Literal

from encoder_cls.errors import ConfigError

WHOLE, RUNTIME = "encoder-cls", "encoder-cls-runtime"  # the distributions
# What `train` and `eval` import, PyTorch first.
TRAINING = ("torch", "pydantic", "yaml", "scipy", "sklearn", "pyarrow", "matplotlib", "jinja2", "tqdm", "tensorboard")
LOGGER = "encoder_cls"


def installed_version() -> tuple[str, str] | None:
    """The installed distribution and its version; None of a folder of files."""
    from importlib.metadata import PackageNotFoundError, version

    for distribution in (WHOLE, RUNTIME):
        with suppress(PackageNotFoundError):
            return distribution, version(distribution)
    return None


def is_installed(library: str) -> bool:
    """Whether a library can be imported, as far as is known without doing so."""
    try:
        return find_spec(library) is not None
    except (ImportError, ValueError):  # a finder refuses it, or it has no description
        return False


def check_installed(library: str, *, needed_by: str, install: str | None = None) -> None:
    """Raise a `ConfigError` if a library is missing that only `encoder-cls` requires; `install` is what pip takes."""
    if not is_installed(library):
        raise ConfigError(f"{needed_by}: needs {library}: pip install {install or library}")


def needs_torch() -> str:
    """That PyTorch is missing, and how to install it: two distributions of the same files must not be there at once."""
    of_runtime = (installed_version() or [""])[0] == RUNTIME
    return "needs PyTorch: " + f"pip uninstall {RUNTIME}, then " * of_runtime + f"pip install {WHOLE}"


def check_training_installed() -> None:
    """Raise a `ConfigError` if a library is missing that training and evaluation import."""
    missing = [library for library in TRAINING if not is_installed(library)]
    if missing:
        others = "" if "torch" in missing else f" (not installed: {', '.join(missing)})"
        raise ConfigError(f"{needs_torch()}{others}")


def log(level: Literal["debug", "info", "warning"], message: str) -> None:
    """Log a message, if anybody has imported `logging`; everybody else saves the time to import it."""
    logging = sys.modules.get("logging")
    if logging is None:
        return
    logger = logging.getLogger(LOGGER)
    if not logger.handlers:  # else Python itself would print warnings to standard error
        logger.addHandler(logging.NullHandler())
    logger.log(getattr(logging, level.upper()), message)
