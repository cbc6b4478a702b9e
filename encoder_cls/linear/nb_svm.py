"""Fit the linear classifier of labelled texts by NB-SVM, with its penalty and its calibration.

NB-SVM (Wang and Manning, "Baselines and Bigrams: Simple, Good Sentiment and Topic Classification", 2012,
https://aclanthology.org/P12-2018/): each feature is scaled by how strongly naive Bayes links it to the class, then a
linear support vector machine weighs them. Penalty and calibration are chosen on the validation texts if these are
enough, else by cross-validation.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from encoder_cls.data.dataset import Split
from encoder_cls.evaluation.baseline import fit_svm
from encoder_cls.evaluation.comparisons import score_answers
from encoder_cls.evaluation.intervals import macro_f1_interval
from encoder_cls.linear.calibration import Calibration, calibrate, folds
from encoder_cls.linear.features import (
    Reading,
    Vocabulary,
    balanced_weights,
    count_matrix,
    count_occurrences,
    scaled_columns,
)
from encoder_cls.linear.linear_model import LinearClassifier
from encoder_cls.metrics.logits import MULTI_LABEL, SINGLE_LABEL, Logits, task_of
from encoder_cls.system.stop import check_stop
from encoder_cls.text.tokens import TokenizedTexts

NB_RATIO_POWER = (
    0.5  # of naive Bayes ratios: at 1, chance scales features of classes with few texts
)
TOLERANCE = 0.2  # LinearSVC's: with its default, 1e-4, accuracies were the same, and a fit took up to twice the time
# LinearSVC's C, chosen on texts held out; low where labels are wrong, or few per class.
PENALTIES = {SINGLE_LABEL: (0.125, 0.25, 0.5, 1.0, 2.0), MULTI_LABEL: (0.1, 0.3, 1.0)}
LEAST_GAIN = (
    0.01  # in loss, of a lower penalty: at about the same loss the higher one is more accurate
)
OUT_OF_FOLD_PENALTY = 0.25  # low, for labels that may be wrong
ENOUGH_HELD_OUT = {
    SINGLE_LABEL: 1000,
    MULTI_LABEL: 5000,
}  # texts, to choose three numbers, or two of each label


class OneVsRest(NamedTuple):
    """The weights (features, machines) and biases (machines,) of linear machines."""

    weights: NDArray[np.float32]
    biases: NDArray[np.float32]

    def margins(self, features: sp.csr_matrix) -> NDArray[np.float32]:
        """The decision values of texts, (texts, machines)."""
        margins: NDArray[np.float32] = features @ self.weights + self.biases
        return margins

    def calibrated(self, calibration: Calibration) -> OneVsRest:
        """Scale and shift the margins."""
        scale, shift = calibration.scale, calibration.shift
        return OneVsRest(self.weights * scale, self.biases * scale + shift)


def fit_one_vs_rest(
    features: sp.csr_matrix,
    labels: NDArray[Any],
    class_weights: NDArray[np.float32],
    *,
    penalty: float,
) -> OneVsRest:
    """Fit an NB-SVM for each class; `labels` are classes, (texts,), or all labels, (texts, classes)."""
    targets, text_weights = targets_of_machines(labels, class_weights)
    present = (features > 0).astype(np.float32)
    with_classes = np.vstack(
        [present[is_class].sum(axis=0, dtype=np.float64) for is_class in targets.T]
    )
    scales = naive_bayes_ratios(np.asarray(with_classes).T, features.getnnz(axis=0))
    weights, biases = fit_machines(features, scales, targets, text_weights, penalty=penalty)
    biases = np.where(targets.all(axis=0), 1, np.where(targets.any(axis=0), biases, -1))
    return OneVsRest(weights.astype(np.float32), biases.astype(np.float32))


def fit_machines(
    features: sp.csr_matrix,
    scales: NDArray[np.float32],
    targets: NDArray[np.bool_],
    text_weights: NDArray[np.floating[Any]],
    *,
    penalty: float = 1.0,
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Fit a LinearSVC with the C `penalty` to each column of the targets, (texts, machines).

    Features are multiplied by `scales`, (features, machines). Weights and bias of a class are 0 if all texts or none
    belong to it.
    """
    weights, biases = np.zeros(scales.shape), np.zeros(targets.shape[1])
    for number, is_class in enumerate(targets.T):
        check_stop()
        if is_class.all() or not is_class.any():
            continue
        scaled = scaled_columns(features, scales[:, number])
        svm = fit_svm(
            scaled, is_class, sample_weight=text_weights[:, number], C=penalty, tol=TOLERANCE
        )
        weights[:, number], biases[number] = svm.coef_[0] * scales[:, number], svm.intercept_[0]
    return weights, biases


