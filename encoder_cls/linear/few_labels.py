"""Fit a linear model to few labels, with the help of texts without labels.

Out-of-fold predictions decide between three kinds of model: self-training (`self_training`),
the mean of its rounds, and one of the labels alone. Labelled texts are weighted so that they
resemble the texts without labels (`pool_weights`), in the estimate of accuracy and in calibration.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from encoder_cls.config.schema import TrainConfig
from encoder_cls.linear.calibration import Calibration, calibrate
from encoder_cls.linear.corpus import FeatureCorpus
from encoder_cls.linear.effort import (
    ALL_AS_PLANNED,
    C_VALUES_TRIED,
    FEW_LABELS_EFFORTS,
    PLANNED,
    Effort,
    EffortChoice,
)
from encoder_cls.linear.features import CountedTexts, LinearOptions
from encoder_cls.linear.folds import FOLDS, NO_TEXTS, split_into_folds
from encoder_cls.linear.linear_model import LinearModel
from encoder_cls.linear.nb_svm import USUAL_C, OneVsRest, cross_validate, fit_linear
from encoder_cls.linear.post_stratification import effective_size, weights_like_pool
from encoder_cls.linear.self_training import SelfTraining
from encoder_cls.metrics.intervals import Interval, wilson_interval
from encoder_cls.metrics.logits import SINGLE_LABEL, Logits, softmax
from encoder_cls.text.tokens import TokenizedTexts

Floats = NDArray[np.float64]

# The kinds of model to choose from.
ALONE = "labels alone"
LAST = "self-training"
MEAN = "self-training, mean of its rounds"


class FewLabels(NamedTuple):
    """What the fit to few labels has found.

    Attributes:
        kept: the kind that was kept: `ALONE`, `LAST` or `MEAN`.
        accuracy_before: the out-of-fold accuracy of `ALONE`.
        accuracy: the out-of-fold accuracy of the kind that was kept.
        interval: the 95% interval of this accuracy.
        accuracy_with_twice: the accuracy with twice as many labels; None with too few to
            extrapolate from.
        teacher: on request, a model that has not learned from `held_out`.
        rows: the labelled texts, those `held_out` first.
        logits: the out-of-fold logits of these.
        effort: how much work the fit did.
    """

    kept: str
    accuracy_before: float
    accuracy: float
    interval: Interval
    accuracy_with_twice: float | None
    teacher: LinearModel | None
    rows: NDArray[np.int64]
    logits: Logits
    effort: Effort = PLANNED


# The fewest labelled texts to extrapolate from: half of them must still teach something.
MIN_EXTRAPOLATED = 40


def fit_linear_from_few_labels(  # noqa: PLR0913 - data, and what is wanted of it
    texts: TokenizedTexts,
    labels: NDArray[np.int64],
    names: TokenizedTexts,
    options: LinearOptions,
    *,
    config: TrainConfig,
    split_groups: NDArray[np.int64],
    held_out: NDArray[np.int64] = NO_TEXTS,
    with_teacher: bool = False,
    effort_choice: EffortChoice = ALL_AS_PLANNED,
) -> tuple[LinearModel, FewLabels]:
    """Fit a linear model by self-training, unless the labels alone are more accurate.

    Args:
        texts: those with labels, then those without, which are sampled.
        labels: of the first texts.
        names: the class names as texts.
        options: what is read of texts, and the weight of each class.
        config: which techniques are used.
        split_groups: the group of each labelled text, as in `split_into_folds`.
        held_out: labelled texts that are one fold of the cross-validation.
        with_teacher: also fit a model that has not learned from the texts held out.
        effort_choice: which of the `FEW_LABELS_EFFORTS` is made.

    Raises:
        TooLittleTimeError: there is not enough time for the least effort.
    """
    corpus = FeatureCorpus(texts, labels, names, options, dimensions=config.lsa_dimensions)
    training = SelfTraining(corpus, config)
    needs_teacher = with_teacher and len(held_out) > 0

    def num_fits(effort: Effort) -> float:
        return count_fits(
            effort, corpus, config, num_held_out=len(held_out), with_teacher=needs_teacher
        )

    effort = effort_choice.choose(
        FEW_LABELS_EFFORTS, seconds_of_fit=training.seconds_to_fit, num_fits=num_fits
    )

    # Predict each labelled text by models that have not learned from it. Keep the best kind.
    folds = split_into_folds(split_groups, first=held_out, count=effort.num_folds)
    predictions = _predict_out_of_fold(training, corpus, effort, folds)
    kept = predictions.best_kind()
    calibration = predictions.calibrations[kept]
    accuracy = predictions.accuracy(kept)

    # Estimate the accuracy with twice as many labels, by that with fewer labels.
    accuracy_with_twice = None
    if effort.extrapolates and len(labels) >= MIN_EXTRAPOLATED and len(folds) > 2:
        # A model of half of the labels predicts the other half.
        halves = [np.concatenate(folds[::2]), np.concatenate(folds[1::2])]
        with_fewer = _predict_out_of_fold(training, corpus, effort, halves).accuracy(kept)
        accuracy_with_twice = extrapolate_accuracy(accuracy, with_fewer, times=2 - 2 / len(folds))

    def fit(rows: NDArray[np.int64]) -> LinearModel:
        """Fit the kind that was kept to some of the labelled texts."""
        if kept == ALONE:
            counted = CountedTexts.of(texts.take(rows), labels[rows], options)
            linear, _ = fit_linear(counted, calibration=calibration)
            return linear

        rounds = training.learn(rows, _unlabelled_rows(corpus, effort), effort.rounds)
        machines = _machines_by_kind(rounds)[kept].calibrated(calibration)
        return corpus.vocabulary.linear_model(machines.weights, machines.biases)

    all_rows = np.arange(len(labels))
    linear = fit(all_rows)

    # Without texts held out, the model is its own teacher.
    teacher = None
    if with_teacher:
        teacher = linear
    if needs_teacher:
        teacher = fit(np.setdiff1d(all_rows, held_out))

    num_texts = effective_size(predictions.text_weights)
    return linear, FewLabels(
        kept=kept,
        accuracy_before=predictions.accuracy(ALONE),
        accuracy=accuracy,
        interval=wilson_interval(accuracy * num_texts, num_texts),
        accuracy_with_twice=accuracy_with_twice,
        teacher=teacher,
        rows=np.concatenate(folds),
        logits=calibration.logits,
        effort=effort,
    )


def _unlabelled_rows(corpus: FeatureCorpus, effort: Effort) -> NDArray[np.int64]:
    """The rows of the texts without labels that a model learns from."""
    if effort.most_unlabelled is None:
        return corpus.unlabelled
    drawn = np.random.default_rng(0).permutation(corpus.unlabelled)
    return np.sort(drawn[: effort.most_unlabelled])


def _machines_by_kind(rounds: Sequence[OneVsRest]) -> dict[str, OneVsRest]:
    """Join the machines of all rounds in two ways; the default comes first."""
    mean = OneVsRest(
        weights=np.mean([machines.weights for machines in rounds], axis=0),
        biases=np.mean([machines.biases for machines in rounds], axis=0),
    )
    return {LAST: rounds[-1], MEAN: mean}


class _OutOfFold(NamedTuple):
    """Predictions for labelled texts, by models that have not learned from them.

    Attributes:
        labels: the labels of the texts, in the order of the folds.
        calibrations: by kind of model, with the logits of these texts; the default comes
            first.
        text_weights: the weights with which these texts resemble all texts.
    """

    labels: NDArray[np.int64]
    calibrations: Mapping[str, Calibration]
    text_weights: Floats

    def is_right(self, kind: str) -> Floats:
        """1 for each text with a correct prediction, else 0, (texts,)."""
        is_right: NDArray[np.bool_] = self.calibrations[kind].logits.argmax(axis=1) == self.labels
        return is_right.astype(np.float64)

    def accuracy(self, kind: str) -> float:
        """The weighted accuracy of a kind."""
        return float(np.average(self.is_right(kind), weights=self.text_weights))

    def best_kind(self) -> str:
        """The kind to keep."""
        return choose_kind({kind: self.is_right(kind) for kind in self.calibrations})


# The most texts without labels in a fold of the cross-validation, and the most of them times
# classes.
MAX_OUT_OF_FOLD = 5000
MAX_WORK = 250_000


def _most_cross_validated(num_classes: int) -> int:
    """The most texts without labels that each fold of the cross-validation learns from."""
    return max(1, min(MAX_OUT_OF_FOLD, MAX_WORK // num_classes))


def _predict_out_of_fold(
    training: SelfTraining,
    corpus: FeatureCorpus,
    effort: Effort,
    folds: Sequence[NDArray[np.int64]],
) -> _OutOfFold:
    """Predict the labelled texts of each fold by models of the other folds."""
    labels = corpus.labels[np.concatenate(folds)]
    class_weights = corpus.class_weights
    c_values: Sequence[float] = ()
    if not effort.tries_all_c_values:
        c_values = [USUAL_C[SINGLE_LABEL]]

    # Without self-training, texts without labels are not predicted: all texts count alike.
    if not effort.self_trains:
        alone = cross_validate(corpus.labelled(), folds, c_values)
        return _OutOfFold(labels, {ALONE: alone}, np.ones(len(labels)))

    # With each fold, a part of the texts without labels is held out: the pool.
    most = _most_cross_validated(len(class_weights))
    unlabelled = np.random.default_rng(0).permutation(_unlabelled_rows(corpus, effort))[:most]
    pools = np.array_split(unlabelled, max(FOLDS, len(folds)))[: len(folds)]

    margins: dict[str, list[Logits]] = {LAST: [], MEAN: []}
    pool_margins = []
    for fold, pool in zip(folds, pools, strict=True):
        labelled_rows = np.setdiff1d(np.arange(len(corpus.labels)), fold)
        rounds = training.learn(labelled_rows, np.setdiff1d(unlabelled, pool), effort.rounds)
        for kind, machines in _machines_by_kind(rounds).items():
            margins[kind].append(machines.margins(corpus.unseen_features[fold]))
        pool_margins.append(rounds[-1].margins(corpus.features[pool]))

    # Weight the labelled texts by the confidence of the default, as it is without weights.
    unweighted = calibrate(np.concatenate(margins[LAST]), labels, class_weights)
    scaled = np.concatenate(pool_margins) * unweighted.scale + unweighted.shift
    pool_logits = SINGLE_LABEL.margins_to_logits(scaled.astype(np.float32))
    text_weights = weights_like_pool(
        leads(unweighted.logits), leads(pool_logits), pool_size=len(corpus.unlabelled)
    )

    calibrations = {}
    for kind, margins_of_folds in margins.items():
        all_margins = np.concatenate(margins_of_folds)
        calibrations[kind] = calibrate(all_margins, labels, class_weights, text_weights)
    alone = cross_validate(corpus.labelled(), folds, c_values, text_weights=text_weights)

    # Without a text to guess, there is a single round, and the labels alone are the default.
    if not len(unlabelled):
        return _OutOfFold(labels, {ALONE: alone, LAST: calibrations[LAST]}, text_weights)
    return _OutOfFold(labels, {**calibrations, ALONE: alone}, text_weights)


def leads(logits: Logits) -> Floats:
    """How much more probable the best class of each text is than the next, (texts,).

    `suggest` chooses texts by it.
    """
    ascending = np.sort(softmax(logits), axis=1)
    lead: Floats = ascending[:, -1] - ascending[:, -2]
    return lead


# The standard errors by which another kind must be more accurate than the default.
STANDARD_ERRORS = 1.0


def choose_kind(right_by_kind: Mapping[str, Floats]) -> str:
    """Choose a kind of model: the default, unless one is better by more than chance explains.

    Args:
        right_by_kind: for each kind, 1 where a prediction is correct, else 0, (texts,); the
            default comes first.

    Returns:
        The most accurate of the better kinds, else the default.
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


