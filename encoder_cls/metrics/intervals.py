"""95% intervals of scores, and of differences of scores on the same texts, with paired tests.

Intervals of F1 are computed by a bootstrap: Efron and Tibshirani, "An Introduction to the
Bootstrap" (1993), chapter 13, the percentiles; for macro-F1, Davison and Hinkley, "Bootstrap
Methods and their Application" (1997), chapter 5, the basic interval, since macro-F1 is biased: a
sample has fewer classes with few mistakes. A text is drawn with the predictions of both
classifiers, so that mistakes in common cancel, and with its group (`row_groups`). Random numbers
have a fixed seed.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from itertools import product
from typing import Any

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from encoder_cls.metrics.precision_recall import ClassCounts, f1_scores
from encoder_cls.metrics.row_groups import RowGroups
from encoder_cls.metrics.tasks import MULTI_LABEL, task_of

Interval = tuple[float, float]
"""The lowest and the highest value."""

Floats = NDArray[np.float64]

# The 97.5% quantile of the standard normal distribution, for a two-sided interval of 95%.
NORMAL_QUANTILE = 1.959964
# The quantiles of bootstrapped scores that bound their interval of 95%.
BOOTSTRAP_QUANTILES = (0.025, 0.975)


def wilson_interval(num_right: float, num_texts: float) -> Interval:
    """The interval of an accuracy, by Wilson's score method.

    It also holds for few texts, and for accuracies near 0 and 1: Wilson, "Probable Inference, the
    Law of Succession, and Statistical Inference" (1927),
    https://doi.org/10.1080/01621459.1927.10502953. For weighted texts, both numbers are effective
    numbers.
    """
    accuracy = num_right / num_texts
    squared_quantile = NORMAL_QUANTILE**2
    shrinkage = 1 + squared_quantile / num_texts

    # The center lies between the accuracy and 1/2. The fewer texts, the nearer it is to 1/2.
    center = (accuracy + squared_quantile / (2 * num_texts)) / shrinkage

    # The second term of the variance keeps it above 0 if all predictions are correct, or none.
    variance = accuracy * (1 - accuracy) / num_texts + squared_quantile / (4 * num_texts**2)
    half_width = math.sqrt(variance) * NORMAL_QUANTILE / shrinkage

    low = max(0.0, center - half_width)
    high = min(1.0, center + half_width)

    # At an accuracy of 0 or 1, rounding could put the accuracy outside the bounds.
    return min(low, accuracy), max(high, accuracy)


def lower_bound(
    num_right: NDArray[Any], num_texts: NDArray[Any], *, confidence: float
) -> NDArray[np.float64]:
    """The lowest accuracies that numbers of right predictions allow, in their shape.

    The exact bound of Clopper and Pearson, "The Use of Confidence or Fiducial Limits Illustrated in
    the Case of the Binomial" (1934); 0 without a right prediction.
    """
    from scipy.stats import beta

    bounds = beta.ppf(1 - confidence, num_right, num_texts - num_right + 1)
    return np.where(num_right > 0, bounds, 0.0)


def accuracy_interval(is_correct: NDArray[np.bool_], groups: RowGroups) -> Interval:
    """The interval of the accuracy of predictions, (texts,)."""
    num_texts = groups.effective_number(is_correct)
    share = num_texts / len(is_correct)
    return wilson_interval(int(is_correct.sum()) * share, num_texts)


def paired_interval(only_first: float, only_second: float, num_texts: float) -> Interval:
    """The interval of the accuracy of a classifier minus that of another, on the same texts.

    It depends on the texts that only one of them predicts correctly (in groups, effective numbers):
    Agresti and Min, "Simple Improved Confidence Intervals for Comparing Matched Proportions"
    (2005), https://doi.org/10.1002/sim.1781.
    """
    # The paper adds half a text to each cell of the 2x2 table: two texts in all.
    first = only_first + 0.5
    second = only_second + 0.5
    total = num_texts + 2

    difference = (first - second) / total

    error_in_texts = math.sqrt(first + second - (first - second) ** 2 / total)
    half_width = NORMAL_QUANTILE * error_in_texts / total

    return max(-1.0, difference - half_width), min(1.0, difference + half_width)


def accuracy_difference_interval(
    first: NDArray[np.bool_], second: NDArray[np.bool_], groups: RowGroups
) -> Interval:
    """The interval of an accuracy minus another; the arrays say what is correct, (texts,)."""
    num_texts = groups.effective_number(first.astype(np.int64) - second)
    share = num_texts / len(first)
    only_first = int((first & ~second).sum()) * share
    only_second = int((second & ~first).sum()) * share
    return paired_interval(only_first, only_second, num_texts)


def mcnemar_p_value(
    first: NDArray[np.bool_], second: NDArray[np.bool_], groups: RowGroups
) -> float:
    """The p-value of McNemar's test of the hypothesis of equal accuracies.

    The arrays say what is correct, (texts,). McNemar, "Note on the sampling error of the difference
    between correlated proportions or percentages" (1947), https://doi.org/10.1007/BF02295996. Each
    text that only one classifier predicts correctly is like the toss of a coin; of a group, the
    difference is tossed. The probabilities are exact where all differences are equally large, else
    those of random tosses.
    """
    from scipy.stats import binomtest

    differences = groups.sums(first.astype(np.int64) - second)
    differences = differences[differences != 0]
    if len(differences) == 0:
        return 1.0

    sizes, num_tosses = np.unique(np.abs(differences), return_counts=True)
    if len(sizes) == 1:
        return float(binomtest(int((differences > 0).sum()), len(differences)).pvalue)

    # The tosses of all differences of one size are drawn together. The difference as it is counts
    # as one of the random ones.
    random = np.random.default_rng(0)
    num_heads = random.binomial(num_tosses, 0.5, size=(MAX_EXCHANGES, len(sizes)))
    totals = (2 * num_heads - num_tosses) @ sizes
    is_as_large = np.abs(totals) >= abs(differences.sum())
    return float((1 + is_as_large.sum()) / (1 + MAX_EXCHANGES))


def macro_f1_interval(
    labels: NDArray[Any],
    predictions: NDArray[Any],
    groups: RowGroups,
    other_predictions: NDArray[Any] | None = None,
) -> Interval | None:
    """The interval of macro-F1, or of its difference from that of `other_predictions`.

    As Wilson's method does, it adds a few texts, some right and some wrong: the texts alone would
    not vary if all predictions were right.

    None if independent texts are fewer than `MIN_TEXTS_PER_CLASS` for each class that occurs: then
    no interval contains the true value as often as it should.
    """
    if _texts_per_class(labels, predictions, groups) < MIN_TEXTS_PER_CLASS:
        return None

    all_predictions = [predictions]
    if other_predictions is not None:
        all_predictions.append(other_predictions)
    added = _added_texts(labels, all_predictions)

    if task_of(labels) is MULTI_LABEL:
        # Few texts have the same labels and predictions, so each text is a kind of its own.
        kinds = [labels > 0, *all_predictions]
        kind_of_text = np.arange(len(labels))
        num_texts = np.ones(len(labels), dtype=np.int64)
        macro_f1_of_samples = _multi_label_macro_f1_of_samples
    else:
        # Texts with the same label and the same predictions are interchangeable, so they form a
        # "kind" of text. To draw the number of texts of each kind is faster than to draw texts.
        matrix, kind_of_text, num_texts = np.unique(
            np.stack([labels, *all_predictions]), axis=1, return_inverse=True, return_counts=True
        )
        kinds = list(matrix)
        macro_f1_of_samples = _macro_f1_of_samples

    def scores(draws: NDArray[Any]) -> Floats:
        joined = [np.concatenate(parts) for parts in zip(kinds, added, strict=True)]
        first = macro_f1_of_samples(draws, joined[0], joined[1])
        if other_predictions is None:
            return first
        return first - macro_f1_of_samples(draws, joined[0], joined[2])

    # Draw texts, and how often each added text occurs. In groups, an added text counts as many
    # texts as an independent one is worth.
    draws = _draws_of_kinds(kind_of_text.reshape(-1), num_texts, groups)
    num_added = len(added[0])
    rate = NUM_ADDED[len(all_predictions)] / num_added
    worth = len(labels) / _num_independent(labels, predictions, groups)
    added_draws = worth * np.random.default_rng(1).poisson(rate, size=(len(draws), num_added))
    drawn = scores(np.hstack([draws, added_draws]))

    # The scores of samples deviate from that of the texts that they are drawn from as the score of
    # the texts at hand does from that of all texts.
    center = float(scores(np.append(num_texts, np.full(num_added, rate * worth))[None])[0])
    low, high = (2 * center - bound for bound in reversed(_percentile_interval(drawn)))
    estimate = float(scores(np.append(num_texts, np.zeros(num_added))[None])[0])
    lowest = 0.0 if other_predictions is None else -1.0
    return max(lowest, min(low, estimate)), min(1.0, max(high, estimate))


# The fewest independent texts for each class that an interval of macro-F1 is computed from. With
# fewer, it contained the true value in 60 to 90% of simulations instead of 95%
# (docs/experiments/accuracy.md).
MIN_TEXTS_PER_CLASS = 5
# The number of texts that are added, for one and for two classifiers: those of Wilson, and of
# Agresti and Min.
NUM_ADDED = {1: NORMAL_QUANTILE**2, 2: 2.0}


def _num_independent(labels: NDArray[Any], predictions: NDArray[Any], groups: RowGroups) -> float:
    return groups.effective_number(task_of(labels).are_correct(predictions, labels))


def _texts_per_class(labels: NDArray[Any], predictions: NDArray[Any], groups: RowGroups) -> float:
    counts = ClassCounts.of(predictions, labels)
    num_texts = counts.support.sum() / max(1, counts.is_averaged.sum())
    return float(num_texts * _num_independent(labels, predictions, groups) / len(labels))


def _added_texts(
    labels: NDArray[Any], all_predictions: Sequence[NDArray[Any]]
) -> list[NDArray[Any]]:
    """Texts of each class that is a label, one for each way in which predictions can be right.

    A wrong prediction is the class before it; where there is only one class, it is none.
    """
    is_multi_label = task_of(labels) is MULTI_LABEL
    if is_multi_label:
        classes = np.flatnonzero((labels > 0).any(axis=0))
        none = labels.shape[1]
    else:
        classes = np.unique(labels)
        none = classes[-1] + 1

    wrong = np.roll(classes, 1)
    if len(classes) == 1:
        wrong = np.array([none])

    ways = list(product((classes, wrong), repeat=len(all_predictions)))
    columns = [np.tile(classes, len(ways))]
    for parts in zip(*ways, strict=True):
        columns.append(np.concatenate(parts))
    if not is_multi_label:
        return columns
    one_hot = np.eye(none + 1, dtype=bool)[:, :none]
    return [one_hot[column] for column in columns]


def micro_f1_interval(
    labels: NDArray[Any], predictions: NDArray[np.bool_], groups: RowGroups
) -> Interval:
    """The interval of micro-F1."""
    kinds, num_groups = _micro_f1_kinds(labels, [predictions], groups)
    num_labels, num_given, num_right = kinds @ _bootstrap_draws(num_groups).T
    return _percentile_interval(f1_scores(num_right, num_labels + num_given))


def micro_f1_difference(
    labels: NDArray[Any], first: NDArray[np.bool_], second: NDArray[np.bool_], groups: RowGroups
) -> tuple[Interval, float]:
    """The interval of a micro-F1 minus another, and the p-value of their equality.

    The p-value is computed by a paired randomization test, as Yeh, "More accurate tests for the
    statistical significance of result differences" (2000), https://aclanthology.org/C00-2137/,
    recommends for F1. The interval contains 0 unless this test rejects it, since a few texts that
    all favour one classifier vary too little for a bootstrap.
    """
    kinds, num_groups = _micro_f1_kinds(labels, [first, second], groups)
    num_labels, given, right, other_given, other_right = kinds @ _bootstrap_draws(num_groups).T
    differences = f1_scores(right, num_labels + given)
    differences = differences - f1_scores(other_right, num_labels + other_given)
    low, high = _percentile_interval(differences)

    p_value = _micro_f1_p_value(kinds, num_groups)
    if p_value > SIGNIFICANCE:
        low, high = min(low, 0.0), max(high, 0.0)
    return (low, high), p_value


# The p-value up to which the hypothesis of equal scores is rejected.
SIGNIFICANCE = 0.05


# The number of random exchanges of a randomization test, unless there are many kinds of groups.
MAX_EXCHANGES = 9999
# The minimum number of exchanges, however many kinds of groups there are.
MIN_EXCHANGES = 999


def _micro_f1_p_value(kinds: NDArray[np.int64], num_groups: NDArray[np.int64]) -> float:
    """The p-value of equal scores, by random exchanges of the predictions for groups.

    If two classifiers are equally good, they can be exchanged.
    """
    num_labels, num_given, num_right, other_given, other_right = kinds

    # Draw for how many groups of each kind the predictions are exchanged, (exchanges, kinds).
    affordable = MAX_DRAWS // len(num_groups)
    num_exchanges = min(MAX_EXCHANGES, max(MIN_EXCHANGES, affordable))
    random = np.random.default_rng(0)
    exchanged = random.binomial(num_groups, 0.5, size=(num_exchanges, len(num_groups)))

    # The first row is the difference as it is, without an exchange.
    exchanged = np.vstack([np.zeros_like(num_groups), exchanged])
    kept = num_groups - exchanged
    first_given = kept @ num_given + exchanged @ other_given
    first_right = kept @ num_right + exchanged @ other_right
    second_given = kept @ other_given + exchanged @ num_given
    second_right = kept @ other_right + exchanged @ num_right

    # An exchange does not change how many labels the groups have.
    total_labels = num_labels @ num_groups
    first = f1_scores(first_right, total_labels + first_given)
    second = f1_scores(second_right, total_labels + second_given)

    # Count the differences that are at least as large as the one without an exchange, which counts
    # as one of them. Allow for rounding.
    differences = np.abs(first - second)
    is_as_large = differences >= differences[0] - ROUNDING
    return float(is_as_large.mean())


# Differences of scores that differ by less than this are equal.
ROUNDING = 1e-12


def _micro_f1_kinds(
    labels: NDArray[Any], all_predictions: Sequence[NDArray[np.bool_]], groups: RowGroups
) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """What micro-F1 needs of each kind of group, (numbers, kinds), and its groups, (kinds,)."""
    has_label = labels > 0
    columns = [has_label.sum(axis=1)]
    for predictions in all_predictions:
        columns.append(predictions.sum(axis=1))
        columns.append((predictions & has_label).sum(axis=1))
    columns = [groups.sums(column) for column in columns]
    return np.unique(np.stack(columns), axis=1, return_counts=True)


# The number of samples of a bootstrap, unless there are many kinds of texts.
MAX_SAMPLES = 1000
# The minimum number of samples, however many kinds of texts there are.
MIN_SAMPLES = 100
# The maximum number of samples times kinds of texts, above which there are fewer than
# `MAX_SAMPLES`. This many take about a second.
MAX_DRAWS = 5_000_000


def _bootstrap_draws(numbers: NDArray[np.int64]) -> NDArray[np.int64]:
    """How often each sample draws each kind of text or group, (samples, kinds)."""
    affordable_samples = MAX_DRAWS // len(numbers)
    num_samples = min(MAX_SAMPLES, max(MIN_SAMPLES, affordable_samples))

    # A sample has as many texts or groups as the data, drawn with replacement.
    total = numbers.sum()
    random = np.random.default_rng(0)
    return random.multinomial(total, numbers / total, size=num_samples)


def _draws_of_kinds(
    kind_of_text: NDArray[np.int64], num_texts: NDArray[np.int64], groups: RowGroups
) -> NDArray[np.int64]:
    """How often each sample draws each kind of text, (samples, kinds), groups together."""
    if groups.are_single:
        return _bootstrap_draws(num_texts)

    # Groups with the same texts are interchangeable. A random number for each kind of text tells
    # them apart by its sum over a group.
    codes = np.random.default_rng(0).integers(1 << 62, size=len(num_texts))
    _, examples, num_groups = np.unique(
        groups.sums(codes[kind_of_text]), return_index=True, return_counts=True
    )
    draws = _bootstrap_draws(num_groups)

    # Count the texts of each kind in one group of each kind.
    ones = np.ones(groups.num_rows)
    shape = (groups.num_groups, len(num_texts))
    counts = sp.csr_matrix((ones, (groups.numbers, kind_of_text)), shape=shape)
    return np.asarray(draws @ counts[examples]).astype(np.int64)


def _percentile_interval(scores: Floats) -> Interval:
    low, high = np.quantile(scores, BOOTSTRAP_QUANTILES)
    return float(low), float(high)


def _macro_f1_of_samples(
    draws: NDArray[Any], labels: NDArray[Any], predictions: NDArray[Any]
) -> Floats:
    # Renumber the classes that occur at all from 0, so that there is a column for each of them.
    classes, numbers = np.unique(np.stack([labels, predictions]), return_inverse=True)
    label_numbers, prediction_numbers = numbers.reshape(2, -1)
    label_matrix = _one_hot_rows(label_numbers, len(classes))
    prediction_matrix = _one_hot_rows(prediction_numbers, len(classes))

    # Count correct predictions, and labels plus predictions, of each sample and class.
    num_right = _sums_of_samples(draws, label_matrix.multiply(prediction_matrix).tocsr())
    num_occurrences = _sums_of_samples(draws, label_matrix + prediction_matrix)

    f1 = f1_scores(num_right, num_occurrences)
    num_occurring_classes = (num_occurrences > 0).sum(axis=1)
    macro_f1: Floats = f1.sum(axis=1) / num_occurring_classes
    return macro_f1


def _multi_label_macro_f1_of_samples(
    draws: NDArray[Any], labels: NDArray[Any], predictions: NDArray[Any]
) -> Floats:
    has_label = labels > 0
    num_labels = _sums_of_samples(draws, sp.csr_matrix(has_label, dtype=np.int64))
    num_given = _sums_of_samples(draws, sp.csr_matrix(predictions, dtype=np.int64))
    num_right = _sums_of_samples(draws, sp.csr_matrix(predictions & has_label, dtype=np.int64))

    f1 = f1_scores(num_right, num_labels + num_given)
    occurs = num_labels > 0
    macro_f1: Floats = (f1 * occurs).sum(axis=1) / np.maximum(1, occurs.sum(axis=1))
    return macro_f1


def _one_hot_rows(numbers: NDArray[np.int64], num_columns: int) -> sp.csr_matrix:
    rows = np.arange(len(numbers))
    ones = np.ones(len(numbers))
    return sp.csr_matrix((ones, (rows, numbers)), shape=(len(numbers), num_columns))


def _sums_of_samples(draws: NDArray[Any], counts: sp.csr_matrix) -> Floats:
    # Store the product by rows, because the caller sums over the classes of each row.
    return np.ascontiguousarray(draws @ counts)
