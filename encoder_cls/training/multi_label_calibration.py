"""Held-out scores of several labels in, probabilities and thresholds of each label out, as far as it has examples.

What is fitted for a label by itself is drawn to what fits all labels together, the more the fewer examples it has: a
threshold or a scale that is chosen by ten positives says more of these ten than of the label (shrinkage; Efron and
Morris, "Stein's Paradox in Statistics", 1977).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from encoder_cls.evaluation.multi_label_metrics import best_f1_threshold, f1_scores
from encoder_cls.inference.logits import Logits, sigmoid
from encoder_cls.training.calibration import MAX_SCALE, MAX_SHIFT, targets_of
from encoder_cls.training.folds import all_folds

Floats = NDArray[np.float64]

CALIBRATION_PENALTY = 4.0  # nats, that a label's examples have to gain for a scale or shift 1 away from the common one
# Of the rules for thresholds, of which cross-validation chooses one.
SLOPES = (0.0, 0.1, 0.2, 0.3, 0.4, 0.5)
STRENGTHS = (np.inf, 1000.0, 300.0)
MACRO_WEIGHT = 0.5  # of macro-F1 beside micro-F1: of few examples it tells by chance
MOST_PAIRS, FEWEST_TEXTS = 1_000_000, 1000  # of text and label, on which it is done: a second or two
LOWEST, HIGHEST = -12.0, 12.0  # logits of thresholds


def fit_platt_per_label(margins: Logits, targets: NDArray[np.int8]) -> tuple[Floats, Floats]:
    """The scale and the shift of each label's margins that make probabilities of them, both (labels,).

    Platt scaling (1999): a label's probability is sigmoid(scale * margin + shift). First one scale and one shift for
    all labels are found, then those of each label, drawn to these.

    Args:
        margins: of texts held out, (texts, labels).
        targets: which labels they have, (texts, labels).
    """
    from scipy.optimize import minimize

    smoothed = targets_of(targets, targets.shape[1])
    scores = margins.astype(np.float64)
    limit = float(np.log(MAX_SCALE))

    def gradient_sums(log_scales: Floats, shifts: Floats) -> tuple[Floats, Floats, Floats]:
        scaled = scores * np.exp(log_scales)
        logits = scaled + shifts
        losses = np.logaddexp(0, logits) - smoothed * logits
        errors = sigmoid(logits) - smoothed
        return losses.sum(axis=0), (errors * scaled).sum(axis=0), errors.sum(axis=0)

    def common(numbers: Floats) -> tuple[float, Floats]:
        losses, of_scales, of_shifts = gradient_sums(numbers[:1], numbers[1:])
        return float(losses.sum() / len(scores)), np.array([of_scales.sum(), of_shifts.sum()]) / len(scores)

    bounds = [(-limit, limit), (-MAX_SHIFT, MAX_SHIFT)]
    shared = minimize(common, (0.0, 0.0), jac=True, method="L-BFGS-B", bounds=bounds).x
    num_labels = scores.shape[1]

    def single(numbers: Floats) -> tuple[float, Floats]:
        log_scales, shifts = numbers.reshape(2, num_labels)
        losses, of_scales, of_shifts = gradient_sums(log_scales, shifts)
        away = numbers.reshape(2, num_labels) - shared[:, None]
        loss = float(losses.sum() + CALIBRATION_PENALTY * (away**2).sum())
        return loss, (np.stack([of_scales, of_shifts]) + 2 * CALIBRATION_PENALTY * away).ravel()

    start = np.repeat(shared, num_labels)
    of_each = [bound for bound in bounds for _ in range(num_labels)]
    log_scales, shifts = minimize(single, start, jac=True, method="L-BFGS-B", bounds=of_each).x.reshape(2, num_labels)
    return np.exp(log_scales), shifts


class ThresholdRule(NamedTuple):
    """How thresholds are made of what is common to all labels, and of what is a label's own.

    Attributes:
        slope: by how much the threshold of a label rises with its log odds, so that rare labels have lower ones.
        strength: at how many positive examples a label's own best threshold counts as much as the common rule.
    """

    slope: float
    strength: float


def fit_thresholds(logits: Logits, targets: NDArray[np.int8], together: NDArray[np.int64]) -> Floats:
    """The probability of each label from which a text is said to have it, (labels,).

    One threshold for all labels has the best micro-F1, but leaves rare labels out; the best one of each label (Lipton
    et al., "Optimal Thresholding of Classifiers to Maximize F1 Measure", 2014, https://arxiv.org/abs/1402.1892) is
    chance where it has few examples. Between both is a line, on which the rarer a label is the lower is its threshold,
    and from which it may go towards its own as far as its examples say. Cross-validation chooses how, by the sum of
    micro-F1 and half of macro-F1.

    Args:
        logits: of texts held out, (texts, labels).
        targets: which labels they have, (texts, labels).
        together: as in `folds`.
    """
    scores = np.clip(logits.astype(np.float64), LOWEST, HIGHEST)
    most_texts = max(FEWEST_TEXTS, MOST_PAIRS // scores.shape[1])
    sample = np.random.default_rng(0).permutation(len(scores))[:most_texts]
    rule = _best_rule(scores[sample], targets[sample], together[sample])
    return sigmoid(_thresholds(scores, targets, [rule])[rule])


def _best_rule(scores: Floats, targets: NDArray[np.int8], together: NDArray[np.int64]) -> ThresholdRule:
    rules = [ThresholdRule(slope, strength) for slope in SLOPES for strength in STRENGTHS]
    answers = {rule: np.zeros(targets.shape, dtype=bool) for rule in rules}
    for fold in all_folds(together):
        others = np.setdiff1d(np.arange(len(targets)), fold)
        for rule, thresholds in _thresholds(scores[others], targets[others], rules).items():
            answers[rule][fold] = scores[fold] >= thresholds
    found = {rule: f1_scores(answered, targets) for rule, answered in answers.items()}
    return max(
        rules, key=lambda rule: found[rule].micro + MACRO_WEIGHT * found[rule].macro
    )  # of equals the first, which asks least


def _thresholds(
    scores: Floats, targets: NDArray[np.int8], rules: Sequence[ThresholdRule]
) -> dict[ThresholdRule, Floats]:
    """The thresholds of each label by each rule, as logits, (labels,)."""
    positives = targets.sum(axis=0, dtype=np.float64)
    log_odds = np.log((positives + 0.5) / (len(targets) - positives + 0.5))
    lines = {}
    for slope in {rule.slope for rule in rules}:
        above = slope * log_odds
        lines[slope] = above + best_f1_threshold((scores - above).ravel(), targets.ravel())
    own = np.array([best_f1_threshold(scores[:, it], targets[:, it]) for it in range(scores.shape[1])])
    found = {}
    for rule in rules:
        share = 0.0 if np.isinf(rule.strength) else positives / (positives + rule.strength)
        found[rule] = share * own + (1 - share) * lines[rule.slope]
    return found
