"""The n-gram features of texts in, a linear classifier out: trained in seconds, hard to beat on small data.

NB-SVM (Wang and Manning, "Baselines and Bigrams: Simple, Good Sentiment and Topic Classification", 2012,
https://aclanthology.org/P12-2018/): each feature is scaled by how much it tells of the class under naive Bayes, then a
linear support vector machine weighs them. How far a text is on a class's side, its margin, then becomes a probability,
by Platt scaling. The SVM's penalty and this calibration are found by cross-validation on the training texts.
"""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from encoder_cls.evaluation.metrics import cross_entropy, one_hot
from encoder_cls.evaluation.multi_label_metrics import binary_cross_entropy
from encoder_cls.inference.linear import LinearClassifier
from encoder_cls.inference.logits import Logits, sigmoid, softmax
from encoder_cls.inference.row_table import compress
from encoder_cls.inference.tasks import MULTI_LABEL, SINGLE_LABEL, Task, task_of
from encoder_cls.text.ngram_features import (
    DISTANCES,
    TEMPLATE_SIZES,
    SparseRows,
    count_features,
    frequent_tokens,
    select,
    tfidf,
)
from encoder_cls.text.token_arrays import TokenizedTexts
from encoder_cls.training.calibration import fit_inverse_temperature, fit_platt
from encoder_cls.training.folds import ENOUGH_HELD_OUT, Groups, all_folds, folds
from encoder_cls.training.multi_label_calibration import fit_platt_per_label

NB_RATIO_POWER = 0.5  # of naive Bayes' ratios: at 1, where classes have few texts, chance scales features
PENALTIES = (0.5, 1.0, 2.0)  # LinearSVC's C, of which cross-validation chooses one
MULTI_LABEL_PENALTIES = (0.1, 0.3, 1.0)  # of labels that are rarer than classes: lower ones have the better precision
OUT_OF_FOLD_PENALTY = 0.25  # where labels may be wrong: one that is small learns less of these
ENOUGH_MULTI_LABEL = 5000  # texts held out, to find two numbers of each label
MOST_FEATURES = 700_000  # of which the more frequent are kept: rarer ones tell little, or mislead
MOST_BYTES = 1 << 25  # of features, since each has a weight a class and a model is to be small


class OneVsRest(NamedTuple):
    """What support vector machines have learned: weights (features, SVMs) and biases (SVMs,)."""

    weights: NDArray[np.float32]
    biases: NDArray[np.float32]


class HeldOut(NamedTuple):
    """What is found out by cross-validation.

    Attributes:
        penalty: the best one.
        scale: by which margins are multiplied, and
        shift: what is added, so that they are their logits; multi-label one of each label, (classes,).
        logits: of the texts held out, those of the first fold first.
    """

    penalty: float
    scale: Any
    shift: Any
    logits: Logits


def fit_linear(
    texts: TokenizedTexts,
    labels: NDArray[Any],
    *,
    class_weights: NDArray[np.float32],
    max_tokens: int,
    use_char_ngrams: bool,
    parts: Sequence[NDArray[np.int64]] = (),
) -> LinearClassifier:
    """Train a linear classifier; cross-validation on the texts chooses its penalty and calibrates its scores.

    Args:
        texts: training texts.
        labels: their classes, (texts,), or all labels of each, (texts, classes).
        class_weights: how much each class counts for the SVMs, (classes,).
        max_tokens: how many tokens of a text to read, `[CLS]` counted.
        use_char_ngrams: as in `count_features`.
        parts: the folds of cross-validation; none: `folds` of all texts.
    """
    task = task_of(labels)
    frequent, feature_ids, counts = _counted(
        texts, task, num_classes=len(class_weights), max_tokens=max_tokens, use_char_ngrams=use_char_ngrams
    )
    parts = parts or folds_of(labels)
    penalty, scale, shift, _ = cross_validate(counts, feature_ids, labels, class_weights, parts)
    idf, ((weights, biases),) = _learn(counts, feature_ids, labels, class_weights, [penalty])
    return LinearClassifier(
        max_tokens=max_tokens,
        frequent_token_ids=frequent,
        feature_ids=feature_ids,
        idf=idf,
        weights=compress(weights * scale, "float32"),
        biases=biases * scale + shift,
        task=task,
    )


