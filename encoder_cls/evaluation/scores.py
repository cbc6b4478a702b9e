"""Confidence intervals, paired tests, and scores of the parts of a classifier."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from encoder_cls.evaluation.metrics import answers_of, f1_scores
from encoder_cls.inference.guarantees import Promises
from encoder_cls.inference.task import Logits

Interval = tuple[float, float]
"""The lowest and the highest value."""

QUANTILE = 1.959964  # of the normal distribution, with 2.5% above it
SAMPLES, FEWEST_SAMPLES = 1000, 100  # of the bootstrap
MOST_DRAWS = 5_000_000  # samples times pairs of label and answer, a second: of more pairs there are fewer samples
DRAWS_AT_ONCE = 1 << 21


def wilson_interval(right: int, total: int) -> Interval:
    """The interval of a fraction, `right` of `total`.

    Wilson, "Probable Inference, the Law of Succession, and Statistical Inference" (1927),
    https://doi.org/10.1080/01621459.1927.10502953: it holds for few texts, too, and near 0 and 1.
    """
    fraction, square = right / total, QUANTILE**2
    center = (fraction + square / (2 * total)) / (1 + square / total)
    spread = math.sqrt(fraction * (1 - fraction) / total + square / (4 * total**2)) * QUANTILE / (1 + square / total)
    # The fraction itself is within: at 0 and at 1 the last digit would deny that.
    return min(max(0.0, center - spread), fraction), max(min(1.0, center + spread), fraction)


def paired_interval(only_first: int, only_second: int, total: int) -> Interval:
    """The interval of the difference of two accuracies on the same texts.

    Agresti and Min, "Simple Improved Confidence Intervals for Comparing Matched Proportions" (2005),
    https://doi.org/10.1002/sim.1781: texts that both get right, or both wrong, say nothing of which is better.

    Args:
        only_first: texts that the first alone gets right.
        only_second: texts that the second alone gets right.
        total: all texts.
    """
    first, second, texts = only_first + 0.5, only_second + 0.5, total + 2
    center = (first - second) / texts
    spread = QUANTILE * math.sqrt(first + second - (first - second) ** 2 / texts) / texts
    return max(-1.0, center - spread), min(1.0, center + spread)


def macro_f1_interval(labels: NDArray[np.int64], predictions: NDArray[np.integer[Any]]) -> Interval:
    """The interval of macro-F1, by a percentile bootstrap: that of as many texts drawn again and again from these.

    Efron and Tibshirani, "An Introduction to the Bootstrap" (1993), chapter 13. The draws are the same for the same
    labels (texts,) and predictions (texts,).
    """
    pairs, counts = np.unique(np.stack([labels, predictions]), axis=1, return_counts=True)
    return _percentiles([_macro_f1(pairs, drawn) for drawn in _samples(counts)])


def paired_macro_f1_interval(
    labels: NDArray[np.int64], first: NDArray[np.integer[Any]], second: NDArray[np.integer[Any]]
) -> Interval:
    """The interval of the macro-F1 of the first predictions less that of the second, all (texts,).

    As `macro_f1_interval`; each text is drawn with both predictions, so what both get wrong says nothing.
    """
    triples, counts = np.unique(np.stack([labels, first, second]), axis=1, return_counts=True)
    found = [np.unique(triples[[0, row]], axis=1, return_inverse=True) for row in (1, 2)]
    (of_first, *_), (of_second, *_) = found
    to_first, to_second = (
        sp.csr_matrix((np.ones(len(counts)), (np.arange(len(counts)), inverse.reshape(-1)))) for _, inverse in found
    )
    return _percentiles(
        [_macro_f1(of_first, drawn @ to_first) - _macro_f1(of_second, drawn @ to_second) for drawn in _samples(counts)]
    )


def _samples(counts: NDArray[np.int64]) -> Iterator[NDArray[np.int64]]:
    """How often what is there so often is drawn, where as much is drawn as there is, in parts of (samples, counts)."""
    random = np.random.default_rng(0)
    samples = min(SAMPLES, max(FEWEST_SAMPLES, MOST_DRAWS // len(counts)))
    at_once = max(1, DRAWS_AT_ONCE // len(counts))
    for start in range(0, samples, at_once):
        yield random.multinomial(counts.sum(), counts / counts.sum(), size=min(at_once, samples - start))


def _percentiles(scores: list[NDArray[np.float64]]) -> Interval:
    low, high = np.quantile(np.concatenate(scores), [0.025, 0.975])
    return float(low), float(high)


def _macro_f1(pairs: NDArray[np.int64], counts: NDArray[Any]) -> NDArray[np.float64]:
    """The macro-F1 of each sample: the mean over the classes that occur in it as label or prediction.

    Args:
        pairs: each label with each prediction that it was given, (2, pairs), in the order of the labels.
        counts: how often each is in each sample, (samples, pairs).
    """
    classes = np.unique(pairs)
    of_labels, of_predictions, right = (np.zeros((len(counts), len(classes))) for _ in range(3))
    for sums, numbers in zip((of_labels, of_predictions), pairs, strict=True):
        order = np.argsort(numbers, kind="stable")
        found, starts = np.unique(numbers[order], return_index=True)
        sums[:, np.searchsorted(classes, found)] = np.add.reduceat(counts[:, order], starts, axis=1)
    is_right = pairs[0] == pairs[1]
    right[:, np.searchsorted(classes, pairs[0, is_right])] = counts[:, is_right]
    occurrences = of_labels + of_predictions
    f1 = 2 * right / np.maximum(1, occurrences)
    scores: NDArray[np.float64] = f1.sum(axis=1) / (occurrences > 0).sum(axis=1)
    return scores


COMBINED = "combined"  # the classifier as it answers


@dataclass(frozen=True, kw_only=True)
class PartScores:
    """How well a part of a classifier answers by itself; intervals are 95%, (low, high)."""

    accuracy: float
    accuracy_interval: Interval
    macro_f1: float
    macro_f1_interval: Interval

    @property
    def score(self) -> float:
        """What parts are compared by."""
        return self.accuracy

    @property
    def score_interval(self) -> Interval:
        """That of the score."""
        return self.accuracy_interval


@dataclass(frozen=True, kw_only=True)
class Comparison:
    """What the encoder adds to the linear classifier.

    Attributes:
        combined_minus_linear: the difference of accuracy, multi-label of micro-F1.
        interval: its 95% interval, from the texts on which one of both is right.
        is_sure: whether 0 is outside of it.
    """

    combined_minus_linear: float
    interval: Interval
    is_sure: bool


def score_parts(
    combined: Logits, parts: Mapping[str, Logits], labels: NDArray[np.int64]
) -> tuple[dict[str, PartScores], Comparison | None]:
    """The scores of `combined` and of each part, and the comparison; none where there are not both parts.

    Args:
        combined: the classifier's logits, (texts, classes).
        parts: those of `linear` and `encoder`, as far as there are.
        labels: the classes, (texts,); those beyond the logits' are mistakes.
    """
    answers = {COMBINED: combined.argmax(axis=1)}
    answers |= {name: parts[name].argmax(axis=1) for name in ("linear", "encoder") if name in parts}
    scores = {name: score_answers(predictions, labels) for name, predictions in answers.items()}
    if len(parts) < 2:
        return scores, None
    is_right, is_linear_right = (answers[name] == labels for name in (COMBINED, "linear"))
    only_combined, only_linear = int((is_right & ~is_linear_right).sum()), int((is_linear_right & ~is_right).sum())
    interval = paired_interval(only_combined, only_linear, len(labels))
    return scores, Comparison(
        combined_minus_linear=(only_combined - only_linear) / len(labels),
        interval=interval,
        is_sure=interval[0] > 0 or interval[1] < 0,
    )


def score_answers(predictions: NDArray[Any], labels: NDArray[np.int64]) -> PartScores:
    """The scores of the classes (texts,) that some classifier answers."""
    from sklearn.metrics import f1_score

    right = int((predictions == labels).sum())
    return PartScores(
        accuracy=right / len(labels),
        accuracy_interval=wilson_interval(right, len(labels)),
        macro_f1=float(f1_score(labels, predictions, average="macro", zero_division=0)),
        macro_f1_interval=macro_f1_interval(labels, predictions),
    )


SAMPLES = 1000  # of the bootstrap


@dataclass(frozen=True, kw_only=True)
class MultiLabelPartScores:
    """How well a part of a classifier answers by itself, with the classifier's thresholds; the interval is 95%."""

    micro_f1: float
    micro_f1_interval: Interval
    macro_f1: float

    @property
    def score(self) -> float:
        """What parts are compared by."""
        return self.micro_f1

    @property
    def score_interval(self) -> Interval:
        """That of the score."""
        return self.micro_f1_interval


