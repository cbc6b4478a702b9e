"""One thread that answers all requests: those that wait while it computes are its next batch.

A batch has a piece of each waiting request for one classifier, the oldest first, up to `BATCH_CHARACTERS`, so that
nobody waits for another's thousand texts; and one text to explain, since explanations take longest.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, InvalidStateError
from contextlib import suppress
from dataclasses import dataclass, field
from itertools import islice
from threading import Condition, Thread
from typing import Any

from encoder_cls.classifier.classifier import Classifier
from encoder_cls.classifier.explain import explain
from encoder_cls.serving import limits


class RefusedError(Exception):
    """A request that gets no predictions: an HTTP status and a message."""

    def __init__(self, status: int, message: str) -> None:
        super().__init__(message)
        self.status = status


@dataclass(frozen=True, kw_only=True)
class PredictRequest:
    """The fields of a request's JSON; multi-label, a threshold replaces the model's unless it is 0."""

    texts: list[str]
    top_k: int = 1
    threshold: float = 0.0
    explain: bool = False


@dataclass(frozen=True)
class TextAnswer:
    """The answer to a text."""

    record: dict[str, Any]  # as in `predict --format jsonl`
    labels: tuple[
        str, ...
    ]  # the most probable one, withheld or not; none of a blank text; multi-label, its labels
    words: int  # that the encoder reads, unknown ones included


@dataclass(eq=False)
class _Job:
    """A request that waits, with the answers to its first texts."""

    request: PredictRequest
    classifier: Classifier
    answers: list[TextAnswer] = field(default_factory=list)
    future: Future[list[TextAnswer]] = field(default_factory=Future)

    def end(self, error: RefusedError | None = None) -> None:
        """Send the answers, or the error, to the client, unless it has gone."""
        with suppress(InvalidStateError):
            if error:
                self.future.set_exception(error)
            else:
                self.future.set_result(self.answers)


_Pieces = Sequence[tuple[_Job, list[str]]]


class Batcher:
    """A queue of requests and the thread that answers them; `on_batch` gets the number of requests of each batch."""

    def __init__(self, on_batch: Callable[[int], None] = lambda _: None) -> None:
        self._on_batch = on_batch
        self._changed = Condition()
        self._jobs: deque[_Job] = deque()
        self._waiting: set[_Job] = set()  # in the queue, or being computed
        self.is_stopping = False
        self.thread = Thread(target=self._work, name="predict", daemon=True)
        self.thread.start()

    @property
    def waiting(self) -> int:
        """How many requests have no answer yet."""
        return len(self._waiting)

    def submit(self, request: PredictRequest, classifier: Classifier) -> Future[list[TextAnswer]]:
        """Accept a request, or refuse it if too many wait (429) or after `stop` (503); cancel the future to drop it."""
        job = _Job(request, classifier)
        with self._changed:
            if self.is_stopping:
                raise RefusedError(503, "the server is stopping")
            if self.waiting >= limits.MOST_WAITING:
                raise RefusedError(
                    429, f"{limits.MOST_WAITING} requests wait already; try again in a second"
                )
            self._jobs.append(job)
            self._waiting.add(job)
            self._changed.notify()
        job.future.add_done_callback(lambda _: self._waiting.discard(job))
        return job.future

    def stop(self) -> None:
        """Accept no more; the thread ends after answering every accepted request."""
        with self._changed:
            self.is_stopping = True
            self._changed.notify()

    def _work(self) -> None:
        while True:
            with self._changed:
                self._changed.wait_for(lambda: self._jobs or self.is_stopping)
                if not self._jobs:
                    return
                batch = self._take()
            if batch:  # else all have hung up
                self._on_batch(len(batch))
                _compute(batch)
            with self._changed:
                self._jobs.extend(job for job, _ in batch if not job.future.done())

    def _take(self) -> _Pieces:
        batch: list[tuple[_Job, list[str]]] = []
        passed_over: list[_Job] = []
        left, has_explained = limits.BATCH_CHARACTERS, False
        while self._jobs and left > 0:
            job = self._jobs.popleft()
            if job.future.cancelled():
                continue
            is_explained = job.request.explain
            if (is_explained and has_explained) or (
                batch and job.classifier is not batch[0][0].classifier
            ):
                passed_over.append(job)
                continue
            piece: list[str] = []
            for text in job.request.texts[len(job.answers) :]:
                cost = 0 if is_explained else len(text) + 4  # `[CLS]` counts
                if piece and (is_explained or cost > left):
                    break
                piece.append(text)
                left -= cost
            has_explained |= is_explained  # and leaves room for short requests
            batch.append((job, piece))
        self._jobs.extendleft(reversed(passed_over))
        return batch


def _compute(pieces: _Pieces) -> None:
    """Answer the pieces; after a failure each by itself, so that only the request that causes it fails."""
    try:
        answers = _answers(pieces)
    except (
        BaseException
    ) as error:  # a panic in Rust is no Exception; the thread goes on answering the others
        if len(pieces) > 1:
            for piece in pieces:
                _compute([piece])
        else:
            reason = f"{type(error).__name__}: {next(iter(str(error).splitlines()), '')}"
            pieces[0][0].end(RefusedError(500, f"the prediction failed: {reason}"))
        return
    for job, texts in pieces:
        job.answers += islice(answers, len(texts))
        if len(job.answers) == len(job.request.texts):
            job.end()


def _answers(pieces: _Pieces) -> Iterator[TextAnswer]:
    classifier = pieces[0][0].classifier
    asked = [(job.request, text) for job, texts in pieces for text in texts]
    tokenized = classifier.tokenize([text for _, text in asked])
    answers = []
    for row, prediction in enumerate(classifier.predict_tokenized(tokenized)):
        (request, text), words = asked[row], None
        if request.explain:
            one, most_tokens = tokenized[row : row + 1], limits.MOST_EXPLAINED_TOKENS
            (words,) = explain(classifier, [text], one, [prediction.label], most_tokens=most_tokens)
        labels = prediction.labels
        if labels is None:
            labels = (prediction.label,) if prediction.label else ()
        record = prediction.to_json(
            top_k=request.top_k, threshold=request.threshold or None, words=words
        )
        answers.append(TextAnswer(record, labels, int(tokenized.lengths[row]) - 1))
    return iter(answers)
