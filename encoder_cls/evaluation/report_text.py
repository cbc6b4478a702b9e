"""The sentences of a report, for a terminal and for the page."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any

import numpy as np

from encoder_cls.evaluation.comparisons import COMBINED
from encoder_cls.evaluation.files import SCORE_NAMES
from encoder_cls.evaluation.intervals import Interval
from encoder_cls.evaluation.report import FEWEST_ANSWERED, FEWEST_ANSWERS, WANTED_ACCURACY, Report
from encoder_cls.metrics.classification import MultiLabelMetrics, SingleLabelMetrics
from encoder_cls.system.display import aligned, counted, listed, printable, shortened, shown

LONGEST_NAME = 28  # characters of a class name in a column
LARGEST_TABLE = 12  # classes; a wider confusion matrix does not fit a terminal
MOST_MISTAKES = 5  # in a terminal
FEW_TEXTS = 100  # of fewer a calibration error is large by chance, with 15 bins
WELL_CALIBRATED, FAIRLY_CALIBRATED = 0.03, 0.08
# Shares of the sum of the logits from which a part decides nearly alone, or has most of the weight.
NEARLY_ALL, MOSTLY = 0.97, 0.6
LINEAR_ALONE = "--set model.encoder=false"
VALIDATION_NOTE = "these texts also chose the weights and calibrated them: expect somewhat less of new ones (data.test)"
PARTS = {COMBINED: "both together", "linear": "linear alone", "encoder": "encoder alone"}


Sections = dict[str, tuple[str, ...]]
"""The lines of each section, by its title."""


def summary_sections(report: Report) -> Sections:
    """The sections that summarize a training."""
    return _sections(
        (
            f"{capitalized(SCORE_NAMES[report.metrics.score_name])} on {report.split}",
            _score_lines(report),
        ),
        ("Is the encoder worth it?", _part_lines(report)),
        ("Can the probabilities be trusted?", calibration(report)),
        ("Threshold", _threshold_lines(report)),
        ("Notes", _reservations(report)),
    )


def detail_sections(report: Report) -> Sections:
    """The further sections of a terminal; the page has tables and charts instead."""
    return _sections(
        (
            "Texts",
            [length_note(report), f"labels that seem to be wrong: {len(report.doubtful_labels):,}"],
        ),
        ("Classes", _class_table(report)),
        ("Confusion (rows: label, columns: prediction)", _confusion_lines(report)),
        ("Most confident mistakes", _mistake_lines(report)),
    )


def _sections(*sections: tuple[str, Iterable[str]]) -> Sections:
    """The sections that have lines."""
    return {title: lines for title, its in sections if (lines := tuple(its))}


def summary_text(report: Report) -> str:
    """The summary for a terminal, without titles."""
    lines = (
        f"\n  {line}" for of_section in summary_sections(report).values() for line in of_section
    )
    return f"{report.split}: {size_note(report)}{''.join(lines)}"


def full_text(report: Report, *, with_tables: bool = True) -> str:
    """The report for a terminal."""
    lines = [f"{report.split}: {size_note(report)}"]
    sections = summary_sections(report) | (detail_sections(report) if with_tables else {})
    for title, of_section in sections.items():
        lines += [f"  {title}", *(f"    {line}" for line in of_section)]
    return "\n".join(lines)


def size_note(report: Report) -> str:
    """The number of examples, and of labels where a text may have several."""
    texts = counted(report.metrics.num_examples, "example")
    if isinstance(report.metrics, MultiLabelMetrics):
        return f"{texts}, {report.metrics.labels_per_text:.2f} labels a text"
    return texts


def _score_lines(report: Report) -> Iterator[str]:
    metrics = report.metrics
    yield f"{_scores(report.scores)}, calibration error {metrics.ece:.4f} (95% intervals in brackets)"
    if isinstance(metrics, MultiLabelMetrics):
        yield (
            f"mean average precision {metrics.mean_average_precision:.4f}, all labels right "
            f"{metrics.subset_accuracy:.4f}, F1 of texts {metrics.samples_f1:.4f}"
        )
    reference = report.linear_reference
    scores = (
        f" (linear SVM{reference_note(reference)}): {_scores(reference)}" if reference else ": none"
    )
    yield f"TF-IDF baseline{scores}"
    if report.against:
        yield f"{printable(report.against.run)}: {_scores(report.against.scores)}"
        yield from report.against.sentences()
    if report.base_answers:
        yield from report.base_answers.sentences()
    if report.class_weights_note:
        yield report.class_weights_note
    if metrics.most_confused:
        how = (
            "missed where {} is given" if isinstance(metrics, MultiLabelMetrics) else "taken for {}"
        )
        yield "most confused: " + "; ".join(
            f"{name_text(it.label)} {how.format(name_text(it.prediction))} ({it.count})"
            for it in metrics.most_confused[:2]
        )


def _part_lines(report: Report) -> Iterator[str]:
    if report.comparison:
        for part in ("linear", "encoder"):
            yield f"{PARTS[part]}: {_scores(report.parts[part])}"
    yield from filter(None, (comparison_sentence(report), cascade_sentence(report), advice(report)))


def _threshold_lines(report: Report) -> Iterator[str]:
    if isinstance(report.metrics, MultiLabelMetrics):
        yield (
            "a text gets each label whose probability reaches its threshold, chosen on validation texts: "
            f"{report.metrics.predicted_per_text:.2f} labels a text; --threshold replaces all thresholds by one"
        )
    elif report.suggested_threshold:
        yield (
            f"answers from probability {report.suggested_threshold:.3f} up (--threshold), "
            f"{report.answered_fraction:.0%} of all, are right {WANTED_ACCURACY:.0%} of the time, on topics that "
            "training has seen"
        )
    elif report.suggested_threshold == 0:
        yield f"no threshold is needed: {WANTED_ACCURACY:.0%} of all answers or more are right"
    elif report.metrics.num_examples < FEWEST_ANSWERS:
        yield f"no threshold is suggested: that takes {FEWEST_ANSWERS} answers"
    else:
        yield (
            f"no threshold reaches {WANTED_ACCURACY:.0%} precision while answering at least {FEWEST_ANSWERED:.0%} of "
            f"the texts, {FEWEST_ANSWERS} at least"
        )
    if report.guarantees:
        yield from report.guarantees.sentences()


def calibration(report: Report) -> tuple[str, ...]:
    """Calibration in words: the gist, then how to read a probability."""
    ece, bins = report.metrics.ece, report.metrics.calibration
    number = sum(bins.texts)
    error = f"(calibration error {ece:.3f})"
    if number < FEW_TEXTS:
        return "too few texts to judge", f"calibration cannot be judged on {number:,} texts {error}"
    if ece <= WELL_CALIBRATED:
        return "well calibrated", f"where a probability says 80%, about 80% are right {error}"
    total = np.dot(bins.texts, np.subtract(bins.confidence, bins.accuracy))
    direction = "too sure" if total > 0 else "too cautious"
    off = f"{100 * ece:.1f} points on average, {direction} by {100 * abs(total) / number:.1f} on the whole {error}"
    if ece <= FAIRLY_CALIBRATED:
        return "fairly calibrated", f"probabilities are about right: off by {off}"
    return "poorly calibrated", f"do not rely on probabilities: they are off by {off}"


def comparison_sentence(report: Report) -> str:
    """The encoder's contribution, and which part decides; empty without both parts."""
    if report.comparison is None:
        return ""
    points, (low, high) = 100 * report.comparison.combined_minus_linear, report.comparison.interval
    # No sign before a rounded zero.
    by = (
        f"{abs(points):.1f} points below"
        if points <= -0.05
        else f"{max(points, 0):+.1f} points over"
    )
    sure = "sure" if report.comparison.is_sure else "not sure"
    gain = (
        f"{by} the linear model alone ({sure}; 95% interval {100 * low:+.1f} to {100 * high:+.1f})"
    )
    return f"{gain}; {_weights(report.mixture_shares)}" if report.mixture_shares else gain


