"""Predict few labelled texts out of fold by each kind of model, and choose the kind to keep.

Texts are weighted so that they resemble those without labels (`post_stratification`).
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from encoder_cls.linear_training.calibration import Calibration, calibrate
from encoder_cls.linear_training.corpus import FeatureCorpus
from encoder_cls.linear_training.cost import Effort, max_cross_validated
from encoder_cls.linear_training.folds import FOLDS
from encoder_cls.linear_training.model_selection import USUAL_C, cross_validate
from encoder_cls.linear_training.nb_svm import OneVsRest
from encoder_cls.linear_training.post_stratification import effective_size, weights_like_pool
from encoder_cls.linear_training.self_training import SelfTraining
from encoder_cls.metrics.logits import Logits, softmax
from encoder_cls.metrics.row_groups import RowGroups
from encoder_cls.metrics.tasks import SINGLE_LABEL

Floats = NDArray[np.float64]

# The kinds of model to choose from.
LABELS_ONLY = "labels alone"
LAST_ROUND = "self-training"
MEAN_OF_ROUNDS = "self-training, mean of its rounds"


def classifiers_by_kind(rounds: Sequence[OneVsRest]) -> dict[str, OneVsRest]:
    """The last round of self-training, the default, and the mean of all."""
    mean = OneVsRest(
        weights=np.mean([classifiers.weights for classifiers in rounds], axis=0),
        biases=np.mean([classifiers.biases for classifiers in rounds], axis=0),
    )
    return {LAST_ROUND: rounds[-1], MEAN_OF_ROUNDS: mean}


def unlabelled_rows(corpus: FeatureCorpus, effort: Effort) -> NDArray[np.int64]:
    """The rows of the unlabelled texts to learn from, increasing."""
    if effort.max_unlabelled is None:
        return corpus.unlabelled
    drawn = np.random.default_rng(0).permutation(corpus.unlabelled)
    return np.sort(drawn[: effort.max_unlabelled])


class OutOfFoldPredictions(NamedTuple):
    """Predictions, fold by fold, by models that have not learned from the texts.

    Attributes:
        calibrations: by kind of model, with logits; the default kind comes first.
        text_weights: with which the labelled texts resemble all texts.
    """

    labels: NDArray[np.int64]
    calibrations: Mapping[str, Calibration]
    text_weights: Floats
    groups: RowGroups

    def is_right(self, kind: str) -> Floats:
        """Which texts this kind predicts correctly: 1, else 0, (texts,)."""
        is_right: NDArray[np.bool_] = self.calibrations[kind].logits.argmax(axis=1) == self.labels
        return is_right.astype(np.float64)

    def accuracy(self, kind: str) -> float:
        """The weighted accuracy of this kind."""
        return float(np.average(self.is_right(kind), weights=self.text_weights))

    def best_kind(self) -> str:
        """The kind of model to keep."""
        return choose_kind({kind: self.is_right(kind) for kind in self.calibrations}, self.groups)

    def num_independent(self, kind: str) -> float:
        """How many independent, equally weighted texts the accuracy is worth."""
        share = self.groups.effective_number(self.is_right(kind)) / self.groups.num_rows
        return effective_size(self.text_weights) * share


class _SelfTrainingMargins(NamedTuple):
    """The margins of texts that a model has not learned from, each (texts, classifiers).

    Attributes:
        labelled: fold by fold, by kind of model.
        pool: of unlabelled texts, in the last round.
    """

    labelled: dict[str, Logits]
    pool: Logits


# The minimum number of labelled texts to extrapolate from, since half of them must be enough to
# learn something.
MIN_EXTRAPOLATED = 40


class CrossValidation(NamedTuple):
    """Predicts labelled texts by models that have not learned from them."""

    corpus: FeatureCorpus
    training: SelfTraining
    effort: Effort

    def predict(self, folds: Sequence[NDArray[np.int64]]) -> OutOfFoldPredictions:
        """Predict the texts of each fold by models of the others."""
        rows = np.concatenate(folds)
        labels = self.corpus.labels[rows]
        groups = self.corpus.groups.subset(rows)

        # Without self-training, no text without a label is predicted, so there is nothing that
        # labelled texts could be weighted by.
        if not self.effort.self_trains:
            alone = self._calibrate_labels_alone(folds)
            return OutOfFoldPredictions(labels, {LABELS_ONLY: alone}, np.ones(len(labels)), groups)

        margins = self._self_training_margins(folds)
        text_weights = self._weights_like_pool(margins, labels, groups)
        calibrations = {}
        for kind, margins_of_kind in margins.labelled.items():
            calibrations[kind] = calibrate(
                margins_of_kind, labels, self.corpus.class_weights, groups, text_weights
            )
        alone = self._calibrate_labels_alone(folds, text_weights)

        # Without unlabelled texts, self-training has only one round, whose mean is the round
        # itself. Then the model of the labels alone is the default.
        if len(self.corpus.unlabelled):
            calibrations[LABELS_ONLY] = alone
        else:
            calibrations = {LABELS_ONLY: alone, LAST_ROUND: calibrations[LAST_ROUND]}
        return OutOfFoldPredictions(labels, calibrations, text_weights, groups)

    def _calibrate_labels_alone(
        self, folds: Sequence[NDArray[np.int64]], text_weights: Floats | None = None
    ) -> Calibration:
        # By default, all values of C are tried.
        c_values: Sequence[float] = ()
        if not self.effort.tries_all_c_values:
            c_values = [USUAL_C[SINGLE_LABEL]]
        return cross_validate(
            self.corpus.labelled(),
            folds,
            c_values,
            groups=self.corpus.groups,
            text_weights=text_weights,
        )

    def _self_training_margins(self, folds: Sequence[NDArray[np.int64]]) -> _SelfTrainingMargins:
        corpus = self.corpus

        # Hold a part of the texts without labels out with each fold, to measure how sure a model is
        # of texts that it has not learned from. At least `FOLDS` parts keep each of them small.
        max_texts = max_cross_validated(len(corpus.class_weights))
        drawn = np.random.default_rng(0).permutation(unlabelled_rows(corpus, self.effort))
        unlabelled = drawn[:max_texts]
        pool_parts = np.array_split(unlabelled, max(FOLDS, len(folds)))[: len(folds)]

        margins: dict[str, list[Logits]] = {LAST_ROUND: [], MEAN_OF_ROUNDS: []}
        pool_margins = []
        for fold, pool_part in zip(folds, pool_parts, strict=True):
            rounds = self.training.learn(
                np.setdiff1d(np.arange(len(corpus.labels)), fold),
                np.setdiff1d(unlabelled, pool_part),
                self.effort.rounds,
            )
            for kind, classifiers in classifiers_by_kind(rounds).items():
                margins[kind].append(classifiers.margins(corpus.unseen_features[fold]))
            pool_margins.append(rounds[-1].margins(corpus.features[pool_part]))

        return _SelfTrainingMargins(
            labelled={kind: np.concatenate(parts) for kind, parts in margins.items()},
            pool=np.concatenate(pool_margins),
        )

    def _weights_like_pool(
        self, margins: _SelfTrainingMargins, labels: NDArray[np.int64], groups: RowGroups
    ) -> Floats:
        """Weight labelled texts by how sure the model of the last round is of them."""
        calibration = calibrate(
            margins.labelled[LAST_ROUND], labels, self.corpus.class_weights, groups
        )
        scaled = margins.pool * calibration.scale + calibration.shift
        pool_logits = SINGLE_LABEL.margins_to_logits(scaled.astype(np.float32))
        return weights_like_pool(
            leads(calibration.logits),
            leads(pool_logits),
            pool_size=len(self.corpus.unlabelled),
        )

    def accuracy_with_twice(
        self, kind: str, accuracy: float, folds: Sequence[NDArray[np.int64]]
    ) -> float | None:
        """Estimate the accuracy with twice as many labels from that with half of them.

        None where there are too few labels, or too little time.
        """
        num_labels = len(self.corpus.labels)
        if not self.effort.extrapolates or num_labels < MIN_EXTRAPOLATED or len(folds) <= 2:
            return None

        # The model of each half predicts the other half.
        halves = [np.concatenate(folds[::2]), np.concatenate(folds[1::2])]
        accuracy_with_half = self.predict(halves).accuracy(kind)

        # In a cross-validation of k folds, a model learns from 1 - 1 / k of the labels, which is
        # 2 - 2 / k times as many as a half.
        return extrapolate_accuracy(accuracy, accuracy_with_half, label_factor=2 - 2 / len(folds))


def leads(logits: Logits) -> Floats:
    """How much more probable the best class of each text is than the second best."""
    ascending = np.sort(softmax(logits), axis=1)
    lead: Floats = ascending[:, -1] - ascending[:, -2]
    return lead


# By how many standard errors another kind must be more accurate than the default.
STANDARD_ERRORS = 1.0


def choose_kind(right_by_kind: Mapping[str, Floats], groups: RowGroups) -> str:
    """Choose the default kind, which comes first, unless another one is better beyond chance.

    Of the kinds that are better by `STANDARD_ERRORS`, the most accurate is chosen.
    """
    default = next(iter(right_by_kind))
    best = default
    largest_gain = 0.0
    for kind, is_right in right_by_kind.items():
        gains = is_right - right_by_kind[default]
        standard_error = gains.std() / np.sqrt(groups.effective_number(gains))
        if gains.mean() > max(largest_gain, STANDARD_ERRORS * standard_error):
            best = kind
            largest_gain = gains.mean()
    return best


# Smaller errors count as this one, so that no ratio divides by zero.
MIN_ERROR = 1e-3


def extrapolate_accuracy(
    accuracy: float, accuracy_with_fewer: float, *, label_factor: float = 2.0
) -> float:
    """Extrapolate an accuracy to twice as many labels; the result is never lower.

    `accuracy` is that with `label_factor` times as many labels as `accuracy_with_fewer`. Errors are
    assumed to fall as a power of the number of labels (Hestness et al., "Deep Learning Scaling is
    Predictable, Empirically", 2017, https://arxiv.org/abs/1712.00409).
    """
    error = 1 - accuracy
    ratio = max(error, MIN_ERROR) / max(1 - accuracy_with_fewer, MIN_ERROR)

    # The factor by which the error falls when the number of labels doubles.
    factor = math.pow(min(1.0, ratio), math.log(2, label_factor))
    return 1 - error * factor
