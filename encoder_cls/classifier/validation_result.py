"""Score the validation texts during training, with the best mixture of the logits of both parts."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from numpy.typing import NDArray

from encoder_cls.classifier.mixture import Mixture
from encoder_cls.classifier.mixture_weights import fit_mixture_weights
from encoder_cls.classifier.thresholds import fit_thresholds
from encoder_cls.data.dataset import Dataset
from encoder_cls.linear_training.calibration import fit_inverse_temperature, independent_weights
from encoder_cls.metrics.classification import Metrics, compute_metrics, predicted_labels
from encoder_cls.metrics.log_loss import surely_lowers_the_loss
from encoder_cls.metrics.logits import Logits
from encoder_cls.metrics.precision_recall import ClassCounts
from encoder_cls.metrics.row_groups import RowGroups
from encoder_cls.metrics.scores import SCORES
from encoder_cls.metrics.validation_score import ValidationScore

# The encoder surely helps if it lowers the mean loss by more than this number of standard errors.
STANDARD_ERRORS_TO_JOIN = 1.0


@dataclass(frozen=True, kw_only=True)
class ValidationResult:
    """The result of a validation.

    Attributes:
        metrics: of the mixture; None in pretraining.
        thresholds: of labels; empty in a single-label task.
    """

    scores: dict[str, float]
    score: ValidationScore
    metrics: Metrics | None = None
    mixture: Mixture = field(default_factory=Mixture)
    thresholds: tuple[float, ...] = ()

    def row(self, *, epoch: float) -> dict[str, Any]:
        """The row of this validation in the log of the training."""
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
    """Fit the weights of the mixture to validation texts with known labels, and score it there.

    All texts count equally, so that the loss is comparable with that of the final report, and
    probabilities are calibrated.

    Args:
        encoder: the logits of `known_validation`, (texts, classes), as are those of `linear`; None
            without such a part.
        expects_equal_shares: of both parts, as of a student and its teacher
            (`fit_mixture_weights`).
        is_calibrated: whether the linear model is calibrated on more than the validation texts;
            without an encoder, its logits then stay as they are.
    """
    labels = dataset.known_validation.labels
    groups = RowGroups(dataset.known_validation.split_groups)
    part_logits = {}
    if encoder is not None:
        part_logits["encoder"] = encoder
    if linear is not None:
        part_logits["linear"] = linear

    mixture = _fit_mixture(
        part_logits,
        labels,
        groups,
        expects_equal_shares=expects_equal_shares,
        is_calibrated=is_calibrated,
    )
    logits = mixture.combined(part_logits)

    thresholds: tuple[float, ...] = ()
    if dataset.is_multi_label:
        thresholds = tuple(fit_thresholds(logits, labels, groups).tolist())

    metrics = compute_metrics(logits, labels, dataset.label_names, thresholds)
    scores = metrics.scalars()

    # With both parts, also log the score of each part, and find out whether the encoder helps.
    is_sure = True
    if encoder is not None and linear is not None:
        assert mixture.shares
        scores |= _scores_of_parts(part_logits, dataset, mixture, thresholds)
        scores["linear_weight"] = mixture.shares["linear"]
        is_sure = surely_lowers_the_loss(
            linear, logits, labels, groups, standard_errors=STANDARD_ERRORS_TO_JOIN
        )

    score = ValidationScore(
        is_sure=is_sure,
        monitored=scores[monitor],
        loss=metrics.loss,
        lower_is_better=not SCORES[monitor].higher_is_better,
    )
    return ValidationResult(
        scores=scores, score=score, metrics=metrics, mixture=mixture, thresholds=thresholds
    )


def _fit_mixture(
    part_logits: dict[str, Logits],
    labels: NDArray[Any],
    groups: RowGroups,
    *,
    expects_equal_shares: bool,
    is_calibrated: bool,
) -> Mixture:
    parts = tuple(part_logits)

    if parts == ("encoder",):
        weights_of_texts = independent_weights(part_logits["encoder"], labels, groups)
        weight = fit_inverse_temperature(part_logits["encoder"], labels, weights_of_texts)
        return Mixture(weights={"encoder": weight}, shares={"encoder": 1.0})

    if parts == ("linear",) and is_calibrated:
        return Mixture(weights={"linear": 1.0}, shares={"linear": 1.0})

    weights, shares = fit_mixture_weights(
        list(part_logits.values()), labels, groups, expects_equal_shares=expects_equal_shares
    )
    return Mixture(
        weights=dict(zip(parts, weights, strict=True)),
        shares=dict(zip(parts, shares, strict=True)),
    )


def _scores_of_parts(
    part_logits: dict[str, Logits],
    dataset: Dataset,
    mixture: Mixture,
    thresholds: tuple[float, ...],
) -> dict[str, float]:
    labels = dataset.known_validation.labels
    scores = {}

    if not dataset.is_multi_label:
        for part, logits in part_logits.items():
            scores[f"{part}_accuracy"] = float((logits.argmax(axis=1) == labels).mean())
        return scores

    # Thresholds apply to calibrated probabilities, so calibrate the logits of each part alone.
    for part, logits in mixture.parts_alone(part_logits).items():
        predictions = predicted_labels(logits, thresholds, num_labels=labels.shape[1])
        scores[f"{part}_micro_f1"] = ClassCounts.of(predictions, labels).micro_f1
    return scores
