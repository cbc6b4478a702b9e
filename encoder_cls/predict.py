"""Texts in, one line a text out: streaming, in order, whatever the source and the format."""

from __future__ import annotations

import codecs
import json
import os
import sys
from collections.abc import Iterable, Iterator, Sequence
from itertools import chain, islice
from pathlib import Path
from typing import Any, Literal, NamedTuple

from encoder_cls.classifier import Classifier, Prediction
from encoder_cls.errors import DataError
from encoder_cls.sources import read_rows, shown

Format = Literal["text", "jsonl", "tsv"]

CHUNK = 1024  # texts classified at once; sorted by length within a chunk
READ_BYTES = 1 << 20


class Input(NamedTuple):
    """A text and, where its row has one, the row's id."""

    text: str
    id: str | int | None = None


def read_inputs(source: str, *, text_columns: Sequence[str]) -> Iterator[list[Input]]:
    """The texts of a file or of standard input (`-`), in chunks.

    Lines of standard input are passed on as soon as they are there, so that a pipe answers line by line.

    Raises:
        DataError: the file is missing or malformed.
    """
    if source == "-":
        yield from _as_they_come(sys.stdin.fileno())
    elif Path(source).suffix == ".txt":
        try:
            with Path(source).open("rb") as file:
                yield from _chunks(
                    Input(_decode(line if number else line.removeprefix(codecs.BOM_UTF8)))
                    for number, line in enumerate(file)
                )
        except OSError as error:
            raise DataError(f"{source}: cannot be read: {error.strerror}") from None
    else:
        rows = read_rows(source, role="test", text_columns=text_columns, label_column=None)
        yield from _chunks(Input(row.text, row.id) for row in rows)


def predict_lines(
    classifier: Classifier,
    chunks: Iterable[Sequence[Input]],
    *,
    output_format: Format,
    top_k: int,
    threshold: float,
    batch_tokens: int,
) -> Iterator[list[str]]:
    """Classify chunks of texts; for each chunk a list of lines, without line ends, in order.

    Args:
        classifier: the classifier.
        chunks: the texts.
        output_format: `text` for people, `jsonl` or `tsv` for programs.
        top_k: how many classes to name.
        threshold: a less probable best class is withheld: the label is null (jsonl), empty (tsv) or "?" (text).
        batch_tokens: the most tokens in a batch.
    """
    chunks = iter(chunks)
    first = next(chunks, None)
    if first is None:
        return
    with_id = first[0].id is not None
    if output_format == "tsv":
        yield [_tsv_header(min(top_k, len(classifier.label_names)), with_id=with_id)]
    for chunk in chain([first], chunks):
        predictions = classifier.predict([item.text for item in chunk], batch_tokens=batch_tokens)
        lines = []
        for item, prediction in zip(chunk, predictions, strict=True):
            label = prediction.label if prediction.probability >= threshold else None
            if output_format == "jsonl":
                lines.append(_json_line(item, prediction, label, top_k))
            elif output_format == "tsv":
                lines.append(_tsv_line(item, prediction, label, top_k, with_id=with_id))
            else:
                lines.append(_text_line(item, prediction, label, top_k))
        yield lines


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
        yield from _chunks(Input(_decode(line)) for line in lines)
    if rest:
        yield [Input(_decode(rest.removeprefix(codecs.BOM_UTF8) if is_first else rest))]


def _decode(line: bytes) -> str:
    return line.removesuffix(b"\n").removesuffix(b"\r").decode("utf-8", "replace")


def _chunks(inputs: Iterable[Input]) -> Iterator[list[Input]]:
    iterator = iter(inputs)
    while chunk := list(islice(iterator, CHUNK)):
        yield chunk


def _json_line(item: Input, prediction: Prediction, label: str | None, top_k: int) -> str:
    record: dict[str, Any] = {} if item.id is None else {"id": item.id}
    record |= {
        "label": label,
        "probability": prediction.probability,
        "top": [{"label": name, "probability": probability} for name, probability in prediction.top(top_k)],
        "truncated": prediction.truncated,
        "unknown_words": prediction.unknown_words,
    }
    line = json.dumps(record, ensure_ascii=False)
    # What JSON leaves as it is can still steer a terminal: C1 controls, marks that reverse the direction.
    return "".join(c if c.isprintable() else json.dumps(c)[1:-1] for c in line)


def _tsv_header(top_k: int, *, with_id: bool) -> str:
    ranked = [f"{column}_{rank}" for rank in range(2, top_k + 1) for column in ("label", "probability")]
    return "\t".join([*(["id"] if with_id else []), "label", "probability", *ranked, "truncated", "unknown_words"])


def _tsv_line(item: Input, prediction: Prediction, label: str | None, top_k: int, *, with_id: bool) -> str:
    others = [field for name, p in prediction.top(top_k)[1:] for field in (printable(name), f"{p:.6f}")]
    fields = [
        *([printable("" if item.id is None else str(item.id))] if with_id else []),
        printable(label or ""),
        f"{prediction.probability:.6f}",
        *others,
        str(prediction.truncated).lower(),
        str(prediction.unknown_words),
    ]
    return "\t".join(fields)


def _text_line(item: Input, prediction: Prediction, label: str | None, top_k: int) -> str:
    best, *others = prediction.top(top_k)
    names = [(label or "?", best[1]), *others]
    answer = "  ".join(f"{printable(name)} {probability:.3f}" for name, probability in names)
    notes = []
    if prediction.truncated:
        notes.append("cut to the longest text the model reads")
    if prediction.unknown_words:
        notes.append(f"{prediction.unknown_words} unknown words")
    return f"{answer}  {shown(item.text, limit=60)}" + (f"  ({', '.join(notes)})" if notes else "")
