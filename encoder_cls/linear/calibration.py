"""Hold texts out, and fit calibration, mixture weights and thresholds to their labels.

All texts count alike, whatever the class weights in training. Parameters of a single label are
shrunk towards those of all labels, the more the fewer examples it has: a threshold chosen on ten
positives fits these ten rather than the label (Efron and Morris, "Stein's Paradox", 1977).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from encoder_cls.metrics.classification import (
    MIN_PROBABILITY,
    ClassCounts,
    best_f1_threshold,
    binary_cross_entropy,
    cross_entropy,
    one_hot,
)
from encoder_cls.metrics.logits import (
    MULTI_LABEL,
    SINGLE_LABEL,
    Logits,
    combine_logits,
    log_sigmoid,
    sigmoid,
    softmax,
    task_of,
)

Floats = NDArray[np.float64]

# The folds of cross-validation.
FOLDS = 5

NO_TEXTS = np.zeros(0, dtype=np.int64)


def folds(
    together: NDArray[np.int64], *, first: NDArray[np.int64] = NO_TEXTS, enough: float = np.inf
) -> list[NDArray[np.int64]]:
    """Split texts into folds at random.

    Args:
        together: the group of each text, as in `Split`, (texts,). Groups are kept whole; a single
            group of all texts is split.
        first: texts that are the first fold; they share no group with others.
        enough: leave out folds after so many texts.

    Returns:
        The rows of each fold.
    """
    others = np.setdiff1d(np.arange(len(together)), first)
    parts = [others[part] for part in _split(together[others])]
    if len(first):
        parts.insert(0, first)

    num_held_out = np.cumsum([len(part) for part in parts])
    num_parts = 1 + int(np.searchsorted(num_held_out, enough))
    return parts[:num_parts]


def _split(together: NDArray[np.int64]) -> list[NDArray[np.int64]]:
    """Split all texts into folds, in the order in which they are held out."""
    random = np.random.default_rng(0)
    num_texts = len(together)
    groups, sizes = _groups(together)

    # Without groups, any texts make a fold.
    if len(sizes) in (1, num_texts):
        return np.array_split(random.permutation(num_texts), min(FOLDS, num_texts))

    # Put the groups in a row at random. Each belongs to the fold in which its middle lies.
    order = random.permutation(len(sizes))
    middles = np.cumsum(sizes[order]) - sizes[order] / 2
    group_folds = np.empty(len(sizes), dtype=np.int64)
    group_folds[order] = np.minimum(middles * FOLDS / num_texts, FOLDS - 1).astype(np.int64)

    # If one group has nearly all texts, all middles may lie in the same fold.
    if len(np.unique(group_folds)) == 1:
        group_folds[order[-1]] += 1

    text_folds = group_folds[groups]
    return [np.flatnonzero(text_folds == fold) for fold in np.unique(text_folds)]


def first_held_out(
    order: NDArray[np.int64], together: NDArray[np.int64], count: int
) -> NDArray[np.bool_]:
    """Hold out the first groups in an order of texts, `count` texts at most.

    Groups of more than `count` texts are skipped; where all are that large, each text is a group.

    Returns:
        Whether each text is held out, (texts,).
    """
    groups, sizes = _groups(together)
    if sizes.min() > count:
        groups, sizes = _groups(np.arange(len(order)))

    # List the groups by their first texts.
    _, first_places = np.unique(groups[order], return_index=True)
    candidates = np.argsort(first_places)

    # Hold out as many of the small ones as fit.
    candidates = candidates[sizes[candidates] <= count]
    chosen = candidates[np.cumsum(sizes[candidates]) <= count]
    return np.isin(groups, chosen)


def _groups(together: NDArray[np.int64]) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Return the group of each text, counted from 0, and the size of each group."""
    _, groups, sizes = np.unique(together, return_inverse=True, return_counts=True)
    return groups, sizes


class Calibration(NamedTuple):
    """The scale and shift from margins to logits; multi-label, arrays with one for each label.

    Attributes:
        loss: of the texts held out, by class weights.
        scale: multiplied with margins.
        shift: added after that.
        logits: of the texts held out, (texts, classes).
        penalty: under which the machines were fitted.
    """

    loss: float
    scale: Any
    shift: Any
    logits: Logits
    penalty: float = 0.0


