"""Write answers as text, JSON Lines, CSV, TSV or HTML; as Parquet in `parquet`, since few have its library."""

from __future__ import annotations

from collections.abc import Container, Iterable, Iterator, Sequence
from itertools import chain, islice
from typing import Any

import typer

from encoder_cls.answers.classify import Answer, Answerer
from encoder_cls.answers.inputs import Columns, Source, add_columns
from encoder_cls.answers.request import TABLES, Request
from encoder_cls.data.rows import Row
from encoder_cls.errors import DataError
from encoder_cls.inference.classifier import Classifier
from encoder_cls.inference.explain import STRONG, Explanation, attention_maps, marked
from encoder_cls.inference.task import MULTI_LABEL
from encoder_cls.system.display import cell, counted, csv_row, json_text, printable, record_text, shown
from encoder_cls.system.files import write_output

BYTE_ORDER_MARK = "\ufeff"
NO_LABEL = "no label"
SEPARATOR = "|"  # of the labels of a text, which `data.label_separator` can name
FAINT = 0.05  # of the full colour: less is none
MOST_REASONS = 3  # words named for, and against, a class where there are no colours
MOST_ATTENTION_TEXTS = 20  # on one page
MOST_PAGE_TEXTS = 1000  # on a page of predictions: more is slow to explain, and too much for a browser


class Writer:
    """A format of answers, here with a line for each."""

    header: str | None = None

    def line(self, answer: Answer) -> str:
        """The line of an answer, without its end."""
        raise NotImplementedError

    def encode(self, answers: Sequence[Answer]) -> Any:
        """What `content` needs of the answers to a chunk; another process may make it."""
        return "".join(f"{self.line(answer)}\n" for answer in answers).encode()

    def content(self, pieces: Iterable[Any]) -> Iterator[bytes]:
        """The bytes of all answers, those of a chunk as soon as it is answered."""
        if self.header is not None:
            yield f"{self.header}\n".encode()
        yield from pieces


def written(source: Source, answerer: Answerer, *, on_terminal: bool = False) -> Iterator[bytes]:
    """Answer a source, in the format of the answerer's request; also writes the page of attention that it asks for.

    Where the columns of the source are not known, those of the first chunk are taken. On a terminal, colours show which
    words counted.
    """
    request, chunks = answerer.request, source.read()
    first_chunk = next(chunks, [])
    if request.attention:
        write_output(request.attention, _attention_page(answerer.classifier, first_chunk[:MOST_ATTENTION_TEXTS]))
    chunks = chain([first_chunk] if first_chunk else [], chunks)
    if request.output_format == "html":
        note, texts = None, chain.from_iterable(chunks)
        chunks = iter([[*islice(texts, MOST_PAGE_TEXTS)]])
        if next(texts, None) is not None:
            note = f"the first {MOST_PAGE_TEXTS:,} texts"
            answerer.warn(f"warning: the page holds {note} only; other formats hold all")
        writer: Writer = PageWriter(request, answerer.classifier, note)
    else:
        columns = source.columns
        if columns is None:
            add_columns(columns := {}, first_chunk)
        writer = _new_writer(source, answerer, columns, on_terminal=on_terminal)
    yield from writer.content(answerer.pieces(chunks, writer))
    for warning in source.skipped():
        answerer.warn(warning)


def _new_writer(source: Source, answerer: Answerer, columns: Columns, *, on_terminal: bool) -> Writer:
    request, classifier = answerer.request, answerer.classifier
    if request.output_format == "jsonl":
        return JsonWriter(request, columns)
    if request.output_format not in TABLES:
        return TextWriter(request, max_seq_len=classifier.max_seq_len, coloured=on_terminal)
    table = Table(columns, request, classifier, keep_columns=source.keep_columns)
    if request.output_format == "tsv":
        return TableWriter(table)
    if request.output_format == "csv":
        form = source.csv_form()
        return TableWriter(table, form.separator, has_mark=form.has_mark and not on_terminal, for_terminal=on_terminal)
    from encoder_cls.answers.parquet import ParquetWriter

    # Files whose columns can be read once more beside the answers, row by row.
    is_whole = request.bad_rows != "skip" and all(file.is_file() for file in source.files)
    return ParquetWriter(table, columns, source.files if is_whole else [])


# ---------------------------------------------------------------- for programs


class JsonWriter(Writer):
    """Lines of JSON, beside all columns of the input where texts come with them."""

    def __init__(self, request: Request, columns: Columns) -> None:
        self._request, self._columns = request, columns

    def line(self, answer: Answer) -> str:
        """The JSON object of an answer."""
        item, prediction, label, words, labels, _ = answer
        request = self._request
        top_k = max(request.top_k, len(labels or ()))
        record = prediction.to_json(top_k=top_k, threshold=0, set_threshold=request.set_threshold, words=words)
        record |= {"label": label} if labels is None else {"labels": list(labels)}
        if item.record is None:
            return json_text(record if item.id is None else {"id": item.id, **record})
        taken = self._columns.keys() | item.record.keys()  # so that a name is the same in all lines
        return record_text({**item.record, **{answer_name(name, taken): value for name, value in record.items()}})


