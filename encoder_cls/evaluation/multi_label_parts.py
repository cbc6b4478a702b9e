"""The logits of a classifier's parts in; micro-F1 of each alone, and what the encoder adds to the linear one, out."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from encoder_cls.evaluation.intervals import Interval
from encoder_cls.evaluation.multi_label_metrics import answers_of, f1_scores
from encoder_cls.evaluation.parts import COMBINED, Comparison
from encoder_cls.inference.logits import Logits

SAMPLES = 1000  # of the bootstrap
DRAWS_AT_ONCE = 1 << 21


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
