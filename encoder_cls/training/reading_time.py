"""Decide which share of the training rows there is time to read (`data.train_fraction`)."""

from __future__ import annotations

import math
import time
from itertools import islice
from pathlib import Path
from typing import NamedTuple

from encoder_cls.config.schema import Config
from encoder_cls.data.reading.columns import Columns
from encoder_cls.data.reading.formats import count_rows
from encoder_cls.data.reading.reading import Reading
from encoder_cls.data.source_files import every_file
from encoder_cls.data.sources import read_rows
from encoder_cls.errors import ConfigError
from encoder_cls.run.run_folder import RunDir
from encoder_cls.training.time_budget import TimeBudget

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
# The time that the rows of the other sources take in all, relative to reading them: those of test
# are collected, and those of the others also prepared.
SECONDS_OF_OTHERS = {"validation": PREPARED_ROW, "test": 2.0, "unlabelled": PREPARED_ROW}
# The largest share of a time limit in which rows of train may be left out, and those of the other
# sources read.
MAX_UNREAD_SHARE = 0.4


def with_train_fraction(config: Config, fraction: float | None) -> Config:
    """A config with another `data.train_fraction`."""
    data = config.data.model_copy(update={"train_fraction": fraction})
    return config.model_copy(update={"data": data})


def affordable_train_fraction(config: Config, run: RunDir, *, budget: TimeBudget) -> float | None:
    """Decide which share of the training rows there is time to read, above 0 and at most 1.

    It is estimated by the time of the first rows of each source; a resumed run keeps its share.
    None if the config leaves it open, and all rows are read.

    Raises:
        ConfigError: there is no time for the other sources with even a small share of the rows.
    """
    if config.data.train_fraction is not None:
        return config.data.train_fraction
    if run.is_run():
        return run.load_config().data.train_fraction

    seconds_left = budget.seconds_left
    if seconds_left is None:
        return None
    bytes_by_role = _bytes_by_role(config)
    num_bytes = sum(bytes_by_role.values())
    if num_bytes < LARGE_SOURCE:
        return None

    # Even to leave out all rows of train takes its time: a file is read from its first row to its
    # last. All rows of the other sources are read.
    seconds_of_train = 0.0
    seconds_of_others = 0.0
    for role in bytes_by_role:
        seconds = estimate_reading(config, role).seconds
        if role == "train":
            seconds_of_train = seconds
        else:
            seconds_of_others += SECONDS_OF_OTHERS[role] * seconds

    least = UNREAD_ROW * seconds_of_train + seconds_of_others
    if least > MAX_UNREAD_SHARE * seconds_left:
        whole = 60 * (config.train.time_budget or 0) - seconds_left + least / MAX_UNREAD_SHARE
        sources = " and ".join(f"data.{role}" for role in bytes_by_role)
        raise ConfigError(
            f"train.time_budget: {num_bytes / 1e6:,.0f} MB of text ({sources}) take at least "
            f"about {math.ceil(whole)} s on this machine; give it more time, or fewer texts"
        )
    if bytes_by_role.get("train", 0) < LARGE_SOURCE:
        return None

    # Find the share for which reading and preparing take their part of the other time.
    seconds = READING_SHARE * (seconds_left - least)
    fraction = seconds / ((PREPARED_ROW - UNREAD_ROW) * seconds_of_train)

    # Round down to two digits, since a person reads this number in the config.
    return _rounded_down(min(1.0, fraction))


def _bytes_by_role(config: Config) -> dict[str, int]:
    bytes_by_role = {}
    for role in ("train", *SECONDS_OF_OTHERS):
        num_bytes = sum(file.stat().st_size for file in _files(config, role))
        if num_bytes:
            bytes_by_role[role] = num_bytes
    return bytes_by_role


def _files(config: Config, role: str) -> list[Path]:
    source = getattr(config.data, role)
    if source is None:
        return []
    return [file for file in every_file(source) if file.is_file()]


class ReadingEstimate(NamedTuple):
    """How many rows a source has, and how long reading them takes."""

    num_rows: float
    seconds: float


def estimate_reading(config: Config, role: str) -> ReadingEstimate:
    """Count the rows of a source, such as `train`, and estimate the time by the first rows."""
    # The first time, libraries are imported, and Python looks for reference cycles in all of them.
    _time_first_rows(config, role)
    sizes, seconds = _time_first_rows(config, role)

    # Of an empty source nothing can be estimated: its rows are read, and refused, in no time.
    if not sizes:
        return ReadingEstimate(0, seconds)

    # Files whose rows cannot be counted quickly have as many rows as their size suggests.
    files = _files(config, role)
    num_rows: float = sum(count_rows(files).values())
    if not num_rows:
        num_bytes = sum(file.stat().st_size for file in files)
        num_rows = num_bytes / sum(sizes) * len(sizes)
    return ReadingEstimate(num_rows, seconds / len(sizes) * num_rows)


def _time_first_rows(config: Config, role: str) -> tuple[list[int], float]:
    """Time first rows: the bytes of the text of each, and the seconds for all."""
    label_column = None if role == "unlabelled" else config.data.label_column
    columns = Columns(config.data.text_column, label_column, features=config.data.features)
    reading = Reading(config.data.reading_options)
    rows = read_rows(getattr(config.data, role), columns, reading, role=role)

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
    """Round from above 0 to 1 down to two digits that are not leading zeros."""
    digits = 1 - math.floor(math.log10(value))
    scale: float = 10.0**digits
    return math.floor(value * scale) / scale
