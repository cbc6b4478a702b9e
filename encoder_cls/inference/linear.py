"""A linear classifier of what `features` counts in texts: trained in seconds, hard to beat on small data.

NB-SVM (Wang and Manning, "Baselines and Bigrams: Simple, Good Sentiment and Topic Classification", 2012,
https://aclanthology.org/P12-2018/): each feature is scaled by how much it tells of the class under naive Bayes, then a
linear support vector machine weighs them. How far a text is on a class's side, its margin, then becomes a probability,
by Platt scaling. The machine's penalty and this calibration are found by cross-validation on the training texts.
"""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from encoder_cls.inference.calibration import Logits, cross_entropy, fit_platt, fit_scale, log_sigmoid, one_hot, softmax
from encoder_cls.text.ngram_features import (
    DISTANCES,
    PATTERN_NAMES,
    PATTERN_SIZES,
    count_features,
    frequent_words,
    select,
    tfidf,
)
from encoder_cls.text.token_arrays import TokenizedTexts

NB_RATIO_POWER = (
    0.5  # in naive Bayes, the power of its ratios: at 1, where classes have few texts, chance scales features
)
PENALTIES = (0.5, 1.0, 2.0)  # LinearSVC's C, of which cross-validation chooses one
FOLDS = 5  # of cross-validation
ENOUGH_HELD_OUT = 1000  # texts, to find three numbers
MOST_FEATURES = 700_000  # of which the more frequent are kept: rarer ones tell little, or mislead
MOST_BYTES = 1 << 25  # of features, since each has a weight a class and a model is to be small


@dataclass(frozen=True, kw_only=True)
class LinearClassifier:
    """What NB-SVM has learnt, one class against the rest; of two classes, the second against the first.

    Attributes:
        reach: how many tokens of a text it reads, `[CLS]` counted.
        frequent: the ids of the words that count as themselves in patterns, (frequent words,).
        names: the features' hashes, increasing, (features,).
        idf: their inverse document frequencies, (features,).
        weights: (features, classes), or (features, 1) of two classes.
        biases: (classes,), or (1,) of two classes.
    """

    reach: int
    frequent: NDArray[np.int32]
    names: NDArray[np.int32]
    idf: NDArray[np.float32]
    weights: NDArray[np.float32]
    biases: NDArray[np.float32]

    def scores(self, texts: TokenizedTexts) -> Logits:
        """Each text's logits, (texts, classes)."""
        words_only = not (self.names[-1:] >= PATTERN_NAMES).any()
        pieces = [
            tfidf(select(counts, self.names), self.names, self.idf) @ self.weights
            for counts in count_features(texts, reach=self.reach, frequent=self.frequent, words_only=words_only)
        ]
        return _scores(np.concatenate([np.zeros((0, self.weights.shape[1]), np.float32), *pieces]) + self.biases)


class _OneVsRest(NamedTuple):
    """What support vector machines have learnt: weights (features, machines) and biases (machines,)."""

    weights: NDArray[np.float32]
    biases: NDArray[np.float32]


def fit_linear(
    texts: TokenizedTexts,
    labels: NDArray[np.int64],
    *,
    class_weights: NDArray[np.float32],
    reach: int,
    words_only: bool,
) -> LinearClassifier:
    """Train a linear classifier; cross-validation on the texts chooses its penalty and calibrates its scores.

    Args:
        texts: training texts.
        labels: their classes, (texts,).
        class_weights: how much each class counts, (classes,).
        reach: how many tokens of a text to read, `[CLS]` counted.
        words_only: whether to look at words and pairs alone, which take a twentieth of the memory.
    """
    num_classes = len(class_weights)
    frequent = np.zeros(0, dtype=np.int32) if words_only else frequent_words(texts, reach=reach)
    pieces = count_features(texts, reach=reach, frequent=frequent, words_only=words_only)
    counts = sp.vstack(list(pieces), format="csr")
    names, occurrences = np.unique(counts.indices, return_counts=True)
    if not len(names):  # no text has a word, and LinearSVC wants a feature
        names, occurrences = np.zeros(1, dtype=np.int32), np.zeros(1, dtype=np.int64)
    kept = np.sort(np.argsort(-occurrences, kind="stable")[: _most_features(num_classes)])
    names = names[kept].astype(np.int32)
    counts = select(counts, names)
    penalty, scale, shift = _cross_validated(counts, names, labels, class_weights)
    idf, ((weights, biases),) = _learn(counts, names, labels, class_weights, [penalty])
    return LinearClassifier(
        reach=reach,
        frequent=frequent,
        names=names,
        idf=idf,
        weights=weights * scale,
        biases=biases * scale + shift,
    )


def bytes_at_most(texts: TokenizedTexts, *, num_classes: int, words_only: bool) -> int:
    """What the weights may take that `fit_linear` finds: were no feature ever to occur twice, and within the limit."""
    features = len(texts.words) * (1 + len(DISTANCES))
    if not words_only:
        features += len(texts.words) * len(PATTERN_SIZES) + len(texts.spellings.ngrams)
    return min(features, _most_features(num_classes)) * feature_bytes(num_classes)


