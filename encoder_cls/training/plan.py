"""Decide from the config and the amount of text how a run trains.

Epochs over the labels fall with the square root of the number of tokens, so their time grows with its square root, too.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable
from dataclasses import dataclass
from itertools import islice
from typing import Literal, NamedTuple, Self

import numpy as np
from numpy.typing import NDArray

from encoder_cls.config.schema import Config
from encoder_cls.data.dataset import Dataset
from encoder_cls.data.load import names_validation, reading_of
from encoder_cls.data.reading.columns import Columns
from encoder_cls.data.source_files import every_file
from encoder_cls.data.sources import read_rows
from encoder_cls.encoder.batches import BatchSampler
from encoder_cls.encoder.training import Schedule
from encoder_cls.errors import ConfigError
from encoder_cls.system.display import listed
from encoder_cls.text.tokens import KEPT_PER_TOKEN

RESERVED = 0.1  # of the time, for the start of Python, files, and steps that take longer than the first ones
PRETRAINING_SHARE = 0.4  # of what is left when it starts, at most
# Epochs on labels, over the square root of the tokens, within these limits:
TRAINING_FACTOR = 2_750
TRAINING_EPOCHS = (1, 8)  # more of them overfit
# Share of the factor, and limits, from a base run's encoder.
CONTINUED, CONTINUED_EPOCHS = (
    0.5,
    (1, 4),
)
FEWEST_STEPS = 300  # on labels: where an epoch is a few steps, more epochs make up for it
# Tokens that a linear classifier may read, in multiples of `max_seq_len`.
LINEAR_LENGTHS = (
    KEPT_PER_TOKEN,
    4,
    2,
    1,
)
# Tokens from which the linear classifier looks at words only: memory.
MOST_LINEAR_DETAIL = 3_000_000
MOST_LINEAR_WORK = 200_000_000  # tokens times classes from which it learns from a stream: minutes
MOST_LINEAR_TEXT = 12_000_000  # tokens from which it does so, too: memory
# Tokens from which it reads no more of a text than the encoder: 4 GB of disk.
MOST_STREAMED_TEXT = 200_000_000
# Tokens times classes from which there is no linear classifier: minutes.
MOST_STREAMED_WORK = 20_000_000_000
MOST_LABELLED = 2000  # texts with a label, where labels are few
# A run on a large source, in bytes, takes at least so many times the time to read it, estimated on some rows.
LARGE, TIMED_ROWS, LEAST_WORK = 5_000_000, 5000, 9.0
MONITORS = ("loss", "accuracy", "macro_f1")
MULTI_LABEL_MONITORS = ("loss", "micro_f1", "macro_f1", "mean_average_precision")


class TimeBudget:
    """The time limits of a run, from its start or resumption: now, or `started`, a time of `time.monotonic`."""

    def __init__(self, config: Config, *, started: float | None = None) -> None:
        whole, pretraining = config.train.time_budget, config.pretrain.time_budget
        self._end = (
            None
            if whole is None
            else (time.monotonic() if started is None else started) + 60 * whole
        )
        self._reserved = 0.0 if whole is None else RESERVED * 60 * whole
        self._of_pretraining = None if pretraining is None else 60 * pretraining

    @property
    def left(self) -> float | None:
        """The seconds until the end; None without a limit."""
        return None if self._end is None else max(0.0, self._end - time.monotonic())

    def seconds_for(self, *, pretraining: bool) -> float | None:
        """The seconds for pretraining, or for training and the report, from now on; None without a limit."""
        left = None if self.left is None else max(0.0, self.left - self._reserved)
        if not pretraining:
            return left
        share = None if left is None else PRETRAINING_SHARE * left
        return min((it for it in (share, self._of_pretraining) if it is not None), default=None)


def check_least_fits(config: Config, *, seconds: float | None) -> None:
    """Refuse a time limit that is too short for a large source, judging by the time to read a few rows."""
    source = config.data.train
    if seconds is None or ":" in source:
        return
    size = sum(file.stat().st_size for file in every_file(source) if file.is_file())
    if size < LARGE:
        return
    columns = Columns(config.data.text_column, config.data.label_column)
    rows = read_rows(source, columns, reading_of(config.data), role="train")
    began = time.monotonic()
    read = sum(len(row.text.encode()) for row in islice(rows, TIMED_ROWS))
    least = LEAST_WORK * (time.monotonic() - began) * size / max(1, read)
    if least > seconds:
        raise ConfigError(
            f"train.time_budget: {source} has {size / 1e6:,.0f} MB of text, which take at least about {least:.0f} s "
            "on this machine; give it more time, or fewer texts"
        )


class CorpusSize(NamedTuple):
    """The tokens that an encoder reads, and the optimizer steps of one epoch."""

    tokens: int
    steps: int

    @classmethod
    def of(cls, lengths: NDArray[np.int64], config: Config) -> Self:
        """Measure texts of these lengths."""
        return cls(
            int(lengths.sum()),
            BatchSampler(lengths, config.train, seed=config.seed).steps_per_epoch,
        )


@dataclass(frozen=True, kw_only=True)
class Counts:
    """The facts of the data that a plan depends on.

    `linear_tokens` has the tokens of all labelled texts by the most that are read of each, in descending order.
    `has_base_encoder`: the encoder starts from the weights of a base run.
    """

    labelled: int
    unlabelled: int
    validation: int
    classes: int
    corpus: CorpusSize
    linear_tokens: dict[int, int]
    is_multi_label: bool = False
    has_base_encoder: bool = False


class LinearInput(NamedTuple):
    """The tokens that the linear classifier reads of a text, `[CLS]` counted, and whether with character n-grams."""

    max_tokens: int
    use_char_ngrams: bool


LinearFit = Literal["plain", "stream", "few_labels"]


@dataclass(frozen=True, kw_only=True)
class Plan:
    """The parts of a run, and how each is trained.

    The linear classifier may be refitted with the texts held out for validation. The encoder may also learn from its
    answers to texts without labels (pseudo-labels), and start from word vectors.
    """

    pretraining: Schedule | None
    training: Schedule | None
    linear: LinearInput | None
    linear_fit: LinearFit | None
    refits_on_validation: bool
    has_pseudo_labels: bool
    has_word_vectors: bool

    @property
    def has_encoder(self) -> bool:
        """Whether an encoder is trained."""
        return self.training is not None

    @property
    def answers_labels_out_of_fold(self) -> bool:
        """Whether the run keeps out-of-fold answers to all labelled texts."""
        return (
            self.linear_fit == "few_labels" and self.refits_on_validation and not self.has_encoder
        )

    @property
    def schedules(self) -> list[Schedule]:
        """The schedules of all stages."""
        return [it for it in (self.pretraining, self.training) if it]

    @property
    def total_steps(self) -> int:
        """Optimizer steps of all stages."""
        return sum(it.total_steps for it in self.schedules)

    def __str__(self) -> str:
        """The decisions in one line."""
        stages = ("pretraining", self.pretraining), ("training", self.training)
        decided = [
            f"{name} of {it.total_steps:,} steps, validated every {it.validate_every:,}"
            for name, it in stages
            if it
        ]
        if self.linear:
            detail = " with character n-grams" * self.linear.use_char_ngrams
            decided.append(
                f"linear classifier fitted {self.linear_fit} on {self.linear.max_tokens:,} tokens{detail}"
            )
        decided += ["refitted with the validation texts"] * self.refits_on_validation
        decided += ["pseudo-labels"] * self.has_pseudo_labels
        return ", ".join(decided + ["word vectors"] * self.has_word_vectors)


def check_fits(config: Config, dataset: Dataset) -> None:
    """Check class weights, the monitored score and the kind of classifier against the data."""
    weights = config.train.class_weights
    unknown = sorted(weights.keys() - set(dataset.label_names)) if isinstance(weights, dict) else []
    if unknown:
        raise ConfigError(
            f"train.class_weights: no class is called {unknown[0]!r}; there are {listed(dataset.label_names)}"
        )
    monitor, several = config.train.monitor, dataset.is_multi_label
    known, what = (
        (MULTI_LABEL_MONITORS, "may have several labels")
        if several
        else (MONITORS, "has one label")
    )
    if monitor not in known:
        raise ConfigError(
            f"train.monitor: {monitor} is not a score of data in which a text {what}; there are {', '.join(known)}"
        )


def make_plan(
    config: Config, counts: Counts, *, model_corpus: Callable[[bool], CorpusSize]
) -> Plan:
    """Make the plan, or raise a `ConfigError` where no classifier can be trained.

    `model_corpus` measures the texts that the encoder learns classes from, with pseudo-labels or without.
    """
    linear, linear_fit = _linear(config, counts)
    has_encoder = _has_encoder(config, counts, linear_fit)
    if not (has_encoder or linear):
        raise ConfigError(
            f"model.encoder=false: there is too much text for a linear classifier of {counts.classes:,} classes; train "
            "the encoder, or use fewer texts"
        )
    epochs = 0 if config.pretrain.epochs == "auto" else config.pretrain.epochs
    # A continued run and its base run are compared on the texts held out.
    may_refit = not counts.is_multi_label and config.from_run is None and counts.validation > 0
    has_pseudo_labels = (
        has_encoder
        and linear_fit == "few_labels"
        and config.train.pseudo_labels
        and counts.unlabelled > 0
    )
    return Plan(
        pretraining=_schedule(config, counts.corpus, epochs) if has_encoder and epochs else None,
        training=_training(config, counts, model_corpus(has_pseudo_labels))
        if has_encoder
        else None,
        linear=linear,
        linear_fit=linear_fit,
        refits_on_validation=config.train.refit_on_validation
        and not names_validation(config)
        and (linear_fit == "few_labels" or (linear_fit == "plain" and may_refit)),
        has_pseudo_labels=has_pseudo_labels,
        # A base run has learned the language; labelled texts alone teach too little of it.
        has_word_vectors=has_encoder
        and config.pretrain.epochs == "auto"
        and counts.unlabelled > counts.labelled
        and not counts.has_base_encoder,
    )


def _has_encoder(config: Config, counts: Counts, linear_fit: LinearFit | None) -> bool:
    """By default, train no encoder on few labels among many texts."""
    if config.model.encoder != "auto":
        return bool(config.model.encoder)
    return (
        linear_fit != "few_labels"
        or counts.unlabelled <= counts.labelled
        or counts.has_base_encoder
    )


def _linear(config: Config, counts: Counts) -> tuple[LinearInput | None, LinearFit | None]:
    """Read as much of each text as memory and time allow, at least as much as the encoder reads."""
    if not config.model.linear:
        return None, None
    for max_tokens, tokens in counts.linear_tokens.items():
        if tokens <= MOST_LINEAR_TEXT and tokens * counts.classes <= MOST_LINEAR_WORK:
            return LinearInput(
                max_tokens, use_char_ngrams=tokens <= MOST_LINEAR_DETAIL
            ), _fit_at_once(config, counts)
    for max_tokens, tokens in counts.linear_tokens.items():
        is_shortest = max_tokens == config.model.max_seq_len
        if (
            tokens <= MOST_STREAMED_TEXT or is_shortest
        ) and tokens * counts.classes <= MOST_STREAMED_WORK:
            return LinearInput(max_tokens, use_char_ngrams=False), "stream"
    return None, None


def _fit_at_once(config: Config, counts: Counts) -> LinearFit:
    train = config.train
    uses_texts = train.naive_bayes_em or train.lsa_dimensions > 0 or train.self_training
    has_help = (uses_texts and counts.unlabelled > 0) or train.label_names_as_texts
    return (
        "few_labels"
        if counts.labelled <= MOST_LABELLED and has_help and not counts.is_multi_label
        else "plain"
    )


def _training(config: Config, counts: Counts, corpus: CorpusSize) -> Schedule:
    """Take the config's epochs, or a factor over the square root of the tokens, within limits; and enough steps."""
    if config.train.epochs != "auto":
        return _schedule(config, corpus, config.train.epochs)
    share, (fewest, most) = (
        (CONTINUED, CONTINUED_EPOCHS) if counts.has_base_encoder else (1.0, TRAINING_EPOCHS)
    )
    epochs = min(max(round(share * TRAINING_FACTOR / math.sqrt(corpus.tokens)), fewest), most)
    times = math.ceil(share * FEWEST_STEPS / (epochs * corpus.steps))
    return _schedule(config, corpus, epochs * times, times)


def _schedule(
    config: Config, corpus: CorpusSize, epochs: int, epochs_between_validations: int = 1
) -> Schedule:
    validate_every = config.train.validate_every or epochs_between_validations * corpus.steps
    return Schedule(epochs=epochs, steps_per_epoch=corpus.steps, validate_every=validate_every)
