"""What the page says of the model: how often it is right, and what more labels would bring."""

from __future__ import annotations

import math
from collections.abc import Collection, Sequence
from datetime import datetime
from itertools import pairwise
from statistics import median
from typing import NamedTuple

from encoder_cls.data.random_sample import drawn_rank
from encoder_cls.labelling.label_table import LabelledText
from encoder_cls.labelling.pool_model import Fit
from encoder_cls.labelling.text_queue import RANDOM
from encoder_cls.metrics.intervals import wilson_interval

# The variance of an estimate, relative to that of the accuracy on as many independent texts. The
# models that predict the texts learn from nearly the same labels, so they are often wrong together.
# Measured in simulated sessions: docs/experiments/accuracy.md#accuracy-that-the-label-page-shows.
VARIANCE_FACTOR = 1.4
# The least number of texts of the random sample for an estimate.
MIN_RANDOM = 3
# A gain below which another hour of labelling brings little.
LITTLE = 0.01
# Longer times between two labels, in seconds, are breaks.
LONGEST_PAUSE = 120.0
# The least number of times between labels from which the speed is known.
MIN_TIMES = 5


class Estimate(NamedTuple):
    """How often the model is right on new texts.

    Attributes:
        labels: the number of labels that it has learned from.
        accuracy: the estimated share of new texts that it predicts correctly.
        low: the lower end of the 95% interval, whose upper end is `high`.
        with_twice: the estimated accuracy with twice as many labels; None if it is unknown.
    """

    labels: int
    accuracy: float
    low: float
    high: float
    with_twice: float | None


def random_sample(rows: Sequence[LabelledText]) -> list[int]:
    """The rows whose texts are a random sample of the pool, whether suggested or drawn.

    They are all labelled texts up to the last one that was drawn, in the order in which texts are
    drawn. Without those that were suggested first, the sample would have too many easy texts.
    """
    ranks = [drawn_rank(row.key) for row in rows]
    drawn = [rank for rank, row in zip(ranks, rows, strict=True) if row.how == RANDOM]
    last = max(drawn, default=-1)
    return [number for number, rank in enumerate(ranks) if rank <= last]


def estimate(fit: Fit, sample: Collection[int]) -> Estimate | None:
    """Estimate how often the model is right on new texts; None with too few texts drawn at random.

    The estimate is the accuracy on the random sample, which is given by its rows among the labelled
    texts. Each of its texts is predicted by a model that has not learned from it, but from nearly
    all other labels. Texts outside the sample do not count: they were chosen, so they are easier or
    harder than the pool.
    """
    if len(sample) < MIN_RANDOM:
        return None

    accuracy = float(fit.is_right[list(sample)].mean())
    num_independent = len(sample) / VARIANCE_FACTOR
    low, high = wilson_interval(accuracy * num_independent, num_independent)

    with_twice = None
    if fit.error_factor is not None:
        with_twice = 1 - (1 - accuracy) * fit.error_factor
    return Estimate(len(fit.is_right), accuracy, low, high, with_twice)


def accuracy_line(found: Estimate) -> str:
    """Say how often the model is right, such as "right on about 78% of new texts (70 to 84)"."""
    line = (
        f"right on about {found.accuracy:.0%} of new texts "
        f"({100 * found.low:.0f} to {100 * found.high:.0f})"
    )
    if found.with_twice is not None:
        line += f", with twice the labels about {found.with_twice:.0%}"
    return line


def outlook_line(found: Estimate, rows: Sequence[LabelledText]) -> str:
    """Say what another hour of labelling would bring; empty if that is unknown."""
    per_hour = labels_per_hour(rows)
    if per_hour is None or found.with_twice is None:
        return ""

    # Errors fall by the same factor each time that the labels are doubled.
    doublings = math.log2((found.labels + per_hour) / found.labels)
    error = 1 - found.accuracy
    factor = (1 - found.with_twice) / error if error else 1.0
    gain = error * (1 - factor**doublings)

    hour = f"another hour (about {per_hour:,} labels)"
    if gain < LITTLE:
        return f"{hour} would bring little, about {100 * gain:.1f} points: a good time to train"
    return f"{hour} would bring about {100 * gain:.0f} points"


def labels_per_hour(rows: Sequence[LabelledText]) -> int | None:
    """The number of labels in an hour at the median speed, without breaks; None if unknown."""
    times = []
    for row in rows:
        try:
            times.append(datetime.fromisoformat(row.labelled_at).timestamp())
        except ValueError:
            continue
    times.sort()

    gaps = []
    for before, after in pairwise(times):
        if after - before <= LONGEST_PAUSE:
            gaps.append(after - before)
    if len(gaps) < MIN_TIMES or median(gaps) <= 0:
        return None
    return round(3600 / median(gaps))


def acceptance(rows: Sequence[LabelledText], *, is_random: bool) -> tuple[int, int]:
    """How many guesses were the label that a person gave, and how many guesses there were.

    With `is_random`, texts drawn at random count, whose guess was hidden; otherwise the others,
    whose guess was shown.
    """
    guessed = [row for row in rows if row.guess and (row.how == RANDOM) == is_random]
    num_accepted = sum(row.guess == row.label for row in guessed)
    return num_accepted, len(guessed)
