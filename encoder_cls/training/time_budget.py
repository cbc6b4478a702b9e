"""The time that a run may take, and what of it each of its stages may."""

from __future__ import annotations

import time

from encoder_cls.config import Config

RESERVED = 0.1  # of the time: for the start of Python, files, and steps that take longer than the first ones
PRETRAINING_SHARE = 0.4  # of what is left when it begins, at most


class TimeBudget:
    """A clock that runs from the start of a process: a run that goes on has all of its time again.

    Args:
        config: of the run, with its limits.
        seconds_spent: before the clock was made.
    """

    def __init__(self, config: Config, *, seconds_spent: float) -> None:
        whole, pretraining = config.train.time_budget, config.pretrain.time_budget
        self._end = None
        if whole is not None:
            self._end = time.monotonic() - seconds_spent + (1 - RESERVED) * 60 * whole
        self._of_pretraining = None if pretraining is None else 60 * pretraining

    def seconds_for(self, *, pretraining: bool) -> float | None:
        """The seconds that a stage may take which begins now, with all that comes after it; none: without a limit."""
        left = None if self._end is None else max(0.0, self._end - time.monotonic())
        if not pretraining:
            return left
        share = None if left is None else PRETRAINING_SHARE * left
        return min((it for it in (share, self._of_pretraining) if it is not None), default=None)
