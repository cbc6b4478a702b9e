"""How much time is left until a deadline, a time of `time.monotonic`."""

from __future__ import annotations

import time


def seconds_until(deadline: float | None) -> float | None:
    """The seconds left, at least 0; None without a deadline."""
    if deadline is None:
        return None
    return max(0.0, deadline - time.monotonic())
