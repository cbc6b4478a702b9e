"""What an evaluation found out where a text may have several labels: as a data class, as JSON values, as text."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any, ClassVar

from encoder_cls.evaluation.metrics import score_text
from encoder_cls.evaluation.multi_label_metrics import MultiLabelMetrics
from encoder_cls.evaluation.multi_label_parts import MultiLabelPartScores
from encoder_cls.evaluation.parts import COMBINED, Comparison
from encoder_cls.evaluation.report_notes import (
    LONGEST_NAME,
    interval_text,
    length_note,
    name_text,
    reference_note,
    split_note,
    unseen_note,
)
from encoder_cls.evaluation.verdict import advice, comparison_sentence
from encoder_cls.inference.explain import WordWeight
from encoder_cls.inference.tasks import MULTI_LABEL
from encoder_cls.system.display import counted, shown


@dataclass(frozen=True, kw_only=True)
class WrongLabel:
    """A label that a text was given and has not, or that it has and was not given.

    Attributes:
        text: the text.
        where: file and line.
        labels: those that it has.
        predictions: those that it was given.
        label: which is wrong.
        is_missed: whether the text has it.
        probability: that the classifier gives it.
        likely_mislabelled: whether rather the labels seem to be wrong; none where cleanlab is not installed.
        words: what the words did for the label; empty where that would have taken too long.
    """

    text: str
    where: str
    labels: tuple[str, ...]
    predictions: tuple[str, ...]
    label: str
    is_missed: bool
    probability: float
    likely_mislabelled: bool | None = None
    words: Sequence[WordWeight] = ()


@dataclass(frozen=True, kw_only=True)
class MultiLabelReport:
    """All that an evaluation found out; what is not said here is as in `Report`.

    Attributes:
        metrics: of the classifier.
        parts: the scores of the classifier, `combined`, and of those that there are of its parts alone.
        comparison: what the encoder adds to the linear classifier, in micro-F1.
        linear_reference: micro_f1, macro_f1 and mean_average_precision of the linear model, and on how much it was
            trained.
        worst_errors: the most confident mistakes, worst first, a label of a text each.
    """

    score_name: ClassVar[str] = "micro_f1"
    """What parts and models are compared by."""

    split: str
    label_names: tuple[str, ...]
    metrics: MultiLabelMetrics
    parts: Mapping[str, MultiLabelPartScores]
    comparison: Comparison | None
    mixture_shares: Mapping[str, float] | None
    linear_reference: dict[str, Any] | None
    worst_errors: list[WrongLabel]
    truncated_fraction: float
    unknown_fraction: float
    doubtful_labels: tuple[int, ...] | None = None
    label_check_note: str = ""

    @property
    def length_note(self) -> str:
        """How many texts are longer than what is read of them."""
        return length_note(self.parts, self.truncated_fraction)

    @property
    def split_note(self) -> str:
        """What is to be known of the split, if anything."""
        return split_note(self.split)

    @property
    def reference_note(self) -> str:
        """On how many of the training texts and their features the linear model was trained, where not on all."""
        return reference_note(self.linear_reference)

    @property
    def unseen_note(self) -> str:
        """What is to be known of labels that never occur in the training data, if there are any."""
        return unseen_note(self.metrics.unseen_labels)

    def to_dict(self) -> dict[str, Any]:
        """The report as JSON values; the metrics are at the top level."""
        return {
            "split": self.split,
            "task": MULTI_LABEL.name,
            **asdict(self.metrics),
            "micro_f1_interval": self.parts[COMBINED].micro_f1_interval,
            "parts": {name: asdict(scores) for name, scores in self.parts.items()},
            "comparison": asdict(self.comparison) if self.comparison else None,
            "mixture_shares": self.mixture_shares,
            "linear_reference": self.linear_reference,
            "label_names": list(self.label_names),
            "truncated_fraction": self.truncated_fraction,
            "unknown_fraction": self.unknown_fraction,
            "doubtful_labels": None if self.doubtful_labels is None else len(self.doubtful_labels),
            "worst_errors": [asdict(error) for error in self.worst_errors],
        }


def multi_label_summary_lines(report: MultiLabelReport) -> Iterator[str]:
    """The first lines of the report: what one looks at when a training is over."""
    metrics = report.metrics
    yield f"{report.split}: {counted(metrics.num_examples, 'example')}, {metrics.labels_per_text:.2f} labels a text"
    for note in filter(None, (report.split_note, report.unseen_note)):
        yield f"  {note}"
    yield f"  {_scores(report.parts[COMBINED])}   mean average precision {metrics.mean_average_precision:.4f}"
    yield (
        f"  all labels right {metrics.subset_accuracy:.4f}   F1 of texts {metrics.samples_f1:.4f}   calibration error "
        f"{metrics.ece:.4f}   (95% intervals in brackets)"
    )
    if report.comparison:
        yield f"    linear alone: {_scores(report.parts['linear'])}"
        yield f"    encoder alone: {_scores(report.parts['encoder'])}"
        yield f"  {comparison_sentence(report)}"
    yield _reference_line(report)
    if advised := advice(report):
        yield f"  {advised}"
    if metrics.most_confused:
        yield "  most confused: " + "; ".join(
            f"{name_text(it.label)} missed where {name_text(it.prediction)} is given ({it.count})"
            for it in metrics.most_confused[:2]
        )


def multi_label_detail_lines(report: MultiLabelReport) -> Iterator[str]:
    """What follows: each label, and the most confident mistakes."""
    names = [name_text(name, limit=LONGEST_NAME) for name in report.label_names]
    yield f"  {report.length_note}   unknown tokens {report.unknown_fraction:.1%}"
    yield f"  {report.metrics.predicted_per_text:.2f} labels are given a text"
    width = max(len(name) for name in [*names, "label"])
    yield f"\n  {'label':{width}}  precision  recall      F1  average precision  threshold  examples"
    for name, scores in zip(names, report.metrics.per_class.values(), strict=True):
        shares = [score_text(it) for it in (scores.precision, scores.recall, scores.f1)]
        average, threshold = score_text(scores.average_precision), score_text(scores.threshold)
        yield (
            f"  {name:{width}}  {shares[0]:>9}  {shares[1]:>6}  {shares[2]:>6}  {average:>17}  {threshold:>9}  "
            f"{scores.support:8d}"
        )
    if report.label_check_note:
        yield f"\n  labels were not checked: {report.label_check_note}"
    if report.worst_errors:
        yield "\n  most confident mistakes"
    for error in report.worst_errors[:5]:
        what = "misses" if error.is_missed else "gives"
        yield f"  {error.probability:.2f} {what} {name_text(error.label)}: {shown(error.text, limit=90)}"


def _reference_line(report: MultiLabelReport) -> str:
    reference = report.linear_reference
    if reference is None:
        return "  linear reference: none"
    return (
        f"  linear reference (TF-IDF, linear SVM{report.reference_note}): micro-F1 {reference['micro_f1']:.4f}   "
        f"macro-F1 {reference['macro_f1']:.4f}   mean average precision {reference['mean_average_precision']:.4f}"
    )


def _scores(scores: MultiLabelPartScores) -> str:
    return f"micro-F1 {scores.micro_f1:.4f} {interval_text(scores.micro_f1_interval)}   macro-F1 {scores.macro_f1:.4f}"
