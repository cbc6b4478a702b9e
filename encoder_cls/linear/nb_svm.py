"""Fit the linear model to labelled texts by NB-SVM, and choose its C and its calibration.

NB-SVM scales each feature by how strongly naive Bayes links the feature to a class, and then fits a
linear support vector machine to the scaled features (Wang and Manning, "Baselines and Bigrams:
Simple, Good Sentiment and Topic Classification", 2012, https://aclanthology.org/P12-2018/). C and
calibration are chosen on the validation texts if there are enough of them, else by
cross-validation.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any, NamedTuple

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from encoder_cls.linear.calibration import Calibration, calibrate
from encoder_cls.linear.features import (
    CountedTexts,
    LinearOptions,
    count_matrix,
    scaled_columns,
)
from encoder_cls.linear.fit_progress import UNREPORTED, FitProgress
from encoder_cls.linear.folds import FOLDS, split_into_folds
from encoder_cls.linear.linear_model import LinearModel
from encoder_cls.linear.svm import fit_svm
from encoder_cls.metrics.logits import Logits
from encoder_cls.metrics.tasks import MULTI_LABEL, SINGLE_LABEL, Task, task_of
from encoder_cls.system.stop import check_stop
from encoder_cls.text.tokens import TokenizedTexts

# The values of LinearSVC's C to choose from, increasing. A lower C regularizes more, which is best
# if many labels are wrong or classes have few texts.
C_VALUES = {
    SINGLE_LABEL: (0.125, 0.25, 0.5, 1.0, 2.0),
    MULTI_LABEL: (0.1, 0.3, 1.0),
}

# How many of the values of C are usually tried.
C_VALUES_TRIED = 3

# The value of C if only one value is tried.
USUAL_C = {SINGLE_LABEL: 1.0, MULTI_LABEL: 0.3}

# How many held-out texts are enough to choose the parameters on: C, a scale and a shift in a
# single-label task; C, and a scale and a shift for each label, in a multi-label task.
MIN_HELD_OUT = {SINGLE_LABEL: 1000, MULTI_LABEL: 5000}


class OneVsRest(NamedTuple):
    """One-vs-rest machines, each of which separates a class from all others.

    Attributes:
        weights: the weight of each feature in each machine, (features, machines).
        biases: the bias of each machine, (machines,).
    """

    weights: NDArray[np.float32]
    biases: NDArray[np.float32]

    def margins(self, features: sp.csr_matrix) -> NDArray[np.float32]:
        """Return the decision values of texts, (texts, machines)."""
        margins: NDArray[np.float32] = features @ self.weights + self.biases
        return margins

    def calibrated(self, calibration: Calibration) -> OneVsRest:
        """Return machines whose margins are scaled and shifted by a calibration."""
        scale = calibration.scale
        return OneVsRest(self.weights * scale, self.biases * scale + calibration.shift)


def fit_one_vs_rest(
    features: sp.csr_matrix,
    labels: NDArray[Any],
    class_weights: NDArray[np.float32],
    text_weights: NDArray[np.float32] | None = None,
    *,
    svm_c: float,
    progress: FitProgress = UNREPORTED,
) -> OneVsRest:
    """Fit an NB-SVM for each class.

    Args:
        features: the TF-IDF values of the texts, (texts, features).
        labels: class numbers, (texts,), or multi-label indicators, (texts, classes).
        class_weights: the weight of a text of each class, (classes,).
        text_weights: how much each text counts, (texts,); None if all texts count alike.
        svm_c: the C of LinearSVC.
        progress: counts the texts that each machine has learned from.
    """
    targets, weights_in_machines = targets_of_machines(labels, class_weights)
    if text_weights is not None:
        weights_in_machines = weights_in_machines * text_weights[:, None]
    weights, biases = fit_nb_svms(
        features, targets, weights_in_machines, text_weights, svm_c=svm_c, progress=progress
    )

    # A class that no text has is never predicted. A class that all texts have is always predicted.
    biases[~targets.any(axis=0)] = -1
    biases[targets.all(axis=0)] = 1
    return OneVsRest(weights.astype(np.float32), biases.astype(np.float32))


def fit_nb_svms(
    features: sp.csr_matrix,
    targets: NDArray[np.bool_],
    weights_in_machines: NDArray[np.floating[Any]],
    text_weights: NDArray[np.float32] | None = None,
    *,
    svm_c: float = 1.0,
    progress: FitProgress = UNREPORTED,
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Fit an NB-SVM to each column of the targets.

    Args:
        features: the TF-IDF values of the texts, (texts, features).
        targets: whether each text belongs to the machine's class, (texts, machines).
        weights_in_machines: the weight of each text in the SVM of each machine, (texts, machines).
        text_weights: as how many texts each text counts in naive Bayes, (texts,); None if each
            counts as one.
        svm_c: the C of LinearSVC.
        progress: counts the texts that each machine has learned from.

    Returns:
        The weights of unscaled features, (features, machines), and the biases, (machines,). Both
        are 0 for a class to which all texts belong, or none.
    """
    # Mark the features of each text by 1, and count the texts with each feature.
    has_feature = (features > 0).astype(np.float32)
    everywhere = features.getnnz(axis=0)

    # A text with a weight is marked by its weight, and counts as so many texts.
    if text_weights is not None:
        features_per_text = np.diff(has_feature.indptr)
        has_feature.data = np.repeat(text_weights, features_per_text)
        everywhere = np.asarray(has_feature.sum(axis=0, dtype=np.float64)).ravel()

    # Count the texts of each class with each feature.
    counts_of_classes = []
    for is_class in targets.T:
        counts = np.asarray(has_feature[is_class].sum(axis=0, dtype=np.float64)).ravel()
        counts_of_classes.append(counts)
    inside = np.stack(counts_of_classes, axis=1)

    ratios = naive_bayes_ratios(inside, everywhere)
    return fit_machines(
        features, ratios, targets, weights_in_machines, svm_c=svm_c, progress=progress
    )


