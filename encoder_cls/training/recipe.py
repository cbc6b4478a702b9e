"""What depends on the amount of text: how long to pretrain and to train, and what a linear classifier looks at.

Little text has to be seen often, much text cannot be: passes fall with the square root of the number of
tokens, so the time of a training grows with its square root too. Every number can be set in the config.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import NamedTuple

from encoder_cls.config import Config
from encoder_cls.text.token_arrays import KEPT_PER_TOKEN

# Passes are one of these numbers over the square root of the tokens, within limits.
LABEL_FACTOR, WORD_FACTOR = 2_750, 7_500
PASSES = (2, 8)  # over the labels: more of them overfit
WORD_PASSES = (2, 20)  # of pretraining
FEWEST_STEPS = 300  # where a pass is a few steps, more passes make up for it
STEPS_BETWEEN_VALIDATIONS = 300  # of pretraining, at least: one takes as long as many steps
LINEAR_LENGTHS = (KEPT_PER_TOKEN, 4, 2, 1)  # of the linear classifier, in those of the encoder
MOST_LINEAR_DETAIL = 3_000_000  # tokens from which the linear classifier looks at words only: memory
MOST_LINEAR_WORK = 200_000_000  # tokens times classes from which there is no linear classifier: minutes
MOST_LINEAR_TEXT = 12_000_000  # tokens from which there is none either: memory


@dataclass(frozen=True, kw_only=True)
class Schedule:
    """How long an encoder is trained.

    Attributes:
        epochs: passes over the texts, at most.
        epochs_between_validations: more than 1 where passes are short.
    """

    epochs: int
    epochs_between_validations: int = 1


class LinearInput(NamedTuple):
    """What the linear classifier looks at.

    Attributes:
        max_tokens: tokens of a text, `[CLS]` counted.
        use_char_ngrams: whether it looks at n-gram templates and character n-grams, too, not at words and pairs alone.
    """

    max_tokens: int
    use_char_ngrams: bool


@dataclass(frozen=True, kw_only=True)
class Recipe:
    """The config's `auto` values, decided.

    Attributes:
        pretraining: how long masked-LM pretraining is; none: there is none.
        length: how long labels are learnt.
        linear: what the linear classifier beside the encoder looks at; none: there is no such classifier.
    """

    pretraining: Schedule | None
    length: Schedule
    linear: LinearInput | None


class CorpusSize(NamedTuple):
    """An amount of text.

    Attributes:
        tokens: in all, that an encoder reads.
        steps: of one pass over them.
    """

    tokens: int
    steps: int


def resolve_auto(
    config: Config, *, texts: CorpusSize, labelled: CorpusSize, tokens_within: Callable[[int], int], num_classes: int
) -> Recipe:
    """The recipe for so much text.

    Args:
        config: what is chosen already.
        texts: all there is to learn from.
        labelled: that part whose classes are known.
        tokens_within: from a number of tokens to how many that part has, where of each text no more are counted.
        num_classes: how many classes there are.
    """
    by_labels = _length(LABEL_FACTOR, labelled, PASSES, FEWEST_STEPS)
    by_words = _seldom_validated(_length(WORD_FACTOR, texts, WORD_PASSES, 1), texts)
    words = by_words if config.pretrain.epochs == "auto" else Schedule(epochs=config.pretrain.epochs)
    return Recipe(
        pretraining=words if words.epochs else None,
        length=by_labels if config.train.epochs == "auto" else Schedule(epochs=config.train.epochs),
        linear=_linear_input(config, tokens_within, num_classes) if config.model.linear else None,
    )


def _linear_input(config: Config, tokens_within: Callable[[int], int], num_classes: int) -> LinearInput | None:
    """As far as there is memory and time for, from whole texts to the part that the encoder reads."""
    for part in LINEAR_LENGTHS:
        max_tokens = part * config.model.max_seq_len
        tokens = tokens_within(max_tokens)
        if tokens <= MOST_LINEAR_TEXT and tokens * num_classes <= MOST_LINEAR_WORK:
            return LinearInput(max_tokens, use_char_ngrams=tokens <= MOST_LINEAR_DETAIL)
    return None


def _length(factor: float, amount: CorpusSize, limits: tuple[int, int], fewest_steps: int) -> Schedule:
    """As many passes as a factor over the square root of the tokens, within limits; and so many steps at least."""
    limited = min(max(round(factor / math.sqrt(amount.tokens)), limits[0]), limits[1])
    times = math.ceil(fewest_steps / (limited * amount.steps))
    return Schedule(epochs=limited * times, epochs_between_validations=times)


def _seldom_validated(length: Schedule, amount: CorpusSize) -> Schedule:
    """The same with no more validations than worthwhile."""
    return replace(length, epochs_between_validations=math.ceil(STEPS_BETWEEN_VALIDATIONS / amount.steps))
