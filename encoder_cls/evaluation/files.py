"""The files of an `eval` folder.

To import it is cheap: commands ask for the names of the files before any work.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from encoder_cls.data.corrections import COLUMNS
from encoder_cls.data.split import Split
from encoder_cls.evaluation.labels import BYTE_ORDER_MARK, csv_line, file_and_line
from encoder_cls.evaluation.metrics import answers_of
from encoder_cls.evaluation.report import MultiLabelReport
from encoder_cls.inference.task import Logits, sigmoid
from encoder_cls.system.display import json_text
from encoder_cls.system.files import reporting_os_errors, to_json, write_file

if TYPE_CHECKING:
    from encoder_cls.data.split import Split
    from encoder_cls.evaluation.report import AnyReport
    from encoder_cls.inference.task import Logits

SEPARATOR = "|"  # of the labels in a cell


def given_labels(report: MultiLabelReport, logits: Logits) -> NDArray[np.bool_]:
    """Which labels the texts of a report get, (texts, labels)."""
    thresholds = [it.threshold for it in report.metrics.per_class.values() if it.threshold is not None]
    return answers_of(logits, thresholds, num_labels=len(report.label_names))


def multi_label_mistakes(report: MultiLabelReport, split: Split, logits: Logits) -> NDArray[np.int64]:
    """The indices of the examples that do not get just the labels that they have."""
    return np.flatnonzero((given_labels(report, logits) != (_padded(report, split) > 0)).any(axis=1))


def multi_label_rows(
    report: MultiLabelReport, split: Split, logits: Logits, rows: Sequence[int] | NDArray[np.int64]
) -> Iterator[bytes]:
    """CSV with the columns of `label_files`, the rows first whose `score` is largest; labels are separated by `|`.

    `suggested` is what the classifier answers, and `score` how sure it is of the answer that differs most from the
    labels: from 0 to 1.

    Args:
        report: of these examples.
        split: the examples.
        logits: what the classifier made of them, (texts, classes).
        rows: the indices of the examples that are wanted.
    """
    yield BYTE_ORDER_MARK.encode() + csv_line(COLUMNS)
    answers, has_label, names = given_labels(report, logits), _padded(report, split) > 0, report.label_names
    probabilities = np.pad(sigmoid(logits), ((0, 0), (0, len(names) - logits.shape[1])))
    differences = np.where(answers == has_label, 0.0, np.abs(has_label - probabilities)).max(axis=1)
    chosen = np.asarray(rows, dtype=np.int64)
    for row in chosen[np.argsort(-differences[chosen], kind="stable")].tolist():
        file, line = file_and_line(split.where[row])
        label, suggested = (
            SEPARATOR.join(names[it] for it in np.flatnonzero(found[row])) for found in (has_label, answers)
        )
        yield csv_line([report.split, file, line, split.texts[row], label, suggested, f"{differences[row]:.4f}"])


def multi_label_lines(report: MultiLabelReport, split: Split, logits: Logits) -> Iterator[bytes]:
    """Each example as a line of JSON: where it is, its labels and those that it gets, the most probable first."""
    answers, has_label, names = given_labels(report, logits), _padded(report, split) > 0, report.label_names
    probabilities = sigmoid(logits)
    for row, (text, where) in enumerate(zip(split.texts, split.where, strict=True)):
        given = sorted(np.flatnonzero(answers[row]).tolist(), key=lambda number: -probabilities[row, number])
        record: dict[str, Any] = {
            "where": where,
            "text": text,
            "labels": [names[number] for number in np.flatnonzero(has_label[row])],
            "predictions": [names[number] for number in given],
            "probabilities": [float(probabilities[row, number]) for number in given],
        }
        yield (json_text(record) + "\n").encode()


def _padded(report: MultiLabelReport, split: Split) -> NDArray[Any]:
    """The labels of examples, also where none of them has one of the last, (texts, labels)."""
    return np.pad(split.labels, ((0, 0), (0, len(report.label_names) - split.labels.shape[1])))


REPORT_HTML = "report.html"
REPORT_JSON = "report.json"
PREDICTIONS = "predictions.jsonl"
CONFUSION_MATRIX = "confusion_matrix.png"
MISTAKES = "mistakes.csv"
DOUBTFUL_LABELS = "doubtful_labels.csv"
CHANGED_ANSWERS = "changed_answers.csv"
REPORT_FILES = (
    REPORT_HTML,
    REPORT_JSON,
    PREDICTIONS,
    CONFUSION_MATRIX,
    MISTAKES,
    DOUBTFUL_LABELS,
    CHANGED_ANSWERS,
)


def write_report(
    folder: Path, report: AnyReport, split: Split, logits: Logits, *, run_name: str, config_yaml: str = ""
) -> None:
    """Write `REPORT_FILES`.

    The plot of the confusion matrix only where the report has one, which there is none of where texts have several
    labels; doubtful labels only where labels were checked, changed answers only where a run goes on from another: what
    an earlier report left of these is removed.

    Args:
        folder: where to.
        report: the report.
        split: the examples that were scored.
        logits: what the classifier made of them, (texts, classes).
        run_name: whose classifier it is; equal runs have equal reports, whatever their folders are called.
        config_yaml: of that run; empty where there is none.

    Raises:
        EncoderClsError: the disk refuses.
    """
    from datetime import date

    from encoder_cls.evaluation import plots
    from encoder_cls.evaluation.base_run import changed_table
    from encoder_cls.evaluation.labels import label_rows, label_table, mistakes
    from encoder_cls.evaluation.page import render_multi_label_report, render_report
    from encoder_cls.evaluation.report import MultiLabelReport

    title = f"{run_name}: report on {report.split}"
    plot, doubtful, changed = None, None, None
    if isinstance(report, MultiLabelReport):
        html = render_multi_label_report(title, report, split, logits, config_yaml=config_yaml, written=date.today())
        lines = multi_label_lines(report, split, logits)
        wrong = multi_label_rows(report, split, logits, multi_label_mistakes(report, split, logits))
        if report.doubtful_labels is not None:
            doubtful = multi_label_rows(report, split, logits, report.doubtful_labels)
    else:
        html = render_report(title, report, split, logits, config_yaml=config_yaml, written=date.today())
        lines = _prediction_lines(split, logits, report.label_names)
        rows = label_rows(split, logits, report.label_names, mistakes(split, logits), name=report.split)
        wrong = label_table(rows)
        if report.doubtful_labels is not None:
            rows = label_rows(split, logits, report.label_names, report.doubtful_labels, name=report.split)
            doubtful = label_table(rows)
        if report.metrics.confusion_matrix:
            plot = plots.to_png(plots.confusion(report.metrics.confusion_matrix, report.label_names))
        if report.former_answers:
            changed = changed_table(report.former_answers.changed)
    write_file(folder / PREDICTIONS, lines)
    _write_or_remove(folder / CONFUSION_MATRIX, plot)
    _write_or_remove(folder / DOUBTFUL_LABELS, doubtful)
    _write_or_remove(folder / CHANGED_ANSWERS, changed)
    write_file(folder / MISTAKES, wrong)
    write_file(folder / REPORT_HTML, html.encode())
    write_file(folder / REPORT_JSON, to_json(report.to_dict()))


def _write_or_remove(path: Path, content: bytes | Iterable[bytes] | None) -> None:
    """Write a file; without content remove what an earlier report left there, which would be taken for this one's."""
    if content is not None:
        write_file(path, content)
        return
    with reporting_os_errors(path, "remove"):
        path.unlink(missing_ok=True)


def _prediction_lines(split: Split, logits: Logits, label_names: Sequence[str]) -> Iterator[bytes]:
    from encoder_cls.inference.task import softmax

    for text, where, label, row in zip(split.texts, split.where, split.labels, softmax(logits), strict=True):
        record = {
            "where": where,
            "text": text,
            "label": label_names[label],
            "prediction": label_names[row.argmax()],
            "probability": float(row.max()),
        }
        yield (json_text(record) + "\n").encode()
