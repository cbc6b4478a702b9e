"""Hold texts out, and fit calibration, mixture weights and thresholds to their labels.

All texts count alike, whatever the class weights in training, unless labelled texts are weighted to resemble the texts
without labels (`weights_like_pool`). Parameters of a single label are shrunk towards those of
all labels, the more the fewer examples it has: a threshold chosen on ten positives fits these ten rather than the label
(Efron and Morris, "Stein's Paradox", 1977).
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

FOLDS = 5  # of cross-validation
NO_TEXTS = np.zeros(0, dtype=np.int64)
MAX_SCALE = 20.0  # temperatures and scales are from 1 / MAX_SCALE to MAX_SCALE
MAX_SHIFT = 10.0  # from which a sigmoid is as good as an exponential, or as certainty
MIN_WEIGHT = 1e-3  # of a classifier in a mixture, however misleading
RIDGE_PENALTY = 8.0  # nats that a share 1 away from the expected one has to gain
CALIBRATION_PENALTY = 4.0  # nats that a scale or shift 1 away from the common one has to gain
LOG_SCALE_BOUNDS = (-float(np.log(MAX_SCALE)), float(np.log(MAX_SCALE)))
SHIFT_BOUNDS = (-MAX_SHIFT, MAX_SHIFT)


def folds(
    together: NDArray[np.int64],
    *,
    first: NDArray[np.int64] = NO_TEXTS,
    enough: float = np.inf,
    count: int = FOLDS,
) -> list[NDArray[np.int64]]:
    """Split texts into `count` folds at random.

    Groups, by `together` as in `Split`, are kept whole; a single group of all texts is split. The texts `first` are the
    first fold, and share no group with others. Folds after `enough` texts are left out.
    """
    others = np.setdiff1d(np.arange(len(together)), first)
    parts = [others[part] for part in _split(together[others], count)]
    parts = [first, *parts] if len(first) else parts
    held_out = np.cumsum([len(part) for part in parts])
    return parts[: 1 + int(np.searchsorted(held_out, enough))]


def _split(together: NDArray[np.int64], count: int) -> list[NDArray[np.int64]]:
    """Split all texts into `count` folds, in the order in which they are held out."""
    random, num_texts = np.random.default_rng(0), len(together)
    groups, sizes = _groups(together)
    if len(sizes) in (1, num_texts):
        return np.array_split(random.permutation(num_texts), min(count, num_texts))
    shuffled = random.permutation(len(sizes))
    # With the groups in a row, each belongs to the fold in which its middle lies.
    middles = np.cumsum(sizes[shuffled]) - sizes[shuffled] / 2
    fold_of_group = np.empty(len(sizes), dtype=np.int64)
    fold_of_group[shuffled] = np.minimum(middles * count / num_texts, count - 1).astype(np.int64)
    if len(np.unique(fold_of_group)) == 1:  # one group has nearly all texts
        fold_of_group[shuffled[-1]] += 1
    fold_of_text = fold_of_group[groups]
    return [np.flatnonzero(fold_of_text == fold) for fold in np.unique(fold_of_text)]


def first_held_out(
    order: NDArray[np.int64], together: NDArray[np.int64], count: int
) -> NDArray[np.bool_]:
    """Hold out the first groups in an order of texts, `count` texts at most: whether each text is, (texts,).

    Groups of more than `count` texts are skipped; where all are that large, each text is a group.
    """
    groups, sizes = _groups(together)
    if sizes.min() > count:
        groups, sizes = _groups(np.arange(len(order)))
    chosen = np.argsort(np.unique(groups[order], return_index=True)[1])
    chosen = chosen[sizes[chosen] <= count]
    return np.isin(groups, chosen[np.cumsum(sizes[chosen]) <= count])


def _groups(together: NDArray[np.int64]) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """The group of each text, counted from 0, and the size of each group."""
    _, groups, sizes = np.unique(together, return_inverse=True, return_counts=True)
    return groups, sizes


STRATA = 5  # of confidence: five remove some nine tenths of a bias (Cochran, 1968)
FEWEST_OF_STRATUM = 20  # labelled texts, on average


def weights_like_pool(labelled: Floats, pool: Floats, *, pool_size: int) -> Floats:
    """Weight labelled texts, (texts,), so that their confidence is spread as that of all texts, labelled or not.

    Texts that were chosen because a classifier was unsure of them are harder than others, and would lower an estimate
    of accuracy. Confidences are of texts that the classifier has not learned from; `pool` are those of a sample of the
    `pool_size` texts without labels. The weights have a mean of 1.

    Post-stratification: Holt and Smith, "Post Stratification" (1979), https://doi.org/10.2307/2344652; the number of
    strata: Cochran, "The Effectiveness of Adjustment by Subclassification" (1968), https://doi.org/10.2307/2528036.
    """
    num_strata = min(STRATA, len(labelled) // FEWEST_OF_STRATUM)
    if not len(pool) or num_strata < 2:
        return np.ones(len(labelled))

    # Strata hold equal shares of all texts, of which each text of the sample stands for several.
    confidence = np.concatenate([labelled, pool])
    counts = np.concatenate([np.ones(len(labelled)), np.full(len(pool), pool_size / len(pool))])
    order = np.argsort(confidence, kind="stable")
    shares_up_to = np.cumsum(counts[order]) / counts.sum()
    wanted = np.arange(1, num_strata) / num_strata
    edges = np.interp(wanted, shares_up_to, confidence[order])

    # A text weighs what its stratum's share of all texts is to its share of the labelled ones.
    stratum = np.searchsorted(edges, confidence)
    of_all = np.bincount(stratum, weights=counts, minlength=num_strata) / counts.sum()
    own_stratum = stratum[: len(labelled)]
    of_labelled = np.bincount(own_stratum, minlength=num_strata) / len(labelled)
    weights: Floats = of_all[own_stratum] / of_labelled[own_stratum]
    weights /= weights.mean()
    return weights


def effective_size(weights: Floats) -> float:
    """The number of equally weighted texts whose mean is as exact as that of the weighted ones (Kish, 1965)."""
    return float(weights.sum() ** 2 / (weights**2).sum())


class Calibration(NamedTuple):
    """The scale and shift from margins to logits; multi-label, arrays with one of each label."""

    loss: float  # of the texts held out, by class weights
    scale: Any
    shift: Any
    logits: Logits  # of the texts held out
    penalty: float = 0.0  # under which the machines were fitted


def calibrate(
    margins: NDArray[np.float32],
    labels: NDArray[Any],
    class_weights: NDArray[np.float32],
    text_weights: Floats | None = None,
) -> Calibration:
    """Calibrate the margins of texts held out: all classes together, or multi-label each label.

    `text_weights`, (texts,), are for one label a text; by default all texts count alike.
    """
    if task_of(labels) is MULTI_LABEL:
        scales, shifts = fit_platt_per_label(margins, labels)
        logits = (margins * scales + shifts).astype(np.float32)
        loss = binary_cross_entropy(sigmoid(logits), labels)  # weights of classes change no choice
        return Calibration(loss, scales.astype(np.float32), shifts.astype(np.float32), logits)
    if (
        SINGLE_LABEL.num_one_vs_rest(len(class_weights)) == 1
    ):  # opposite logits have no common shift
        logits = SINGLE_LABEL.margins_to_logits(margins)
        scale = fit_inverse_temperature(logits, labels, text_weights)
        shift = 0.0
    else:
        scale, shift = fit_platt(margins, labels, text_weights)
    logits = SINGLE_LABEL.margins_to_logits((margins * scale + shift).astype(np.float32))
    # The penalty is chosen by class weights, as the machines are fitted; calibration ignores them.
    loss_weights = class_weights[labels]
    if text_weights is not None:
        loss_weights = loss_weights * text_weights
    loss = cross_entropy(softmax(logits), one_hot(labels, len(class_weights)), loss_weights)
    return Calibration(loss, np.float32(scale), np.float32(shift), logits)


def fit_inverse_temperature(
    logits: Logits, labels: NDArray[Any], text_weights: Floats | None = None
) -> float:
    """Fit the factor of logits under which labels, as in `Split`, have the lowest loss (temperature scaling).

    Guo et al., "On Calibration of Modern Neural Networks", 2017, https://arxiv.org/abs/1706.04599.
    """
    from scipy.optimize import minimize_scalar

    scores = logits.astype(np.float64)
    loss_of = _loss_on(labels, logits.shape[1], text_weights)
    minimum = minimize_scalar(
        lambda it: loss_of(scores * np.exp(it))[0], bounds=LOG_SCALE_BOUNDS, method="bounded"
    )
    return float(np.exp(minimum.x))


def fit_platt(
    margins: Logits, labels: NDArray[np.int64], text_weights: Floats | None = None
) -> tuple[float, float]:
    """Fit one scale and shift to the one-vs-rest margins of all classes (Platt scaling, 1999).

    Each class has the probability sigmoid(scale * margin + shift), then a text's probabilities are normalized (Zadrozny
    and Elkan, 2002, https://doi.org/10.1145/775047.775151).
    """
    scores = margins.astype(np.float64)
    loss_of = _loss_on(labels, margins.shape[1], text_weights)

    def loss(numbers: Floats) -> tuple[float, Floats]:
        total = numbers[0] * scores + numbers[1]
        value, of_logits = loss_of(log_sigmoid(total))
        of_total = of_logits * sigmoid(-total)
        return value, np.array([(of_total * scores).sum(), of_total.sum()])

    scale, shift = _minimum(loss, [1.0, 0.0], [(1 / MAX_SCALE, MAX_SCALE), SHIFT_BOUNDS])
    return float(scale), float(shift)


def fit_platt_per_label(margins: Logits, targets: NDArray[np.int8]) -> tuple[Floats, Floats]:
    """Fit the scale and the shift of each label's margins, both (labels,), drawn to a pair that fits all labels."""
    smoothed = targets_of(targets, targets.shape[1])
    scores = margins.astype(np.float64)
    num_texts, num_labels = scores.shape

    def losses(log_scales: Floats, shifts: Floats) -> tuple[Floats, Floats]:
        """The loss of each label, and its gradient in scale and shift, (2, labels)."""
        scaled = scores * np.exp(log_scales)
        logits = scaled + shifts
        errors = sigmoid(logits) - smoothed
        gradient = np.stack([(errors * scaled).sum(axis=0), errors.sum(axis=0)])
        return (np.logaddexp(0, logits) - smoothed * logits).sum(axis=0), gradient

    def common(numbers: Floats) -> tuple[float, Floats]:
        of_labels, gradient = losses(numbers[:1], numbers[1:])
        return float(of_labels.sum() / num_texts), gradient.sum(axis=1) / num_texts

    shared = _minimum(common, [0.0, 0.0], [LOG_SCALE_BOUNDS, SHIFT_BOUNDS])

    def single(numbers: Floats) -> tuple[float, Floats]:
        of_each = numbers.reshape(2, num_labels)
        of_labels, gradient = losses(*of_each)
        away = of_each - shared[:, None]
        loss = float(of_labels.sum() + CALIBRATION_PENALTY * (away**2).sum())
        return loss, (gradient + 2 * CALIBRATION_PENALTY * away).ravel()

    bounds = [*[LOG_SCALE_BOUNDS] * num_labels, *[SHIFT_BOUNDS] * num_labels]
    log_scales, shifts = _minimum(single, np.repeat(shared, num_labels), bounds).reshape(
        2, num_labels
    )
    return np.exp(log_scales), shifts


