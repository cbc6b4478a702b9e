"""The formats of answers: text, JSON Lines, CSV, TSV and HTML; Parquet is in `parquet`, which needs pyarrow."""

from __future__ import annotations

from collections.abc import Container, Iterable, Iterator, Sequence
from typing import Any, NamedTuple

import typer

from encoder_cls.bulk.inputs import ColumnTypes, Source
from encoder_cls.bulk.request import Request
from encoder_cls.classifier.classifier import Classifier
from encoder_cls.classifier.explain import STRONG, Explanation, attention_maps, marked
from encoder_cls.classifier.prediction import Prediction
from encoder_cls.data.reading.rows import Row
from encoder_cls.errors import DataError
from encoder_cls.metrics.logits import MULTI_LABEL
from encoder_cls.system.csv_cells import cell, csv_row, guarded
from encoder_cls.system.display import counted, printable, shown
from encoder_cls.system.json_values import json_text, record_text

BYTE_ORDER_MARK = "\ufeff"
NO_LABEL = "no label"
SEPARATOR = "|"  # of the labels of a text, which `data.label_separator` can name
# A row of TSV is one line; its fields have no quotes.
ESCAPED_IN_TSV = str.maketrans({"\t": r"\t", "\n": r"\n", "\r": r"\r"})
FAINT = 0.05  # of the full colour; less is not shown
MOST_REASONS = 3  # words for, and against, a class in text without colours


class Answer(NamedTuple):
    """A text with its prediction, and the `label` (multi-label: `labels`) that the request's threshold leaves.

    The `length` of a truncated text, for text output, is that of `count_tokens`.
    """

    item: Row
    prediction: Prediction
    label: str | None
    labels: tuple[str, ...] | None
    words: Explanation | None
    length: tuple[int, bool] | None


class Writer:
    """A format of answers, here with a line for each."""

    header: str | None = None

    def line(self, answer: Answer) -> str:
        """The line of an answer, without its end."""
        raise NotImplementedError

    def encode(self, answers: Sequence[Answer]) -> Any:
        """Encode the answers to a chunk for `content`; another process may do this."""
        return "".join(f"{self.line(answer)}\n" for answer in answers).encode()

    def content(self, pieces: Iterable[Any]) -> Iterator[bytes]:
        """The bytes of the output, those of a chunk as soon as it is answered."""
        if self.header is not None:
            yield f"{self.header}\n".encode()
        yield from pieces


def writer_for(
    request: Request,
    classifier: Classifier,
    source: Source,
    columns: ColumnTypes,
    *,
    on_terminal: bool,
) -> Writer:
    """Make the writer of a request's format, except HTML; `columns` are those of the input that the output keeps."""
    if request.output_format == "parquet":
        from encoder_cls.bulk.parquet import ParquetWriter

        return ParquetWriter(request, classifier, source, columns)
    if request.output_format in {"csv", "tsv"}:
        return CsvWriter(request, classifier, source, columns, on_terminal=on_terminal)
    if request.output_format == "jsonl":
        return JsonWriter(request, columns)
    return TextWriter(request, max_seq_len=classifier.max_seq_len, coloured=on_terminal)


# ---------------------------------------------------------------- for programs


class JsonWriter(Writer):
    """Lines of JSON, with all columns of the input if rows come with them."""

    def __init__(self, request: Request, columns: ColumnTypes) -> None:
        self._options: dict[str, Any] = {
            "top_k": request.top_k,
            "threshold": request.threshold,
            "set_threshold": request.set_threshold,
        }
        self._columns = columns

    def line(self, answer: Answer) -> str:
        """The JSON object of an answer."""
        item, record = answer.item, answer.prediction.to_json(**self._options, words=answer.words)
        if item.record is None:
            return json_text(record if item.id is None else {"id": item.id, **record})
        taken = self._columns.keys() | item.record.keys()  # so that a name is the same in all lines
        return record_text(
            {**item.record, **{answer_name(name, taken): value for name, value in record.items()}}
        )


