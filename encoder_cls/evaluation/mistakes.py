"""Answers to labelled texts: mistakes, doubtful labels, and tables to correct labels in.

Doubtful labels come from confident learning (Northcutt, Jiang and Chuang, 2021, https://arxiv.org/abs/1911.00068), by a
classifier that has not seen the label.
"""

from __future__ import annotations

from codecs import BOM_UTF8
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from functools import cached_property, reduce
from itertools import chain
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from encoder_cls.classifier.explain import WordWeight
from encoder_cls.config.schema import DataConfig
from encoder_cls.data.corrections import ADDED, added_name
from encoder_cls.data.dataset import Split
from encoder_cls.data.rows import Columns, Reading, Row
from encoder_cls.data.sources import files_named, read_again
from encoder_cls.data.text_files import CsvForm, form_of
from encoder_cls.metrics.classification import answers_of, padded
from encoder_cls.metrics.logits import Logits, task_of
from encoder_cls.system.display import cell, csv_row, guarded

WORST_MISTAKES = 20  # kept in a report
SEPARATOR = "|"  # of several labels in a cell
SPREADSHEET = CsvForm()


@dataclass(frozen=True, kw_only=True)
class Mistake:
    """A wrong answer to a text; multi-label, one wrong or one missed label.

    Attributes:
        where: the file and line.
        labelled: the labels of the text.
        of_task: label and answer as JSON values, which differ by task.
        likely_mislabelled: whether the label, rather than the answer, seems to be wrong.
        words: the words' contributions to the answer; empty where explaining would have taken too long.
    """

    text: str
    where: str
    labelled: tuple[str, ...]
    answer: str
    probability: float
    of_task: Mapping[str, Any]
    likely_mislabelled: bool
    words: Sequence[WordWeight]

    @property
    def kind(self) -> str:
        """Multi-label, `missed` or `given`."""
        return {True: "missed", False: "given", None: ""}[self.of_task.get("is_missed")]

    def to_dict(self) -> dict[str, Any]:
        """JSON values."""
        return {
            "text": self.text,
            "where": self.where,
            **self.of_task,
            "probability": self.probability,
            "likely_mislabelled": self.likely_mislabelled,
            "words": [asdict(word) for word in self.words],
        }


class LabelRow(NamedTuple):
    """A row to review, whose label is doubtful or is not the answer; several labels are joined."""

    split: str
    where: str  # as `data/rows` writes it, to find the row of a corrected label
    text: str  # as it was read, to notice a row that has changed since
    label: str
    suggested: str
    score: float  # 1 less the probability of the label