# The least error, whose logarithm is finite.
MIN_ERROR = 1e-3


def extrapolate_accuracy(accuracy: float, with_fewer: float, *, times: float = 2.0) -> float:
    """Extrapolate accuracy to twice as many labels; it never falls.

    Errors fall as a power of the number of labels (Hestness et al., "Deep Learning Scaling is
    Predictable, Empirically", 2017, https://arxiv.org/abs/1712.00409).

    Args:
        accuracy: that with all labels.
        with_fewer: that with fewer labels.
        times: how many times fewer these are.
    """
    error = 1 - accuracy
    ratio = max(error, MIN_ERROR) / max(1 - with_fewer, MIN_ERROR)

    # The factor by which the error falls where labels are doubled.
    factor = math.pow(min(1.0, ratio), math.log(2, times))
    return 1 - error * factor


# The time of a fit without coordinates of latent semantics, relative to one with these.
TIME_ALONE = 0.6


def count_fits(
    effort: Effort,
    corpus: FeatureCorpus,
    config: TrainConfig,
    *,
    num_held_out: int,
    with_teacher: bool,
) -> float:
    """Compute the work of an effort, in fits to all labelled texts.

    Time grows with the texts, so a fit to some of them is a part of a fit, and parts add up.

    Args:
        effort: whose work is wanted.
        corpus: the texts.
        config: which techniques are used.
        num_held_out: the labelled texts that are one more fold of the cross-validation.
        with_teacher: whether a model that has not learned from these is fitted as well.
    """
    num_labelled = len(corpus.labels)
    num_folds = effort.num_folds
    if num_held_out:
        num_folds += 1
    share_learned = 1 - 1 / num_folds

    # The final model, and its teacher.
    num_final = 1
    if with_teacher:
        num_final = 2

    # The labels alone: each penalty in each fold.
    num_penalties = 1
    if effort.tries_all_c_values:
        num_penalties = C_VALUES_TRIED
    fits = TIME_ALONE * num_penalties * num_folds * share_learned
    if not effort.self_trains:
        return fits + TIME_ALONE * num_final

    num_unlabelled = len(corpus.unlabelled)
    if effort.most_unlabelled is not None:
        num_unlabelled = min(num_unlabelled, effort.most_unlabelled)
    num_cross_validated = min(num_unlabelled, _most_cross_validated(len(corpus.class_weights)))

    rounds = effort.rounds
    if not config.self_training or num_unlabelled == 0:
        rounds = ()

    # Self-training: a round of labelled texts, then rounds with a share of the unlabelled ones.
    def fits_of_rounds(share_labelled: float, num_unlabelled: int) -> float:
        labelled_fits = (1 + len(rounds)) * share_labelled
        unlabelled_fits = sum(rounds) * num_unlabelled / num_labelled
        return labelled_fits + unlabelled_fits

    fits += num_folds * fits_of_rounds(share_learned, num_cross_validated)
    if effort.extrapolates:
        fits += 2 * fits_of_rounds(0.5, num_cross_validated)
    return fits + num_final * fits_of_rounds(1.0, num_unlabelled)
