"""The report of an evaluation: a classifier scored on the labelled texts of a split."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from encoder_cls.classifier.classifier import Classifier
from encoder_cls.classifier.explain import explain
from encoder_cls.classifier.guarantees import counts_from
from encoder_cls.data.dataset import Split
from encoder_cls.evaluation.comparisons import (
    COMBINED,
    BasePredictions,
    Comparison,
    PairedComparison,
    Scores,
    score_parts,
)
from encoder_cls.evaluation.doubtful_labels import doubtful_rows
from encoder_cls.evaluation.held_out_predictions import OwnPredictions
from encoder_cls.evaluation.measured_guarantees import MeasuredGuarantees, measure_guarantees
from encoder_cls.evaluation.mistakes import Mistake, PredictedSplit
from encoder_cls.metrics.classification import Metrics, compute_metrics, parts_alone
from encoder_cls.metrics.logits import MULTI_LABEL, Logits
from encoder_cls.text.tokens import TokenizedTexts


@dataclass(frozen=True, kw_only=True)
class Report:
    """The results of an evaluation, single-label or multi-label; what does not apply is None.

    Attributes:
        answered: the answers that the report is made from, with their texts.
        metrics: the scores of the answers.
        parts: the scores of the classifier, `combined`, and of its parts `linear` and `encoder`
            alone.
        comparison: what the encoder adds.
        mixture_shares: the share of each part in the sum of the logits.
        worst_errors: the most confident mistakes.
        truncated_fraction: the fraction of texts longer than the encoder, else the linear part,
            reads.
        unknown_fraction: the fraction of tokens that never occur in training.
        doubtful_labels: the indices of the texts whose labels seem to be wrong.
        cascade: the `gate`, and the `skipped_fraction` of the texts that skip the encoder.
        suggested_threshold: the probability from which enough answers are right.
        answered_fraction: the fraction of texts answered above the suggested threshold.
        guarantees: None on the texts that they come from.
        linear_reference: the scores of the TF-IDF baseline.
        num_refitted: the number of texts held out for validation that the final linear model
            has learned from.
        class_weights_note: a sentence if class weights would help.
        against: the comparison with another classifier.
        base_answers: the comparison with the base run.
    """

    predicted: PredictedSplit = field(repr=False, compare=False)
    metrics: Metrics
    parts: Mapping[str, Scores]
    comparison: Comparison | None
    mixture_shares: Mapping[str, float] | None
    worst_errors: list[Mistake]
    truncated_fraction: float
    unknown_fraction: float
    doubtful_labels: tuple[int, ...]
    cascade: Mapping[str, float] | None = None
    suggested_threshold: float | None = None
    answered_fraction: float | None = None
    guarantees: MeasuredGuarantees | None = None
    linear_reference: Mapping[str, Any] | None = None
    num_refitted: int = 0
    class_weights_note: str = ""
    against: PairedComparison | None = None
    base_predictions: BasePredictions | None = None

    @property
    def split(self) -> str:
        """`test`, `validation` or a file."""
        return self.predicted.name

    @property
    def label_names(self) -> tuple[str, ...]:
        """The classes, then the labels that never occur in the training data."""
        return self.predicted.label_names

    @property
    def is_multi_label(self) -> bool:
        """Whether a text may have any number of labels."""
        return self.predicted.split.is_multi_label

    @property
    def scores(self) -> Scores:
        """The scores of the classifier as it answers."""
        return self.parts[COMBINED]

    def _repr_html_(self) -> str:
        """The report in a notebook: as in a terminal, with the tables folded."""
        from encoder_cls.evaluation.report_page import render_notebook_report

        return render_notebook_report(self)

    def to_dict(self) -> dict[str, Any]:
        """JSON values; the metrics are at the top level."""
        values: dict[str, Any] = {"split": self.split}
        if self.is_multi_label:
            values["task"] = MULTI_LABEL.name

        values.update(asdict(self.metrics))
        for key, score in self.scores.items():
            if key.endswith("_interval"):
                values[key] = score

        values["parts"] = self.parts
        values["comparison"] = _as_dict(self.comparison)
        values["mixture_shares"] = self.mixture_shares
        values["cascade"] = self.cascade
        values["linear_reference"] = self.linear_reference
        values["suggested_threshold"] = self.suggested_threshold
        values["answered_fraction"] = self.answered_fraction
        values["label_names"] = list(self.label_names)
        values["num_refitted"] = self.num_refitted
        values["truncated_fraction"] = self.truncated_fraction
        values["unknown_fraction"] = self.unknown_fraction
        values["doubtful_labels"] = len(self.doubtful_labels)
        values["guarantees"] = _as_dict(self.guarantees)
        values["worst_errors"] = [mistake.to_dict() for mistake in self.worst_errors]
        values["class_weights_note"] = self.class_weights_note

        if self.against:
            values["against"] = self.against.to_dict()
        if self.base_predictions:
            values["former"] = self.base_predictions.to_dict()
        return values


def _as_dict(value: Comparison | MeasuredGuarantees | None) -> dict[str, Any] | None:
    if value is None:
        return None
    return asdict(value)


def evaluate(
    classifier: Classifier,
    split: Split,
    *,
    name: str,
    batch_tokens: int | None = None,
    own: OwnPredictions | None = None,
) -> Report:
    """Score a classifier on a split.

    The labels of the split are indices into the class names, then into its unseen names. `name` is
    `test`, `validation` or a file. `own` are the earlier answers of the classifier's run to its own
    validation texts.
    """
    tokenized = classifier.tokenize(split.texts)
    part_logits = classifier.part_logits(tokenized, batch_tokens=batch_tokens)
    if own:
        part_logits = own.in_place_of(part_logits, split)
    predicted = PredictedSplit(
        name=name,
        split=split,
        logits=classifier.combined(part_logits),
        label_names=(*classifier.label_names, *split.unseen_names),
        thresholds=tuple(classifier.thresholds),
    )
    metrics = compute_metrics(
        predicted.logits, predicted.labels, predicted.label_names, predicted.thresholds
    )

    # Each part alone, and what the encoder adds.
    predictions = _predictions_of_parts(classifier, predicted, part_logits)
    parts, comparison = score_parts(predictions, predicted.labels)

    # How far single-label answers can be trusted.
    threshold = None
    answered_fraction = None
    guarantees = None
    if not predicted.thresholds:
        confidence = predicted.probabilities.max(axis=1)
        is_right = predicted.predictions == predicted.labels
        threshold, answered_fraction = suggest_threshold(confidence, is_right)

        # Guarantees come from the validation texts, which cannot confirm them.
        if classifier.guarantees and name != "validation":
            guarantees = measure_guarantees(
                classifier.guarantees, predicted.probabilities, split.labels
            )

    doubtful = doubtful_rows(predicted.probabilities, split.labels)
    return Report(
        predicted=predicted,
        metrics=metrics,
        parts=parts,
        comparison=comparison,
        mixture_shares=classifier.mixture.shares,
        worst_errors=_worst_mistakes(classifier, predicted, tokenized, frozenset(doubtful)),
        truncated_fraction=float(classifier.truncated(tokenized).mean()),
        unknown_fraction=tokenized.unknown_fraction,
        doubtful_labels=doubtful,
        cascade=_cascade(classifier, part_logits),
        suggested_threshold=threshold,
        answered_fraction=answered_fraction,
        guarantees=guarantees,
    )


def _predictions_of_parts(
    classifier: Classifier, predicted: PredictedSplit, part_logits: Mapping[str, Logits]
) -> dict[str, NDArray[Any]]:
    """The answers of the classifier, `combined`, and those of each of its parts alone."""
    if predicted.thresholds:
        # Thresholds are those of calibrated logits; without shares, parts are calibrated as one.
        shares = classifier.mixture.shares or dict.fromkeys(part_logits, 1.0)
        ordered_shares = [shares[part] for part in part_logits]
        weights = classifier.mixture.weights_of(part_logits)
        part_logits = parts_alone(part_logits, weights, ordered_shares)

    predictions = {COMBINED: predicted.predictions}
    for part in ("linear", "encoder"):
        if part in part_logits:
            predictions[part] = predicted.predicted_labels(part_logits[part])
    return predictions


def _cascade(classifier: Classifier, part_logits: Mapping[str, Logits]) -> dict[str, float] | None:
    """The gate, and the fraction of the texts that skip the encoder; None without a cascade."""
    if classifier.gate is None:
        return None
    skips_encoder = classifier.skip_encoder(part_logits["linear"])
    return {"gate": classifier.gate, "skipped_fraction": float(skips_encoder.mean())}


# Tokens that are read to explain mistakes: some seconds.
MOST_EXPLAINED_TOKENS = 400_000


def _worst_mistakes(
    classifier: Classifier,
    predicted: PredictedSplit,
    tokenized: TokenizedTexts,
    doubtful: frozenset[int],
) -> list[Mistake]:
    """The most confident mistakes, the first of them explained."""
    worst = predicted.worst_mistakes()
    rows = np.array([row for row, _ in worst], dtype=np.int64)
    texts = [predicted.split.texts[row] for row in rows]
    wrong_classes = [predicted.label_names[number] for _, number in worst]

    # To explain a text is to read all of it once for each of its words.
    tokens_read = np.cumsum(tokenized.lengths[rows] ** 2)
    num_explained = int((tokens_read < MOST_EXPLAINED_TOKENS).sum())
    explanations: list[Sequence[Any]] = list(
        explain(
            classifier,
            texts[:num_explained],
            tokenized.take(rows[:num_explained]),
            wrong_classes[:num_explained],
        )
    )
    explanations += [()] * (len(worst) - num_explained)

    mistakes = []
    for (row, number), text, words in zip(worst, texts, explanations, strict=True):
        is_missed = None
        if predicted.split.is_multi_label:
            is_missed = bool(predicted.labels[row, number])

        mistake = Mistake(
            text=text,
            where=predicted.split.where[row],
            labels=predicted.names(predicted.labels[row]),
            predictions=predicted.names(predicted.predictions[row]),
            prediction=predicted.label_names[number],
            is_missed=is_missed,
            probability=float(predicted.probabilities[row, number]),
            likely_mislabelled=row in doubtful,
            words=words,
        )
        mistakes.append(mistake)
    return mistakes


# The precision of the answers above the suggested threshold.
WANTED_ACCURACY = 0.95
# The least number of answers above the suggested threshold, and their least fraction of all texts.
FEWEST_PREDICTIONS = 20
FEWEST_PREDICTED = 0.05


def suggest_threshold(
    confidence: NDArray[np.float64], correct: NDArray[np.bool_]
) -> tuple[float | None, float]:
    """The lowest probability from which `WANTED_ACCURACY` of the answers are right.

    Both arguments are (texts,). Returns it with the fraction of the texts that it answers. It is
    None, and the fraction 1, where fewer than `FEWEST_PREDICTIONS`, or than `FEWEST_PREDICTED` of all
    texts, would be answered.
    """
    # Thousandths, as shown: a threshold that is rounded afterwards might answer other texts.
    steps = np.arange(1000) / 1000
    num_predicted = counts_from(steps, confidence)
    num_right = counts_from(steps, confidence[correct])

    is_accurate = num_right / np.maximum(1, num_predicted) >= WANTED_ACCURACY
    least_predicted = max(FEWEST_PREDICTIONS, FEWEST_PREDICTED * len(correct))
    fitting = np.flatnonzero(is_accurate & (num_predicted >= least_predicted))
    if len(fitting) == 0:
        return None, 1.0

    threshold = float(steps[fitting[0]])
    is_predicted = confidence >= threshold
    return threshold, float(is_predicted.mean())
