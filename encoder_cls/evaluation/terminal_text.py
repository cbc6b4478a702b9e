"""A report as text for a terminal."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from encoder_cls.evaluation.findings import (
    SCORE_KINDS,
    TEXT_SECTIONS,
    Finding,
    Kind,
    Sections,
    name_text,
    sections_of,
    sentences,
)
from encoder_cls.evaluation.split_evaluation import SplitEvaluation
from encoder_cls.metrics.classification import MultiLabelMetrics, SingleLabelMetrics
from encoder_cls.system.display import aligned, capitalized, shown


def summary_text(evaluation: SplitEvaluation, findings: Sequence[Finding]) -> str:
    """The findings without titles, as `train` prints them at its end."""
    lines = [_first_line(evaluation, findings)]
    for section_lines in _summary(evaluation, findings).values():
        lines += [f"  {line}" for line in section_lines]
    return "\n".join(lines)


def full_text(
    evaluation: SplitEvaluation, findings: Sequence[Finding], *, with_tables: bool = True
) -> str:
    """The findings below titles, then tables, as `eval` prints them."""
    sections = _summary(evaluation, findings)
    if with_tables:
        sections |= table_sections(evaluation, findings)

    lines = [_first_line(evaluation, findings)]
    for title, section_lines in sections.items():
        lines.append(f"  {title}")
        lines += [f"    {line}" for line in section_lines]
    return "\n".join(lines)


def _first_line(evaluation: SplitEvaluation, findings: Sequence[Finding]) -> str:
    (size,) = sentences(findings, Kind.SIZE)
    return f"{evaluation.split_name}: {size}"


def _summary(evaluation: SplitEvaluation, findings: Sequence[Finding]) -> Sections:
    score = capitalized(evaluation.metrics.main_score.name)
    title = f"{score} on {evaluation.split_name}"
    return sections_of(findings, {title: SCORE_KINDS, **TEXT_SECTIONS})


def table_sections(evaluation: SplitEvaluation, findings: Sequence[Finding]) -> Sections:
    """What the page of a report has as tables and charts."""
    sections = {
        "Texts": sentences(findings, Kind.LENGTHS, Kind.DOUBTFUL),
        "Classes": list(_class_table(evaluation)),
        "Confusion (rows: label, columns: prediction)": list(_confusion_lines(evaluation)),
        "Most confident mistakes": list(_mistake_lines(evaluation)),
    }
    return {title: lines for title, lines in sections.items() if lines}


# The most characters of a class name in a column of a table.
MAX_NAME_LENGTH = 28


def _class_table(evaluation: SplitEvaluation) -> Iterator[str]:
    metrics = evaluation.metrics
    columns = {"precision": "precision", "recall": "recall", "f1": "F1"}
    if isinstance(metrics, MultiLabelMetrics):
        columns["average_precision"] = "average precision"
        columns["threshold"] = "threshold"

    rows = [["class", *columns.values(), "examples"]]
    for name, scores in metrics.per_class.items():
        row = [name_text(evaluation.shown(name), limit=MAX_NAME_LENGTH)]
        for key in columns:
            row.append(score_text(getattr(scores, key)))
        row.append(str(scores.support))
        rows.append(row)
    yield from aligned(rows)


# The most classes of a confusion matrix that fits in a terminal.
MAX_MATRIX_SIZE = 12


def _confusion_lines(evaluation: SplitEvaluation) -> Iterator[str]:
    if not isinstance(evaluation.metrics, SingleLabelMetrics):
        return

    num_classes = len(evaluation.label_names)
    matrix = evaluation.metrics.confusion_matrix
    if not matrix or num_classes > MAX_MATRIX_SIZE:
        instead = "the matrix"
        if not matrix:
            instead = "the pairs confused most often"
        yield (
            f"no matrix here: {num_classes} classes are more than the {MAX_MATRIX_SIZE} that fit; "
            f"report.html has {instead}"
        )
        return

    # The columns are numbered, and the names of the rows start with the same numbers.
    header = [""]
    for number in range(1, num_classes + 1):
        header.append(f"{number:3}")

    rows = [header]
    names = evaluation.label_names
    for number, (name, counts) in enumerate(zip(names, matrix, strict=True), start=1):
        row = [f"{number:2} {name_text(evaluation.shown(name), limit=MAX_NAME_LENGTH)}"]
        for count in counts:
            row.append(str(count or "."))
        rows.append(row)
    yield from aligned(rows)


# The most mistakes that are listed in a terminal.
MAX_LISTED_MISTAKES = 5


def _mistake_lines(evaluation: SplitEvaluation) -> Iterator[str]:
    for mistake in evaluation.worst_mistakes[:MAX_LISTED_MISTAKES]:
        prediction = name_text(evaluation.shown(mistake.prediction))
        if mistake.kind:
            predicted = f"{mistake.kind} {prediction}"
        else:
            labels = ", ".join(name_text(evaluation.shown(label)) for label in mistake.labels)
            predicted = f"{prediction}, not {labels}"
        yield f"{mistake.probability:.2f} {predicted}: {shown(mistake.text, limit=90)}"


def score_text(score: float | None) -> str:
    """A score with three digits; None is a dash."""
    if score is None:
        return "-"
    return f"{score:.3f}"