def targets_of_machines(
    labels: NDArray[Any], class_weights: NDArray[np.float32]
) -> tuple[NDArray[np.bool_], NDArray[np.float32]]:
    """The targets and the text weights of each machine, both (texts, machines).

    Two classes have one machine, of the second class; in a multi-label task texts without a label have the weight 1.
    """
    if labels.ndim > 1:
        return labels > 0, np.where(labels, class_weights, 1)
    num_classes = len(class_weights)
    is_class = labels[:, None] == np.arange(
        num_classes - SINGLE_LABEL.num_one_vs_rest(num_classes), num_classes
    )
    return is_class, np.broadcast_to(class_weights[labels][:, None], is_class.shape)


def naive_bayes_ratios(
    inside: NDArray[np.float64], everywhere: NDArray[Any]
) -> NDArray[np.float32]:
    """|ln(share of the class / share of the others)| ** `NB_RATIO_POWER`, (features, machines).

    Shares are of the number of texts with each feature: `inside` each machine's class, and `everywhere`.
    """
    columns = []
    for with_class in inside.T:
        of_class, of_others = 1 + with_class, 1 + (everywhere - with_class)
        ratios = np.log((of_class / of_class.sum()) / (of_others / of_others.sum())).astype(
            np.float32
        )
        columns.append(np.abs(ratios) ** NB_RATIO_POWER)
    return np.stack(columns, axis=1)


def fit_linear(
    texts: TokenizedTexts,
    labels: NDArray[Any],
    reading: Reading,
    *,
    held_out: tuple[TokenizedTexts, NDArray[Any]] | None = None,
    together: NDArray[np.int64] | None = None,
    choice: Calibration | None = None,
    is_quick: bool = False,
    on_first: Callable[[LinearClassifier], None] = lambda _: None,
) -> tuple[LinearClassifier, Calibration]:
    """Fit a linear classifier, with penalty and calibration chosen on texts held out with their labels.

    Labels are classes, (texts,), or all labels of each text, (texts, classes). With too few texts held out, penalty and
    calibration are cross-validated, with `folds` of `together`, by default of single texts; with an earlier `choice`
    they are kept. A quick fit tries one penalty, calibrated on the texts held out, however few. `on_first` receives the
    classifier of the first penalty, unless it is cross-validated.
    """
    task = task_of(labels)
    penalties, enough = PENALTIES[task], ENOUGH_HELD_OUT[task]
    vocabulary, counts = count_texts(texts, labels, reading)
    weights, vocabulary = reading.class_weights, vocabulary.with_idf_of(counts)
    features, learned = vocabulary.tfidf(counts), dict[float, OneVsRest]()

    def classifier(choice: Calibration) -> LinearClassifier:
        machines = learned.get(choice.penalty) or fit_one_vs_rest(
            features, labels, weights, penalty=choice.penalty
        )
        return vocabulary.classifier(*machines.calibrated(choice), task)

    if choice is None and not is_quick and (held_out is None or len(held_out[1]) < enough):
        parts = folds(np.arange(len(labels)) if together is None else together, enough=enough)
        choice = cross_validate(vocabulary, counts, labels, parts)
    if choice is not None:
        return classifier(choice), choice
    assert held_out
    other_texts, other_labels = held_out
    others = vocabulary.tfidf(count_matrix(vocabulary.pieces(other_texts), vocabulary.feature_ids))

    def judged(penalty: float) -> Calibration:
        learned[penalty] = fit_one_vs_rest(features, labels, weights, penalty=penalty)
        choice = calibrate(learned[penalty].margins(others), other_labels, weights)._replace(
            penalty=penalty
        )
        if len(learned) == 1:
            on_first(classifier(choice))
        return choice

    best = _best_penalty(judged, penalties[-2:-1] if is_quick else penalties)
    return classifier(best), best


