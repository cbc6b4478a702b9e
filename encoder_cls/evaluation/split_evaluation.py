"""Score a classifier on the labelled texts of a split."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from numpy.typing import NDArray

from encoder_cls.classifier.classifier import Classifier
from encoder_cls.data.dataset import Split
from encoder_cls.evaluation.comparisons import COMBINED, Comparison, Scores, score_parts
from encoder_cls.evaluation.doubtful_labels import doubtful_rows
from encoder_cls.evaluation.held_out_predictions import ValidationPredictions
from encoder_cls.evaluation.measured_guarantees import MeasuredGuarantees, measure_guarantees
from encoder_cls.evaluation.mistakes import Mistake, worst_mistakes
from encoder_cls.evaluation.split_predictions import SplitPredictions
from encoder_cls.evaluation.suggested_threshold import SuggestedThreshold, suggest_threshold
from encoder_cls.metrics.classification import Metrics, compute_metrics, parts_alone
from encoder_cls.metrics.logits import Logits


@dataclass(frozen=True, kw_only=True)
class SplitEvaluation:
    """What the predictions of a classifier for a split show of it.

    Attributes:
        predictions: the predictions, with their texts.
        metrics: the scores of the predictions.
        parts: the scores of the classifier, `combined`, and of its parts `linear` and `encoder`
            alone.
        comparison: what the encoder adds; None without both parts.
        mixture_shares: the share of each part in the sum of the logits; None where it is unknown.
        cascade: the `gate`, and the `skipped_fraction` of the texts that skip the encoder; None
            without a gate.
        threshold: the suggested threshold; None in a multi-label task, which has its own.
        guarantees: None on the texts that they come from, and where the classifier has none.
        worst_mistakes: the most confident mistakes.
        doubtful_labels: the indices of the texts whose labels seem to be wrong.
        truncated_fraction: the fraction of texts longer than the encoder, else the linear part,
            reads.
        unknown_fraction: the fraction of tokens that never occur in training.
    """

    predictions: SplitPredictions = field(repr=False, compare=False)
    metrics: Metrics
    parts: Mapping[str, Scores]
    comparison: Comparison | None
    mixture_shares: Mapping[str, float] | None
    cascade: Mapping[str, float] | None
    threshold: SuggestedThreshold | None
    guarantees: MeasuredGuarantees | None
    worst_mistakes: list[Mistake]
    doubtful_labels: tuple[int, ...]
    truncated_fraction: float
    unknown_fraction: float

    @property
    def split_name(self) -> str:
        """`test`, `validation` or a file."""
        return self.predictions.name

    @property
    def label_names(self) -> tuple[str, ...]:
        """The classes, then the labels that never occur in the training data."""
        return self.predictions.label_names

    @property
    def is_multi_label(self) -> bool:
        """Whether a text may have any number of labels."""
        return self.predictions.split.is_multi_label

    @property
    def scores(self) -> Scores:
        """The scores of both parts together."""
        return self.parts[COMBINED]


def evaluate_split(
    classifier: Classifier,
    split: Split,
    *,
    name: str,
    batch_tokens: int | None = None,
    own: ValidationPredictions | None = None,
) -> SplitEvaluation:
    """Score a classifier on a split.

    Args:
        classifier: predicts the texts.
        split: its labels are indices into the class names, then into its unseen names.
        name: `test`, `validation` or a file.
        batch_tokens: the most tokens in a batch.
        own: the earlier predictions of the classifier's run for its own validation texts.
    """
    tokenized = classifier.tokenize(split.texts)
    part_logits = classifier.part_logits(tokenized, batch_tokens=batch_tokens)
    if own:
        part_logits = own.in_place_of(part_logits, split)

    predictions = SplitPredictions(
        name=name,
        split=split,
        logits=classifier.combined(part_logits),
        label_names=(*classifier.label_names, *split.unseen_names),
        thresholds=tuple(classifier.thresholds),
    )
    metrics = compute_metrics(
        predictions.logits, predictions.labels, predictions.label_names, predictions.thresholds
    )

    # Each part alone, and what the encoder adds.
    labels_by_part = _predicted_labels_of_parts(classifier, predictions, part_logits)
    parts, comparison = score_parts(labels_by_part, predictions.labels)

    doubtful = doubtful_rows(predictions.probabilities, split.labels)
    return SplitEvaluation(
        predictions=predictions,
        metrics=metrics,
        parts=parts,
        comparison=comparison,
        mixture_shares=classifier.mixture.shares,
        cascade=_cascade(classifier, part_logits),
        threshold=_threshold(predictions),
        guarantees=_guarantees(classifier, predictions),
        worst_mistakes=worst_mistakes(classifier, predictions, tokenized, frozenset(doubtful)),
        doubtful_labels=doubtful,
        truncated_fraction=float(classifier.truncated(tokenized).mean()),
        unknown_fraction=tokenized.unknown_fraction,
    )


def _predicted_labels_of_parts(
    classifier: Classifier, predictions: SplitPredictions, part_logits: Mapping[str, Logits]
) -> dict[str, NDArray[Any]]:
    """What the classifier predicts, `combined`, and what each of its parts predicts alone."""
    if predictions.thresholds:
        # Thresholds are those of calibrated logits; without shares, parts are calibrated as one.
        shares = classifier.mixture.shares or dict.fromkeys(part_logits, 1.0)
        ordered_shares = [shares[part] for part in part_logits]
        weights = classifier.mixture.weights_of(part_logits)
        part_logits = parts_alone(part_logits, weights, ordered_shares)

    labels_by_part = {COMBINED: predictions.predicted_labels}
    for part in ("linear", "encoder"):
        if part in part_logits:
            labels_by_part[part] = predictions.labels_from(part_logits[part])
    return labels_by_part


def _cascade(classifier: Classifier, part_logits: Mapping[str, Logits]) -> dict[str, float] | None:
    """The gate, and the fraction of the texts that skip the encoder; None without a gate."""
    if classifier.gate is None:
        return None
    skips_encoder = classifier.skip_encoder(part_logits["linear"])
    return {"gate": classifier.gate, "skipped_fraction": float(skips_encoder.mean())}


def _threshold(predictions: SplitPredictions) -> SuggestedThreshold | None:
    """A threshold for single-label predictions; None in a multi-label task."""
    if predictions.thresholds:
        return None
    confidence = predictions.probabilities.max(axis=1)
    is_right = predictions.predicted_labels == predictions.labels
    return suggest_threshold(confidence, is_right)


def _guarantees(classifier: Classifier, predictions: SplitPredictions) -> MeasuredGuarantees | None:
    """The classifier's guarantees, measured on these texts.

    They come from the validation texts, which cannot confirm them. A multi-label task has none.
    """
    if classifier.guarantees is None or predictions.name == "validation":
        return None
    if predictions.thresholds:
        return None
    return measure_guarantees(
        classifier.guarantees, predictions.probabilities, predictions.split.labels
    )