# The tolerance at which LinearSVC's solver stops. With scikit-learn's default, 1e-4, accuracies
# were the same, and a fit took up to twice the time.
TOLERANCE = 0.2


def fit_machines(
    features: sp.csr_matrix,
    scales: NDArray[np.float32],
    targets: NDArray[np.bool_],
    weights_in_machines: NDArray[np.floating[Any]],
    *,
    svm_c: float = 1.0,
    progress: FitProgress = UNREPORTED,
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Fit a LinearSVC to scaled features for each column of the targets.

    Args:
        features: the values of the texts, (texts, features).
        scales: the factor of each feature in each machine, (features, machines).
        targets: whether each text belongs to the machine's class, (texts, machines).
        weights_in_machines: the weight of each text in the SVM of each machine, (texts, machines).
        svm_c: the C of LinearSVC.
        progress: counts the texts that each machine has learned from.

    Returns:
        The weights of unscaled features, (features, machines), and the biases, (machines,). Both
        are 0 for a class to which all texts belong, or none.
    """
    weights = np.zeros(scales.shape)
    biases = np.zeros(targets.shape[1])
    for machine, is_class in enumerate(targets.T):
        check_stop()
        if is_class.all() or not is_class.any():
            progress.add(len(is_class))
            continue

        # Always solve the dual problem, in which the tolerance holds for the margin of each text.
        # By default, scikit-learn solves the primal problem if there are more texts than features.
        # Its tolerance is relative to the norm of the first gradient, so it stops far too early.
        svm = fit_svm(
            scaled_columns(features, scales[:, machine]),
            is_class,
            sample_weight=weights_in_machines[:, machine],
            C=svm_c,
            tol=TOLERANCE,
            dual=True,
        )

        # Multiply the weights by the scales, so that they apply to unscaled features.
        weights[:, machine] = svm.coef_[0] * scales[:, machine]
        biases[machine] = svm.intercept_[0]
        progress.add(len(is_class))
    return weights, biases


def targets_of_machines(
    labels: NDArray[Any], class_weights: NDArray[np.float32]
) -> tuple[NDArray[np.bool_], NDArray[np.float32]]:
    """Return the targets of machines, and the weights of texts in them, both (texts, machines).

    A target says whether a text belongs to the machine's class. Two classes have only one machine,
    which is of the second class.

    In a single-label task, a text has the weight of its class in all machines. In a multi-label
    task, it has the weight of a label in the label's machine if it has the label, else 1.
    """
    if labels.ndim > 1:
        return labels > 0, np.where(labels, class_weights, 1)

    # Machines are those of the last classes: of all, or of the second of two.
    num_classes = len(class_weights)
    num_machines = SINGLE_LABEL.num_one_vs_rest(num_classes)
    classes = np.arange(num_classes - num_machines, num_classes)

    is_class = labels[:, None] == classes
    weights_of_texts = class_weights[labels][:, None]
    return is_class, np.broadcast_to(weights_of_texts, is_class.shape)


# The power to which the logarithms of naive Bayes ratios are raised. With a power of 1, the scales
# of classes with few texts are mostly noise.
NB_RATIO_POWER = 0.5


def naive_bayes_ratios(
    inside: NDArray[np.float64], everywhere: NDArray[Any]
) -> NDArray[np.float32]:
    """Compute |ln(share in the class / share in the others)| ** `NB_RATIO_POWER` for each feature.

    The share of a feature is (count + 1) / sum over all features of (count + 1), where the count is
    the number of texts that have the feature.

    Args:
        inside: how many texts of each machine's class have each feature, (features, machines).
        everywhere: how many of all texts have each feature, (features,).

    Returns:
        The scale of each feature in each machine, (features, machines).
    """
    ratios = []
    for texts_in_class in inside.T:
        class_counts = 1 + texts_in_class
        other_counts = 1 + (everywhere - texts_in_class)

        class_shares = class_counts / class_counts.sum()
        other_shares = other_counts / other_counts.sum()

        log_ratios = np.log(class_shares / other_shares).astype(np.float32)
        ratios.append(np.abs(log_ratios) ** NB_RATIO_POWER)
    return np.stack(ratios, axis=1)


def fit_linear(
    texts: CountedTexts,
    *,
    held_out: tuple[TokenizedTexts, NDArray[Any]] | None = None,
    split_groups: NDArray[np.int64] | None = None,
    calibration: Calibration | None = None,
    is_quick: bool = False,
    on_first: Callable[[LinearModel], None] | None = None,
    progress: FitProgress = UNREPORTED,
) -> tuple[LinearModel, Calibration]:
    """Fit a linear model, and choose its C and its calibration on held-out texts.

    Args:
        texts: the texts to learn from.
        held_out: texts to choose C and the calibration on, and their labels. With fewer than
            `MIN_HELD_OUT` of them, or None, both are chosen by cross-validation of `texts`.
        split_groups: the group of each text, (texts,); cross-validation keeps the texts of a group
            in one fold. By default each text is a group.
        calibration: a C and a calibration that were chosen before; nothing is chosen then.
        is_quick: try only the usual C. Calibrate on `held_out` even if it has few texts, or on a
            single fold if it is None.
        on_first: called with the model of the first C that is tried on `held_out`; not called in
            cross-validation.
        progress: expects and counts the work of the fit.

    Returns:
        The linear model, and the calibration that was chosen.
    """
    task = task_of(texts.labels)
    work = texts.num_machines * len(texts)
    if calibration is not None:
        progress.expect(work)
        return _fit_calibrated(texts, calibration, progress), calibration

    c_values: Sequence[float] = C_VALUES[task]
    enough = MIN_HELD_OUT[task]
    if is_quick:
        c_values = [USUAL_C[task]]
        enough = 1

    if held_out is not None and len(held_out[1]) >= enough:
        return _fit_and_choose(texts, held_out, c_values, on_first, progress)

    # Too few texts are held out to choose on, so cross-validate, and then learn from all texts.
    progress.expect(work)
    if split_groups is None:
        split_groups = np.arange(len(texts))
    folds = split_into_folds(split_groups, enough=enough)
    calibration = cross_validate(texts, folds, c_values, progress=progress)
    return _fit_calibrated(texts, calibration, progress), calibration


def _fit_and_choose(
    texts: CountedTexts,
    held_out: tuple[TokenizedTexts, NDArray[Any]],
    c_values: Sequence[float],
    on_first: Callable[[LinearModel], None] | None,
    progress: FitProgress,
) -> tuple[LinearModel, Calibration]:
    """Fit with several values of C, and keep the model that is best on held-out texts.

    Args:
        texts: the texts to learn from.
        held_out: the texts on which each model is calibrated, and their labels.
        c_values: the values of C to try, increasing.
        on_first: called with the model of the first C; None if nothing receives it.
        progress: expects and counts the work of the fits.
    """
    held_out_texts, held_out_labels = held_out
    vocabulary = texts.vocabulary
    counts = count_matrix(vocabulary.pieces(held_out_texts), vocabulary.feature_ids)
    features = vocabulary.tfidf(counts)
    machines_by_c: dict[float, OneVsRest] = {}

    def fit_and_calibrate(svm_c: float) -> Calibration:
        machines = _fit_counted(texts, svm_c=svm_c, progress=progress)
        candidate = calibrate(machines.margins(features), held_out_labels, texts.class_weights)
        candidate = candidate._replace(svm_c=svm_c)

        if on_first and not machines_by_c:
            on_first(_linear_model(texts, machines, candidate))
        machines_by_c[svm_c] = machines
        return candidate

    best = _best_c(
        fit_and_calibrate, c_values, work=texts.num_machines * len(texts), progress=progress
    )
    return _linear_model(texts, machines_by_c[best.svm_c], best), best


def _fit_calibrated(
    texts: CountedTexts, calibration: Calibration, progress: FitProgress
) -> LinearModel:
    """Fit a linear model with the C of a calibration, and calibrate it."""
    machines = _fit_counted(texts, svm_c=calibration.svm_c, progress=progress)
    return _linear_model(texts, machines, calibration)


def usual_fits(num_texts: int, num_held_out: int, task: Task, *, is_quick: bool = False) -> float:
    """Compute the usual work of `fit_linear`, as a number of fits to all texts.

    Args:
        num_texts: the number of texts to learn from.
        num_held_out: the number of held-out texts.
        task: single-label or multi-label.
        is_quick: whether only the usual C is tried.
    """
    num_tried = C_VALUES_TRIED
    enough = MIN_HELD_OUT[task]
    if is_quick:
        num_tried = 1
        enough = 1

    # On held-out texts, each C is fitted once.
    if num_held_out >= enough:
        return num_tried

    # Cross-validation fits each C once for each fold, to the texts of the other folds. It uses no
    # more folds than have enough texts. One more fit, with the best C, learns from all texts.
    num_folds = min(FOLDS, math.ceil(enough * FOLDS / num_texts))
    return num_tried * num_folds * (1 - 1 / FOLDS) + 1


def _fit_counted(texts: CountedTexts, *, svm_c: float, progress: FitProgress) -> OneVsRest:
    """Fit an NB-SVM for each class to all of these texts."""
    return fit_one_vs_rest(
        texts.features,
        texts.labels,
        texts.class_weights,
        texts.weights,
        svm_c=svm_c,
        progress=progress,
    )


def _linear_model(
    texts: CountedTexts, machines: OneVsRest, calibration: Calibration
) -> LinearModel:
    """Make a linear model of the calibrated machines that were fitted to these texts."""
    machines = machines.calibrated(calibration)
    return texts.vocabulary.linear_model(machines.weights, machines.biases, task_of(texts.labels))


# The C of the models that predict out of fold. It is low, because labels may be wrong.
OUT_OF_FOLD_C = 0.25


def out_of_fold_logits(
    texts: TokenizedTexts,
    labels: NDArray[Any],
    all_options: Sequence[LinearOptions],
    *,
    split_groups: NDArray[np.int64],
    svm_c: float = OUT_OF_FOLD_C,
) -> list[Logits]:
    """Compute the out-of-fold logits of all texts with each of several options.

    Args:
        texts: the texts to predict, each by a model that has learned from other folds.
        labels: class numbers, (texts,), or multi-label indicators, (texts, classes).
        all_options: options that differ only in the class weights.
        split_groups: the group of each text, (texts,); the texts of a group are in one fold.
        svm_c: the C of LinearSVC.

    Returns:
        The logits for each of the options, (texts, classes), in the order of the texts.
    """
    counted = CountedTexts.of(texts, labels, all_options[0])
    folds = split_into_folds(split_groups)

    # Cross-validation returns logits fold by fold. This order returns them to that of the texts.
    order = np.argsort(np.concatenate(folds))

    logits = []
    for options in all_options:
        vocabulary = counted.vocabulary._replace(options=options)
        calibration = cross_validate(replace(counted, vocabulary=vocabulary), folds, [svm_c])
        logits.append(calibration.logits[order])
    return logits


def cross_validate(
    texts: CountedTexts,
    folds: Sequence[NDArray[np.int64]],
    c_values: Sequence[float] = (),
    *,
    text_weights: NDArray[np.float64] | None = None,
    progress: FitProgress = UNREPORTED,
) -> Calibration:
    """Choose C and a calibration by cross-validation.

    Args:
        texts: the labelled texts.
        folds: the indices of the texts of each fold. Each fold is predicted by a model that has
            learned from all texts outside the fold.
        c_values: the values of C to try, increasing; by default the `C_VALUES` of the task.
        text_weights: the weight of each held-out text in calibration, fold by fold, (held-out
            texts,); by default all texts count alike.
        progress: expects and counts the work of the fits.

    Returns:
        The calibration with the best C. Its logits are out-of-fold logits, fold by fold.
    """
    counts = texts.counts
    labels = texts.labels
    class_weights = texts.class_weights
    held_out_labels = labels[np.concatenate(folds)]

    def fit_and_calibrate(svm_c: float) -> Calibration:
        margins = []
        for fold in folds:
            # Learn from all texts outside the fold, and compute document frequencies of them, too.
            others = np.setdiff1d(np.arange(len(labels)), fold)
            vocabulary = texts.vocabulary.with_idf_of(counts[others])
            weights_of_others = None
            if texts.weights is not None:
                weights_of_others = texts.weights[others]
            machines = fit_one_vs_rest(
                vocabulary.tfidf(counts[others]),
                labels[others],
                class_weights,
                weights_of_others,
                svm_c=svm_c,
                progress=progress,
            )
            margins.append(machines.margins(vocabulary.tfidf(counts[fold])))

        candidate = calibrate(np.concatenate(margins), held_out_labels, class_weights, text_weights)
        return candidate._replace(svm_c=svm_c)

    # In each fold, all texts outside the fold are learned from.
    num_learned = len(folds) * len(labels) - len(held_out_labels)
    return _best_c(
        fit_and_calibrate,
        c_values or C_VALUES[task_of(labels)],
        work=texts.num_machines * num_learned,
        progress=progress,
    )


# A lower C must reduce the loss by this share of the loss to be preferred. If two losses are
# similar, the higher C is more accurate.
MIN_GAIN = 0.01


def _best_c(
    fit_and_calibrate: Callable[[float], Calibration],
    c_values: Sequence[float],
    *,
    work: float,
    progress: FitProgress,
) -> Calibration:
    """Return the calibration of the best C, and try as few values of C as possible.

    The search begins with the last value but one, and tries lower values until the loss no longer
    falls. If none of them is better, it tries the last value.

    Args:
        fit_and_calibrate: fits machines with a C, and calibrates them on held-out texts.
        c_values: the values of C to choose from, increasing.
        work: the work of trying one value.
        progress: expects the work of the usual number of values, and of each one more.
    """
    progress.expect(work * min(C_VALUES_TRIED, len(c_values)))
    if len(c_values) == 1:
        return fit_and_calibrate(c_values[0])

    *lower, first, higher = c_values
    best = fit_and_calibrate(first)
    for num_tried, svm_c in enumerate(reversed(lower), start=1):
        # More values than usual are more work than was expected.
        if num_tried >= C_VALUES_TRIED:
            progress.expect(work)

        candidate = fit_and_calibrate(svm_c)
        if candidate.loss > (1 - MIN_GAIN) * best.loss:
            break
        best = candidate

    if best.svm_c != first:
        return best

    candidate = fit_and_calibrate(higher)
    if candidate.loss < best.loss:
        return candidate
    return best
