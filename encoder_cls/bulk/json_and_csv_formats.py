"""The formats of predictions for programs (JSON Lines, CSV, TSV), and the bases of all formats."""

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
from encoder_cls.errors import ConfigError, DataError
from encoder_cls.metrics.tasks import MULTI_LABEL
from encoder_cls.system.csv_cells import cell, csv_lines, guarded
from encoder_cls.system.display import listed, printable, shown
from encoder_cls.system.encodings import encodable
from encoder_cls.system.json_values import json_text, record_text

BYTE_ORDER_MARK = "\ufeff"
# The separator between several labels in a field. Training reads such fields with
# `data.label_separator`.
LABEL_SEPARATOR = "|"
# The number of columns that a message lists.
MAX_LISTED = 20
# The characters to escape in a field of TSV, which has no quotes and must stay on one line.
ESCAPED_IN_TSV = str.maketrans({"\t": r"\t", "\n": r"\n", "\r": r"\r"})


class Output(Protocol):
    """The destination of predictions: an open file or standard output."""

    def write(self, content: bytes, /) -> object:
        """Write bytes at the end."""


class PredictionFormat(ABC):
    """A format of predictions.

    It can be pickled: each process that classifies chunks gets a copy to encode its predictions.
    """

    @abstractmethod
    def encode(self, predicted_texts: Sequence[PredictedText]) -> Any:
        """Encode the predictions for a chunk, in the process that has classified the chunk."""

    @abstractmethod
    def writing_to(self, output: Output) -> AbstractContextManager[Callable[[Any], object]]:
        """Begin to write an output, which is complete at the end of the block.

        The context manager yields a function that writes an encoded chunk, as `encode` returns it.
        """

    def warnings(self) -> Iterator[str]:
        """Warnings about what was written, once the output is complete."""
        yield from ()


class RowFormat(PredictionFormat):
    """A format in which each prediction is encoded by itself, so that predictions can be sorted."""

    @abstractmethod
    def encode(self, predicted_texts: Sequence[PredictedText]) -> list[bytes]:
        """Encode each prediction for a chunk, in the process that has classified the chunk."""

    @abstractmethod
    def writing_to(
        self, output: Output
    ) -> AbstractContextManager[Callable[[Sequence[bytes]], object]]:
        """Begin to write an output; the function in the block writes encoded predictions."""


class LineFormat(RowFormat):
    """A format with a line for each prediction; the header is None if there is none."""

    header: str | None = None

    @abstractmethod
    def lines(self, predicted_texts: Sequence[PredictedText]) -> list[str]:
        """The line of each prediction, without line ends."""

    def encode(self, predicted_texts: Sequence[PredictedText]) -> list[bytes]:
        """Encode the predictions for a chunk as lines of UTF-8."""
        return [f"{line}\n".encode() for line in self.lines(predicted_texts)]

    @contextmanager
    def writing_to(self, output: Output) -> Iterator[Callable[[Sequence[bytes]], object]]:
        """Write the header, and yield the function that writes encoded lines."""
        if self.header is not None:
            output.write(f"{self.header}\n".encode())

        def write(lines: Sequence[bytes]) -> None:
            output.write(b"".join(lines))

        yield write


class JsonFormat(LineFormat):
    """Lines of JSON, with the columns of the input if its rows come with them."""

    def __init__(self, options: PredictionOptions, columns: ColumnTypes) -> None:
        self._options = options
        self._columns = columns

    def lines(self, predicted_texts: Sequence[PredictedText]) -> list[str]:
        """The JSON object of each prediction."""
        return [self._line(predicted) for predicted in predicted_texts]

    def _line(self, predicted: PredictedText) -> str:
        row = predicted.row
        options = self._options
        record = predicted.prediction.to_json(
            top_k=options.top_k,
            threshold=options.threshold,
            label_thresholds=options.label_thresholds,
            text_threshold=options.text_threshold,
            set_threshold=options.set_threshold,
            words=predicted.words,
        )

        if row.record is None:
            if row.id is not None:
                record = {"id": row.id, **record}
            return json_text(record)

        # Avoid the names of all known columns, not only the names in this row, so that a key of
        # the prediction has the same name in all lines.
        taken = self._columns.keys() | row.record.keys()
        merged = dict(row.record)
        for name, value in record.items():
            merged[prediction_column(name, taken)] = value
        return record_text(merged)


