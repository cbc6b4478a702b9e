"""Fit a linear model to few labels, with the help of texts without labels.

There are three kinds of model: the last round of self-training (`self_training`), the mean of all
its rounds, and a model of the labels alone. Cross-validation decides which of them is kept. In the
estimate of accuracy and in calibration, labelled texts are weighted so that they resemble the texts
without labels (`post_stratification`).
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from functools import partial
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from encoder_cls.config.schema import TrainConfig
from encoder_cls.linear.calibration import Calibration, calibrate
from encoder_cls.linear.corpus import FeatureCorpus
from encoder_cls.linear.effort import (
    ALL_AS_PLANNED,
    FEW_LABELS_EFFORTS,
    Effort,
    EffortChoice,
)
from encoder_cls.linear.features import CountedTexts, LabelledTexts, LinearOptions
from encoder_cls.linear.fit_progress import COUNTING_WORK, UNREPORTED, FitProgress
from encoder_cls.linear.folds import FOLDS, split_into_folds
from encoder_cls.linear.linear_model import LinearModel
from encoder_cls.linear.model_selection import (
    C_VALUES_TRIED,
    USUAL_C,
    cross_validate,
    fit_calibrated,
)
from encoder_cls.linear.nb_svm import OneVsRest
from encoder_cls.linear.post_stratification import effective_size, weights_like_pool
from encoder_cls.linear.self_training import SelfTraining
from encoder_cls.metrics.intervals import Interval, wilson_interval
from encoder_cls.metrics.logits import Logits, softmax
from encoder_cls.metrics.tasks import SINGLE_LABEL
from encoder_cls.text.tokens import TokenizedTexts

Floats = NDArray[np.float64]

# The kinds of model to choose from.
LABELS_ONLY = "labels alone"
LAST_ROUND = "self-training"
MEAN_OF_ROUNDS = "self-training, mean of its rounds"


class FewLabelsFit(NamedTuple):
    """The results of a fit to few labels, beside the linear model.

    Attributes:
        kind: the kind of model that was kept: `LABELS_ONLY`, `LAST_ROUND` or `MEAN_OF_ROUNDS`.
        accuracy_before: the out-of-fold accuracy of `LABELS_ONLY`.
        accuracy: the out-of-fold accuracy of the kind that was kept.
        interval: the 95% interval of `accuracy`.
        accuracy_with_twice: the estimated accuracy with twice as many labels; None if there are too
            few labels to extrapolate from, or too little time.
        teacher: a model that has not learned from the validation texts; None unless requested.
        rows: the labelled texts, fold by fold, with the validation texts first, (texts,).
        logits: the out-of-fold logits of the texts in `rows`, (texts, classes).
        effort: how much work the fit did.
    """

    kind: str
    accuracy_before: float
    accuracy: float
    interval: Interval
    accuracy_with_twice: float | None
    teacher: LinearModel | None
    rows: NDArray[np.int64]
    logits: Logits
    effort: Effort


# The time of a fit without the coordinates of latent semantics, relative to a fit with them.
TIME_WITHOUT_LSA = 0.6


def fit_linear_from_few_labels(
    labelled: LabelledTexts,
    names: TokenizedTexts,
    options: LinearOptions,
    *,
    config: TrainConfig,
    with_teacher: bool = False,
    effort_choice: EffortChoice = ALL_AS_PLANNED,
    efforts: Sequence[Effort] = FEW_LABELS_EFFORTS,
    progress: FitProgress = UNREPORTED,
) -> tuple[LinearModel, FewLabelsFit]:
    """Fit a linear model by self-training, or to the labels alone if that is more accurate.

    Args:
        labelled: the labelled texts of a single-label task. Of the texts without labels that follow
            them, only a sample is used. Validation texts form one fold of the cross-validation, in
            addition to the random folds of the others; the final model learns from them as well.
        names: the class names as texts, (classes,).
        options: which features of texts are used, and the weight of each class.
        config: which techniques are used.
        with_teacher: whether to also fit a model that has not learned from the validation texts.
        effort_choice: decides which effort is made.
        efforts: the efforts to choose from if the time is limited, from the most work to the least.
        progress: expects and counts the work of the fit.

    Returns:
        The linear model, and the other results of the fit.

    Raises:
        TooLittleTimeError: there is not enough time for the least effort.
    """
    corpus = FeatureCorpus(labelled, names, options, dimensions=config.lsa_dimensions)
    training = SelfTraining(corpus, config, progress)

    # Choose how much work to do, and expect it.
    validation_rows = labelled.validation_rows
    num_fits = partial(
        count_fits,
        sizes=CorpusSizes(len(labelled), len(corpus.unlabelled), len(corpus.class_weights)),
        config=config,
        num_held_out=len(validation_rows),
        with_teacher=with_teacher,
    )
    effort = effort_choice.choose(
        efforts, seconds_of_fit=training.seconds_to_fit, num_fits=num_fits
    )
    _expect_work(progress, corpus, num_fits=num_fits(effort, time_without_lsa=1))

    # Predict each labelled text by models that have not learned from it, and keep the best kind.
    cross_validation = _CrossValidation(corpus, training, effort, progress)
    folds = split_into_folds(labelled.split_groups, first=validation_rows, count=effort.num_folds)
    predictions = cross_validation.predict(folds)
    kind = predictions.best_kind()
    calibration = predictions.calibrations[kind]
    accuracy = predictions.accuracy(kind)
    accuracy_with_twice = cross_validation.accuracy_with_twice(kind, accuracy, folds)

    def fit(rows: NDArray[np.int64]) -> LinearModel:
        """Fit the kind of model that was kept to the labelled texts in these rows."""
        if kind == LABELS_ONLY:
            counted = CountedTexts.of(
                labelled.texts.take(rows), labelled.labels[rows], options, labelled.weights_of(rows)
            )
            return fit_calibrated(counted, calibration, progress)

        rounds = training.learn(rows, _unlabelled_rows(corpus, effort), effort.rounds)
        machines = _machines_by_kind(rounds)[kind].calibrated(calibration)
        return corpus.vocabulary.linear_model(machines.weights, machines.biases)

    all_rows = np.arange(len(labelled))
    linear = fit(all_rows)

    # Without validation texts, the final model is the teacher, too.
    teacher = None
    if with_teacher:
        teacher = linear
    if with_teacher and len(validation_rows):
        teacher = fit(np.setdiff1d(all_rows, validation_rows))

    num_texts = effective_size(predictions.text_weights)
    return linear, FewLabelsFit(
        kind=kind,
        accuracy_before=predictions.accuracy(LABELS_ONLY),
        accuracy=accuracy,
        interval=wilson_interval(accuracy * num_texts, num_texts),
        accuracy_with_twice=accuracy_with_twice,
        teacher=teacher,
        rows=np.concatenate(folds),
        logits=calibration.logits,
        effort=effort,
    )


def _expect_work(progress: FitProgress, corpus: FeatureCorpus, *, num_fits: float) -> None:
    """Expect the work of all fits, and report that the features of all texts are counted by now.

    Args:
        progress: expects the work. It counts all fits alike, with and without latent semantics.
        corpus: the texts.
        num_fits: the number of fits to all labelled texts.
    """
    num_machines = SINGLE_LABEL.num_one_vs_rest(len(corpus.class_weights))
    work_of_counting = COUNTING_WORK * corpus.first_name
    work_of_fits = num_machines * len(corpus.labels) * num_fits

    progress.expect(work_of_counting + work_of_fits)
    progress.expect_no_more()
    progress.add(work_of_counting)


def _unlabelled_rows(corpus: FeatureCorpus, effort: Effort) -> NDArray[np.int64]:
    """Return the rows of the texts without labels that a model learns from, increasing."""
    if effort.max_unlabelled is None:
        return corpus.unlabelled
    drawn = np.random.default_rng(0).permutation(corpus.unlabelled)
    return np.sort(drawn[: effort.max_unlabelled])


def _machines_by_kind(rounds: Sequence[OneVsRest]) -> dict[str, OneVsRest]:
    """Return the machines of the two kinds of self-training: the last round, and the mean of all.

    The kind that is kept by default comes first.
    """
    mean = OneVsRest(
        weights=np.mean([machines.weights for machines in rounds], axis=0),
        biases=np.mean([machines.biases for machines in rounds], axis=0),
    )
    return {LAST_ROUND: rounds[-1], MEAN_OF_ROUNDS: mean}


class _OutOfFoldPredictions(NamedTuple):
    """Predictions for labelled texts, each by a model that has not learned from the text.

    Attributes:
        labels: the class of each labelled text, fold by fold, (texts,).
        calibrations: the calibration of each kind of model, which holds the logits of the texts.
            The kind that is kept by default comes first.
        text_weights: the weights with which the labelled texts resemble all texts, (texts,).
    """

    labels: NDArray[np.int64]
    calibrations: Mapping[str, Calibration]
    text_weights: Floats

    def is_right(self, kind: str) -> Floats:
        """Return 1 for each text that this kind predicts correctly, else 0, (texts,)."""
        is_right: NDArray[np.bool_] = self.calibrations[kind].logits.argmax(axis=1) == self.labels
        return is_right.astype(np.float64)

    def accuracy(self, kind: str) -> float:
        """Return the weighted accuracy of this kind of model."""
        return float(np.average(self.is_right(kind), weights=self.text_weights))

    def best_kind(self) -> str:
        """Return the kind of model to keep."""
        return choose_kind({kind: self.is_right(kind) for kind in self.calibrations})


# The maximum number of texts without labels in cross-validation, and of these texts times classes.
MAX_OUT_OF_FOLD = 5000
MAX_WORK = 250_000


def _max_cross_validated(num_classes: int) -> int:
    """Return the maximum number of texts without labels that cross-validation uses."""
    return max(1, min(MAX_OUT_OF_FOLD, MAX_WORK // num_classes))


class _SelfTrainingMargins(NamedTuple):
    """The margins of texts that a model has not learned from.

    Attributes:
        labelled: those of the labelled texts, fold by fold, by kind of model, (texts, machines).
        pool: those of texts without labels in the last round, (texts, machines).
    """

    labelled: dict[str, Logits]
    pool: Logits


# The minimum number of labelled texts to extrapolate from, since half of them must be enough to
# learn something.
MIN_EXTRAPOLATED = 40


class _CrossValidation(NamedTuple):
    """Predicts labelled texts by models that have not learned from them.

    Attributes:
        corpus: the texts.
        training: fits models to the texts of the corpus.
        effort: how much work a fit does.
        progress: counts the work.
    """

    corpus: FeatureCorpus
    training: SelfTraining
    effort: Effort
    progress: FitProgress

    def predict(self, folds: Sequence[NDArray[np.int64]]) -> _OutOfFoldPredictions:
        """Predict the labelled texts of each fold by models that learn from the other folds."""
        labels = self.corpus.labels[np.concatenate(folds)]

        # Without self-training, no text without a label is predicted, so there is nothing that
        # labelled texts could be weighted by.
        if not self.effort.self_trains:
            alone = self._calibrate_labels_alone(folds)
            return _OutOfFoldPredictions(labels, {LABELS_ONLY: alone}, np.ones(len(labels)))

        margins = self._self_training_margins(folds)
        text_weights = self._weights_like_pool(margins, labels)
        calibrations = {}
        for kind, margins_of_kind in margins.labelled.items():
            calibrations[kind] = calibrate(
                margins_of_kind, labels, self.corpus.class_weights, text_weights
            )
        alone = self._calibrate_labels_alone(folds, text_weights)

        # Without unlabelled texts, self-training has only one round, whose mean is the round
        # itself. Then the model of the labels alone is the default.
        if len(self.corpus.unlabelled):
            calibrations[LABELS_ONLY] = alone
        else:
            calibrations = {LABELS_ONLY: alone, LAST_ROUND: calibrations[LAST_ROUND]}
        return _OutOfFoldPredictions(labels, calibrations, text_weights)

    def _calibrate_labels_alone(
        self, folds: Sequence[NDArray[np.int64]], text_weights: Floats | None = None
    ) -> Calibration:
        """Cross-validate the model of the labels alone, and calibrate it.

        Args:
            folds: the rows of the labelled texts of each fold.
            text_weights: the weight of each labelled text in the calibration, fold by fold,
                (texts,); by default all texts count alike.
        """
        # By default, all values of C are tried.
        c_values: Sequence[float] = ()
        if not self.effort.tries_all_c_values:
            c_values = [USUAL_C[SINGLE_LABEL]]
        return cross_validate(
            self.corpus.labelled(),
            folds,
            c_values,
            text_weights=text_weights,
            progress=self.progress,
        )

    def _self_training_margins(self, folds: Sequence[NDArray[np.int64]]) -> _SelfTrainingMargins:
        """Predict the texts of each fold by self-training on the other folds."""
        corpus = self.corpus

        # Hold a part of the texts without labels out with each fold, to measure how sure a model is
        # of texts that it has not learned from. At least `FOLDS` parts keep each of them small.
        max_texts = _max_cross_validated(len(corpus.class_weights))
        drawn = np.random.default_rng(0).permutation(_unlabelled_rows(corpus, self.effort))
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
            for kind, machines in _machines_by_kind(rounds).items():
                margins[kind].append(machines.margins(corpus.unseen_features[fold]))
            pool_margins.append(rounds[-1].margins(corpus.features[pool_part]))

        return _SelfTrainingMargins(
            labelled={kind: np.concatenate(parts) for kind, parts in margins.items()},
            pool=np.concatenate(pool_margins),
        )

    def _weights_like_pool(
        self, margins: _SelfTrainingMargins, labels: NDArray[np.int64]
    ) -> Floats:
        """Weight labelled texts by how sure a model is of them, so that they resemble all texts.

        The model is that of the last round, whose calibration for this purpose has no weights.
        """
        calibration = calibrate(margins.labelled[LAST_ROUND], labels, self.corpus.class_weights)
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
        """Estimate the accuracy with twice as many labels from the accuracy with half of them.

        Args:
            kind: the kind of model.
            accuracy: its out-of-fold accuracy with these folds.
            folds: the rows of the labelled texts of each fold.

        Returns:
            None if there are too few labels to extrapolate from, or too little time.
        """
        num_labels = len(self.corpus.labels)
        if not self.effort.extrapolates or num_labels < MIN_EXTRAPOLATED or len(folds) <= 2:
            return None

        # The model of each half predicts the other half.
        halves = [np.concatenate(folds[::2]), np.concatenate(folds[1::2])]
        accuracy_with_half = self.predict(halves).accuracy(kind)

        # In a cross-validation of k folds, a model learns from 1 - 1 / k of the labels, which is
        # 2 - 2 / k times as many as a half.
        return extrapolate_accuracy(accuracy, accuracy_with_half, times=2 - 2 / len(folds))


def leads(logits: Logits) -> Floats:
    """Return how much more probable the best class of each text is than the second best, (texts,).

    `suggest` chooses texts by the same number.
    """
    ascending = np.sort(softmax(logits), axis=1)
    lead: Floats = ascending[:, -1] - ascending[:, -2]
    return lead


# By how many standard errors another kind must be more accurate than the default.
STANDARD_ERRORS = 1.0


def choose_kind(right_by_kind: Mapping[str, Floats]) -> str:
    """Choose the default kind of model, unless another kind is better by more than chance.

    Args:
        right_by_kind: for each kind of model, 1 for each text that it predicts correctly, else 0,
            (texts,). The default comes first.

    Returns:
        The most accurate of the kinds that are better than the default by `STANDARD_ERRORS`; the
        default if there is none.
    """
    default = next(iter(right_by_kind))
    best = default
    largest_gain = 0.0
    for kind, is_right in right_by_kind.items():
        gains = is_right - right_by_kind[default]
        standard_error = gains.std() / np.sqrt(len(gains))
        if gains.mean() > max(largest_gain, STANDARD_ERRORS * standard_error):
            best = kind
            largest_gain = gains.mean()
    return best


# Smaller errors count as this one, so that no ratio divides by zero.
MIN_ERROR = 1e-3


def extrapolate_accuracy(
    accuracy: float, accuracy_with_fewer: float, *, times: float = 2.0
) -> float:
    """Extrapolate an accuracy to twice as many labels; the result is never lower.

    Errors are assumed to fall as a power of the number of labels (Hestness et al., "Deep Learning
    Scaling is Predictable, Empirically", 2017, https://arxiv.org/abs/1712.00409).

    Args:
        accuracy: the accuracy with all labels.
        accuracy_with_fewer: the accuracy with fewer labels.
        times: the ratio of the two numbers of labels, above 1.
    """
    error = 1 - accuracy
    ratio = max(error, MIN_ERROR) / max(1 - accuracy_with_fewer, MIN_ERROR)

    # The factor by which the error falls when the number of labels doubles.
    factor = math.pow(min(1.0, ratio), math.log(2, times))
    return 1 - error * factor


class CorpusSizes(NamedTuple):
    """The amounts of texts that the work of a fit depends on.

    Attributes:
        labelled: the number of labelled texts.
        unlabelled: the number of texts without labels.
        classes: the number of classes.
    """

    labelled: int
    unlabelled: int
    classes: int


def count_fits(
    effort: Effort,
    sizes: CorpusSizes,
    config: TrainConfig,
    *,
    num_held_out: int,
    with_teacher: bool,
    time_without_lsa: float = TIME_WITHOUT_LSA,
) -> float:
    """Compute the work of an effort, in fits to all labelled texts.

    The time of a fit is proportional to the number of texts: a fit to half of the labelled texts
    counts as half a fit.

    Args:
        effort: the effort to estimate.
        sizes: the numbers of texts and classes.
        config: which techniques are used.
        num_held_out: the number of labelled validation texts, which form one more fold of the
            cross-validation; 0 if there is no such fold.
        with_teacher: whether a model that has not learned from the validation texts is needed, too.
        time_without_lsa: the time of a fit without the coordinates of latent semantics, relative
            to a fit with them; 1 counts fits rather than their time.
    """
    num_folds = effort.num_folds
    if num_held_out:
        num_folds += 1
    share_learned = 1 - 1 / num_folds

    # The final model, and the teacher. Without validation texts, one model is both.
    num_final = 1
    if with_teacher and num_held_out:
        num_final = 2

    # The labels alone: a fit for each value of C in each fold.
    num_c_values = 1
    if effort.tries_all_c_values:
        num_c_values = C_VALUES_TRIED
    fits = time_without_lsa * num_c_values * num_folds * share_learned
    if not effort.self_trains:
        return fits + time_without_lsa * num_final

    num_unlabelled = sizes.unlabelled
    if effort.max_unlabelled is not None:
        num_unlabelled = min(num_unlabelled, effort.max_unlabelled)
    num_cross_validated = min(num_unlabelled, _max_cross_validated(sizes.classes))

    rounds = effort.rounds
    if not config.self_training or num_unlabelled == 0:
        rounds = ()

    # Self-training: a fit to labelled texts, then a fit in each round to labelled texts and a share
    # of the unlabelled ones.
    def fits_of_rounds(share_labelled: float, num_unlabelled: int) -> float:
        labelled_fits = (1 + len(rounds)) * share_labelled
        unlabelled_fits = sum(rounds) * num_unlabelled / sizes.labelled
        return labelled_fits + unlabelled_fits

    fits += num_folds * fits_of_rounds(share_learned, num_cross_validated)
    if effort.extrapolates:
        fits += 2 * fits_of_rounds(0.5, num_cross_validated)
    return fits + num_final * fits_of_rounds(1.0, num_unlabelled)
