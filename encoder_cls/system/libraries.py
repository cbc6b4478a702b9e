"""The libraries that are installed.

`encoder-cls-runtime` installs what predicting needs, without PyTorch; `encoder-cls` installs
everything.
"""

from __future__ import annotations

from contextlib import suppress
from importlib.util import find_spec

from encoder_cls.errors import ConfigError

# The two distributions.
WHOLE = "encoder-cls"
RUNTIME = "encoder-cls-runtime"

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
    except (ImportError, ValueError):
        # An import hook refuses it, or it has no `__spec__`.
        return False


def check_installed(library: str, *, needed_by: str, install: str | None = None) -> None:
    """Raise a `ConfigError` if a library is missing that only `encoder-cls` requires.

    `install` is what pip takes, where that is not the library's name.
    """
    if not is_installed(library):
        raise ConfigError(f"{needed_by}: needs {library}: pip install {install or library}")


def needs_torch() -> str:
    """The message that PyTorch is missing.

    `encoder-cls` replaces the runtime, since both install the same files.
    """
    installed = installed_version()
    if installed and installed[0] == RUNTIME:
        return f"needs PyTorch: pip uninstall {RUNTIME}, then pip install {WHOLE}"
    return f"needs PyTorch: pip install {WHOLE}"


def check_training_installed() -> None:
    """Raise a `ConfigError` if a library is missing that training and evaluation import."""
    missing = [library for library in TRAINING if not is_installed(library)]
    if not missing:
        return

    message = needs_torch()
    if "torch" not in missing:
        message += f" (not installed: {', '.join(missing)})"
    raise ConfigError(message)
