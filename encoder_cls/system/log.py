"""What the library does by itself in, messages of the logger `encoder_cls` out, for programs that use it.

The command line says what it has to say on standard error; of this it shows nothing but with `--debug`.
"""

from __future__ import annotations

import sys
from typing import Literal

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
