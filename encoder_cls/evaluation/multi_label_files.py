"""Texts with several labels each and what a classifier answers in; lines of predictions, and CSV for mending, out."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from encoder_cls.data.corrections import COLUMNS
from encoder_cls.data.split import Split
from encoder_cls.evaluation.label_files import BYTE_ORDER_MARK, csv_line, file_and_line
from encoder_cls.evaluation.multi_label_metrics import answers_of
from encoder_cls.evaluation.multi_label_report import MultiLabelReport
from encoder_cls.inference.logits import Logits, sigmoid
from encoder_cls.system.display import json_text

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
