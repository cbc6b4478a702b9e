"""Self-training: a model of labelled texts predicts unlabelled texts, and then learns from both.

The first model learns from labelled texts alone, others also from the surest predictions of the one
before, from round to round of more texts. A model is the sum of an NB-SVM of n-grams and latent
semantics and of naive Bayes of words.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from encoder_cls.config.schema import TrainConfig
from encoder_cls.linear_training.corpus import FeatureCorpus
from encoder_cls.linear_training.folds import NO_TEXTS
from encoder_cls.linear_training.nb_svm import (
    OneVsRest,
    binary_problems,
    fit_svms,
    naive_bayes_ratios,
    others_to_learn,
    seconds_of_fit,
)
from encoder_cls.metrics.tasks import SINGLE_LABEL

Floats = NDArray[np.float64]

# The weight of an unlabelled text with a predicted class, where a labelled text has a weight of 1.
PSEUDO_LABEL_WEIGHT = 0.1

# The weight of the margins of naive Bayes, where the margins of the SVM have a weight of 1.
NAIVE_BAYES_WEIGHT = np.float32(0.5)

# The bias of a class without texts, in standard deviations of margins.
ABSENT_CLASS_BIAS = -3.0

# The number of texts that are fitted to estimate the time of a fit. With fewer, what a fit takes
# whatever the number of its texts counts too much, and with more too little.
TIMED_TEXTS = 250

# The maximum number of texts on which the standard deviation of margins is measured.
MAX_SCALED = 1000


class SelfTraining:
    """Fits models to the texts of a corpus, in rounds."""

    def __init__(self, corpus: FeatureCorpus, config: TrainConfig) -> None:
        self._corpus = corpus
        self._has_rounds = config.self_training
        self._has_naive_bayes = config.naive_bayes
        self._names = NO_TEXTS
        if config.label_names_as_texts:
            self._names = corpus.names

        # Each class has a classifier, but of two classes only the second: the last classes have
        # one.
        self._num_classifiers = SINGLE_LABEL.num_one_vs_rest(len(corpus.class_weights))
        self._with_classifier = slice(-self._num_classifiers, None)
        self._inputs = sp.hstack([corpus.features, sp.csr_matrix(corpus.coordinates)], format="csr")

        # Draw texts, labelled or not, on which to measure the standard deviation of margins.
        drawn = np.random.default_rng(0).permutation(corpus.first_name)[:MAX_SCALED]
        self._sample = corpus.features[drawn]

    def seconds_to_fit(self) -> float:
        """The time that a fit takes for all labelled texts, as a part of larger fits.

        Rounds fit to thousands of texts, where the constant time of a fit hardly counts: so a fit
        to many copies of the labelled texts is timed.
        """
        corpus = self._corpus
        num_labelled = len(corpus.labels)
        repetitions = max(1, TIMED_TEXTS // num_labelled)
        rows = np.tile(np.arange(num_labelled), repetitions)

        targets, sample_weights = binary_problems(corpus.labels[rows], corpus.class_weights)
        num_others = others_to_learn(*targets.shape)
        seconds = seconds_of_fit(self._inputs[rows], targets, sample_weights, num_others=num_others)
        return seconds / repetitions

    def learn(
        self,
        labelled: NDArray[np.int64],
        unlabelled: NDArray[np.int64],
        shares_of_rounds: Sequence[float],
    ) -> list[OneVsRest]:
        """Learn from labelled texts and class names, then in rounds from unlabelled texts, too.

        Texts are corpus rows. Each round learns from its share of the unlabelled ones. The result
        begins with the first fit.
        """
        corpus = self._corpus
        labels = corpus.labels[labelled]
        if not self._has_rounds or not len(unlabelled):
            shares_of_rounds = ()

        # The targets of a text are the weight of its class in the column of the class, else 0. They
        # are multiplied by the weight of the text, if it has one.
        class_targets = np.diag(corpus.class_weights.astype(np.float64))
        rows = np.concatenate([labelled, self._names])
        classes_of_names = self._names - corpus.first_name
        targets = class_targets[np.concatenate([labels, classes_of_names])]
        if corpus.text_weights is not None:
            targets[: len(labelled)] *= corpus.text_weights[labelled, None]

        classifiers = self._fit(rows, targets)
        rounds = [classifiers]
        class_shares = shrunk_shares(np.bincount(labels, minlength=len(class_targets)))
        for share in shares_of_rounds:
            margins = classifiers.margins(corpus.features[unlabelled])
            if margins.shape[1] == 1:
                margins = np.hstack([-margins, margins])
            chosen, predictions = choose_surest(align_margins(margins, class_shares), share)

            pseudo_targets = PSEUDO_LABEL_WEIGHT * class_targets[predictions]
            classifiers = self._fit(
                np.concatenate([rows, unlabelled[chosen]]),
                np.concatenate([targets, pseudo_targets]),
            )
            rounds.append(classifiers)
        return rounds

    def _fit(self, rows: NDArray[np.int64], targets: Floats) -> OneVsRest:
        """Fit to targets: the weight of a text in the column of its class, (texts, classes)."""
        classifiers = self._fit_svm(rows, targets)
        if self._has_naive_bayes:
            naive_bayes = self._fit_naive_bayes(rows, targets)
            weights = classifiers.weights + NAIVE_BAYES_WEIGHT * naive_bayes.weights
            classifiers = OneVsRest(weights, classifiers.biases)

        is_absent = targets[:, self._with_classifier].sum(axis=0) == 0
        classifiers.weights[:, is_absent] = 0
        classifiers.biases[is_absent] = ABSENT_CLASS_BIAS
        return classifiers

    def _fit_svm(self, rows: NDArray[np.int64], targets: Floats) -> OneVsRest:
        corpus = self._corpus
        inputs = self._inputs[rows]

        # Scale features by the ratios of naive Bayes, which need the summed weight of the texts of
        # each class that have the feature. The coordinates of latent semantics are not scaled.
        counts = (corpus.features[rows] > 0).T @ targets
        num_features = len(counts)
        scales = np.ones((inputs.shape[1], self._num_classifiers), dtype=np.float32)
        scales[:num_features] = naive_bayes_ratios(
            counts[:, self._with_classifier], counts.sum(axis=1)
        )

        # Fit the classifiers. A text has the same weight in all classifiers: the sum of its
        # targets.
        is_class = targets[:, self._with_classifier] > 0
        text_weights = targets.sum(axis=1, keepdims=True)
        sample_weights = np.broadcast_to(text_weights, is_class.shape)
        classifiers = list(fit_svms(inputs, scales.T, is_class, sample_weights))
        weights = np.stack([classifier.weights for classifier in classifiers], axis=1)
        biases = np.array([classifier.bias for classifier in classifiers])

        # A coordinate is a weighted sum of features, so its weight can be added to their weights.
        # The weights get the type of the directions: otherwise NumPy would convert the directions,
        # which are far larger, and that takes up to a quarter of a fit.
        feature_weights, coordinate_weights = np.split(weights, [num_features])
        directions = corpus.directions
        coordinate_weights = coordinate_weights.astype(directions.vectors.dtype)
        feature_weights[directions.columns] += directions.vectors @ coordinate_weights
        return self._scaled(feature_weights, biases)

    def _fit_naive_bayes(self, rows: NDArray[np.int64], targets: Floats) -> OneVsRest:
        """Fit naive Bayes, whose weights are the logarithms of words' shares of classes."""
        counts = self._corpus.words[rows].T @ targets + SMOOTHING
        log_shares = np.log(counts / counts.sum(axis=0))
        log_shares -= log_shares.mean(axis=1, keepdims=True)

        weights = self._corpus.spread_words(log_shares[:, self._with_classifier])
        return self._scaled(weights, np.zeros(self._num_classifiers))

    def _scaled(self, weights: NDArray[np.floating[Any]], biases: Floats) -> OneVsRest:
        """Scale margins to a standard deviation of 1, and centre several classifiers."""
        if len(biases) > 1:
            weights = weights - weights.mean(axis=1, keepdims=True)
            biases = biases - biases.mean()

        classifiers = OneVsRest(weights.astype(np.float32), biases.astype(np.float32))
        deviation = float(classifiers.margins(self._sample).std())
        scale = np.float32(1 / max(deviation, MIN_DEVIATION))
        return OneVsRest(classifiers.weights * scale, classifiers.biases * scale)


