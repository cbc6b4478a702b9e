"""The time limits of a run (`train.time_budget`, `pretrain.time_budget`)."""

from __future__ import annotations

import time
from itertools import islice

from encoder_cls.config.schema import Config
from encoder_cls.data.load_dataset import reading_of
from encoder_cls.data.reading.columns import Columns
from encoder_cls.data.source_files import every_file
from encoder_cls.data.sources import read_rows
from encoder_cls.errors import ConfigError

# The share of the time that is reserved for the start of Python, for reading and writing files, and
# for steps that take longer than the first ones.
RESERVED = 0.1
# The share of the remaining time that pretraining may take.
PRETRAINING_SHARE = 0.4


class TimeBudget:
    """The time limits of a run, counted from its start or resumption.

    Args:
        config: the config with the limits, in minutes.
        started: when the run started or was resumed, a time of `time.monotonic`; by default now.
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
        """The seconds until the run must have ended; None without a limit."""
        if self._end is None:
            return None
        return max(0.0, self._end - time.monotonic())

    @property
    def is_spent(self) -> bool:
        """Whether no time is left for training."""
        return self.seconds_for(pretraining=False) == 0

    def seconds_for(self, *, pretraining: bool) -> float | None:
        """How long a stage of the run may take from now on.

        Args:
            pretraining: ask for the pretraining, rather than for the training on labels together
                with everything that follows it, such as the report.

        Returns:
            The time in seconds, without the reserve; None without a limit.
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


# The size in bytes from which a source is large, so that its minimum time is checked.
LARGE_SOURCE = 5_000_000
# The number of rows that are read to estimate how long it takes to read all rows.
TIMED_ROWS = 5000
# The minimum time of a run, as a multiple of the time to read its source.
MIN_READING_TIMES = 6.0


def check_minimum_time(config: Config, *, seconds: float | None) -> None:
    """Refuse a time limit that is too short for a large source.

    The minimum time of a run is estimated from the time to read the first rows of its source.

    Args:
        config: the config, which names the source.
        seconds: the time limit; None without a limit.

    Raises:
        ConfigError: the limit is too short.
    """
    # A source with a colon is no local file, so its size is unknown.
    source = config.data.train
    if seconds is None or ":" in source:
        return
    num_bytes = sum(file.stat().st_size for file in every_file(source) if file.is_file())
    if num_bytes < LARGE_SOURCE:
        return

    # Read the first rows, and scale the time by the size of the whole source.
    columns = Columns(config.data.text_column, config.data.label_column)
    rows = read_rows(source, columns, reading_of(config.data), role="train")
    began = time.monotonic()
    bytes_read = sum(len(row.text.encode()) for row in islice(rows, TIMED_ROWS))
    reading_seconds = (time.monotonic() - began) * num_bytes / max(1, bytes_read)

    min_seconds = MIN_READING_TIMES * reading_seconds
    if min_seconds > seconds:
        raise ConfigError(
            f"train.time_budget: {source} has {num_bytes / 1e6:,.0f} MB of text, which take at "
            f"least about {min_seconds:.0f} s on this machine; give it more time, or fewer texts"
        )