class Table(Writer):
    """The columns of a table of answers, and the values of an answer in them.

    It keeps the input's `id`, or all columns. Beside all, facts about a text other than its answer are left out, except
    `answered_by` of a cascade, and `unfamiliar` if the model measures it.

    Attributes:
        kept: the columns of the input.
        answer_names: from the usual name of each column of the answer to its name here, which no kept column has.
    """

    def __init__(
        self, request: Request, classifier: Classifier, source: Source, columns: ColumnTypes
    ) -> None:
        self.kept, self.keep_columns = dict.fromkeys(columns), source.keep_columns
        self._set_threshold, self._explained = request.set_threshold, request.explained
        self._top_k = min(request.top_k, len(classifier.label_names))
        is_multi_label = classifier.task is MULTI_LABEL
        # The rank of the first class with a column of its own.
        self._first_rank = 1 if is_multi_label and self._top_k > 1 else 2
        by_part = [] if classifier.gate is None else ["answered_by"]
        self._about = ["truncated", "unknown_words", *by_part, "unfamiliar", "reason"]
        if self.keep_columns:
            self._about = [*by_part, *(["unfamiliar"] if classifier.familiarity else [])]
        ranks = range(self._first_rank, self._top_k + 1)
        names = ["labels", "probabilities"] if is_multi_label else ["label", "probability"]
        names += [f"{column}_{rank}" for rank in ranks for column in ("label", "probability")]
        names += [] if self._set_threshold is None else ["set"]
        names += self._about
        names += ["explanation"] if self._explained else []
        self.answer_names = {name: answer_name(name, columns) for name in names}

    def kept_values(self, item: Row) -> list[Any]:
        """The values of the input's columns; a `DataError` if the row has a column that the table does not have."""
        if not self.keep_columns:
            return [item.id] * len(self.kept)
        record = item.record or {}
        if late := record.keys() - self.kept.keys():
            remedy = (
                "and the input can be read only once: save it as a file, or choose --format jsonl"
            )
            raise DataError(f"column {shown(min(late))} is not in the first rows, {remedy}")
        return [record.get(name) for name in self.kept]

    def answer_values(self, answer: Answer) -> list[Any]:
        """The values of the answer's columns."""
        prediction, labels = answer.prediction, answer.labels
        values: list[Any] = [answer.label, prediction.probability]
        if labels is not None:
            values = [list(labels), [prediction.probabilities[it] for it in labels]]
        top = prediction.top(self._top_k)[self._first_rank - 1 :]
        values += [None if prediction.reason else value for named in top for value in named]
        values += [] if self._set_threshold is None else [prediction.label_set(self._set_threshold)]
        values += [getattr(prediction, name) for name in self._about]
        return [*values, answer.words or Explanation()] if self._explained else values


def answer_name(name: str, taken: Container[str]) -> str:
    """Prefix the name of a column of the answer until no other column has it."""
    while name in taken:
        name = f"predicted_{name}"
    return name


def encodable(text: str) -> str:
    """Escape half surrogate pairs, which JSON can hold and UTF-8 cannot."""
    return text if text.isascii() else text.encode("utf-8", "backslashreplace").decode()


class CsvWriter(Table):
    """CSV or TSV.

    A file holds labels and texts as they are: only what its format cannot hold is escaped. A terminal gets control
    characters escaped. What comes from another format than CSV or TSV is guarded: a spreadsheet takes no text of it
    for a formula.
    """

    def __init__(
        self,
        request: Request,
        classifier: Classifier,
        source: Source,
        columns: ColumnTypes,
        *,
        on_terminal: bool,
    ) -> None:
        super().__init__(request, classifier, source, columns)
        form = source.csv_form()
        self._is_csv = request.output_format == "csv"
        self._separator = form.separator if self._is_csv else "\t"
        self._is_guarded = form.is_guarded
        self._on_terminal = on_terminal

        mark = BYTE_ORDER_MARK if self._is_csv and form.has_mark and not on_terminal else ""
        self.header = mark + self._joined([*self.kept, *self.answer_names.values()])

    def line(self, answer: Answer) -> str:
        """A row."""
        kept = [cell(value) for value in self.kept_values(answer.item)]
        return self._joined([*kept, *map(_field, self.answer_values(answer))])

    def _joined(self, fields: Sequence[str]) -> str:
        if self._is_guarded:
            fields = [guarded(field) for field in fields]
        if self._on_terminal:
            fields = [printable(field) for field in fields]
        else:
            fields = [encodable(field) for field in fields]

        if self._is_csv:
            return csv_row(fields, separator=self._separator, is_guarded=False)
        return self._separator.join(field.translate(ESCAPED_IN_TSV) for field in fields)


def _field(value: Any) -> str:
    """A value of an answer as a field of CSV or TSV."""
    if isinstance(value, float):
        return f"{value:.6f}"
    if isinstance(value, Explanation):
        words = [f"{word.word}:{word.weight:+.2f}" for word in value]
        if value.left_out:
            words.append(f"({value.left_out} words left out)")
        return " ".join(words)
    if isinstance(value, list):
        return SEPARATOR.join(map(_field, value))
    return cell(value)


# ---------------------------------------------------------------- for people