def calibrate(
    margins: NDArray[np.float32], labels: NDArray[Any], class_weights: NDArray[np.float32]
) -> Calibration:
    """Calibrate the margins of texts held out, (texts, machines).

    All classes are calibrated together, but in a multi-label task each label by itself.
    """
    if task_of(labels) is MULTI_LABEL:
        return _calibrate_labels(margins, labels)

    # Two classes have opposite logits, which have no common shift.
    num_classes = len(class_weights)
    if SINGLE_LABEL.num_one_vs_rest(num_classes) == 1:
        scale = fit_inverse_temperature(SINGLE_LABEL.margins_to_logits(margins), labels)
        shift = 0.0
    else:
        scale, shift = fit_platt(margins, labels)

    calibrated = (margins * scale + shift).astype(np.float32)
    logits = SINGLE_LABEL.margins_to_logits(calibrated)

    # The penalty is chosen by class weights, as the machines are fitted; calibration ignores them.
    targets = one_hot(labels, num_classes)
    loss = cross_entropy(softmax(logits), targets, class_weights[labels])
    return Calibration(loss, np.float32(scale), np.float32(shift), logits)


def _calibrate_labels(margins: NDArray[np.float32], labels: NDArray[Any]) -> Calibration:
    """Calibrate the margins of each label; weights of classes would change no choice here."""
    scales, shifts = fit_platt_per_label(margins, labels)
    logits = (margins * scales + shifts).astype(np.float32)
    loss = binary_cross_entropy(sigmoid(logits), labels)
    return Calibration(loss, scales.astype(np.float32), shifts.astype(np.float32), logits)


# Temperatures and scales are from 1 / MAX_SCALE to MAX_SCALE.
MAX_SCALE = 20.0
LOG_SCALE_BOUNDS = (-float(np.log(MAX_SCALE)), float(np.log(MAX_SCALE)))

# The largest shift: from here a sigmoid is as good as an exponential, or as certainty.
MAX_SHIFT = 10.0
SHIFT_BOUNDS = (-MAX_SHIFT, MAX_SHIFT)


def fit_inverse_temperature(logits: Logits, labels: NDArray[Any]) -> float:
    """Fit the factor of logits under which labels have the lowest loss (temperature scaling).

    Labels are as in `Split`. Guo et al., "On Calibration of Modern Neural Networks", 2017,
    https://arxiv.org/abs/1706.04599.
    """
    from scipy.optimize import minimize_scalar

    scores = logits.astype(np.float64)
    label_loss = _label_loss(labels, logits.shape[1])

    def loss(log_scale: float) -> float:
        value, _ = label_loss(scores * np.exp(log_scale))
        return value

    minimum = minimize_scalar(loss, bounds=LOG_SCALE_BOUNDS, method="bounded")
    return float(np.exp(minimum.x))


def fit_platt(margins: Logits, labels: NDArray[np.int64]) -> tuple[float, float]:
    """Fit one scale and shift to the one-vs-rest margins of all classes (Platt scaling, 1999).

    Each class has the probability sigmoid(scale * margin + shift), then a text's probabilities are
    normalized (Zadrozny and Elkan, 2002, https://doi.org/10.1145/775047.775151).
    """
    scores = margins.astype(np.float64)
    label_loss = _label_loss(labels, margins.shape[1])

    def loss(parameters: Floats) -> tuple[float, Floats]:
        scale, shift = parameters
        calibrated = scale * scores + shift
        value, logits_gradient = label_loss(log_sigmoid(calibrated))

        # The derivative of ln(sigmoid(x)) is sigmoid(-x).
        gradient = logits_gradient * sigmoid(-calibrated)
        return value, np.array([(gradient * scores).sum(), gradient.sum()])

    bounds = [(1 / MAX_SCALE, MAX_SCALE), SHIFT_BOUNDS]
    scale, shift = _minimum(loss, [1.0, 0.0], bounds)
    return float(scale), float(shift)


# The nats that a label's scale or shift 1 away from the common one has to gain.
CALIBRATION_PENALTY = 4.0


def fit_platt_per_label(margins: Logits, targets: NDArray[np.int8]) -> tuple[Floats, Floats]:
    """Fit the scale and the shift of each label's margins, both (labels,).

    A ridge penalty draws them to the pair that fits all labels together. The logarithms of scales
    are fitted, so that scales are positive.
    """
    smoothed = targets_of(targets, targets.shape[1])
    scores = margins.astype(np.float64)
    num_texts, num_labels = scores.shape

    def losses(log_scales: Floats, shifts: Floats) -> tuple[Floats, Floats]:
        """Return the loss of each label, and its gradient in log scale and shift, (2, labels)."""
        scaled = scores * np.exp(log_scales)
        logits = scaled + shifts
        label_losses = (np.logaddexp(0, logits) - smoothed * logits).sum(axis=0)

        errors = sigmoid(logits) - smoothed
        gradient = np.stack([(errors * scaled).sum(axis=0), errors.sum(axis=0)])
        return label_losses, gradient

    # Fit one pair to all labels.
    def common_loss(parameters: Floats) -> tuple[float, Floats]:
        label_losses, gradient = losses(parameters[:1], parameters[1:])
        return float(label_losses.sum() / num_texts), gradient.sum(axis=1) / num_texts

    common = _minimum(common_loss, [0.0, 0.0], [LOG_SCALE_BOUNDS, SHIFT_BOUNDS])

    # Fit the pairs of the labels, which start there.
    def penalized_loss(parameters: Floats) -> tuple[float, Floats]:
        pairs = parameters.reshape(2, num_labels)
        label_losses, gradient = losses(pairs[0], pairs[1])
        distances = pairs - common[:, None]

        loss = float(label_losses.sum() + CALIBRATION_PENALTY * (distances**2).sum())
        return loss, (gradient + 2 * CALIBRATION_PENALTY * distances).ravel()

    start = np.repeat(common, num_labels)
    bounds = [LOG_SCALE_BOUNDS] * num_labels + [SHIFT_BOUNDS] * num_labels
    pairs = _minimum(penalized_loss, start, bounds).reshape(2, num_labels)
    return np.exp(pairs[0]), pairs[1]


