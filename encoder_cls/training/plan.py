"""Decide from the config and the amount of text how a run trains."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal, NamedTuple, Self

import numpy as np
from numpy.typing import NDArray

from encoder_cls.config.schema import Config
from encoder_cls.data.continued_data import names_validation
from encoder_cls.data.dataset import Dataset
from encoder_cls.encoder.batches import BatchSampler
from encoder_cls.encoder.step_limit import TrainingLength
from encoder_cls.errors import ConfigError
from encoder_cls.metrics.scores import scores_of_task
from encoder_cls.system.display import listed
from encoder_cls.text.tokens import KEPT_PER_TOKEN


class CorpusSize(NamedTuple):
    """The tokens that an encoder reads, and the optimizer steps of one epoch."""

    tokens: int
    steps: int

    @classmethod
    def of(cls, lengths: NDArray[np.int64], config: Config) -> Self:
        """Measure texts of these lengths."""
        sampler = BatchSampler(lengths, config.train, seed=config.seed)
        return cls(tokens=int(lengths.sum()), steps=sampler.steps_per_epoch)


@dataclass(frozen=True, kw_only=True)
class Counts:
    """The facts of the data that a plan depends on.

    Attributes:
        labelled: the number of texts with a label.
        unlabelled: the number of texts without.
        validation: the number of texts held out for validation.
        classes: the number of classes.
        corpus: the size of all texts.
        linear_tokens: the tokens of all labelled texts by the most that are read of each, in
            descending order.
        is_multi_label: whether a text may have several labels.
        has_base_encoder: whether the encoder starts from the weights of a base run.
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
    """What the linear model reads.

    Attributes:
        max_tokens: how many tokens of a text, `[CLS]` included.
        use_char_ngrams: whether character n-grams are features.
    """

    max_tokens: int
    use_char_ngrams: bool


LinearFit = Literal["plain", "stream", "few_labels"]


@dataclass(frozen=True, kw_only=True)
class Plan:
    """The parts of a run, and how each is trained.

    Attributes:
        pretraining: of the encoder, on texts without their labels.
        training: of the encoder, on labels.
        linear: what the linear model reads.
        linear_fit: how it is fitted.
        refits_on_validation: whether it is fitted again with the texts held out for validation.
        has_pseudo_labels: whether the encoder also learns what the linear model predicts for texts
            without labels.
        has_word_vectors: whether the encoder starts from word vectors.
    """

    pretraining: TrainingLength | None
    training: TrainingLength | None
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
    def predicts_labels_out_of_fold(self) -> bool:
        """Whether the run keeps out-of-fold predictions for all labelled texts."""
        return (
            self.linear_fit == "few_labels" and self.refits_on_validation and not self.has_encoder
        )

    @property
    def training_lengths(self) -> list[TrainingLength]:
        """The lengths of all trainings of the encoder."""
        return [length for length in (self.pretraining, self.training) if length]

    @property
    def total_steps(self) -> int:
        """The optimizer steps of all trainings of the encoder."""
        return sum(length.total_steps for length in self.training_lengths)

    def __str__(self) -> str:
        """The decisions in one line."""
        decisions = []
        for name, length in (("pretraining", self.pretraining), ("training", self.training)):
            if length:
                decisions.append(
                    f"{name} of {length.total_steps:,} steps, "
                    f"validated every {length.validate_every:,}"
                )

        if self.linear:
            decision = f"linear model fitted {self.linear_fit} on {self.linear.max_tokens:,} tokens"
            if self.linear.use_char_ngrams:
                decision += " with character n-grams"
            decisions.append(decision)

        if self.refits_on_validation:
            decisions.append("refitted with the validation texts")
        if self.has_pseudo_labels:
            decisions.append("pseudo-labels")
        if self.has_word_vectors:
            decisions.append("word vectors")
        return ", ".join(decisions)


