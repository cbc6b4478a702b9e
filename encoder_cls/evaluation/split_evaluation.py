"""Evaluate a classifier on the labelled texts of a split."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from encoder_cls.classifier.classifier import Classifier, FamiliarityFeatures
from encoder_cls.classifier.familiarity import measure_familiarity
from encoder_cls.classifier.guarantees import AnsweredTexts
from encoder_cls.data.codes import Codes
from encoder_cls.data.dataset import Split
from encoder_cls.evaluation.comparisons import (
    COMBINED,
    NO_MACRO_F1_INTERVAL,
    PartComparison,
    Scores,
    score_parts,
    score_predictions,
)
from encoder_cls.evaluation.doubtful_labels import doubtful_rows
from encoder_cls.evaluation.held_out_predictions import (
    ValidationPredictions,
    held_out_part_logits,
)
from encoder_cls.evaluation.judged_calibration import JudgedCalibration, judge_calibration
from encoder_cls.evaluation.levels import LevelsEvaluation, evaluate_levels
from encoder_cls.evaluation.measured_guarantees import MeasuredGuarantees, measure_guarantees
from encoder_cls.evaluation.mistakes import Mistake, worst_mistakes
from encoder_cls.evaluation.none_of_these import NoneScores, auroc, none_scores
from encoder_cls.evaluation.split_predictions import SplitPredictions
from encoder_cls.evaluation.suggested_threshold import (
    NO_THRESHOLD,
    SuggestedThreshold,
    suggest_threshold,
)
from encoder_cls.linear.top_features import NgramWeight
from encoder_cls.metrics.classification import Metrics, compute_metrics
from encoder_cls.metrics.logits import Logits
from encoder_cls.metrics.scores import SCORES
from encoder_cls.text.tokens import TokenizedTexts


@dataclass(frozen=True, kw_only=True)
class NewTexts:
    """The texts of a split that a classifier has not learned from; without any, no scores."""

    predictions: SplitPredictions = field(repr=False, compare=False)
    metrics: Metrics | None
    scores: Scores

    @property
    def num_texts(self) -> int:
        """The number of these texts."""
        return len(self.predictions.split)

    def to_dict(self) -> dict[str, Any]:
        """The number of texts and the scores, as JSON values."""
        return {"num_examples": self.num_texts, **self.scores}


@dataclass(frozen=True, kw_only=True)
class SplitEvaluation:
    """The evaluation of a classifier on the labelled texts of a split.

    Attributes:
        num_learned: how many texts were learned from; None if unknown.
        new_texts: the others; None if no text was learned from.
        parts: scores of the classifier, `combined`, and of `linear` and `encoder`.
        part_comparison: None with one part.
        mixture_shares: of parts in the sum of logits; None if unknown.
        cascade: `gate`, and the `skipped_fraction` of texts that skip the encoder; None without
            one.
        threshold: suggested by new texts; None if multi-label, where labels have thresholds.
        guarantees: measured on new texts; None without any, or if they were fitted to these texts.
        levels: of codes, on new texts if any; None without levels.
        codes: if classes have names or levels.
        none_scores: of the class for none of the others; None without such texts.
        doubtful_labels: texts whose labels seem to be wrong.
        top_features: words and pairs that speak most for each class; empty without a linear model.
        truncated_fraction: the share of texts that are longer than the encoder, else the linear
            model, reads.
        unknown_fraction: the share of tokens that training texts lack.
    """

    predictions: SplitPredictions = field(repr=False, compare=False)
    metrics: Metrics
    parts: Mapping[str, Scores]
    part_comparison: PartComparison | None
    mixture_shares: Mapping[str, float] | None
    cascade: Mapping[str, float] | None
    threshold: SuggestedThreshold | None
    guarantees: MeasuredGuarantees | None
    worst_mistakes: list[Mistake]
    doubtful_labels: tuple[int, ...]
    top_features: Mapping[str, list[NgramWeight]]
    truncated_fraction: float
    unknown_fraction: float
    num_learned: int | None = None
    new_texts: NewTexts | None = None
    levels: LevelsEvaluation | None = None
    none_scores: NoneScores | None = None
    codes: Codes | None = field(default=None, repr=False, compare=False)

    def shown(self, label: str) -> str:
        """A label with its name, if it has one."""
        return self.codes.shown(label) if self.codes else label

    @property
    def predictions_of_new(self) -> SplitPredictions:
        """The predictions to judge new texts by."""
        if self.new_texts is None:
            return self.predictions
        return self.new_texts.predictions

    @property
    def metrics_of_new(self) -> Metrics | None:
        """The metrics to judge new texts by; None without any."""
        if self.new_texts is None:
            return self.metrics
        return self.new_texts.metrics

    @property
    def macro_f1_note(self) -> str:
        """Why macro-F1 has no interval; empty if it has one, or multi-label."""
        if self.scores.get(SCORES["macro_f1"].interval_key, ()) is None:
            return NO_MACRO_F1_INTERVAL
        return ""

    @cached_property
    def calibration(self) -> JudgedCalibration | None:
        """The calibration, judged on new texts; None without any."""
        if self.metrics_of_new is None:
            return None
        return judge_calibration(
            self.metrics_of_new.calibration, independent=self.independent_share
        )

    @property
    def independent_share(self) -> float:
        """The share of independent ones of the texts that count as new."""
        return self.num_independent / max(1, len(self.predictions_of_new.split))

    @cached_property
    def num_independent(self) -> float:
        """The independent texts that count as new."""
        predictions = self.predictions_of_new
        if not len(predictions.split):
            return 0.0
        return predictions.groups.effective_number(predictions.are_right)

    @property
    def split_name(self) -> str:
        """`test`, `validation` or a file."""
        return self.predictions.name

    @property
    def label_names(self) -> tuple[str, ...]:
        """The classes, then unseen labels."""
        return self.predictions.label_names

    @property
    def scores(self) -> Scores:
        """The scores of the whole classifier."""
        return self.parts[COMBINED]


# The number of words and pairs of words of a class that a report names: about two lines of a page.
TOP_FEATURES = 15


def evaluate_split(
    classifier: Classifier,
    split: Split,
    *,
    name: str,
    learned: Iterable[str] | None = None,
    batch_tokens: int | None = None,
    validation_predictions: ValidationPredictions | None = None,
) -> SplitEvaluation:
    """Evaluate a classifier on a split.

    Labels are indices into the classes, then into `unseen_names`; `learned` are texts learned from,
    None if unknown. Held-out predictions of a run replace those of the final classifier.
    """
    tokenized = classifier.tokenize(split.texts)
    part_logits, linear_features = held_out_part_logits(
        classifier,
        split,
        tokenized,
        validation_predictions,
        batch_tokens=batch_tokens,
        with_familiarity=classifier.none_label is not None,
    )

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

    # What is said of new texts is measured without those that the classifier has learned from.
    of_new = predictions
    new_rows = np.arange(len(split))
    num_learned = None
    new_texts = None
    if learned is not None:
        is_learned = split.are_among(learned)
        num_learned = int(is_learned.sum())
        if num_learned:
            new_rows = np.flatnonzero(~is_learned)
            of_new = predictions.subset(new_rows)
            new_texts = _new_texts(of_new)

    labels_by_part = _predicted_labels_of_parts(classifier, predictions, part_logits)
    parts, part_comparison = score_parts(labels_by_part, predictions.labels, predictions.groups)

    doubtful = doubtful_rows(predictions.probabilities, split.labels)
    return SplitEvaluation(
        predictions=predictions,
        metrics=metrics,
        parts=parts,
        part_comparison=part_comparison,
        mixture_shares=classifier.mixture.shares,
        cascade=_cascade(classifier, part_logits),
        threshold=_threshold(of_new, classifier.none_number),
        guarantees=_guarantees(classifier, of_new),
        worst_mistakes=worst_mistakes(classifier, predictions, tokenized, frozenset(doubtful)),
        doubtful_labels=doubtful,
        top_features=classifier.top_features_of_classes(tokenized, top_k=TOP_FEATURES),
        truncated_fraction=float(classifier.truncated(tokenized).mean()),
        unknown_fraction=tokenized.unknown_fraction,
        num_learned=num_learned,
        new_texts=new_texts,
        levels=_levels(classifier, predictions, of_new),
        codes=classifier.codes,
        none_scores=_none_scores(classifier, predictions, tokenized, linear_features, new_rows),
    )


def _levels(
    classifier: Classifier, predictions: SplitPredictions, of_new: SplitPredictions
) -> LevelsEvaluation | None:
    """Score the levels on the new texts, or on all texts if none is new."""
    if classifier.codes is None or not classifier.codes.has_levels:
        return None
    if not len(of_new.split):
        return evaluate_levels(classifier.codes, predictions, None)
    is_fitted = predictions.name == "validation"
    return evaluate_levels(classifier.codes, of_new, None if is_fitted else classifier.guarantees)


def _none_scores(
    classifier: Classifier,
    predictions: SplitPredictions,
    tokenized: TokenizedTexts,
    linear_features: FamiliarityFeatures | None,
    new_rows: NDArray[np.int64],
) -> NoneScores | None:
    number = classifier.none_number
    if number is None:
        return None
    is_none = predictions.labels == number

    # To a model that has learned from a text, it is not unfamiliar.
    unfamiliar_auroc = None
    if classifier.familiarity:
        features = measure_familiarity(predictions.probabilities, tokenized, linear_features)
        scores = classifier.familiarity.scores(features)
        unfamiliar_auroc = auroc(scores[new_rows], is_none[new_rows])

    return none_scores(
        classifier.label_names[number],
        is_none,
        predictions.probabilities[:, number],
        predictions.predicted_labels == number,
        unfamiliar_auroc=unfamiliar_auroc,
    )


def _new_texts(predictions: SplitPredictions) -> NewTexts:
    if not len(predictions.split):
        return NewTexts(predictions=predictions, metrics=None, scores={})

    metrics = compute_metrics(
        predictions.logits, predictions.labels, predictions.label_names, predictions.thresholds
    )
    scores = score_predictions(predictions.predicted_labels, predictions.labels, predictions.groups)
    return NewTexts(predictions=predictions, metrics=metrics, scores=scores)


def _predicted_labels_of_parts(
    classifier: Classifier, predictions: SplitPredictions, part_logits: Mapping[str, Logits]
) -> dict[str, NDArray[Any]]:
    if predictions.thresholds:
        # Thresholds apply to calibrated logits, so calibrate the logits of each part alone.
        part_logits = classifier.mixture.parts_alone(part_logits)

    labels_by_part = {COMBINED: predictions.predicted_labels}
    for part in ("linear", "encoder"):
        if part in part_logits:
            labels_by_part[part] = predictions.labels_from(part_logits[part])
    return labels_by_part


def _cascade(classifier: Classifier, part_logits: Mapping[str, Logits]) -> dict[str, float] | None:
    if classifier.gate is None:
        return None
    skips_encoder = classifier.skip_encoder(part_logits["linear"])
    return {"gate": classifier.gate, "skipped_fraction": float(skips_encoder.mean())}


def _threshold(predictions: SplitPredictions, none_number: int | None) -> SuggestedThreshold | None:
    if predictions.thresholds:
        return None
    if not len(predictions.split):
        return NO_THRESHOLD
    confidence = predictions.probabilities.max(axis=1)
    is_correct = predictions.predicted_labels == predictions.labels
    if none_number is None:
        return suggest_threshold(confidence, is_correct, predictions.groups)
    rows = np.flatnonzero(predictions.predicted_labels != none_number)
    return suggest_threshold(confidence[rows], is_correct[rows], predictions.groups.subset(rows))


def _guarantees(classifier: Classifier, predictions: SplitPredictions) -> MeasuredGuarantees | None:
    """Measure guarantees; None for the validation texts, to which they are fitted."""
    if classifier.guarantees is None or predictions.name == "validation":
        return None
    if not len(predictions.split):
        return None
    answered = AnsweredTexts.of(
        predictions.probabilities, predictions.split.labels, classifier.none_number
    )
    if not len(answered.rows):
        return None
    return measure_guarantees(
        classifier.guarantees,
        answered.probabilities,
        answered.labels,
        label_names=classifier.label_names,
        thresholds=classifier.thresholds,
    )
