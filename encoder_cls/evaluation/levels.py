"""The scores of a classifier of codes at each of their levels, and where its mistakes begin."""

from __future__ import annotations

from collections import Counter
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from encoder_cls.classifier.guarantees import Guarantees
from encoder_cls.data.codes import Codes
from encoder_cls.evaluation.comparisons import scores_without_intervals
from encoder_cls.evaluation.measured_guarantees import PRECISION
from encoder_cls.evaluation.split_predictions import SplitPredictions
from encoder_cls.metrics.classification import top_k_accuracies
from encoder_cls.metrics.intervals import Interval, accuracy_interval

# The shares of the texts at which the curve of a level has a point.
SHARES = np.linspace(0.05, 1, 20)
# The most pairs of codes that are taken for each other.
MAX_CONFUSED = 100


@dataclass(frozen=True, kw_only=True)
class AnsweredCurve:
    """How many of the most confident predictions are right, by the share that is answered."""

    answered: list[float]
    right: list[float]


@dataclass(frozen=True, kw_only=True)
class LevelScores:
    """The scores of the most probable codes of a level, counted from 1 at the top.

    Attributes:
        num_codes: those that the classifier knows.
        top: how often the code is among the k most probable, by k.
        sure_share: the largest share of the surest texts of which `PRECISION` are right, as
            measured here.
    """

    level: int
    num_codes: int
    accuracy: float
    accuracy_interval: Interval
    macro_f1: float
    top: dict[int, float]
    sure_share: float
    curve: AnsweredCurve

    def to_dict(self) -> dict[str, Any]:
        """JSON values, with keys such as `top_3`."""
        values = asdict(self)
        top = values.pop("top")
        return values | {f"top_{k}": share for k, share in top.items()}


@dataclass(frozen=True, kw_only=True)
class PartedCodes:
    """How often a code is taken for another one below the same code."""

    level: int
    label: str
    prediction: str
    count: int


@dataclass(frozen=True, kw_only=True)
class MeasuredBackOff:
    """A guaranteed precision of answers with back-off, and the measured precision.

    Attributes:
        guaranteed_precision: 0 if there is none.
        precision: of the answers; None without any.
        answered_fractions: at each level, from the top.
    """

    guaranteed_precision: float
    precision: float | None
    answered_fractions: list[float]

    def sentence(self) -> str:
        """About `predict --back-off`."""
        if not self.guaranteed_precision:
            return "no precision can be guaranteed with --back-off: too few held-out texts"

        option = f"--min-precision {self.guaranteed_precision:g} --back-off"
        if self.precision is None:
            return f"{option}: keeps no answer"
        shares = []
        for level, share in enumerate(self.answered_fractions, start=1):
            shares.append(f"{share:.0%} at level {level}")
        return (
            f"{option}: guaranteed {self.guaranteed_precision:g}, got {self.precision:.3f}, "
            f"answers {sum(self.answered_fractions):.0%} of the texts, {', '.join(shares)}"
        )


@dataclass(frozen=True, kw_only=True)
class LevelsEvaluation:
    """The scores of all levels.

    Hierarchical scores count the codes of paths, so that a mistake counts less, the deeper it
    begins: Kiritchenko et al., "Learning and Evaluation in the Presence of Class Hierarchies"
    (2006), https://doi.org/10.1007/11766247_34.

    Attributes:
        parted: where mistakes part from labels, the most frequent first.
        back_off: None without guarantees, or if they were fitted to these texts.
    """

    levels: list[LevelScores]
    hierarchical_precision: float
    hierarchical_recall: float
    hierarchical_f1: float
    parted: list[PartedCodes]
    back_off: MeasuredBackOff | None

    def to_dict(self) -> dict[str, Any]:
        """JSON values."""
        values = asdict(self)
        values["levels"] = [scores.to_dict() for scores in self.levels]
        return values


