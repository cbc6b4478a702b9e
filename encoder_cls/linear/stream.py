"""Fit a linear model from a stream of features, some texts at a time.

One-vs-rest machines of words and pairs, by averaged stochastic gradient descent (Xu, "Towards
Optimal One Pass Large Scale Learning with Averaged Stochastic Gradient Descent", 2011,
https://arxiv.org/abs/1107.2490).
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from encoder_cls.linear.calibration import calibrate
from encoder_cls.linear.features import LinearOptions, Vocabulary, as_matrix, scaled_columns
from encoder_cls.linear.folds import first_held_out
from encoder_cls.linear.linear_model import LinearModel
from encoder_cls.linear.nb_svm import OneVsRest, naive_bayes_ratios, targets_of_machines
from encoder_cls.linear.ngrams import TEMPLATE_IDS, SparseRows, keep_known
from encoder_cls.metrics.logits import task_of
from encoder_cls.system.disk_arrays import DiskBackedArray, DiskBackedRaggedArray
from encoder_cls.system.stop import check_stop
from encoder_cls.text.tokens import TokenizedTexts

# The values of LinearSVC's C to choose from, on the texts held out.
C_VALUES = (0.3, 1.0)

# The most texts to hold out, to calibrate with.
MAX_HELD_OUT = 20_000

SEED = 0


def fit_linear_from_stream(
    texts: TokenizedTexts,
    labels: NDArray[Any],
    options: LinearOptions,
    *,
    split_groups: NDArray[np.int64],
) -> LinearModel:
    """Fit a linear model, calibrated on texts held out.

    Texts are read in random order, without character n-grams. Memory holds a fixed number of texts,
    and a few numbers per text and per feature. Arguments are those of `fit_linear` and
    `split_into_folds`.
    """
    task = task_of(labels)
    class_weights = options.class_weights

    # Hold out a twentieth of the texts.
    order = np.random.default_rng(SEED).permutation(len(labels))
    num_held_out = min(MAX_HELD_OUT, max(1, len(labels) // 20))
    is_held_out = first_held_out(order, split_groups, num_held_out)[order]
    held_out = order[is_held_out]
    learned = order[~is_held_out]

    # Count features once, into a file, and keep the most frequent ones.
    vocabulary = Vocabulary.of(texts, options)
    stream = _CountStream(vocabulary, texts, learned)
    ids = np.flatnonzero(stream.document_frequencies).astype(np.int32)
    vocabulary = vocabulary.with_most_frequent(ids, stream.document_frequencies[ids], task)
    document_frequencies = stream.document_frequencies[vocabulary.feature_ids]
    vocabulary = vocabulary.with_idf(document_frequencies, len(learned))

    # Fit machines under each penalty at the same time.
    candidates = _fit(stream, vocabulary, document_frequencies, labels[learned], class_weights)

    # Keep those with the lowest loss on the texts held out.
    held_out_stream = _CountStream(vocabulary, texts, held_out)
    batches = []
    for _, counts in held_out_stream.matrices(vocabulary.feature_ids):
        batches.append(vocabulary.tfidf(counts))
    features = sp.vstack(batches)

    calibrations = []
    for machines in candidates:
        margins = machines.margins(features)
        calibrations.append(calibrate(margins, labels[held_out], class_weights))
    losses = [calibration.loss for calibration in calibrations]
    best = int(np.argmin(losses))

    machines = candidates[best].calibrated(calibrations[best])
    return vocabulary.linear_model(machines.weights, machines.biases, task)


# The texts of a batch.
TEXTS_AT_ONCE = 1 << 14


class _CountStream:
    """The counts of features of some texts, in order, in a file that can be read many times.

    Attributes:
        document_frequencies: the number of these texts with each feature, by id, (ids,).
    """

    def __init__(
        self, vocabulary: Vocabulary, texts: TokenizedTexts, rows: NDArray[np.int64]
    ) -> None:
        self._ids = DiskBackedRaggedArray(np.int32)
        self._counts = DiskBackedArray(np.uint16)
        self.document_frequencies = np.zeros(TEMPLATE_IDS, dtype=np.int32)

        largest_count = np.iinfo(np.uint16).max
        for first in range(0, len(rows), TEXTS_AT_ONCE):
            batch = texts.take(rows[first : first + TEXTS_AT_ONCE])
            for counts in vocabulary.pieces(batch):
                self._ids.append(counts.ids[counts.columns], np.diff(counts.offsets))
                self._counts.append(np.minimum(counts.values, largest_count))

                # Each column of a text has one value, so values are texts.
                num_texts = np.bincount(counts.columns, minlength=len(counts.ids))
                self.document_frequencies[counts.ids] += num_texts.astype(np.int32)

    def matrices(self, feature_ids: NDArray[np.int32]) -> Iterator[tuple[slice, sp.csr_matrix]]:
        """Yield the counts of `TEXTS_AT_ONCE` texts at a time, with a column for each id.

        With each matrix comes the slice of its texts.
        """
        # Look up columns in a table, which is quicker than `find` here.
        columns = np.full(TEMPLATE_IDS, -1, dtype=np.int32)
        columns[feature_ids] = np.arange(len(feature_ids))

        ids, offsets = self._ids.arrays()
        counts = self._counts.array()
        for first in range(0, len(self._ids), TEXTS_AT_ONCE):
            batch_offsets = offsets[first : first + TEXTS_AT_ONCE + 1]
            values = slice(batch_offsets[0], batch_offsets[-1])
            rows = SparseRows(
                columns=ids[values],
                values=counts[values].astype(np.float32),
                offsets=batch_offsets - batch_offsets[0],
            )
            known = keep_known(rows, columns[rows.columns])
            yield slice(first, first + len(rows)), as_matrix(known, len(feature_ids))

            # Release the memory of the file that was read.
            self._ids.forget()
            self._counts.forget()


# The most epochs, and the most values of features times classes in all epochs but the first: a
# minute or two.
MAX_EPOCHS = 5
MAX_WORK = 10_000_000_000


def _fit(
    stream: _CountStream,
    vocabulary: Vocabulary,
    document_frequencies: NDArray[np.integer[Any]],
    labels: NDArray[Any],
    class_weights: NDArray[np.float32],
) -> list[OneVsRest]:
    """Fit one-vs-rest machines under each penalty.

    `document_frequencies` are those of the features of the vocabulary, (features,).
    """
    from sklearn.linear_model import SGDClassifier  # importing this takes most of a second

    feature_ids = vocabulary.feature_ids
    num_machines = task_of(labels).num_one_vs_rest(len(class_weights))

    # Count the texts of each class with each feature, for the ratios of naive Bayes. Targets are
    # floats, since SciPy does not add up bools.
    texts_in_class = np.zeros((len(feature_ids), num_machines))
    for rows, counts in stream.matrices(feature_ids):
        targets, _ = targets_of_machines(labels[rows], class_weights)
        texts_in_class += (counts > 0).T @ targets.astype(np.float64)
    ratios = naive_bayes_ratios(texts_in_class, document_frequencies)

    # Read the texts several times if there is time.
    work_per_epoch = int(document_frequencies.sum()) * num_machines * len(C_VALUES)
    further_epochs = min(MAX_EPOCHS - 1, MAX_WORK // max(1, work_per_epoch))

    # Average weights over all epochs but the first, or over the second half of a single one.
    average_from = len(labels)
    if further_epochs == 0:
        average_from = max(1, len(labels) // 2)

    # Make a machine for each class and penalty.
    machines: list[list[SGDClassifier]] = []
    for _ in range(num_machines):
        by_c = []
        for svm_c in C_VALUES:
            machine = SGDClassifier(
                loss="modified_huber",
                alpha=1 / (svm_c * len(labels)),
                average=average_from,
                random_state=SEED,
            )
            by_c.append(machine)
        machines.append(by_c)

    # Fit all of them to each batch, so that a batch is read and scaled once an epoch.
    for _ in range(1 + further_epochs):
        for rows, counts in stream.matrices(feature_ids):
            check_stop()
            features = vocabulary.tfidf(counts)
            targets, text_weights = targets_of_machines(labels[rows], class_weights)
            for number, by_c in enumerate(machines):
                scaled = scaled_columns(features, ratios[:, number])
                for machine in by_c:
                    machine.partial_fit(
                        scaled,
                        targets[:, number],
                        classes=[False, True],
                        sample_weight=text_weights[:, number],
                    )

    # Join the machines of each penalty. The same ratios make weights of scaled features those of
    # the features.
    candidates = []
    for machines_of_c in zip(*machines, strict=True):
        weights = np.stack([machine.coef_[0] for machine in machines_of_c], axis=1) * ratios
        biases = np.array([machine.intercept_[0] for machine in machines_of_c])
        candidates.append(OneVsRest(weights.astype(np.float32), biases.astype(np.float32)))
    return candidates