# Added to the weight of each word in each class, so that its logarithm is finite.
SMOOTHING = 0.1

# Smaller standard deviations count as this one, so that equal margins cause no division by zero.
MIN_DEVIATION = 1e-9


def shrunk_shares(counts: NDArray[np.int64]) -> Floats:
    """The shares of classes with these counts, shrunk towards equal ones.

    They are shrunk the more, the more of their differences chance explains: James and Stein,
    "Estimation with Quadratic Loss" (1961), with the chi-square of the counts.
    """
    num_classes = len(counts)
    equal = counts.sum() / num_classes
    chi_square = ((counts - equal) ** 2).sum() / equal

    chance = min(1.0, (num_classes - 1) / max(chi_square, 1e-9))
    shares: Floats = chance / num_classes + (1 - chance) * counts / counts.sum()
    return shares


# The number of iterations of the alignment of margins.
ALIGNMENTS = 50
# How much each iteration shifts the margins of a class, for a log ratio of shares of 1.
ALIGNMENT_STEP = 0.05
# Smaller shares count as this one, so that their logarithms are finite.
MIN_SHARE = 1e-4


def align_margins(margins: NDArray[np.floating[Any]], shares: Floats) -> Floats:
    """Shift margins so that predictions have about these shares of classes.

    The distribution alignment of Berthelot et al., "ReMixMatch" (2020),
    https://arxiv.org/abs/1911.09785.
    """
    shifted = margins.astype(np.float64)
    log_wanted = np.log(np.maximum(shares, MIN_SHARE))
    for _ in range(ALIGNMENTS):
        predictions = shifted.argmax(axis=1)
        predicted = np.bincount(predictions, minlength=len(shares)) / len(shifted)
        log_predicted = np.log(np.maximum(predicted, MIN_SHARE))
        shifted += ALIGNMENT_STEP * (log_wanted - log_predicted)
    return shifted


def choose_surest(
    scores: NDArray[np.floating[Any]], share: float
) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Choose this share of the texts of each predicted class, at least one, with their classes.

    A prediction is surer the more its score exceeds the second best.
    """
    predictions = scores.argmax(axis=1)

    # The lead of a text is the difference of the two highest scores.
    ascending = np.sort(scores, axis=1)
    leads = ascending[:, -1] - ascending[:, -2]
    surest_first = np.argsort(-leads, kind="stable")

    chosen = []
    for class_number in range(scores.shape[1]):
        rows = surest_first[predictions[surest_first] == class_number]
        num_chosen = max(1, int(share * len(rows)))
        chosen.append(rows[:num_chosen])

    all_chosen = np.concatenate(chosen)
    return all_chosen, predictions[all_chosen]