# The least weight of a classifier in a mixture, however misleading it is.
MIN_WEIGHT = 1e-3
# The nats that a share 1 away from the expected one has to gain.
RIDGE_PENALTY = 8.0


def fit_mixture_weights(
    logits: Sequence[Logits], labels: NDArray[Any], *, expects_equal_shares: bool = False
) -> tuple[tuple[float, ...], tuple[float, ...]]:
    """Fit the weights of a sum of logits under which labels have the lowest loss.

    A classifier's share is its weight in units of its own inverse temperature. A ridge penalty,
    `RIDGE_PENALTY` * distance^2 / texts, draws the shares to the last classifier alone, which is
    calibrated on other labels, or, for a student and its teacher, to equal shares; so few labels
    move them little.

    Returns:
        The weights, and the shares, scaled to the sum 1.
    """
    scores = [part.astype(np.float64) for part in logits]
    label_loss = _label_loss(labels, logits[0].shape[1])

    # Find the inverse temperature of each classifier by itself. The last one is calibrated, and so
    # is a student: it learns the probabilities of its teacher, which is calibrated.
    scales = np.ones(len(logits))
    if not expects_equal_shares:
        for number, part in enumerate(logits[:-1]):
            scales[number] = fit_inverse_temperature(part, labels)

    # Choose the shares to which the penalty draws.
    equal_shares = np.full(len(logits), 1 / len(logits))
    if expects_equal_shares:
        expected = equal_shares
    else:
        expected = np.zeros(len(logits))
        expected[-1] = 1

    def loss(shares: Floats) -> tuple[float, Floats]:
        value, logits_gradient = label_loss(combine_logits(scores, shares * scales))
        distances = shares - expected
        penalty = float(RIDGE_PENALTY * (distances**2).sum() / len(labels))

        slopes = [(logits_gradient * part).sum() for part in scores]
        gradient = scales * slopes + 2 * RIDGE_PENALTY * distances / len(labels)
        return value + penalty, gradient

    bounds = [(MIN_WEIGHT, MAX_SCALE)] * len(logits)
    shares = _minimum(loss, equal_shares, bounds)
    weights = (shares * scales).tolist()
    return tuple(weights), tuple((shares / shares.sum()).tolist())


def _minimum(
    loss: Callable[[Floats], tuple[float, Floats]],
    start: Sequence[float] | Floats,
    bounds: Sequence[tuple[float, float]],
) -> Floats:
    """Minimize a loss that is returned with its gradient."""
    from scipy.optimize import minimize

    minimum: Floats = minimize(loss, start, jac=True, method="L-BFGS-B", bounds=bounds).x
    return minimum


LabelLoss = Callable[[NDArray[np.floating[Any]]], tuple[float, Floats]]
"""The mean loss of labels as a function of logits, (texts, classes), with its gradient."""


def _label_loss(labels: NDArray[Any], num_classes: int) -> LabelLoss:
    """Return the mean negative log-likelihood of labels as a function of float64 logits.

    A loss in float32 would be too coarse for a minimizer.
    """
    targets = targets_of(labels, num_classes)

    def class_loss(logits: NDArray[np.floating[Any]]) -> tuple[float, Floats]:
        probabilities = softmax(logits)

        # The loss is clipped below the least probability, and has no slope there.
        counted = targets * (probabilities > MIN_PROBABILITY)
        gradient = counted.sum(axis=-1, keepdims=True) * probabilities - counted
        return cross_entropy(probabilities, targets), gradient / len(targets)

    def multi_label_loss(logits: NDArray[np.floating[Any]]) -> tuple[float, Floats]:
        yes = sigmoid(logits)
        no = 1 - yes

        # Likewise for both answers.
        from_no = (1 - targets) * (no > MIN_PROBABILITY) * yes
        from_yes = targets * (yes > MIN_PROBABILITY) * no
        return binary_cross_entropy(yes, targets), (from_no - from_yes) / len(targets)

    if task_of(labels) is MULTI_LABEL:
        return multi_label_loss
    return class_loss


