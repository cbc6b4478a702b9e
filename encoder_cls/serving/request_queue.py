"""One thread that computes all predictions: requests that wait meanwhile are its next batch.

A batch has a piece of each waiting request for one classifier, the oldest first, up to
`BATCH_CHARACTERS`, so that nobody waits for another's thousand texts. It has at most one text to
explain, since explanations take longest.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from concurrent.futures import Future, InvalidStateError
from contextlib import suppress
from dataclasses import dataclass, field
from threading import Condition, Thread
from typing import Any, NamedTuple

from encoder_cls.classifier.classifier import Classifier
from encoder_cls.classifier.occlusion import explain
from encoder_cls.serving import limits
from encoder_cls.serving.requests import PredictRequest, RefusedError


@dataclass(frozen=True)
class TextResult:
    """What comes of a text.

    Attributes:
        record: as in `predict --format jsonl`.
        labels: the most probable label, withheld or not; none of a blank text; the labels of a text
            that may have several.
        words: the number of words that the encoder reads, unknown ones included.
    """

    record: dict[str, Any]
    labels: tuple[str, ...]
    words: int


@dataclass(eq=False)
class _Job:
    """A request that waits, with the results of its first texts."""

    request: PredictRequest
    classifier: Classifier
    results: list[TextResult] = field(default_factory=list)
    future: Future[list[TextResult]] = field(default_factory=Future)

    @property
    def texts_left(self) -> list[str]:
        """The texts without a result."""
        return self.request.texts[len(self.results) :]

    def add(self, results: list[TextResult]) -> None:
        """Add the results of the next texts; send all to the client once they are complete."""
        self.results += results
        if not self.texts_left:
            with suppress(InvalidStateError):  # the client has gone
                self.future.set_result(self.results)

    def fail(self, error: RefusedError) -> None:
        """Send an error to the client, unless the client has gone."""
        with suppress(InvalidStateError):
            self.future.set_exception(error)


class _Piece(NamedTuple):
    """The texts of a request that are computed in a batch."""

    job: _Job
    texts: list[str]


class Batcher:
    """A queue of requests, and the thread that computes their results.

    Args:
        on_batch: called with the number of requests of each batch.
    """

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
        """The number of requests without results."""
        return len(self._waiting)

    def submit(self, request: PredictRequest, classifier: Classifier) -> Future[list[TextResult]]:
        """Accept a request; cancel the future to drop it.

        Raises:
            RefusedError: too many requests wait (429), or the server stops (503).
        """
        job = _Job(request, classifier)
        with self._changed:
            if self.is_stopping:
                raise RefusedError(503, "the server is stopping")
            if self.waiting >= limits.MAX_WAITING:
                reason = f"{limits.MAX_WAITING} requests wait already; try again in a second"
                raise RefusedError(429, reason)
            self._jobs.append(job)
            self._waiting.add(job)
            self._changed.notify()
        job.future.add_done_callback(lambda _: self._waiting.discard(job))
        return job.future

    def stop(self) -> None:
        """Accept no more requests; the thread ends once all accepted ones have their results."""
        with self._changed:
            self.is_stopping = True
            self._changed.notify()

    def _work(self) -> None:
        while True:
            with self._changed:
                self._changed.wait_for(lambda: self._jobs or self.is_stopping)
                if not self._jobs:
                    return
                batch = self._take_batch()

            if batch:  # else all clients have hung up
                self._on_batch(len(batch))
                _compute(batch)

            with self._changed:
                for piece in batch:
                    if not piece.job.future.done():
                        self._jobs.append(piece.job)

    def _take_batch(self) -> list[_Piece]:
        """Take the next batch; requests that do not fit into it keep their places in the queue."""
        batch: list[_Piece] = []
        passed_over: list[_Job] = []
        has_explained = False
        characters_left = limits.BATCH_CHARACTERS
        while self._jobs and characters_left > 0:
            job = self._jobs.popleft()
            if job.future.cancelled():
                continue

            is_of_another_model = bool(batch) and job.classifier is not batch[0].job.classifier
            if is_of_another_model or (job.request.explain and has_explained):
                passed_over.append(job)
                continue

            if job.request.explain:
                # One text, which leaves room for short requests.
                batch.append(_Piece(job, job.texts_left[:1]))
                has_explained = True
            else:
                texts, characters = _texts_within(characters_left, job.texts_left)
                batch.append(_Piece(job, texts))
                characters_left -= characters

        self._jobs.extendleft(reversed(passed_over))
        return batch


def _texts_within(characters: int, texts: list[str]) -> tuple[list[str], int]:
    """The first texts that have so many characters together, at least one; and their characters."""
    chosen: list[str] = []
    total = 0
    for text in texts:
        # The token `[CLS]` counts as a word.
        cost = len(text) + 4
        if chosen and total + cost > characters:
            break
        chosen.append(text)
        total += cost
    return chosen, total


def _compute(batch: list[_Piece]) -> None:
    """Compute the pieces of a batch.

    After a failure each piece is computed by itself, so that only the request that causes it fails.
    """
    try:
        results = _predict(batch)
    # A panic in Rust is no `Exception`; the thread must go on with the others.
    except BaseException as error:
        if len(batch) > 1:
            for piece in batch:
                _compute([piece])
        else:
            first_line, _, _ = str(error).partition("\n")
            reason = f"the prediction failed: {type(error).__name__}: {first_line}"
            batch[0].job.fail(RefusedError(500, reason))
        return

    for piece, piece_results in zip(batch, results, strict=True):
        piece.job.add(piece_results)


def _predict(batch: list[_Piece]) -> list[list[TextResult]]:
    """The results of each piece, all computed together."""
    classifier = batch[0].job.classifier
    texts = [text for piece in batch for text in piece.texts]
    tokenized = classifier.tokenize(texts)
    predictions = classifier.predict_tokenized(tokenized)

    results: list[list[TextResult]] = []
    row = 0
    for piece in batch:
        request = piece.job.request
        piece_results: list[TextResult] = []
        for text in piece.texts:
            prediction = predictions[row]

            words = None
            if request.explain:
                (words,) = explain(
                    classifier,
                    [text],
                    tokenized[row : row + 1],
                    [prediction.label],
                    most_tokens=limits.MAX_EXPLAINED_TOKENS,
                )
            record = prediction.to_json(
                top_k=request.top_k, threshold=request.threshold or None, words=words
            )

            labels = prediction.labels
            if labels is None:
                labels = (prediction.label,) if prediction.label else ()

            num_words = int(tokenized.lengths[row]) - 1  # without `[CLS]`
            piece_results.append(TextResult(record, labels, num_words))
            row += 1
        results.append(piece_results)
    return results