def fit_mixture_weights(
    logits: Sequence[Logits], labels: NDArray[Any], *, expects_equal_shares: bool = False
) -> tuple[tuple[float, ...], tuple[float, ...]]:
    """Fit the weights of a sum of logits under which labels have the lowest loss, and each classifier's share.

    A share is a weight in units of the classifier's own inverse temperature; shares sum to 1. A ridge penalty,
    `RIDGE_PENALTY` * distance^2 / texts, draws them to the last classifier alone, which is calibrated on other labels,
    or, for a student and its teacher, to equal shares; few labels move them little.
    """
    scores = [it.astype(np.float64) for it in logits]
    loss_of = _loss_on(labels, logits[0].shape[1])
    # A student learns the probabilities of its teacher, which is calibrated.
    alone = np.array(
        [
            1.0 if expects_equal_shares else fit_inverse_temperature(part, labels)
            for part in logits[:-1]
        ]
        + [1.0]
    )
    equal = np.full(len(logits), 1 / len(logits))
    expected = equal if expects_equal_shares else np.eye(len(logits))[-1]

    def loss(shares: Floats) -> tuple[float, Floats]:
        value, of_logits = loss_of(combine_logits(scores, shares * alone))
        away = shares - expected
        of_shares = alone * [
            (of_logits * it).sum() for it in scores
        ] + 2 * RIDGE_PENALTY * away / len(labels)
        return value + float(RIDGE_PENALTY * (away**2).sum() / len(labels)), of_shares

    shares = _minimum(loss, equal, [(MIN_WEIGHT, MAX_SCALE)] * len(logits))
    return tuple((shares * alone).tolist()), tuple((shares / shares.sum()).tolist())


