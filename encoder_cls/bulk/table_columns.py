"""The columns of a table of predictions: those kept of the input, then those of the prediction."""

from __future__ import annotations

from collections.abc import Container
from typing import Any

from encoder_cls.bulk.input_texts import ColumnTypes
from encoder_cls.bulk.predicted_text import PredictedText
from encoder_cls.bulk.prediction_options import PredictionOptions
from encoder_cls.classifier.classifier import Classifier
from encoder_cls.classifier.explanation import Explanation
from encoder_cls.classifier.prediction import Prediction
from encoder_cls.data.reading.rows import Row
from encoder_cls.errors import ConfigError, DataError
from encoder_cls.system.csv_cells import cell
from encoder_cls.system.display import listed, shown

# The separator between several labels in a field. Training reads such fields with
# `data.label_separator`.
LABEL_SEPARATOR = "|"
MAX_LISTED = 20


class TableColumns:
    """The columns of a table of predictions, and the values in them.

    A table that keeps all columns of the input leaves out `truncated`, `unknown_words` and
    `reason`, and `unfamiliar` if it is not measured.

    Attributes:
        kept: of the input.
        prediction_columns: the names of the prediction's columns, by their usual names; they differ
            from those kept.
    """

    def __init__(
        self,
        options: PredictionOptions,
        classifier: Classifier,
        columns: ColumnTypes,
        *,
        keeps_all: bool,
    ) -> None:
        _check_fill(options.fill, columns)
        self.kept = list(columns)
        self._kept_set = set(columns)
        self._keeps_all = keeps_all
        self._is_multi_label = classifier.is_multi_label
        self._set_threshold = options.withholding.set_threshold
        self._has_whole_texts = options.withholding.text_threshold is not None
        self._has_withheld_labels = options.withholding.names_withheld_labels
        self._explained = options.explained
        self._set_levels(options, classifier)

        # The rank of the first class that has columns with its rank, such as `label_2`. In a
        # single-label table, the columns `label` and `probability` have the class of rank 1. But
        # where classes are codes, these columns may have a code above it, or none, and the others
        # are suggestions for a person.
        has_all_ranks = self._is_multi_label or classifier.codes is not None
        self._first_rank = 1 if has_all_ranks and self._top_k > 1 else 2
        names = self._names_of_answer()
        self._has_ranks = self._top_k >= self._first_rank
        for rank in range(self._first_rank, self._top_k + 1):
            names += [f"{name}_{rank}" for name in (*self._named, "probability")]
        names += [f"level_{number}" for number in range(1, self._num_levels + 1)]

        self._facts = _names_of_facts(classifier, keeps_all=keeps_all)
        if self._set_threshold is not None:
            names.append("set")
        names += self._facts
        if self._explained:
            names.append("explanation")
        self.prediction_columns = {name: prediction_column(name, columns) for name in names}

        # Beside a column `label` of the input, `label_2` would look like another label of its own.
        for rank in range(self._first_rank, self._top_k + 1):
            for name in (*self._named, "probability"):
                first = prediction_column(name, columns)
                self.prediction_columns[f"{name}_{rank}"] = prediction_column(
                    f"{first}_{rank}", columns
                )

    def _set_levels(self, options: PredictionOptions, classifier: Classifier) -> None:
        """How many levels have a column, and how many classes one with their rank."""
        codes = classifier.codes
        level = options.withholding.level
        classes = classifier.label_names
        self._named = ("label", "name") if codes and codes.names else ("label",)
        self._num_levels = 0
        if codes and codes.has_levels:
            self._num_levels = level or codes.num_levels
            classes = codes.levels[self._num_levels - 1].codes
        answers = [name for name in classes if name != classifier.none_label]
        self._top_k = min(options.top_k, len(answers))

    def _names_of_answer(self) -> list[str]:
        if not self._is_multi_label:
            return [*self._named, "probability"]
        names = ["labels", "probabilities"]
        if self._has_whole_texts:
            names += ["probability", "withheld"]
        if self._has_withheld_labels:
            names.append("withheld_labels")
        return names

    def kept_values(self, row: Row) -> list[Any]:
        """The values of a row; a `DataError` for a further column."""
        if not self._keeps_all:
            return [row.id] * len(self.kept)

        record = row.record or {}
        if not record.keys() <= self._kept_set:
            late_name = min(record.keys() - self._kept_set)
            raise DataError(
                f"column {shown(late_name)} is not in the first rows, and the input can be read "
                "only once: save it as a file, or choose --format jsonl"
            )

        # A column that the row lacks is empty.
        return [record.get(name) for name in self.kept]

    def prediction_values(self, predicted: PredictedText) -> list[Any]:
        """The values of a prediction."""
        prediction = predicted.prediction
        values: list[Any]
        if not self._is_multi_label:
            label = predicted.answer.labels[0] if predicted.answer.labels else None
            values = [*self._label_values(prediction, label), prediction.probability]
        else:
            probabilities = [prediction.probabilities[label] for label in predicted.answer.labels]
            values = [list(predicted.answer.labels), probabilities]
            if self._has_whole_texts:
                values += [prediction.prediction_probability, predicted.answer.is_withheld]
            if self._has_withheld_labels:
                values.append(list(predicted.answer.withheld_labels))

        if self._has_ranks:
            for label, probability in prediction.top(self._top_k)[self._first_rank - 1 :]:
                # A blank text has no classes: `reason` says why.
                if prediction.reason:
                    values += [*self._label_values(prediction, None), None]
                else:
                    values += [*self._label_values(prediction, label), probability]
        values += self._level_values(predicted)
        if self._set_threshold is not None:
            values.append(prediction.label_set(self._set_threshold))
        values += [getattr(prediction, name) for name in self._facts]
        if self._explained:
            values.append(predicted.words or Explanation())
        return values

    def _label_values(self, prediction: Prediction, label: str | None) -> list[str | None]:
        if len(self._named) == 1:
            return [label]
        return [label, prediction.name_of(label) if label is not None else None]

    def _level_values(self, predicted: PredictedText) -> list[str | None]:
        """The code of the answer at each level; None below it, and where it is withheld."""
        values: list[str | None] = [None] * self._num_levels
        if self._num_levels and predicted.answer.labels:
            for number, code in enumerate(predicted.prediction.path):
                values[number] = code.label
        return values


def _check_fill(column: str | None, columns: ColumnTypes) -> None:
    if column is not None and column not in columns:
        present = listed(list(columns), most=MAX_LISTED)
        raise ConfigError(f"--fill: no column {shown(column)} in the input; it has {present}")


def _names_of_facts(classifier: Classifier, *, keeps_all: bool) -> list[str]:
    names = []
    if not keeps_all:
        names += ["truncated", "unknown_words"]
    if classifier.gate is not None:
        names.append("answered_by")
    if not keeps_all or classifier.familiarity:
        names.append("unfamiliar")
    if not keeps_all:
        names.append("reason")
    return names


def prediction_column(name: str, taken: Container[str]) -> str:
    """Prefix the name of a column until it is not in `taken`."""
    while name in taken:
        name = f"predicted_{name}"
    return name


def prediction_field(value: Any) -> str:
    """A value as a field of CSV or TSV."""
    if isinstance(value, float):
        return f"{value:.6f}"
    if isinstance(value, Explanation):
        words = [f"{word.word}:{word.weight:+.2f}" for word in value]
        if value.left_out:
            words.append(f"({value.left_out} words left out)")
        return " ".join(words)
    if isinstance(value, list):
        return LABEL_SEPARATOR.join(prediction_field(part) for part in value)
    return cell(value)
