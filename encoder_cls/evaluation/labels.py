"""Doubtful labels, and the tables in which a person corrects them.

Confident learning: Northcutt, Jiang and Chuang, "Confident Learning: Estimating Uncertainty in Dataset Labels" (2021),
https://arxiv.org/abs/1911.00068. The probabilities have to come from a classifier that has not seen the label.

A row names its split, file and line, so that a mended cell of the column `label` can be brought back to its data
(`data/corrections`); the text stands there as it was read, so that it can be told whether it is the same still.
"""

from __future__ import annotations

import warnings
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from encoder_cls.data.corrections import COLUMNS
from encoder_cls.data.split import Split
from encoder_cls.inference.task import Logits, softmax
from encoder_cls.system.display import csv_row


@dataclass(frozen=True, kw_only=True)
class LabelCheck:
    """What cleanlab says of labels.

    Attributes:
        doubtful: the indices of the texts whose label it takes for wrong; none where it cannot tell.
        note: why it cannot; empty where it can.
    """

    doubtful: tuple[int, ...] | None
    note: str = ""


def check_labels(probabilities: NDArray[np.float64], labels: NDArray[np.int64]) -> LabelCheck:
    """Which labels (texts,) cleanlab takes for wrong, by the probabilities (texts, classes) that the classifier gives.

    A label beyond the classes has no probability, and it says nothing of it.

    Northcutt et al., "Confident Learning: Estimating Uncertainty in Dataset Labels" (2021), https://arxiv.org/abs/1911.00068.
    """
    try:
        from cleanlab.filter import find_label_issues
    except ImportError:
        return LabelCheck(doubtful=None, note="cleanlab is not installed (pip install 'encoder-cls[labels]')")
    is_known = labels < probabilities.shape[1]
    occurring = np.unique(labels[is_known])
    if len(occurring) < 2:
        return LabelCheck(doubtful=None, note="cleanlab needs texts of two classes")
    given = probabilities[np.ix_(is_known, occurring)]  # it needs each class to occur
    given /= np.maximum(given.sum(axis=1, keepdims=True), 1e-12)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # about classes of few texts, which it leaves alone
        is_doubtful = find_label_issues(np.searchsorted(occurring, labels[is_known]), given, n_jobs=1)
    return LabelCheck(doubtful=tuple(np.flatnonzero(is_known)[is_doubtful].tolist()))


def check_several_labels(probabilities: NDArray[np.float64], labels: NDArray[np.int8]) -> LabelCheck:
    """Which texts have labels, (texts, labels), that cleanlab takes for wrong, by their probabilities (texts, classes).

    Labels beyond the classes have no probability, and it says nothing of them.
    """
    try:
        from cleanlab.filter import find_label_issues
    except ImportError:
        return LabelCheck(doubtful=None, note="cleanlab is not installed (pip install 'encoder-cls[labels]')")
    known = labels[:, : probabilities.shape[1]] > 0
    occurring = np.flatnonzero(known.any(axis=0) & ~known.all(axis=0))  # it needs texts with each, and without
    if not len(occurring):
        return LabelCheck(doubtful=None, note="cleanlab needs a label that some texts have and others have not")
    has_label, given = known[:, occurring], probabilities[:, occurring]
    is_doubtful = np.zeros(len(labels), dtype=bool)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # about labels of few texts, which it leaves alone
        for label in range(len(occurring)):  # each a question with two answers
            of_both = np.stack([1 - given[:, label], given[:, label]], axis=1)
            is_doubtful |= find_label_issues(has_label[:, label].astype(np.int64), of_both, n_jobs=1)
    return LabelCheck(doubtful=tuple(np.flatnonzero(is_doubtful).tolist()))


def self_confidence(probabilities: NDArray[np.float64], labels: NDArray[np.int64]) -> NDArray[np.float64]:
    """How probable each label is, (texts,): the lower, the more doubtful it is.

    The paper's normalized margin ranks worse where a text has two probable classes (docs/experiments/accuracy.md).

    Args:
        probabilities: (texts, classes).
        labels: (texts,); one beyond the classes has the probability 0.
    """
    is_known = labels < probabilities.shape[1]
    found: NDArray[np.float64] = np.zeros(len(labels))
    found[is_known] = probabilities[is_known, labels[is_known]]
    return found


def estimated_errors(probabilities: NDArray[np.float64], labels: NDArray[np.int64]) -> int:
    """About how many of the labels are wrong: those off the diagonal of the paper's confident joint.

    A text is confidently of the most probable class among those that are at least as probable as they are, on average,
    where they are the label; it says nothing where there is none.

    Args:
        probabilities: (texts, classes).
        labels: (texts,); one beyond the classes is not looked at.
    """
    num_classes = probabilities.shape[1]
    is_known = labels < num_classes
    probabilities, labels = probabilities[is_known], labels[is_known]
    counts = np.bincount(labels, minlength=num_classes)
    of_label = probabilities[np.arange(len(labels)), labels]
    thresholds = np.bincount(labels, weights=of_label, minlength=num_classes) / np.maximum(1, counts)
    is_confident = (probabilities >= thresholds) & (counts > 0)
    confident = np.where(is_confident, probabilities, -1.0)
    guesses, any_confident = confident.argmax(axis=1), is_confident.any(axis=1)
    right = np.bincount(labels[any_confident & (guesses == labels)], minlength=num_classes)
    wrong = np.bincount(labels[any_confident & (guesses != labels)], minlength=num_classes)
    # The paper's calibration: of each class as many as have its label, in these proportions.
    return round(float((wrong / np.maximum(1, right + wrong) * counts).sum()))


BYTE_ORDER_MARK = "\ufeff"  # by which spreadsheets know UTF-8


class LabelRow(NamedTuple):
    """A label to look at: of which split and row it is, what the classifier would say, and how doubtful it is.

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
    """A location as `data/rows` writes it; the line is empty where the file is one row."""
    file, _, line = where.rpartition(":")
    return (file, line) if file and line.isascii() and line.isdigit() else (where, "")


def csv_line(fields: Sequence[str]) -> bytes:
    """A row of CSV with its line end."""
    return f"{csv_row(fields)}\r\n".encode("utf-8", "backslashreplace")
