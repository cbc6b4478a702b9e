"""Fit the linear classifier of labelled texts by NB-SVM, with its penalty and its calibration.

NB-SVM (Wang and Manning, "Baselines and Bigrams: Simple, Good Sentiment and Topic Classification", 2012,
https://aclanthology.org/P12-2018/): each feature is scaled by how strongly naive Bayes links it to the class, then a
linear support vector machine weighs them. Penalty and calibration are chosen on texts held out: those of validation
where they are enough for it, else by cross-validation.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from encoder_cls.data.dataset import Split
from encoder_cls.evaluation.baseline import fit_svm
from encoder_cls.evaluation.significance import macro_f1_interval, score_answers
from encoder_cls.inference.linear import LinearClassifier
from encoder_cls.inference.task import MULTI_LABEL, SINGLE_LABEL, Logits, task_of
from encoder_cls.system.stop import check_stop
from encoder_cls.text.token_arrays import TokenizedTexts
from encoder_cls.training.linear.calibration import Calibration, calibrate, folds
from encoder_cls.training.linear.features import (
    Reading,
    Vocabulary,
    count_matrix,
    count_occurrences,
    most_features_of,
    most_frequent,
    scaled_columns,
)
from encoder_cls.training.prepared import balanced_weights

NB_RATIO_POWER = 0.5  # of naive Bayes' ratios: at 1, where classes have few texts, chance scales features
TOLERANCE = 0.2  # LinearSVC's: with its own 1e-4 no accuracy was another, and the fit took up to twice the time
# LinearSVC's C, of which texts held out choose one: a low one where labels are wrong, or rarer than classes.
PENALTIES = {SINGLE_LABEL: (0.125, 0.25, 0.5, 1.0, 2.0), MULTI_LABEL: (0.1, 0.3, 1.0)}
LEAST_GAIN = 0.01  # in loss, of a lower penalty: of two with about the same loss the higher one is more often right
OUT_OF_FOLD_PENALTY = 0.25  # where labels may be wrong: one that is small learns less of these
ENOUGH_HELD_OUT = {SINGLE_LABEL: 1000, MULTI_LABEL: 5000}  # texts, to choose three numbers, or two of each label


class OneVsRest(NamedTuple):
    """The weights (features, machines) and biases (machines,) of linear machines."""

    weights: NDArray[np.float32]
    biases: NDArray[np.float32]

    def margins(self, features: sp.csr_matrix) -> NDArray[np.float32]:
        """How far texts are on a class's side, (texts, machines)."""
        margins: NDArray[np.float32] = features @ self.weights + self.biases
        return margins

    def calibrated(self, calibration: Calibration) -> OneVsRest:
        """Scale and shift the margins."""
        scale, shift = calibration.scale, calibration.shift
        return OneVsRest(self.weights * scale, self.biases * scale + shift)


def fit_one_vs_rest(
    features: sp.csr_matrix, labels: NDArray[Any], class_weights: NDArray[np.float32], *, penalty: float
) -> OneVsRest:
    """Fit a machine for each class by LinearSVC, whose C is `penalty`.

    `labels` are classes, (texts,), or all labels, (texts, classes). A text counts by its class.
    """
    targets, text_weights = targets_of_machines(labels, class_weights)
    present = (features > 0).astype(np.float32)
    weights = np.zeros((features.shape[1], targets.shape[1]), dtype=np.float32)
    biases = np.zeros(targets.shape[1], dtype=np.float32)
    everywhere = np.asarray(present.sum(axis=0, dtype=np.float64)).ravel()
    for column, is_class in enumerate(targets.T):
        check_stop()
        if is_class.all() or not is_class.any():  # where texts are held out
            biases[column] = 1.0 if is_class.any() else -1.0
            continue
        inside = np.asarray(present[is_class].sum(axis=0, dtype=np.float64)).ravel()
        ratios = naive_bayes_ratios(inside, everywhere - inside)
        scaled = scaled_columns(features, ratios)
        svm = fit_svm(scaled, is_class, sample_weight=text_weights[:, column], C=penalty, tol=TOLERANCE)
        weights[:, column], biases[column] = svm.coef_[0] * ratios, svm.intercept_[0]
    return OneVsRest(weights, biases)


def targets_of_machines(
    labels: NDArray[Any], class_weights: NDArray[np.float32]
) -> tuple[NDArray[np.bool_], NDArray[np.float32]]:
    """Whether each text is of each machine's class, and how much it counts there, both (texts, machines).

    Of two classes the second alone has a machine; each of several labels has one, in which texts without it count 1.
    """
    if labels.ndim > 1:
        return labels > 0, np.where(labels, class_weights, 1)
    num_classes = len(class_weights)
    is_class = labels[:, None] == np.arange(num_classes - SINGLE_LABEL.num_one_vs_rest(num_classes), num_classes)
    return is_class, np.broadcast_to(class_weights[labels][:, None], is_class.shape)


