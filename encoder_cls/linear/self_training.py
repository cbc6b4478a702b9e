"""Self-training: a model of labelled texts guesses the classes of others, to learn from them.

In each round the next model also learns from the surest guesses of the one before, more of
them each time. A model is an NB-SVM of n-grams and latent semantics, plus naive Bayes of
words; it has one weight per feature and class.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from encoder_cls.config.schema import TrainConfig
from encoder_cls.linear.corpus import FeatureCorpus
from encoder_cls.linear.effort import seconds_of_machines
from encoder_cls.linear.folds import NO_TEXTS
from encoder_cls.linear.nb_svm import (
    OneVsRest,
    fit_machines,
    naive_bayes_ratios,
    targets_of_machines,
)
from encoder_cls.metrics.logits import SINGLE_LABEL

Floats = NDArray[np.float64]

# The weight of a text whose class is guessed.
PSEUDO_LABEL_WEIGHT = 0.1

# The weight of the margins of naive Bayes, where those of the SVM count 1.
NAIVE_BAYES_WEIGHT = np.float32(0.5)
# Added to the count of each word in each class.
SMOOTHING = 0.1

# The bias of a class without a text, in standard deviations of margins.
NEVER = -3.0
# The most texts to measure standard deviations of margins on.
MAX_SCALED = 1000
# The least standard deviation, where all margins are equal.
MIN_DEVIATION = 1e-9


class SelfTraining:
    """Fits models to the texts of a corpus, in rounds."""

    def __init__(self, corpus: FeatureCorpus, config: TrainConfig) -> None:
        self._corpus = corpus
        self._has_rounds = config.self_training
        self._has_naive_bayes = config.naive_bayes
        self._names = NO_TEXTS
        if config.label_names_as_texts:
            self._names = corpus.names

        # Two classes have one machine, of the second class; so machines are of the last classes.
        self._num_machines = SINGLE_LABEL.num_one_vs_rest(len(corpus.class_weights))
        self._inputs = sp.hstack([corpus.features, sp.csr_matrix(corpus.coordinates)], format="csr")

        drawn = np.random.default_rng(0).permutation(corpus.first_name)[:MAX_SCALED]
        self._sample = corpus.features[drawn]

    def seconds_to_fit(self) -> float:
        """Estimate the time of one fit to all labelled texts."""
        corpus = self._corpus
        targets, text_weights = targets_of_machines(corpus.labels, corpus.class_weights)
        return seconds_of_machines(self._inputs[: len(corpus.labels)], targets, text_weights)

    def learn(
        self,
        labelled: NDArray[np.int64],
        unlabelled: NDArray[np.int64],
        shares_of_rounds: Sequence[float],
    ) -> list[OneVsRest]:
        """Learn from labelled texts and names, then in rounds from other texts as well.

        Args:
            labelled: rows of labelled texts.
            unlabelled: rows of texts without labels.
            shares_of_rounds: the share of the texts without labels that each round learns from.

        Returns:
            The machines of the first fit, and of each round.
        """
        corpus = self._corpus
        labels = corpus.labels[labelled]
        if not self._has_rounds or not len(unlabelled):
            shares_of_rounds = ()

        # The target of a text is the weight of its class, in the column of the class.
        class_targets = np.diag(corpus.class_weights.astype(np.float64))
        rows = np.concatenate([labelled, self._names])
        classes_of_names = self._names - corpus.first_name
        targets = class_targets[np.concatenate([labels, classes_of_names])]

        machines = self._fit(rows, targets)
        rounds = [machines]
        class_shares = shrunk_shares(np.bincount(labels, minlength=len(class_targets)))
        for share in shares_of_rounds:
            # Guess the classes of the others, and choose the surest of them.
            margins = machines.margins(corpus.features[unlabelled])
            if margins.shape[1] == 1:
                margins = np.hstack([-margins, margins])
            chosen, guesses = choose_surest(align_margins(margins, class_shares), share)

            # Learn from these as well.
            pseudo_targets = PSEUDO_LABEL_WEIGHT * class_targets[guesses]
            machines = self._fit(
                np.concatenate([rows, unlabelled[chosen]]),
                np.concatenate([targets, pseudo_targets]),
            )
            rounds.append(machines)
        return rounds

    def _fit(self, rows: NDArray[np.int64], targets: Floats) -> OneVsRest:
        """Fit to the texts in these rows; `targets` are their weights in each class."""
        machines = self._fit_svm(rows, targets)
        if self._has_naive_bayes:
            naive_bayes = self._fit_naive_bayes(rows, targets)
            weights = machines.weights + NAIVE_BAYES_WEIGHT * naive_bayes.weights
            machines = OneVsRest(weights, machines.biases)

        is_absent = targets[:, -self._num_machines :].sum(axis=0) == 0
        machines.weights[:, is_absent] = 0
        machines.biases[is_absent] = NEVER
        return machines

    def _fit_svm(self, rows: NDArray[np.int64], targets: Floats) -> OneVsRest:
        """Fit an NB-SVM, and add its weights of latent semantics to those of features."""
        corpus = self._corpus
        inputs = self._inputs[rows]

        # Count the weighted texts of each class that have each feature, for the ratios of naive
        # Bayes. The coordinates of latent semantics are not scaled.
        counts = (corpus.features[rows] > 0).T @ targets
        num_features = len(counts)
        scales = np.ones((inputs.shape[1], self._num_machines), dtype=np.float32)
        scales[:num_features] = naive_bayes_ratios(
            counts[:, -self._num_machines :], counts.sum(axis=1)
        )

        is_class = targets[:, -self._num_machines :] > 0
        text_weights = targets.sum(axis=1, keepdims=True)
        weights, biases = fit_machines(
            inputs, scales, is_class, np.broadcast_to(text_weights, is_class.shape)
        )

        # A coordinate is a weighted sum of features, so its weight is one of these features.
        feature_weights, coordinate_weights = np.split(weights, [num_features])
        directions = corpus.directions
        feature_weights[directions.columns] += directions.vectors @ coordinate_weights
        return self._scaled(feature_weights, biases)

    def _fit_naive_bayes(self, rows: NDArray[np.int64], targets: Floats) -> OneVsRest:
        """Fit naive Bayes: the logarithm of each word's share of each class."""
        counts = self._corpus.words[rows].T @ targets + SMOOTHING
        log_shares = np.log(counts / counts.sum(axis=0))
        log_shares -= log_shares.mean(axis=1, keepdims=True)

        weights = self._corpus.spread_words(log_shares[:, -self._num_machines :])
        return self._scaled(weights, np.zeros(self._num_machines))

    def _scaled(self, weights: NDArray[np.floating[Any]], biases: Floats) -> OneVsRest:
        """Centre weights over several classes, and scale margins to a standard deviation of 1."""
        if len(biases) > 1:
            weights = weights - weights.mean(axis=1, keepdims=True)
            biases = biases - biases.mean()

        machines = OneVsRest(weights.astype(np.float32), biases.astype(np.float32))
        deviation = float(machines.margins(self._sample).std())
        scale = np.float32(1 / max(deviation, MIN_DEVIATION))
        return OneVsRest(machines.weights * scale, machines.biases * scale)


