"""Mix the logits of encoder and linear model on validation texts, and score the mixture."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from encoder_cls.data.dataset import Dataset
from encoder_cls.linear.calibration import fit_inverse_temperature, fit_mixture_weights
from encoder_cls.linear.thresholds import fit_thresholds
from encoder_cls.metrics.classification import (
    ClassCounts,
    Metrics,
    answers_of,
    compute_metrics,
    losses_of_texts,
    parts_alone,
)
from encoder_cls.metrics.logits import Logits, combine_logits
from encoder_cls.metrics.score import Score

# The encoder joins the linear model only where it lowers the mean loss by more standard errors than this.
STANDARD_ERRORS_TO_JOIN = 1.0


class ValidationResult(NamedTuple):
    """What a validation has found.

    Attributes:
        scores: numbers to log, by name.
        score: to compare validations.
        metrics: of the mixture; None in pretraining.
        mixture_weights: the factor of each part's logits; empty in pretraining.
        mixture_shares: the share of each part in the sum.
        thresholds: multi-label, the probability from which a text has each label.
    """

    scores: dict[str, float]
    score: Score
    metrics: Metrics | None = None
    mixture_weights: tuple[float, ...] = ()
    mixture_shares: tuple[float, ...] = ()
    thresholds: tuple[float, ...] = ()

    def row(self, *, epoch: float) -> dict[str, Any]:
        """The values to log."""
        values: dict[str, Any] = {**self.scores, "epoch": epoch}
        if self.metrics:
            for name, measured in self.metrics.per_class.items():
                if measured.f1 is not None:
                    values[f"f1/{name}"] = measured.f1
        return values


def score_mixture(
    encoder: Logits | None,
    linear: Logits | None,
    dataset: Dataset,
    *,
    monitor: str,
    expects_equal_shares: bool = False,
    is_calibrated: bool = False,
) -> ValidationResult:
    """Choose the weights of a mixture on the texts of `dataset.selection`, and score it there.

    All texts count alike, whatever the class weights in training: so the loss is that of the final report, and
    probabilities are calibrated.

    Args:
        encoder: its logits, (texts, classes), or None.
        linear: the logits of the linear model, (texts, classes), or None; one of both is given.
        dataset: whose `selection` has the labels.
        monitor: the score that decides which validation is better.
        expects_equal_shares: as in `fit_mixture_weights`.
        is_calibrated: whether the linear model was calibrated on more texts; alone, its logits then stay as they are.
    """
    labels = dataset.selection.labels
    parts = {}
    if encoder is not None:
        parts["encoder"] = encoder
    if linear is not None:
        parts["linear"] = linear
    part_logits = list(parts.values())

    # The weights under which the sum of the logits explains the labels best: they also calibrate it.
    weights: tuple[float, ...] = (1.0,)
    shares: tuple[float, ...] = (1.0,)
    if linear is None:
        weights = (fit_inverse_temperature(part_logits[0], labels),)
    elif encoder is not None or not is_calibrated:
        weights, shares = fit_mixture_weights(
            part_logits, labels, expects_equal_shares=expects_equal_shares
        )
    mixture = combine_logits(part_logits, weights).astype(np.float32)

    thresholds: tuple[float, ...] = ()
    if dataset.is_multi_label:
        thresholds = tuple(fit_thresholds(mixture, labels, dataset.selection.together).tolist())

    metrics = compute_metrics(mixture, labels, dataset.label_names, thresholds)
    scores = metrics.scalars()

    # With both parts: each one's own score, and whether the encoder surely helps, in pairs over the texts.
    is_sure = True
    if encoder is not None and linear is not None:
        scores |= _scores_of_parts(parts, dataset, weights, shares, thresholds)
        scores["linear_weight"] = shares[1]
        gains = losses_of_texts(linear, labels) - losses_of_texts(mixture, labels)
        standard_errors = gains.mean() * np.sqrt(len(gains))
        is_sure = bool(standard_errors > STANDARD_ERRORS_TO_JOIN * gains.std())

    score = Score(
        is_sure=is_sure,
        monitored=scores[monitor],
        loss=metrics.loss,
        lower_is_better=monitor == "loss",
    )
    return ValidationResult(scores, score, metrics, weights, shares, thresholds)


def _scores_of_parts(
    parts: dict[str, Logits],
    dataset: Dataset,
    weights: tuple[float, ...],
    shares: tuple[float, ...],
    thresholds: tuple[float, ...],
) -> dict[str, float]:
    """The accuracy of each part alone; multi-label, its micro-F1."""
    labels = dataset.selection.labels
    if not dataset.is_multi_label:
        return {
            f"{part}_accuracy": float((logits.argmax(axis=1) == labels).mean())
            for part, logits in parts.items()
        }

    scores = {}
    for part, logits in parts_alone(parts, weights, shares).items():
        answers = answers_of(logits, thresholds, num_labels=labels.shape[1])
        scores[f"{part}_micro_f1"] = ClassCounts.of(answers, labels).micro_f1
    return scores