def check_fits(config: Config, dataset: Dataset) -> None:
    """Check class weights and the monitored score against the data.

    Raises:
        ConfigError: one of them does not fit.
    """
    weights = config.train.class_weights
    if isinstance(weights, dict):
        unknown = sorted(weights.keys() - set(dataset.label_names))
        if unknown:
            raise ConfigError(
                f"train.class_weights: no class is called {unknown[0]!r}; there are "
                f"{listed(dataset.label_names)}"
            )

    scores = scores_of_task(is_multi_label=dataset.is_multi_label)
    monitors = [score.key for score in scores if score.can_be_monitored]
    monitor = config.train.monitor
    if monitor not in monitors:
        labels = "may have several labels" if dataset.is_multi_label else "has one label"
        raise ConfigError(
            f"train.monitor: {monitor} is not a score of data in which a text {labels}; there are "
            f"{', '.join(monitors)}"
        )


def make_plan(
    config: Config, counts: Counts, *, model_corpus: Callable[[bool], CorpusSize]
) -> Plan:
    """Make the plan of a run.

    Args:
        config: what a person chose.
        counts: the facts of the data.
        model_corpus: measures the texts that the encoder learns classes from, with pseudo-labels or
            without.

    Raises:
        ConfigError: no classifier can be trained.
    """
    linear, linear_fit = _linear(config, counts)
    has_encoder = _has_encoder(config, counts, linear_fit)
    if not has_encoder and linear is None:
        raise ConfigError(
            "model.encoder=false: there is too much text for a linear model of "
            f"{counts.classes:,} classes; train the encoder, or use fewer texts"
        )

    refits_on_validation = _refits_on_validation(config, counts, linear_fit)
    if not has_encoder:
        return Plan(
            pretraining=None,
            training=None,
            linear=linear,
            linear_fit=linear_fit,
            refits_on_validation=refits_on_validation,
            has_pseudo_labels=False,
            has_word_vectors=False,
        )

    has_pseudo_labels = (
        linear_fit == "few_labels" and config.train.pseudo_labels and counts.unlabelled > 0
    )
    return Plan(
        pretraining=_pretraining(config, counts),
        training=_training(config, counts, model_corpus(has_pseudo_labels)),
        linear=linear,
        linear_fit=linear_fit,
        refits_on_validation=refits_on_validation,
        has_pseudo_labels=has_pseudo_labels,
        has_word_vectors=_has_word_vectors(config, counts),
    )


def _has_encoder(config: Config, counts: Counts, linear_fit: LinearFit | None) -> bool:
    """Decide whether to train an encoder: by default, not on few labels among many texts."""
    if config.model.encoder != "auto":
        return bool(config.model.encoder)
    return (
        linear_fit != "few_labels"
        or counts.unlabelled <= counts.labelled
        or counts.has_base_encoder
    )


def _has_word_vectors(config: Config, counts: Counts) -> bool:
    """Decide whether to start from word vectors.

    The encoder of a base run has learned the language; labelled texts alone teach too little of it.
    """
    return (
        config.pretrain.epochs == "auto"
        and counts.unlabelled > counts.labelled
        and not counts.has_base_encoder
    )


def _refits_on_validation(config: Config, counts: Counts, linear_fit: LinearFit | None) -> bool:
    """Decide whether the linear model is fitted again with the texts held out."""
    if not config.train.refit_on_validation or names_validation(config):
        return False
    if linear_fit == "few_labels":
        return True

    # A continued run and its base run are compared on the texts held out.
    is_continued = config.from_run is not None
    return (
        linear_fit == "plain"
        and not counts.is_multi_label
        and not is_continued
        and counts.validation > 0
    )


# The tokens of a text that a linear model may read, in multiples of `max_seq_len`.
LINEAR_LENGTHS = (KEPT_PER_TOKEN, 4, 2, 1)

# The linear model learns from a stream if there are more tokens, for the sake of memory, or
# more tokens times classes, which take minutes.
MAX_LINEAR_TEXT = 12_000_000
MAX_LINEAR_WORK = 200_000_000
# With more tokens, it looks at words only, for the sake of memory.
MAX_LINEAR_DETAIL = 3_000_000

