"""Texts and what a classifier answers in, CSV out in which a person mends labels with a spreadsheet.

A row names its split, file and line, so that a mended cell of the column `label` can be brought back to its data
(`data/corrections`); the text stands there as it was read, so that it can be told whether it is the same still.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from encoder_cls.data.corrections import COLUMNS
from encoder_cls.data.split import Split
from encoder_cls.evaluation.label_errors import self_confidence
from encoder_cls.inference.logits import Logits, softmax
from encoder_cls.system.display import csv_row

BYTE_ORDER_MARK = "\ufeff"  # by which spreadsheets know UTF-8


class LabelRow(NamedTuple):
    """A label to look at: of which split and row it is, what the classifier would say, and how doubtful it is.

    Attributes:
        split: the name of the split.
        where: file and line, as `data/records` writes it.
        text: as it was read.
        label: the name of its class.
        suggested: the most probable class.
        score: 1 less the probability of the label.
    """

    split: str
    where: str
    text: str
    label: str
    suggested: str
    score: float


def label_rows(
    split: Split, logits: Logits, label_names: Sequence[str], rows: Sequence[int] | NDArray[np.int64], *, name: str
) -> list[LabelRow]:
    """The rows of a split that are wanted, in their order.

    Args:
        split: the examples.
        logits: what the classifier made of them, (texts, classes).
        label_names: of the classes, then of labels without a logit, whose probability is 0.
        rows: the indices of the examples that are wanted.
        name: of the split.
    """
    chosen = np.asarray(rows, dtype=np.int64)
    probabilities, labels = softmax(logits[chosen]), split.labels[chosen]
    confidence = self_confidence(probabilities, labels)
    return [
        LabelRow(
            name,
            split.where[row],
            split.texts[row],
            label_names[label],
            label_names[answer],
            float(1 - probability),
        )
        for row, label, answer, probability in zip(
            chosen.tolist(), labels.tolist(), probabilities.argmax(axis=1).tolist(), confidence, strict=True
        )
    ]


def by_score(rows: Iterable[LabelRow]) -> list[LabelRow]:
    """The most doubtful first."""
    return sorted(rows, key=lambda row: -row.score)


def label_table(rows: Iterable[LabelRow]) -> Iterator[bytes]:
    """CSV with `COLUMNS`, the most doubtful rows first."""
    yield BYTE_ORDER_MARK.encode() + csv_line(COLUMNS)
    for row in by_score(rows):
        file, line = file_and_line(row.where)
        yield csv_line([row.split, file, line, row.text, row.label, row.suggested, f"{row.score:.4f}"])


def mistakes(split: Split, logits: Logits) -> NDArray[np.int64]:
    """The indices of the examples whose label is not the answer."""
    return np.flatnonzero(logits.argmax(axis=1) != split.labels)


def file_and_line(where: str) -> tuple[str, str]:
    """A location as `data/records` writes it; the line is empty where the file is one row."""
    file, _, line = where.rpartition(":")
    return (file, line) if file and line.isascii() and line.isdigit() else (where, "")


def csv_line(fields: Sequence[str]) -> bytes:
    """A row of CSV with its line end."""
    return f"{csv_row(fields)}\r\n".encode("utf-8", "backslashreplace")
