"""Validation of a model: the weights of its parts, its scores, and early stopping."""

from __future__ import annotations

from dataclasses import replace
from typing import Any, NamedTuple

import numpy as np

from encoder_cls.data.dataset import Dataset
from encoder_cls.linear.calibration import (
    fit_inverse_temperature,
    fit_mixture_weights,
    fit_thresholds,
)
from encoder_cls.metrics.classification import (
    ClassCounts,
    Metrics,
    answers_of,
    compute_metrics,
    losses_of_texts,
    parts_alone,
)
from encoder_cls.metrics.logits import Logits, combine_logits
from encoder_cls.training.checkpoint import TrainingState

SURE = 1.0  # standard errors by which the encoder must lower the loss of the linear classifier


class ValidationResult(NamedTuple):
    """The scores of a validation, and its selection key: the greatest is the best.

    The key starts with 1, or with 0 where an encoder is not surely better than the linear classifier alone. A
    validation of classification also has the metrics, the mixture weights of the classifier's parts, the share of each
    part in the sum, and multi-label thresholds.
    """

    scores: dict[str, float]
    selection_key: tuple[float, float, float]
    metrics: Metrics | None = None
    mixture_weights: tuple[float, ...] = ()
    mixture_shares: tuple[float, ...] = ()
    thresholds: tuple[float, ...] = ()

    def row(self, *, epoch: float, is_drawn: bool) -> dict[str, Any]:
        """The row to log, with or without the data of plots."""
        values: dict[str, Any] = {**self.scores, "epoch": epoch}
        if self.metrics:
            values |= {
                f"f1/{name}": it.f1
                for name, it in self.metrics.per_class.items()
                if it.f1 is not None
            }
            values |= self.metrics.drawable() if is_drawn else {}
        return values


def judge(
    encoder: Logits | None,
    linear: Logits | None,
    dataset: Dataset,
    *,
    monitor: str,
    expects_equal_shares: bool = False,
    is_calibrated: bool = False,
) -> ValidationResult:
    """Score the weighted sum of the logits, (texts, classes), of an encoder and of a linear classifier.

    The texts are those of `dataset.selection`. All count alike, whatever the class weights in training: so the loss is
    that of the final report, and probabilities are calibrated. `expects_equal_shares` is as in
    `fit_mixture_weights`. The logits of a linear classifier alone that `is_calibrated` on more texts stay as they are.
    """
    labels, names = dataset.selection.labels, dataset.label_names
    parts = {name: it for name, it in (("encoder", encoder), ("linear", linear)) if it is not None}
    all_logits = list(parts.values())
    mixture_weights: tuple[float, ...] = (1.0,)
    shares: tuple[float, ...] = (1.0,)
    if linear is None:
        mixture_weights = (fit_inverse_temperature(all_logits[0], labels),)
    elif encoder is not None or not is_calibrated:
        mixture_weights, shares = fit_mixture_weights(
            all_logits, labels, expects_equal_shares=expects_equal_shares
        )
    joint = combine_logits(all_logits, mixture_weights).astype(np.float32)
    thresholds: tuple[float, ...] = ()
    if dataset.is_multi_label:
        thresholds = tuple(fit_thresholds(joint, labels, dataset.selection.together).tolist())
        alone = parts_alone(parts, mixture_weights, shares)
        answers = {
            part: answers_of(it, thresholds, num_labels=labels.shape[1])
            for part, it in alone.items()
        }
        of_parts = {
            f"{part}_micro_f1": ClassCounts.of(it, labels).micro_f1 for part, it in answers.items()
        }
    else:
        of_parts = {
            f"{part}_accuracy": float((it.argmax(axis=1) == labels).mean())
            for part, it in parts.items()
        }
    metrics = compute_metrics(joint, labels, names, thresholds)
    scores = metrics.scalars()
    is_sure = True
    if encoder is not None and linear is not None:
        scores |= {**of_parts, "linear_weight": shares[1]}
        without, with_encoder = (losses_of_texts(it, labels) for it in (linear, joint))
        gains = without - with_encoder
        is_sure = bool(gains.mean() * np.sqrt(len(gains)) > SURE * gains.std())
    monitored = scores[monitor] * (-1 if monitor == "loss" else 1)
    # On small splits many validations have equal accuracy: the loss then decides.
    key = (float(is_sure), monitored, -metrics.loss)
    return ValidationResult(scores, key, metrics, mixture_weights, shares, thresholds)


def after_validation(
    state: TrainingState, key: tuple[float, float, float], *, is_warming_up: bool
) -> TrainingState:
    """Count a validation: one that is not the stage's best so far is stale, unless the learning rate still rises."""
    if state.best_score is None or key > state.best_score:
        return replace(
            state,
            validated_step=state.step,
            best_score=key,
            best_step=state.step,
            stale_validations=0,
        )
    stale_validations = 0 if is_warming_up else state.stale_validations + 1
    return replace(state, validated_step=state.step, stale_validations=stale_validations)
