"""Write answers as text, JSON Lines, CSV, TSV, HTML or Parquet."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from itertools import chain, islice
from typing import TYPE_CHECKING, Any, Protocol

import typer

from encoder_cls.answers.classify import Answer, Answerer
from encoder_cls.answers.inputs import Columns, Input, Source, add_columns
from encoder_cls.answers.tables import Table, answer_name, encodable
from encoder_cls.inference.task import MULTI_LABEL
from encoder_cls.system.display import cell, counted, csv_row, json_text, printable, record_text, shown
from encoder_cls.system.files import write_output

if TYPE_CHECKING:
    from encoder_cls.answers.request import Request
    from encoder_cls.inference.explain import Explanation

BYTE_ORDER_MARK = "\ufeff"
NO_LABEL = "no label"
SEPARATOR = "|"  # of the labels of a text, which `data.label_separator` can name
FAINT = 0.05  # of the full colour: less is none
MOST_REASONS = 3  # words named for, and against, a class where there are no colours
MOST_ATTENTION_TEXTS = 20  # on one page
MOST_PAGE_TEXTS = 1000  # on a page of predictions: more is slow to explain, and too much for a browser


class Writer(Protocol):
    """A format of answers."""

    def encode(self, answers: Sequence[Answer]) -> Any:
        """What `content` needs of the answers to a chunk; another process may make it."""

    def content(self, pieces: Iterable[Any]) -> Iterator[bytes]:
        """The bytes of all answers, those of a chunk as soon as it is answered."""


def written(source: Source, answerer: Answerer, *, on_terminal: bool = False) -> Iterator[bytes]:
    """Answer a source, in the format of the answerer's request; also writes the page of attention that it asks for.

    Where the columns of the source are not known, those of the first chunk are taken. On a terminal, colours show which
    words counted.
    """
    request, chunks = answerer.request, source.read()
    first_chunk = next(chunks, [])
    if request.attention:
        write_output(request.attention, _attention_page(answerer, first_chunk[:MOST_ATTENTION_TEXTS]))
    chunks = chain([first_chunk] if first_chunk else [], chunks)
    if request.output_format == "html":
        yield _page(chunks, answerer)
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
    if request.output_format not in {"tsv", "csv", "parquet"}:
        return TextWriter(request, max_seq_len=classifier.max_seq_len, coloured=on_terminal)
    table = Table(
        columns,
        request,
        keep_columns=source.keep_columns,
        num_classes=len(classifier.label_names),
        is_multi_label=classifier.task is MULTI_LABEL,
        with_unfamiliar=classifier.familiarity is not None,
    )
    if request.output_format == "tsv":
        return TableWriter(table)
    if request.output_format == "csv":
        separator, has_mark = source.csv_form()
        return TableWriter(table, separator=separator, has_mark=has_mark and not on_terminal, for_terminal=on_terminal)
    from encoder_cls.answers.parquet import ParquetWriter

    # Files whose columns can be read once more beside the answers, row by row.
    is_whole = not source.skips_rows and all(file.is_file() for file in source.files)
    return ParquetWriter(table, columns, source.files if is_whole else [])


class LineWriter:
    """A format with a line, or a row, for each answer."""

    header: str | None = None

    def line(self, answer: Answer) -> str:
        """The line of an answer, without its end."""
        raise NotImplementedError

    def encode(self, answers: Sequence[Answer]) -> bytes:
        """See `Writer`."""
        return "".join(f"{self.line(answer)}\n" for answer in answers).encode()

    def content(self, pieces: Iterable[bytes]) -> Iterator[bytes]:
        """See `Writer`."""
        if self.header is not None:
            yield f"{self.header}\n".encode()
        yield from pieces


class JsonWriter(LineWriter):
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


class TableWriter(LineWriter):
    """CSV, or TSV where there is no separator.

    Control characters are escaped, but in columns that CSV keeps, unless a terminal would obey them.
    """

    def __init__(
        self, table: Table, *, separator: str | None = None, has_mark: bool = False, for_terminal: bool = False
    ) -> None:
        self._table = table
        self._separator = separator
        self._kept = encodable if separator and table.keep_columns and not for_terminal else printable
        names = (*table.taken_over, *table.answer_names().values())
        self.header = BYTE_ORDER_MARK * has_mark + self._joined([*map(self._kept, names)])

    def line(self, answer: Answer) -> str:
        """A row."""
        fields = [self._kept(cell(value)) for value in self._table.values_taken_over(answer.item)]
        fields += [_field(value) for value in self._table.values_of_answer(answer)]
        if self._table.explained:
            words = answer.words
            weights = [f"{printable(word.word)}:{word.weight:+.2f}" for word in words or ()]
            left_out = [f"({words.left_out} words left out)"] if words and words.left_out else []
            fields.append(" ".join(weights + left_out))
        return self._joined(fields)

    def _joined(self, fields: Sequence[str]) -> str:
        if self._separator is None:
            return "\t".join(fields)
        return csv_row(fields, separator=self._separator, is_guarded=False)


def _field(value: Any) -> str:
    if isinstance(value, float):
        return f"{value:.6f}"
    if isinstance(value, list):
        return SEPARATOR.join(map(_field, value))
    return printable(cell(value))


class TextWriter(LineWriter):
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
        names = _labels(answer, top_k=self._request.top_k)
        return f"{names}  {text}" + (f"  ({'; '.join(notes)})" if notes else "")


def _labels(answer: Answer, *, top_k: int) -> str:
    """The labels of an answer with their probabilities, and further classes where more than one is asked for."""
    _, prediction, label, _, labels, _ = answer
    top = prediction.top(top_k)
    if labels is None:
        return _named([(label or "?", top[0][1]), *top[1:]])
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
    from encoder_cls.inference.explain import STRONG, marked

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


def _page(chunks: Iterable[list[Input]], answerer: Answerer) -> bytes:
    """An HTML page of predictions with their words in colours; of many texts the first."""
    from encoder_cls.inference.page import render_explanations

    texts = chain.from_iterable(chunks)
    shown_texts = list(islice(texts, MOST_PAGE_TEXTS))
    note = None
    if next(texts, None) is not None:
        note = f"the first {MOST_PAGE_TEXTS:,} texts"
        answerer.warn(f"warning: the page holds {note} only; other formats hold all")
    rows = [_page_row(answer, answerer.request.set_threshold) for answer in answerer(shown_texts)]
    classifier = answerer.classifier
    model = f"{classifier.folder} ({classifier.sha256[:12]})" if classifier.folder else ""
    return (render_explanations("Predictions", rows, note=note, model=model) + "\n").encode()


def _page_row(answer: Answer, set_threshold: float | None) -> dict[str, Any]:
    item, prediction, label, words, labels, _ = answer
    assert words is not None
    notes, runner_up = _notes(answer, set_threshold), None
    if not prediction.reason and labels is None:
        runner_up = next(iter(prediction.top(2)[1:]), None)
    elif not prediction.reason:
        notes.append(f"words for and against {prediction.label}")
    return {
        "text": item.text,
        "label": label or "?" if labels is None else ", ".join(labels) or NO_LABEL,
        "probability": prediction.probability,
        "reason": prediction.reason,
        "weights": words,
        "left_out": words.left_out,
        "runner_up": runner_up,
        "notes": notes,
    }


def _attention_page(answerer: Answerer, inputs: Sequence[Input]) -> bytes:
    """An HTML page with the attention maps of some texts."""
    from encoder_cls.inference.explain import attention_maps
    from encoder_cls.inference.page import render_attention

    classifier, texts = answerer.classifier, [item.text for item in inputs]
    lines = [
        f"{it.label} {it.probability:.3f}: {text}" if it.label else f"{it.reason}: {text}"
        for text, it in zip(texts, classifier.predict(texts), strict=True)
    ]
    maps = (attention_maps(classifier, text) for text in texts)
    return render_attention("Attention", zip(lines, maps, strict=True)).encode("utf-8", "replace")
