"""Classify chunks of texts, and count the answers that a person may not expect."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from encoder_cls.answers.request import Request
from encoder_cls.data.rows import Row
from encoder_cls.inference.classifier import Classifier, Prediction
from encoder_cls.inference.encoder.numpy import NumpyEncoder
from encoder_cls.inference.explain import Explanation, explain
from encoder_cls.system.display import counted
from encoder_cls.system.machine import resolve_device
from encoder_cls.system.processes import Workers, usable_processes
from encoder_cls.system.terminal import note
from encoder_cls.text.tokenizer import count_tokens

if TYPE_CHECKING:
    from encoder_cls.answers.formats import Writer

Chunk = Sequence[Row]
TEXTS, UNFAMILIAR, UNKNOWN = "texts", "unfamiliar (unlike the training texts)", "with unknown words"
BYTES_PER_TOKEN = 6  # of English text, about
SHARED_BYTES = 5_000_000  # of files, from which two processes are quicker than one: equal at 4 MB, 1.3 times at 10
LEFT_OUT = "warning: of very long texts only the first words are explained; each result says how many are left out"


class Answer(NamedTuple):
    """A text with its prediction, and what is withheld of that applied.

    Multi-label, the answer is `labels`, and `label` is none. Where lines for people are written, the `length` of a
    truncated text is that of `count_tokens`.
    """

    item: Row
    prediction: Prediction
    label: str | None
    words: Explanation | None = None
    labels: tuple[str, ...] | None = None
    length: tuple[int, bool] | None = None


class Answerer:
    """Answers chunks of texts, and counts over all of them; `warn` is called with each warning, once.

    Copies of it in the `workers`, where there are some, do the work.
    """

    def __init__(self, classifier: Classifier, request: Request, *, warn: Callable[[str], None] = note) -> None:
        self.classifier = classifier
        self.request = request
        self.warn = warn
        self.workers: Workers[tuple[Writer, Chunk], tuple[Any, Counter[str]]] | None = None
        self._threshold = request.threshold or 0.0
        why = f"--threshold {self._threshold:g}"
        if request.min_precision is not None:
            why = f"--min-precision {request.min_precision:g}: probability below {self._threshold:.3f}"
        self._truncated = f"truncated (longer than {classifier.max_seq_len:,} tokens)"
        self._withheld = f"withheld ({why})"
        self._counts: Counter[str] = Counter()

    def __getstate__(self) -> dict[str, Any]:
        return self.__dict__ | {"warn": None, "workers": None}

    def pieces(self, chunks: Iterable[Chunk], writer: Writer) -> Iterator[Any]:
        """Answer texts, in what the writer makes of each chunk."""
        jobs = ((writer, chunk) for chunk in chunks)
        for piece, counts in self.workers.map(jobs) if self.workers else map(self.piece, jobs):
            if counts[LEFT_OUT] and not self._counts[LEFT_OUT]:
                self.warn(LEFT_OUT)
            self._counts.update(counts)
            yield piece

    def piece(self, job: tuple[Writer, Chunk]) -> tuple[Any, Counter[str]]:
        """What a writer makes of the answers to a chunk, and their counts, which are not added here."""
        writer, chunk = job
        answers = self._answers(chunk)
        counts = Counter({TEXTS: len(answers)})
        for _, prediction, label, words, labels, _ in answers:
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

    @property
    def num_texts(self) -> int:
        """How many texts are answered."""
        return self._counts[TEXTS]

    def summary(self) -> str | None:
        """The counts that are not zero; none where all are."""
        kinds = (self._truncated, self._withheld, "without a label", "blank", UNFAMILIAR, UNKNOWN)
        counts = ", ".join(f"{self._counts[what]:,} {what}" for what in kinds if self._counts[what])
        return f"of {counted(self.num_texts, 'text')}: {counts}" if counts else None

    def _answers(self, chunk: Chunk) -> list[Answer]:
        classifier, request, texts = self.classifier, self.request, [item.text for item in chunk]
        tokenized = classifier.tokenize(texts)
        predictions = classifier.predict_tokenized(tokenized, batch_tokens=request.batch_tokens)
        explanations: Sequence[Explanation | None] = [None] * len(chunk)
        if request.explained or request.output_format == "html":
            numbers = {name: number for number, name in enumerate(classifier.label_names)}
            best = [numbers[it.label] if it.label else 0 for it in predictions]
            explanations = explain(classifier, texts, tokenized, best, batch_tokens=request.batch_tokens)
        return [*map(self._answer, chunk, predictions, explanations)]

    def _answer(self, item: Row, prediction: Prediction, words: Explanation | None) -> Answer:
        label, labels, length = prediction.label_from(self._threshold), None, None
        if prediction.labels is not None:
            label, labels = None, prediction.labels_from(self._threshold)
        if prediction.truncated and self.request.output_format in {None, "text"}:
            length = count_tokens(self.classifier.tokenizer, item.text)
        return Answer(item, prediction, label, words, labels, length)


@contextmanager
def answering(
    classifier: Classifier, request: Request, files: Sequence[Path], *, warn: Callable[[str], None]
) -> Iterator[Answerer]:
    """An answerer for the texts of files, with workers where the texts are so many that processes are quicker."""
    answerer = Answerer(classifier, request, warn=warn)
    size = expect_files(classifier, files)
    number = usable_processes() if size >= SHARED_BYTES and request.output_format != "html" else 1
    by_torch = classifier.encoder is not None and classifier.encoder.engine == "torch"
    if number < 2 or (by_torch and resolve_device(request.device).type != "cpu"):
        yield answerer
        return
    with Workers(answerer.piece, number) as answerer.workers:
        yield answerer


def expect_files(classifier: Classifier, files: Sequence[Path]) -> int:
    """Choose the engine by all the text that is to come, where files have a size: their bytes."""
    size = 0
    if files and all(file.is_file() for file in files):
        with suppress(OSError):  # reading a file that is gone reports it
            size = sum(file.stat().st_size for file in files)
    if isinstance(classifier.encoder, NumpyEncoder):
        classifier.encoder.expect(size // BYTES_PER_TOKEN)
    return size
