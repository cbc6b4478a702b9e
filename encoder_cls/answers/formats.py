"""Write answers as text, JSON Lines, CSV, TSV or HTML."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import chain, islice
from typing import TYPE_CHECKING, NamedTuple

import typer

from encoder_cls.answers.inputs import Columns, Input, add_columns
from encoder_cls.answers.request import Request
from encoder_cls.answers.tables import Answer, TableLines, answer_name, new_table, record_text
from encoder_cls.inference.classifier import Classifier, Prediction
from encoder_cls.inference.json_record import json_record
from encoder_cls.inference.task import MULTI_LABEL
from encoder_cls.system.display import json_text, printable, shown
from encoder_cls.text.tokenizer import count_tokens
from encoder_cls.text.tokens import TokenizedTexts

if TYPE_CHECKING:
    from encoder_cls.inference.explain import Explanation, WordWeight

BYTE_ORDER_MARK = "\ufeff"
NO_LABEL = "no label"
FAINT = 0.05  # of the full colour: less is none
MOST_REASONS = 3  # words named for, and against, a class where there are no colours
MOST_ATTENTION_TEXTS = 20  # on one page
MOST_PAGE_TEXTS = 1000  # on a page of predictions: more is slow to explain, and too much for a browser


class TableForm(NamedTuple):
    """How tables are written.

    Attributes:
        columns: those that are taken over from the input; none: what the first chunk has.
        separator: of the fields of CSV.
        byte_order_mark: whether CSV begins with the mark by which spreadsheets know UTF-8.
    """

    columns: Columns | None = None
    separator: str = ","
    byte_order_mark: bool = False


PLAIN_TABLE = TableForm()


def predict_lines(
    classifier: Classifier,
    chunks: Iterable[Sequence[Input]],
    request: Request,
    *,
    form: TableForm = PLAIN_TABLE,
    on_terminal: bool = False,
    seen: Callable[[Sequence[Answer]], None] = lambda _: None,
    warn: Callable[[str], None] = lambda _: None,
) -> Iterator[list[str]]:
    """Classify chunks of texts; for each chunk a list of lines, without line ends, in order.

    Args:
        classifier: the classifier.
        chunks: the texts.
        request: what is asked for; parquet has no lines.
        form: of tables.
        on_terminal: whether a terminal shows the lines, and colours say which words counted.
        seen: told of each chunk's answers.
        warn: told what has been left out.
    """
    if request.output_format == "html":
        yield _page(classifier, chunks, request, seen=seen, warn=warn).split("\n")
        return
    chunks, columns = iter(chunks), form.columns
    is_table = request.output_format in {"tsv", "csv"}
    if columns is None and (request.keep_columns or is_table):
        first = next(chunks, [])
        chunks = chain([first] if first else [], chunks)
        add_columns(columns := {}, first)
    lines: TableLines | None = None
    if is_table:
        table = new_table(
            columns or {},
            request,
            num_classes=len(classifier.label_names),
            is_multi_label=classifier.task is MULTI_LABEL,
        )
        is_csv = request.output_format == "csv"
        lines = TableLines(table=table, is_csv=is_csv, separator=form.separator, for_terminal=on_terminal)
        yield [BYTE_ORDER_MARK * form.byte_order_mark + lines.header()]
    for found in answers(classifier, chunks, request, seen=seen, warn=warn):
        if lines:
            yield [lines.line(answer) for answer in found]
        elif request.output_format == "jsonl":
            yield [_json_line(answer, request, columns or {}) for answer in found]
        else:
            yield [_text_line(answer, classifier, request, coloured=on_terminal) for answer in found]


def answers(
    classifier: Classifier,
    chunks: Iterable[Sequence[Input]],
    request: Request,
    *,
    seen: Callable[[Sequence[Answer]], None] = lambda _: None,
    warn: Callable[[str], None],
) -> Iterator[list[Answer]]:
    """Classify chunks of texts; arguments as in `predict_lines`."""
    warn_once = _warning_once(warn)
    for chunk in chunks:
        tokenized = classifier.tokenize([item.text for item in chunk])
        predictions = classifier.predict_tokenized(tokenized, batch_tokens=request.batch_tokens)
        reasons: Sequence[Explanation | None] = [None] * len(chunk)
        if request.explained:
            reasons = _explanations(
                classifier, chunk, tokenized, predictions, batch_tokens=request.batch_tokens, warn=warn_once
            )
        found = [
            _answer(item, prediction, words, request.threshold)
            for item, prediction, words in zip(chunk, predictions, reasons, strict=True)
        ]
        seen(found)
        yield found


def _answer(item: Input, prediction: Prediction, words: Explanation | None, threshold: float) -> Answer:
    """What is said of a text, where labels that are less probable are withheld."""
    if prediction.is_multi_label:
        return Answer(item, prediction, None, words, prediction.labels_from(threshold))
    return Answer(item, prediction, prediction.label_from(threshold), words)


def _page(
    classifier: Classifier,
    chunks: Iterable[Sequence[Input]],
    request: Request,
    *,
    seen: Callable[[Sequence[Answer]], None],
    warn: Callable[[str], None],
) -> str:
    """Predictions with their words in colours; of many texts the first."""
    from encoder_cls.inference.page import render_explanations

    texts = (item for chunk in chunks for item in chunk)
    shown_texts = list(islice(texts, MOST_PAGE_TEXTS))
    note = None
    if next(texts, None) is not None:
        note = f"the first {MOST_PAGE_TEXTS:,} texts"
        warn(f"warning: the page holds {note} only; other formats hold all")
    tokenized = classifier.tokenize([item.text for item in shown_texts])
    predictions = classifier.predict_tokenized(tokenized, batch_tokens=request.batch_tokens)
    reasons = _explanations(
        classifier, shown_texts, tokenized, predictions, batch_tokens=request.batch_tokens, warn=_warning_once(warn)
    )
    found = [
        _answer(item, prediction, words, request.threshold)
        for item, prediction, words in zip(shown_texts, predictions, reasons, strict=True)
    ]
    seen(found)
    rows = [
        {
            "text": item.text,
            "label": answer.label or "?" if answer.labels is None else ", ".join(answer.labels) or NO_LABEL,
            "probability": prediction.probability,
            "reason": prediction.reason,
            "weights": words,
            "left_out": words.left_out,
            "runner_up": next(iter(prediction.top(2)[1:]), None),
            "notes": _notes(prediction, request.set_threshold),
        }
        for item, prediction, words, answer in zip(shown_texts, predictions, reasons, found, strict=True)
    ]
    model = f"{classifier.folder} ({classifier.sha256[:12]})" if classifier.folder else ""
    return render_explanations("Predictions", rows, note=note, model=model)


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
    best = [numbers[prediction.label] if prediction.label else 0 for prediction in predictions]
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
    from encoder_cls.inference.page import render_attention

    texts = [item.text for item in inputs[:MOST_ATTENTION_TEXTS]]
    lines = [
        f"{prediction.label} {prediction.probability:.3f}: {text}"
        if prediction.label
        else f"{prediction.reason}: {text}"
        for text, prediction in zip(texts, classifier.predict(texts), strict=True)
    ]
    from encoder_cls.inference.explain import attention_maps

    maps = (attention_maps(classifier, text) for text in texts)
    return render_attention("Attention", zip(lines, maps, strict=True))


def _json_line(answer: Answer, request: Request, columns: Columns) -> str:
    item, prediction, label, words, labels = answer
    top_k = max(request.top_k, len(labels or ()))
    record = json_record(prediction, top_k=top_k, threshold=0, set_threshold=request.set_threshold, words=words)
    record |= {"label": label} if labels is None else {"labels": list(labels)}
    if item.record is not None:
        # Called alike in all lines, whether or not this row has the column.
        taken = columns.keys() | item.record.keys()
        named = {answer_name(name, taken): value for name, value in record.items()}
        return record_text({**item.record, **named})
    return json_text(record if item.id is None else {"id": item.id, **record})


def _text_line(answer: Answer, classifier: Classifier, request: Request, *, coloured: bool) -> str:
    item, prediction, label, words, labels = answer
    if prediction.reason:
        return f"?  {shown(item.text, limit=60)}  ({prediction.reason})"
    best, *others = prediction.top(request.top_k)
    names = [(label or "?", best[1]), *others]
    if labels is not None:
        names = [(name, prediction.probabilities[name]) for name in labels]
        others = [named for named in (best, *others) if named[0] not in labels] if request.top_k > 1 else []
    shown_names = _named(names) or NO_LABEL
    if labels is not None and others:
        shown_names += f"  ({_named(others)})"
    text = shown(item.text, limit=60)
    notes = _notes(prediction, request.set_threshold)
    if words and coloured:
        text = _coloured(item.text, words)
    elif words:
        notes += _reasons(words)
    if words and words.left_out:
        notes.append(f"only the first {len(words):,} words explained")
    if prediction.truncated:
        num_tokens, are_all = count_tokens(classifier.tokenizer, item.text)
        notes.append(f"{classifier.max_seq_len:,} of {'' if are_all else 'more than '}{num_tokens:,} tokens")
    if prediction.unknown_words:
        notes.append(f"{prediction.unknown_words:,} unknown word{'s' * (prediction.unknown_words > 1)}")
    return f"{shown_names}  {text}" + (f"  ({'; '.join(notes)})" if notes else "")


def _named(names: Iterable[tuple[str, float]]) -> str:
    """Classes with their probabilities."""
    return "  ".join(f"{printable(name)} {probability:.3f}" for name, probability in names)


def _notes(prediction: Prediction, set_threshold: float | None) -> list[str]:
    """What people are told of a text beside its label: the set that has it, and whether it is unlike the others."""
    notes = []
    if set_threshold is not None:
        notes.append(f"set: {', '.join(map(printable, prediction.label_set(set_threshold)))}")
    if prediction.unfamiliar:
        notes.append("unlike the training texts")
    return notes


def _coloured(text: str, words: Explanation) -> str:
    from encoder_cls.inference.explain import STRONG, marked

    return "".join(_in_colour(printable(piece), weight / STRONG) for piece, weight in marked(text, words))


def _in_colour(text: str, weight: float) -> str:
    strength = min(abs(weight), 1.0)
    if strength < FAINT:
        return text
    full = (108, 174, 255) if weight > 0 else (255, 170, 100)  # blue and orange, which the colour-blind tell apart
    red, green, blue = (round(255 - (255 - channel) * strength) for channel in full)
    return typer.style(text, bg=(red, green, blue), fg="black")


def _reasons(words: Sequence[WordWeight]) -> Iterator[str]:
    """The words that count most, on both sides."""
    for sign, what in ((1, "for it"), (-1, "against it")):
        found = sorted((word for word in words if sign * word.weight >= 0.005), key=lambda word: -abs(word.weight))
        if found:
            yield f"{what} " + ", ".join(f"{printable(w.word)} {w.weight:+.2f}" for w in found[:MOST_REASONS])