class TableColumns:
    """The columns of a table of predictions, and the values of a prediction in these columns.

    A table keeps either the column `id` of the input or all columns. A table with all columns adds
    only the labels and probabilities, `answered_by` if the classifier is a cascade, and
    `unfamiliar` if the model measures familiarity.

    Attributes:
        kept: the names of the columns of the input.
        prediction_columns: the name in this table of each column of the prediction, by its usual
            name; it differs from the names of all kept columns.
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
        self._set_threshold = options.set_threshold
        self._has_whole_texts = options.text_threshold is not None
        self._has_withheld_labels = self._has_whole_texts or options.label_thresholds is not None
        self._explained = options.explained
        self._top_k = min(options.top_k, len(classifier.label_names))

        names = ["label", "probability"]
        # The rank of the first class that has columns with its rank, such as `label_2`. In a
        # single-label table, the columns `label` and `probability` have the class of rank 1.
        self._first_rank = 2
        if classifier.task is MULTI_LABEL:
            names = ["labels", "probabilities"]
            if self._has_whole_texts:
                names += ["probability", "withheld"]
            if self._has_withheld_labels:
                names.append("withheld_labels")
            if self._top_k > 1:
                self._first_rank = 1
        self._has_ranks = self._top_k >= self._first_rank
        for rank in range(self._first_rank, self._top_k + 1):
            names += [f"label_{rank}", f"probability_{rank}"]

        self._facts = _names_of_facts(classifier, keeps_all=keeps_all)
        if self._set_threshold is not None:
            names.append("set")
        names += self._facts
        if self._explained:
            names.append("explanation")
        self.prediction_columns = {name: prediction_column(name, columns) for name in names}

        # Beside a column `label` of the input, `label_2` would look like another label of its own.
        for rank in range(self._first_rank, self._top_k + 1):
            for name in ("label", "probability"):
                first = prediction_column(name, columns)
                self.prediction_columns[f"{name}_{rank}"] = prediction_column(
                    f"{first}_{rank}", columns
                )

    def kept_values(self, row: Row) -> list[Any]:
        """The values of a row in the columns of the input.

        Raises:
            DataError: the row has a column that is not among the columns of the table.
        """
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
        """The values of a prediction in the columns of the prediction."""
        prediction = predicted.prediction
        values: list[Any]
        if predicted.labels is None:
            values = [predicted.label, prediction.probability]
        else:
            probabilities = [prediction.probabilities[label] for label in predicted.labels]
            values = [list(predicted.labels), probabilities]
            if self._has_whole_texts:
                values += [prediction.prediction_probability, predicted.is_withheld]
            if self._has_withheld_labels:
                values.append(list(predicted.withheld_labels))

        if self._has_ranks:
            for label, probability in prediction.top(self._top_k)[self._first_rank - 1 :]:
                # A blank text has no classes: `reason` says why.
                if prediction.reason:
                    values += [None, None]
                else:
                    values += [label, probability]
        if self._set_threshold is not None:
            values.append(prediction.label_set(self._set_threshold))
        values += [getattr(prediction, name) for name in self._facts]
        if self._explained:
            values.append(predicted.words or Explanation())
        return values


def _check_fill(column: str | None, columns: ColumnTypes) -> None:
    if column is not None and column not in columns:
        present = listed(list(columns), most=MAX_LISTED)
        raise ConfigError(f"--fill: no column {shown(column)} in the input; it has {present}")


def _names_of_facts(classifier: Classifier, *, keeps_all: bool) -> list[str]:
    """The attributes of `Prediction` that a table has besides labels and probabilities."""
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
    """Prefix the name of a column of the prediction until no name in `taken` is the same."""
    while name in taken:
        name = f"predicted_{name}"
    return name


class DelimitedFormat(LineFormat):
    """CSV or TSV, in the form (separator, byte order mark) of the input.

    A file contains labels and texts unchanged, except for characters that the format cannot
    contain, which are escaped. On a terminal, control characters are escaped as well. Unless the
    input is CSV or TSV, too, fields are guarded: a field that a spreadsheet could take for a
    formula gets an apostrophe before it.

    With decimal commas, numbers are written as 0,5. Spreadsheets then separate fields by
    semicolons, so these take the place of commas between fields.
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
        self._decimal = options.decimal
        self._separator = form.separator
        if self._decimal == "comma" and form.separator == ",":
            self._separator = ";"
        self._is_guarded = form.is_guarded
        self._on_terminal = on_terminal

        names = [*self._columns.kept, *self._columns.prediction_columns.values()]
        (self.header,) = self._joined([names])
        if self._is_csv and form.has_mark and not on_terminal:
            self.header = f"{BYTE_ORDER_MARK}{self.header}"

    def lines(self, predicted_texts: Sequence[PredictedText]) -> list[str]:
        """The row of each prediction."""
        return self._joined([self._fields(predicted) for predicted in predicted_texts])

    def _fields(self, predicted: PredictedText) -> list[str]:
        kept_values = self._columns.kept_values(predicted.row)
        kept_fields = [cell(value) for value in kept_values]
        prediction_values = self._columns.prediction_values(predicted)
        prediction_fields = [prediction_field(value) for value in prediction_values]

        if self._decimal == "comma":
            for number, value in enumerate(kept_values):
                if isinstance(value, float):
                    kept_fields[number] = kept_fields[number].replace(".", ",")
            for number, value in enumerate(prediction_values):
                if isinstance(value, float) or _are_numbers(value):
                    prediction_fields[number] = prediction_fields[number].replace(".", ",")

        return kept_fields + prediction_fields

    def _joined(self, rows: Sequence[list[str]]) -> list[str]:
        """Join the fields of all rows at once, in a third of the time of joining one by one."""
        if self._is_guarded:
            rows = [[guarded(field) for field in fields] for fields in rows]
        if self._on_terminal:
            rows = [[printable(field) for field in fields] for fields in rows]

        if self._is_csv:
            lines = csv_lines(rows, separator=self._separator)
        else:
            lines = [_tsv_line(fields) for fields in rows]
        return [encodable(line) for line in lines]


def _tsv_line(fields: Sequence[str]) -> str:
    return "\t".join(field.translate(ESCAPED_IN_TSV) for field in fields)


def _are_numbers(value: Any) -> bool:
    return isinstance(value, list) and all(isinstance(part, float) for part in value)


def prediction_field(value: Any) -> str:
    """A value of a prediction as a field of CSV or TSV."""
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