@dataclass(frozen=True, kw_only=True)
class Answered:
    """The answers of a classifier to the texts of a split."""

    name: str
    split: Split
    logits: Logits  # (texts, classes)
    label_names: tuple[str, ...]  # as in `compute_metrics`
    thresholds: tuple[float, ...] = ()  # multi-label

    @cached_property
    def labels(self) -> NDArray[Any]:
        """Class numbers, (texts,); multi-label, whether a text has a label, (texts, labels)."""
        labels = self.split.labels
        return padded(labels, len(self.label_names)) > 0 if self.split.is_multi_label else labels

    @cached_property
    def probabilities(self) -> NDArray[np.float64]:
        """Probabilities of the classes, (texts, classes)."""
        return task_of(self.split.labels).probabilities(self.logits)

    @cached_property
    def answers(self) -> NDArray[Any]:
        """Answers in the shape of `labels`."""
        return self.answers_of(self.logits)

    @cached_property
    def mistakes(self) -> NDArray[np.int64]:
        """The indices of the texts with a wrong answer, (mistakes,)."""
        return np.flatnonzero(
            (self.answers != self.labels).reshape(len(self.labels), -1).any(axis=1)
        )

    def records(self) -> Iterator[dict[str, Any]]:
        """The texts in order, with their labels and answers, as JSON values; multi-label, by probability."""
        for row, (text, where) in enumerate(zip(self.split.texts, self.split.where, strict=True)):
            probabilities, answer = self.probabilities[row], self.answers[row]
            if self.split.is_multi_label:
                given = np.flatnonzero(answer)
                given = given[np.argsort(-probabilities[given], kind="stable")]
                record = {
                    "labels": self.names(self.labels[row]),
                    "predictions": [self.label_names[number] for number in given],
                    "probabilities": probabilities[given].tolist(),
                }
            else:
                record = {
                    **self.comparison(row, answer),
                    "probability": float(probabilities[answer]),
                }
            yield {"where": where, "text": text, **record}

    def label_rows(
        self, rows: Sequence[int] | NDArray[np.int64], separator: str | None = None
    ) -> list[LabelRow]:
        """The texts with these indices, in their order."""
        separator = separator or SEPARATOR
        # The distance of each text's label from its probability, (texts,); multi-label, the largest one.
        if self.split.is_multi_label:
            distances = np.abs(self.labels - padded(self.probabilities, len(self.label_names)))
            doubt = np.where(self.answers == self.labels, 0.0, distances).max(axis=1)
        else:
            doubt = 1 - _self_confidence(self.probabilities, self.labels)
        return [
            LabelRow(
                split=self.name,
                where=self.split.where[row],
                text=self.split.texts[row],
                label=separator.join(self.names(self.labels[row])),
                suggested=separator.join(self.names(self.answers[row])),
                score=float(doubt[row]),
            )
            for row in np.asarray(rows, dtype=np.int64).tolist()
        ]

    def answers_of(self, logits: Logits) -> NDArray[Any]:
        """Answers by other logits."""
        return answers_of(logits, self.thresholds, num_labels=len(self.label_names))

    def names(self, labels: Any) -> tuple[str, ...]:
        """The labels of one text, or its answers, by name."""
        numbers = np.flatnonzero(labels) if self.split.is_multi_label else [labels]
        return tuple(self.label_names[number] for number in numbers)

    def worst_mistakes(self) -> list[tuple[int, int]]:
        """The most confident mistakes, the surest first: the index of the text and the number of the wrong class.

        Multi-label, half of them are missed labels, as far as there are enough of both kinds: a classifier is nearly
        sure that a text lacks most labels, so missed ones would fill the list.
        """
        if not self.split.is_multi_label:
            confidence = self.probabilities[self.mistakes, self.answers[self.mistakes]]
            worst = self.mistakes[np.argsort(-confidence, kind="stable")][:WORST_MISTAKES]
            return list(zip(worst.tolist(), self.answers[worst].tolist(), strict=True))
        num_classes = self.logits.shape[1]
        is_missed = self.labels[:, :num_classes]
        is_wrong = self.answers[:, :num_classes] != is_missed
        confidence = np.where(is_wrong, np.abs(is_missed - self.probabilities), -1.0).ravel()
        order = np.argsort(-confidence, kind="stable")[: int(is_wrong.sum())]
        of_missed = is_missed.ravel()[order]
        rank_of_kind = np.where(of_missed, np.cumsum(of_missed), np.cumsum(~of_missed))
        chosen = order[np.sort(np.argsort(rank_of_kind, kind="stable")[:WORST_MISTAKES])]
        return list(
            zip(*(it.tolist() for it in np.unravel_index(chosen, is_wrong.shape)), strict=True)
        )

    def comparison(self, row: int, number: int) -> dict[str, Any]:
        """The label of a text and a wrong answer as JSON values."""
        name = self.label_names[number]
        if not self.split.is_multi_label:
            return {"label": self.label_names[self.labels[row]], "prediction": name}
        labels, answers = self.names(self.labels[row]), self.names(self.answers[row])
        return {
            "labels": labels,
            "predictions": answers,
            "label": name,
            "is_missed": bool(self.labels[row, number]),
        }


def doubtful_rows(probabilities: NDArray[np.float64], labels: NDArray[Any]) -> tuple[int, ...]:
    """The indices of the texts with the least probable labels, as many as are wrong by estimate.

    Probabilities are (texts, classes). Multi-label, (texts, labels), each label is a binary task. Labels beyond the
    classes have no probability, and are not doubted.
    """
    if labels.ndim == 1:
        is_doubtful = _are_doubtful(probabilities, labels)
    else:
        binary = zip(probabilities.T, (labels > 0).T.astype(np.int64), strict=False)
        is_doubtful = reduce(
            np.logical_or,
            (_are_doubtful(np.stack([1 - it, it], axis=1), has) for it, has in binary),
        )
    return tuple(np.flatnonzero(is_doubtful).tolist())


def _are_doubtful(
    probabilities: NDArray[np.float64], labels: NDArray[np.int64]
) -> NDArray[np.bool_]:
    confidence = _self_confidence(probabilities, labels)
    could_be = np.flatnonzero(
        (labels < probabilities.shape[1]) & (probabilities.argmax(axis=1) != labels)
    )
    in_order = could_be[np.argsort(confidence[could_be], kind="stable")]
    is_doubtful = np.zeros(len(labels), dtype=bool)
    is_doubtful[in_order[: estimated_errors(probabilities, labels)]] = True
    return is_doubtful


