"""Fit a linear model to a stream of texts, for as long as there is time.

Counts of features go to a file, in random order of the texts, from which `online_svm` learns in
passes. What has the lowest loss on held-out texts after a pass is kept, or what was learned when
time ends.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from encoder_cls.linear.feature_index import FeatureIndex
from encoder_cls.linear.linear_model import LinearModel
from encoder_cls.linear.ngrams import (
    COLUMN_IDS,
    NUM_FEATURE_IDS,
    TEMPLATE_IDS,
    SparseRows,
    keep_known,
)
from encoder_cls.linear_training.calibration import Calibration, calibrate
from encoder_cls.linear_training.cost import (
    COUNTING_PASSES,
    StreamWork,
    count_work,
    expect_work,
    num_passes,
)
from encoder_cls.linear_training.features import (
    LabelledTexts,
    LinearOptions,
    Vocabulary,
    as_matrix,
    count_matrix,
    texts_with_features,
)
from encoder_cls.linear_training.folds import first_held_out
from encoder_cls.linear_training.nb_svm import OneVsRest, binary_problems, naive_bayes_ratios
from encoder_cls.linear_training.online_svm import Batch, OnlineSvms
from encoder_cls.linear_training.prefetch import prefetched
from encoder_cls.metrics.row_groups import RowGroups
from encoder_cls.metrics.tasks import Task, task_of
from encoder_cls.system.disk_arrays import DiskBackedArray, DiskBackedRaggedArray
from encoder_cls.system.stop import check_stop
from encoder_cls.text.tokens import TokenizedTexts


class StreamFit(NamedTuple):
    """The result of a fit to a stream.

    Attributes:
        num_texts: those learned from.
        num_unread: those there was no time for.
        seconds_of_pass: over the texts learned from.
        seconds_for_all: of a fit to all texts.
    """

    linear: LinearModel
    work: StreamWork
    num_texts: int
    num_unread: int
    seconds_of_pass: float
    seconds_for_all: float


# The maximum number of texts that are held out. With more texts, the few calibrations of a fit
# would take as long as a pass.
MAX_HELD_OUT = 5_000
# The share of the texts that is held out, if that is not more.
HELD_OUT_SHARE = 0.05

# The number of chunks after which there is a first model.
FIRST_CHUNKS = 4

# How many times as many features a model of words and pairs has as one of a fit in memory: more
# texts show what rarer features mean. On 450,000 texts in 19 classes, accuracy is 88.8% with as
# many, 88.9% with twice and 89.3% with four times as many; a pass takes up to 1.6 times as long.
TIMES_FEATURES = 4
TIMES_IN_LITTLE_TIME = 2

# Naive Bayes ratios and a pass with `TIMES_FEATURES` take some 10 times as long as counting. Within
# 30 seconds, there was time for half a pass, which had 85.8%, not 88.4%.
TIMES_COUNTING = 10

SEED = 0


def fit_linear_from_stream(
    labelled: LabelledTexts,
    options: LinearOptions,
    *,
    end: float | None = None,
    work: StreamWork | None = None,
    on_first: Callable[[LinearModel], None] | None = None,
) -> StreamFit:
    """Fit to as many texts as there is time for, and calibrate on held-out ones.

    Memory holds a fixed number of texts, and a few numbers per text, feature and class.

    The fit ends at `end`, a time of `time.monotonic`, or after its last pass; the `work` of an
    earlier fit is repeated whatever it takes. `on_first` receives a model of at most
    `FIRST_CHUNKS`.
    """
    texts = labelled.texts
    labels = labelled.labels
    task = task_of(labels)
    limit = _Limit(end, work)

    # Bring the texts into random order, and hold some of them out.
    order = np.random.default_rng(SEED).permutation(len(labels))
    num_held_out = min(MAX_HELD_OUT, max(1, int(HELD_OUT_SHARE * len(labels))))
    is_held_out = first_held_out(order, labelled.split_groups, num_held_out)[order]
    held_out_rows = order[is_held_out]
    rows = order[~is_held_out]

    # Count the features of as many texts as there is time for. The unit of work is here a text
    # that all classifiers learn from, since they learn together.
    expect_work(len(rows) * (COUNTING_PASSES + num_passes(len(rows))))
    started = time.monotonic()
    vocabulary = Vocabulary.of(texts, options)
    counts = _count_features(texts, rows, vocabulary, limit)
    seconds_to_count = time.monotonic() - started

    counted_rows = rows[: counts.num_texts]
    counted_weights = labelled.weights_of(counted_rows)

    ids = np.flatnonzero(counts.document_frequencies).astype(np.int32)
    times = 1 if options.char_ngrams else limit.times_features(seconds_to_count)
    vocabulary = vocabulary.with_most_frequent(
        ids, counts.document_frequencies[ids], task, times=times
    )
    document_frequencies = counts.document_frequencies[vocabulary.feature_ids]
    vocabulary = vocabulary.with_idf(document_frequencies, counts.num_texts)

    # Learn chunk by chunk. Measure the loss on the held-out texts after the first chunks (unless
    # the first pass is shorter), after each pass and at the end.
    held_out = _HeldOut(
        texts.take(held_out_rows),
        labels[held_out_rows],
        RowGroups(labelled.split_groups[held_out_rows]),
        vocabulary,
    )
    passes = _Passes(counts, vocabulary, labels[counted_rows], counted_weights)
    best: _Candidate | None = None
    for num_learned in passes.learn():
        are_first_chunks = num_learned == FIRST_CHUNKS and best is None
        is_end_of_pass = num_learned % counts.num_chunks == 0
        is_end = limit.ends_learning(num_learned, seconds_to_calibrate=held_out.seconds)
        if not (are_first_chunks or is_end_of_pass or is_end):
            continue

        # The first time, decide whether naive Bayes ratios help.
        candidate = passes.best_candidate(held_out)
        if best is None and on_first:
            on_first(_linear_model(vocabulary, candidate, task))

        # Stop where further passes would overfit: where the loss no longer falls.
        is_better = best is None or candidate.calibration.loss < best.calibration.loss
        if is_better:
            best = candidate
        if is_end or not is_better:
            break

    # Estimate the time of a fit to all texts from the time of the texts so far.
    assert best
    seconds_of_pass = passes.seconds / num_learned * counts.num_chunks
    seconds_for_these = seconds_to_count + seconds_of_pass * num_passes(len(rows))

    return StreamFit(
        linear=_linear_model(vocabulary, best, task),
        work=StreamWork(
            chunks_counted=counts.num_chunks, times_features=times, chunks_learned=num_learned
        ),
        num_texts=counts.num_texts,
        num_unread=len(rows) - counts.num_texts,
        seconds_of_pass=seconds_of_pass,
        seconds_for_all=seconds_for_these / counts.num_texts * len(rows),
    )


class _Candidate(NamedTuple):
    classifiers: OneVsRest
    calibration: Calibration


def _linear_model(vocabulary: Vocabulary, candidate: _Candidate, task: Task) -> LinearModel:
    calibrated = candidate.classifiers.calibrated(candidate.calibration)
    return vocabulary.linear_model(calibrated.weights, calibrated.biases, task)


# The share of the time in which features may be counted. The rest is for learning.
COUNTING_SHARE = 0.3


class _Limit:
    """The end of a fit: at a time, after the work of an earlier fit, or when all is done."""

    def __init__(self, end: float | None, work: StreamWork | None) -> None:
        self._end = end
        self._work = work
        self._start = time.monotonic()

    def ends_counting(self, num_chunks: int) -> bool:
        if self._work:
            return num_chunks == self._work.chunks_counted
        if self._end is None:
            return False
        return time.monotonic() >= self._start + COUNTING_SHARE * (self._end - self._start)

    def times_features(self, seconds_to_count: float) -> int:
        if self._work:
            return self._work.times_features
        if self._end is None:
            return TIMES_FEATURES
        has_time = time.monotonic() + TIMES_COUNTING * seconds_to_count < self._end
        return TIMES_FEATURES if has_time else TIMES_IN_LITTLE_TIME

    def ends_learning(self, num_chunks: int, *, seconds_to_calibrate: float) -> bool:
        """Whether the fit learns from no more, so that it can calibrate in time."""
        if self._work:
            return num_chunks == self._work.chunks_learned
        if self._end is None:
            return False
        return time.monotonic() + seconds_to_calibrate >= self._end


# The number of texts of a chunk, which are in memory at once.
TEXTS_PER_CHUNK = 1 << 14


class _CountsOnDisk:
    """Feature counts in a file that can be read many times; `document_frequencies` are by id."""

    def __init__(self, vocabulary: Vocabulary, *, has_columns: bool) -> None:
        # Words and pairs of words have the lowest ids, and columns the highest ones.
        num_ids = TEMPLATE_IDS
        if has_columns:
            num_ids = NUM_FEATURE_IDS
        elif vocabulary.options.char_ngrams:
            num_ids = COLUMN_IDS

        self._vocabulary = vocabulary
        self._ids = DiskBackedRaggedArray(np.int32)
        self._counts = DiskBackedArray(np.uint16)
        self.document_frequencies = np.zeros(num_ids, dtype=np.int32)
        self.num_chunks = 0

    @property
    def num_texts(self) -> int:
        return len(self._ids)

    def append(self, texts: TokenizedTexts) -> None:
        largest_count = np.iinfo(np.uint16).max
        for counts in self._vocabulary.pieces(texts):
            self._ids.append(counts.ids[counts.columns], np.diff(counts.offsets))
            self._counts.append(np.minimum(counts.values, largest_count))
            self.document_frequencies[counts.ids] += texts_with_features(counts).astype(np.int32)
        self.num_chunks += 1

    def matrices(self, features: FeatureIndex) -> Iterator[tuple[slice, sp.csr_matrix]]:
        ids, offsets = self._ids.arrays()
        counts = self._counts.array()
        for first in range(0, self.num_texts, TEXTS_PER_CHUNK):
            chunk_offsets = offsets[first : first + TEXTS_PER_CHUNK + 1]
            values = slice(chunk_offsets[0], chunk_offsets[-1])
            rows = SparseRows(
                columns=ids[values],
                values=counts[values].astype(np.float32),
                offsets=chunk_offsets - chunk_offsets[0],
            )
            known = keep_known(rows, features.find(rows.columns))
            yield slice(first, first + len(rows)), as_matrix(known, len(features))

            # Release the memory of the part of the file that was read.
            self._ids.forget()
            self._counts.forget()


def _count_features(
    texts: TokenizedTexts,
    rows: NDArray[np.int64],
    vocabulary: Vocabulary,
    limit: _Limit,
) -> _CountsOnDisk:
    """Count features until the time for it ends, but at least those of one chunk."""
    counts = _CountsOnDisk(vocabulary, has_columns=texts.kinds is not None)
    for first in range(0, len(rows), TEXTS_PER_CHUNK):
        if counts.num_chunks > 0 and limit.ends_counting(counts.num_chunks):
            break
        check_stop()
        chunk = texts.take(rows[first : first + TEXTS_PER_CHUNK])
        counts.append(chunk)
        count_work(COUNTING_PASSES * len(chunk))
    return counts


class _HeldOut:
    def __init__(
        self,
        texts: TokenizedTexts,
        labels: NDArray[Any],
        groups: RowGroups,
        vocabulary: Vocabulary,
    ) -> None:
        counts = count_matrix(vocabulary.pieces(texts), vocabulary.feature_ids)
        self._features = vocabulary.tfidf(counts)
        self._labels = labels
        self._groups = groups
        self._class_weights = vocabulary.options.class_weights
        self.seconds = 0.0

    def calibrate(self, classifiers: OneVsRest) -> Calibration:
        started = time.monotonic()
        margins = classifiers.margins(self._features)
        calibration = calibrate(margins, self._labels, self._class_weights, self._groups)
        self.seconds = time.monotonic() - started
        return calibration


MAX_BATCH = 256
# The minimum number of batches in a pass. If there are few texts, the batches are smaller.
MIN_BATCHES = 100


class _Passes:
    """Passes over texts, at first of two sets: NB-SVMs, and SVMs without naive Bayes ratios."""

    def __init__(
        self,
        counts: _CountsOnDisk,
        vocabulary: Vocabulary,
        labels: NDArray[Any],
        text_weights: NDArray[np.float32] | None,
    ) -> None:
        self._counts = counts
        self._vocabulary = vocabulary
        self._labels = labels
        self._text_weights = text_weights
        self._class_weights = vocabulary.options.class_weights
        self._features = FeatureIndex(vocabulary.feature_ids)
        ratios = self._ratios()
        self._svms = [OnlineSvms(ratios), OnlineSvms(np.ones_like(ratios))]
        self.seconds = 0.0

    def _ratios(self) -> NDArray[np.float32]:
        feature_ids = self._vocabulary.feature_ids
        num_classifiers = task_of(self._labels).num_one_vs_rest(len(self._class_weights))

        # Count the texts of each class with each feature. If the texts have weights, sum up the
        # weights instead. Targets are floats, since SciPy does not add up bools.
        texts_in_class = np.zeros((len(feature_ids), num_classifiers))
        texts_with_feature = np.zeros(len(feature_ids))
        for rows, counts in self._counts.matrices(self._features):
            targets, _ = binary_problems(self._labels[rows], self._class_weights)
            weighted_targets = targets.astype(np.float64)
            if self._text_weights is not None:
                weighted_targets *= self._text_weights[rows, None]
                texts_with_feature += (counts > 0).T @ self._text_weights[rows].astype(np.float64)
            texts_in_class += (counts > 0).T @ weighted_targets

        if self._text_weights is None:
            texts_with_feature += self._counts.document_frequencies[feature_ids]
        return naive_bayes_ratios(texts_in_class, texts_with_feature)

    def learn(self) -> Iterator[int]:
        """Learn from one chunk after another, and yield their number.

        A thread makes the batches of the next one.
        """
        started = time.monotonic()
        for num_learned, batches in enumerate(prefetched(self._chunks()), start=1):
            check_stop()
            for batch in batches:
                for svms in self._svms:
                    svms.learn(batch)
            count_work(sum(len(batch.targets) for batch in batches))

            # The time until the next chunk is asked for is not part of the learning.
            self.seconds += time.monotonic() - started
            yield num_learned
            started = time.monotonic()

    def _chunks(self) -> Iterator[list[Batch]]:
        for _ in range(num_passes(self._counts.num_texts)):
            for rows, counts in self._counts.matrices(self._features):
                yield self._batches(self._vocabulary.tfidf(counts), rows)

    def _batches(self, features: sp.csr_matrix, rows: slice) -> list[Batch]:
        labels = self._labels[rows]
        targets, sample_weights = binary_problems(labels, self._class_weights)
        if self._text_weights is not None:
            sample_weights = sample_weights * self._text_weights[rows, None]

        batches = []
        batch_size = min(MAX_BATCH, max(1, self._counts.num_texts // MIN_BATCHES))
        for first in range(0, len(labels), batch_size):
            texts = slice(first, first + batch_size)
            batches.append(Batch.of(features[texts], targets[texts], sample_weights[texts]))
        return batches

    def best_candidate(self, held_out: _HeldOut) -> _Candidate:
        candidates = []
        for svms in self._svms:
            classifiers = svms.classifiers()
            candidates.append(_Candidate(classifiers, held_out.calibrate(classifiers)))

        losses = [candidate.calibration.loss for candidate in candidates]
        best = int(np.argmin(losses))
        self._svms = [self._svms[best]]
        return candidates[best]