def naive_bayes_ratios(inside: NDArray[np.float64], outside: NDArray[np.float64]) -> NDArray[np.float32]:
    """|ln(share of the class / share of others)| ** `NB_RATIO_POWER`, of texts with each feature, (features,)."""
    inside, outside = 1 + inside, 1 + outside
    ratios = np.log((inside / inside.sum()) / (outside / outside.sum())).astype(np.float32)
    scales: NDArray[np.float32] = np.abs(ratios) ** NB_RATIO_POWER
    return scales


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
    """Fit a linear classifier; texts held out, with their labels, choose its penalty and calibrate its scores.

    Labels are classes, (texts,), or all labels of each text, (texts, classes). Where texts held out are not enough,
    cross-validation replaces them, with `folds` of `together`, by default of single texts. With an earlier `choice`
    nothing is held out. A quick fit takes one penalty, and is calibrated on the texts held out, however few. Where
    these calibrate it, `on_first` receives the classifier of the first penalty.
    """
    task = task_of(labels)
    penalties, enough = PENALTIES[task], ENOUGH_HELD_OUT[task]
    vocabulary, counts = count_texts(texts, labels, reading)
    weights, vocabulary = reading.class_weights, vocabulary.with_idf_of(counts)
    features, learned = vocabulary.tfidf(counts), dict[float, OneVsRest]()

    def classifier(choice: Calibration) -> LinearClassifier:
        machines = learned.get(choice.penalty) or fit_one_vs_rest(features, labels, weights, penalty=choice.penalty)
        return vocabulary.classifier(*machines.calibrated(choice), task)

    if choice is None and not is_quick and (held_out is None or len(held_out[1]) < enough):
        parts = folds(np.arange(len(labels)) if together is None else together, enough=enough)
        choice = cross_validate(vocabulary, counts, labels, weights, parts)
    if choice is not None:
        return classifier(choice), choice
    assert held_out
    other_texts, other_labels = held_out
    others = vocabulary.tfidf(count_matrix(vocabulary.pieces(other_texts), vocabulary.feature_ids))

    def judged(penalty: float) -> Calibration:
        learned[penalty] = fit_one_vs_rest(features, labels, weights, penalty=penalty)
        choice = calibrate(learned[penalty].margins(others), other_labels, weights)._replace(penalty=penalty)
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
    """The logits of all texts, (texts, classes), each from a classifier of other folds, by each reading.

    Readings differ in their class weights alone; `together` is as in `folds`.
    """
    vocabulary, counts = count_texts(texts, labels, readings[0])
    parts = folds(together)
    choices = [cross_validate(vocabulary, counts, labels, it.class_weights, parts, [penalty]) for it in readings]
    return [it.logits[np.argsort(np.concatenate(parts))] for it in choices]


def count_texts(texts: TokenizedTexts, labels: NDArray[Any], reading: Reading) -> tuple[Vocabulary, sp.csr_matrix]:
    """Count the most frequent features of texts."""
    vocabulary = Vocabulary.of(texts, reading)
    pieces = vocabulary.pieces(texts)
    limit = most_features_of(len(reading.class_weights), task_of(labels))
    feature_ids, _ = most_frequent(count_occurrences(pieces), limit)
    return vocabulary._replace(feature_ids=feature_ids), count_matrix(pieces, feature_ids)


def cross_validate(
    vocabulary: Vocabulary,
    counts: sp.csr_matrix,
    labels: NDArray[Any],
    class_weights: NDArray[np.float32],
    parts: Sequence[NDArray[np.int64]],
    penalties: Sequence[float] = (),
) -> Calibration:
    """Choose the best of penalties, by default the usual ones, on the folds `parts`, each held out once."""

    def judged(penalty: float) -> Calibration:
        margins = []
        for fold in parts:
            others = np.setdiff1d(np.arange(len(labels)), fold)
            known = vocabulary.with_idf_of(counts[others])
            machines = fit_one_vs_rest(known.tfidf(counts[others]), labels[others], class_weights, penalty=penalty)
            margins.append(machines.margins(known.tfidf(counts[fold])))
        choice = calibrate(np.concatenate(margins), labels[np.concatenate(parts)], class_weights)
        return choice._replace(penalty=penalty)

    return _best_penalty(judged, penalties or PENALTIES[task_of(labels)])


def _best_penalty(judged: Callable[[float], Calibration], penalties: Sequence[float]) -> Calibration:
    """The best of increasing penalties: from the last but one down, else up, as long as the loss falls."""
    if len(penalties) == 1:
        return judged(penalties[0])
    *lower, first, highest = penalties
    best = judged(first)
    for penalty in reversed(lower):
        lower_one = judged(penalty)
        if lower_one.loss > (1 - LEAST_GAIN) * best.loss:
            break
        best = lower_one
    if best.penalty != first:
        return best
    return min(best, judged(highest), key=lambda it: it.loss)


SKEWED = 3.0  # times as many texts has the largest class as the smallest: below that weights are nearly equal
MOST_TEXTS, MOST_WORK = 4000, 30_000  # that are read, and texts times classes: a second or two


def class_weights_note(train: Split, texts: TokenizedTexts, *, max_tokens: int, use_char_ngrams: bool) -> str:
    """Describe what `train.class_weights=balanced` would bring; empty where it would not help by more than chance.

    The linear classifier is cross-validated with and without: it helps where the 95% interval of the difference of
    macro-F1, in which each class counts as much, is above zero.
    """
    sizes = np.bincount(train.labels)
    if sizes.max() < SKEWED * sizes.min():
        return ""
    most = min(MOST_TEXTS, MOST_WORK // SINGLE_LABEL.num_one_vs_rest(len(sizes)))
    if len(train) > most:
        rows = np.sort(np.random.default_rng(0).permutation(len(train))[:most])
        train, texts = train.subset(rows), texts.take(rows)
    weights = (np.ones(len(sizes), dtype=np.float32), balanced_weights(sizes))
    readings = [Reading(max_tokens, use_char_ngrams, it) for it in weights]
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
