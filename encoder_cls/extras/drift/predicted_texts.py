"""Predict texts as they are read, and keep their figures alone."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from encoder_cls import Classifier, Prediction, Row, predicted_rows
from encoder_cls.errors import DataError
from encoder_cls.extras.drift.dates import NO_DAY, day_of, periods_of
from encoder_cls.extras.drift.expected_accuracy import SampledProbabilities
from encoder_cls.extras.drift.figures import NO_LABEL, Figures
from encoder_cls.system.disk_arrays import DiskBackedArray, DiskBackedRaggedArray
from encoder_cls.system.display import listed, shown
from encoder_cls.system.fields import has_field
from encoder_cls.system.lazy_sequences import in_chunks

# The most probabilities of the sample of texts, for all classes together; as numbers of four bytes.
MAX_SAMPLED = 10_000_000
# The most texts of that sample.
MAX_SAMPLED_TEXTS = 50_000
# The most distinct words that are counted. If there are more, half of them, the rarest, are left
# out, and counted again from 0.
MAX_WORDS = 200_000
# The number of rows whose figures are kept together.
ROWS_AT_ONCE = 1024


@dataclass(frozen=True, kw_only=True)
class PredictedTexts:
    """The figures of the texts of a source, and what is counted in them.

    Attributes:
        periods: by week or month, the earliest first; none without a column of dates.
        num_without_date: texts in no period although there is such a column.
        num_blank: texts without words, which are in no figures.
        sampled: probabilities of random texts; `sampled_in_periods` are those in each period.
        new_words: in how many texts each word outside the vocabulary is.
        new_labels: in how many texts each label is that is no class.
    """

    figures: Figures
    periods: dict[str, Figures]
    num_without_date: int
    num_blank: int
    sampled: SampledProbabilities
    sampled_in_periods: list[SampledProbabilities]
    new_words: Counter[str]
    new_labels: Counter[str]


# What is kept of each text, and its type.
COLUMNS: Mapping[str, type[Any]] = {
    "confidence": np.float32,
    "num_words": np.int32,
    "unknown_words": np.int32,
    "is_unfamiliar": np.bool_,
    "is_right": np.int8,
    "group": np.int64,
    "day": np.int32,
}


def predict_texts(
    classifier: Classifier, source: str, *, group_column: str | None, date_column: str | None
) -> PredictedTexts:
    """Predict the texts of files.

    Rows with one value of `group_column`, or else equal texts, belong together. Labels are used
    where there are some.

    Raises:
        DataError: the source is missing or malformed, or has no text, or no dates.
    """
    kept = {name: DiskBackedArray(dtype) for name, dtype in COLUMNS.items()}
    classes = _PredictedClasses(classifier.label_names)
    sample = _Sample(len(classifier.label_names))
    new_words: Counter[str] = Counter()
    labels_seen: Counter[str] = Counter()
    num_blank = 0

    for chunk in in_chunks(predicted_rows(classifier, source), ROWS_AT_ONCE):
        with_words = [each for each in chunk if each[1].reason != "blank"]
        num_blank += len(chunk) - len(with_words)
        rows = [row for row, _ in with_words]
        predictions = [prediction for _, prediction in with_words]
        labels_of = [_known_labels(row, classifier) for row in rows]
        predicted_of = [_predicted_labels(prediction) for prediction in predictions]

        values: dict[str, list[Any]] = {
            "confidence": [each.prediction_probability for each in predictions],
            "num_words": [each.num_words for each in predictions],
            "unknown_words": [each.unknown_words for each in predictions],
            "is_unfamiliar": [bool(each.unfamiliar) for each in predictions],
            "is_right": list(map(_is_right, labels_of, predicted_of)),
            "group": [_group(row, group_column) for row in rows],
            "day": [_day(row, date_column) for row in rows],
        }
        for name, array in kept.items():
            array.append(values[name])

        classes.append(predicted_of)
        for prediction in predictions:
            sample.add(prediction)
        for labels in labels_of:
            labels_seen.update(labels or ())
        with_new_words = [row for row, prediction in with_words if prediction.unknown_words]
        _count_new_words(new_words, with_new_words, classifier)

    arrays = {name: array.array() for name, array in kept.items()}
    num_texts = len(arrays["confidence"])
    if not num_texts:
        raise DataError(source, "no text with a word")

    # Labels are not used if all are of another kind, such as those before `data.label_map`.
    new_labels = {
        label: count for label, count in labels_seen.items() if label not in classifier.label_names
    }
    if len(new_labels) == len(labels_seen):
        arrays["is_right"] = np.full(num_texts, NO_LABEL, dtype=np.int8)
    if classifier.familiarity is None:
        arrays["is_unfamiliar"] = np.zeros(0, dtype=bool)

    figures = Figures(
        num_predicted=classes.count(np.ones(num_texts, dtype=bool)),
        confidence=arrays["confidence"],
        num_words=arrays["num_words"],
        unknown_words=arrays["unknown_words"],
        is_unfamiliar=arrays["is_unfamiliar"],
        is_right=arrays["is_right"],
        groups=arrays["group"],
    )

    days = arrays["day"]
    members_of = periods_of(days)
    if date_column is not None and not members_of:
        what = f"column {shown(date_column)} is empty in each row"
        raise DataError(source, what, "name the column of dates with --by")

    sampled = sample.drawn()
    return PredictedTexts(
        figures=figures,
        periods={
            period: figures.subset(np.flatnonzero(is_member), classes.count(is_member))
            for period, is_member in members_of.items()
        },
        num_without_date=int((days == NO_DAY).sum()) if members_of else 0,
        num_blank=num_blank,
        sampled=sampled,
        sampled_in_periods=[sampled.among(is_member) for is_member in members_of.values()],
        new_words=new_words,
        new_labels=Counter(new_labels),
    )


def _known_labels(row: Row, classifier: Classifier) -> tuple[str, ...] | None:
    """The labels of a row; None if it has no label. An empty list says that none is right."""
    text_format = classifier.text_format
    cell = row.value(text_format.label_column)
    labels = row._replace(label=cell).labels(text_format.label_separator)
    is_list = classifier.is_multi_label and isinstance(cell, list | tuple)
    return tuple(labels) if labels or is_list else None


def _predicted_labels(prediction: Prediction) -> tuple[str, ...]:
    if prediction.reason == "none" and prediction.none_label is not None:
        return (prediction.none_label,)
    return prediction.all_labels


def _is_right(labels: tuple[str, ...] | None, predicted: tuple[str, ...]) -> int:
    if labels is None:
        return NO_LABEL
    return int(set(labels) == set(predicted))


def _group(row: Row, group_column: str | None) -> int:
    group = row.value(group_column) if group_column else None
    if group is None or group == "":
        return hash(("text", row.text))
    return hash(("group", str(group)))


def _day(row: Row, date_column: str | None) -> int:
    if date_column is None:
        return NO_DAY
    record = row.record or {}
    if not has_field(record, date_column):
        what = f"no column {shown(date_column)}; it has {listed(list(record), most=20)}"
        raise DataError(row.where, what, "name the column of dates with --by")
    value = row.value(date_column)
    try:
        return day_of(value)
    except ValueError:
        what = f"column {shown(date_column)} has {shown(str(value))}, which is no date"
        hint = "write dates such as 2026-06-30 or 30.06.2026, or leave the cell empty"
        raise DataError(row.where, what, hint) from None


def _count_new_words(counts: Counter[str], rows: Iterable[Row], classifier: Classifier) -> None:
    for row in rows:
        counts.update(set(classifier.unknown_words(row.text)))
        if len(counts) > MAX_WORDS:
            frequent = counts.most_common(MAX_WORDS // 2)
            counts.clear()
            counts.update(dict(frequent))


class _PredictedClasses:
    """The classes that are predicted for texts."""

    def __init__(self, label_names: Sequence[str]) -> None:
        self._numbers = {name: number for number, name in enumerate(label_names)}
        self._predicted = DiskBackedRaggedArray(np.int32)

    def append(self, predicted_of: Sequence[Sequence[str]]) -> None:
        """Add the labels of texts."""
        numbers = [self._numbers[label] for predicted in predicted_of for label in predicted]
        self._predicted.append(np.array(numbers, dtype=np.int32), list(map(len, predicted_of)))

    def count(self, is_member: NDArray[np.bool_]) -> NDArray[np.int64]:
        """How many of these texts, (texts,), are predicted to have each class, (classes,)."""
        numbers, offsets = self._predicted.arrays()
        of_member = np.repeat(is_member, np.diff(offsets))
        return np.bincount(numbers[of_member], minlength=len(self._numbers))


class _Sample:
    """A random sample of a stream, by Vitter's algorithm R (1985)."""

    def __init__(self, num_classes: int) -> None:
        self._most = min(MAX_SAMPLED_TEXTS, max(1, MAX_SAMPLED // num_classes))
        self._random = np.random.default_rng(0)
        self._num_seen = 0
        self._probabilities: list[NDArray[np.float32]] = []
        self._rows: list[int] = []

    def add(self, prediction: Prediction) -> None:
        row = self._num_seen
        self._num_seen += 1
        place = row
        if row >= self._most:
            place = int(self._random.integers(self._num_seen))
            if place >= self._most:
                return

        probabilities = np.fromiter(prediction.probabilities.values(), dtype=np.float32)
        if place == len(self._rows):
            self._probabilities.append(probabilities)
            self._rows.append(row)
        else:
            self._probabilities[place] = probabilities
            self._rows[place] = row

    def drawn(self) -> SampledProbabilities:
        return SampledProbabilities(np.array(self._rows), np.stack(self._probabilities))