def _most_features(num_classes: int) -> int:
    """How many features are kept, of so many classes."""
    return min(MOST_FEATURES, MOST_BYTES // feature_bytes(num_classes))


def feature_bytes(num_classes: int) -> int:
    """What a feature takes: its name, its inverse document frequency and its weights, four bytes each."""
    return 4 * (2 + num_one_vs_rest(num_classes))


def num_one_vs_rest(num_classes: int) -> int:
    """One for each class; of two classes the second's tells both."""
    return num_classes if num_classes > 2 else 1


def _cross_validated(
    counts: sp.csr_matrix, names: NDArray[np.int32], labels: NDArray[np.int64], class_weights: NDArray[np.float32]
) -> tuple[float, np.float32, np.float32]:
    """The penalty that suits texts held out best, and the scale and the shift that make its margins their logits."""
    order = np.random.default_rng(0).permutation(len(labels))
    held_out: list[NDArray[np.int64]] = []
    margins: list[list[NDArray[np.float32]]] = []  # of each fold, by each penalty
    for fold in np.array_split(order, min(FOLDS, len(labels))):
        others = np.setdiff1d(order, fold)
        idf, by_penalty = _learn(counts[others], names, labels[others], class_weights, PENALTIES)
        features = tfidf(counts[fold], names, idf)
        margins.append([features @ weights + biases for weights, biases in by_penalty])
        held_out.append(labels[fold])
        if sum(map(len, held_out)) >= ENOUGH_HELD_OUT:
            break
    found = np.concatenate(held_out)
    targets = one_hot(found, len(class_weights))
    choices = []
    for penalty, parts in zip(PENALTIES, zip(*margins, strict=True), strict=True):
        together = np.concatenate(parts)
        if num_one_vs_rest(len(class_weights)) == 1:  # a shift of opposite margins has no bias to go to
            scale, shift = fit_scale(_scores(together), found, class_weights[found]), 0.0
        else:
            scale, shift = fit_platt(together, found, class_weights[found])
        scores = _scores((together * scale + shift).astype(np.float32))
        choices.append((cross_entropy(softmax(scores), targets, class_weights[found]), penalty, scale, shift))
    _, penalty, scale, shift = min(choices)
    return penalty, np.float32(scale), np.float32(shift)


def _learn(
    counts: sp.csr_matrix,
    names: NDArray[np.int32],
    labels: NDArray[np.int64],
    class_weights: NDArray[np.float32],
    penalties: Sequence[float],
) -> tuple[NDArray[np.float32], list[_OneVsRest]]:
    """Inverse document frequencies (features,), and what machines learn under each penalty."""
    from sklearn.exceptions import ConvergenceWarning
    from sklearn.svm import LinearSVC  # most of a second

    num_classes = len(class_weights)
    present = counts > 0
    occurrences = counts.getnnz(axis=0)
    idf = np.log((1 + len(labels)) / (1 + occurrences)) + 1
    idf[occurrences == 0] = 0  # where texts are held out; to the others this feature does not exist
    features = tfidf(counts, names, idf.astype(np.float32))
    classes = range(num_classes - num_one_vs_rest(num_classes), num_classes)
    learnt = [
        _OneVsRest(np.zeros((len(names), len(classes)), np.float32), np.zeros(len(classes), np.float32))
        for _ in penalties
    ]
    for machine, number in enumerate(classes):
        is_class = labels == number
        if is_class.all() or not is_class.any():  # where texts are held out
            for it in learnt:
                it.biases[machine] = 1.0 if is_class.any() else -1.0
            continue
        ratios = np.abs(_log_count_ratios(present, is_class)) ** NB_RATIO_POWER
        # The product with a diagonal matrix: scipy's takes as long as half the learning.
        values = features.data * ratios[features.indices]
        scaled = sp.csr_matrix((values, features.indices, features.indptr), shape=features.shape)
        for penalty, it in zip(penalties, learnt, strict=True):
            svm = LinearSVC(C=penalty, random_state=0)
            with warnings.catch_warnings():
                # Labels that contradict each other keep it from converging; texts held out judge what it has learnt.
                warnings.simplefilter("ignore", category=ConvergenceWarning)
                svm.fit(scaled, is_class, sample_weight=class_weights[labels])
            it.weights[:, machine] = svm.coef_[0] * ratios
            it.biases[machine] = svm.intercept_[0]
    return idf.astype(np.float32), learnt


def _scores(margins: Logits) -> Logits:
    """What margins say of all classes, (texts, classes).

    Of two classes there is the second's margin, and the first's is its opposite. Each of more classes has a probability
    by itself: a softmax of their margins would be too sure of many texts, and too unsure of those that no class claims.
    """
    return np.hstack([-margins, margins]) if margins.shape[1] == 1 else log_sigmoid(margins).astype(np.float32)


def _log_count_ratios(present: sp.csr_matrix, is_class: NDArray[np.bool_]) -> NDArray[np.float32]:
    """Of each feature, ln(its share of the class's features / its share of the others'), counts being one more."""
    inside = 1 + np.asarray(present[is_class].sum(axis=0), dtype=np.float64).ravel()
    outside = 1 + np.asarray(present[~is_class].sum(axis=0), dtype=np.float64).ravel()
    ratios: NDArray[np.float32] = np.log((inside / inside.sum()) / (outside / outside.sum())).astype(np.float32)
    return ratios
