"""A queue of requests, and the thread that computes the predictions for all of them.

It computes batches. A batch takes the next texts of each waiting request, the oldest first, up to
`BATCH_CHARACTERS`, so that a short request does not wait for a long one. All are for one
classifier, and at most one text is explained, which takes longest.
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
from encoder_cls.classifier.prediction_json import prediction_json
from encoder_cls.classifier.withholding import Withholding
from encoder_cls.data.reading.rows import Row
from encoder_cls.errors import DataError
from encoder_cls.serving import limits
from encoder_cls.serving.requests import PredictRequest
from encoder_cls.system.row_text import readable
from encoder_cls.system.web.responses import RefusedError


@dataclass(frozen=True)
class TextResult:
    """The prediction for a text, with what the metrics count.

    Attributes:
        record: as JSON, with the keys of `predict --format jsonl`.
        labels: the most probable one, even if withheld, or all that a multi-label model predicts;
            empty for a blank text.
        num_words: that the model reads, unknown ones included.
        confidence: that the prediction is correct; None for a blank text.
    """

    record: dict[str, Any]
    labels: tuple[str, ...]
    num_words: int
    confidence: float | None


@dataclass(eq=False)
class _Job:
    """A waiting request, with the classifier that was in use when it came.

    Attributes:
        ids: of rows; None for texts and for rows without one.
        future: gets all results, or an error.
    """

    request: PredictRequest
    classifier: Classifier
    texts: list[str]
    ids: list[str | int | None]
    results: list[TextResult] = field(default_factory=list)
    future: Future[list[TextResult]] = field(default_factory=Future)

    @property
    def remaining_texts(self) -> list[str]:
        return self.texts[len(self.results) :]

    def add(self, results: list[TextResult]) -> None:
        self.results += results
        if not self.remaining_texts:
            # If the client has closed the connection, the future is cancelled and takes no result.
            with suppress(InvalidStateError):
                self.future.set_result(self.results)

    def fail(self, error: RefusedError) -> None:
        with suppress(InvalidStateError):
            self.future.set_exception(error)


class _Piece(NamedTuple):
    job: _Job
    texts: list[str]

    @property
    def ids(self) -> list[str | int | None]:
        start = len(self.job.results)
        return self.job.ids[start : start + len(self.texts)]


class Batcher:
    """A queue of requests, and the thread that computes their results.

    Args:
        on_batch: called with the number of requests before a batch is computed.

    Attributes:
        thread: ends after `stop` once all accepted requests have results.
    """

    def __init__(self, on_batch: Callable[[int], None] = lambda _: None) -> None:
        self._on_batch = on_batch
        # Guards the queue and `is_stopping`, and tells the thread that one of them has changed.
        self._changed = Condition()
        # The requests in the queue, without those whose texts are being computed.
        self._jobs: deque[_Job] = deque()
        # The requests in the queue and those whose texts are being computed.
        self._waiting: set[_Job] = set()
        self.is_stopping = False
        self.thread = Thread(target=self._work, name="predict", daemon=True)
        self.thread.start()

    @property
    def num_waiting(self) -> int:
        """The accepted requests without all results."""
        return len(self._waiting)

    def submit(self, request: PredictRequest, classifier: Classifier) -> Future[list[TextResult]]:
        """Add a request to the queue; the future gets the results of all its texts, in their order.

        To remove the request from the queue, cancel the future.

        Raises:
            RefusedError: too many requests wait (429), the server is stopping (503), a row lacks a
                text column or has an unknown one, or the model has no such level (422).
        """
        _check_level(request, classifier)
        try:
            given = request.given_with(classifier.columns)
            texts = list(classifier.rows(given, "predict"))
        except DataError as error:
            raise RefusedError(422, str(error)) from None
        ids = [row.id if isinstance(row, Row) else None for row in given]
        job = _Job(request, classifier, texts, ids)
        with self._changed:
            if self.is_stopping:
                raise RefusedError(503, "the server is stopping")
            if self.num_waiting >= limits.MAX_WAITING:
                reason = f"{limits.MAX_WAITING} requests wait already; try again in a second"
                raise RefusedError(429, reason)
            self._jobs.append(job)
            self._waiting.add(job)
            self._changed.notify()
        job.future.add_done_callback(lambda _: self._waiting.discard(job))
        return job.future

    def stop(self) -> None:
        """Accept no more requests, and end the thread once all have results."""
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

            # The batch is empty if the clients of all requests have closed their connections.
            if batch:
                self._on_batch(len(batch))
                _compute(batch)

            # Return unfinished requests to the end of the queue, behind all other requests.
            with self._changed:
                for piece in batch:
                    if not piece.job.future.done():
                        self._jobs.append(piece.job)

    def _take_batch(self) -> list[_Piece]:
        """Take the next batch; requests that do not fit keep their places."""
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
                # Take only one text, and do not count its characters, so that short requests
                # still fit into the batch.
                batch.append(_Piece(job, job.remaining_texts[:1]))
                has_explained = True
            else:
                texts, characters = _texts_within(characters_left, job.remaining_texts)
                batch.append(_Piece(job, texts))
                characters_left -= characters

        self._jobs.extendleft(reversed(passed_over))
        return batch


def _check_level(request: PredictRequest, classifier: Classifier) -> None:
    num_levels = 0
    if classifier.codes and classifier.codes.has_levels:
        num_levels = classifier.codes.num_levels
    if request.level is not None and request.level > num_levels:
        reason = f"level: {request.level}; the model has {num_levels or 'no'} levels"
        raise RefusedError(422, reason)


def _texts_within(max_characters: int, texts: list[str]) -> tuple[list[str], int]:
    chosen: list[str] = []
    total = 0
    for text in texts:
        # Each text also has the token `[CLS]`, which takes as long as a word of four characters.
        num_characters = len(text) + 4
        if chosen and total + num_characters > max_characters:
            break
        chosen.append(text)
        total += num_characters
    return chosen, total


def _compute(batch: list[_Piece]) -> None:
    """Compute a batch, or if that fails each piece alone, so that only its cause gets an error."""
    try:
        results = _predict(batch)
    # Catch `BaseException`, because a panic in Rust (in the tokenizer) is not an `Exception`. The
    # thread must not end, since it computes all other requests.
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
    classifier = batch[0].job.classifier
    texts = [text for piece in batch for text in piece.texts]
    tokenized = classifier.tokenize(texts)
    predictions = classifier.predict_tokenized(tokenized)

    results: list[list[TextResult]] = []
    row = 0
    for piece in batch:
        request = piece.job.request
        piece_results: list[TextResult] = []
        for text, row_id in zip(piece.texts, piece.ids, strict=True):
            of_classes = predictions[row]

            words = None
            if request.explain:
                (words,) = classifier.explain_tokenized(
                    [text],
                    tokenized[row : row + 1],
                    [of_classes.label],
                    max_tokens=limits.MAX_EXPLAINED_TOKENS,
                )
            # The threshold 0 withholds nothing, and leaves a multi-label model its own thresholds.
            withholding = Withholding(threshold=request.threshold or None, level=request.level)
            prediction = withholding.at_level(of_classes)
            record = prediction_json(
                prediction, top_k=request.top_k, withholding=withholding, words=words
            )
            if request.rows is not None:
                # The places of the words of an explanation are in this text.
                record["text"] = readable(text)
            if row_id is not None:
                record = {"id": row_id, **record}

            labels = of_classes.all_labels
            confidence = None if of_classes.reason else of_classes.prediction_probability
            piece_results.append(TextResult(record, labels, of_classes.num_words, confidence))
            row += 1
        results.append(piece_results)
    return results
