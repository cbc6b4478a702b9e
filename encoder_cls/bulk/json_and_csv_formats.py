"""The formats of predictions for programs: JSON Lines, CSV and TSV.

What all formats have in common is here, too. `plain_text_format`, `html_format` and
`parquet_format` have the others.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Container, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from typing import Any, Protocol

from encoder_cls.bulk.input_texts import ColumnTypes, InputTexts
from encoder_cls.bulk.predicted_text import PredictedText
from encoder_cls.bulk.prediction_options import PredictionOptions
from encoder_cls.classifier.classifier import Classifier
from encoder_cls.classifier.explanation import Explanation
from encoder_cls.data.reading.rows import Row
from encoder_cls.errors import DataError
from encoder_cls.metrics.logits import MULTI_LABEL
from encoder_cls.system.csv_cells import cell, csv_row, guarded
from encoder_cls.system.display import printable, shown
from encoder_cls.system.json_values import json_text, record_text

BYTE_ORDER_MARK = "\ufeff"
# Between the labels of a text, as `data.label_separator` can name it.
LABEL_SEPARATOR = "|"
# A row of TSV is one line; its fields have no quotes.
ESCAPED_IN_TSV = str.maketrans({"\t": r"\t", "\n": r"\n", "\r": r"\r"})


class Output(Protocol):
    """Where predictions go: a file that is open, or standard output."""

    def write(self, content: bytes, /) -> object:
        """Write bytes at the end."""


class PredictionFormat(ABC):
    """A format of predictions. Each process that classifies has a copy of it."""

    @abstractmethod
    def encode(self, predicted_texts: Sequence[PredictedText]) -> Any:
        """Encode the predictions for a chunk."""

    @abstractmethod
    def writing_to(self, output: Output) -> AbstractContextManager[Callable[[Any], object]]:
        """Begin an output, which ends with the block; yields a function that writes a chunk.

        It takes what `encode` returns.
        """


class LineFormat(PredictionFormat):
    """A format with a line for each prediction, and perhaps one with the names of the columns."""

    header: str | None = None

    @abstractmethod
    def line(self, predicted: PredictedText) -> str:
        """The line of a prediction, without its end."""

    def encode(self, predicted_texts: Sequence[PredictedText]) -> bytes:
        """The lines of the predictions for a chunk."""
        return "".join(f"{self.line(predicted)}\n" for predicted in predicted_texts).encode()

    @contextmanager
    def writing_to(self, output: Output) -> Iterator[Callable[[bytes], object]]:
        """Write the header; lines are written as they are."""
        if self.header is not None:
            output.write(f"{self.header}\n".encode())
        yield output.write


class JsonFormat(LineFormat):
    """Lines of JSON, with all columns of the input if rows come with them.

    Args:
        columns: those of the input that are known.
    """

    def __init__(self, options: PredictionOptions, columns: ColumnTypes) -> None:
        self._options = options
        self._columns = columns

    def line(self, predicted: PredictedText) -> str:
        """The JSON object of a prediction."""
        row = predicted.row
        options = self._options
        record = predicted.prediction.to_json(
            top_k=options.top_k,
            threshold=options.threshold,
            set_threshold=options.set_threshold,
            words=predicted.words,
        )

        if row.record is None:
            if row.id is not None:
                record = {"id": row.id, **record}
            return json_text(record)

        # A key of the prediction is the same in all lines, whichever columns their rows have.
        taken = self._columns.keys() | row.record.keys()
        merged = dict(row.record)
        for name, value in record.items():
            merged[prediction_column(name, taken)] = value
        return record_text(merged)


class TableColumns:
    """The columns of a table of predictions, and the values of a prediction in them.

    A table keeps the `id` of the input, or all columns. With all columns, it adds only the
    prediction, `answered_by` of a cascade, and `unfamiliar` if the model measures it.

    Attributes:
        kept: the columns of the input.
        prediction_columns: from the usual name of each column of the prediction to its name in this
            table, which no kept column has.
    """

    def __init__(
        self,
        options: PredictionOptions,
        classifier: Classifier,
        columns: ColumnTypes,
        *,
        keeps_all: bool,
    ) -> None:
        self.kept = list(columns)
        self._kept_set = set(columns)
        self._keeps_all = keeps_all
        self._set_threshold = options.set_threshold
        self._explained = options.explained
        self._top_k = min(options.top_k, len(classifier.label_names))

        names = ["label", "probability"]
        # The rank of the first class with columns of its own. Single-label, the first two columns
        # are those of the best class.
        self._first_rank = 2
        if classifier.task is MULTI_LABEL:
            names = ["labels", "probabilities"]
            if self._top_k > 1:
                self._first_rank = 1
        for rank in range(self._first_rank, self._top_k + 1):
            names += [f"label_{rank}", f"probability_{rank}"]

        self._facts = _names_of_facts(classifier, keeps_all=keeps_all)
        if self._set_threshold is not None:
            names.append("set")
        names += self._facts
        if self._explained:
            names.append("explanation")
        self.prediction_columns = {name: prediction_column(name, columns) for name in names}

    def kept_values(self, row: Row) -> list[Any]:
        """The values of the input's columns; `DataError` if the row has another column."""
        if not self._keeps_all:
            return [row.id] * len(self.kept)

        record = row.record or {}
        late_names = record.keys() - self._kept_set
        if late_names:
            raise DataError(
                f"column {shown(min(late_names))} is not in the first rows, and the input can be "
                "read only once: save it as a file, or choose --format jsonl"
            )
        return [record.get(name) for name in self.kept]

    def prediction_values(self, predicted: PredictedText) -> list[Any]:
        """The values of the columns of a prediction."""
        prediction = predicted.prediction
        values: list[Any]
        if predicted.labels is None:
            values = [predicted.label, prediction.probability]
        else:
            probabilities = [prediction.probabilities[label] for label in predicted.labels]
            values = [list(predicted.labels), probabilities]

        for label, probability in prediction.top(self._top_k)[self._first_rank - 1 :]:
            if prediction.reason:  # a text without a prediction has no further classes, either
                values += [None, None]
            else:
                values += [label, probability]
        if self._set_threshold is not None:
            values.append(prediction.label_set(self._set_threshold))
        values += [getattr(prediction, name) for name in self._facts]
        if self._explained:
            values.append(predicted.words or Explanation())
        return values


