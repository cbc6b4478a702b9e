"""Classify chunks of rows, in this process or in several, and count unexpected answers."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from encoder_cls.bulk.input_texts import Chunk, size_of
from encoder_cls.bulk.prediction_options import PredictionOptions
from encoder_cls.classifier.classifier import Classifier
from encoder_cls.classifier.explain import Explanation, explain
from encoder_cls.classifier.prediction import Prediction
from encoder_cls.data.reading.locations import SourceLocation
from encoder_cls.data.reading.rows import Row
from encoder_cls.encoder.engines import AutomaticEncoder
from encoder_cls.system.display import counted
from encoder_cls.system.machine import resolve_device
from encoder_cls.system.processes import Workers, usable_processes
from encoder_cls.system.terminal import note
from encoder_cls.text.tokenizer import count_tokens

if TYPE_CHECKING:
    from encoder_cls.bulk.formats import PredictionFormat

# Kinds of answers that are counted, in the words of the summary.
WITHOUT_LABEL = "without a label"
BLANK = "blank"
UNFAMILIAR = "unfamiliar (unlike the training texts)"
UNKNOWN_WORDS = "with unknown words"
LEFT_OUT = "with words left out of the explanation"

WORDS_LEFT_OUT = (
    "warning: of very long texts only the first words are explained; each result has the number "
    "of the others"
)

# The size of an input from which two processes are quicker: equal at 4 MB, 1.3 times at 10 MB.
SHARED_BYTES = 5_000_000

# By which the number of tokens is estimated: the bytes of a token, in English text.
BYTES_PER_TOKEN = 6
# The words of a text, which is read once for each to explain it.
EXPLAINED_WORDS = 20


class PredictedText(NamedTuple):
    """A row with its prediction, and what the options leave of it.

    Attributes:
        label: the label, unless its probability is below the threshold; multi-label None.
        labels: multi-label, those that reach the threshold; single-label None.
        words: the weights of the words, if they are wanted.
        length: of a truncated text, for people, what `count_tokens` finds.
    """

    row: Row
    prediction: Prediction
    label: str | None
    labels: tuple[str, ...] | None
    words: Explanation | None
    length: tuple[int, bool] | None


def predict_chunk(
    classifier: Classifier, options: PredictionOptions, chunk: Chunk
) -> list[PredictedText]:
    """Classify the rows of a chunk."""
    texts = [row.text for row in chunk]
    tokenized = classifier.tokenize(texts)
    predictions = classifier.predict_tokenized(tokenized, batch_tokens=options.batch_tokens)

    explanations: Sequence[Explanation | None] = [None] * len(chunk)
    if options.needs_explanations:
        best_labels = [prediction.label for prediction in predictions]
        explanations = explain(
            classifier, texts, tokenized, best_labels, batch_tokens=options.batch_tokens
        )

    predicted_texts = []
    for row, prediction, words in zip(chunk, predictions, explanations, strict=True):
        label = None
        labels = None
        if prediction.labels is None:
            label = prediction.label_from(options.threshold)
        else:
            labels = prediction.labels_from(options.threshold)

        length = None
        if prediction.truncated and options.output_format == "text":
            length = count_tokens(classifier.tokenizer, row.text)

        predicted_texts.append(PredictedText(row, prediction, label, labels, words, length))
    return predicted_texts


class ClassifiedChunk(NamedTuple):
    """The answers to a chunk, as their format encodes them.

    Attributes:
        unexpected: the number of answers of each kind that a person may not expect.
        last: the location of the last text.
    """

    encoded: Any
    num_texts: int
    unexpected: Counter[str]
    last: SourceLocation


def classify_chunk(
    classifier: Classifier, options: PredictionOptions, job: tuple[PredictionFormat, Chunk]
) -> ClassifiedChunk:
    """Classify a chunk and encode the answers; another process may do this."""
    prediction_format, chunk = job
    predicted_texts = predict_chunk(classifier, options, chunk)
    return ClassifiedChunk(
        encoded=prediction_format.encode(predicted_texts),
        num_texts=len(predicted_texts),
        unexpected=_count_unexpected(predicted_texts, classifier, options),
        last=chunk[-1].where if chunk else SourceLocation(""),
    )


def _count_unexpected(
    predicted_texts: Iterable[PredictedText], classifier: Classifier, options: PredictionOptions
) -> Counter[str]:
    truncated = _truncated(classifier)
    withheld = _withheld(options)
    counts: Counter[str] = Counter()
    for predicted in predicted_texts:
        prediction = predicted.prediction
        if prediction.truncated:
            counts[truncated] += 1
        if prediction.unknown_words:
            counts[UNKNOWN_WORDS] += 1
        if prediction.unfamiliar:
            counts[UNFAMILIAR] += 1
        if predicted.words and predicted.words.left_out:
            counts[LEFT_OUT] += 1

        if prediction.reason is not None:
            counts[BLANK] += 1
        elif predicted.labels is None:
            if predicted.label is None:
                counts[withheld] += 1
        elif not predicted.labels:
            counts[WITHOUT_LABEL] += 1
    return counts


def _truncated(classifier: Classifier) -> str:
    return f"truncated (longer than {classifier.max_seq_len:,} tokens)"


def _withheld(options: PredictionOptions) -> str:
    threshold = options.threshold or 0
    if options.min_precision is None:
        return f"withheld (--threshold {threshold:g})"
    return (
        f"withheld (--min-precision {options.min_precision:g}: probability below {threshold:.3f})"
    )


class ChunkClassifier:
    """Classifies chunks, by itself or by its `workers`, and counts unexpected answers of all.

    Args:
        warn: receives warnings.

    Attributes:
        num_texts: the texts that are answered so far.
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
        self._unexpected: Counter[str] = Counter()

    def classify(
        self, chunks: Iterable[Chunk], prediction_format: PredictionFormat
    ) -> Iterator[ClassifiedChunk]:
        """Classify chunks, in order, and count their answers."""
        jobs = ((prediction_format, chunk) for chunk in chunks)
        if self._workers:
            classified_chunks = self._workers.map(jobs)
        else:
            classified_chunks = map(partial(classify_chunk, self.classifier, self.options), jobs)

        for classified in classified_chunks:
            if classified.unexpected[LEFT_OUT] and not self._unexpected[LEFT_OUT]:
                self.warn(WORDS_LEFT_OUT)
            self.num_texts += classified.num_texts
            self._unexpected.update(classified.unexpected)
            yield classified

    def summary(self) -> str | None:
        """The counts of unexpected answers in a line; None if there are none."""
        kinds = (
            _truncated(self.classifier),
            _withheld(self.options),
            WITHOUT_LABEL,
            BLANK,
            UNFAMILIAR,
            UNKNOWN_WORDS,
        )
        counts = [f"{self._unexpected[kind]:,} {kind}" for kind in kinds if self._unexpected[kind]]
        if not counts:
            return None
        return f"of {counted(self.num_texts, 'text')}: {', '.join(counts)}"


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


def choose_engine(classifier: Classifier, num_bytes: int, *, is_explained: bool = False) -> None:
    """Let the classifier choose its engine for a whole input, by its size; 0 is an unknown one."""
    if not isinstance(classifier.encoder, AutomaticEncoder):
        return
    num_tokens = num_bytes // BYTES_PER_TOKEN
    if is_explained:
        num_tokens *= EXPLAINED_WORDS
    classifier.encoder.choose_engine(num_tokens)