def out_of_fold_logits(
    texts: TokenizedTexts,
    labels: NDArray[Any],
    *,
    class_weights: Sequence[NDArray[np.float32]],
    max_tokens: int,
    use_char_ngrams: bool,
    groups: Groups = None,
    penalty: float = OUT_OF_FOLD_PENALTY,
) -> list[Logits]:
    """The logits of all texts, (texts, classes), each from a classifier that has learned from other folds alone.

    Args as of `fit_linear`, but of class weights there are several choices, each of which gives logits, and the penalty
    is given.
    """
    _, feature_ids, counts = _counted(
        texts,
        task_of(labels),
        num_classes=len(class_weights[0]),
        max_tokens=max_tokens,
        use_char_ngrams=use_char_ngrams,
    )
    parts = all_folds(len(labels), groups)
    in_order = np.argsort(np.concatenate(parts))
    return [
        cross_validate(counts, feature_ids, labels, weights, parts, penalties=[penalty]).logits[in_order]
        for weights in class_weights
    ]


def _counted(
    texts: TokenizedTexts, task: Task, *, num_classes: int, max_tokens: int, use_char_ngrams: bool
) -> tuple[NDArray[np.int32], NDArray[np.int32], sp.csr_matrix]:
    """The frequent tokens and the features of texts, and how often which feature occurs in which text."""
    frequent = np.zeros(0, dtype=np.int32)
    if use_char_ngrams:
        frequent = frequent_tokens(texts, max_tokens=max_tokens)
    pieces = list(
        count_features(texts, max_tokens=max_tokens, frequent_token_ids=frequent, use_char_ngrams=use_char_ngrams)
    )
    feature_ids = most_frequent_features(pieces, most_features_of(num_classes, task))
    counts = sp.vstack([as_matrix(select(piece, feature_ids), len(feature_ids)) for piece in pieces], format="csr")
    return frequent, feature_ids, counts


def bytes_at_most(texts: TokenizedTexts, *, num_classes: int, use_char_ngrams: bool, task: Task = SINGLE_LABEL) -> int:
    """What the weights may take that `fit_linear` finds: were no feature ever to occur twice, and within the limit."""
    features = len(texts.words) * (1 + len(DISTANCES))
    if use_char_ngrams:
        features += len(texts.words) * len(TEMPLATE_SIZES) + len(texts.char_ngrams.ngrams)
    return min(features, most_features_of(num_classes, task)) * feature_bytes(num_classes, task)