def _names_of_facts(classifier: Classifier, *, keeps_all: bool) -> list[str]:
    """The attributes of a prediction that a table has beside labels and probabilities."""
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
    """Prefix the name of a column of the prediction until no other column has it."""
    while name in taken:
        name = f"predicted_{name}"
    return name


def encodable(text: str) -> str:
    """Escape half surrogate pairs, which JSON can hold and UTF-8 cannot."""
    return text if text.isascii() else text.encode("utf-8", "backslashreplace").decode()


class DelimitedFormat(LineFormat):
    """CSV or TSV.

    A file holds labels and texts as they are: only what its format cannot hold is escaped. A
    terminal gets control characters escaped. What comes from another format than CSV or TSV is
    guarded: a spreadsheet takes no text of it for a formula.
    """

    def __init__(
        self,
        options: PredictionOptions,
        classifier: Classifier,
        texts: InputTexts,
        columns: ColumnTypes,
        *,
        on_terminal: bool,
    ) -> None:
        self._columns = TableColumns(options, classifier, columns, keeps_all=texts.keeps_columns)
        form = texts.csv_form()
        self._is_csv = options.output_format == "csv"
        self._separator = form.separator
        self._is_guarded = form.is_guarded
        self._on_terminal = on_terminal

        names = [*self._columns.kept, *self._columns.prediction_columns.values()]
        self.header = self._joined(names)
        if self._is_csv and form.has_mark and not on_terminal:
            self.header = f"{BYTE_ORDER_MARK}{self.header}"

    def line(self, predicted: PredictedText) -> str:
        """A row of the table."""
        fields = [cell(value) for value in self._columns.kept_values(predicted.row)]
        fields += [_field(value) for value in self._columns.prediction_values(predicted)]
        return self._joined(fields)

    def _joined(self, fields: Sequence[str]) -> str:
        if self._is_guarded:
            fields = [guarded(field) for field in fields]
        if self._on_terminal:
            fields = [printable(field) for field in fields]
        else:
            fields = [encodable(field) for field in fields]

        if self._is_csv:
            return csv_row(fields, separator=self._separator, is_guarded=False)
        return "\t".join(field.translate(ESCAPED_IN_TSV) for field in fields)


def _field(value: Any) -> str:
    """A value of a prediction as a field of CSV or TSV."""
    if isinstance(value, float):
        return f"{value:.6f}"
    if isinstance(value, Explanation):
        words = [f"{word.word}:{word.weight:+.2f}" for word in value]
        if value.left_out:
            words.append(f"({value.left_out} words left out)")
        return " ".join(words)
    if isinstance(value, list):
        return LABEL_SEPARATOR.join(_field(part) for part in value)
    return cell(value)
