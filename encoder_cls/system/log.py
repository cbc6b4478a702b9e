"""The log of the library, for programs that call it."""

from __future__ import annotations

import sys
from typing import Literal

LOGGER = "encoder_cls"


def log(level: Literal["debug", "info", "warning"], message: str) -> None:
    """Log if `logging` is imported already; importing it would slow down every start."""
    logging = sys.modules.get("logging")
    if logging is None:
        return

    logger = logging.getLogger(LOGGER)
    # Without a handler, Python itself would print warnings to standard error.
    if not logger.handlers:
        logger.addHandler(logging.NullHandler())
    logger.log(getattr(logging, level.upper()), message)
