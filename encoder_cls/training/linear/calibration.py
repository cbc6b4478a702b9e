"""Fit calibration, mixture weights and thresholds.

Temperature scaling (Guo et al., "On Calibration of Modern Neural Networks", 2017, https://arxiv.org/abs/1706.04599) of
one classifier or of several together: the logits of each are multiplied by a number, chosen for the lowest negative
log-likelihood of labels not trained on. Platt scaling, where classes were learned one-vs-rest.

Each text counts alike here, also where classes have weights in training: a probability is to be as often right as it
says among the texts that there are. What weights have taught, which class is answered, a factor does not undo.

What is fitted for a label by itself is drawn to what fits all labels together, the more the fewer examples it has: a
threshold or a scale that is chosen by ten positives says more of these ten than of the label (shrinkage; Efron and
Morris, "Stein's Paradox in Statistics", 1977).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from encoder_cls.evaluation.metrics import (
    MIN_PROBABILITY,
    best_f1_threshold,
    binary_cross_entropy,
    cross_entropy,
    f1_scores,
    one_hot,
)
from encoder_cls.inference.task import MULTI_LABEL, Logits, combine_logits, log_sigmoid, sigmoid, softmax, task_of
from encoder_cls.training.linear.folds import all_folds

Floats = NDArray[np.float64]

MAX_SCALE = 20.0  # temperatures, and scales, from 1 / MAX_SCALE to MAX_SCALE: beyond there is nothing to calibrate on
MAX_SHIFT = 10.0  # shifts: a sigmoid is then as good as an exponential, or certain
MIN_WEIGHT = 1e-3  # of a classifier, however misleading in company
RIDGE_PENALTY = 8.0  # nats, that labels have to gain for a mixture weight which is 1 away from what is expected


def fit_inverse_temperature(logits: Logits, labels: NDArray[Any]) -> float:
    """The number by which logits are multiplied so that labels, as in `Split`, have the lowest loss."""
    from scipy.optimize import minimize_scalar

    scores = logits.astype(np.float64)
    loss_of = _loss_on(labels, logits.shape[1])
    limit = float(np.log(MAX_SCALE))
    found = minimize_scalar(lambda it: loss_of(scores * np.exp(it))[0], bounds=(-limit, limit), method="bounded")
    return float(np.exp(found.x))


def fit_platt(
    margins: Sequence[NDArray[np.float32]], labels: NDArray[np.int64], num_classes: int
) -> tuple[tuple[float, ...], float]:
    """The scales of one-vs-rest margins and the shift of their sum under which labels (texts,) have the lowest loss.

    Platt scaling (1999), the same of all classes: each by itself has the probability sigmoid(scale * margin + shift);
    then a text's probabilities are normalized (Zadrozny and Elkan, "Transforming Classifier Scores into Accurate
    Multiclass Probability Estimates", 2002, https://doi.org/10.1145/775047.775151). The lower the shift, the nearer is
    that to a softmax of scaled margins. The margins of more than one classifier are summed (stacking: Wolpert, "Stacked
    Generalization", 1992). No scale is below 0; that of the first is positive. Of two classes margins have one column,
    the second's.
    """
    from scipy.optimize import minimize

    scores = [it.astype(np.float64) for it in margins]
    loss_of = _loss_on(labels, num_classes)

    def loss(numbers: Floats) -> tuple[float, Floats]:
        total = combine_logits(scores, numbers[:-1]) + numbers[-1]
        if total.shape[1] == 1:
            value, of_logits = loss_of(np.hstack([-total, total]))
            of_total = of_logits[:, 1:] - of_logits[:, :1]
        else:
            value, of_logits = loss_of(log_sigmoid(total))
            of_total = of_logits * sigmoid(-total)
        return value, np.array([*((of_total * it).sum() for it in scores), of_total.sum()])

    bounds = [(1 / MAX_SCALE, MAX_SCALE), *[(0.0, MAX_SCALE)] * (len(margins) - 1), (-MAX_SHIFT, MAX_SHIFT)]
    start = [1.0, *[0.0] * (len(margins) - 1), 0.0]
    *scales, shift = minimize(loss, start, jac=True, method="L-BFGS-B", bounds=bounds).x
    return tuple(map(float, scales)), float(shift)


def fit_mixture_weights(
    logits: Sequence[Logits],
    labels: NDArray[Any],
    *,
    is_last_calibrated: bool = True,
    expects_equal_shares: bool = False,
) -> tuple[tuple[float, ...], tuple[float, ...]]:
    """The weights of a sum of logits under which labels have the lowest loss, and each classifier's share.

    A share is a weight in units of the classifier's own inverse temperature; shares sum to 1. Where the last one's
    logits are calibrated on other labels, the search is drawn to that classifier alone (its share 1, the others' 0):
    being elsewhere costs `RIDGE_PENALTY` * distance^2 / texts, ridge regression's penalty, so few labels move little.
    Where equal shares are expected, as of a student and its teacher, it is drawn to these instead. Where the last one's
    logits are not calibrated, there is to be one classifier, and it is scaled as these labels say.
    """
    from scipy.optimize import minimize

    if not is_last_calibrated:
        (only,) = logits
        return (fit_inverse_temperature(only, labels),), (1.0,)
    scores = [it.astype(np.float64) for it in logits]
    loss_of = _loss_on(labels, logits[0].shape[1])
    # A student's probabilities are to be those of its calibrated teacher.
    alone = np.array(
        [1.0 if expects_equal_shares else fit_inverse_temperature(part, labels) for part in logits[:-1]] + [1.0]
    )
    expected = np.full(len(logits), 1 / len(logits)) if expects_equal_shares else np.eye(len(logits))[-1]

    def loss(shares: Floats) -> tuple[float, Floats]:
        value, of_logits = loss_of(combine_logits(scores, shares * alone))
        away = shares - expected
        of_shares = alone * [(of_logits * it).sum() for it in scores] + 2 * RIDGE_PENALTY * away / len(labels)
        return value + float(RIDGE_PENALTY * (away**2).sum() / len(labels)), of_shares

    equal = np.full(len(logits), 1 / len(logits))
    found = minimize(loss, equal, jac=True, method="L-BFGS-B", bounds=[(MIN_WEIGHT, MAX_SCALE)] * len(logits)).x
    return tuple((found * alone).tolist()), tuple((found / found.sum()).tolist())


def _loss_on(labels: NDArray[Any], num_classes: int) -> Callable[[NDArray[np.floating[Any]]], tuple[float, Floats]]:
    """From logits (texts, classes) to the mean negative log-likelihood of labels, as in `Split`, and its gradient.

    Both are in float64: differences of a loss in float32 show a minimizer no slope.
    """
    targets = targets_of(labels, num_classes)

    def of_classes(logits: NDArray[np.floating[Any]]) -> tuple[float, Floats]:
        probabilities = softmax(logits)
        counted = targets * (probabilities > MIN_PROBABILITY)
        gradient = counted.sum(axis=-1, keepdims=True) * probabilities - counted
        return cross_entropy(probabilities, targets), gradient / len(targets)

    def of_each_label(logits: NDArray[np.floating[Any]]) -> tuple[float, Floats]:
        yes = sigmoid(logits)
        no = 1 - yes
        gradient = (1 - targets) * (no > MIN_PROBABILITY) * yes - targets * (yes > MIN_PROBABILITY) * no
        return binary_cross_entropy(yes, targets), gradient / len(targets)

    return of_each_label if task_of(labels) is MULTI_LABEL else of_classes


def targets_of(labels: NDArray[Any], num_classes: int) -> NDArray[np.float64]:
    """The target probabilities, (texts, classes), of labels as in `Split`.

    One more text counts, of which every class is equally probable, or every label as likely as not: a small split
    without a mistake is no reason to be certain (after Platt, "Probabilistic Outputs for Support Vector Machines",
    1999).
    """
    if task_of(labels) is MULTI_LABEL:
        smoothed: NDArray[np.float64] = (labels * float(len(labels)) + 0.5) / (len(labels) + 1)
        return smoothed
    return (one_hot(labels, num_classes) * len(labels) + 1 / num_classes) / (len(labels) + 1)


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
