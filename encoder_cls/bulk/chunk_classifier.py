"""Classify chunks of rows, in this process or in several processes."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from functools import partial
from typing import Any, NamedTuple

from encoder_cls.bulk.input_texts import Chunk
from encoder_cls.bulk.predicted_text import predict_chunk
from encoder_cls.bulk.prediction_format import PredictionFormat
from encoder_cls.bulk.prediction_options import PredictionOptions
from encoder_cls.bulk.sorted_rows import sort_key
from encoder_cls.bulk.unexpected_predictions import (
    Unexpected,
    count_unexpected,
    summary_of_unexpected,
)
from encoder_cls.classifier.classifier import Classifier
from encoder_cls.data.reading.locations import SourceLocation
from encoder_cls.data.reading.rows import Row
from encoder_cls.encoder.remote_encoder import EncoderForWorkers, RemoteEncoder
from encoder_cls.system.processes import Workers
from encoder_cls.system.terminal import note

WORDS_LEFT_OUT = (
    "warning: of very long texts only the first words are explained; each prediction says how many "
    "words are not"
)


class Job(NamedTuple):
    """A chunk to classify."""

    prediction_format: PredictionFormat
    chunk: Chunk
    explained: bool

    def __reduce__(self) -> tuple[Any, ...]:
        # Pickle the values that predictions depend on, column by column: that takes a quarter of
        # the time of pickling rows. Of the locations, only the last one is used.
        texts = [row.text for row in self.chunk]
        ids = [row.id for row in self.chunk]
        records = [row.record for row in self.chunk]
        last = self.chunk[-1].where if self.chunk else SourceLocation("")
        columns = (texts, ids, records, last)
        return _job_of_columns, (self.prediction_format, columns, self.explained)


def _job_of_columns(
    prediction_format: PredictionFormat,
    columns: tuple[list[str], list[str | int | None], list[dict[str, Any] | None], SourceLocation],
    explained: bool,
) -> Job:
    texts, ids, records, last = columns
    chunk = [
        Row(text, id=row_id, record=record)
        for text, row_id, record in zip(texts, ids, records, strict=True)
    ]
    if chunk:
        chunk[-1] = chunk[-1]._replace(where=last)
    return Job(prediction_format, chunk, explained)


class ClassifiedChunk(NamedTuple):
    """The predictions for a chunk, as `encode` of a format returns them.

    Attributes:
        sort_keys: empty if predictions are not sorted.
        last: where the last text is.
    """

    encoded: Any
    sort_keys: list[float]
    num_texts: int
    unexpected: Counter[Unexpected]
    last: SourceLocation


def classify_chunk(classifier: Classifier, options: PredictionOptions, job: Job) -> ClassifiedChunk:
    """Classify a chunk; arguments and result can be pickled."""
    chunk = job.chunk
    predicted_texts = predict_chunk(classifier, options, chunk, explained=job.explained)
    return ClassifiedChunk(
        encoded=job.prediction_format.encode(predicted_texts),
        sort_keys=[sort_key(predicted) for predicted in predicted_texts] if options.sort else [],
        num_texts=len(predicted_texts),
        unexpected=count_unexpected(predicted_texts),
        last=chunk[-1].where if chunk else SourceLocation(""),
    )


class ChunkClassifier:
    """Classifies chunks, and counts unexpected predictions; in this process without `workers`."""

    def __init__(
        self,
        classifier: Classifier,
        options: PredictionOptions,
        *,
        warn: Callable[[str], None] = note,
        workers: Workers[Job, ClassifiedChunk] | None = None,
    ) -> None:
        self.classifier = classifier
        self.options = options
        self.warn = warn
        self.num_texts = 0
        self._workers = workers
        self._unexpected: Counter[Unexpected] = Counter()

    def classify(
        self,
        chunks: Iterable[Chunk],
        prediction_format: PredictionFormat,
        *,
        explained: bool | None = None,
    ) -> Iterator[ClassifiedChunk]:
        """Yield predictions in the order of chunks, by default explained as the options say."""
        if explained is None:
            explained = self.options.explained
        jobs = (Job(prediction_format, chunk, explained) for chunk in chunks)
        if self._workers:
            classified_chunks = self._workers.map(jobs)
        else:
            classified_chunks = map(partial(classify_chunk, self.classifier, self.options), jobs)

        for classified in classified_chunks:
            has_left_out = classified.unexpected[Unexpected.LEFT_OUT] > 0
            if has_left_out and not self._unexpected[Unexpected.LEFT_OUT]:
                self.warn(WORDS_LEFT_OUT)
            self.num_texts += classified.num_texts
            self._unexpected.update(classified.unexpected)
            yield classified

    def summary(self) -> str | None:
        """A line of counts of unexpected predictions, if there are any."""
        return summary_of_unexpected(
            self._unexpected, self.num_texts, self.classifier, self.options
        )


@contextmanager
def open_chunk_classifier(
    classifier: Classifier,
    options: PredictionOptions,
    *,
    num_processes: int,
    warn: Callable[[str], None],
) -> Iterator[ChunkClassifier]:
    """Share the work among processes, which end with the block; 1 is this one alone.

    If a GPU computes the encoder, they do all else, and ask this process for its logits.
    """
    if num_processes == 1:
        yield ChunkClassifier(classifier, options, warn=warn)
        return

    classifier_of_workers = classifier
    respond = None
    encoder = classifier.encoder
    if encoder is not None and encoder.uses_gpu:
        classifier_of_workers = replace(classifier, encoder=RemoteEncoder(encoder.architecture))
        respond = EncoderForWorkers(encoder)

    classify = partial(classify_chunk, classifier_of_workers, options)
    with Workers(classify, num_processes, respond=respond) as workers:
        yield ChunkClassifier(classifier, options, warn=warn, workers=workers)
