"""Estimate how long a training takes, before it begins, by the amount of its data.

The estimate is for the default config without a GPU. It was fitted to the processor time of
trainings on data sets of 3,000 to 40,000 texts. A training may end earlier than planned, if it
stops to improve, and machines differ, so the result is a range.
"""

from __future__ import annotations

import math
from typing import NamedTuple

from encoder_cls.config.schema import TrainConfig
from encoder_cls.data.dataset import Dataset
from encoder_cls.system.processes import usable_processes
from encoder_cls.training.plan import MIN_STEPS, TRAINING_EPOCHS, TRAINING_FACTOR


class ExpectedTime(NamedTuple):
    """The shortest and the longest time to expect, in seconds."""

    shortest: float
    longest: float


# The seconds of a processor core for loading libraries, the report and the charts.
FIXED_SECONDS = 15.0
# The tokens that the encoder learns from in a second of a core.
ENCODER_TOKENS = 13_000
# The seconds of a core that the linear model takes for a token and a class.
LINEAR_SECONDS = 4.5e-6
# The number of classes that cost as if there were more: a model of two classes is fitted as one of
# this number.
MIN_CLASSES = 4
# The share of the work that several cores do together, and the cores from which on more are no
# faster.
PARALLEL_SHARE = 0.75
MAX_CORES = 8
# How far the time may be below and above the estimate.
BELOW = 0.5
ABOVE = 1.6
# The number of texts by which their mean length is estimated.
SAMPLED_TEXTS = 2000
# The tokens of a word: words, punctuation and pieces.
TOKENS_OF_WORD = 1.25


def expected_time(dataset: Dataset, *, max_tokens: int) -> ExpectedTime:
    """Estimate the time of a training with the default config.

    Args:
        dataset: the data.
        max_tokens: the number of tokens that the encoder reads of a text.
    """
    cores = min(MAX_CORES, usable_processes())
    seconds = _core_seconds(dataset, max_tokens)
    estimated = seconds * (1 - PARALLEL_SHARE + PARALLEL_SHARE / cores)
    return ExpectedTime(BELOW * estimated, ABOVE * estimated)


def _core_seconds(dataset: Dataset, max_tokens: int) -> float:
    """The seconds that a single core takes."""
    num_texts = len(dataset.train) + len(dataset.unlabelled.texts)
    stride = max(1, len(dataset.train) // SAMPLED_TEXTS)
    sample = [dataset.train.texts[row] for row in range(0, len(dataset.train), stride)]
    lengths = [TOKENS_OF_WORD * len(text.split()) + 1 for text in sample]
    mean_length = sum(lengths) / len(lengths)
    mean_read = sum(min(length, max_tokens) for length in lengths) / len(lengths)

    # The number of epochs falls with the amount of text, as in the plan of a training.
    tokens = max(1.0, num_texts * mean_read)
    min_epochs, max_epochs = TRAINING_EPOCHS
    epochs = min(max(TRAINING_FACTOR / math.sqrt(tokens), min_epochs), max_epochs)
    min_tokens = MIN_STEPS * TrainConfig().batch_size * mean_read
    encoder_tokens = max(min_tokens, epochs * tokens)

    num_classes = max(MIN_CLASSES, len(dataset.label_names))
    linear_seconds = LINEAR_SECONDS * num_texts * mean_length * num_classes
    return FIXED_SECONDS + encoder_tokens / ENCODER_TOKENS + linear_seconds