def _self_confidence(
    probabilities: NDArray[np.float64], labels: NDArray[np.int64]
) -> NDArray[np.float64]:
    """The probability of each label, (texts,), 0 for labels beyond the classes."""
    # The paper's normalized margin ranks worse where a text has two probable classes (docs/experiments/accuracy.md).
    last = probabilities.shape[1] - 1
    of_labels: NDArray[np.float64] = probabilities[np.arange(len(labels)), np.minimum(labels, last)]
    return np.where(labels <= last, of_labels, 0.0)


def estimated_errors(probabilities: NDArray[np.float64], labels: NDArray[np.int64]) -> int:
    """The estimated number of wrong labels: those off the diagonal of the paper's confident joint.

    A text is confidently of the most probable class among those whose probability is at least their mean over the
    texts with this label.
    """
    num_classes = probabilities.shape[1]
    is_known = labels < num_classes
    probabilities, labels = probabilities[is_known], labels[is_known]
    counts = np.bincount(labels, minlength=num_classes)
    of_label = probabilities[np.arange(len(labels)), labels]
    thresholds = np.bincount(labels, weights=of_label, minlength=num_classes) / np.maximum(
        1, counts
    )
    is_confident = (probabilities >= thresholds) & (counts > 0)
    guesses = np.where(is_confident, probabilities, -1.0).argmax(axis=1)
    any_confident = is_confident.any(axis=1)
    right = np.bincount(labels[any_confident & (guesses == labels)], minlength=num_classes)
    wrong = np.bincount(labels[any_confident & (guesses != labels)], minlength=num_classes)
    # The paper's calibration: of each class as many as have its label, in these proportions.
    return round(float((wrong / np.maximum(1, right + wrong) * counts).sum()))


def label_tables(*tables: Sequence[LabelRow], data: DataConfig) -> list[Iterator[bytes]]:
    """CSV in the form of the data with all its columns, the most doubtful rows first.

    With corrected labels, the rows can be used as data or as `data.corrections`. Columns of an earlier review, named as
    in `ADDED`, are replaced.
    """
    reading = Reading(delimiter=data.delimiter, encoding=data.encoding)
    places = (row.where for rows in tables for row in rows)
    again = read_again(places, Columns(data.text_column, data.label_column, every=True), reading)
    files = [file for file in files_named(data.train or "") if file.is_file()]
    form = form_of(files[0], data.text_column, reading) if files else SPREADSHEET
    form = form._replace(has_mark=form.has_mark or form.is_guarded)
    return [_label_table(rows, again, data, form) for rows in tables]


def _label_table(
    rows: Iterable[LabelRow], again: Mapping[str, Row], data: DataConfig, form: CsvForm
) -> Iterator[bytes]:
    added = {name: added_name(name, data) for name in ADDED}
    records, columns, has_numbers = [], dict[str, None](), False
    for row in sorted(rows, key=lambda it: -it.score):
        read = again.get(row.where)
        file, line = file_and_line(row.where)
        number, record = "", dict.fromkeys(data.text_column, "") | {data.text_column[0]: row.text}
        if read and read.text == row.text:  # else it has changed, or is in no file
            number, record = str(read.where.row) if read.where.row >= 0 else "", read.record or {}
        has_numbers = has_numbers or number not in {"", line}
        kept = {name: cell(it) for name, it in record.items() if name not in added.values()}
        kept[data.label_column] = row.label
        columns |= dict.fromkeys(kept)
        values = (row.suggested, f"{row.score:.4f}", row.split, file, line, number)
        records.append(kept | dict(zip(added.values(), map(guarded, values), strict=True)))
    if not has_numbers:
        added.pop("row")
    names = [*(columns or (*data.text_column, data.label_column)), *added.values()]
    return csv_table(names, ([record.get(name, "") for name in names] for record in records), form)


def csv_table(
    columns: Sequence[str], rows: Iterable[Sequence[str]], form: CsvForm = SPREADSHEET
) -> Iterator[bytes]:
    """CSV for spreadsheets, line by line."""
    yield BOM_UTF8 if form.has_mark else b""  # by which spreadsheets know UTF-8
    for row in chain([columns], rows):
        line = csv_row(row, separator=form.separator, is_guarded=form.is_guarded)
        yield f"{line}\r\n".encode("utf-8", "backslashreplace")


def file_and_line(where: str) -> tuple[str, str]:
    """Split a location as `data/rows` writes it; the line is empty where the file is one row."""
    file, _, line = where.rpartition(":")
    return (file, line) if file and line.isascii() and line.isdigit() else (where, "")