def out_of_fold_logits(
    texts: TokenizedTexts,
    labels: NDArray[Any],
    readings: Sequence[Reading],
    *,
    together: NDArray[np.int64],
    penalty: float = OUT_OF_FOLD_PENALTY,
) -> list[Logits]:
    """The out-of-fold logits of all texts, (texts, classes), for each reading.

    Readings differ only in class weights; `together` is as in `folds`.
    """
    vocabulary, counts = count_texts(texts, labels, readings[0])
    parts = folds(together)
    choices = [
        cross_validate(vocabulary._replace(reading=it), counts, labels, parts, [penalty])
        for it in readings
    ]
    return [it.logits[np.argsort(np.concatenate(parts))] for it in choices]


def count_texts(
    texts: TokenizedTexts, labels: NDArray[Any], reading: Reading
) -> tuple[Vocabulary, sp.csr_matrix]:
    """Count the most frequent features of texts."""
    vocabulary = Vocabulary.of(texts, reading)
    pieces = vocabulary.pieces(texts)
    vocabulary = vocabulary.with_most_frequent(*count_occurrences(pieces), task_of(labels))
    return vocabulary, count_matrix(pieces, vocabulary.feature_ids)


def cross_validate(
    vocabulary: Vocabulary,
    counts: sp.csr_matrix,
    labels: NDArray[Any],
    parts: Sequence[NDArray[np.int64]],
    penalties: Sequence[float] = (),
) -> Calibration:
    """Choose the best of some penalties, by default the usual ones, on folds, each held out once."""
    class_weights = vocabulary.reading.class_weights

    def judged(penalty: float) -> Calibration:
        margins = []
        for fold in parts:
            others = np.setdiff1d(np.arange(len(labels)), fold)
            known = vocabulary.with_idf_of(counts[others])
            machines = fit_one_vs_rest(
                known.tfidf(counts[others]), labels[others], class_weights, penalty=penalty
            )
            margins.append(machines.margins(known.tfidf(counts[fold])))
        choice = calibrate(np.concatenate(margins), labels[np.concatenate(parts)], class_weights)
        return choice._replace(penalty=penalty)

    return _best_penalty(judged, penalties or PENALTIES[task_of(labels)])


def _best_penalty(
    judged: Callable[[float], Calibration], penalties: Sequence[float]
) -> Calibration:
    """Choose from increasing penalties: from the last but one down as long as the loss falls, else the last one up."""
    *lower, first = penalties[:-1] or penalties
    best = judged(first)
    for penalty in reversed(lower):
        lower_one = judged(penalty)
        if lower_one.loss > (1 - LEAST_GAIN) * best.loss:
            break
        best = lower_one
    if best.penalty != first or len(penalties) == 1:
        return best
    return min(best, judged(penalties[-1]), key=lambda it: it.loss)


SKEWED = 3.0  # the least ratio of the sizes of the largest and the smallest class: below it weights are nearly equal
MOST_TEXTS, MOST_WORK = 4000, 30_000  # at most, and texts times machines: a second or two


def class_weights_note(train: Split, texts: TokenizedTexts, linear: LinearClassifier) -> str:
    """Describe what `train.class_weights=balanced` would bring; empty where it would not help by more than chance.

    A linear classifier that reads as `linear` does is cross-validated with and without: balanced weights help where the
    95% interval of the difference of macro-F1 is above zero.
    """
    sizes = np.bincount(train.labels)
    if sizes.max() < SKEWED * sizes.min():
        return ""
    most = min(MOST_TEXTS, MOST_WORK // SINGLE_LABEL.num_one_vs_rest(len(sizes)))
    rows = np.sort(np.random.default_rng(0).permutation(len(train))[:most])
    train, texts = train.subset(rows), texts.take(rows)
    readings = [
        Reading.like(linear, it)
        for it in (np.ones(len(sizes), dtype=np.float32), balanced_weights(sizes))
    ]
    logits = out_of_fold_logits(texts, train.labels, readings, together=train.together, penalty=1.0)
    plain, balanced = (it.argmax(axis=1) for it in logits)
    if macro_f1_interval(train.labels, balanced, plain)[0] <= 0:
        return ""
    before, after = (score_answers(answers, train.labels) for answers in (plain, balanced))
    return (
        f"classes are skewed ({sizes.min():,} to {sizes.max():,} texts), and --set train.class_weights=balanced may "
        f"help the rare ones: macro-F1 {before['macro_f1']:.1%} -> {after['macro_f1']:.1%}, accuracy "
        f"{before['accuracy']:.1%} -> {after['accuracy']:.1%} (linear model, cross-validation)"
    )
