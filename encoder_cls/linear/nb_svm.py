"""Fit the linear model of labelled texts by NB-SVM, with its penalty and its calibration.

NB-SVM (Wang and Manning, "Baselines and Bigrams: Simple, Good Sentiment and Topic Classification",
2012, https://aclanthology.org/P12-2018/): each feature is scaled by how strongly naive Bayes links
it to the class, then a linear support vector machine weighs them. Penalty and calibration are
chosen on the validation texts if these are enough, else by cross-validation.
"""

from __future__ import annotations

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
from encoder_cls.linear.folds import split_into_folds
from encoder_cls.linear.linear_model import LinearModel
from encoder_cls.linear.svm import fit_svm
from encoder_cls.metrics.logits import MULTI_LABEL, SINGLE_LABEL, Logits, task_of
from encoder_cls.system.stop import check_stop
from encoder_cls.text.tokens import TokenizedTexts

# The values of LinearSVC's C to choose from, increasing. Low ones are best where labels are wrong,
# or few per class.
C_VALUES = {
    SINGLE_LABEL: (0.125, 0.25, 0.5, 1.0, 2.0),
    MULTI_LABEL: (0.1, 0.3, 1.0),
}

# The penalty where only one is tried.
USUAL_C = {SINGLE_LABEL: 1.0, MULTI_LABEL: 0.3}

# How many texts must be held out to choose three numbers, or two for each label.
MIN_HELD_OUT = {SINGLE_LABEL: 1000, MULTI_LABEL: 5000}


class OneVsRest(NamedTuple):
    """Linear machines: weights, (features, machines), and biases, (machines,)."""

    weights: NDArray[np.float32]
    biases: NDArray[np.float32]

    def margins(self, features: sp.csr_matrix) -> NDArray[np.float32]:
        """Return the decision values of texts, (texts, machines)."""
        margins: NDArray[np.float32] = features @ self.weights + self.biases
        return margins

    def calibrated(self, calibration: Calibration) -> OneVsRest:
        """Scale and shift the margins."""
        scale = calibration.scale
        return OneVsRest(self.weights * scale, self.biases * scale + calibration.shift)


def fit_one_vs_rest(
    features: sp.csr_matrix,
    labels: NDArray[Any],
    class_weights: NDArray[np.float32],
    *,
    svm_c: float,
) -> OneVsRest:
    """Fit an NB-SVM for each class; `labels` are classes, (texts,), or all, (texts, classes)."""
    targets, text_weights = targets_of_machines(labels, class_weights)
    weights, biases = fit_nb_svms(features, targets, text_weights, svm_c=svm_c)

    # A class that no text has is never predicted, and one that all texts have always is.
    biases[~targets.any(axis=0)] = -1
    biases[targets.all(axis=0)] = 1
    return OneVsRest(weights.astype(np.float32), biases.astype(np.float32))


