"""Doubtful labels, and the CSV tables in which a person corrects them.

Confident learning: Northcutt, Jiang and Chuang, "Confident Learning: Estimating Uncertainty in Dataset Labels" (2021),
https://arxiv.org/abs/1911.00068. The probabilities have to come from a classifier that has not seen the label.

A row names its split, file and line, so that a corrected cell of the column `label` can be brought back to its data
(`data/corrections`); the text is as it was read, so that a row that has changed since is noticed.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from encoder_cls.data.corrections import COLUMNS
from encoder_cls.system.display import csv_row

BYTE_ORDER_MARK = "\ufeff"  # by which spreadsheets know UTF-8


def doubtful_rows(probabilities: NDArray[np.float64], labels: NDArray[Any]) -> tuple[int, ...]:
    """The indices of the texts whose label is doubtful: as many as are wrong by estimate, the least probable ones.

    Args:
        probabilities: (texts, classes).
        labels: (texts,), or 1 where a text has a label, (texts, labels): each label is then a question with two
            answers. Labels beyond the classes have no probability, and are not doubted.
    """
    if labels.ndim == 1:
        return tuple(np.flatnonzero(_are_doubtful(probabilities, labels)).tolist())
    is_doubtful = np.zeros(len(labels), dtype=bool)
    for has_label, probability in zip((labels > 0).T.astype(np.int64), probabilities.T, strict=False):
        is_doubtful |= _are_doubtful(np.stack([1 - probability, probability], axis=1), has_label)
    return tuple(np.flatnonzero(is_doubtful).tolist())


def _are_doubtful(probabilities: NDArray[np.float64], labels: NDArray[np.int64]) -> NDArray[np.bool_]:
    confidence = self_confidence(probabilities, labels)
    could_be = np.flatnonzero((labels < probabilities.shape[1]) & (probabilities.argmax(axis=1) != labels))
    in_order = could_be[np.argsort(confidence[could_be], kind="stable")]
    is_doubtful = np.zeros(len(labels), dtype=bool)
    is_doubtful[in_order[: estimated_errors(probabilities, labels)]] = True
    return is_doubtful


def self_confidence(probabilities: NDArray[np.float64], labels: NDArray[np.int64]) -> NDArray[np.float64]:
    """The probability of each label, (texts,), 0 of one beyond the classes: the lower, the more doubtful.

    The paper's normalized margin ranks worse where a text has two probable classes (docs/experiments/accuracy.md).
    """
    is_known = labels < probabilities.shape[1]
    confidence: NDArray[np.float64] = np.zeros(len(labels))
    confidence[is_known] = probabilities[is_known, labels[is_known]]
    return confidence


def estimated_errors(probabilities: NDArray[np.float64], labels: NDArray[np.int64]) -> int:
    """The estimated number of wrong labels: those off the diagonal of the paper's confident joint.

    A text is confidently of the most probable class among those that are at least as probable as they are, on average,
    where they are the label. Labels beyond the classes are left out.
    """
    num_classes = probabilities.shape[1]
    is_known = labels < num_classes
    probabilities, labels = probabilities[is_known], labels[is_known]
    counts = np.bincount(labels, minlength=num_classes)
    of_label = probabilities[np.arange(len(labels)), labels]
    thresholds = np.bincount(labels, weights=of_label, minlength=num_classes) / np.maximum(1, counts)
    is_confident = (probabilities >= thresholds) & (counts > 0)
    guesses = np.where(is_confident, probabilities, -1.0).argmax(axis=1)
    any_confident = is_confident.any(axis=1)
    right = np.bincount(labels[any_confident & (guesses == labels)], minlength=num_classes)
    wrong = np.bincount(labels[any_confident & (guesses != labels)], minlength=num_classes)
    # The paper's calibration: of each class as many as have its label, in these proportions.
    return round(float((wrong / np.maximum(1, right + wrong) * counts).sum()))


class LabelRow(NamedTuple):
    """A row whose label is doubtful or wrong; several labels are joined.

    Attributes:
        split: the name of the split.
        where: file and line, as `data/rows` writes it.
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


def by_score(rows: Iterable[LabelRow]) -> list[LabelRow]:
    """The most doubtful first."""
    return sorted(rows, key=lambda row: -row.score)


def label_table(rows: Iterable[LabelRow]) -> Iterator[bytes]:
    """CSV with the columns of `data.corrections`, the most doubtful rows first."""
    return csv_table(
        COLUMNS,
        (
            [row.split, *file_and_line(row.where), row.text, row.label, row.suggested, f"{row.score:.4f}"]
            for row in by_score(rows)
        ),
    )


def csv_table(columns: Sequence[str], rows: Iterable[Sequence[str]]) -> Iterator[bytes]:
    """CSV for spreadsheets, line by line."""
    yield f"{BYTE_ORDER_MARK}{csv_row(columns)}\r\n".encode()
    for row in rows:
        yield f"{csv_row(row)}\r\n".encode("utf-8", "backslashreplace")


def file_and_line(where: str) -> tuple[str, str]:
    """A location as `data/rows` writes it; the line is empty where the file is one row."""
    file, _, line = where.rpartition(":")
    return (file, line) if file and line.isascii() and line.isdigit() else (where, "")
