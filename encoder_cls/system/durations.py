"""Times as people write them, such as `90s`, `20m` or `1.5h`."""

from __future__ import annotations

import math

SECONDS = {"s": 1, "m": 60, "h": 3600}


def seconds_named(text: str) -> float:
    """The seconds of a time with its unit.

    Raises:
        ValueError: it is none.
    """
    try:
        seconds = float(text[:-1]) * SECONDS[text[-1:]]
    except (KeyError, ValueError):
        seconds = 0.0
    if not 0 < seconds < math.inf:
        raise ValueError("write a time with its unit, such as 90s, 30m or 2h")
    return seconds
