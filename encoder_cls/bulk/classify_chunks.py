"""Classify a source chunk by chunk, yield the bytes of its output, and count unexpected answers."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from itertools import chain, islice
from pathlib import Path
from typing import Any

from encoder_cls.bulk.formats import Answer, PageWriter, Writer, attention_page, writer_for
from encoder_cls.bulk.inputs import (
    Source,
    add_columns,
    choose_engine,
    size_of,
    size_of_standard_input,
)
from encoder_cls.bulk.request import STANDARD_INPUT, Request
from encoder_cls.classifier.classifier import Classifier
from encoder_cls.classifier.explain import Explanation, explain
from encoder_cls.data.reading.rows import Row
from encoder_cls.system.display import counted
from encoder_cls.system.files import write_output
from encoder_cls.system.machine import resolve_device
from encoder_cls.system.processes import Workers, usable_processes
from encoder_cls.system.terminal import note
from encoder_cls.text.tokenizer import count_tokens

Chunk = Sequence[Row]
TEXTS, UNFAMILIAR, UNKNOWN = "texts", "unfamiliar (unlike the training texts)", "with unknown words"
# The size of input from which two processes are quicker: equal at 4 MB, 1.3 times at 10 MB.
SHARED_BYTES = 5_000_000
MOST_ATTENTION_TEXTS = 20  # on one page
# The most texts on a page of predictions: more is slow to explain, and too much for a browser.
MOST_PAGE_TEXTS = 1000
LEFT_OUT = "warning: of very long texts only the first words are explained; each result has the number of the others"


class Answerer:
    """Classifies sources, by itself or by its `workers`, and counts unexpected answers over all of them."""

    def __init__(
        self, classifier: Classifier, request: Request, *, warn: Callable[[str], None] = note
    ) -> None:
        self.classifier = classifier
        self.request = request
        self.warn = warn
        self.workers: Workers[tuple[Writer, Chunk], tuple[Any, Counter[str]]] | None = None
        self._threshold = request.threshold
        why = f"--threshold {self._threshold or 0:g}"
        if request.min_precision is not None:
            why = (
                f"--min-precision {request.min_precision:g}: probability below "
                f"{self._threshold or 0:.3f}"
            )
        self._truncated = f"truncated (longer than {classifier.max_seq_len:,} tokens)"
        self._withheld = f"withheld ({why})"
        self.num_texts = 0  # answered so far
        self._counts: Counter[str] = Counter()

    def __getstate__(self) -> dict[str, Any]:
        return self.__dict__ | {"warn": None, "workers": None}

    def content(self, source: Source, *, on_terminal: bool = False) -> Iterator[bytes]:
        """The answers to a source in the request's format; also writes the page of attention maps, if one is requested.

        If the columns of the source are unknown, those of the first chunk are used.
        """
        request, chunks = self.request, source.read()
        first_chunk = next(chunks, [])
        if request.attention:
            texts = [item.text for item in first_chunk[:MOST_ATTENTION_TEXTS]]
            write_output(request.attention, attention_page(self.classifier, texts))
        chunks = chain([first_chunk] if first_chunk else [], chunks)
        if request.output_format == "html":
            part, texts_of_all = None, chain.from_iterable(chunks)
            chunks = iter([[*islice(texts_of_all, MOST_PAGE_TEXTS)]])
            if next(texts_of_all, None) is not None:
                part = f"the first {MOST_PAGE_TEXTS:,} texts"
                self.warn(f"warning: the page holds {part} only; other formats hold all")
            writer: Writer = PageWriter(request, self.classifier, part)
        else:
            columns = source.columns
            if columns is None:
                add_columns(columns := {}, first_chunk)
            writer = writer_for(request, self.classifier, source, columns, on_terminal=on_terminal)
        yield from writer.content(self._pieces(chunks, writer))
        for warning in source.skipped():
            self.warn(warning)

    def _pieces(self, chunks: Iterable[Chunk], writer: Writer) -> Iterator[Any]:
        jobs = ((writer, chunk) for chunk in chunks)
        for piece, counts in self.workers.map(jobs) if self.workers else map(self.encoded, jobs):
            if counts[LEFT_OUT] and not self._counts[LEFT_OUT]:
                self.warn(LEFT_OUT)
            self.num_texts += counts.pop(TEXTS)
            self._counts.update(counts)
            yield piece

    def encoded(self, job: tuple[Writer, Chunk]) -> tuple[Any, Counter[str]]:
        """The answers to a chunk as its writer encodes them, and their counts."""
        writer, chunk = job
        answers = self._answers(chunk)
        counts = Counter({TEXTS: len(answers)})
        for _, prediction, label, labels, words, _ in answers:
            counts[self._truncated] += prediction.truncated
            counts[UNKNOWN] += prediction.unknown_words > 0
            counts[UNFAMILIAR] += bool(prediction.unfamiliar)
            counts[LEFT_OUT] += bool(words and words.left_out)
            if prediction.reason is not None:
                counts["blank"] += 1
            elif labels is None:
                counts[self._withheld] += label is None
            else:
                counts["without a label"] += not labels
        return writer.encode(answers), counts

    def summary(self) -> str | None:
        """The counts other than zero in a line; None if all are zero."""
        kinds = (self._truncated, self._withheld, "without a label", "blank", UNFAMILIAR, UNKNOWN)
        counts = ", ".join(f"{self._counts[what]:,} {what}" for what in kinds if self._counts[what])
        return f"of {counted(self.num_texts, 'text')}: {counts}" if counts else None

    def _answers(self, chunk: Chunk) -> list[Answer]:
        classifier, request, texts = self.classifier, self.request, [item.text for item in chunk]
        tokenized = classifier.tokenize(texts)
        predictions = classifier.predict_tokenized(tokenized, batch_tokens=request.batch_tokens)
        explanations: Sequence[Explanation | None] = [None] * len(chunk)
        if request.explained or request.output_format == "html":
            best = [it.label for it in predictions]
            explanations = explain(
                classifier, texts, tokenized, best, batch_tokens=request.batch_tokens
            )
        answers = []
        for item, prediction, words in zip(chunk, predictions, explanations, strict=True):
            label, labels, length = prediction.label_from(self._threshold), None, None
            if prediction.labels is not None:
                label, labels = None, prediction.labels_from(self._threshold)
            if prediction.truncated and request.output_format in {None, "text"}:
                length = count_tokens(classifier.tokenizer, item.text)
            answers.append(Answer(item, prediction, label, labels, words, length))
        return answers


@contextmanager
def answering(
    classifier: Classifier, request: Request, files: Sequence[Path], *, warn: Callable[[str], None]
) -> Iterator[Answerer]:
    """Make an answerer, which shares the work on large files among processes."""
    answerer = Answerer(classifier, request, warn=warn)
    size = size_of(files)
    choose_engine(
        classifier,
        size_of_standard_input() if request.source == STANDARD_INPUT else size,
        explained=request.explained,
    )
    number = usable_processes() if size >= SHARED_BYTES and request.output_format != "html" else 1
    by_torch = classifier.encoder is not None and classifier.encoder.engine == "torch"
    if number > 1 and by_torch and resolve_device(request.device).type != "cpu":
        number = 1
    with Workers(answerer.encoded, number) as workers:
        answerer.workers = workers if number > 1 else None
        yield answerer
