"""What the page says of the model: how often it is right, and what more labels would bring."""

from __future__ import annotations

import math
from collections.abc import Collection, Sequence
from datetime import datetime
from itertools import pairwise
from statistics import median

from encoder_cls import AccuracyEstimate, drawn_rank, estimate_accuracy
from encoder_cls.extras.label.label_table import LabelledText
from encoder_cls.extras.label.pool_model import Fit
from encoder_cls.extras.label.text_queue import RANDOM

# The least number of texts of the random sample for an estimate.
MIN_RANDOM = 3
# A gain below which another hour of labelling brings little.
LITTLE = 0.01
# Longer times between two labels, in seconds, are breaks.
LONGEST_PAUSE = 120.0
# The least number of times between labels from which the speed is known.
MIN_TIMES = 5


def random_sample(rows: Sequence[LabelledText]) -> list[int]:
    """The rows whose texts are a random sample, whether suggested or drawn.

    They are all texts, in random order, up to the last one that was drawn: without those suggested
    first, too many would be easy.
    """
    ranks = [drawn_rank(row.key) for row in rows]
    drawn = [rank for rank, row in zip(ranks, rows, strict=True) if row.how == RANDOM]
    last = max(drawn, default=-1)
    return [number for number, rank in enumerate(ranks) if rank <= last]


def estimate(fit: Fit, sample: Collection[int]) -> AccuracyEstimate | None:
    """Estimate the accuracy; None with too few rows in the random sample."""
    if len(sample) < MIN_RANDOM:
        return None
    return estimate_accuracy(fit.is_right, sample, error_factor=fit.error_factor)


def accuracy_line(found: AccuracyEstimate) -> str:
    """The accuracy in words, "right on about 78% of new texts (70 to 84)"."""
    line = (
        f"right on about {found.accuracy:.0%} of new texts "
        f"({100 * found.low:.0f} to {100 * found.high:.0f})"
    )
    if found.with_twice is not None:
        line += f", with twice the labels about {found.with_twice:.0%}"
    return line


def outlook_line(found: AccuracyEstimate, rows: Sequence[LabelledText]) -> str:
    """What another hour of labelling would bring, if known."""
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
    """The median speed of labelling, without breaks, if known."""
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
    """How many guesses were the label that a person gave, of how many.

    With `is_random`, of texts drawn at random, whose guesses were hidden; else of the others.
    """
    guessed = [row for row in rows if row.guess and (row.how == RANDOM) == is_random]
    num_accepted = sum(row.guess == row.label for row in guessed)
    return num_accepted, len(guessed)