def cascade_sentence(report: Report) -> str:
    """The fraction of texts that skip the encoder; empty without a cascade."""
    if not report.cascade:
        return ""
    skipped, gate = report.cascade["skipped_fraction"], report.cascade["gate"]
    return f"the linear model alone answers {skipped:.0%} of the texts, those where its probability is {gate:g} or more"


def _weights(mixture_shares: Mapping[str, float]) -> str:
    names = {"linear": "the linear model", "encoder": "the encoder"}
    shares = sorted(((share, names[part]) for part, share in mixture_shares.items()), reverse=True)
    share, larger = shares[0]
    if share >= NEARLY_ALL:
        return f"{larger} decides nearly alone ({f'{share:.1%}' if share < 1 else '100%'} of the weight)"
    if share >= MOSTLY:
        return f"{larger} has most of the weight ({share:.0%})"
    return f"both weigh about the same ({', '.join(f'{name} {it:.0%}' for it, name in shares)})"


def advice(report: Report) -> str:
    """A next step, by the scores; empty where the classifier is the best one."""
    comparison, reference = report.comparison, report.linear_reference
    if comparison and not (comparison.is_sure and comparison.combined_minus_linear > 0):
        return f"the linear model alone may do as well, and trains in seconds: {LINEAR_ALONE}"
    if (
        reference
        and reference[report.metrics.score_name] > report.scores[report.metrics.score_name]
    ):
        if "linear" not in report.parts:
            return (
                f"the TF-IDF baseline is more accurate here; a linear model alone: {LINEAR_ALONE}"
            )
        return "the TF-IDF baseline is more accurate here; more labelled texts would help most"
    return ""


