"""The report of an evaluation, as data and as text."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from encoder_cls.evaluation.base_run import FormerAnswers
from encoder_cls.evaluation.metrics import Metrics, MultiLabelMetrics, score_text
from encoder_cls.evaluation.notes import (
    LONGEST_NAME,
    interval_text,
    length_note,
    name_text,
    reference_note,
    refit_note,
    split_note,
    unseen_note,
)
from encoder_cls.evaluation.scores import (
    COMBINED,
    Comparison,
    KeptPromises,
    MultiLabelPartScores,
    PairedComparison,
    PartScores,
    comparison_lines,
    promise_sentences,
)
from encoder_cls.evaluation.verdict import advice, comparison_sentence
from encoder_cls.inference.explain import WordWeight
from encoder_cls.inference.task import MULTI_LABEL
from encoder_cls.system.display import counted, printable, shown


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
    scores = _multi_label_scores(report.parts[COMBINED])
    yield f"  {scores}   mean average precision {metrics.mean_average_precision:.4f}"
    yield (
        f"  all labels right {metrics.subset_accuracy:.4f}   F1 of texts {metrics.samples_f1:.4f}   calibration error "
        f"{metrics.ece:.4f}   (95% intervals in brackets)"
    )
    if report.comparison:
        yield f"    linear alone: {_multi_label_scores(report.parts['linear'])}"
        yield f"    encoder alone: {_multi_label_scores(report.parts['encoder'])}"
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


def _multi_label_scores(scores: MultiLabelPartScores) -> str:
    return f"micro-F1 {scores.micro_f1:.4f} {interval_text(scores.micro_f1_interval)}   macro-F1 {scores.macro_f1:.4f}"


LARGEST_TABLE = 12  # classes; a wider confusion matrix does not fit a terminal
WANTED_ACCURACY = 0.95  # of the answers above the suggested threshold
FEWEST_ANSWERS, FEWEST_ANSWERED = 20, 0.05  # above it, and the part of all texts that these are


@dataclass(frozen=True, kw_only=True)
class WrongExample:
    """A text that was given the wrong class, and how sure the classifier was.

    Attributes:
        text: the text.
        where: file and line.
        label: its class.
        prediction: the class it was given.
        probability: of that.
        likely_mislabelled: whether rather the label seems to be wrong; none where cleanlab is not installed.
        words: what the words did for the prediction; empty where that would have taken too long.
    """

    text: str
    where: str
    label: str
    prediction: str
    probability: float
    likely_mislabelled: bool | None = None
    words: Sequence[WordWeight] = ()


@dataclass(frozen=True, kw_only=True)
class Report:
    """All that an evaluation found out.

    Attributes:
        split: what was scored: `test`, `validation` or a file.
        label_names: the classes in the order of the confusion matrix, then the labels that never occur in the training
            data.
        metrics: of the classifier.
        parts: the scores of the classifier, `combined`, and of those that there are of its parts `linear` and `encoder`
            alone.
        comparison: what the encoder adds to the linear classifier; none where there are not both.
        mixture_shares: the share of each part in the sum of the logits, see `Classifier`.
        linear_reference: the scores of the linear model with their intervals, and on how many texts and features of how
            many it was trained (`texts`, `of_texts`, `features`, `of_features`); none where its training texts are
            gone.
        suggested_threshold: the lowest probability from which answers are right `WANTED_ACCURACY` of the time; 0 where
            all answers together are; none where too few are.
        answered_fraction: the part of the texts that get an answer with that threshold.
        worst_errors: the most confident mistakes, worst first.
        truncated_fraction: the part of the texts that are longer than the encoder reads, or the linear classifier where
            it is alone.
        unknown_fraction: the part of the tokens that training never showed.
        doubtful_labels: the indices of the texts whose labels seem to be wrong; none where that was not checked.
        label_check_note: why it was not.
        num_refitted: how many texts held out for validation the linear classifier has learned from in the end.
        class_weights_note: that weights of classes would help, where that was found.
        against: another classifier on the same texts, where that was asked for.
        former_answers: what has changed for the texts of the run that this one goes on from.
        kept_promises: what the model promised before it saw these texts, and what became of it; none of a model that
            promises nothing, nor of the texts that it was measured on.
    """

    score_name: ClassVar[str] = "accuracy"
    """What parts and models are compared by."""

    split: str
    label_names: tuple[str, ...]
    metrics: Metrics
    parts: Mapping[str, PartScores]
    comparison: Comparison | None
    mixture_shares: Mapping[str, float] | None
    linear_reference: dict[str, Any] | None
    suggested_threshold: float | None
    answered_fraction: float
    worst_errors: list[WrongExample]
    truncated_fraction: float
    unknown_fraction: float
    doubtful_labels: tuple[int, ...] | None = None
    label_check_note: str = ""
    num_refitted: int = 0
    class_weights_note: str = ""
    against: PairedComparison | None = None
    former_answers: FormerAnswers | None = None
    kept_promises: KeptPromises | None = None

    @property
    def length_note(self) -> str:
        """How many texts are longer than what is read of them."""
        return length_note(self.parts, self.truncated_fraction)

    @property
    def split_note(self) -> str:
        """What is to be known of the split, if anything."""
        return split_note(self.split)

    @property
    def refit_note(self) -> str:
        """That the linear classifier has learned from texts held out, where it has."""
        return refit_note(self.num_refitted, self.split)

    @property
    def reference_note(self) -> str:
        """On how many of the training texts and their features the linear model was trained, where not on all."""
        return reference_note(self.linear_reference)

    @property
    def no_threshold_note(self) -> str:
        """Why no threshold is suggested, where none is."""
        if self.suggested_threshold is None and self.metrics.num_examples < FEWEST_ANSWERS:
            return f"no threshold is suggested: that takes {FEWEST_ANSWERS} answers"
        if self.suggested_threshold is None:
            return (
                f"no threshold is suggested: from no probability up {WANTED_ACCURACY:.0%} of the answers are right and "
                f"{FEWEST_ANSWERED:.0%} of the texts are answered, {FEWEST_ANSWERS} at least"
            )
        if self.suggested_threshold == 0:
            return f"no threshold is needed: {WANTED_ACCURACY:.0%} of all answers or more are right"
        return ""

    @property
    def unseen_note(self) -> str:
        """What is to be known of labels that never occur in the training data, if there are any."""
        return unseen_note(self.metrics.unseen_labels)

    def to_dict(self) -> dict[str, Any]:
        """The report as JSON values; the metrics are at the top level."""
        return {
            "split": self.split,
            **asdict(self.metrics),
            "accuracy_interval": self.parts[COMBINED].accuracy_interval,
            "macro_f1_interval": self.parts[COMBINED].macro_f1_interval,
            "parts": {name: asdict(scores) for name, scores in self.parts.items()},
            "comparison": asdict(self.comparison) if self.comparison else None,
            "mixture_shares": self.mixture_shares,
            "linear_reference": self.linear_reference,
            "suggested_threshold": self.suggested_threshold,
            "answered_fraction": self.answered_fraction,
            "label_names": list(self.label_names),
            "num_refitted": self.num_refitted,
            "truncated_fraction": self.truncated_fraction,
            "unknown_fraction": self.unknown_fraction,
            "doubtful_labels": None if self.doubtful_labels is None else len(self.doubtful_labels),
            "promises": asdict(self.kept_promises) if self.kept_promises else None,
            "worst_errors": [asdict(error) for error in self.worst_errors],
            "class_weights_note": self.class_weights_note,
            **({"against": self.against.to_dict()} if self.against else {}),
            **({"former": self.former_answers.to_dict()} if self.former_answers else {}),
        }


AnyReport = Report | MultiLabelReport


def suggest_threshold(confidence: NDArray[np.float64], correct: NDArray[np.bool_]) -> float | None:
    """The lowest probability, in thousandths, from which `WANTED_ACCURACY` of the answers are right.

    Not more exactly, since it is shown: a number rounded afterwards would keep that promise by chance only. None where
    fewer than `FEWEST_ANSWERS` would be left, of which that says nothing, or fewer than `FEWEST_ANSWERED` of all texts.
    """
    steps = np.arange(1000) / 1000
    num_answered, num_right = (
        len(part) - np.searchsorted(np.sort(part), steps) for part in (confidence, confidence[correct])
    )
    are_right = num_right / np.maximum(1, num_answered) >= WANTED_ACCURACY
    fitting = np.flatnonzero(are_right & (num_answered >= max(FEWEST_ANSWERS, FEWEST_ANSWERED * len(correct))))
    return float(steps[fitting[0]]) if len(fitting) else None


def summary_text(report: AnyReport) -> str:
    """The first lines of the report: what one looks at when a training is over."""
    return "\n".join(_summary_lines(report) if isinstance(report, Report) else multi_label_summary_lines(report))


def report_text(report: AnyReport) -> str:
    """The report for a terminal."""
    details = _detail_lines(report) if isinstance(report, Report) else multi_label_detail_lines(report)
    return "\n".join([summary_text(report), *details])


def _summary_lines(report: Report) -> Iterator[str]:
    metrics, threshold = report.metrics, report.suggested_threshold
    combined = report.parts[COMBINED]
    yield f"{report.split}: {counted(metrics.num_examples, 'example')}"
    for note in filter(None, (report.split_note, report.unseen_note)):
        yield f"  {note}"
    yield f"  {_scores(combined)}   calibration error {metrics.ece:.4f}   (95% intervals in brackets)"
    if report.comparison:
        yield f"    linear alone: {_scores(report.parts['linear'])}"
        yield f"    encoder alone: {_scores(report.parts['encoder'])}"
        yield f"  {comparison_sentence(report)}"
    yield from _reference_lines(report)
    yield from _against_lines(report)
    if advised := advice(report):
        yield f"  {advised}"
    if report.class_weights_note:
        yield f"  {report.class_weights_note}"
    if threshold:
        answered = f"answers from probability {threshold:.3f} up (--threshold), {report.answered_fraction:.0%} of all,"
        yield f"  {answered} are right {WANTED_ACCURACY:.0%} of the time"
    else:
        yield f"  {report.no_threshold_note}"
    for sentence in promise_sentences(report.kept_promises):
        yield f"  {sentence}"
    if metrics.most_confused:
        yield "  most confused: " + "; ".join(
            f"{name_text(it.label)} taken for {name_text(it.prediction)} ({it.count})"
            for it in metrics.most_confused[:2]
        )


def _detail_lines(report: Report) -> Iterator[str]:
    metrics, names = report.metrics, [name_text(name, limit=LONGEST_NAME) for name in report.label_names]
    yield f"  {report.length_note}   unknown tokens {report.unknown_fraction:.1%}"
    if report.refit_note:
        yield f"  {report.refit_note}"
    width = max(len(name) for name in [*names, "class"])
    yield f"\n  {'class':{width}}  precision  recall      F1  examples"
    for name, scores in zip(names, metrics.per_class.values(), strict=True):
        shares = [score_text(it) for it in (scores.precision, scores.recall, scores.f1)]
        yield f"  {name:{width}}  {shares[0]:>9}  {shares[1]:>6}  {shares[2]:>6}  {scores.support:8d}"
    if metrics.confusion_matrix and len(names) <= LARGEST_TABLE:
        yield "\n  confusion matrix (rows: label, columns: prediction)"
        yield f"  {'':{width + 3}}  " + " ".join(f"{number:>4}" for number in range(1, len(names) + 1))
        for number, (name, row) in enumerate(zip(names, metrics.confusion_matrix, strict=True), start=1):
            yield f"  {number:2} {name:{width}}  " + " ".join(f"{count or '.':>4}" for count in row)
    elif metrics.confusion_matrix:
        yield f"\n  no matrix here: {len(names)} classes are more than the {LARGEST_TABLE} that fit; report.html has it"
    else:
        yield f"\n  no matrix: {len(names)} classes are too many; report.html names the pairs most often confused"
    if report.label_check_note:
        yield f"\n  labels were not checked: {report.label_check_note}"
    if report.worst_errors:
        yield "\n  most confident mistakes"
    for error in report.worst_errors[:5]:
        yield (
            f"  {error.probability:.2f} {name_text(error.prediction)}, "
            f"not {name_text(error.label)}: {shown(error.text, limit=90)}"
        )


def _reference_lines(report: Report) -> Iterator[str]:
    reference = report.linear_reference
    if reference is None:
        yield "  linear reference: none"
        return
    yield (
        f"  linear reference (TF-IDF, linear SVM{report.reference_note}): accuracy {reference['accuracy']:.4f} "
        f"{interval_text(reference['accuracy_interval'])}   macro-F1 {reference['macro_f1']:.4f} "
        f"{interval_text(reference['macro_f1_interval'])}"
    )


def _against_lines(report: Report) -> Iterator[str]:
    if report.against:
        name = printable(report.against.run)
        yield f"  {name}: {_scores(report.against.scores)}"
        for line in comparison_lines(report.against, name=name):
            yield f"    {line}"
    if report.former_answers:
        for sentence in report.former_answers.sentences():
            yield f"  {sentence}"


def _scores(scores: PartScores) -> str:
    return (
        f"accuracy {scores.accuracy:.4f} {interval_text(scores.accuracy_interval)}   "
        f"macro-F1 {scores.macro_f1:.4f} {interval_text(scores.macro_f1_interval)}"
    )
