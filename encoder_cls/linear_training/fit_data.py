"""What the linear model of a run is fitted to, and what the fit gives."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from functools import cached_property
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from encoder_cls.config.schema import TrainConfig
from encoder_cls.data.dataset import Dataset, relative_weights
from encoder_cls.linear.linear_model import LinearModel
from encoder_cls.linear_training.cost import PLANNED, Effort, FitKind, LinearWork
from encoder_cls.linear_training.features import LabelledTexts, LinearOptions
from encoder_cls.linear_training.few_labels import FewLabelsFit
from encoder_cls.linear_training.stream import StreamFit
from encoder_cls.metrics.log_loss import surely_lowers_the_loss
from encoder_cls.metrics.logits import Logits
from encoder_cls.metrics.row_groups import RowGroups
from encoder_cls.metrics.tasks import task_of
from encoder_cls.text.tokens import TokenizedTexts

# A model surely predicts better if its mean loss on the validation texts is lower by more than this
# number of standard errors, and if these texts are in at least so many groups.
STANDARD_ERRORS = 2.0
MIN_COMPARED = 50


@dataclass(frozen=True, kw_only=True)
class FitData:
    """What the linear model of a run is fitted to, and how.

    Attributes:
        texts: the training texts, then the unlabelled ones.
        validation_texts: those of `dataset.known_validation`.
        tokenize: reads the texts of several collections.
        with_teacher: whether an encoder learns predictions for unlabelled texts.
    """

    kind: FitKind
    dataset: Dataset
    texts: TokenizedTexts
    validation_texts: TokenizedTexts
    tokenize: Callable[..., TokenizedTexts]
    options: LinearOptions
    config: TrainConfig
    refits_on_validation: bool
    with_teacher: bool

    @cached_property
    def train(self) -> LabelledTexts:
        """The training texts."""
        train = self.dataset.train
        return LabelledTexts(
            texts=self.texts[: len(train)],
            labels=train.labels,
            split_groups=train.split_groups,
            weights=relative_weights(train),
        )

    @cached_property
    def validation(self) -> LabelledTexts:
        """The validation texts, all of which count alike."""
        validation = self.dataset.known_validation
        return LabelledTexts(
            texts=self.validation_texts,
            labels=validation.labels,
            split_groups=validation.split_groups,
        )

    @cached_property
    def train_and_unlabelled(self) -> LabelledTexts:
        """Training, then unlabelled texts."""
        return replace(self.train, texts=self.texts)

    def train_and_validation(self, unlabelled: Iterable[str] = ()) -> LabelledTexts:
        """Training, then validation, then unlabelled texts."""
        train = self.dataset.train
        validation = self.dataset.known_validation
        return LabelledTexts(
            texts=self.tokenize(train.texts, validation.texts, unlabelled),
            labels=np.concatenate([train.labels, validation.labels]),
            split_groups=np.concatenate([train.split_groups, validation.split_groups]),
            weights=relative_weights(train, validation),
            validation_rows=len(train) + np.arange(len(validation)),
        )

    @property
    def num_classifiers(self) -> int:
        """The number of binary classifiers of the model."""
        return task_of(self.train.labels).num_one_vs_rest(len(self.options.class_weights))

    @property
    def has_enough_validation(self) -> bool:
        """Whether there are enough validation texts to show that a model is surely better."""
        return RowGroups(self.validation.split_groups).num_groups >= MIN_COMPARED

    def is_better(self, fit: LinearFit, other: LinearFit) -> bool:
        """Whether a fit predicts the validation texts better than another."""
        return self._lowers_the_loss(fit, other, standard_errors=0)

    def is_surely_better(self, fit: LinearFit, other: LinearFit) -> bool:
        """Whether a fit predicts enough validation texts surely better than another."""
        return self.has_enough_validation and self._lowers_the_loss(
            fit, other, standard_errors=STANDARD_ERRORS
        )

    def _lowers_the_loss(self, fit: LinearFit, other: LinearFit, *, standard_errors: float) -> bool:
        return surely_lowers_the_loss(
            other.validation_logits(self),
            fit.validation_logits(self),
            self.validation.labels,
            RowGroups(self.validation.split_groups),
            standard_errors=standard_errors,
        )


class HeldOutLogits(NamedTuple):
    """Predictions by a model that has not learned from the texts.

    Attributes:
        rows: the training texts are numbered first, then the validation texts.
        logits: (texts, classes).
        familiarity_features: (texts, features).
    """

    rows: NDArray[np.int64]
    logits: Logits
    familiarity_features: NDArray[np.float64]


class LinearFit(NamedTuple):
    """The linear model of a run, and how it was fitted.

    Attributes:
        held_out: from before the final fit; None if that has no validation texts.
        uses_words_alone: whether character n-grams were left out, since that was surely better.
        is_surely_better_than_planned: whether the planned fit was made, too, and is not kept.
    """

    linear: LinearModel
    effort: Effort = PLANNED
    held_out: HeldOutLogits | None = None
    few_labels: FewLabelsFit | None = None
    stream: StreamFit | None = None
    uses_words_alone: bool = False
    is_surely_better_than_planned: bool = False

    def validation_logits(self, data: FitData) -> Logits:
        """Predictions for the validation texts, by a model that has not learned from them."""
        if self.held_out is None:
            return self.linear.logits(data.validation_texts)
        is_validation = self.held_out.rows >= len(data.train)
        return self.held_out.logits[is_validation]

    @property
    def work(self) -> LinearWork:
        """The work of the fit, by which a resumed run repeats it."""
        if self.stream is None:
            return LinearWork(self.effort.key)
        return LinearWork(self.effort.key, self.stream.work, self.stream.num_unread)
