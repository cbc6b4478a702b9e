"""Fit NB-SVM, one class against the rest.

NB-SVM (Wang and Manning, "Baselines and Bigrams: Simple, Good Sentiment and Topic Classification", 2012,
https://aclanthology.org/P12-2018/): each feature is scaled by how much it tells of the class under naive Bayes, then a
linear support vector machine weighs them. How far a text is on a class's side, its margin, then becomes a probability,
by Platt scaling. The SVM's penalty and this calibration are found on texts held out: those of validation where they are
enough for it, else by cross-validation on the training texts.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from encoder_cls.evaluation.baseline import fit_svm
from encoder_cls.evaluation.metrics import binary_cross_entropy, cross_entropy, one_hot
from encoder_cls.inference.linear import LinearClassifier
from encoder_cls.inference.task import MULTI_LABEL, SINGLE_LABEL, Logits, sigmoid, softmax, task_of
from encoder_cls.inference.weights import compress
from encoder_cls.system.stop import while_waited_for
from encoder_cls.text.tokens import TokenizedTexts
from encoder_cls.training.linear.calibration import fit_inverse_temperature, fit_platt, fit_platt_per_label
from encoder_cls.training.linear.features import (
    FeatureCounter,
    count_matrix,
    count_occurrences,
    inverse_document_frequencies,
    most_features_of,
    scaled_columns,
    tfidf_matrix,
)
from encoder_cls.training.linear.folds import ENOUGH_HELD_OUT, all_folds, folds

NB_RATIO_POWER = 0.5  # of naive Bayes' ratios: at 1, where classes have few texts, chance scales features
TOLERANCE = 0.2  # LinearSVC's: with its own 1e-4 no accuracy was another, and learning took up to twice the time


class OneVsRest(NamedTuple):
    """What support vector machines have learned: weights (features, SVMs) and biases (SVMs,)."""

    weights: NDArray[np.float32]
    biases: NDArray[np.float32]


def learn_one_vs_rest(
    features: sp.csr_matrix,
    present: sp.csr_matrix,
    labels: NDArray[Any],
    text_weights: NDArray[np.float32],
    *,
    num_classes: int,
    penalty: float,
    coordinates: NDArray[np.float32] | None = None,
) -> OneVsRest:
    """What one-vs-rest classifiers learn.

    Args:
        features: of the texts.
        present: where they have which feature, by which naive Bayes' ratios are counted.
        labels: the texts' classes, (texts,), or all labels of each, (texts, classes).
        text_weights: how much each text counts, (texts,), or for each label, (texts, classes).
        num_classes: how many classes there are.
        penalty: LinearSVC's C.
        coordinates: further numbers of each text, (texts, coordinates), whose weights come after those of the features.
    """
    further = None if coordinates is None else sp.csr_matrix(coordinates)
    num_features = features.shape[1] + (0 if coordinates is None else coordinates.shape[1])
    classes = classes_to_tell(labels, num_classes)
    weights, biases = np.zeros((num_features, len(classes)), np.float32), np.zeros(len(classes), np.float32)
    everywhere = np.asarray(present.sum(axis=0, dtype=np.float64)).ravel()
    for column, number in enumerate(classes):
        with while_waited_for():
            pass
        is_class, of_class = of_one_class(labels, text_weights, number)
        if is_class.all() or not is_class.any():  # where texts are held out
            biases[column] = 1.0 if is_class.any() else -1.0
            continue
        inside = np.asarray(present[is_class].sum(axis=0, dtype=np.float64)).ravel()
        ratios = naive_bayes_ratios(inside, everywhere - inside)
        scaled, scales = scaled_columns(features, ratios), np.ones(num_features, dtype=np.float32)
        scales[: len(ratios)] = ratios
        if further is not None:
            scaled = sp.hstack([scaled, further], format="csr")
        svm = fit_svm(scaled, is_class, sample_weight=of_class, C=penalty, tol=TOLERANCE)
        weights[:, column], biases[column] = svm.coef_[0] * scales, svm.intercept_[0]
    return OneVsRest(weights, biases)


def classes_to_tell(labels: NDArray[Any], num_classes: int) -> range:
    """The classes that have a machine each: of two, the second alone."""
    return range(num_classes - task_of(labels).num_one_vs_rest(num_classes), num_classes)


def weights_of_texts(labels: NDArray[Any], class_weights: NDArray[np.float32]) -> NDArray[np.float32]:
    """How much each text counts, (texts,); multi-label for each label, (texts, classes), 1 where it has it not."""
    weights: NDArray[np.float32] = np.where(labels, class_weights, 1) if labels.ndim > 1 else class_weights[labels]
    return weights


def of_one_class(
    labels: NDArray[Any], text_weights: NDArray[np.float32], number: int
) -> tuple[NDArray[np.bool_], NDArray[np.float32]]:
    """Which texts are of a class, and how much each text counts for it; args as of `learn_one_vs_rest`."""
    is_class = labels == number if labels.ndim == 1 else labels[:, number] > 0
    return is_class, text_weights if text_weights.ndim == 1 else text_weights[:, number]


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


PENALTIES = (0.125, 0.25, 0.5, 1.0, 2.0)  # LinearSVC's C; texts held out choose one: where labels are wrong, a low one
LEAST_GAIN = 0.01  # in loss, of a lower penalty: of two with about the same loss the higher one is more often right
MULTI_LABEL_PENALTIES = (0.1, 0.3, 1.0)  # of labels that are rarer than classes: lower ones have the better precision
OUT_OF_FOLD_PENALTY = 0.25  # where labels may be wrong: one that is small learns less of these
ENOUGH_MULTI_LABEL = 5000  # texts held out, to find two numbers of each label


class HeldOutTexts(NamedTuple):
    """Texts that are not learned from, with their labels, as those of training."""

    texts: TokenizedTexts
    labels: NDArray[Any]


class FoundOut(NamedTuple):
    """What is found out on texts held out.

    Attributes:
        loss: the lowest one, where every class has its weight.
        penalty: under which there were these margins.
        scale: by which margins are multiplied, and
        shift: what is added, so that they are their logits; multi-label one of each label, (classes,).
        logits: of the texts held out; of folds those of the first one first.
    """

    loss: float
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
    held_out: HeldOutTexts | None = None,
    parts: Sequence[NDArray[np.int64]] = (),
) -> LinearClassifier:
    """Train a linear classifier; texts held out choose its penalty and calibrate its scores.

    Args:
        texts: training texts.
        labels: their classes, (texts,), or all labels of each, (texts, classes).
        class_weights: how much each class counts for the SVMs, (classes,).
        max_tokens: how many tokens of a text to read, `[CLS]` counted.
        use_char_ngrams: as in `count_features`.
        held_out: these texts; none, or not enough of them: those of cross-validation.
        parts: the folds of cross-validation; none: `folds_of` texts of which each is held out for itself.
    """
    return fit_linear_with_choice(
        texts,
        labels,
        class_weights=class_weights,
        max_tokens=max_tokens,
        use_char_ngrams=use_char_ngrams,
        held_out=held_out,
        parts=parts,
    )[0]


def fit_linear_with_choice(
    texts: TokenizedTexts,
    labels: NDArray[Any],
    *,
    class_weights: NDArray[np.float32],
    max_tokens: int,
    use_char_ngrams: bool,
    held_out: HeldOutTexts | None,
    parts: Sequence[NDArray[np.int64]],
    on_first: Callable[[LinearClassifier], None] = lambda _: None,
) -> tuple[LinearClassifier, FoundOut]:
    """As `fit_linear`, and what was found out on texts held out, for `refit_linear`.

    `on_first` is given what is found under the first penalty, where `held_out` judges it.
    """
    counter = FeatureCounter.of(texts, max_tokens=max_tokens, use_char_ngrams=use_char_ngrams)
    feature_ids, counts = _counted(counter, texts, labels, num_classes=len(class_weights))
    learner = _Learner(counts, feature_ids, labels, class_weights)
    if held_out is None or len(held_out.labels) < _enough_held_out(labels):
        found = cross_validate(
            counts, feature_ids, labels, class_weights, parts or folds_of(labels, np.arange(len(labels)))
        )
        return learner.classifier(counter, learner.learn(found.penalty), found), found
    features = learner.features(count_matrix(counter.counts(held_out.texts), feature_ids))
    learned: dict[float, OneVsRest] = {}

    def judged(penalty: float) -> FoundOut:
        machines = learned[penalty] = learner.learn(penalty)
        found = calibrate(features @ machines.weights + machines.biases, held_out.labels, class_weights, penalty)
        if len(learned) == 1:
            on_first(learner.classifier(counter, machines, found))
        return found

    found = _best_penalty(judged, _penalties(labels))
    return learner.classifier(counter, learned[found.penalty], found), found


def refit_linear(
    texts: TokenizedTexts,
    labels: NDArray[Any],
    found: FoundOut,
    *,
    class_weights: NDArray[np.float32],
    max_tokens: int,
    use_char_ngrams: bool,
) -> LinearClassifier:
    """Train again, on texts of which some were held out before, with the penalty and calibration found there.

    Args as of `fit_linear`.
    """
    counter = FeatureCounter.of(texts, max_tokens=max_tokens, use_char_ngrams=use_char_ngrams)
    feature_ids, counts = _counted(counter, texts, labels, num_classes=len(class_weights))
    learner = _Learner(counts, feature_ids, labels, class_weights)
    return learner.classifier(counter, learner.learn(found.penalty), found)


def fit_first_linear(
    texts: TokenizedTexts,
    labels: NDArray[Any],
    *,
    class_weights: NDArray[np.float32],
    max_tokens: int,
    held_out: HeldOutTexts,
) -> LinearClassifier:
    """What there can be of `fit_linear` in a fraction of its time: of words and pairs alone, under one penalty.

    Args as of `fit_linear`; the texts held out calibrate it, however few they are.
    """
    counter = FeatureCounter.of(texts, max_tokens=max_tokens, use_char_ngrams=False)
    feature_ids, counts = _counted(counter, texts, labels, num_classes=len(class_weights))
    learner, penalty = _Learner(counts, feature_ids, labels, class_weights), _penalties(labels)[-2]
    machines = learner.learn(penalty)
    features = learner.features(count_matrix(counter.counts(held_out.texts), feature_ids))
    margins = features @ machines.weights + machines.biases
    return learner.classifier(counter, machines, calibrate(margins, held_out.labels, class_weights, penalty))


def out_of_fold_logits(
    texts: TokenizedTexts,
    labels: NDArray[Any],
    *,
    class_weights: Sequence[NDArray[np.float32]],
    max_tokens: int,
    use_char_ngrams: bool,
    together: NDArray[np.int64],
    penalty: float = OUT_OF_FOLD_PENALTY,
) -> list[Logits]:
    """The logits of all texts, (texts, classes), each from a classifier that has learned from other folds alone.

    Args as of `fit_linear` and `folds`, but of class weights there are several choices, each of which gives logits, and
    the penalty is given.
    """
    counter = FeatureCounter.of(texts, max_tokens=max_tokens, use_char_ngrams=use_char_ngrams)
    feature_ids, counts = _counted(counter, texts, labels, num_classes=len(class_weights[0]))
    parts = all_folds(together)
    in_order = np.argsort(np.concatenate(parts))
    return [
        cross_validate(counts, feature_ids, labels, weights, parts, penalties=[penalty]).logits[in_order]
        for weights in class_weights
    ]


def _counted(
    counter: FeatureCounter, texts: TokenizedTexts, labels: NDArray[Any], *, num_classes: int
) -> tuple[NDArray[np.int32], sp.csr_matrix]:
    """The most frequent features of texts, and how often which of them occurs in which text."""
    counts = counter.counts(texts)
    feature_ids = count_occurrences(counts).most_frequent(most_features_of(num_classes, task_of(labels))).ids
    return feature_ids, count_matrix(counts, feature_ids)


def folds_of(labels: NDArray[Any], together: NDArray[np.int64]) -> list[NDArray[np.int64]]:
    """The folds of texts with these labels, of which as many are held out as there are numbers to find."""
    return folds(together, enough=_enough_held_out(labels))


def _enough_held_out(labels: NDArray[Any]) -> int:
    """How many texts have to be held out to find a penalty and a calibration."""
    return ENOUGH_MULTI_LABEL if task_of(labels) is MULTI_LABEL else ENOUGH_HELD_OUT


class _Learner:
    """Learns from texts under one penalty after the other.

    Args:
        counts: how often which text has which feature.
        feature_ids: of the columns.
        labels: as in `fit_linear`.
        class_weights: as in `fit_linear`.

    Attributes:
        idf: inverse document frequencies, (features,).
    """

    def __init__(
        self,
        counts: sp.csr_matrix,
        feature_ids: NDArray[np.int32],
        labels: NDArray[Any],
        class_weights: NDArray[np.float32],
    ) -> None:
        self.feature_ids, self.labels, self.class_weights = feature_ids, labels, class_weights
        self.idf = inverse_document_frequencies(counts.getnnz(axis=0), len(labels))
        self._features = tfidf_matrix(counts, feature_ids, self.idf)
        self._present = (counts > 0).astype(np.float32)

    def learn(self, penalty: float) -> OneVsRest:
        """What one-vs-rest classifiers learn."""
        return learn_one_vs_rest(
            self._features,
            self._present,
            self.labels,
            weights_of_texts(self.labels, self.class_weights),
            num_classes=len(self.class_weights),
            penalty=penalty,
        )

    def features(self, counts: sp.csr_matrix) -> sp.csr_matrix:
        """Those of other texts."""
        return tfidf_matrix(counts, self.feature_ids, self.idf)

    def classifier(self, counter: FeatureCounter, machines: OneVsRest, found: FoundOut) -> LinearClassifier:
        """That of what has been learned, calibrated."""
        return LinearClassifier(
            max_tokens=counter.max_tokens,
            frequent_token_ids=counter.frequent_token_ids,
            feature_ids=self.feature_ids,
            idf=self.idf,
            weights=compress(machines.weights * found.scale, "float32"),
            biases=machines.biases * found.scale + found.shift,
            task=task_of(self.labels),
        )


def cross_validate(
    counts: sp.csr_matrix,
    feature_ids: NDArray[np.int32],
    labels: NDArray[Any],
    class_weights: NDArray[np.float32],
    parts: Sequence[NDArray[np.int64]],
    penalties: Sequence[float] = (),
) -> FoundOut:
    """What is found out on the folds `parts`, each held out once, under the best of penalties; none: the usual ones."""

    def judged(penalty: float) -> FoundOut:
        margins = []
        for fold in parts:
            others = np.setdiff1d(np.arange(len(labels)), fold)
            learner = _Learner(counts[others], feature_ids, labels[others], class_weights)
            machines = learner.learn(penalty)
            margins.append(learner.features(counts[fold]) @ machines.weights + machines.biases)
        return calibrate(np.concatenate(margins), labels[np.concatenate(parts)], class_weights, penalty)

    return _best_penalty(judged, penalties or _penalties(labels))


def _penalties(labels: NDArray[Any]) -> Sequence[float]:
    return MULTI_LABEL_PENALTIES if task_of(labels) is MULTI_LABEL else PENALTIES


def _best_penalty(judged: Callable[[float], FoundOut], penalties: Sequence[float]) -> FoundOut:
    """The best of increasing penalties: from the last but one down, else up, as long as the loss falls."""
    if len(penalties) == 1:
        return judged(penalties[0])
    *lower, first, highest = penalties
    best = judged(first)
    for penalty in reversed(lower):
        found = judged(penalty)
        if found.loss > (1 - LEAST_GAIN) * best.loss:
            break
        best = found
    if best.penalty != first:
        return best
    return min(best, judged(highest), key=lambda it: it.loss)


def calibrate(
    margins: NDArray[np.float32], labels: NDArray[Any], class_weights: NDArray[np.float32], penalty: float
) -> FoundOut:
    """What makes logits of the margins of texts held out: of all classes together, or multi-label of each label."""
    if task_of(labels) is MULTI_LABEL:
        return _calibrate_multi_label(margins, labels, penalty)
    if SINGLE_LABEL.num_one_vs_rest(len(class_weights)) == 1:  # a shift of opposite margins has no bias to go to
        scale, shift = fit_inverse_temperature(SINGLE_LABEL.margins_to_logits(margins), labels), 0.0
    else:
        (scale,), shift = fit_platt([margins], labels, len(class_weights))
    logits = SINGLE_LABEL.margins_to_logits((margins * scale + shift).astype(np.float32))
    # What is learned counts classes by their weights, and so does the choice of the penalty; calibration does not.
    loss = cross_entropy(softmax(logits), one_hot(labels, len(class_weights)), class_weights[labels])
    return FoundOut(loss, penalty, np.float32(scale), np.float32(shift), logits)


def _calibrate_multi_label(margins: NDArray[np.float32], labels: NDArray[np.int8], penalty: float) -> FoundOut:
    """What fits each label, (labels,); weights of classes change no choice."""
    scales, shifts = fit_platt_per_label(margins, labels)
    logits = (margins * scales + shifts).astype(np.float32)
    loss = binary_cross_entropy(sigmoid(logits), labels)
    return FoundOut(loss, penalty, scales.astype(np.float32), shifts.astype(np.float32), logits)
