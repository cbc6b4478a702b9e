"""Fit NB-SVMs: the binary classifiers of the linear model, one for each class.

NB-SVM scales each feature by how strongly naive Bayes links it to a class, and fits a linear
support vector machine to the scaled features (Wang and Manning, "Baselines and Bigrams: Simple,
Good Sentiment and Topic Classification", 2012, https://aclanthology.org/P12-2018/).
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator
from typing import Any, NamedTuple

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from encoder_cls.linear_training.calibration import Calibration
from encoder_cls.linear_training.cost import count_work
from encoder_cls.linear_training.features import CountedTexts, scaled_columns
from encoder_cls.linear_training.svm import fit_svm
from encoder_cls.metrics.tasks import MULTI_LABEL, SINGLE_LABEL, task_of
from encoder_cls.system.stop import check_stop


class OneVsRest(NamedTuple):
    """One-vs-rest classifiers with weights, (features, classifiers)."""

    weights: NDArray[np.float32]
    biases: NDArray[np.float32]

    def margins(self, features: sp.csr_matrix) -> NDArray[np.float32]:
        """The decision values, (texts, classifiers)."""
        margins: NDArray[np.float32] = features @ self.weights + self.biases
        return margins

    def calibrated(self, calibration: Calibration) -> OneVsRest:
        """Classifiers with margins that a calibration has scaled and shifted."""
        scale = calibration.scale
        return OneVsRest(self.weights * scale, self.biases * scale + calibration.shift)


def fit_one_vs_rest(
    features: sp.csr_matrix,
    labels: NDArray[Any],
    class_weights: NDArray[np.float32],
    text_weights: NDArray[np.float32] | None = None,
    *,
    svm_c: float,
) -> OneVsRest:
    """Fit an NB-SVM for each class to TF-IDF values, weighted by class and by text."""
    targets, sample_weights = binary_problems(labels, class_weights)
    if text_weights is not None:
        sample_weights = sample_weights * text_weights[:, None]
    fitted = fit_nb_svms(
        features,
        targets,
        sample_weights,
        text_weights,
        svm_c=svm_c,
        num_others=others_to_learn(*targets.shape),
    )

    num_classifiers = targets.shape[1]
    weights = np.zeros((features.shape[1], num_classifiers), dtype=np.float32)
    biases = np.zeros(num_classifiers, dtype=np.float32)
    for number, classifier in enumerate(fitted):
        weights[:, number] = classifier.weights
        biases[number] = classifier.bias

    # A class that no text has is never predicted. A class that all texts have is always predicted.
    biases[~targets.any(axis=0)] = -1
    biases[targets.all(axis=0)] = 1
    return OneVsRest(weights, biases)


def fit_nb_svms(
    features: sp.csr_matrix,
    targets: NDArray[np.bool_],
    sample_weights: NDArray[np.floating[Any]],
    text_weights: NDArray[np.float32] | None = None,
    *,
    svm_c: float = 1.0,
    num_others: int | None = None,
) -> Iterator[BinaryClassifier]:
    """Fit an NB-SVM to each column of `binary_problems`.

    In naive Bayes, each text counts as `text_weights` texts, by default as one; `num_others` is as
    in `fit_svms`.
    """
    # Mark the features of each text by 1, and count the texts with each feature.
    has_feature = (features > 0).astype(np.float32)
    everywhere = features.getnnz(axis=0)

    # A text with a weight is marked by its weight, and counts as so many texts.
    if text_weights is not None:
        features_per_text = np.diff(has_feature.indptr)
        has_feature.data = np.repeat(text_weights, features_per_text)
        everywhere = np.asarray(has_feature.sum(axis=0, dtype=np.float64)).ravel()

    def ratios() -> Iterator[NDArray[np.float32]]:
        for is_class in targets.T:
            inside = np.asarray(has_feature[is_class].sum(axis=0, dtype=np.float64)).ravel()
            yield naive_bayes_ratio(inside, everywhere)

    return fit_svms(features, ratios(), targets, sample_weights, svm_c=svm_c, num_others=num_others)


# The tolerance at which LinearSVC's solver stops. With scikit-learn's default, 1e-4, accuracies
# were the same, and a fit took up to twice the time.
TOLERANCE = 0.2


class BinaryClassifier(NamedTuple):
    """A binary SVM of unscaled features, (features,)."""

    weights: NDArray[np.float64]
    bias: float


def fit_svms(
    features: sp.csr_matrix,
    scales: Iterable[NDArray[np.float32]],
    targets: NDArray[np.bool_],
    sample_weights: NDArray[np.floating[Any]],
    *,
    svm_c: float = 1.0,
    num_others: int | None = None,
) -> Iterator[BinaryClassifier]:
    """Fit a LinearSVC to scaled features for each column of `binary_problems`.

    `scales` are those of the features, for one classifier after another. Each learns from the texts
    of its class and `num_others` others (None: all). Weights and bias are 0 for a class of all
    texts, or none.
    """
    for classifier, scale in enumerate(scales):
        check_stop()
        is_class = targets[:, classifier]
        count_work(len(is_class))
        if is_class.all() or not is_class.any():
            yield BinaryClassifier(np.zeros(features.shape[1]), 0.0)
            continue

        learned = features
        text_weights = sample_weights[:, classifier]
        if num_others is not None and np.count_nonzero(~is_class) > num_others:
            texts, shares = texts_to_learn(features, is_class, num_others, seed=classifier)
            learned = features[texts]
            is_class = is_class[texts]
            text_weights = text_weights[texts] / shares

        # Always solve the dual problem, in which the tolerance holds for the margin of each text.
        # By default, scikit-learn solves the primal problem if there are more texts than features.
        # Its tolerance is relative to the norm of the first gradient, so it stops far too early.
        svm = fit_svm(
            scaled_columns(learned, scale),
            is_class,
            sample_weight=text_weights,
            C=svm_c,
            tol=TOLERANCE,
            dual=True,
        )

        # Multiply the weights by the scales, so that they apply to unscaled features.
        yield BinaryClassifier(svm.coef_[0] * scale, svm.intercept_[0])


# The most work of a fit, in texts times classifiers, in which each classifier learns from all
# texts.
MAX_WORK = 2_000_000
# In a fit of more work, how many texts of other classes a classifier learns from at least.
MIN_OTHERS = 2000


def others_to_learn(num_texts: int, num_classifiers: int) -> int | None:
    """How many texts of other classes a classifier learns from; None means all.

    With 800 classes, nearly all texts are of other classes, and most have hardly a feature of the
    class.
    """
    if num_texts * num_classifiers <= MAX_WORK:
        return None
    return max(MIN_OTHERS, MAX_WORK // num_classifiers)


def texts_to_learn(
    features: sp.csr_matrix, is_class: NDArray[np.bool_], num_others: int, *, seed: int
) -> tuple[NDArray[np.int64], NDArray[np.float64]]:
    """Choose the texts that a classifier learns from.

    They are those of its class; of the others, half are those most like it, which are hard to tell
    from it, and half are random. Such samples are usual with very many classes: Jain et al.,
    "Slice: Scalable Linear Extreme Classifiers Trained on 100 Million Labels for Related Searches"
    (2019), https://doi.org/10.1145/3289600.3290979.

    Returns:
        The rows, increasing, and the probability with which each was chosen.
    """
    centre = np.asarray(features[is_class].sum(axis=0)).ravel()
    likeness = features @ centre
    others = np.flatnonzero(~is_class)

    num_hard = num_others // 2
    num_drawn = num_others - num_hard
    most_alike_first = others[np.argpartition(-likeness[others], num_hard)]
    hard, rest = most_alike_first[:num_hard], most_alike_first[num_hard:]
    drawn = np.random.default_rng(seed).choice(rest, num_drawn, replace=False)

    shares = np.ones(len(is_class))
    shares[rest] = num_drawn / len(rest)
    chosen = np.sort(np.concatenate([np.flatnonzero(is_class), hard, drawn]))
    return chosen, shares[chosen]


def binary_problems(
    labels: NDArray[Any], class_weights: NDArray[np.float32]
) -> tuple[NDArray[np.bool_], NDArray[np.float32]]:
    """Whether texts are of each class, and their weights, both (texts, classifiers).

    Two single-label classes have one classifier, of the second. A text has the weight of its class
    for all; multi-label, that of a label that it has, and 1 for the others.
    """
    if task_of(labels) is MULTI_LABEL:
        return labels > 0, np.where(labels, class_weights, 1)

    # Classifiers are those of the last classes: of all, or of the second of two.
    num_classes = len(class_weights)
    num_classifiers = SINGLE_LABEL.num_one_vs_rest(num_classes)
    classes = np.arange(num_classes - num_classifiers, num_classes)

    is_class = labels[:, None] == classes
    weights_of_texts = class_weights[labels][:, None]
    return is_class, np.broadcast_to(weights_of_texts, is_class.shape)


# The power to which the logarithms of naive Bayes ratios are raised. With a power of 1, the scales
# of classes with few texts are mostly noise.
NB_RATIO_POWER = 0.5


def naive_bayes_ratios(
    inside: NDArray[np.float64], everywhere: NDArray[Any]
) -> NDArray[np.float32]:
    """|ln(share in the class / share in the others)| ** `NB_RATIO_POWER`, (features, classifiers).

    The share of a feature is (count + 1) / sum over all features of (count + 1), where it is in
    `count` texts.

    Args:
        inside: counts in texts of each class, (features, classifiers).
        everywhere: counts in all texts, (features,).
    """
    return np.stack([naive_bayes_ratio(counts, everywhere) for counts in inside.T], axis=1)


def naive_bayes_ratio(
    texts_in_class: NDArray[np.float64], everywhere: NDArray[Any]
) -> NDArray[np.float32]:
    """See `naive_bayes_ratios`; for one classifier."""
    class_counts = 1 + texts_in_class
    other_counts = 1 + (everywhere - texts_in_class)

    class_shares = class_counts / class_counts.sum()
    other_shares = other_counts / other_counts.sum()

    log_ratios = np.log(class_shares / other_shares).astype(np.float32)
    ratio: NDArray[np.float32] = np.abs(log_ratios) ** NB_RATIO_POWER
    return ratio


# How many classifiers are timed. They are drawn at random, because the time depends on the number
# of texts of a class.
TIMED_CLASSIFIERS = 8


def seconds_of_fit(
    features: sp.csr_matrix,
    targets: NDArray[np.bool_],
    sample_weights: NDArray[np.floating[Any]],
    *,
    num_others: int | None = None,
) -> float:
    """Estimate the seconds of a fit of all classifiers by a fit of some."""
    # Import scikit-learn before the clock starts, because the import takes most of a second.
    import sklearn.svm  # noqa: F401

    num_classifiers = targets.shape[1]
    timed = np.random.default_rng(0).permutation(num_classifiers)[:TIMED_CLASSIFIERS]

    began = time.monotonic()
    fitted = fit_nb_svms(
        features, targets[:, timed], sample_weights[:, timed], num_others=num_others
    )
    for _ in fitted:
        pass
    seconds = time.monotonic() - began

    return float(seconds * num_classifiers / len(timed))


def seconds_to_fit(texts: CountedTexts) -> float:
    """Estimate the seconds of a fit to all texts."""
    targets, sample_weights = binary_problems(texts.labels, texts.class_weights)
    num_others = others_to_learn(*targets.shape)
    return seconds_of_fit(texts.features, targets, sample_weights, num_others=num_others)
