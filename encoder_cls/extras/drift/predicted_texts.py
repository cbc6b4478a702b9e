"""Predict texts as they are read, and keep their figures alone."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
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

# The most probabilities of the sample of texts, for all classes together; as numbers of four bytes.
MAX_SAMPLED = 10_000_000
# The most texts of that sample.
MAX_SAMPLED_TEXTS = 50_000
# The most distinct words that are counted. If there are more, half of them, the rarest, are left
# out, and counted again from 0.
MAX_WORDS = 200_000
# The number of rows whose figures are appended together.
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


def predict_texts(
    classifier: Classifier, source: str, *, group_column: str | None, date_column: str | None
) -> PredictedTexts:
    """Predict the texts of files.

    Rows with one value of `group_column`, or else equal texts, belong together. Labels are used
    where there are some.

    Raises:
        DataError: the source is missing or malformed, or has no text, or no dates.
    """
    collector = _Collector(classifier, group_column=group_column, date_column=date_column)
    for row, prediction in predicted_rows(classifier, source):
        collector.add(row, prediction)
    return collector.finished(source)


class _Collector:
    """Collects what is kept of each row."""

    def __init__(
        self, classifier: Classifier, *, group_column: str | None, date_column: str | None
    ) -> None:
        self.classifier = classifier
        self.group_column = group_column
        self.date_column = date_column
        self.num_blank = 0
        self.new_words: Counter[str] = Counter()
        self.new_labels: Counter[str] = Counter()
        self.sample = _Sample(len(classifier.label_names))
        self.has_known_label = False

        self._numbers = {name: number for number, name in enumerate(classifier.label_names)}
        self._pending: list[tuple[Any, ...]] = []
        self._arrays: tuple[DiskBackedArray[Any], ...] = tuple(
            DiskBackedArray(dtype) for dtype in _DTYPES
        )
        self._predicted = DiskBackedRaggedArray(np.int32)
        self._pending_predicted: list[list[int]] = []

    def add(self, row: Row, prediction: Prediction) -> None:
        """Keep the figures of a row."""
        if prediction.reason == "blank":
            self.num_blank += 1
            return

        if prediction.unknown_words:
            self._count_new_words(row.text)
        predicted = [self._numbers[label] for label in _predicted_labels(prediction)]
        self.sample.add(prediction)
        self._pending_predicted.append(predicted)
        self._pending.append(
            (
                prediction.prediction_probability,
                prediction.num_words,
                prediction.unknown_words,
                bool(prediction.unfamiliar),
                self._is_right(row, prediction),
                self._group(row),
                self._day(row),
            )
        )
        if len(self._pending) == ROWS_AT_ONCE:
            self._append_pending()

    def _append_pending(self) -> None:
        for array, values in zip(self._arrays, zip(*self._pending, strict=True), strict=True):
            array.append(values)
        lengths = [len(predicted) for predicted in self._pending_predicted]
        flat = [number for predicted in self._pending_predicted for number in predicted]
        self._predicted.append(np.array(flat, dtype=np.int32), lengths)
        self._pending = []
        self._pending_predicted = []

    def _count_new_words(self, text: str) -> None:
        self.new_words.update(set(self.classifier.unknown_words(text)))
        if len(self.new_words) > MAX_WORDS:
            self.new_words = Counter(dict(self.new_words.most_common(MAX_WORDS // 2)))

    def _group(self, row: Row) -> int:
        group = row.value(self.group_column) if self.group_column else None
        if group is None or group == "":
            return hash(("text", row.text))
        return hash(("group", str(group)))

    def _day(self, row: Row) -> int:
        if self.date_column is None:
            return NO_DAY
        record = row.record or {}
        if not has_field(record, self.date_column):
            what = f"no column {shown(self.date_column)}; it has {listed(list(record), most=20)}"
            raise DataError(row.where, what, "name the column of dates with --by")
        value = row.value(self.date_column)
        try:
            return day_of(value)
        except ValueError:
            what = f"column {shown(self.date_column)} has {shown(str(value))}, which is no date"
            hint = "write dates such as 2026-06-30 or 30.06.2026, or leave the cell empty"
            raise DataError(row.where, what, hint) from None

    def _is_right(self, row: Row, prediction: Prediction) -> int:
        text_format = self.classifier.text_format
        cell = row.value(text_format.label_column)
        has_list = self.classifier.is_multi_label and isinstance(cell, list | tuple)
        labels = row._replace(label=cell).labels(text_format.label_separator)
        if not labels and not has_list:
            return NO_LABEL

        for label in labels:
            if label in self._numbers:
                self.has_known_label = True
            else:
                self.new_labels[label] += 1
        return int(set(labels) == set(_predicted_labels(prediction)))

    def finished(self, source: str) -> PredictedTexts:
        """All that was collected."""
        if self._pending:
            self._append_pending()
        confidence, num_words, unknown, unfamiliar, right, groups, days = (
            array.array() for array in self._arrays
        )
        if not len(confidence):
            raise DataError(source, "no text with a word")

        measures_familiarity = self.classifier.familiarity is not None
        if not self.has_known_label:
            # The labels are of another kind, such as those before `data.label_map`.
            right = np.full_like(right, NO_LABEL)
        figures = Figures(
            num_predicted=self._count_predicted(np.ones(len(confidence), dtype=bool)),
            confidence=confidence,
            num_words=num_words,
            unknown_words=unknown,
            is_unfamiliar=unfamiliar if measures_familiarity else np.zeros(0, dtype=bool),
            is_right=right,
            groups=groups,
        )

        sampled = self.sample.drawn()
        periods = {}
        sampled_in_periods = []
        for period, is_member in periods_of(days).items():
            rows = np.flatnonzero(is_member)
            periods[period] = figures.subset(rows, self._count_predicted(is_member))
            sampled_in_periods.append(sampled.among(is_member))
        num_without_date = int((days == NO_DAY).sum())
        if self.date_column is not None and not periods:
            what = f"column {shown(self.date_column)} is empty in each row"
            raise DataError(source, what, "name the column of dates with --by")

        return PredictedTexts(
            figures=figures,
            periods=periods,
            num_without_date=num_without_date if periods else 0,
            num_blank=self.num_blank,
            sampled=sampled,
            sampled_in_periods=sampled_in_periods,
            new_words=self.new_words,
            new_labels=self.new_labels,
        )

    def _count_predicted(self, is_member: NDArray[np.bool_]) -> NDArray[np.int64]:
        numbers, offsets = self._predicted.arrays()
        of_member = np.repeat(is_member, np.diff(offsets))
        return np.bincount(numbers[of_member], minlength=len(self._numbers))


def _predicted_labels(prediction: Prediction) -> tuple[str, ...]:
    """The labels of a text, or the class for none of the others."""
    if prediction.reason == "none" and prediction.none_label is not None:
        return (prediction.none_label,)
    return prediction.all_labels


# The types of the figures of a row: probability, words, unknown words, unfamiliar, right, group and
# day.
_DTYPES: Sequence[type[Any]] = (
    np.float32,
    np.int32,
    np.int32,
    np.bool_,
    np.int8,
    np.int64,
    np.int32,
)


class _Sample:
    """A random sample of a stream, by Vitter's algorithm R (1985)."""

    def __init__(self, num_classes: int) -> None:
        self._most = min(MAX_SAMPLED_TEXTS, max(1, MAX_SAMPLED // num_classes))
        self._random = np.random.default_rng(0)
        self._num_seen = 0
        self._probabilities: list[NDArray[np.float32]] = []
        self._rows: list[int] = []

    def add(self, prediction: Prediction) -> None:
        """Draw a text, or do not."""
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
        """The texts that were drawn."""
        return SampledProbabilities(np.array(self._rows), np.stack(self._probabilities))
