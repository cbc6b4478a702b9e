"""The report of an evaluation, and its JSON."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from encoder_cls.evaluation.answers import Mistake
from encoder_cls.evaluation.comparisons import BaseAnswers, PairedComparison
from encoder_cls.evaluation.guarantees import MeasuredGuarantees
from encoder_cls.evaluation.metrics import Metrics
from encoder_cls.evaluation.scores import COMBINED, Comparison, PartScores
from encoder_cls.inference.task import MULTI_LABEL, Task

WANTED_ACCURACY = 0.95  # of the answers above the suggested threshold
FEWEST_ANSWERS, FEWEST_ANSWERED = 20, 0.05  # above it, and the fraction of all texts that these are


@dataclass(frozen=True, kw_only=True)
class Threshold:
    """A threshold above which answers are right `WANTED_ACCURACY` of the time.

    Attributes:
        value: the lowest such probability; 0 where all answers together are; None where too few are.
        answered_fraction: the fraction of the texts that are answered with it.
    """

    value: float | None
    answered_fraction: float


@dataclass(frozen=True, kw_only=True)
class Report:
    """All that an evaluation measured, of either task; sections that do not apply are None.

    Attributes:
        split: `test`, `validation` or a file.
        label_names: the classes, then the labels that never occur in the training data.
        parts: the scores of the classifier, `combined`, and of its parts `linear` and `encoder` alone.
        comparison: the encoder's contribution; None without both parts.
        mixture_shares: the share of each part in the sum of the logits, see `Classifier`.
        linear_reference: the scores of the TF-IDF baseline as in JSON; None where its training texts are gone.
        threshold: suggested, where a text has one label.
        truncated_fraction: the fraction of the texts that are longer than the encoder, else the linear part, reads.
        unknown_fraction: the fraction of the tokens that training never showed.
        doubtful_labels: the indices of the texts whose labels seem to be wrong.
        num_refitted: how many texts held out for validation the linear classifier has learned from in the end.
        class_weights_note: that class weights would help, where they would.
        guarantees: None of a model that gives none, and of the texts that they were measured on.
        against: another classifier on the same texts, where that was asked for.
        base_answers: changes since the base run.
    """

    split: str
    task: Task
    label_names: tuple[str, ...]
    metrics: Metrics
    parts: Mapping[str, PartScores]
    comparison: Comparison | None
    mixture_shares: Mapping[str, float] | None
    linear_reference: Mapping[str, Any] | None
    worst_errors: list[Mistake]
    truncated_fraction: float
    unknown_fraction: float
    doubtful_labels: tuple[int, ...]
    threshold: Threshold | None = None
    num_refitted: int = 0
    class_weights_note: str = ""
    guarantees: MeasuredGuarantees | None = None
    against: PairedComparison | None = None
    base_answers: BaseAnswers | None = None

    @property
    def scores(self) -> PartScores:
        """The scores of the classifier as it answers."""
        return self.parts[COMBINED]

    def to_dict(self) -> dict[str, Any]:
        """JSON values; the metrics are at the top level."""
        intervals = {key: it for key, it in self.scores.to_dict().items() if key.endswith("_interval")}
        return {
            "split": self.split,
            **({"task": self.task.name} if self.task is MULTI_LABEL else {}),
            **asdict(self.metrics),
            **intervals,
            "parts": {name: scores.to_dict() for name, scores in self.parts.items()},
            "comparison": asdict(self.comparison) if self.comparison else None,
            "mixture_shares": self.mixture_shares,
            "linear_reference": self.linear_reference,
            "suggested_threshold": self.threshold and self.threshold.value,
            "answered_fraction": self.threshold and self.threshold.answered_fraction,
            "label_names": list(self.label_names),
            "num_refitted": self.num_refitted,
            "truncated_fraction": self.truncated_fraction,
            "unknown_fraction": self.unknown_fraction,
            "doubtful_labels": len(self.doubtful_labels),
            "promises": asdict(self.guarantees) if self.guarantees else None,
            "worst_errors": [error.to_dict() for error in self.worst_errors],
            "class_weights_note": self.class_weights_note,
            **({"against": self.against.to_dict()} if self.against else {}),
            **({"former": self.base_answers.to_dict()} if self.base_answers else {}),
        }


def suggest_threshold(confidence: NDArray[np.float64], correct: NDArray[np.bool_]) -> Threshold:
    """Find the lowest probability, in thousandths, from which `WANTED_ACCURACY` of the answers are right.

    Not more exactly, since it is shown: a number rounded afterwards would hold by chance only. None where fewer than
    `FEWEST_ANSWERS`, or fewer than `FEWEST_ANSWERED` of all texts, would be answered.
    """
    steps = np.arange(1000) / 1000
    num_answered, num_right = (
        len(part) - np.searchsorted(np.sort(part), steps) for part in (confidence, confidence[correct])
    )
    are_right = num_right / np.maximum(1, num_answered) >= WANTED_ACCURACY
    fitting = np.flatnonzero(are_right & (num_answered >= max(FEWEST_ANSWERS, FEWEST_ANSWERED * len(correct))))
    value = float(steps[fitting[0]]) if len(fitting) else None
    return Threshold(value=value, answered_fraction=float((confidence >= (value or 0)).mean()))
