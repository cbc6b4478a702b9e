"""Decide which share of the training rows there is time to read (`data.train_fraction`)."""

from __future__ import annotations

import math
import time
from collections.abc import Sequence
from itertools import islice
from pathlib import Path
from typing import NamedTuple

from encoder_cls.config.schema import Config
from encoder_cls.data.labelled_rows import reading_of
from encoder_cls.data.reading.columns import Columns
from encoder_cls.data.reading.formats import count_rows
from encoder_cls.data.source_files import every_file
from encoder_cls.data.sources import read_rows
from encoder_cls.errors import ConfigError
from encoder_cls.run.run_folder import RunDir

# The size in bytes from which a source is large, so that its time is estimated.
LARGE_SOURCE = 5_000_000
# The maximum number of rows that are read to estimate how long it takes to read all rows, and the
# seconds after which no further row is read for this.
TIMED_ROWS = 20_000
TIMED_SECONDS = 0.25

# The share of a time limit in which rows may be read and prepared, once the time to leave out the
# others is subtracted. The linear model must have time for several passes over these rows: of
# 500,000 texts in 30 seconds, a share of 0.15 gave an accuracy of 87.5% on test, 0.2 gave 88.4%,
# and 0.25 and 0.3 gave 86.7% and 86.8%.
READING_SHARE = 0.2
# How long it takes to read a row and prepare it (to hold out texts, to tokenize), and how long to
# leave it out, relative to reading it. These are measured with 500,000 rows of Parquet and CSV.
PREPARED_ROW = 6.5
UNREAD_ROW = 0.25
# The largest share of a time limit in which rows may be left out.
MAX_UNREAD_SHARE = 0.4


def with_train_fraction(config: Config, fraction: float | None) -> Config:
    """Copy a config, with another value of `data.train_fraction`."""
    data = config.data.model_copy(update={"train_fraction": fraction})
    return config.model_copy(update={"data": data})


def affordable_train_fraction(config: Config, run: RunDir, *, started: float) -> float | None:
    """Decide which share of the training rows there is time to read.

    The time is estimated from the time to read the first rows.

    Args:
        config: the config, which names the source and the time limit.
        run: the run folder. A run that is resumed reads the share that it has begun with.
        started: when the time limit began, a time of `time.monotonic`.

    Returns:
        The share, above 0 and at most 1; None if the config leaves it open, and all rows are read.

    Raises:
        ConfigError: the time limit is too short even for a small share.
    """
    if config.data.train_fraction is not None:
        return config.data.train_fraction
    if run.is_run():
        return run.load_config().data.train_fraction

    # A source that is no local file has no files, so its size is 0.
    if config.train.time_budget is None:
        return None
    files = [file for file in every_file(config.data.train) if file.is_file()]
    num_bytes = sum(file.stat().st_size for file in files)
    if num_bytes < LARGE_SOURCE:
        return None

    estimate = estimate_reading(config, files)
    seconds_left = started + 60 * config.train.time_budget - time.monotonic()

    # Even to leave out all rows takes its time: a file is read from its first row to its last.
    seconds_of_unread = UNREAD_ROW * estimate.seconds
    if seconds_of_unread > MAX_UNREAD_SHARE * seconds_left:
        raise ConfigError(
            f"train.time_budget: {config.data.train} has {num_bytes / 1e6:,.0f} MB of text, which "
            f"take at least about {seconds_of_unread / MAX_UNREAD_SHARE:.0f} s on this machine; "
            "give it more time, or fewer texts"
        )

    # Find the share for which reading and preparing take their part of the other time.
    seconds = READING_SHARE * (seconds_left - seconds_of_unread)
    fraction = seconds / ((PREPARED_ROW - UNREAD_ROW) * estimate.seconds)
    if fraction >= 1:
        return 1.0

    # Round down to two digits, since a person reads this number in the config.
    return _rounded_down(fraction)


class ReadingEstimate(NamedTuple):
    """The number of rows of a source, and the estimated seconds that reading all of them takes."""

    num_rows: float
    seconds: float


def estimate_reading(config: Config, files: Sequence[Path]) -> ReadingEstimate:
    """Count the rows of train, and estimate the time to read them from the first rows.

    Args:
        config: the config, which names the source.
        files: the files of the source.
    """
    # The first time, libraries are imported, and Python looks for reference cycles in all of them.
    _time_first_rows(config)
    sizes, seconds = _time_first_rows(config)

    # Of an empty source nothing can be estimated: its rows are read, and refused, in no time.
    if not sizes:
        return ReadingEstimate(0, seconds)

    # Files whose rows cannot be counted quickly have as many rows as their size suggests.
    num_rows: float = sum(count_rows(files).values())
    if not num_rows:
        num_bytes = sum(file.stat().st_size for file in files)
        num_rows = num_bytes / sum(sizes) * len(sizes)
    return ReadingEstimate(num_rows, seconds / len(sizes) * num_rows)


def _time_first_rows(config: Config) -> tuple[list[int], float]:
    """Read the first rows of train.

    Returns:
        The number of bytes of the text of each row, and the seconds that it took to read them.
    """
    columns = Columns(config.data.text_column, config.data.label_column)
    rows = read_rows(config.data.train, columns, reading_of(config.data), role="train")

    # The file is opened for the very first row, which is not timed.
    next(rows, None)
    began = time.monotonic()
    sizes = []
    for row in islice(rows, TIMED_ROWS):
        sizes.append(len(row.text.encode()))
        if time.monotonic() - began >= TIMED_SECONDS:
            break
    return sizes, time.monotonic() - began


def _rounded_down(value: float) -> float:
    """Round a number between 0 and 1 down to two digits that are not leading zeros."""
    digits = 1 - math.floor(math.log10(value))
    scale: float = 10.0**digits
    return math.floor(value * scale) / scale