def targets_of(labels: NDArray[Any], num_classes: int) -> Floats:
    """Return the target probabilities, (texts, classes), of labels, smoothed after Platt (1999).

    They are as if one more text had all answers with equal probability: few texts without a mistake
    prove no certainty. Labels are as in `Split`.
    """
    num_texts = len(labels)
    if task_of(labels) is MULTI_LABEL:
        smoothed: Floats = (labels * float(num_texts) + 0.5) / (num_texts + 1)
        return smoothed
    return (one_hot(labels, num_classes) * num_texts + 1 / num_classes) / (num_texts + 1)


class Rule(NamedTuple):
    """How thresholds follow from labels.

    Attributes:
        slope: of thresholds over the log odds of labels: rare labels have low ones.
        strength: the number of positive examples from which a label's own threshold outweighs the
            common line.
    """

    slope: float
    strength: float


# What cross-validation chooses from: the first of equal ones, the simplest.
SLOPES = (0.0, 0.1, 0.2, 0.3, 0.4, 0.5)
STRENGTHS = (np.inf, 1000.0, 300.0)

# The weight of macro-F1 beside micro-F1, since few examples make it noisy.
MACRO_WEIGHT = 0.5

# The most pairs of text and label in cross-validation, a second or two, and the texts that are used
# however many labels there are.
MOST_PAIRS = 1_000_000
FEWEST_TEXTS = 1000

# The lowest and the highest logit of a threshold.
LOWEST = -12.0
HIGHEST = 12.0


def fit_thresholds(
    logits: Logits, targets: NDArray[np.int8], together: NDArray[np.int64]
) -> Floats:
    """Fit the probability of each label from which a text gets it, (labels,).

    One threshold for all labels leaves rare labels out; the best one of each label (Lipton et al.,
    "Optimal Thresholding of Classifiers to Maximize F1 Measure", 2014,
    https://arxiv.org/abs/1402.1892) is chance where it has few examples. Between both is a line, on
    which rarer labels have lower thresholds, and from which each label moves to its own threshold
    as its examples grow. Cross-validation, with folds of `together`, chooses both parameters.

    Logits and targets are (texts, labels).
    """
    scores = np.clip(logits.astype(np.float64), LOWEST, HIGHEST)
    rules = [Rule(slope, strength) for slope in SLOPES for strength in STRENGTHS]

    # Draw some of the texts.
    most_texts = max(FEWEST_TEXTS, MOST_PAIRS // scores.shape[1])
    sample = np.random.default_rng(0).permutation(len(scores))[:most_texts]

    # Answer each of them by each rule, with thresholds from the other folds.
    answers = {rule: np.zeros(targets.shape, dtype=bool) for rule in rules}
    for part in folds(together[sample]):
        fold = sample[part]
        others = np.setdiff1d(sample, fold)
        thresholds = _thresholds(scores[others], targets[others], rules)
        for rule in rules:
            answers[rule][fold] = scores[fold] >= thresholds[rule]

    # Choose the rule with the best F1, and apply it to all texts.
    def f1(rule: Rule) -> float:
        counts = ClassCounts.of(answers[rule][sample], targets[sample])
        return counts.micro_f1 + MACRO_WEIGHT * counts.macro_f1

    best = max(rules, key=f1)
    thresholds = _thresholds(scores, targets, [best])
    return sigmoid(thresholds[best])


def _thresholds(
    scores: Floats, targets: NDArray[np.int8], rules: Sequence[Rule]
) -> dict[Rule, Floats]:
    """Return the thresholds of each label by each rule, as logits, (labels,)."""
    positives = targets.sum(axis=0, dtype=np.float64)

    # Find the best threshold of each label by itself.
    own = np.zeros(targets.shape[1])
    for label in range(targets.shape[1]):
        own[label] = best_f1_threshold(scores[:, label], targets[:, label])

    # Find the best line of each slope: all labels have the same threshold above it.
    log_odds = np.log((positives + 0.5) / (len(targets) - positives + 0.5))
    lines: dict[float, Floats] = {}
    for rule in rules:
        if rule.slope not in lines:
            offsets = rule.slope * log_odds
            lines[rule.slope] = offsets + best_f1_threshold(
                (scores - offsets).ravel(), targets.ravel()
            )

    # Move from the line towards the own threshold.
    thresholds = {}
    for rule in rules:
        shares = positives / (positives + rule.strength)
        thresholds[rule] = shares * own + (1 - shares) * lines[rule.slope]
    return thresholds