def most_features_of(num_classes: int, task: Task = SINGLE_LABEL) -> int:
    """How many features are kept, of so many classes."""
    return min(MOST_FEATURES, MOST_BYTES // feature_bytes(num_classes, task))


def feature_bytes(num_classes: int, task: Task = SINGLE_LABEL) -> int:
    """What a feature takes: its id, its inverse document frequency and its weights, four bytes each."""
    return 4 * (2 + task.num_one_vs_rest(num_classes))


def most_frequent_features(pieces: Sequence[SparseRows], limit: int) -> NDArray[np.int32]:
    """The ids of the features that occur in most texts, increasing; one where there is none: LinearSVC wants one."""
    ids, occurrences = np.unique(np.concatenate([piece.columns for piece in pieces]), return_counts=True)
    kept = np.sort(np.argsort(-occurrences, kind="stable")[:limit])
    return ids[kept].astype(np.int32) if len(ids) else np.zeros(1, dtype=np.int32)


def as_matrix(rows: SparseRows, num_columns: int) -> sp.csr_matrix:
    """Sparse rows as SciPy has them."""
    return sp.csr_matrix((rows.values, rows.columns, rows.offsets), shape=(len(rows), num_columns))


def tfidf_matrix(counts: sp.csr_matrix, feature_ids: NDArray[np.int32], idf: NDArray[np.float32]) -> sp.csr_matrix:
    """The features of counts, whose columns are those of the feature ids, as `tfidf` has them."""
    rows = SparseRows(columns=counts.indices, values=counts.data, offsets=counts.indptr)
    return as_matrix(tfidf(rows, feature_ids, idf), counts.shape[1])


def folds_of(labels: NDArray[Any], groups: Groups = None) -> list[NDArray[np.int64]]:
    """The folds of texts with these labels, of which as many are held out as there are numbers to find."""
    enough = ENOUGH_MULTI_LABEL if task_of(labels) is MULTI_LABEL else ENOUGH_HELD_OUT
    return folds(len(labels), groups, enough=enough)


def cross_validate(
    counts: sp.csr_matrix,
    feature_ids: NDArray[np.int32],
    labels: NDArray[Any],
    class_weights: NDArray[np.float32],
    parts: Sequence[NDArray[np.int64]],
    penalties: Sequence[float] = (),
) -> HeldOut:
    """What is found out on the folds `parts`, each held out once, under the best of penalties; none: the usual ones."""
    is_multi_label = task_of(labels) is MULTI_LABEL
    penalties = penalties or (MULTI_LABEL_PENALTIES if is_multi_label else PENALTIES)
    margins: list[list[NDArray[np.float32]]] = []  # of each fold, by each penalty
    for fold in parts:
        others = np.setdiff1d(np.arange(len(labels)), fold)
        idf, by_penalty = _learn(counts[others], feature_ids, labels[others], class_weights, penalties)
        features = tfidf_matrix(counts[fold], feature_ids, idf)
        margins.append([features @ it.weights + it.biases for it in by_penalty])
    found = labels[np.concatenate(parts)]
    choices = []
    for penalty, of_folds in zip(penalties, zip(*margins, strict=True), strict=True):
        together = np.concatenate(of_folds)
        choices.append((calibrate(together, found, class_weights), penalty))
    best, penalty = min(choices, key=lambda choice: (choice[0].loss, choice[1]))
    return HeldOut(penalty, np.float32(best.scale), np.float32(best.shift), best.logits)


class Calibrated(NamedTuple):
    """The loss of texts held out, the scale and the shift of their margins with the lowest, and their logits then."""

    loss: float
    scale: Any
    shift: Any
    logits: Logits


def calibrate(margins: NDArray[np.float32], labels: NDArray[Any], class_weights: NDArray[np.float32]) -> Calibrated:
    """What makes logits of the margins of texts held out: of all classes together, or multi-label of each label."""
    if task_of(labels) is MULTI_LABEL:
        return _calibrate_multi_label(margins, labels)
    if SINGLE_LABEL.num_one_vs_rest(len(class_weights)) == 1:  # a shift of opposite margins has no bias to go to
        scale, shift = fit_inverse_temperature(SINGLE_LABEL.margins_to_logits(margins), labels), 0.0
    else:
        scale, shift = fit_platt(margins, labels)
    logits = SINGLE_LABEL.margins_to_logits((margins * scale + shift).astype(np.float32))
    # What is learned counts classes by their weights, and so does the choice of the penalty; calibration does not.
    loss = cross_entropy(softmax(logits), one_hot(labels, len(class_weights)), class_weights[labels])
    return Calibrated(loss, scale, shift, logits)


def _calibrate_multi_label(margins: NDArray[np.float32], labels: NDArray[np.int8]) -> Calibrated:
    """What fits each label, (labels,); weights of classes change no choice."""
    scales, shifts = fit_platt_per_label(margins, labels)
    logits = (margins * scales + shifts).astype(np.float32)
    return Calibrated(binary_cross_entropy(sigmoid(logits), labels), scales, shifts, logits)


def _learn(
    counts: sp.csr_matrix,
    feature_ids: NDArray[np.int32],
    labels: NDArray[Any],
    class_weights: NDArray[np.float32],
    penalties: Sequence[float],
) -> tuple[NDArray[np.float32], list[OneVsRest]]:
    """Inverse document frequencies (features,), and what one-vs-rest classifiers learn under each penalty."""
    occurrences = counts.getnnz(axis=0)
    idf = inverse_document_frequencies(occurrences, len(labels))
    features = tfidf_matrix(counts, feature_ids, idf)
    text_weights = weights_of_texts(labels, class_weights)
    learned = learn_one_vs_rest(
        features, counts > 0, labels, text_weights, num_classes=len(class_weights), penalties=penalties
    )
    return idf, learned


def inverse_document_frequencies(occurrences: NDArray[np.integer[Any]], num_texts: int) -> NDArray[np.float32]:
    """Those of features that so many of the texts have, (features,)."""
    idf = np.log((1 + num_texts) / (1 + occurrences)) + 1
    idf[occurrences == 0] = 0  # where texts are held out; to the others this feature does not exist
    return idf.astype(np.float32)


def weights_of_texts(labels: NDArray[Any], class_weights: NDArray[np.float32]) -> NDArray[np.float32]:
    """How much each text counts, (texts,); multi-label for each label, (texts, classes), 1 where it has it not."""
    weights: NDArray[np.float32] = np.where(labels, class_weights, 1) if labels.ndim > 1 else class_weights[labels]
    return weights


def learn_one_vs_rest(
    features: sp.csr_matrix,
    present: sp.csr_matrix,
    labels: NDArray[Any],
    text_weights: NDArray[np.float32],
    *,
    num_classes: int,
    penalties: Sequence[float],
    coordinates: NDArray[np.float32] | None = None,
) -> list[OneVsRest]:
    """What one-vs-rest classifiers learn under each penalty.

    Args:
        features: of the texts.
        present: where they have which feature, by which naive Bayes' ratios are counted.
        labels: the texts' classes, (texts,), or all labels of each, (texts, classes).
        text_weights: how much each text counts, (texts,), or for each label, (texts, classes).
        num_classes: how many classes there are.
        penalties: LinearSVC's C.
        coordinates: further numbers of each text, (texts, coordinates), whose weights come after those of the features.
    """
    further = None if coordinates is None else sp.csr_matrix(coordinates)
    num_features = features.shape[1] + (0 if coordinates is None else coordinates.shape[1])
    classes = classes_to_tell(labels, num_classes)
    learned = [
        OneVsRest(np.zeros((num_features, len(classes)), np.float32), np.zeros(len(classes), np.float32))
        for _ in penalties
    ]
    for column, number in enumerate(classes):
        is_class = labels == number if labels.ndim == 1 else labels[:, number] > 0
        weights_of_texts = text_weights if text_weights.ndim == 1 else text_weights[:, number]
        if is_class.all() or not is_class.any():  # where texts are held out
            for it in learned:
                it.biases[column] = 1.0 if is_class.any() else -1.0
            continue
        inside, outside = (np.asarray(present[rows].sum(axis=0), dtype=np.float64) for rows in (is_class, ~is_class))
        ratios = naive_bayes_ratios(inside.ravel(), outside.ravel())
        # The product with a diagonal matrix: scipy's takes as long as half the learning.
        values = features.data * ratios[features.indices]
        scaled = sp.csr_matrix((values, features.indices, features.indptr), shape=features.shape)
        scales = np.ones(num_features, dtype=np.float32)
        scales[: len(ratios)] = ratios
        if further is not None:
            scaled = sp.hstack([scaled, further], format="csr")
        for penalty, it in zip(penalties, learned, strict=True):
            weights, bias = _fit_svm(scaled, is_class, weights_of_texts, penalty=penalty)
            it.weights[:, column] = weights * scales
            it.biases[column] = bias
    return learned


def classes_to_tell(labels: NDArray[Any], num_classes: int) -> range:
    """The classes that have a machine each: of two, the second alone."""
    return range(num_classes - task_of(labels).num_one_vs_rest(num_classes), num_classes)


def _fit_svm(
    features: sp.csr_matrix, is_class: NDArray[np.bool_], text_weights: NDArray[np.float32], *, penalty: float
) -> tuple[NDArray[np.float64], float]:
    """Weights (features,) and bias of a support vector machine."""
    from sklearn.exceptions import ConvergenceWarning
    from sklearn.svm import LinearSVC  # most of a second

    svm = LinearSVC(C=penalty, random_state=0)
    with warnings.catch_warnings():
        # Labels that contradict each other keep it from converging; texts held out judge what it has learned.
        warnings.simplefilter("ignore", category=ConvergenceWarning)
        svm.fit(features, is_class, sample_weight=text_weights)
    return svm.coef_[0], svm.intercept_[0]


def naive_bayes_ratios(inside: NDArray[np.float64], outside: NDArray[np.float64]) -> NDArray[np.float32]:
    """By what each feature is multiplied: how much more often it is in a class than outside, or less, (features,).

    |ln(its share of the class's features / its share of the others')| to the power `NB_RATIO_POWER`, counts being one
    more.

    Args:
        inside: how many texts of the class have it.
        outside: how many other texts.
    """
    inside, outside = 1 + inside, 1 + outside
    ratios = np.log((inside / inside.sum()) / (outside / outside.sum())).astype(np.float32)
    scales: NDArray[np.float32] = np.abs(ratios) ** NB_RATIO_POWER
    return scales