def evaluate_levels(
    codes: Codes, predictions: SplitPredictions, guarantees: Guarantees | None
) -> LevelsEvaluation:
    """Score single-label predictions at each level of codes.

    Unseen labels have levels, too: above them, a prediction may be right. Guarantees must not be
    fitted to these texts.
    """
    codes = codes.of_classes(predictions.label_names)
    scores = []
    confidence = []
    is_right = []
    for number, level in enumerate(codes.levels, start=1):
        probabilities = level.probabilities(predictions.probabilities)
        labels = level.labels(predictions.labels)
        predicted = probabilities.argmax(axis=1)
        confidence.append(probabilities.max(axis=1))
        is_right.append(predicted == labels)

        num_codes = probabilities.shape[1]
        top = top_k_accuracies(probabilities, labels)
        values = scores_without_intervals(predicted, labels)
        scores.append(
            LevelScores(
                level=number,
                num_codes=num_codes,
                accuracy=values["accuracy"],
                accuracy_interval=accuracy_interval(is_right[-1], predictions.groups),
                macro_f1=values["macro_f1"],
                top={k: share for k, share in top.items() if k < num_codes},
                sure_share=_sure_share(confidence[-1], is_right[-1]),
                curve=_curve(confidence[-1], is_right[-1]),
            )
        )

    precision, recall, f1 = _hierarchical_scores(codes, predictions)
    return LevelsEvaluation(
        levels=scores,
        hierarchical_precision=precision,
        hierarchical_recall=recall,
        hierarchical_f1=f1,
        parted=_parted(codes, predictions),
        back_off=_measure_back_off(guarantees, np.array(confidence), np.array(is_right)),
    )


def _right_of_surest(
    confidence: NDArray[np.float64], is_right: NDArray[np.bool_]
) -> NDArray[np.float64]:
    """The share that is right of the surest text, of the two surest, and so on."""
    order = np.argsort(-confidence, kind="stable")
    return np.asarray(np.cumsum(is_right[order]) / np.arange(1, len(order) + 1))


def _sure_share(confidence: NDArray[np.float64], is_right: NDArray[np.bool_]) -> float:
    numbers = np.flatnonzero(_right_of_surest(confidence, is_right) >= PRECISION)
    return float((numbers[-1] + 1) / len(confidence)) if len(numbers) else 0.0


def _curve(confidence: NDArray[np.float64], is_right: NDArray[np.bool_]) -> AnsweredCurve:
    right = _right_of_surest(confidence, is_right)
    last = np.maximum(1, np.round(SHARES * len(right)).astype(int)) - 1
    return AnsweredCurve(answered=SHARES.round(2).tolist(), right=right[last].tolist())


def _hierarchical_scores(codes: Codes, predictions: SplitPredictions) -> tuple[float, float, float]:
    labels = predictions.labels
    predicted = predictions.predicted_labels
    depth_of_both = np.minimum(codes.depths[labels], codes.depths[predicted])
    num_common = np.zeros(len(labels), dtype=np.int64)
    for number, level in enumerate(codes.levels):
        is_equal = level.numbers[labels] == level.numbers[predicted]
        num_common += is_equal & (number < depth_of_both)

    precision = float(num_common.sum() / codes.depths[predicted].sum())
    recall = float(num_common.sum() / codes.depths[labels].sum())
    if not precision + recall:
        return 0.0, 0.0, 0.0
    return precision, recall, 2 * precision * recall / (precision + recall)


def _parted(codes: Codes, predictions: SplitPredictions) -> list[PartedCodes]:
    counts: Counter[tuple[int, str, str]] = Counter()
    for row in predictions.mistakes.tolist():
        label = predictions.labels[row]
        predicted = predictions.predicted_labels[row]
        for number, level in enumerate(codes.levels, start=1):
            if level.numbers[label] != level.numbers[predicted]:
                of_label = level.codes[level.numbers[label]]
                of_predicted = level.codes[level.numbers[predicted]]
                counts[number, of_label, of_predicted] += 1
                break
    parted = []
    for (number, of_label, of_predicted), count in counts.most_common(MAX_CONFUSED):
        parted.append(
            PartedCodes(level=number, label=of_label, prediction=of_predicted, count=count)
        )
    return parted


def _measure_back_off(
    guarantees: Guarantees | None,
    confidence: NDArray[np.float64],
    is_right: NDArray[np.bool_],
) -> MeasuredBackOff | None:
    if guarantees is None or guarantees.back_off is None:
        return None
    guaranteed = min(PRECISION, guarantees.back_off.highest_precision)
    threshold = guarantees.back_off.precision_threshold(guaranteed)
    if threshold is None or not guaranteed:
        return MeasuredBackOff(guaranteed_precision=0.0, precision=None, answered_fractions=[])

    num_levels, num_texts = confidence.shape
    depth = (confidence >= threshold).sum(axis=0)
    answered = np.bincount(depth, minlength=num_levels + 1)[1:]
    precision = None
    if answered.sum():
        rows = np.flatnonzero(depth)
        precision = float(is_right[depth[rows] - 1, rows].mean())
    return MeasuredBackOff(
        guaranteed_precision=guaranteed,
        precision=precision,
        answered_fractions=(answered / num_texts).tolist(),
    )
