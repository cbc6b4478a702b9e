"""The time limits of a run (`train.time_budget`, `pretrain.time_budget`)."""

from __future__ import annotations

import time

from encoder_cls.config.schema import Config
from encoder_cls.system.deadlines import seconds_until

# The share of the time that is reserved for steps that take longer than the first ones, and for
# reading and writing files.
RESERVED = 0.1
# The minimum number of seconds that is reserved: the charts and pages of a report, and the end of
# Python, take as long for any amount of text.
MIN_RESERVED_SECONDS = 5.0
# The largest share of the time that is reserved.
MAX_RESERVED = 0.3
# The largest share of the time that is kept for scoring the texts of the report.
MAX_SCORING_SHARE = 0.2
# The share of the remaining time that pretraining may take.
PRETRAINING_SHARE = 0.4


class TimeBudget:
    """The time limits of a run, in times of `time.monotonic`.

    Attributes:
        started: when the run was started or resumed; by default now.
        end_of_work: when only the reserve is left; None without a limit.
    """

    def __init__(self, config: Config, *, started: float | None = None) -> None:
        if started is None:
            started = time.monotonic()

        self.started = started
        self._end: float | None = None
        self.end_of_work: float | None = None
        self._scoring_seconds = 0.0
        if config.train.time_budget is not None:
            seconds = 60 * config.train.time_budget
            reserved = max(RESERVED * seconds, MIN_RESERVED_SECONDS)
            reserved = min(reserved, MAX_RESERVED * seconds)
            self._end = started + seconds
            self.end_of_work = self._end - reserved

        self._pretraining_seconds = None
        if config.pretrain.time_budget is not None:
            self._pretraining_seconds = 60 * config.pretrain.time_budget

    @property
    def seconds_left(self) -> float | None:
        """The time that is left, the reserve included; None without a limit."""
        return seconds_until(self._end)

    def keep_for_scoring(self, seconds: float) -> None:
        """Reserve so many seconds for the report, but at most a share of all time."""
        if self._end is not None:
            whole = self._end - self.started
            self._scoring_seconds = min(seconds, MAX_SCORING_SHARE * whole)

    @property
    def is_spent(self) -> bool:
        """Whether no time is left for training."""
        return self.seconds_for(pretraining=False) == 0

    def seconds_for(self, *, pretraining: bool) -> float | None:
        """How many seconds a stage may take from now on, without the reserve; None without a limit.

        The stage is pretraining, or all that follows it but for the report's scores.
        """
        left = None
        if self.end_of_work is not None:
            left = seconds_until(self.end_of_work - self._scoring_seconds)
        if not pretraining:
            return left

        if left is None:
            return self._pretraining_seconds
        share = PRETRAINING_SHARE * left
        if self._pretraining_seconds is None:
            return share
        return min(share, self._pretraining_seconds)