def _minimum(
    loss: Callable[[Floats], tuple[float, Floats]],
    start: Sequence[float] | Floats,
    bounds: Sequence[tuple[float, float]],
) -> Floats:
    """Minimize a loss that is returned with its gradient."""
    from scipy.optimize import minimize

    minimum: Floats = minimize(loss, start, jac=True, method="L-BFGS-B", bounds=bounds).x
    return minimum


def _loss_on(
    labels: NDArray[Any], num_classes: int, text_weights: Floats | None = None
) -> Callable[[NDArray[np.floating[Any]]], tuple[float, Floats]]:
    """The mean negative log-likelihood of labels as a function of logits (texts, classes), with its gradient.

    `text_weights`, (texts,), of a mean of 1, are for one label a text. Logits are float64: a loss in float32 is too coarse for a minimizer.
    """
    targets = targets_of(labels, num_classes)

    def of_classes(logits: NDArray[np.floating[Any]]) -> tuple[float, Floats]:
        probabilities = softmax(logits)
        counted = targets * (probabilities > MIN_PROBABILITY)
        gradient = counted.sum(axis=-1, keepdims=True) * probabilities - counted
        if text_weights is not None:
            gradient *= text_weights[:, None]
        return cross_entropy(probabilities, targets, text_weights), gradient / len(targets)

    def of_each_label(logits: NDArray[np.floating[Any]]) -> tuple[float, Floats]:
        yes = sigmoid(logits)
        no = 1 - yes
        gradient = (1 - targets) * (no > MIN_PROBABILITY) * yes - targets * (
            yes > MIN_PROBABILITY
        ) * no
        return binary_cross_entropy(yes, targets), gradient / len(targets)

    return of_each_label if task_of(labels) is MULTI_LABEL else of_classes


