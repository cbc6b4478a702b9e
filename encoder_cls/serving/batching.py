"""Requests of many threads in, their predictions out: one thread computes, what waits meanwhile is its next batch.

A batch is a piece of each request that waits, the oldest first, up to `BATCH_CHARACTERS`: short requests are computed
together, and long ones piece by piece between them, so that nobody waits until another's thousand texts are done.
Explanations take longest; of their texts there is one in a batch.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence
from concurrent.futures import Future, InvalidStateError
from contextlib import suppress
from dataclasses import dataclass, field
from itertools import groupby
from threading import Condition, Thread
from typing import Any

from encoder_cls.inference.classifier import Classifier
from encoder_cls.inference.explain import explain
from encoder_cls.inference.json_record import json_record
from encoder_cls.serving.requests import (
    BATCH_CHARACTERS,
    MOST_EXPLAINED_TOKENS,
    MOST_WAITING,
    PredictRequest,
    RefusedError,
)


@dataclass(kw_only=True)
class Answer:
    """What is said to a request.

    Attributes:
        model: the SHA-256 of the model that said it: one, also where another came while the request waited.
        records: of its texts, as `predict --format jsonl` has them.
        labels: the most probable label of each text, withheld or not; none of a blank one. Multi-label, its labels.
        words: how many words each text has that the encoder reads, unknown ones counted.
    """

    model: str
    records: list[dict[str, Any]] = field(default_factory=list)
    labels: list[tuple[str, ...]] = field(default_factory=list)
    words: list[int] = field(default_factory=list)


@dataclass(eq=False)
class _Job:
    """A request that waits, and what is said to its first texts already."""

    request: PredictRequest
    classifier: Classifier
    answer: Answer
    future: Future[Answer]

    def next_piece(self, most_characters: int) -> list[str]:
        """The next texts, one at least and then so many characters; if they are to be explained, one."""
        texts = self.request.texts
        start = end = len(self.answer.records)
        characters = 0
        while end < len(texts) and (end == start or characters + self.cost(texts[end]) <= most_characters):
            characters += self.cost(texts[end])
            end += 1
        return texts[start:end]

    def cost(self, text: str) -> int:
        """Of a text, in characters; a word has a handful, an empty text its `[CLS]`."""
        return BATCH_CHARACTERS if self.request.explain else len(text) + 4


class Batcher:
    """A queue of requests, and the thread that answers them.

    Args:
        on_batch: told of each batch how many requests are in it; by that thread.
    """

    def __init__(self, on_batch: Callable[[int], None] = lambda _: None) -> None:
        self._on_batch = on_batch
        self._changed = Condition()
        self._jobs: deque[_Job] = deque()
        self._computing: list[_Job] = []  # those that are in the batch, and not in the queue
        self._is_stopping = False
        self._thread = Thread(target=self._work, name="predict", daemon=True)
        self._thread.start()

    @property
    def waiting(self) -> int:
        """How many requests have no answer yet."""
        computing = self._computing
        answered = sum(job.future.done() and not job.future.cancelled() for job in computing)
        return len(self._jobs) + len(computing) - answered

    @property
    def is_alive(self) -> bool:
        """Whether there is a thread that answers."""
        return self._thread.is_alive()

    def submit(self, request: PredictRequest, classifier: Classifier) -> Future[Answer]:
        """Accept a request; if its future is cancelled, no further text of it is computed.

        Raises:
            RefusedError: 429 where too many wait, 503 where no more are accepted.
        """
        future: Future[Answer] = Future()
        with self._changed:
            if self._is_stopping:
                raise RefusedError(503, "the server is stopping")
            if self.waiting >= MOST_WAITING:
                raise RefusedError(429, f"{MOST_WAITING} requests wait already; try again in a second")
            self._jobs.append(_Job(request, classifier, Answer(model=classifier.sha256), future))
            self._changed.notify()
        return future

    def stop(self) -> None:
        """Accept nothing more; what is accepted is answered, and then the thread ends."""
        with self._changed:
            self._is_stopping = True
            self._changed.notify()

    def join(self, timeout: float | None = None) -> None:
        """Wait until all is answered, after `stop`."""
        self._thread.join(timeout)

    def _work(self) -> None:
        while batch := self._next_batch():
            self._on_batch(len(batch))
            for _, group in groupby(batch, key=lambda item: id(item[0].classifier)):
                _compute(list(group))
            with self._changed:
                self._computing = []
                self._jobs.extend(job for job, _ in batch if not job.future.done())

    def _next_batch(self) -> list[tuple[_Job, list[str]]]:
        """Some texts of each of some requests; none when the work is over."""
        with self._changed:
            while True:
                while not self._jobs and not self._is_stopping:
                    self._changed.wait()
                batch = self._take()
                self._computing = [job for job, _ in batch]
                if batch or (not self._jobs and self._is_stopping):
                    return batch

    def _take(self) -> list[tuple[_Job, list[str]]]:
        batch: list[tuple[_Job, list[str]]] = []
        passed_over: list[_Job] = []
        left, has_explained = BATCH_CHARACTERS, False
        while self._jobs and left > 0:
            job = self._jobs.popleft()
            if job.future.cancelled():
                continue
            if job.request.explain and has_explained:
                passed_over.append(job)
                continue
            piece = job.next_piece(left)
            batch.append((job, piece))
            if job.request.explain:
                has_explained = True  # beside which short requests find their place
            else:
                left -= sum(map(job.cost, piece))
        self._jobs.extendleft(reversed(passed_over))
        return batch


def _compute(pieces: list[tuple[_Job, list[str]]]) -> None:
    """Answer some texts of each of some requests, all by one classifier; who has all answers is told."""
    try:
        _answer(pieces)
    except BaseException as error:  # a panic in Rust is no Exception; the thread answers the others nevertheless
        if len(pieces) > 1:
            for piece in pieces:
                _compute([piece])
        else:
            reason = f"{type(error).__name__}: {next(iter(str(error).splitlines()), '')}"
            with suppress(InvalidStateError):
                pieces[0][0].future.set_exception(RefusedError(500, f"the prediction failed: {reason}"))
        return
    for job, _ in pieces:
        if len(job.answer.records) == len(job.request.texts):
            with suppress(InvalidStateError):  # who asked has gone
                job.future.set_result(job.answer)


def _answer(pieces: Sequence[tuple[_Job, list[str]]]) -> None:
    classifier = pieces[0][0].classifier
    tokenized = classifier.tokenize([text for _, texts in pieces for text in texts])
    predictions = classifier.predict_tokenized(tokenized)
    numbers = {name: number for number, name in enumerate(classifier.label_names)}
    found = []
    row = 0
    for job, texts in pieces:
        for text in texts:
            prediction, words = predictions[row], None
            if job.request.explain:
                one, number = tokenized.take_one(row), numbers[prediction.label] if prediction.label else 0
                (words,) = explain(classifier, [text], one, [number], most_tokens=MOST_EXPLAINED_TOKENS)
            asked = job.request
            record = json_record(prediction, top_k=asked.top_k, threshold=asked.threshold, words=words)
            labels = prediction.labels
            if labels is None:
                labels = (prediction.label,) if prediction.label else ()
            found.append((job.answer, record, labels, int(tokenized.lengths[row]) - 1))
            row += 1
    for answer, record, labels, num_words in found:  # all or nothing: after a failure each is computed alone
        answer.records.append(record)
        answer.labels.append(labels)
        answer.words.append(num_words)
