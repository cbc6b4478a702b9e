"""Classify chunks of rows in their order, in this process or in several."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

from encoder_cls.bulk.input_texts import Chunk, size_of
from encoder_cls.bulk.json_and_csv_formats import PredictionFormat
from encoder_cls.bulk.predicted_text import predict_chunk
from encoder_cls.bulk.prediction_options import PredictionOptions
from encoder_cls.bulk.unexpected_predictions import (
    Unexpected,
    count_unexpected,
    summary_of_unexpected,
)
from encoder_cls.classifier.classifier import Classifier
from encoder_cls.data.reading.locations import SourceLocation
from encoder_cls.system.machine import resolve_device
from encoder_cls.system.processes import Workers, usable_processes
from encoder_cls.system.terminal import note

WORDS_LEFT_OUT = (
    "warning: of very long texts only the first words are explained; each result has the number "
    "of the others"
)

# The size of an input from which two processes are quicker: equal at 4 MB, 1.3 times at 10 MB.
SHARED_BYTES = 5_000_000


class ClassifiedChunk(NamedTuple):
    """The predictions for a chunk, as their format encodes them.

    Attributes:
        unexpected: the number of predictions of each unexpected kind.
        last: the location of the last text.
    """

    encoded: Any
    num_texts: int
    unexpected: Counter[Unexpected]
    last: SourceLocation


def classify_chunk(
    classifier: Classifier, options: PredictionOptions, job: tuple[PredictionFormat, Chunk]
) -> ClassifiedChunk:
    """Classify a chunk and encode the predictions; another process may do this."""
    prediction_format, chunk = job
    predicted_texts = predict_chunk(classifier, options, chunk)
    return ClassifiedChunk(
        encoded=prediction_format.encode(predicted_texts),
        num_texts=len(predicted_texts),
        unexpected=count_unexpected(predicted_texts),
        last=chunk[-1].where if chunk else SourceLocation(""),
    )


class ChunkClassifier:
    """Classifies chunks, by itself or by its `workers`, and counts unexpected predictions.

    Args:
        warn: receives warnings.

    Attributes:
        num_texts: the number of texts that are classified so far.
    """

    def __init__(
        self,
        classifier: Classifier,
        options: PredictionOptions,
        *,
        warn: Callable[[str], None] = note,
        workers: Workers[tuple[PredictionFormat, Chunk], ClassifiedChunk] | None = None,
    ) -> None:
        self.classifier = classifier
        self.options = options
        self.warn = warn
        self.num_texts = 0
        self._workers = workers
        self._unexpected: Counter[Unexpected] = Counter()

    def classify(
        self, chunks: Iterable[Chunk], prediction_format: PredictionFormat
    ) -> Iterator[ClassifiedChunk]:
        """Classify chunks, in order, and count their texts."""
        jobs = ((prediction_format, chunk) for chunk in chunks)
        if self._workers:
            classified_chunks = self._workers.map(jobs)
        else:
            classified_chunks = map(partial(classify_chunk, self.classifier, self.options), jobs)

        for classified in classified_chunks:
            self._count(classified)
            yield classified

    def _count(self, classified: ClassifiedChunk) -> None:
        has_left_out = classified.unexpected[Unexpected.LEFT_OUT] > 0
        if has_left_out and not self._unexpected[Unexpected.LEFT_OUT]:
            self.warn(WORDS_LEFT_OUT)

        self.num_texts += classified.num_texts
        self._unexpected.update(classified.unexpected)

    def summary(self) -> str | None:
        """The counts of unexpected predictions in a line; None if there are none."""
        return summary_of_unexpected(
            self._unexpected, self.num_texts, self.classifier, self.options
        )


@contextmanager
def chunk_classifier(
    classifier: Classifier,
    options: PredictionOptions,
    files: Sequence[Path],
    *,
    device: str,
    warn: Callable[[str], None],
) -> Iterator[ChunkClassifier]:
    """A classifier of chunks, which shares the work on large files among processes."""
    if not _shares_work(classifier, options, files, device):
        yield ChunkClassifier(classifier, options, warn=warn)
        return

    classify = partial(classify_chunk, classifier, options)
    with Workers(classify, usable_processes()) as workers:
        yield ChunkClassifier(classifier, options, warn=warn, workers=workers)


def _shares_work(
    classifier: Classifier, options: PredictionOptions, files: Sequence[Path], device: str
) -> bool:
    """Whether several processes classify the texts of files."""
    # A page is one chunk.
    if size_of(files) < SHARED_BYTES or options.output_format == "html":
        return False
    if usable_processes() == 1:
        return False

    # A GPU is not shared.
    if classifier.encoder is not None and classifier.encoder.engine == "torch":
        return resolve_device(device).type == "cpu"
    return True