def part_rows(report: Report) -> list[tuple[str, float, Interval | None]]:
    """The score and its interval of the classifier, its parts and the TF-IDF baseline; nothing without both parts."""
    if report.comparison is None:
        return []
    key, scores = (
        report.metrics.score_name,
        {name: report.parts[part] for part, name in PARTS.items()},
    )
    if report.linear_reference:
        scores["TF-IDF baseline"] = dict(report.linear_reference)
    return [(name, it[key], it.get(f"{key}_interval")) for name, it in scores.items()]


def length_note(report: Report) -> str:
    """The fractions of the texts that are longer than the classifier reads, and of unknown tokens."""
    reader = "encoder" if "encoder" in report.parts else "linear model"
    longer = f"texts longer than the {reader} reads {report.truncated_fraction:.1%}"
    return f"{longer}, unknown tokens {report.unknown_fraction:.1%}"


def _reservations(report: Report) -> Iterator[str]:
    if report.split == "validation":
        yield VALIDATION_NOTE
    if report.num_refitted:
        texts = "the text" if report.num_refitted == 1 else f"the {report.num_refitted:,} texts"
        before = "; the scores here are from before" if report.split == "validation" else ""
        yield f"at the end, the linear model was fitted again, with {texts} held out for validation{before}"
    if unseen := report.metrics.unseen_labels:
        count = sum(unseen.values())
        have = (
            "1 text has a label that never occurs"
            if count == 1
            else f"{count:,} texts have labels that never occur"
        )
        left_out = "they count as mistakes, and are left out of the loss and the calibration error"
        yield f"{have} in the training data ({listed(list(unseen))}): {left_out}"


def reference_note(reference: Mapping[str, float]) -> str:
    """The numbers of texts and features that the TF-IDF baseline was trained on, where not on all."""
    parts = [
        f"{reference[what]:,} of {reference[f'of_{what}']:,} {what}"
        for what in ("texts", "features")
        if reference[what] < reference[f"of_{what}"]
    ]
    return f", trained on {' and '.join(parts)}" if parts else ""


def _class_table(report: Report) -> Iterator[str]:
    columns = {"precision": "precision", "recall": "recall", "f1": "F1"}
    if isinstance(report.metrics, MultiLabelMetrics):
        columns |= {"average_precision": "average precision", "threshold": "threshold"}
    rows = [["class", *columns.values(), "examples"]]
    for name, scores in report.metrics.per_class.items():
        values = [score_text(getattr(scores, key)) for key in columns]
        rows.append([name_text(name, limit=LONGEST_NAME), *values, str(scores.support)])
    yield from aligned(rows)


def _confusion_lines(report: Report) -> Iterator[str]:
    if not isinstance(report.metrics, SingleLabelMetrics):
        return
    matrix, num_classes = report.metrics.confusion_matrix, len(report.label_names)
    if num_classes > LARGEST_TABLE or not matrix:
        has = "it" if matrix else "the pairs most often confused"
        yield f"no matrix here: {num_classes} classes are more than the {LARGEST_TABLE} that fit; report.html has {has}"
        return
    rows = [["", *(f"{number:3}" for number in range(1, num_classes + 1))]]
    for number, (name, row) in enumerate(zip(report.label_names, matrix, strict=True), start=1):
        rows.append(
            [
                f"{number:2} {name_text(name, limit=LONGEST_NAME)}",
                *(str(count or ".") for count in row),
            ]
        )
    yield from aligned(rows)


def _mistake_lines(report: Report) -> Iterator[str]:
    for error in report.worst_errors[:MOST_MISTAKES]:
        label = ", ".join(map(name_text, error.labelled))
        answer = (
            f"{error.kind} {name_text(error.answer)}"
            if error.kind
            else f"{name_text(error.answer)}, not {label}"
        )
        yield f"{error.probability:.2f} {answer}: {shown(error.text, limit=90)}"


def _scores(scores: Mapping[str, Any]) -> str:
    """Scores as in JSON, with their intervals in brackets."""
    intervals = {key: scores.get(f"{key}_interval") for key in SCORE_NAMES if key in scores}
    return ", ".join(
        f"{SCORE_NAMES[key]} {scores[key]:.4f}"
        + (" [{:.3f}, {:.3f}]".format(*interval) if interval else "")
        for key, interval in intervals.items()
    )


def capitalized(words: str) -> str:
    """The words with the first letter in upper case."""
    return f"{words[:1].upper()}{words[1:]}"


def score_text(score: float | None) -> str:
    """A score with three digits, a dash for None."""
    return "-" if score is None else f"{score:.3f}"


def name_text(name: str, *, limit: int = 80) -> str:
    """A class name, short and on one line."""
    return printable(shortened(name, limit=limit))