class Table:
    """The columns of a table of answers, and the values of an answer in them.

    Those of the input that are taken over are `id`, or all of them (`keep_columns`). Then of what is known of a text
    the table has only what this model measures: `answered_by` with a cascade, and `unfamiliar`.

    Attributes:
        answer_names: the answer's columns, each with its name here: another one where the input has such a column.
    """

    def __init__(self, columns: Iterable[str], request: Request, classifier: Classifier, *, keep_columns: bool) -> None:
        self.taken_over = dict.fromkeys(columns)
        self.keep_columns = keep_columns
        self._set_threshold, self._explained = request.set_threshold, request.explained
        self._top_k = min(request.top_k, len(classifier.label_names))
        self._is_multi_label = classifier.task is MULTI_LABEL
        by_part = [] if classifier.gate is None else ["answered_by"]
        self._about = ["truncated", "unknown_words", *by_part, "unfamiliar", "reason"]
        if keep_columns:
            self._about = [*by_part, *(["unfamiliar"] if classifier.familiarity else [])]
        ranked = [f"{column}_{rank}" for rank in range(2, self._top_k + 1) for column in ("label", "probability")]
        names = ["label", "probability", *ranked]
        if self._is_multi_label:
            first = ["label_1", "probability_1"] if ranked else []
            names = ["labels", "probabilities", *first, *ranked]
        names += [] if self._set_threshold is None else ["set"]
        names += self._about
        names += ["explanation"] if self._explained else []
        self.answer_names = {name: answer_name(name, self.taken_over) for name in names}

    def values_taken_over(self, item: Row) -> list[Any]:
        """The values of the input's columns; `DataError` if the row has a column that the table does not have."""
        if not self.keep_columns:
            return [item.id] * len(self.taken_over)
        record = item.record or {}
        late = next((name for name in record if name not in self.taken_over), None)
        if late is not None:
            raise DataError(
                f"a column {shown(late)} comes that the first rows do not have, and the input can be read but once: "
                "save it as a file, or choose --format jsonl"
            )
        return [record.get(name) for name in self.taken_over]

    def values_of_answer(self, answer: Answer) -> list[Any]:
        """The values of the answer's columns."""
        prediction, labels = answer.prediction, answer.labels
        top = prediction.top(self._top_k)
        if not self._is_multi_label or len(top) == 1:
            top = top[1:]
        ranked = [None if prediction.reason else value for named in top for value in named]
        values: list[Any] = [answer.label, prediction.probability, *ranked]
        if labels is not None:
            values = [list(labels), [prediction.probabilities[it] for it in labels], *ranked]
        values += [] if self._set_threshold is None else [prediction.label_set(self._set_threshold)]
        values += [getattr(prediction, name) for name in self._about]
        return [*values, answer.words or Explanation()] if self._explained else values


def answer_name(name: str, taken: Container[str]) -> str:
    """The name of a column of the answer beside columns that keep theirs."""
    while name in taken:
        name = f"predicted_{name}"
    return name


def encodable(text: str) -> str:
    """A text that UTF-8 can hold: half surrogates, which JSON knows, are escaped."""
    return text if text.isascii() else text.encode("utf-8", "backslashreplace").decode()


class TableWriter(Writer):
    """CSV, or TSV where there is no separator.

    Control characters are escaped, but in columns that CSV keeps, unless a terminal would obey them.
    """

    def __init__(
        self, table: Table, separator: str | None = None, *, has_mark: bool = False, for_terminal: bool = False
    ) -> None:
        self._table = table
        self._separator = separator
        self._kept = encodable if separator and table.keep_columns and not for_terminal else printable
        names = (*table.taken_over, *table.answer_names.values())
        self.header = BYTE_ORDER_MARK * has_mark + self._joined([*map(self._kept, names)])

    def line(self, answer: Answer) -> str:
        """A row."""
        fields = [self._kept(cell(value)) for value in self._table.values_taken_over(answer.item)]
        return self._joined([*fields, *map(_field, self._table.values_of_answer(answer))])

    def _joined(self, fields: Sequence[str]) -> str:
        if self._separator is None:
            return "\t".join(fields)
        return csv_row(fields, separator=self._separator, is_guarded=False)


def _field(value: Any) -> str:
    if isinstance(value, float):
        return f"{value:.6f}"
    if isinstance(value, Explanation):
        left_out = [f"({value.left_out} words left out)"] if value.left_out else []
        return " ".join([*(f"{printable(word.word)}:{word.weight:+.2f}" for word in value), *left_out])
    if isinstance(value, list):
        return SEPARATOR.join(map(_field, value))
    return printable(cell(value))


