"""Choose the thresholds of a multi-label task: the probability from which a text has a label.

One threshold for all labels leaves rare labels out. The best one of each label (Lipton et al.,
"Optimal Thresholding of Classifiers to Maximize F1 Measure", 2014,
https://arxiv.org/abs/1402.1892) is chance where the label has few examples. Between both is a line,
on which rarer labels have lower thresholds, and from which each label moves to its own threshold as
its examples grow (Efron and Morris, "Stein's Paradox", 1977).
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import product
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from encoder_cls.linear.folds import split_into_folds
from encoder_cls.metrics.classification import ClassCounts, best_f1_threshold
from encoder_cls.metrics.logits import Logits, sigmoid

Floats = NDArray[np.float64]


class _Rule(NamedTuple):
    """How thresholds depend on the number of examples.

    Attributes:
        slope: of thresholds over the log odds of labels, on the line for all labels.
        strength: the examples from which a label's own threshold outweighs this line.
    """

    slope: float
    strength: float


SLOPES = (0.0, 0.1, 0.2, 0.3, 0.4, 0.5)
STRENGTHS = (np.inf, 1000.0, 300.0)
# The rules to choose from; the simplest comes first.
RULES = [_Rule(slope, strength) for slope, strength in product(SLOPES, STRENGTHS)]

# The weight of macro-F1 beside micro-F1: few examples make it noisy.
MACRO_WEIGHT = 0.5

# The most pairs of a text and a label in cross-validation, which take a second or two, and the
# texts that are used in any case.
MAX_PAIRS = 1_000_000
MIN_TEXTS = 1000

# The range of thresholds, as logits.
LOWEST = -12.0
HIGHEST = 12.0


def fit_thresholds(
    logits: Logits, targets: NDArray[np.int8], split_groups: NDArray[np.int64]
) -> Floats:
    """Fit the threshold of each label, a probability, (labels,).

    Cross-validation chooses the rule that has the highest F1.

    Args:
        logits: (texts, labels).
        targets: 1 where a text has a label, else 0, (texts, labels).
        split_groups: the group of each text, as in `split_into_folds`.
    """
    scores = np.clip(logits.astype(np.float64), LOWEST, HIGHEST)

    # Draw some of the texts.
    most_texts = max(MIN_TEXTS, MAX_PAIRS // scores.shape[1])
    sample = np.random.default_rng(0).permutation(len(scores))[:most_texts]

    # Predict the labels of each fold by thresholds of the other folds.
    predictions = {rule: np.zeros(targets.shape, dtype=bool) for rule in RULES}
    for places in split_into_folds(split_groups[sample]):
        fold = sample[places]
        others = np.setdiff1d(sample, fold)
        thresholds = _thresholds_by_rule(scores[others], targets[others], RULES)
        for rule in RULES:
            predictions[rule][fold] = scores[fold] >= thresholds[rule]

    # Of equally good rules, `max` returns the first one.
    f1 = {}
    for rule in RULES:
        counts = ClassCounts.of(predictions[rule][sample], targets[sample])
        f1[rule] = counts.micro_f1 + MACRO_WEIGHT * counts.macro_f1
    best = max(RULES, key=f1.__getitem__)

    return sigmoid(_thresholds_by_rule(scores, targets, [best])[best])


def _thresholds_by_rule(
    scores: Floats, targets: NDArray[np.int8], rules: Sequence[_Rule]
) -> dict[_Rule, Floats]:
    """The thresholds of all labels by each rule, as logits, (labels,)."""
    num_positives = targets.sum(axis=0, dtype=np.float64)
    num_negatives = len(targets) - num_positives
    log_odds = np.log((num_positives + 0.5) / (num_negatives + 0.5))

    # Find the best threshold of each label for itself.
    own_thresholds = []
    for label_scores, label_targets in zip(scores.T, targets.T, strict=True):
        own_thresholds.append(best_f1_threshold(label_scores, label_targets))
    own = np.array(own_thresholds)

    # Find the best line of each slope for all labels together.
    lines = {}
    for slope in {rule.slope for rule in rules}:
        tilt = slope * log_odds
        offset = best_f1_threshold((scores - tilt).ravel(), targets.ravel())
        lines[slope] = tilt + offset

    # Move each label from the line to its own threshold, the more the more examples it has.
    thresholds = {}
    for rule in rules:
        own_shares = num_positives / (num_positives + rule.strength)
        thresholds[rule] = own_shares * own + (1 - own_shares) * lines[rule.slope]
    return thresholds