# With more tokens, a stream reads no more of a text than the encoder: 4 GB of disk.
MAX_STREAMED_TEXT = 200_000_000
# With more tokens times classes, which take minutes, there is no linear model.
MAX_STREAMED_WORK = 20_000_000_000


def _linear(config: Config, counts: Counts) -> tuple[LinearInput | None, LinearFit | None]:
    """Decide what the linear model reads, and how it is fitted.

    It reads as much of each text as memory and time allow, at least as much as the encoder.
    """
    if not config.model.linear:
        return None, None

    for max_tokens, tokens in counts.linear_tokens.items():
        work = tokens * counts.classes
        if tokens <= MAX_LINEAR_TEXT and work <= MAX_LINEAR_WORK:
            has_detail = tokens <= MAX_LINEAR_DETAIL
            linear_fit = _fit_in_memory(config, counts)
            return LinearInput(max_tokens, use_char_ngrams=has_detail), linear_fit

    for max_tokens, tokens in counts.linear_tokens.items():
        work = tokens * counts.classes
        is_shortest = max_tokens == config.model.max_seq_len
        has_room = tokens <= MAX_STREAMED_TEXT or is_shortest
        if has_room and work <= MAX_STREAMED_WORK:
            return LinearInput(max_tokens, use_char_ngrams=False), "stream"
    return None, None


# The most texts with a label, where labels are few.
MAX_LABELLED = 2000


def _fit_in_memory(config: Config, counts: Counts) -> LinearFit:
    """Decide how to fit to texts in memory: as to few labels where something helps these."""
    train = config.train
    learns_from_texts = train.naive_bayes or train.lsa_dimensions > 0 or train.self_training
    has_help = train.label_names_as_texts or (learns_from_texts and counts.unlabelled > 0)
    if counts.labelled <= MAX_LABELLED and has_help and not counts.is_multi_label:
        return "few_labels"
    return "plain"


def _pretraining(config: Config, counts: Counts) -> TrainingLength | None:
    """The length of pretraining; None by default."""
    epochs = config.pretrain.epochs
    if epochs == "auto" or not epochs:
        return None
    return _training_length(config, counts.corpus, epochs)


# Epochs over the labels, times the square root of the number of tokens: so the time of training
# grows with its square root, too.
TRAINING_FACTOR = 2_750
# The fewest and the most epochs: more of them overfit.
TRAINING_EPOCHS = (1, 8)
# Where an epoch is a few steps, more epochs make up for it.
MIN_STEPS = 300

# The part of the epochs and the steps, from the encoder of a base run, and the fewest and the most
# epochs.
CONTINUED_SHARE = 0.5
CONTINUED_EPOCHS = (1, 4)


def _training(config: Config, counts: Counts, corpus: CorpusSize) -> TrainingLength:
    """The length of training on labels: the config's epochs, or as many as the texts need."""
    if config.train.epochs != "auto":
        return _training_length(config, corpus, config.train.epochs)

    share = 1.0
    fewest, most = TRAINING_EPOCHS
    if counts.has_base_encoder:
        share = CONTINUED_SHARE
        fewest, most = CONTINUED_EPOCHS
    wanted = round(share * TRAINING_FACTOR / math.sqrt(corpus.tokens))
    epochs = min(max(wanted, fewest), most)

    # Repeat them until there are enough steps; each repetition is validated once.
    repetitions = math.ceil(share * MIN_STEPS / (epochs * corpus.steps))
    return _training_length(
        config, corpus, epochs * repetitions, epochs_between_validations=repetitions
    )


def _training_length(
    config: Config, corpus: CorpusSize, epochs: int, *, epochs_between_validations: int = 1
) -> TrainingLength:
    validate_every = config.train.validate_every
    if not validate_every:
        validate_every = epochs_between_validations * corpus.steps
    return TrainingLength(
        epochs=epochs, steps_per_epoch=corpus.steps, validate_every=validate_every
    )