def targets_of(labels: NDArray[Any], num_classes: int) -> Floats:
    """The target probabilities, (texts, classes), of labels as in `Split`, smoothed after Platt (1999).

    As if one more text had all answers with equal probability: few texts without a mistake prove no certainty.
    """
    if task_of(labels) is MULTI_LABEL:
        smoothed: Floats = (labels * float(len(labels)) + 0.5) / (len(labels) + 1)
        return smoothed
    return (one_hot(labels, num_classes) * len(labels) + 1 / num_classes) / (len(labels) + 1)


Rule = tuple[float, float]  # for thresholds, chosen by cross-validation: a slope and a strength
# Of thresholds over log odds of labels: rare labels have low ones.
SLOPES = (
    0.0,
    0.1,
    0.2,
    0.3,
    0.4,
    0.5,
)
# Positive examples from which a label's own threshold outweighs the common rule.
STRENGTHS = (
    np.inf,
    1000.0,
    300.0,
)
MACRO_WEIGHT = 0.5  # of macro-F1 beside micro-F1, since few examples make it noisy
# The most pairs of text and label in cross-validation, which take a second or two.
MOST_PAIRS, FEWEST_TEXTS = (
    1_000_000,
    1000,
)
LOWEST, HIGHEST = -12.0, 12.0  # logits of thresholds


def fit_thresholds(
    logits: Logits, targets: NDArray[np.int8], together: NDArray[np.int64]
) -> Floats:
    """Fit the probability of each label from which a text gets it, (labels,), to logits (texts, labels).

    One threshold for all labels leaves rare labels out; the best one of each label (Lipton et al., "Optimal
    Thresholding of Classifiers to Maximize F1 Measure", 2014, https://arxiv.org/abs/1402.1892) is chance where it has
    few examples. Between both is a line, on which rarer labels have lower thresholds, and from which each label moves
    to its own threshold as its examples grow. Cross-validation, with folds of `together`, chooses both parameters.
    """
    scores = np.clip(logits.astype(np.float64), LOWEST, HIGHEST)
    most_texts = max(FEWEST_TEXTS, MOST_PAIRS // scores.shape[1])
    sample = np.random.default_rng(0).permutation(len(scores))[:most_texts]
    rules = [(slope, strength) for slope in SLOPES for strength in STRENGTHS]
    answers = {rule: np.zeros(targets.shape, dtype=bool) for rule in rules}
    for fold in (sample[fold] for fold in folds(together[sample])):
        others = np.setdiff1d(sample, fold)
        for rule, thresholds in _thresholds(scores[others], targets[others], rules).items():
            answers[rule][fold] = scores[fold] >= thresholds
    f1 = {
        rule: ClassCounts.of(answered[sample], targets[sample])
        for rule, answered in answers.items()
    }
    # The simplest of equals.
    best = max(rules, key=lambda rule: f1[rule].micro_f1 + MACRO_WEIGHT * f1[rule].macro_f1)
    return sigmoid(_thresholds(scores, targets, [best])[best])


def _thresholds(
    scores: Floats, targets: NDArray[np.int8], rules: Sequence[Rule]
) -> dict[Rule, Floats]:
    """The thresholds of each label by each rule, as logits, (labels,)."""
    positives = targets.sum(axis=0, dtype=np.float64)
    log_odds = np.log((positives + 0.5) / (len(targets) - positives + 0.5))
    own = np.array(
        [best_f1_threshold(*of_label) for of_label in zip(scores.T, targets.T, strict=True)]
    )
    lines = {
        slope: slope * log_odds
        + best_f1_threshold((scores - slope * log_odds).ravel(), targets.ravel())
        for slope in {slope for slope, _ in rules}
    }
    shares = {strength: positives / (positives + strength) for _, strength in rules}
    return {rule: shares[rule[1]] * own + (1 - shares[rule[1]]) * lines[rule[0]] for rule in rules}