# ---------------------------------------------------------------- for people


class TextWriter(Writer):
    """Lines for people."""

    def __init__(self, request: Request, *, max_seq_len: int, coloured: bool) -> None:
        self._request, self._max_seq_len, self._coloured = request, max_seq_len, coloured

    def line(self, answer: Answer) -> str:
        """Labels, text and what else there is to know."""
        item, prediction, _, words, _, length = answer
        text = shown(item.text, limit=60)
        if prediction.reason:
            return f"?  {text}  ({prediction.reason})"
        notes = _notes(answer, self._request.set_threshold)
        if words and self._coloured:
            text = _coloured(item.text, words)
        elif words:
            notes += _reasons(words)
        if words and words.left_out:
            notes.append(f"only the first {len(words):,} words explained")
        if length:
            num_tokens, are_all = length
            of_all = f"{'' if are_all else 'more than '}{num_tokens:,}"
            notes.append(f"{self._max_seq_len:,} of {of_all} tokens")
        if prediction.unknown_words:
            notes.append(counted(prediction.unknown_words, "unknown word"))
        return f"{self._labels(answer)}  {text}" + (f"  ({'; '.join(notes)})" if notes else "")

    def _labels(self, answer: Answer) -> str:
        """The labels of an answer with their probabilities, and further classes where more than one is asked for."""
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
    """The set of classes that has the label, and whether the text is out of distribution."""
    notes = ["unlike the training texts"] if answer.prediction.unfamiliar else []
    if set_threshold is not None:
        notes.insert(0, f"set: {', '.join(map(printable, answer.prediction.label_set(set_threshold)))}")
    return notes


def _coloured(text: str, words: Explanation) -> str:
    """A text with words for the class in blue, against it in orange, two colours that the colour-blind distinguish."""
    pieces = []
    for piece, weight in marked(text, words):
        strength = min(abs(weight / STRONG), 1.0)
        full = (108, 174, 255) if weight > 0 else (255, 170, 100)
        red, green, blue = (round(255 - (255 - channel) * strength) for channel in full)
        styled = typer.style(printable(piece), bg=(red, green, blue), fg="black")
        pieces.append(printable(piece) if strength < FAINT else styled)
    return "".join(pieces)


def _reasons(words: Explanation) -> Iterator[str]:
    """The words that count most, on both sides."""
    for sign, side in ((1, "for it"), (-1, "against it")):
        most = sorted((word for word in words if sign * word.weight >= 0.005), key=lambda word: -abs(word.weight))
        if most:
            yield f"{side} " + ", ".join(f"{printable(w.word)} {w.weight:+.2f}" for w in most[:MOST_REASONS])


class PageWriter(Writer):
    """An HTML page of predictions with their words in colours; the `note` says that it has not all texts."""

    def __init__(self, request: Request, classifier: Classifier, note: str | None) -> None:
        self._set_threshold, self._note = request.set_threshold, note
        self._model = f"{classifier.folder} ({classifier.sha256[:12]})" if classifier.folder else ""

    def encode(self, answers: Sequence[Answer]) -> Any:
        """The rows of the page."""
        return [*map(self._row, answers)]

    def content(self, pieces: Iterable[Any]) -> Iterator[bytes]:
        """The page, at the end."""
        from encoder_cls.inference.html_pages import render_explanations

        rows = [*chain.from_iterable(pieces)]
        yield (render_explanations("Predictions", rows, note=self._note, model=self._model) + "\n").encode()

    def _row(self, answer: Answer) -> dict[str, Any]:
        item, prediction, label, words, labels, _ = answer
        assert words is not None
        notes, runner_up = _notes(answer, self._set_threshold), None
        if not prediction.reason and labels is None:
            runner_up = next(iter(prediction.top(2)[1:]), None)
        elif not prediction.reason:
            notes.append(f"words for and against {prediction.label}")
        return {
            "text": item.text,
            "label": label or "?" if labels is None else ", ".join(labels) or NO_LABEL,
            "probability": prediction.probability,
            "reason": prediction.reason,
            "words": words,
            "runner_up": runner_up,
            "notes": notes,
        }


def _attention_page(classifier: Classifier, inputs: Sequence[Row]) -> bytes:
    """An HTML page with the attention maps of some texts."""
    from encoder_cls.inference.html_pages import render_attention

    texts = [item.text for item in inputs]
    lines = [
        f"{it.label} {it.probability:.3f}: {text}" if it.label else f"{it.reason}: {text}"
        for text, it in zip(texts, classifier.predict(texts), strict=True)
    ]
    maps = (attention_maps(classifier, text) for text in texts)
    return render_attention("Attention", zip(lines, maps, strict=True)).encode("utf-8", "replace")