def fit_nb_svms(
    features: sp.csr_matrix,
    targets: NDArray[np.bool_],
    text_weights: NDArray[np.floating[Any]],
    *,
    svm_c: float = 1.0,
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Fit an NB-SVM to each column of the targets, (texts, machines).

    Returns:
        Weights, (features, machines), and biases, (machines,), as in `fit_machines`.
    """
    # Count the texts of each class that have each feature, for the ratios of naive Bayes.
    is_present = (features > 0).astype(np.float32)
    counts = []
    for is_class in targets.T:
        counts.append(is_present[is_class].sum(axis=0, dtype=np.float64))
    texts_in_class = np.asarray(np.vstack(counts)).T
    ratios = naive_bayes_ratios(texts_in_class, features.getnnz(axis=0))

    return fit_machines(features, ratios, targets, text_weights, svm_c=svm_c)


# The tolerance at which LinearSVC's solver stops. With scikit-learn's default, 1e-4, accuracies were
# the same, and a fit took up to twice the time.
TOLERANCE = 0.2


def fit_machines(
    features: sp.csr_matrix,
    scales: NDArray[np.float32],
    targets: NDArray[np.bool_],
    text_weights: NDArray[np.floating[Any]],
    *,
    svm_c: float = 1.0,
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Fit a LinearSVC with the C `svm_c` to each column of the targets, (texts, machines).

    Features are multiplied by `scales`, (features, machines). Weights, (features, machines), and
    bias, (machines,), of a class are 0 if all texts or none belong to it.
    """
    weights = np.zeros(scales.shape)
    biases = np.zeros(targets.shape[1])
    for machine, is_class in enumerate(targets.T):
        check_stop()
        if is_class.all() or not is_class.any():
            continue

        # Always solve the dual problem, in which the tolerance is one of each text's margin. The
        # primal solver, which scikit-learn takes where there are more texts than features, measures
        # it against the norm of the first gradient, and would stop far too early.
        svm = fit_svm(
            scaled_columns(features, scales[:, machine]),
            is_class,
            sample_weight=text_weights[:, machine],
            C=svm_c,
            tol=TOLERANCE,
            dual=True,
        )

        # The same scales make weights of scaled features those of the features.
        weights[:, machine] = svm.coef_[0] * scales[:, machine]
        biases[machine] = svm.intercept_[0]
    return weights, biases


def targets_of_machines(
    labels: NDArray[Any], class_weights: NDArray[np.float32]
) -> tuple[NDArray[np.bool_], NDArray[np.float32]]:
    """Return the targets and the text weights of each machine, both (texts, machines).

    Two classes have one machine, of the second class. In a multi-label task a text without a label
    has the weight 1 for that label.
    """
    if labels.ndim > 1:
        return labels > 0, np.where(labels, class_weights, 1)

    num_classes = len(class_weights)
    num_machines = SINGLE_LABEL.num_one_vs_rest(num_classes)
    classes = np.arange(num_classes - num_machines, num_classes)
    is_class = labels[:, None] == classes
    text_weights = class_weights[labels][:, None]
    return is_class, np.broadcast_to(text_weights, is_class.shape)


# The power of naive Bayes ratios: at 1, chance scales the features of classes with few texts.
NB_RATIO_POWER = 0.5


def naive_bayes_ratios(
    inside: NDArray[np.float64], everywhere: NDArray[Any]
) -> NDArray[np.float32]:
    """Compute |ln(share of the class / share of the others)| ** `NB_RATIO_POWER` of features.

    A share is the number of texts with the feature, plus 1, in units of the sum over features.

    Args:
        inside: the texts of each machine's class that have each feature, (features, machines).
        everywhere: the texts that have each feature, (features,).

    Returns:
        (features, machines)
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
    choice: Calibration | None = None,
    is_quick: bool = False,
    on_first: Callable[[LinearModel], None] | None = None,
) -> tuple[LinearModel, Calibration]:
    """Fit a linear model, with penalty and calibration chosen on texts held out.

    Args:
        texts: to learn from.
        held_out: texts with their labels, to choose on. If they are too few, penalty and
            calibration are chosen by cross-validation.
        split_groups: the group of each text, as in `split_into_folds`, for cross-validation; by default
            each text is a group.
        choice: an earlier choice, which is kept.
        is_quick: try one penalty, calibrated on the texts held out, however few; without any, on a
            single fold.
        on_first: receives the model of the first penalty, unless it is cross-validated.
    """
    task = task_of(texts.labels)
    c_values: Sequence[float] = C_VALUES[task]
    enough = MIN_HELD_OUT[task]
    if is_quick:
        c_values = [USUAL_C[task]]
        enough = 1

    # Cross-validate where too few texts are held out to choose on.
    has_enough = held_out is not None and len(held_out[1]) >= enough
    if choice is None and not has_enough:
        if split_groups is None:
            split_groups = np.arange(len(texts))
        folds = split_into_folds(split_groups, enough=enough)
        choice = cross_validate(texts, folds, c_values)

    if choice is not None:
        machines = _fit_counted(texts, svm_c=choice.svm_c)
        return _linear_model(texts, machines, choice), choice

    # Else try penalties, each calibrated on the texts held out.
    assert held_out
    other_texts, other_labels = held_out
    vocabulary = texts.vocabulary
    other_counts = count_matrix(vocabulary.pieces(other_texts), vocabulary.feature_ids)
    other_features = vocabulary.tfidf(other_counts)
    tried: dict[float, OneVsRest] = {}

    def calibrated(svm_c: float) -> Calibration:
        machines = _fit_counted(texts, svm_c=svm_c)
        choice = calibrate(machines.margins(other_features), other_labels, texts.class_weights)
        choice = choice._replace(svm_c=svm_c)

        if on_first and not tried:
            on_first(_linear_model(texts, machines, choice))
        tried[svm_c] = machines
        return choice

    best = _best_c(calibrated, c_values)
    return _linear_model(texts, tried[best.svm_c], best), best


def _fit_counted(texts: CountedTexts, *, svm_c: float) -> OneVsRest:
    return fit_one_vs_rest(texts.features, texts.labels, texts.class_weights, svm_c=svm_c)


def _linear_model(
    texts: CountedTexts, machines: OneVsRest, calibration: Calibration
) -> LinearModel:
    """Make a linear model of machines that were fitted to these texts."""
    machines = machines.calibrated(calibration)
    return texts.vocabulary.linear_model(machines.weights, machines.biases, task_of(texts.labels))


# The penalty of out-of-fold predictions: low, since labels may be wrong.
OUT_OF_FOLD_C = 0.25


def out_of_fold_logits(
    texts: TokenizedTexts,
    labels: NDArray[Any],
    all_options: Sequence[LinearOptions],
    *,
    split_groups: NDArray[np.int64],
    svm_c: float = OUT_OF_FOLD_C,
) -> list[Logits]:
    """Compute the out-of-fold logits of all texts, (texts, classes), for each of some options.

    Options differ only in class weights; `split_groups` is as in `split_into_folds`.
    """
    counted = CountedTexts.of(texts, labels, all_options[0])
    folds = split_into_folds(split_groups)

    # The logits of a fold follow those of the fold before: bring them into the order of the texts.
    order = np.argsort(np.concatenate(folds))

    logits = []
    for options in all_options:
        vocabulary = counted.vocabulary._replace(options=options)
        choice = cross_validate(replace(counted, vocabulary=vocabulary), folds, [svm_c])
        logits.append(choice.logits[order])
    return logits


def cross_validate(
    texts: CountedTexts,
    folds: Sequence[NDArray[np.int64]],
    c_values: Sequence[float] = (),
    *,
    text_weights: NDArray[np.float64] | None = None,
) -> Calibration:
    """Choose the best of some penalties, by default the usual ones, on folds, each held out once.

    The logits of the result are those of the folds, one fold after the other.
    `text_weights`, (texts,), in the order of the folds, are those of `calibrate`.
    """
    counts = texts.counts
    labels = texts.labels
    class_weights = texts.class_weights
    held_out_labels = labels[np.concatenate(folds)]

    def calibrated(svm_c: float) -> Calibration:
        margins = []
        for fold in folds:
            # Learn from all texts but those of the fold; document frequencies are of these, too.
            others = np.setdiff1d(np.arange(len(labels)), fold)
            vocabulary = texts.vocabulary.with_idf_of(counts[others])
            machines = fit_one_vs_rest(
                vocabulary.tfidf(counts[others]), labels[others], class_weights, svm_c=svm_c
            )
            margins.append(machines.margins(vocabulary.tfidf(counts[fold])))

        choice = calibrate(np.concatenate(margins), held_out_labels, class_weights, text_weights)
        return choice._replace(svm_c=svm_c)

    return _best_c(calibrated, c_values or C_VALUES[task_of(labels)])


# The part of the loss that a lower penalty must gain: at about the same loss the higher one is more
# accurate.
MIN_GAIN = 0.01


def _best_c(calibrated: Callable[[float], Calibration], c_values: Sequence[float]) -> Calibration:
    """Choose from increasing penalties, trying as few of them as possible.

    Begin with the last but one, and try lower ones as long as the loss falls. If none was better,
    try the last one.

    Args:
        calibrated: fits machines under a penalty, and calibrates them on texts held out.
        c_values: increasing.
    """
    if len(c_values) == 1:
        return calibrated(c_values[0])

    *lower, first, higher = c_values
    best = calibrated(first)
    for svm_c in reversed(lower):
        candidate = calibrated(svm_c)
        if candidate.loss > (1 - MIN_GAIN) * best.loss:
            break
        best = candidate

    if best.svm_c != first:
        return best

    candidate = calibrated(higher)
    if candidate.loss < best.loss:
        return candidate
    return best
