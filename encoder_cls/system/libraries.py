"""Check which libraries are installed.

`encoder-cls` installs everything, `encoder-cls-runtime` what predictions need, without PyTorch.
"""

from __future__ import annotations

from contextlib import suppress
from importlib.util import find_spec

from encoder_cls.errors import ConfigError

WHOLE = "encoder-cls"
RUNTIME = "encoder-cls-runtime"

# What installs matplotlib, which draws pictures.
PLOTS = "'encoder-cls[plots]'"

# The libraries that `train` and `eval` import.
TRAINING = (
    "torch",
    "scipy",
    "sklearn",
    "pyarrow",
    "tensorboard",
)


def installed_version() -> tuple[str, str] | None:
    """Name and version of the installed distribution; None if there is neither."""
    from importlib.metadata import PackageNotFoundError, version

    for distribution in (WHOLE, RUNTIME):
        with suppress(PackageNotFoundError):
            return distribution, version(distribution)
    return None


def is_installed(library: str) -> bool:
    """Whether a library is installed, without importing it."""
    try:
        return find_spec(library) is not None
    except (ImportError, ValueError):
        # An import hook refuses the library, or the library has no `__spec__`.
        return False


def check_installed(library: str, *, needed_by: str, install: str | None = None) -> None:
    """Check that a library, named as it is imported, is installed; else a `ConfigError`.

    `install` is the argument of `pip install` if it is another name.
    """
    if not is_installed(library):
        raise ConfigError(f"{needed_by}: needs {library}: pip install {install or library}")


def check_excel_installed(needed_by: str) -> None:
    """Raise a `ConfigError` if an option needs the missing library that writes Excel."""
    distribution, _ = installed_version() or (WHOLE, "")
    check_installed("xlsxwriter", needed_by=needed_by, install=f"'{distribution}[excel]'")


def needs_torch() -> str:
    """The message for a missing PyTorch, with commands that install it."""
    # Uninstall the runtime first, because both distributions install the same files.
    installed = installed_version()
    if installed and installed[0] == RUNTIME:
        return f"needs PyTorch: pip uninstall {RUNTIME}, then pip install {WHOLE}"
    return f"needs PyTorch: pip install {WHOLE}"


def check_training_installed() -> None:
    """Raise a `ConfigError` if a library that training and evaluation import is missing."""
    missing = [library for library in TRAINING if not is_installed(library)]
    if not missing:
        return

    message = needs_torch()
    if "torch" not in missing:
        message += f" (not installed: {', '.join(missing)})"
    raise ConfigError(message)
