"""The report of a classifier: its evaluation on a split, and comparisons with other classifiers."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from typing import Any

from encoder_cls.evaluation.changes_since_base import ChangesSinceBase
from encoder_cls.evaluation.comparisons import RunComparison
from encoder_cls.evaluation.split_evaluation import SplitEvaluation
from encoder_cls.metrics.classification import Metrics
from encoder_cls.metrics.tasks import MULTI_LABEL


@dataclass(frozen=True, kw_only=True)
class RunFindings:
    """Findings that only a report of a run on its own data has.

    Attributes:
        num_refitted: how many validation texts the final fit of the linear model includes.
        class_weights_note: advises class weights; empty if they would not help.
        changes_since_base: None if the run does not continue another one.
        sample_note: says which validation texts are a random sample; empty if any could be held
            out.
        num_unread: how many training texts the run, or its linear model, had no time to read.
        num_unscored: how many texts of the split the run had no time to score.
    """

    num_refitted: int = 0
    class_weights_note: str = ""
    changes_since_base: ChangesSinceBase | None = None
    num_unread: int = 0
    num_unscored: int = 0
    sample_note: str = ""


@dataclass(frozen=True, kw_only=True, repr=False)
class Report:
    """The report of a classifier on the labelled texts of a split.

    Attributes:
        baseline_scores: those of the TF-IDF baseline; None if it could not be trained, for
            instance because the training texts are not there.
        run_findings: empty unless the split belongs to the classifier's own run.
    """

    evaluation: SplitEvaluation
    baseline_scores: Mapping[str, Any] | None = None
    run_findings: RunFindings = field(default_factory=RunFindings)
    against: RunComparison | None = None

    @property
    def metrics(self) -> Metrics:
        """The metrics of the classifier."""
        return self.evaluation.metrics

    def __repr__(self) -> str:
        """The split and its size, since the fields hold thousands of values."""
        return f"Report({self.evaluation.split_name!r}, {self.metrics.num_examples:,} examples)"

    def __str__(self) -> str:
        """The report as `encoder-cls eval` prints it."""
        from encoder_cls.evaluation.report_text import full_text

        return full_text(self)

    def _repr_html_(self) -> str:
        """The report for a notebook: the text for a terminal, with the tables folded."""
        from encoder_cls.evaluation.report_page import render_notebook_report

        return render_notebook_report(self)

    def to_dict(self) -> dict[str, Any]:
        """The report as JSON values, with the metrics at the top level."""
        evaluation = self.evaluation
        values: dict[str, Any] = {"split": evaluation.split_name}
        if evaluation.is_multi_label:
            values["task"] = MULTI_LABEL.name

        values.update(asdict(evaluation.metrics))
        values["num_groups"] = evaluation.predictions.groups.num_groups
        for key, score in evaluation.scores.items():
            if key.endswith("_interval"):
                values[key] = score

        values["macro_f1_interval_note"] = evaluation.macro_f1_note
        values["ece_beyond_chance"] = evaluation.calibration and evaluation.calibration.error
        values["learned_texts"] = evaluation.num_learned
        values["new_texts"] = evaluation.new_texts and evaluation.new_texts.to_dict()
        values["parts"] = evaluation.parts
        values["comparison"] = None
        if evaluation.part_comparison:
            values["comparison"] = asdict(evaluation.part_comparison)
        values["mixture_shares"] = evaluation.mixture_shares
        values["cascade"] = evaluation.cascade
        values["linear_reference"] = self.baseline_scores

        values["suggested_threshold"] = None
        values["answered_fraction"] = None
        if evaluation.threshold is not None:
            values["suggested_threshold"] = evaluation.threshold.probability
            values["answered_fraction"] = evaluation.threshold.predicted_fraction

        values["label_names"] = list(evaluation.label_names)
        values["num_refitted"] = self.run_findings.num_refitted
        values["truncated_fraction"] = evaluation.truncated_fraction
        values["unknown_fraction"] = evaluation.unknown_fraction
        values["doubtful_labels"] = len(evaluation.doubtful_labels)
        values["guarantees"] = None
        if evaluation.guarantees is not None:
            values["guarantees"] = evaluation.guarantees.to_dict()
        values["top_features"] = {}
        for name, ngrams in evaluation.top_features.items():
            values["top_features"][name] = [ngram._asdict() for ngram in ngrams]
        values["worst_errors"] = [mistake.to_dict() for mistake in evaluation.worst_mistakes]
        values["class_weights_note"] = self.run_findings.class_weights_note
        values["unread_texts"] = self.run_findings.num_unread
        values["unscored_texts"] = self.run_findings.num_unscored

        if self.against:
            values["against"] = self.against.to_dict()
        if self.run_findings.changes_since_base:
            values["former"] = self.run_findings.changes_since_base.to_dict()
        return values
