"""Optional libraries: which are installed, and the error for a missing one.

`encoder-cls-runtime` installs what predicting needs; `encoder-cls` installs all.

The command line says what it has to say on standard error; of this it shows nothing but with `--debug`.
"""

from __future__ import annotations

import sys
from contextlib import suppress
from importlib.util import find_spec
from typing import Literal

from encoder_cls.errors import ConfigError

# What `train` and `eval` import, PyTorch first.
TRAINING = ("torch", "pydantic", "yaml", "scipy", "sklearn", "pyarrow", "matplotlib", "jinja2", "tqdm", "tensorboard")

WHOLE, RUNTIME = "encoder-cls", "encoder-cls-runtime"  # the distributions, with everything and for what only predicts


def installed_version() -> tuple[str, str] | None:
    """The distribution that is installed, and its version; none of a folder of files."""
    from importlib.metadata import PackageNotFoundError, version

    for distribution in (WHOLE, RUNTIME):
        with suppress(PackageNotFoundError):
            return distribution, version(distribution)
    return None


def is_installed(library: str) -> bool:
    """Whether a library can be imported, as far as can be told without doing so."""
    try:
        return find_spec(library) is not None
    except (ImportError, ValueError):  # a finder refuses it, or it has no description
        return False


def check_installed(library: str, *, needed_by: str, install: str | None = None) -> None:
    """Make sure that a library which `encoder-cls-runtime` does without is there.

    Args:
        library: what is imported.
        needed_by: what needs it.
        install: what pip is to install; none: the library.

    Raises:
        ConfigError: it is not; the message says what needs it, and how to get it.
    """
    if not is_installed(library):
        raise ConfigError(f"{needed_by}: needs {library}: pip install {install or library}")


def check_training_installed() -> None:
    """Make sure that all is there that training and evaluation import.

    Raises:
        ConfigError: something is not.
    """
    missing = [library for library in TRAINING if not is_installed(library)]
    if missing:
        others = "" if "torch" in missing else f" (not installed: {', '.join(missing)})"
        raise ConfigError(f"needs PyTorch: pip install encoder-cls{others}")


LOGGER = "encoder_cls"


def log(level: Literal["debug", "info", "warning"], message: str) -> None:
    """Say something to whoever listens; who does has imported `logging`, whose time all others save."""
    logging = sys.modules.get("logging")
    if logging is None:
        return
    logger = logging.getLogger(LOGGER)
    if not logger.handlers:  # else Python itself would print warnings to standard error
        logger.addHandler(logging.NullHandler())
    logger.log(getattr(logging, level.upper()), message)
