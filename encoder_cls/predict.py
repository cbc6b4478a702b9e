"""Texts in, one line a text out: streaming, in order, whatever the source and the format."""

from __future__ import annotations

import codecs
import json
import os
import sys
from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass
from itertools import chain
from pathlib import Path
from typing import Any, Literal, NamedTuple

import typer

from encoder_cls.classifier import Classifier, Prediction
from encoder_cls.columns import in_chunks
from encoder_cls.errors import ConfigError
from encoder_cls.explain import WordWeight, attention_maps, explain
from encoder_cls.pages import STRONG, attention_page, explanations_page, marked
from encoder_cls.run_folder import run_of
from encoder_cls.sources import files_named, read_rows, shown

Format = Literal["text", "jsonl", "tsv", "html"]

CHUNK = 2048  # texts classified at once; sorted by length within a chunk
READ_BYTES = 1 << 20
FAINT = 0.05  # of the full colour: less is none
MOST_REASONS = 3  # words named for, and against, a class where there are no colours
MOST_ATTENTION_TEXTS = 20  # on one page


class Input(NamedTuple):
    """A text and, where its row has one, the row's id."""

    text: str
    id: str | int | None = None


def columns_of(folder: Path) -> Sequence[str]:
    """The columns in which the texts of a run or model folder were; `text` where nothing tells."""
    run = run_of(folder)
    if run:
        with suppress(ConfigError):  # the classifier is whole without it
            return run.load_config().data.text_column
    return ["text"]


def read_inputs(source: str, *, text_columns: Sequence[str]) -> Iterator[list[Input]]:
    """The texts of files or of standard input (`-`), in chunks.

    Lines of standard input are passed on as soon as they are there, so that a pipe answers line by line; what is no
    UTF-8 in them is replaced, while a file with such bytes is refused.

    Raises:
        DataError: the file is missing or malformed.
    """
    if source == "-":
        yield from _as_they_come(sys.stdin.fileno())
    else:
        rows = read_rows(source, role="test", text_columns=text_columns, label_column=None)
        yield from in_chunks((Input(row.text, row.id) for row in rows), CHUNK)


def check_inputs(source: str, *, text_columns: Sequence[str]) -> None:
    """Read all texts of files once, so that a malformed row is told of before the work and not at the end of it.

    What can be read but once, such as a pipe, is left alone.

    Raises:
        DataError: as `read_inputs`.
    """
    files = files_named(source)
    if files and all(file.is_file() or file.is_dir() for file in files):
        for _ in read_inputs(source, text_columns=text_columns):
            pass


def predict_lines(
    classifier: Classifier,
    chunks: Iterable[Sequence[Input]],
    *,
    output_format: Format,
    top_k: int,
    threshold: float,
    batch_tokens: int | None,
    explained: bool = False,
    coloured: bool = False,
) -> Iterator[list[str]]:
    """Classify chunks of texts; for each chunk a list of lines, without line ends, in order.

    Args:
        classifier: the classifier.
        chunks: the texts.
        output_format: `text` or `html` for people, `jsonl` or `tsv` for programs; `html` is one page, at the end.
        top_k: how many classes to name.
        threshold: a less probable best class is withheld: the label is null (jsonl), empty (tsv) or "?" (text, html).
        batch_tokens: the most tokens in a batch; none: what the device is fast with.
        explained: whether to say which words spoke for the best class, and which against it.
        coloured: whether a text shows that in colours.
    """
    chunks = iter(chunks)
    first = next(chunks, None)
    with_id = first is not None and first[0].id is not None
    columns = _Columns(with_id=with_id, top_k=top_k, explained=explained)
    if output_format == "tsv":
        yield [columns.header(len(classifier.label_names))]
    page: list[dict[str, Any]] = []
    for chunk in chain([first] if first else [], chunks):
        texts = [item.text for item in chunk]
        predictions = classifier.predict(texts, batch_tokens=batch_tokens)
        reasons: Sequence[list[WordWeight] | None] = [None] * len(chunk)
        if explained or output_format == "html":
            best = [classifier.label_names.index(prediction.label) for prediction in predictions]
            reasons = explain(classifier, texts, best, batch_tokens=batch_tokens)
        lines = []
        for item, prediction, words in zip(chunk, predictions, reasons, strict=True):
            label = prediction.label if prediction.probability >= threshold else None
            if output_format == "html":
                probability = prediction.probability
                page.append({"text": item.text, "label": label or "?", "probability": probability, "weights": words})
            elif output_format == "jsonl":
                lines.append(_json_line(item, prediction, label, top_k, words))
            elif output_format == "tsv":
                lines.append(columns.line(item, prediction, label, words))
            else:
                lines.append(_text_line(item, prediction, label, top_k, words, coloured=coloured))
        yield lines
    if output_format == "html":
        yield explanations_page("Predictions", page).split("\n")


