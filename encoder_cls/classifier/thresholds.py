"""Choose the thresholds of a multi-label task: the probability from which a text has a label.

With one threshold for all labels, rare labels are hardly ever predicted. The threshold that is best
for a label by itself (Lipton et al., "Optimal Thresholding of Classifiers to Maximize F1 Measure",
2014, https://arxiv.org/abs/1402.1892) is mostly chance if the label has few examples. So a straight
line, common to all labels, gives rarer labels lower thresholds; from it, the threshold of a label
moves towards its own best one, the further, the more examples it has (Efron and Morris, "Stein's
Paradox", 1977).
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import product
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from encoder_cls.linear_training.folds import split_into_folds
from encoder_cls.metrics.logits import Logits, sigmoid
from encoder_cls.metrics.precision_recall import ClassCounts, best_f1_threshold
from encoder_cls.metrics.row_groups import RowGroups

Floats = NDArray[np.float64]


class _Rule(NamedTuple):
    """How the threshold of a label depends on the number of its examples.

    `slope` is that of the line: thresholds, as logits, over the log odds of labels. With `strength`
    examples, a threshold is halfway from the line to the label's own best one.
    """

    slope: float
    strength: float


# The rules that cross-validation chooses from, the simplest rule first.
SLOPES = (0.0, 0.1, 0.2, 0.3, 0.4, 0.5)
STRENGTHS = (np.inf, 1000.0, 300.0)
RULES = [_Rule(slope, strength) for slope, strength in product(SLOPES, STRENGTHS)]

# Rules are compared by micro-F1 plus macro-F1 with this weight, which is below 1, because macro-F1
# is noisy where labels have few examples.
MACRO_WEIGHT = 0.5

# Cross-validation uses a random sample with this number of pairs of a text and a label, which takes
# a second or two, but at least this number of texts.
MAX_PAIRS = 1_000_000
MIN_TEXTS = 1000

# The lowest and the highest threshold, as logits.
LOWEST = -12.0
HIGHEST = 12.0


def fit_thresholds(logits: Logits, targets: NDArray[np.int8], groups: RowGroups) -> Floats:
    """Fit the threshold of each label, a probability, (labels,), to held-out texts.

    Logits and targets, 1 or 0, are (texts, labels). Cross-validation chooses the rule; texts of one
    group stay in one fold, and count as one example.
    """
    scores = np.clip(logits.astype(np.float64), LOWEST, HIGHEST)

    # Draw the texts for cross-validation.
    num_drawn = max(MIN_TEXTS, MAX_PAIRS // scores.shape[1])
    sample = np.random.default_rng(0).permutation(len(scores))[:num_drawn]

    # Predict the labels of each fold with thresholds that are fitted to the other folds.
    predictions = {rule: np.zeros(targets.shape, dtype=bool) for rule in RULES}
    for indices in split_into_folds(groups.numbers[sample]):
        fold = sample[indices]
        other_folds = np.setdiff1d(sample, fold)
        thresholds = _thresholds_by_rule(
            scores[other_folds], targets[other_folds], groups.subset(other_folds), RULES
        )
        for rule in RULES:
            predictions[rule][fold] = scores[fold] >= thresholds[rule]

    # Choose the best rule. Of equally good rules, `max` returns the first one, the simplest.
    f1 = {}
    for rule in RULES:
        counts = ClassCounts.of(predictions[rule][sample], targets[sample])
        f1[rule] = counts.micro_f1 + MACRO_WEIGHT * counts.macro_f1
    best_rule = max(RULES, key=f1.__getitem__)

    return sigmoid(_thresholds_by_rule(scores, targets, groups, [best_rule])[best_rule])


def _thresholds_by_rule(
    scores: Floats, targets: NDArray[np.int8], groups: RowGroups, rules: Sequence[_Rule]
) -> dict[_Rule, Floats]:
    """The thresholds by each rule, as logits, (labels,)."""
    num_positives = groups.weights() @ targets
    num_negatives = groups.num_groups - num_positives
    log_odds = np.log((num_positives + 0.5) / (num_negatives + 0.5))

    # Find the threshold that is best for each label by itself.
    best_of_labels = []
    for label_scores, label_targets in zip(scores.T, targets.T, strict=True):
        best_of_labels.append(best_f1_threshold(label_scores, label_targets))
    best_thresholds = np.array(best_of_labels)

    # Find the line of each slope that is best for all labels together.
    lines = {}
    for slope in {rule.slope for rule in rules}:
        tilt = slope * log_odds
        offset = best_f1_threshold((scores - tilt).ravel(), targets.ravel())
        lines[slope] = tilt + offset

    # Move the threshold of each label from the line towards the best one of the label itself. The
    # more examples the label has, the further its threshold moves.
    thresholds = {}
    for rule in rules:
        moved = num_positives / (num_positives + rule.strength)
        thresholds[rule] = moved * best_thresholds + (1 - moved) * lines[rule.slope]
    return thresholds