def parts_alone(
    part_logits: Mapping[str, Logits], mixture_weights: Sequence[float], shares: Sequence[float]
) -> dict[str, Logits]:
    """The logits of each part as they would be without the others.

    Args:
        part_logits: by part.
        mixture_weights: by which they are multiplied in the sum, in the same order.
        shares: of the sum: a weight divided by its share is what the part would be multiplied by alone.
    """
    return {
        name: (logits * (weight / max(share, 1e-6))).astype(np.float32)
        for (name, logits), weight, share in zip(part_logits.items(), mixture_weights, shares, strict=True)
    }


def micro_f1(logits: Logits, labels: NDArray[Any], thresholds: Sequence[float]) -> float:
    """That of the labels (texts, classes) that are as probable as their thresholds."""
    return f1_scores(answers_of(logits, thresholds, num_labels=labels.shape[1]), labels).micro


def score_multi_label_parts(
    combined: Logits, alone: Mapping[str, Logits], labels: NDArray[Any], thresholds: Sequence[float]
) -> tuple[dict[str, MultiLabelPartScores], Comparison | None]:
    """The scores of `combined` and of each part, and the comparison; none where there are not both parts.

    Args:
        combined: the classifier's logits, (texts, classes).
        alone: those of `linear` and `encoder`, as far as there are, see `parts_alone`.
        labels: 1 where a text has a label, else 0, (texts, labels), also of labels that have no logit.
        thresholds: of the classes.
    """
    logits = {COMBINED: combined} | {name: alone[name] for name in ("linear", "encoder") if name in alone}
    answers = {name: answers_of(it, thresholds, num_labels=labels.shape[1]) for name, it in logits.items()}
    scores = {name: _scores(it, labels) for name, it in answers.items()}
    if len(alone) < 2:
        return scores, None
    interval = micro_f1_interval(labels, answers[COMBINED], answers["linear"])
    comparison = Comparison(
        combined_minus_linear=scores[COMBINED].micro_f1 - scores["linear"].micro_f1,
        interval=interval,
        is_sure=interval[0] > 0 or interval[1] < 0,
    )
    return scores, comparison