def attention_html(classifier: Classifier, inputs: Sequence[Input]) -> str:
    """A page with the attention maps of some texts, of `MOST_ATTENTION_TEXTS` at most."""
    texts = [item.text for item in inputs[:MOST_ATTENTION_TEXTS]]
    lines = [
        f"{prediction.label} {prediction.probability:.3f}: {text}"
        for text, prediction in zip(texts, classifier.predict(texts), strict=True)
    ]
    maps = [attention_maps(classifier, text) for text in texts]
    return attention_page("Attention", list(zip(lines, maps, strict=True)))


def printable(text: str) -> str:
    """A text on one line in which control, formatting and half surrogate characters are escaped."""
    return "".join(c if c.isprintable() else c.encode("unicode_escape").decode() for c in text)


def _as_they_come(descriptor: int) -> Iterator[list[Input]]:
    """Whole lines of a stream: as many as have arrived, at once."""
    rest, is_first = b"", True
    while block := os.read(descriptor, READ_BYTES):
        *lines, rest = (rest + block).split(b"\n")
        if is_first and lines:
            lines[0], is_first = lines[0].removeprefix(codecs.BOM_UTF8), False
        yield from in_chunks((Input(_decode(line)) for line in lines), CHUNK)
    if rest:
        yield [Input(_decode(rest.removeprefix(codecs.BOM_UTF8) if is_first else rest))]


def _decode(line: bytes) -> str:
    return line.removesuffix(b"\n").removesuffix(b"\r").decode("utf-8", "replace")


def _json_line(
    item: Input, prediction: Prediction, label: str | None, top_k: int, words: Sequence[WordWeight] | None
) -> str:
    record: dict[str, Any] = {} if item.id is None else {"id": item.id}
    record |= {
        "label": label,
        "probability": prediction.probability,
        "top": [{"label": name, "probability": probability} for name, probability in prediction.top(top_k)],
        "truncated": prediction.truncated,
        "unknown_words": prediction.unknown_words,
    }
    if words is not None:
        record["explanation"] = [asdict(word) for word in words]
    line = json.dumps(record, ensure_ascii=False)
    # What JSON leaves as it is can still steer a terminal: C1 controls, marks that reverse the direction.
    return "".join(c if c.isprintable() else json.dumps(c)[1:-1] for c in line)


@dataclass(frozen=True, kw_only=True)
class _Columns:
    """Tab-separated values: which columns there are."""

    with_id: bool
    top_k: int
    explained: bool

    def header(self, num_classes: int) -> str:
        ranks = range(2, min(self.top_k, num_classes) + 1)
        ranked = [f"{column}_{rank}" for rank in ranks for column in ("label", "probability")]
        names = [*(["id"] if self.with_id else []), "label", "probability", *ranked, "truncated", "unknown_words"]
        return "\t".join(names + (["explanation"] if self.explained else []))

    def line(self, item: Input, prediction: Prediction, label: str | None, words: Sequence[WordWeight] | None) -> str:
        top = prediction.top(self.top_k)[1:]
        fields = [
            *([printable("" if item.id is None else str(item.id))] if self.with_id else []),
            printable(label or ""),
            f"{prediction.probability:.6f}",
            *(field for name, probability in top for field in (printable(name), f"{probability:.6f}")),
            str(prediction.truncated).lower(),
            str(prediction.unknown_words),
        ]
        if self.explained:
            fields.append(" ".join(f"{printable(word.word)}:{word.weight:+.2f}" for word in words or ()))
        return "\t".join(fields)


def _text_line(
    item: Input,
    prediction: Prediction,
    label: str | None,
    top_k: int,
    words: Sequence[WordWeight] | None,
    *,
    coloured: bool,
) -> str:
    best, *others = prediction.top(top_k)
    names = [(label or "?", best[1]), *others]
    answer = "  ".join(f"{printable(name)} {probability:.3f}" for name, probability in names)
    text = shown(item.text, limit=60)
    notes: list[str] = []
    if words and coloured:
        text = "".join(_in_colour(printable(piece), weight) for piece, weight in marked(item.text, words))
    elif words:
        notes += _reasons(words)
    if prediction.truncated:
        notes.append("longer than the encoder reads")
    if prediction.unknown_words:
        notes.append(f"{prediction.unknown_words} unknown words")
    return f"{answer}  {text}" + (f"  ({'; '.join(notes)})" if notes else "")


def _in_colour(text: str, weight: float) -> str:
    strength = min(abs(weight) / STRONG, 1.0)
    if strength < FAINT:
        return text
    full = (74, 194, 107) if weight > 0 else (255, 129, 130)
    red, green, blue = (round(255 - (255 - channel) * strength) for channel in full)
    return typer.style(text, bg=(red, green, blue), fg="black")


def _reasons(words: Sequence[WordWeight]) -> Iterator[str]:
    """The words that count most, on both sides."""
    for sign, what in ((1, "for it"), (-1, "against it")):
        found = sorted((word for word in words if sign * word.weight >= 0.005), key=lambda word: -abs(word.weight))
        if found:
            yield f"{what} " + ", ".join(f"{printable(w.word)} {w.weight:+.2f}" for w in found[:MOST_REASONS])
