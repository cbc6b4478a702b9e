"""The report of a classifier: its evaluation on a split, and comparisons with other classifiers."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from functools import cached_property
from typing import Any

from encoder_cls.evaluation.comparisons import RunComparison
from encoder_cls.evaluation.findings import Finding, RunFacts, report_findings
from encoder_cls.evaluation.plain_findings import plain_findings
from encoder_cls.evaluation.split_evaluation import SplitEvaluation
from encoder_cls.evaluation.terminal_text import full_text, summary_text, table_sections
from encoder_cls.metrics.classification import Metrics
from encoder_cls.metrics.tasks import MULTI_LABEL
from encoder_cls.system.html_pages import render


@dataclass(frozen=True, kw_only=True, repr=False)
class Report:
    """The report of a classifier on the labelled texts of a split.

    Attributes:
        baseline_scores: None if it could not be trained, as without the training texts.
        run_facts: empty unless the split is of the classifier's own run.
    """

    evaluation: SplitEvaluation
    baseline_scores: Mapping[str, Any] | None = None
    run_facts: RunFacts = field(default_factory=RunFacts)
    against: RunComparison | None = None

    @property
    def metrics(self) -> Metrics:
        """The metrics of the classifier."""
        return self.evaluation.metrics

    @cached_property
    def findings(self) -> tuple[Finding, ...]:
        """What the report says in words."""
        return (
            *plain_findings(self.evaluation, self.baseline_scores),
            *report_findings(self.evaluation, self.baseline_scores, self.against, self.run_facts),
        )

    def __repr__(self) -> str:
        """Short, since the fields hold thousands of values."""
        return f"Report({self.evaluation.split_name!r}, {self.metrics.num_examples:,} examples)"

    def __str__(self) -> str:
        """The report as `encoder-cls eval` prints it."""
        return full_text(self.evaluation, self.findings)

    def summary(self) -> str:
        """The findings alone, as `encoder-cls train` prints them at its end."""
        return summary_text(self.evaluation, self.findings)

    def _repr_html_(self) -> str:
        """The report for a notebook, with the tables folded."""
        return render(
            "evaluation/templates/notebook.html",
            summary=full_text(self.evaluation, self.findings, with_tables=False),
            details=table_sections(self.evaluation, self.findings),
        )

    def to_dict(self) -> dict[str, Any]:
        """JSON values, with the metrics at the top level."""
        evaluation = self.evaluation
        values: dict[str, Any] = {"split": evaluation.split_name}
        if evaluation.metrics.task is MULTI_LABEL:
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
        values["num_refitted"] = self.run_facts.num_refitted
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
        values["class_weights_note"] = self.run_facts.class_weights_note
        values["unread_texts"] = self.run_facts.num_unread
        values["unscored_texts"] = self.run_facts.num_unscored

        return values | self._optional_values()

    def _optional_values(self) -> dict[str, Any]:
        values: dict[str, Any] = {}
        if self.evaluation.levels:
            values |= self.evaluation.levels.to_dict()
        if self.evaluation.none_scores:
            values["none"] = self.evaluation.none_scores.to_dict()
        if self.against:
            values["against"] = self.against.to_dict()
        if self.run_facts.changes_since_base:
            values["former"] = self.run_facts.changes_since_base.to_dict()
        return values
