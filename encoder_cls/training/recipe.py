"""Decide schedules and the inputs of the linear classifier from the amount of text.

Little text has to be seen often, much text cannot be. Pretraining reads about as many tokens of any corpus that is not
small or very large. Epochs over the labels fall with the square root of the number of tokens, so their time grows with
its square root, too. Every number can be set in the config.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import NamedTuple

from encoder_cls.config import Config
from encoder_cls.errors import ConfigError
from encoder_cls.text.tokens import KEPT_PER_TOKEN

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


PRETRAINING_TOKENS = 1_250_000  # that are read, within limits of epochs:
PRETRAINING_EPOCHS = (1, 20)
TRAINING_FACTOR = 2_750  # over the square root of the tokens there are so many epochs, within limits:
TRAINING_EPOCHS = (1, 8)  # on labels: more of them overfit
CONTINUED, CONTINUED_EPOCHS = 0.5, (1, 4)  # of the training on labels, where an encoder knows most of them already
FEWEST_STEPS = 300  # on labels: where an epoch is a few steps, more epochs make up for it
STEPS_BETWEEN_VALIDATIONS = 300  # of pretraining, at least: one takes as long as many steps
LINEAR_LENGTHS = (KEPT_PER_TOKEN, 4, 2, 1)  # of the linear classifier, in those of the encoder
MOST_LINEAR_DETAIL = 3_000_000  # tokens from which the linear classifier looks at words only: memory
MOST_LINEAR_WORK = 200_000_000  # tokens times classes from which it learns from a stream: minutes
MOST_LINEAR_TEXT = 12_000_000  # tokens from which it does, too: memory
MOST_STREAMED_TEXT = 200_000_000  # tokens from which it reads no more of a text than the encoder: 4 GB of disk
MOST_STREAMED_WORK = 20_000_000_000  # tokens times classes from which there is no linear classifier: minutes


@dataclass(frozen=True, kw_only=True)
class Schedule:
    """How long an encoder is trained.

    Attributes:
        epochs: how often each text is learned from, at most; 0: there is no encoder.
        epochs_between_validations: more than 1 where epochs are short.
    """

    epochs: int
    epochs_between_validations: int = 1


class LinearInput(NamedTuple):
    """What the linear classifier looks at.

    Attributes:
        max_tokens: tokens of a text, `[CLS]` counted.
        use_char_ngrams: whether it looks at n-gram templates and character n-grams, too, not at words and pairs alone.
        is_streamed: whether there is more text than can be learned from at once.
    """

    max_tokens: int
    use_char_ngrams: bool
    is_streamed: bool = False


@dataclass(frozen=True, kw_only=True)
class Recipe:
    """The config's `auto` values, decided.

    Attributes:
        pretraining: how long masked-LM pretraining is; none: there is none.
        training: how long the model is trained on labels.
        linear: what the linear classifier beside the encoder looks at; none: there is no such classifier.
    """

    pretraining: Schedule | None
    training: Schedule
    linear: LinearInput | None


class CorpusSize(NamedTuple):
    """How much text there is.

    Attributes:
        tokens: in all, that an encoder reads.
        steps: optimizer steps of one epoch.
    """

    tokens: int
    steps: int


def resolve_auto(
    config: Config,
    *,
    has_encoder: bool,
    texts: CorpusSize,
    labelled: CorpusSize,
    tokens_within: Callable[[int], int],
    num_classes: int,
) -> Recipe:
    """The recipe for so much text.

    Args:
        config: what is chosen already.
        has_encoder: whether one is trained.
        texts: all there is to learn from.
        labelled: that part whose classes are known.
        tokens_within: from a number of tokens to how many that part has, where of each text no more are counted.
        num_classes: how many classes there are.

    Raises:
        ConfigError: a linear classifier is to be all there is, and there is too much text for one.
    """
    linear = _linear_input(config, tokens_within, num_classes) if config.model.linear else None
    if has_encoder:
        return Recipe(
            pretraining=_pretraining(config, texts), training=training_schedule(config, labelled), linear=linear
        )
    if linear is None:
        raise ConfigError(
            f"model.encoder=false: there is too much text for a linear classifier of {num_classes:,} classes; train "
            "the encoder, or on a part of the texts"
        )
    return Recipe(pretraining=None, training=Schedule(epochs=0), linear=linear)


def _pretraining(config: Config, corpus: CorpusSize) -> Schedule | None:
    """That of the config, or one with no more validations than worthwhile."""
    if config.pretrain.epochs == "auto" and config.from_run is not None:
        return None  # the former run has learned the language
    if config.pretrain.epochs == "auto":
        epochs = _within(PRETRAINING_EPOCHS, PRETRAINING_TOKENS / corpus.tokens)
        return Schedule(epochs=epochs, epochs_between_validations=math.ceil(STEPS_BETWEEN_VALIDATIONS / corpus.steps))
    return Schedule(epochs=config.pretrain.epochs) if config.pretrain.epochs else None


def training_schedule(config: Config, corpus: CorpusSize) -> Schedule:
    """How long the model is trained on so many texts with labels or pseudo-labels."""
    if config.train.epochs == "auto" and config.from_run is not None:
        return _schedule(TRAINING_FACTOR * CONTINUED, corpus, CONTINUED_EPOCHS, fewest_steps=CONTINUED * FEWEST_STEPS)
    if config.train.epochs == "auto":
        return _schedule(TRAINING_FACTOR, corpus, TRAINING_EPOCHS, fewest_steps=FEWEST_STEPS)
    return Schedule(epochs=config.train.epochs)


def _within(limits: tuple[int, int], epochs: float) -> int:
    return min(max(round(epochs), limits[0]), limits[1])


def _schedule(factor: float, corpus: CorpusSize, limits: tuple[int, int], *, fewest_steps: float) -> Schedule:
    """As many epochs as a factor over the square root of the tokens, within limits; and so many steps at least."""
    epochs = _within(limits, factor / math.sqrt(corpus.tokens))
    times = math.ceil(fewest_steps / (epochs * corpus.steps))
    return Schedule(epochs=epochs * times, epochs_between_validations=times)


def _linear_input(config: Config, tokens_within: Callable[[int], int], num_classes: int) -> LinearInput | None:
    """As far as there is memory and time for, from whole texts to the part that the encoder reads."""
    lengths = [part * config.model.max_seq_len for part in LINEAR_LENGTHS]
    sizes = [(length, tokens_within(length)) for length in lengths]
    for max_tokens, tokens in sizes:
        if tokens <= MOST_LINEAR_TEXT and tokens * num_classes <= MOST_LINEAR_WORK:
            return LinearInput(max_tokens, use_char_ngrams=tokens <= MOST_LINEAR_DETAIL)
    for max_tokens, tokens in sizes:
        is_shortest = max_tokens == config.model.max_seq_len
        if (tokens <= MOST_STREAMED_TEXT or is_shortest) and tokens * num_classes <= MOST_STREAMED_WORK:
            return LinearInput(max_tokens, use_char_ngrams=False, is_streamed=True)
    return None
