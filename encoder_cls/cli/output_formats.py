"""Texts in, a line a text out as text, JSON Lines, TSV or CSV, in order and while they come; or a page."""

from __future__ import annotations

import csv
import io
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import chain, islice
from typing import TYPE_CHECKING, Literal

import typer

from encoder_cls.cli.text_inputs import Input
from encoder_cls.inference.classifier import Classifier, Prediction
from encoder_cls.inference.json_record import json_record
from encoder_cls.system.display import json_text, printable, shown
from encoder_cls.text.token_arrays import TokenizedTexts

if TYPE_CHECKING:
    from encoder_cls.inference.explain import Explanation, WordWeight

Format = Literal["text", "jsonl", "tsv", "csv", "html"]
FAINT = 0.05  # of the full colour: less is none
MOST_REASONS = 3  # words named for, and against, a class where there are no colours
MOST_ATTENTION_TEXTS = 20  # on one page
MOST_PAGE_TEXTS = 1000  # on a page of predictions: more is slow to explain, and too much for a browser


def predict_lines(  # noqa: PLR0913 - what `predict` can be asked for
    classifier: Classifier,
    chunks: Iterable[Sequence[Input]],
    *,
    output_format: Format,
    top_k: int,
    threshold: float,
    batch_tokens: int | None,
    explained: bool = False,
    coloured: bool = False,
    with_id: bool | None = None,
    warn: Callable[[str], None] = lambda _: None,
) -> Iterator[list[str]]:
    """Classify chunks of texts; for each chunk a list of lines, without line ends, in order.

    Args:
        classifier: the classifier.
        chunks: the texts.
        output_format: `text` or `html` for people, `jsonl`, `tsv` or `csv` for programs; `html` is one page, at the
            end, of the first `MOST_PAGE_TEXTS` texts.
        top_k: how many classes to name.
        threshold: a less probable best class is withheld: the label is null (jsonl), empty (tsv, csv) or "?" (text,
            html).
        batch_tokens: the most tokens in a batch; none: what the device is fast with.
        explained: whether to say which words spoke for the best class, and which against it.
        coloured: whether a text shows that in colours.
        with_id: whether tables have a column of ids; none: where the first chunk has one.
        warn: told what has been left out.
    """
    if output_format == "html":
        yield _page(classifier, chunks, threshold=threshold, batch_tokens=batch_tokens, warn=warn).split("\n")
        return
    chunks = iter(chunks)
    table: _Columns | None = None
    if output_format in {"tsv", "csv"}:
        first = next(chunks, [])
        chunks = chain([first] if first else [], chunks)
        if with_id is None:
            with_id = any(item.id is not None for item in first)
        table = _Columns(with_id=with_id, top_k=top_k, explained=explained, is_csv=output_format == "csv")
        yield [table.header(len(classifier.label_names))]
    warn_once = _warning_once(warn)
    for chunk in chunks:
        tokenized = classifier.tokenize([item.text for item in chunk])
        predictions = classifier.predict_tokenized(tokenized, batch_tokens=batch_tokens)
        reasons: Sequence[Explanation | None] = [None] * len(chunk)
        if explained:
            reasons = _explanations(
                classifier, chunk, tokenized, predictions, batch_tokens=batch_tokens, warn=warn_once
            )
        lines = []
        for item, prediction, words in zip(chunk, predictions, reasons, strict=True):
            label = prediction.label if prediction.probability >= threshold else None
            if table:
                lines.append(table.line(item, prediction, label, words))
            elif output_format == "jsonl":
                record = {} if item.id is None else {"id": item.id}
                record |= json_record(prediction, top_k=top_k, threshold=threshold, words=words)
                lines.append(json_text(record))
            else:
                lines.append(_text_line(item, prediction, label, top_k, words, coloured=coloured))
        yield lines


def _page(
    classifier: Classifier,
    chunks: Iterable[Sequence[Input]],
    *,
    threshold: float,
    batch_tokens: int | None,
    warn: Callable[[str], None],
) -> str:
    """Predictions with their words in colours; of many texts the first."""
    from encoder_cls.inference.prediction_pages import render_explanations

    texts = (item for chunk in chunks for item in chunk)
    shown_texts = list(islice(texts, MOST_PAGE_TEXTS))
    note = None
    if next(texts, None) is not None:
        note = f"the first {MOST_PAGE_TEXTS:,} texts"
        warn(f"warning: the page holds {note} only; other formats hold all")
    tokenized = classifier.tokenize([item.text for item in shown_texts])
    predictions = classifier.predict_tokenized(tokenized, batch_tokens=batch_tokens)
    reasons = _explanations(
        classifier, shown_texts, tokenized, predictions, batch_tokens=batch_tokens, warn=_warning_once(warn)
    )
    rows = [
        {
            "text": item.text,
            "label": prediction.label if prediction.probability >= threshold else "?",
            "probability": prediction.probability,
            "weights": words,
            "left_out": words.left_out,
        }
        for item, prediction, words in zip(shown_texts, predictions, reasons, strict=True)
    ]
    return render_explanations("Predictions", rows, note=note)


