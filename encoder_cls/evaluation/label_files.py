"""Texts and what a classifier answers in, CSV out in which a person mends labels with a spreadsheet.

A row names its split, file and line, so that a mended cell of the column `label` can be brought back to its data; the
text stands there as it was read, so that it can be told whether it is the same still.
"""

from __future__ import annotations

import csv
import io
from collections.abc import Iterator, Sequence

import numpy as np
from numpy.typing import NDArray

from encoder_cls.data.split import Split
from encoder_cls.inference.logits import Logits, softmax

COLUMNS = ("split", "file", "line", "text", "label", "suggested", "score")
BYTE_ORDER_MARK = "\ufeff"  # by which spreadsheets know UTF-8


def label_rows(
    split: Split, logits: Logits, label_names: Sequence[str], rows: Sequence[int] | NDArray[np.int64], *, name: str
) -> Iterator[bytes]:
    """CSV with `COLUMNS`, the rows first whose `score` is largest.

    `suggested` is what the classifier answers, and `score` how much more probable that is than the label: from 0 to 1.

    Args:
        split: the examples.
        logits: what the classifier made of them, (texts, classes).
        label_names: of the classes, then of labels without a logit, whose probability is 0.
        rows: the indices of the examples that are wanted.
        name: of the split.
    """
    yield BYTE_ORDER_MARK.encode() + csv_line(COLUMNS)
    chosen = np.asarray(rows, dtype=np.int64)
    probabilities = softmax(logits[chosen])
    labels = split.labels[chosen]
    padded = np.pad(probabilities, ((0, 0), (0, max(0, len(label_names) - probabilities.shape[1]))))
    answers = probabilities.argmax(axis=1)
    scores = padded[np.arange(len(chosen)), answers] - padded[np.arange(len(chosen)), labels]
    for at in np.argsort(-scores, kind="stable").tolist():
        row = int(chosen[at])
        file, line = file_and_line(split.where[row])
        label, suggested = label_names[labels[at]], label_names[answers[at]]
        yield csv_line([name, file, line, split.texts[row], label, suggested, f"{scores[at]:.4f}"])


def mistakes(split: Split, logits: Logits) -> NDArray[np.int64]:
    """The indices of the examples whose label is not the answer."""
    return np.flatnonzero(logits.argmax(axis=1) != split.labels)


def file_and_line(where: str) -> tuple[str, str]:
    """A location as `data/records` writes it; the line is empty where the file is one row."""
    file, _, line = where.rpartition(":")
    return (file, line) if file and line.isascii() and line.isdigit() else (where, "")


def csv_line(fields: Sequence[str]) -> bytes:
    """A row of CSV with its line end."""
    line = io.StringIO()
    csv.writer(line, lineterminator="\r\n").writerow(fields)  # what is in a line end is quoted, so in both of them
    return line.getvalue().encode("utf-8", "backslashreplace")
