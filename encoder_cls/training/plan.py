"""Plan how a run trains, by its config and the amount of its text."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import NamedTuple, Self

import numpy as np
from numpy.typing import NDArray

from encoder_cls.config.schema import Config
from encoder_cls.data.codes import check_codes
from encoder_cls.data.continued_data import names_validation
from encoder_cls.data.dataset import Dataset
from encoder_cls.encoder_training.batch_sampler import BatchSampler
from encoder_cls.encoder_training.steps_in_time import TrainingLength
from encoder_cls.errors import ConfigError
from encoder_cls.linear_training.cost import FitKind
from encoder_cls.linear_training.nb_svm import others_to_learn
from encoder_cls.metrics.scores import scores_of_task
from encoder_cls.metrics.tasks import MULTI_LABEL, SINGLE_LABEL, Task, task_of
from encoder_cls.system.display import listed
from encoder_cls.text.tokens import KEPT_PER_TOKEN


class CorpusSize(NamedTuple):
    """The tokens that an encoder reads, and the optimizer steps of one epoch."""

    tokens: int
    steps: int

    @classmethod
    def of(cls, lengths: NDArray[np.int64], config: Config) -> Self:
        """Measure texts of these lengths in tokens."""
        sampler = BatchSampler(lengths, config.train, seed=config.seed)
        return cls(tokens=int(lengths.sum()), steps=sampler.steps_per_epoch)


@dataclass(frozen=True, kw_only=True)
class Counts:
    """The amounts of data that a plan depends on.

    Attributes:
        corpus: of all training texts, with and without labels.
        linear_tokens: of all labelled texts, by the most tokens that the linear model may read of
            each, the largest first.
        scored: the texts of the report.
    """

    labelled: int
    unlabelled: int
    validation: int
    classes: int
    corpus: CorpusSize
    linear_tokens: dict[int, int]
    task: Task = SINGLE_LABEL
    scored: int = 0
    has_base_encoder: bool = False


@dataclass(frozen=True, kw_only=True)
class Plan:
    """The models that a run trains, and how each is trained.

    Attributes:
        pretraining: None without pretraining.
        training: on labels; None without an encoder.
        linear_max_tokens: the most tokens that the linear model reads of a text, `[CLS]` included;
            None without one.
        has_pseudo_labels: whether the encoder learns the linear model's predictions for unlabelled
            texts.
    """

    pretraining: TrainingLength | None
    training: TrainingLength | None
    linear_max_tokens: int | None
    linear_fit: FitKind | None
    refits_on_validation: bool
    has_pseudo_labels: bool
    has_word_vectors: bool

    @property
    def has_encoder(self) -> bool:
        """Whether an encoder is trained."""
        return self.training is not None

    @property
    def training_lengths(self) -> list[TrainingLength]:
        """The lengths of all trainings of the encoder."""
        return [length for length in (self.pretraining, self.training) if length]

    @property
    def total_steps(self) -> int:
        """The optimizer steps of all trainings."""
        return sum(length.total_steps for length in self.training_lengths)

    def __str__(self) -> str:
        """Describe the plan in one line."""
        decisions = []
        for name, length in (("pretraining", self.pretraining), ("training", self.training)):
            if length:
                decisions.append(
                    f"{name} of {length.total_steps:,} steps, "
                    f"validated every {length.validate_every:,}"
                )

        if self.linear_fit:
            decisions.append(
                f"linear model fitted {self.linear_fit} on {self.linear_max_tokens:,} tokens"
            )

        if self.refits_on_validation:
            decisions.append("refitted with the validation texts")
        if self.has_pseudo_labels:
            decisions.append("pseudo-labels")
        if self.has_word_vectors:
            decisions.append("word vectors")
        return ", ".join(decisions)


def check_config_fits_data(config: Config, dataset: Dataset) -> None:
    """Raise a `ConfigError` if the config does not fit classes or task of the data.

    A class weight may name no class, classes may have no such levels, and the task no such
    `monitor`.
    """
    check_codes(config.data, dataset.label_names, is_multi_label=dataset.is_multi_label)
    weights = config.train.class_weights
    if isinstance(weights, dict):
        unknown = sorted(weights.keys() - set(dataset.label_names))
        if unknown:
            raise ConfigError(
                f"train.class_weights: no class is called {unknown[0]!r}; there are "
                f"{listed(dataset.label_names)}"
            )

    task = task_of(dataset.train.labels)
    scores = scores_of_task(task)
    monitors = [score.key for score in scores if score.can_be_monitored]
    monitor = config.train.monitor
    if monitor not in monitors:
        labels = "may have several labels" if task is MULTI_LABEL else "has one label"
        raise ConfigError(
            f"train.monitor: {monitor} is not a score of data in which a text {labels}; there are "
            f"{', '.join(monitors)}"
        )


def make_plan(
    config: Config, counts: Counts, *, encoder_corpus: Callable[[bool], CorpusSize]
) -> Plan:
    """Make the plan of a run.

    `encoder_corpus` measures what the encoder learns classes from, with or without pseudo-labels.

    Raises:
        ConfigError: there is too much text for a linear model, and no encoder.
    """
    linear_max_tokens, linear_fit = _linear(config, counts)
    has_encoder = _has_encoder(config, counts, linear_fit)
    if not has_encoder and linear_fit is None:
        raise ConfigError(
            "model.encoder=false: there is too much text for a linear model of "
            f"{counts.classes:,} classes; train the encoder, or use fewer texts"
        )

    refits_on_validation = _refits_on_validation(config, counts, linear_fit)
    if not has_encoder:
        return Plan(
            pretraining=None,
            training=None,
            linear_max_tokens=linear_max_tokens,
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
        training=_training(config, counts, encoder_corpus(has_pseudo_labels)),
        linear_max_tokens=linear_max_tokens,
        linear_fit=linear_fit,
        refits_on_validation=refits_on_validation,
        has_pseudo_labels=has_pseudo_labels,
        has_word_vectors=_has_word_vectors(config, counts),
    )


def _has_encoder(config: Config, counts: Counts, linear_fit: FitKind | None) -> bool:
    """Whether the run has an encoder: by default not with few labels among more unlabelled texts.

    A linear model learns more from these. A continued run keeps the encoder of its base run.
    """
    if config.model.encoder != "auto":
        return bool(config.model.encoder)
    return (
        linear_fit != "few_labels"
        or counts.unlabelled <= counts.labelled
        or counts.has_base_encoder
    )


def _has_word_vectors(config: Config, counts: Counts) -> bool:
    """By default, the encoder starts from word vectors where most texts have no labels.

    The others teach too little of the language, which the encoder of a base run already knows.
    """
    return (
        config.pretrain.epochs == "auto"
        and counts.unlabelled > counts.labelled
        and not counts.has_base_encoder
    )


def _refits_on_validation(config: Config, counts: Counts, linear_fit: FitKind | None) -> bool:
    if not config.train.refit_on_validation or names_validation(config):
        return False
    if linear_fit == "few_labels":
        return True

    # Keep the validation texts of a continued run apart: the report compares the run with its base
    # run on them.
    is_continued = config.from_run is not None
    return (
        linear_fit in ("plain", "many_classes") and counts.task is SINGLE_LABEL and not is_continued
    )


# The maximum numbers of tokens that a linear model may read of a text, as multiples of
# `model.max_seq_len`.
LINEAR_LENGTHS = (KEPT_PER_TOKEN, 4, 2, 1)

# The maximum number of tokens for a fit in memory. A stream learns from more tokens, and only words
# and pairs of words, because character n-grams take much memory and no longer help there.
MAX_LINEAR_TEXT = 3_000_000
# The maximum number of tokens times classes for a fit in memory, which takes minutes.
MAX_LINEAR_WORK = 200_000_000

# The maximum number of tokens for a stream, which takes 4 GB of disk. With more tokens, the linear
# model reads no more of a text than the encoder.
MAX_STREAMED_TEXT = 200_000_000
# The maximum number of tokens times classes for a stream, which takes minutes. With more, there is
# no linear model.
MAX_STREAMED_WORK = 20_000_000_000


def _linear(config: Config, counts: Counts) -> tuple[int | None, FitKind | None]:
    """Decide how many tokens of a text the linear model, if any, reads, and how it is fitted.

    It reads as much as disk and time allow, and at least as much as the encoder.
    """
    if not config.model.linear:
        return None, None

    for max_tokens, tokens in counts.linear_tokens.items():
        work = tokens * counts.classes
        kind = _fit_in_memory(config, counts)
        max_work = math.inf if kind == "many_classes" else MAX_LINEAR_WORK
        if tokens <= MAX_LINEAR_TEXT and work <= max_work:
            return max_tokens, kind

        is_shortest = max_tokens == config.model.max_seq_len
        has_room = tokens <= MAX_STREAMED_TEXT or is_shortest
        if has_room and work <= MAX_STREAMED_WORK:
            return max_tokens, "stream"
    return None, None


# The maximum number of labelled texts that count as few.
MAX_LABELLED = 2000
# So many classes are very many.
MANY_CLASSES = 200


def _fit_in_memory(config: Config, counts: Counts) -> FitKind:
    """Decide how to fit a linear model to texts that fit into memory.

    The fit to few labels needs help from unlabelled texts or class names; that of very many classes
    pays where there are too many texts for each class to learn from all.
    """
    train = config.train
    learns_from_texts = train.naive_bayes or train.lsa_dimensions > 0 or train.self_training
    has_help = train.label_names_as_texts or (learns_from_texts and counts.unlabelled > 0)
    if counts.labelled <= MAX_LABELLED and has_help and counts.task is SINGLE_LABEL:
        return "few_labels"
    if (
        counts.task is SINGLE_LABEL
        and counts.classes >= MANY_CLASSES
        and others_to_learn(counts.labelled, counts.classes) is not None
    ):
        return "many_classes"
    return "plain"


def _pretraining(config: Config, counts: Counts) -> TrainingLength | None:
    epochs = config.pretrain.epochs
    if epochs == "auto" or not epochs:
        return None
    return _training_length(config, counts.corpus, epochs)


# The number of epochs times the square root of the number of tokens. The time of the training then
# also grows with the square root of the number of tokens.
TRAINING_FACTOR = 2_750
# The minimum and the maximum number of epochs. More epochs would overfit.
TRAINING_EPOCHS = (1, 8)
# The minimum number of steps. If an epoch has only a few steps, there are more epochs.
MIN_STEPS = 300

# The epochs and the minimum steps of an encoder that starts from a base run, as a share of those of
# a new encoder.
CONTINUED_SHARE = 0.5
# The minimum and the maximum number of epochs of an encoder that starts from a base run.
CONTINUED_EPOCHS = (1, 4)


def _training(config: Config, counts: Counts, corpus: CorpusSize) -> TrainingLength:
    if config.train.epochs != "auto":
        return _training_length(config, corpus, config.train.epochs)

    share = 1.0
    min_epochs, max_epochs = TRAINING_EPOCHS
    if counts.has_base_encoder:
        share = CONTINUED_SHARE
        min_epochs, max_epochs = CONTINUED_EPOCHS
    unlimited_epochs = round(share * TRAINING_FACTOR / math.sqrt(corpus.tokens))
    epochs = min(max(unlimited_epochs, min_epochs), max_epochs)

    # Repeat the epochs until there are enough steps, and validate once in as many epochs as there
    # are repetitions: a validation after each short epoch would take long.
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
