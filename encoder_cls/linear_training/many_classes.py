"""Fit the linear model of a run to very many classes, each of which has few of the texts.

The model is a weighted sum, chosen by held-out texts, of two with the same n-grams: naive Bayes,
which is there after seconds and knows how much rare words say, and `nb_svm`, which tells classes
apart that share words. Weights are sparse, so that rare n-grams can be kept.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import NamedTuple

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from encoder_cls.linear.linear_model import LinearModel
from encoder_cls.linear_training.calibration import SumOfMargins, fit_sum_of_margins
from encoder_cls.linear_training.cost import (
    COUNTING_WORK,
    MANY_CLASSES_EFFORTS,
    NAIVE_BAYES,
    PLANNED,
    Effort,
    EffortChoice,
    count_work,
    expect_work,
)
from encoder_cls.linear_training.features import CountedTexts, LabelledTexts, count_matrix
from encoder_cls.linear_training.fit_data import FitData, LinearFit
from encoder_cls.linear_training.folds import split_into_folds
from encoder_cls.linear_training.many_labels import refit_on_validation
from encoder_cls.linear_training.nb_svm import binary_problems, fit_nb_svms, seconds_of_fit
from encoder_cls.metrics.logits import Logits
from encoder_cls.metrics.row_groups import RowGroups
from encoder_cls.system.stop import check_stop

# With fewer groups of validation texts, some of the training texts are held out instead.
MIN_VALIDATION = 200
# The weights of the sum are chosen on so many held-out texts times classes at most.
MAX_MARGINS = 2_000_000

# The SVMs must reduce the loss by this share of it. A model without them is smaller, and is fitted
# again within seconds.
MIN_GAIN = 0.01


def fit_to_many_classes(
    data: FitData,
    *,
    effort_choice: EffortChoice,
    on_first: Callable[[LinearModel], None] | None = None,
) -> LinearFit:
    """Fit to the training texts, then again with the validation texts if so planned.

    `on_first` receives naive Bayes alone, unless there is no time for more.
    """
    data = replace(data, options=data.options._replace(sparse_weights=True))
    began = time.monotonic()

    # Fit naive Bayes, and calibrate it on held-out texts.
    learned, held_out = _learned_and_held_out(data)
    texts = _counted(data, learned)
    unseen = _HeldOut.of(held_out, texts)
    parts = [naive_bayes(texts)]
    chosen = unseen.choose_sum(parts)

    # Fit the SVMs, too, if there is time, and keep them if they help.
    num_fits = 1 + (learned is not data.train) + data.refits_on_validation
    if effort_choice.has_seconds(time.monotonic() - began):
        effort = effort_choice.choose(
            MANY_CLASSES_EFFORTS,
            seconds_of_fit=lambda: _seconds_of_svms(texts),
            num_fits=lambda effort: num_fits if effort is PLANNED else 0,
        )
    else:
        # The SVMs take longer than all until now, so do not even time some of them.
        effort = NAIVE_BAYES
    _expect_fits(data, effort, num_fits)
    if effort is PLANNED:
        if on_first:
            on_first(_linear_model(texts, chosen, parts))

        both = [*parts, pruned_svms(texts)]
        chosen_of_both = unseen.choose_sum(both)
        if chosen_of_both.loss < (1 - MIN_GAIN) * chosen.loss:
            parts, chosen = both, chosen_of_both

    # Fit the chosen sum to all texts.
    def fit(all_texts: CountedTexts) -> LinearModel:
        all_parts = [naive_bayes(all_texts)]
        if len(parts) > 1:
            all_parts.append(pruned_svms(all_texts))
        return _linear_model(all_texts, chosen, all_parts)

    linear = _linear_model(texts, chosen, parts)
    if learned is not data.train:
        linear = fit(_counted(data, data.train))
    if not data.refits_on_validation:
        return LinearFit(linear, effort)
    refitted, held_out_logits = refit_on_validation(data, linear, data.options, fit)
    return LinearFit(refitted, effort, held_out=held_out_logits)


def _learned_and_held_out(data: FitData) -> tuple[LabelledTexts, LabelledTexts]:
    if RowGroups(data.validation.split_groups).num_groups >= MIN_VALIDATION:
        return data.train, data.validation

    fold = split_into_folds(data.train.split_groups)[0]
    others = np.setdiff1d(np.arange(len(data.train)), fold)
    return data.train.take(others), data.train.take(fold)


def _counted(data: FitData, labelled: LabelledTexts) -> CountedTexts:
    counted = CountedTexts.of(labelled.texts, labelled.labels, data.options, labelled.weights)
    count_work(COUNTING_WORK * len(labelled))
    return counted


def _expect_fits(data: FitData, effort: Effort, num_fits: int) -> None:
    """Expect all work now, so that each fit is a part of the whole."""
    work_of_text = COUNTING_WORK
    if effort is PLANNED:
        work_of_text += data.num_classifiers
    expect_work(num_fits * work_of_text * len(data.train))


class SparseClassifiers(NamedTuple):
    """One-vs-rest classifiers with weights, (features, classifiers)."""

    weights: sp.csr_matrix
    biases: NDArray[np.float32]

    def margins(self, features: sp.csr_matrix) -> Logits:
        """The decision values, (texts, classifiers)."""
        margins: Logits = (features @ self.weights).toarray() + self.biases
        return margins


def naive_bayes(texts: CountedTexts) -> SparseClassifiers:
    """Fit a complement naive Bayes: a feature speaks for a class as it is rare outside of it.

    The weight of a feature is minus the logarithm of the share of its texts that are of other
    classes. Rennie et al., "Tackling the Poor Assumptions of Naive Bayes Text Classifiers" (2003),
    https://people.csail.mit.edu/jrennie/papers/icml03-nb.pdf, do not divide by the number of texts
    with the feature, which is the same for all classes, and makes most weights zero.
    """
    # Mark the features of each text by its weight, and each text by its class.
    num_texts = len(texts)
    text_weights = texts.weights
    if text_weights is None:
        text_weights = np.ones(num_texts, dtype=np.float32)
    has_feature = texts.features.copy()
    has_feature.data = np.repeat(text_weights, np.diff(has_feature.indptr))
    ones = np.ones(num_texts, dtype=np.float32)
    of_class = sp.csr_matrix(
        (ones, texts.labels, np.arange(num_texts + 1)), shape=(num_texts, texts.num_classifiers)
    )

    # Count the texts of each class with each feature, (features, classes), and those of all.
    inside = (has_feature.T @ of_class).tocsr()
    inside.sort_indices()
    everywhere = np.asarray(inside.sum(axis=1)).ravel()
    everywhere = np.repeat(everywhere, np.diff(inside.indptr))

    shares_outside = (1 + everywhere - inside.data) / (1 + everywhere)
    inside.data = -np.log(shares_outside).astype(np.float32)
    return SparseClassifiers(inside, np.zeros(texts.num_classifiers, dtype=np.float32))


# How many texts of other classes an SVM learns from.
NUM_OTHERS = 1000
# Smaller weights of an SVM become zero. Nine in ten are smaller, and accuracies were the same.
# So are fits to extremely many labels stored: Babbar and Schölkopf, "DiSMEC: Distributed Sparse
# Machines for Extreme Multi-label Classification" (2017), https://doi.org/10.1145/3018661.3018741.
MIN_WEIGHT = 0.03


def pruned_svms(texts: CountedTexts) -> SparseClassifiers:
    """Fit NB-SVMs, without small weights."""
    targets, sample_weights = binary_problems(texts.labels, texts.class_weights)
    if texts.weights is not None:
        sample_weights = sample_weights * texts.weights[:, None]
    fitted = fit_nb_svms(
        texts.features, targets, sample_weights, texts.weights, num_others=NUM_OTHERS
    )

    features = []
    weights = []
    biases = []
    for classifier in fitted:
        check_stop()
        kept = np.flatnonzero(np.abs(classifier.weights) >= MIN_WEIGHT)
        features.append(kept)
        weights.append(classifier.weights[kept].astype(np.float32))
        biases.append(classifier.bias)

    ends = np.cumsum([0, *map(len, features)])
    by_class = sp.csc_matrix(
        (np.concatenate(weights), np.concatenate(features), ends),
        shape=(texts.features.shape[1], len(biases)),
    )

    # A class that no text has is never predicted.
    biases_of_classes = np.where(targets.any(axis=0), biases, -1).astype(np.float32)
    return SparseClassifiers(by_class.tocsr(), biases_of_classes)


def _seconds_of_svms(texts: CountedTexts) -> float:
    targets, sample_weights = binary_problems(texts.labels, texts.class_weights)
    return seconds_of_fit(texts.features, targets, sample_weights, num_others=NUM_OTHERS)


class _HeldOut(NamedTuple):
    features: sp.csr_matrix
    labels: NDArray[np.int64]
    groups: RowGroups

    @classmethod
    def of(cls, held_out: LabelledTexts, texts: CountedTexts) -> _HeldOut:
        max_texts = max(MIN_VALIDATION, MAX_MARGINS // texts.num_classifiers)
        drawn = np.sort(np.random.default_rng(0).permutation(len(held_out))[:max_texts])
        held_out = held_out.take(drawn)

        vocabulary = texts.vocabulary
        counts = count_matrix(vocabulary.pieces(held_out.texts), vocabulary.feature_ids)
        groups = RowGroups(held_out.split_groups)
        return cls(vocabulary.tfidf(counts), held_out.labels, groups)

    def choose_sum(self, parts: Sequence[SparseClassifiers]) -> SumOfMargins:
        margins = [part.margins(self.features) for part in parts]
        return fit_sum_of_margins(margins, self.labels, self.groups)


def _linear_model(
    texts: CountedTexts, chosen: SumOfMargins, parts: Sequence[SparseClassifiers]
) -> LinearModel:
    weights = sp.csr_matrix(parts[0].weights.shape, dtype=np.float32)
    biases = np.full(texts.num_classifiers, chosen.shift, dtype=np.float32)
    for scale, part in zip(chosen.scales, parts, strict=True):
        weights += scale * part.weights
        biases += scale * part.biases
    return texts.vocabulary.linear_model(weights, biases)