def shrunk_shares(counts: NDArray[np.int64]) -> Floats:
    """The shares of classes, shrunk towards equal ones as far as chance explains their differences.

    James and Stein, "Estimation with Quadratic Loss" (1961), with the chi-square of the counts
    against equal ones.
    """
    num_classes = len(counts)
    equal = counts.sum() / num_classes
    chi_square = ((counts - equal) ** 2).sum() / equal

    chance = min(1.0, (num_classes - 1) / max(chi_square, 1e-9))
    shares: Floats = chance / num_classes + (1 - chance) * counts / counts.sum()
    return shares


# The iterations of the alignment of margins, and the step of each.
ALIGNMENTS = 50
ALIGNMENT_STEP = 0.05
# The least share of a class, so that its logarithm is finite.
MIN_SHARE = 1e-4


def align_margins(margins: NDArray[np.floating[Any]], shares: Floats) -> Floats:
    """Shift the margins of each class until predictions have about these shares.

    A class without a share is not predicted. This is the distribution alignment of Berthelot et
    al., "ReMixMatch" (2020), https://arxiv.org/abs/1911.09785.

    Args:
        margins: (texts, classes).
        shares: (classes,).
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
    """Choose this share of the texts of each guessed class, one at least, by their leads.

    Args:
        scores: (texts, classes).
        share: of the texts of each class.

    Returns:
        The rows of the texts chosen, and their guessed classes.
    """
    guesses = scores.argmax(axis=1)

    # The lead is that of the best class over the next.
    ascending = np.sort(scores, axis=1)
    leads = ascending[:, -1] - ascending[:, -2]
    surest_first = np.argsort(-leads, kind="stable")

    chosen = []
    for guess in range(scores.shape[1]):
        rows = surest_first[guesses[surest_first] == guess]
        num_chosen = max(1, int(share * len(rows)))
        chosen.append(rows[:num_chosen])

    all_chosen = np.concatenate(chosen)
    return all_chosen, guesses[all_chosen]