def _explanations(
    classifier: Classifier,
    inputs: Sequence[Input],
    tokenized: TokenizedTexts,
    predictions: Sequence[Prediction],
    *,
    batch_tokens: int | None,
    warn: Callable[[str], None],
) -> list[Explanation]:
    """What the words of each text did for the class that was predicted."""
    numbers = {name: number for number, name in enumerate(classifier.label_names)}
    best = [numbers[prediction.label] for prediction in predictions]
    from encoder_cls.inference.explain import explain

    found = explain(classifier, [item.text for item in inputs], tokenized, best, batch_tokens=batch_tokens)
    if any(words.left_out for words in found):
        warn("warning: of very long texts only the first words are explained; each result says how many are left out")
    return found


def _warning_once(warn: Callable[[str], None]) -> Callable[[str], None]:
    told: set[str] = set()

    def warn_once(message: str) -> None:
        if message not in told:
            told.add(message)
            warn(message)

    return warn_once


def attention_html(classifier: Classifier, inputs: Sequence[Input]) -> str:
    """A page with the attention maps of some texts, of `MOST_ATTENTION_TEXTS` at most."""
    from encoder_cls.inference.prediction_pages import render_attention

    texts = [item.text for item in inputs[:MOST_ATTENTION_TEXTS]]
    lines = [
        f"{prediction.label} {prediction.probability:.3f}: {text}"
        for text, prediction in zip(texts, classifier.predict(texts), strict=True)
    ]
    from encoder_cls.inference.explain import attention_maps

    maps = (attention_maps(classifier, text) for text in texts)
    return render_attention("Attention", zip(lines, maps, strict=True))


@dataclass(frozen=True, kw_only=True)
class _Columns:
    """Values separated by tabs or commas: which columns there are.

    Control characters are escaped in both, so that a row is a line; fields with commas and quotes are in quotes, as
    RFC 4180 has them, where commas separate them.
    """

    with_id: bool
    top_k: int
    explained: bool
    is_csv: bool = False

    def header(self, num_classes: int) -> str:
        ranks = range(2, min(self.top_k, num_classes) + 1)
        ranked = [f"{column}_{rank}" for rank in ranks for column in ("label", "probability")]
        names = [*(["id"] if self.with_id else []), "label", "probability", *ranked, "truncated", "unknown_words"]
        return self._joined(names + (["explanation"] if self.explained else []))

    def line(self, item: Input, prediction: Prediction, label: str | None, words: Explanation | None) -> str:
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
            weights = [f"{printable(word.word)}:{word.weight:+.2f}" for word in words or ()]
            left_out = [f"({words.left_out} words left out)"] if words and words.left_out else []
            fields.append(" ".join(weights + left_out))
        return self._joined(fields)

    def _joined(self, fields: Sequence[str]) -> str:
        if not self.is_csv:
            return "\t".join(fields)
        line = io.StringIO()
        csv.writer(line, lineterminator="").writerow(fields)
        return line.getvalue()


def _text_line(
    item: Input,
    prediction: Prediction,
    label: str | None,
    top_k: int,
    words: Explanation | None,
    *,
    coloured: bool,
) -> str:
    best, *others = prediction.top(top_k)
    names = [(label or "?", best[1]), *others]
    answer = "  ".join(f"{printable(name)} {probability:.3f}" for name, probability in names)
    text = shown(item.text, limit=60)
    notes: list[str] = []
    if words and coloured:
        text = _coloured(item.text, words)
    elif words:
        notes += _reasons(words)
    if words and words.left_out:
        notes.append(f"only the first {len(words):,} words explained")
    if prediction.truncated:
        notes.append("longer than the encoder reads")
    if prediction.unknown_words:
        notes.append(f"{prediction.unknown_words} unknown words")
    return f"{answer}  {text}" + (f"  ({'; '.join(notes)})" if notes else "")


def _coloured(text: str, words: Explanation) -> str:
    from encoder_cls.inference.explain import STRONG, marked

    return "".join(_in_colour(printable(piece), weight / STRONG) for piece, weight in marked(text, words))


def _in_colour(text: str, weight: float) -> str:
    strength = min(abs(weight), 1.0)
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
