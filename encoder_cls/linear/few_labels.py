"""Fit a linear classifier to few labels, or class names alone, and to texts without labels.

Self-training: a classifier of the labelled texts guesses the classes of the others, and the next
one also learns from its surest guesses, more of them each round, finally all. Out-of-fold answers
decide between the classifier of the last round, the mean of all rounds, and a classifier of the
labels alone. Each has one weight per feature and class.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from encoder_cls.config.schema import TrainConfig
from encoder_cls.linear.calibration import NO_TEXTS, Calibration, calibrate, folds
from encoder_cls.linear.features import FeatureCorpus, Reading
from encoder_cls.linear.linear_model import LinearClassifier
from encoder_cls.linear.nb_svm import (
    OneVsRest,
    cross_validate,
    fit_linear,
    fit_machines,
    naive_bayes_ratios,
)
from encoder_cls.metrics.logits import SINGLE_LABEL, Logits, softmax
from encoder_cls.text.tokens import TokenizedTexts

# The kinds of classifiers that are compared.
ALONE = "labels alone"
LAST = "self-training"
MEAN = "self-training, mean of its rounds"

# With fewer labelled texts, accuracy is not extrapolated: half of them must still teach something.
FEWEST_EXTRAPOLATED = 40


class FewLabels(NamedTuple):
    """What was learned about classifiers of few labels.

    Attributes:
        kept: the kind of classifier that was kept: `ALONE`, `LAST` or `MEAN`.
        accuracy_before: out of fold, of the labels alone.
        accuracy: out of fold, of the kind that was kept.
        accuracy_with_twice: with twice as many labels; None with too few to extrapolate from.
        teacher: on request, a classifier that has not learned from the texts held out, from which
            an encoder can learn.
        rows: the labelled texts, those held out first.
        logits: of these texts, out of fold, (texts, classes).
    """

    kept: str
    accuracy_before: float
    accuracy: float
    accuracy_with_twice: float | None
    teacher: LinearClassifier | None
    rows: NDArray[np.int64]
    logits: Logits


def fit_linear_from_few_labels(
    texts: TokenizedTexts,
    labels: NDArray[np.int64],
    names: TokenizedTexts,
    reading: Reading,
    *,
    config: TrainConfig,
    together: NDArray[np.int64],
    held_out: NDArray[np.int64] = NO_TEXTS,
    with_teacher: bool = False,
) -> tuple[LinearClassifier, FewLabels]:
    """Fit a linear classifier by self-training, unless the labels alone are more accurate.

    Args:
        texts: those with labels, then those without, which are sampled.
        labels: of the first texts.
        names: the class names as texts.
        reading: what is read of texts, and the weight of each class.
        config: which techniques are used.
        together: the group of each labelled text, as in `folds`.
        held_out: the rows of labelled texts that are one fold of the cross-validation.
        with_teacher: also fit a classifier that has not learned from the texts held out.
    """
    corpus = FeatureCorpus(texts, labels, names, reading, dimensions=config.lsa_dimensions)
    training = _SelfTraining(corpus, config)

    # Choose the kind of classifier by out-of-fold answers.
    parts = folds(together, first=held_out)
    rows = np.concatenate(parts)
    calibrations = training.cross_validate(parts)
    is_right = {
        kind: _is_right(calibration, labels[rows]) for kind, calibration in calibrations.items()
    }
    kept = _best(is_right)
    accuracy = float(is_right[kept].mean())

    accuracy_with_twice = None
    if len(labels) >= FEWEST_EXTRAPOLATED and len(parts) > 2:
        accuracy_with_twice = _accuracy_with_twice(training, labels, parts, kept, accuracy)

    def fitted(learned: NDArray[np.int64]) -> LinearClassifier:
        calibration = calibrations[kept]
        if kept == ALONE:
            classifier, _ = fit_linear(
                texts.take(learned), labels[learned], reading, choice=calibration
            )
            return classifier
        machines = training.learn(learned, corpus.unlabelled)[kept]
        return corpus.vocabulary.classifier(*machines.calibrated(calibration))

    # Fit that kind to all labels, and as a teacher to those that are not held out.
    all_rows = np.arange(len(labels))
    classifier = fitted(all_rows)
    teacher = None
    if with_teacher:
        teacher = fitted(np.setdiff1d(all_rows, held_out)) if len(held_out) else classifier

    return classifier, FewLabels(
        kept=kept,
        accuracy_before=float(is_right[ALONE].mean()),
        accuracy=accuracy,
        accuracy_with_twice=accuracy_with_twice,
        teacher=teacher,
        rows=rows,
        logits=calibrations[kept].logits,
    )


def _accuracy_with_twice(
    training: _SelfTraining,
    labels: NDArray[np.int64],
    parts: Sequence[NDArray[np.int64]],
    kind: str,
    accuracy: float,
) -> float:
    """Extrapolate the accuracy of a kind of classifier to twice as many labels.

    In cross-validation, a classifier learns from all folds but one. This compares that with
    learning from half of the folds.
    """
    halves = [np.concatenate(parts[::2]), np.concatenate(parts[1::2])]
    calibration = training.cross_validate(halves)[kind]
    by_halves = _is_right(calibration, labels[np.concatenate(halves)])
    return extrapolated(accuracy, float(by_halves.mean()), times=2 - 2 / len(parts))


# The share of the unlabelled texts in each round, the surest first.
ROUNDS = (0.1, 0.3, 0.6, 1.0)
# The weight of a text with a guessed class.
PSEUDO_LABEL_WEIGHT = 0.1
# The weight of the margins of naive Bayes, where the SVM's count 1.
NAIVE_BAYES_WEIGHT = np.float32(0.5)
# Added to the count of each word in each class.
SMOOTHING = 0.1
# The bias of a class without a text, in standard deviations of margins.
NEVER = -3.0
# The texts to measure standard deviations of margins with.
MOST_SCALED = 1000
# In cross-validation, the most unlabelled texts, and the most of these times classes.
MOST_OUT_OF_FOLD = 5000
MOST_WORK = 250_000


class _SelfTraining:
    """Fits the sum of an NB-SVM of n-grams and latent semantics, and naive Bayes of words."""

    def __init__(self, corpus: FeatureCorpus, config: TrainConfig) -> None:
        self._corpus = corpus
        self._config = config

        # Of two classes, only the last one has a machine.
        self._num_machines = SINGLE_LABEL.num_one_vs_rest(len(corpus.class_weights))

        coordinates = sp.csr_matrix(corpus.coordinates)
        self._inputs = sp.hstack([corpus.features, coordinates], format="csr")
        self._names = corpus.names if config.label_names_as_texts else NO_TEXTS

        drawn = np.random.default_rng(0).permutation(corpus.first_name)[:MOST_SCALED]
        self._sample = corpus.features[drawn]

    def learn(self, rows: NDArray[np.int64], unlabelled: NDArray[np.int64]) -> dict[str, OneVsRest]:
        """Learn from labelled texts and names, then in rounds from other texts as well.

        Returns `LAST` and `MEAN`.
        """
        corpus = self._corpus
        labels = corpus.labels[rows]

        # A text counts in its class with the weight of the class.
        class_targets = np.diag(corpus.class_weights.astype(np.float64))
        name_labels = self._names - corpus.first_name
        known_rows = np.concatenate([rows, self._names])
        known_targets = class_targets[np.concatenate([labels, name_labels])]
        rounds = [self._fit(known_rows, known_targets)]

        # In each round, guess the classes of other texts, and also learn from the surest guesses.
        class_counts = np.bincount(labels, minlength=len(corpus.class_weights))
        class_shares = shrunk_shares(class_counts)
        if self._config.self_training and len(unlabelled):
            for share in ROUNDS:
                margins = rounds[-1].margins(corpus.features[unlabelled])
                if margins.shape[1] == 1:
                    margins = np.hstack([-margins, margins])
                chosen, guesses = surest(aligned(margins, class_shares), share)

                round_rows = np.concatenate([known_rows, unlabelled[chosen]])
                guessed_targets = PSEUDO_LABEL_WEIGHT * class_targets[guesses]
                round_targets = np.concatenate([known_targets, guessed_targets])
                rounds.append(self._fit(round_rows, round_targets))

        mean_weights = np.mean([machines.weights for machines in rounds], axis=0)
        mean_biases = np.mean([machines.biases for machines in rounds], axis=0)
        return {LAST: rounds[-1], MEAN: OneVsRest(mean_weights, mean_biases)}

    def cross_validate(self, parts: Sequence[NDArray[np.int64]]) -> dict[str, Calibration]:
        """Calibrate each kind of classifier on out-of-fold margins; the default comes first."""
        corpus = self._corpus
        alone = cross_validate(*corpus.labelled(), corpus.labels, parts)

        # Draw some of the unlabelled texts.
        num_classes = len(corpus.class_weights)
        most = max(1, min(MOST_OUT_OF_FOLD, MOST_WORK // num_classes))
        drawn = np.random.default_rng(0).permutation(corpus.unlabelled)[:most]
        unlabelled = np.sort(drawn)

        # Answer each fold by machines of the others.
        margins: dict[str, list[NDArray[np.float32]]] = {LAST: [], MEAN: []}
        for fold in parts:
            others = np.setdiff1d(np.arange(len(corpus.labels)), fold)
            learned = self.learn(others, unlabelled)
            for kind, machines in learned.items():
                margins[kind].append(machines.margins(corpus.features[fold]))

        labels = corpus.labels[np.concatenate(parts)]
        last = calibrate(np.concatenate(margins[LAST]), labels, corpus.class_weights)

        # Without unlabelled texts there is a single round, which is also the mean.
        if not len(unlabelled):
            return {ALONE: alone, LAST: last}

        mean = calibrate(np.concatenate(margins[MEAN]), labels, corpus.class_weights)
        return {LAST: last, MEAN: mean, ALONE: alone}

    def _fit(self, rows: NDArray[np.int64], targets: NDArray[np.float64]) -> OneVsRest:
        """Fit to the texts in these rows.

        `targets` are their weights in each class, (texts, classes).
        """
        machines = self._svm(rows, targets)
        if self._config.naive_bayes_em:
            words = self._naive_bayes(rows, targets)
            weights = machines.weights + NAIVE_BAYES_WEIGHT * words.weights
            machines = OneVsRest(weights, machines.biases)

        # A class without a text, whose texts are all held out, is never the answer.
        is_absent = targets[:, -self._num_machines :].sum(axis=0) == 0
        machines.weights[:, is_absent] = 0
        machines.biases[is_absent] = NEVER
        return machines

    def _svm(self, rows: NDArray[np.int64], targets: NDArray[np.float64]) -> OneVsRest:
        """Fit an NB-SVM, and add its weights of latent semantics to those of features."""
        corpus = self._corpus
        inputs = self._inputs[rows]

        # Scale features by the ratios of naive Bayes, and coordinates not at all.
        texts_in_class = (corpus.features[rows] > 0).T @ targets
        num_features = len(texts_in_class)
        scales = np.ones((inputs.shape[1], self._num_machines), dtype=np.float32)
        scales[:num_features] = naive_bayes_ratios(
            texts_in_class[:, -self._num_machines :], texts_in_class.sum(axis=1)
        )

        is_class = targets[:, -self._num_machines :] > 0
        text_weights = np.broadcast_to(targets.sum(axis=1, keepdims=True), is_class.shape)
        weights, biases = fit_machines(inputs, scales, is_class, text_weights)

        # Coordinates are features times directions. So a weight of a coordinate is one of features.
        feature_weights, coordinate_weights = np.split(weights, [num_features])
        columns, directions = corpus.directions
        feature_weights[columns] += directions @ coordinate_weights
        return self._scaled(feature_weights, biases)

    def _naive_bayes(self, rows: NDArray[np.int64], targets: NDArray[np.float64]) -> OneVsRest:
        """Fit naive Bayes: a weight is the logarithm of the word's share of the class.

        The mean over classes is subtracted.
        """
        counts = self._corpus.words[rows].T @ targets + SMOOTHING
        log_shares = np.log(counts / counts.sum(axis=0))
        log_shares -= log_shares.mean(axis=1, keepdims=True)
        weights = self._corpus.spread_words(log_shares[:, -self._num_machines :])
        return self._scaled(weights, np.zeros(self._num_machines))

    def _scaled(self, weights: NDArray[np.floating], biases: NDArray[np.floating]) -> OneVsRest:
        """Scale margins to a standard deviation of 1 on a sample of texts.

        With several classes, weights are centred before.
        """
        if len(biases) > 1:
            weights = weights - weights.mean(axis=1, keepdims=True)
            biases = biases - biases.mean()

        machines = OneVsRest(weights.astype(np.float32), biases.astype(np.float32))
        deviation = float(machines.margins(self._sample).std())
        scale = np.float32(1 / max(deviation, 1e-9))
        return OneVsRest(machines.weights * scale, machines.biases * scale)


def shrunk_shares(counts: NDArray[np.int64]) -> NDArray[np.float64]:
    """Compute the shares of classes, shrunk towards equal ones as far as chance explains them.

    James and Stein, "Estimation with Quadratic Loss" (1961), with the chi-square of the counts
    against equal ones, which is the number of classes minus 1 by chance.
    """
    num_classes = len(counts)
    equal = counts.sum() / num_classes
    chi_square = ((counts - equal) ** 2).sum() / equal
    chance = min(1.0, (num_classes - 1) / max(chi_square, 1e-9))
    shares: NDArray[np.float64] = chance / num_classes + (1 - chance) * counts / counts.sum()
    return shares


# The steps of `aligned`, and their size.
ALIGNMENTS = 50
ALIGNMENT_STEP = 0.05
# The least share of a class, so that its logarithm is finite.
LEAST_SHARE = 1e-4


def aligned(margins: NDArray[np.floating], shares: NDArray[np.float64]) -> NDArray[np.float64]:
    """Shift the margins of each class until answers have about these shares.

    A class without a share is no answer. This is distribution alignment as in Berthelot et al.,
    "ReMixMatch" (2020, https://arxiv.org/abs/1911.09785), by steps.
    """
    shifted = margins.astype(np.float64)
    wanted = np.log(np.maximum(shares, LEAST_SHARE))
    for _ in range(ALIGNMENTS):
        counts = np.bincount(shifted.argmax(axis=1), minlength=len(shares))
        answered = np.log(np.maximum(counts / len(shifted), LEAST_SHARE))
        shifted += ALIGNMENT_STEP * (wanted - answered)
    return shifted


def surest(
    scores: NDArray[np.floating], share: float, most: int | None = None
) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Choose a share of the texts of each guessed class, `most` at most, the surest ones.

    A guess is the surer, the more the best class leads over the second. At least one text of each
    guessed class is chosen.

    Returns:
        The rows chosen, and their classes.
    """
    guesses = scores.argmax(axis=1)
    ranked = np.sort(scores, axis=1)
    leads = ranked[:, -1] - ranked[:, -2]
    surest_first = np.argsort(-leads, kind="stable")

    chosen = []
    for label in range(scores.shape[1]):
        rows = surest_first[guesses[surest_first] == label]
        num_chosen = max(1, int(share * len(rows)))
        chosen.append(rows[:num_chosen][:most])
    all_chosen = np.concatenate(chosen)
    return all_chosen, guesses[all_chosen]


def _is_right(calibration: Calibration, labels: NDArray[np.int64]) -> NDArray[np.float64]:
    """Return 1 for each text with a correct answer out of fold, else 0."""
    is_right: NDArray[np.bool_] = calibration.logits.argmax(axis=1) == labels
    return is_right.astype(np.float64)


# How many standard errors another kind must be more accurate than the first.
STANDARD_ERRORS = 1.0


def _best(is_right: dict[str, NDArray[np.float64]]) -> str:
    """Choose the most accurate kind of those that beat the first by more than chance explains.

    If there is none, choose the first.
    """
    first, *others = is_right
    best = first
    best_gain = 0.0
    for kind in others:
        gains = is_right[kind] - is_right[first]
        chance = STANDARD_ERRORS * gains.std() / np.sqrt(len(gains))
        if gains.mean() > max(best_gain, chance):
            best = kind
            best_gain = gains.mean()
    return best


def extrapolated(accuracy: float, with_fewer: float, *, times: float = 2.0) -> float:
    """Extrapolate accuracy to twice as many labels, from that with all and with `times` fewer.

    It never falls. Errors fall as a power of the number of labels (Hestness et al., "Deep Learning
    Scaling is Predictable, Empirically", 2017, https://arxiv.org/abs/1712.00409).
    """
    error = 1 - accuracy
    error_with_fewer = max(1 - with_fewer, 1e-3)
    ratio = min(1.0, max(error, 1e-3) / error_with_fewer)

    # The ratio belongs to `times` as many labels. Convert it to twice as many.
    return 1 - error * math.pow(ratio, math.log(2, times))


# The most examples of each class, the texts nearest to its name, and the most as a part of an equal
# share of all texts.
MOST_EXAMPLES = 40
MOST_PART = 0.4
# The fewest dimensions of latent semantics.
FEWEST_DIMENSIONS = 200
# The scale of the margins, times log2(classes): without labels nothing calibrates them.
SCALE = 6.0


def fit_linear_from_names(
    texts: TokenizedTexts, reading: Reading, *, dimensions: int
) -> LinearClassifier:
    """Fit a linear classifier to the class names, the first of the texts, and to the other texts.

    The texts most similar to a name, by latent semantic analysis, are examples of its class; naive
    Bayes by expectation maximization learns from these and all other texts: two steps as in Meng et
    al., "Text Classification Using Label Names Only" (2020, https://arxiv.org/abs/2010.07245),
    without a pretrained model.
    """
    num_classes = len(reading.class_weights)
    classes = np.arange(num_classes)
    corpus = FeatureCorpus(
        texts,
        classes,
        texts[:num_classes],
        reading,
        dimensions=max(FEWEST_DIMENSIONS, dimensions),
    )

    # Compare texts with names.
    norms = np.linalg.norm(corpus.coordinates, axis=1, keepdims=True)
    directions = corpus.coordinates / np.maximum(norms, 1e-9)
    cosines = directions[corpus.unlabelled] @ directions[classes].T

    # Take the most similar texts as examples.
    most = int(min(MOST_EXAMPLES, MOST_PART * len(cosines) / num_classes))
    examples, example_labels = surest(cosines, 1.0, most)
    rows = np.concatenate([classes, corpus.unlabelled[examples]])
    labels = np.concatenate([classes, example_labels])

    # Learn words from the examples and all other texts.
    targets = np.diag(reading.class_weights.astype(np.float64))[labels]
    ratios = log_ratios(corpus.words[rows], targets, corpus.words[corpus.unlabelled])
    weights = corpus.spread_words(SCALE * np.log2(num_classes) * ratios)
    return corpus.vocabulary.classifier(weights, np.zeros(weights.shape[1], dtype=np.float32))


# The iterations of expectation maximization.
ITERATIONS = 8
# The weight of a text with a guessed class: the paper's lambda.
UNLABELLED_WEIGHT = 0.2


def log_ratios(
    labelled: sp.csr_matrix, targets: NDArray[np.float64], unlabelled: sp.csr_matrix
) -> NDArray[np.float32]:
    """Compute ln(a feature's share of the class / its share of the others) by naive Bayes with EM.

    The classifier of labelled texts guesses the classes of the others, a classifier learns from
    all, and so on (Nigam et al., "Text Classification from Labeled and Unlabeled Documents using
    EM", 2000, https://doi.org/10.1023/A:1007692713085).

    Args:
        labelled: counts of features in labelled texts, (texts, features).
        targets: the weights of the labelled texts in each class, (texts, classes).
        unlabelled: counts of features in the other texts.

    Returns:
        (features, machines)
    """
    known_counts = labelled.T @ targets
    known_sizes = targets.sum(axis=0)

    counts = known_counts + SMOOTHING
    sizes = known_sizes
    for _ in range(ITERATIONS):
        # Guess classes. A class whose texts are all held out counts as one text.
        log_shares = np.log(counts / counts.sum(axis=0))
        scores = unlabelled @ log_shares + np.log(np.maximum(sizes, 1))
        guesses = UNLABELLED_WEIGHT * softmax(scores)

        # Learn from labels and guesses.
        counts = known_counts + unlabelled.T @ guesses + SMOOTHING
        sizes = known_sizes + guesses.sum(axis=0)

    other_counts = counts.sum(axis=1, keepdims=True) - counts
    log_shares = np.log(counts / counts.sum(axis=0))
    ratios = log_shares - np.log(other_counts / other_counts.sum(axis=0))

    # Of two classes, only the last one has a machine.
    num_machines = SINGLE_LABEL.num_one_vs_rest(targets.shape[1])
    machines: NDArray[np.float32] = ratios[:, -num_machines:].astype(np.float32)
    return machines