class TextWriter(Writer):
    """Text for people, a line for each answer."""

    def __init__(self, request: Request, *, max_seq_len: int, coloured: bool) -> None:
        self._request, self._max_seq_len, self._coloured = request, max_seq_len, coloured

    def line(self, answer: Answer) -> str:
        """Labels and text, with notes in brackets."""
        prediction, words = answer.prediction, answer.words
        text = shown(answer.item.text, limit=60)
        if prediction.reason:
            return f"?  {text}  ({prediction.reason})"
        notes = _notes(answer, self._request.set_threshold)
        if words and self._coloured:
            text = _coloured(answer.item.text, words)
        elif words:
            notes += _reasons(words)
        if words and words.left_out:
            notes.append(f"only the first {len(words):,} words explained")
        if answer.length:
            num_tokens, are_all = answer.length
            notes.append(
                f"{self._max_seq_len:,} of {'' if are_all else 'more than '}{num_tokens:,} tokens"
            )
        if prediction.unknown_words:
            notes.append(counted(prediction.unknown_words, "unknown word"))
        return f"{self._labels(answer)}  {text}" + (f"  ({'; '.join(notes)})" if notes else "")

    def _labels(self, answer: Answer) -> str:
        """The labels of an answer with their probabilities, and the next classes up to `top_k`."""
        prediction, labels, top_k = answer.prediction, answer.labels, self._request.top_k
        top = prediction.top(top_k)
        if labels is None:
            return _named([(answer.label or "?", top[0][1]), *top[1:]])
        given = _named((name, prediction.probabilities[name]) for name in labels) or NO_LABEL
        others = [named for named in top if named[0] not in labels] if top_k > 1 else []
        return f"{given}  ({_named(others)})" if others else given


def _named(names: Iterable[tuple[str, float]]) -> str:
    return "  ".join(f"{printable(name)} {probability:.3f}" for name, probability in names)


def _notes(answer: Answer, set_threshold: float | None) -> list[str]:
    """The set of classes, if one is requested, and whether the text is out of distribution."""
    notes = ["unlike the training texts"] if answer.prediction.unfamiliar else []
    if set_threshold is not None:
        notes.insert(
            0, f"set: {', '.join(map(printable, answer.prediction.label_set(set_threshold)))}"
        )
    return notes


def _coloured(text: str, words: Explanation) -> str:
    """Colour words for the class blue, and against it orange, which the colour-blind can distinguish."""
    pieces = []
    for piece, weight in marked(text, words):
        strength = min(abs(weight / STRONG), 1.0)
        full = (108, 174, 255) if weight > 0 else (255, 170, 100)
        red, green, blue = (round(255 - (255 - channel) * strength) for channel in full)
        styled = typer.style(printable(piece), bg=(red, green, blue), fg="black")
        pieces.append(printable(piece) if strength < FAINT else styled)
    return "".join(pieces)


def _reasons(words: Explanation) -> Iterator[str]:
    """The words with the largest weights, on both sides."""
    for sign, side in ((1, "for it"), (-1, "against it")):
        most = sorted(
            (word for word in words if sign * word.weight >= 0.005),
            key=lambda word: -abs(word.weight),
        )
        if most:
            yield f"{side} " + ", ".join(
                f"{printable(w.word)} {w.weight:+.2f}" for w in most[:MOST_REASONS]
            )


class PageWriter(Writer):
    """An HTML page of predictions with coloured words; the `note` says which texts it holds if not all."""

    def __init__(self, request: Request, classifier: Classifier, note: str | None) -> None:
        self._set_threshold, self._note = request.set_threshold, note
        self._is_multi_label = classifier.task is MULTI_LABEL
        self._model = f"{classifier.folder} ({classifier.sha256[:12]})" if classifier.folder else ""

    def line(self, answer: Answer) -> str:
        """The row of an answer."""
        from encoder_cls.classifier.prediction_page import prediction_row

        prediction, labels = answer.prediction, answer.labels
        assert answer.words is not None
        notes = _notes(answer, self._set_threshold)
        if labels is not None and not prediction.reason:
            notes.append(f"words for and against {prediction.label}")
        label = answer.label or "?" if labels is None else ", ".join(labels) or NO_LABEL
        return prediction_row(answer.item.text, prediction, answer.words, label=label, notes=notes)

    def content(self, pieces: Iterable[Any]) -> Iterator[bytes]:
        """The page, at the end."""
        from encoder_cls.classifier.prediction_page import render_predictions

        rows = b"".join(pieces).decode()
        page = render_predictions(
            rows, is_multi_label=self._is_multi_label, note=self._note, model=self._model
        )
        yield f"{page}\n".encode()


def attention_page(classifier: Classifier, texts: Sequence[str]) -> bytes:
    """An HTML page with the attention maps of some texts."""
    from encoder_cls.classifier.attention_page import render_attention

    lines = [
        f"{it.label} {it.probability:.3f}: {text}" if it.label else f"{it.reason}: {text}"
        for text, it in zip(texts, classifier.predict(texts), strict=True)
    ]
    maps = (attention_maps(classifier, text) for text in texts)
    return render_attention("Attention", zip(lines, maps, strict=True)).encode("utf-8", "replace")
