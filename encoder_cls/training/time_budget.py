"""The time limits of a run."""

from __future__ import annotations

import time
from itertools import islice

from encoder_cls.config.schema import Config
from encoder_cls.data.load_dataset import reading_of
from encoder_cls.data.reading.columns import Columns
from encoder_cls.data.source_files import every_file
from encoder_cls.data.sources import read_rows
from encoder_cls.errors import ConfigError

# The part of the time that is left over for the start of Python, for files, and for steps that take
# longer than the first ones.
RESERVED = 0.1
# The largest part of what is left when pretraining starts.
PRETRAINING_SHARE = 0.4


class TimeBudget:
    """The time limits of a run, from its start or resumption.

    Args:
        config: has the limits.
        started: a time of `time.monotonic`; by default now.
    """

    def __init__(self, config: Config, *, started: float | None = None) -> None:
        if started is None:
            started = time.monotonic()

        # The end of the whole run, and the seconds of it that are reserved.
        self._end = None
        self._reserved = 0.0
        if config.train.time_budget is not None:
            seconds = 60 * config.train.time_budget
            self._end = started + seconds
            self._reserved = RESERVED * seconds

        self._pretraining_seconds = None
        if config.pretrain.time_budget is not None:
            self._pretraining_seconds = 60 * config.pretrain.time_budget

    @property
    def left(self) -> float | None:
        """The seconds until the end; None without a limit."""
        if self._end is None:
            return None
        return max(0.0, self._end - time.monotonic())

    def seconds_for(self, *, pretraining: bool) -> float | None:
        """The seconds from now on for pretraining, or for training and the report.

        Returns:
            None without a limit.
        """
        left = self.left
        if left is not None:
            left = max(0.0, left - self._reserved)
        if not pretraining:
            return left

        if left is None:
            return self._pretraining_seconds
        share = PRETRAINING_SHARE * left
        if self._pretraining_seconds is None:
            return share
        return min(share, self._pretraining_seconds)


# The bytes from which a source is large.
LARGE = 5_000_000
# The rows that are read to estimate the time for all of them.
TIMED_ROWS = 5000
# A run takes at least so many times the time to read its source.
MIN_WORK = 9.0


def check_least_fits(config: Config, *, seconds: float | None) -> None:
    """Refuse a time limit that is too short for a large source.

    The time to read a few rows shows how long a run takes at the least.

    Raises:
        ConfigError: the limit, in seconds, is too short.
    """
    source = config.data.train
    if seconds is None or ":" in source:
        return
    num_bytes = sum(file.stat().st_size for file in every_file(source) if file.is_file())
    if num_bytes < LARGE:
        return

    columns = Columns(config.data.text_column, config.data.label_column)
    rows = read_rows(source, columns, reading_of(config.data), role="train")
    began = time.monotonic()
    bytes_read = sum(len(row.text.encode()) for row in islice(rows, TIMED_ROWS))
    reading_seconds = (time.monotonic() - began) * num_bytes / max(1, bytes_read)

    least_seconds = MIN_WORK * reading_seconds
    if least_seconds > seconds:
        raise ConfigError(
            f"train.time_budget: {source} has {num_bytes / 1e6:,.0f} MB of text, which take at "
            f"least about {least_seconds:.0f} s on this machine; give it more time, or fewer texts"
        )