def micro_f1_interval(
    labels: NDArray[Any], answers: NDArray[np.bool_], others: NDArray[np.bool_] | None = None
) -> Interval:
    """The 95% interval of micro-F1, or of how much better answers are than others, by a percentile bootstrap.

    Efron and Tibshirani, "An Introduction to the Bootstrap" (1993), chapter 13: as many texts are drawn again and again
    from these. A text counts by how many labels it has, gets and gets right, so that texts that are alike in these are
    drawn together. The draws are the same for the same labels and answers, all (texts, labels).
    """
    has_label = labels > 0
    columns = [has_label.sum(axis=1)]
    for found in (answers,) if others is None else (answers, others):
        columns += [found.sum(axis=1), (found & has_label).sum(axis=1)]
    kinds, counts = np.unique(np.stack(columns, axis=1), axis=0, return_counts=True)
    random = np.random.default_rng(0)
    at_once = max(1, DRAWS_AT_ONCE // len(counts))
    scores = []
    for start in range(0, SAMPLES, at_once):
        drawn = random.multinomial(len(labels), counts / len(labels), size=min(at_once, SAMPLES - start))
        sums = (drawn @ kinds).astype(np.float64)
        of_each = [
            2 * sums[:, column + 1] / np.maximum(1, sums[:, 0] + sums[:, column])
            for column in range(1, kinds.shape[1], 2)
        ]
        scores.append(of_each[0] if len(of_each) == 1 else of_each[0] - of_each[1])
    low, high = np.quantile(np.concatenate(scores), [0.025, 0.975])
    return float(low), float(high)


def _scores(answers: NDArray[np.bool_], labels: NDArray[Any]) -> MultiLabelPartScores:
    found = f1_scores(answers, labels)
    return MultiLabelPartScores(
        micro_f1=found.micro, micro_f1_interval=micro_f1_interval(labels, answers), macro_f1=found.macro
    )


@dataclass(frozen=True, kw_only=True)
class PairedComparison:
    """Another classifier beside the one of a report, on the same texts; intervals are 95%, (low, high).

    Attributes:
        run: the other's folder, as it was named.
        scores: of the other.
        accuracy_difference: the other's accuracy less that of the report's.
        accuracy_difference_interval: of that, from the texts on which one of both is right.
        macro_f1_difference: as of accuracy.
        macro_f1_difference_interval: by a bootstrap of the texts, each drawn with both answers.
        only_this: texts that the report's classifier alone gets right.
        only_other: texts that the other alone gets right.
        p_value: of McNemar's exact test: how likely so uneven numbers are where both are equally good.
    """

    run: str
    scores: PartScores
    accuracy_difference: float
    accuracy_difference_interval: Interval
    macro_f1_difference: float
    macro_f1_difference_interval: Interval
    only_this: int
    only_other: int
    p_value: float

    @property
    def is_sure(self) -> bool:
        """Whether a difference of 0 is outside of the interval of accuracy."""
        low, high = self.accuracy_difference_interval
        return low > 0 or high < 0

    def to_dict(self) -> dict[str, Any]:
        """As JSON values; the other's scores are at the top level."""
        values = asdict(self)
        return {"run": values.pop("run"), **values.pop("scores"), **values}


def compare_answers(
    labels: NDArray[np.int64], this: NDArray[np.int64], other: NDArray[np.int64], *, run: str
) -> PairedComparison:
    """Compare what two classifiers answer.

    McNemar, "Note on the sampling error of the difference between correlated proportions or percentages" (1947),
    https://doi.org/10.1007/BF02295996, with exact probabilities.

    Args:
        labels: the class of each text, (texts,).
        this: what the classifier of the report answers, (texts,).
        other: what the other answers, (texts,); a class that the first does not know has a number of its own.
        run: what to call the other.
    """
    from scipy.stats import binomtest

    is_right, other_is_right = this == labels, other == labels
    only_this, only_other = int((is_right & ~other_is_right).sum()), int((other_is_right & ~is_right).sum())
    scores, of_this = score_answers(other, labels), score_answers(this, labels)
    return PairedComparison(
        run=run,
        scores=scores,
        accuracy_difference=(only_other - only_this) / len(labels),
        accuracy_difference_interval=paired_interval(only_other, only_this, len(labels)),
        macro_f1_difference=scores.macro_f1 - of_this.macro_f1,
        macro_f1_difference_interval=paired_macro_f1_interval(labels, other, this),
        only_this=only_this,
        only_other=only_other,
        p_value=float(binomtest(only_other, only_this + only_other).pvalue) if only_this + only_other else 1.0,
    )


def comparison_lines(comparison: PairedComparison, *, name: str) -> Sequence[str]:
    """Which is better by accuracy, and by macro-F1, as two sentences.

    Args:
        comparison: the comparison.
        name: of the other classifier, printable.
    """
    accuracy = _sentence(name, comparison.accuracy_difference, comparison.accuracy_difference_interval, "accuracy")
    macro_f1 = _sentence(name, comparison.macro_f1_difference, comparison.macro_f1_difference_interval, "macro-F1")
    alone = f"{comparison.only_other:,} texts it alone gets right, {comparison.only_this:,} it alone gets wrong"
    p_value = f"p = {comparison.p_value:.3f}" if comparison.p_value >= 0.001 else "p < 0.001"
    return f"{accuracy} (McNemar's test: {p_value}; {alone})", macro_f1


def _sentence(name: str, difference: float, interval: Interval, of: str) -> str:
    low, high = interval
    which = "better"
    if difference < 0:
        difference, low, high, which = -difference, -high, -low, "worse"
    points = f"{100 * difference:.1f} points of {of}, 95% interval {100 * low:.1f} to {100 * high:.1f}"
    if 100 * difference < 0.05:  # as it is shown
        return f"no sure difference: {points}"
    return f"{name} is {which} by {points}" if low > 0 else f"no sure difference: {name} is {which} by {points}"


PROMISED_PRECISION, PROMISED_COVERAGE = 0.95, 0.9  # that a report looks at, the precision where it can be promised


@dataclass(frozen=True, kw_only=True)
class KeptPromises:
    """Promises of held-out texts, on other texts.

    Attributes:
        promised_precision: `PROMISED_PRECISION`, or the highest that can be promised; 0 where none can be.
        threshold: the probability from which there are answers.
        precision: how often these are right; none where there is no answer.
        answered_fraction: how many of the texts have one.
        promised_coverage: `PROMISED_COVERAGE`, or the highest that can be promised.
        coverage: how often the label of a text is in its set.
        mean_set_size: how many classes a set has.
    """

    promised_precision: float
    threshold: float | None
    precision: float | None
    answered_fraction: float
    promised_coverage: float
    coverage: float | None
    mean_set_size: float | None


def keep_promises(promises: Promises, probabilities: NDArray[np.float64], labels: NDArray[np.int64]) -> KeptPromises:
    """What becomes of promises.

    Args:
        promises: of the model.
        probabilities: (texts, classes), of other texts than those they were made on.
        labels: their classes, (texts,); those beyond the classes are mistakes.
    """
    precision = PROMISED_PRECISION
    threshold = promises.precision_threshold(precision)
    if threshold is None and promises.highest_precision < precision:
        precision = promises.highest_precision
        threshold = promises.precision_threshold(precision)
    confidence, best = probabilities.max(axis=1), probabilities.argmax(axis=1)
    is_answered = confidence >= (np.inf if threshold is None else threshold)
    coverage = min(PROMISED_COVERAGE, promises.highest_coverage)
    set_threshold = promises.coverage_threshold(coverage)
    sets = probabilities >= (np.inf if set_threshold is None else set_threshold)
    sets[np.arange(len(best)), best] = True
    is_known = labels < probabilities.shape[1]
    is_covered = np.zeros(len(labels), dtype=bool)
    is_covered[is_known] = sets[is_known, labels[is_known]]
    return KeptPromises(
        promised_precision=precision,
        threshold=threshold,
        precision=float((best == labels)[is_answered].mean()) if is_answered.any() else None,
        answered_fraction=float(is_answered.mean()),
        promised_coverage=coverage,
        coverage=None if set_threshold is None else float(is_covered.mean()),
        mean_set_size=None if set_threshold is None else float(sets.sum(axis=1).mean()),
    )


def promise_sentences(kept: KeptPromises | None) -> Iterator[str]:
    """What a person is told of them; nothing where nothing was promised."""
    if kept is None:
        return
    if not kept.promised_precision:
        yield "no precision can be promised (--min-precision): there are too few held-out texts"
        return
    option = f"--min-precision {kept.promised_precision:g}"
    got = "no text is answered" if kept.precision is None else (
        f"got {kept.precision:.3f}, answers {kept.answered_fraction:.0%}")  # fmt: skip
    is_lower = ", the highest that can be" if kept.promised_precision < PROMISED_PRECISION else ""
    yield f"{option}: promised {kept.promised_precision:g}{is_lower}, {got}"
    if kept.coverage is not None:
        yield (
            f"--coverage {kept.promised_coverage:g}: promised {kept.promised_coverage:g}, got {kept.coverage:.3f}, "
            f"{kept.mean_set_size:.1f} classes in a set"
        )
