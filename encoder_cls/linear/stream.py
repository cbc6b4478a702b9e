"""Fit a linear classifier from a stream of features, some texts at a time.

One-vs-rest machines of words and pairs, by averaged stochastic gradient descent (Xu, "Towards Optimal One Pass Large
Scale Learning with Averaged Stochastic Gradient Descent", 2011, https://arxiv.org/abs/1107.2490).
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from encoder_cls.linear.calibration import calibrate, first_held_out
from encoder_cls.linear.features import Reading, Vocabulary, as_matrix, scaled_columns
from encoder_cls.linear.linear_model import LinearClassifier
from encoder_cls.linear.nb_svm import OneVsRest, naive_bayes_ratios, targets_of_machines
from encoder_cls.linear.ngrams import TEMPLATE_IDS, SparseRows, keep_known
from encoder_cls.metrics.logits import task_of
from encoder_cls.system.disk_arrays import DiskBackedArray, DiskBackedRaggedArray
from encoder_cls.system.stop import check_stop
from encoder_cls.text.tokens import TokenizedTexts

PENALTIES = (0.3, 1.0)  # as LinearSVC's C; one is chosen on the texts held out
MOST_HELD_OUT = 20_000  # texts, to calibrate with
TEXTS_AT_ONCE = 1 << 14  # in a batch
MOST_EPOCHS = 5
MOST_WORK = (
    10_000_000_000  # values of features times classes in all epochs but the first: a minute or two
)
SEED = 0


def fit_linear_from_stream(
    texts: TokenizedTexts, labels: NDArray[Any], reading: Reading, *, together: NDArray[np.int64]
) -> LinearClassifier:
    """Fit a linear classifier, calibrated on texts held out; arguments as in `fit_linear` and `folds`.

    Texts are read in random order, without character n-grams. Memory holds a fixed number of texts, and a few numbers
    per text and per feature.
    """
    weights, task = reading.class_weights, task_of(labels)
    order = np.random.default_rng(SEED).permutation(len(labels))
    is_held_out = first_held_out(order, together, min(MOST_HELD_OUT, max(1, len(labels) // 20)))[
        order
    ]
    held_out, learned = order[is_held_out], order[~is_held_out]
    vocabulary = Vocabulary.of(texts, reading)
    stream = _CountStream(vocabulary, texts, learned)
    ids = np.flatnonzero(stream.texts_of_ids).astype(np.int32)
    vocabulary = vocabulary.with_most_frequent(ids, stream.texts_of_ids[ids], task)
    texts_with = stream.texts_of_ids[vocabulary.feature_ids]
    vocabulary = vocabulary.with_idf(texts_with, len(learned))
    by_penalty = _fit(stream, vocabulary, texts_with, labels[learned], weights)
    others = _CountStream(vocabulary, texts, held_out).matrices(vocabulary.feature_ids)
    features = sp.vstack([vocabulary.tfidf(counts) for _, counts in others])
    calibrated = [
        (it, calibrate(it.margins(features), labels[held_out], weights)) for it in by_penalty
    ]
    machines, calibration = min(calibrated, key=lambda it: it[1].loss)
    return vocabulary.classifier(*machines.calibrated(calibration), task)


class _CountStream:
    """The counts of features of some texts, in order, in a file that can be read many times.

    `texts_of_ids` is the number of texts with each feature, (ids,).
    """

    def __init__(
        self, vocabulary: Vocabulary, texts: TokenizedTexts, rows: NDArray[np.int64]
    ) -> None:
        self._ids, self._counts = DiskBackedRaggedArray(np.int32), DiskBackedArray(np.uint16)
        self.texts_of_ids = np.zeros(TEMPLATE_IDS, dtype=np.int32)
        for first in range(0, len(rows), TEXTS_AT_ONCE):
            for counts in vocabulary.pieces(texts.take(rows[first : first + TEXTS_AT_ONCE])):
                self._ids.append(counts.ids[counts.columns], np.diff(counts.offsets))
                self._counts.append(np.minimum(counts.values, np.iinfo(np.uint16).max))
                self.texts_of_ids[counts.ids] += np.bincount(
                    counts.columns, minlength=len(counts.ids)
                ).astype(np.int32)

    def matrices(self, feature_ids: NDArray[np.int32]) -> Iterator[tuple[slice, sp.csr_matrix]]:
        """Yield slices of `TEXTS_AT_ONCE` texts, each with the counts of its texts, a column for each id."""
        column_of = np.full(TEMPLATE_IDS, -1, dtype=np.int32)  # quicker than `find` here
        column_of[feature_ids] = np.arange(len(feature_ids))
        (ids, offsets), counts = self._ids.arrays(), self._counts.array()
        for first in range(0, len(self._ids), TEXTS_AT_ONCE):
            ends = offsets[first : first + TEXTS_AT_ONCE + 1]
            part = slice(ends[0], ends[-1])
            rows = SparseRows(
                columns=ids[part], values=counts[part].astype(np.float32), offsets=ends - ends[0]
            )
            yield (
                slice(first, first + len(rows)),
                as_matrix(keep_known(rows, column_of[rows.columns]), len(feature_ids)),
            )
            self._ids.forget()
            self._counts.forget()


def _fit(
    stream: _CountStream,
    vocabulary: Vocabulary,
    texts_with: NDArray[np.integer[Any]],
    labels: NDArray[Any],
    class_weights: NDArray[np.float32],
) -> list[OneVsRest]:
    """Fit one-vs-rest machines under each penalty; `texts_with` is the number of texts with each feature."""
    from sklearn.linear_model import SGDClassifier  # most of a second

    num_machines = task_of(labels).num_one_vs_rest(len(class_weights))
    inside = np.zeros((len(texts_with), num_machines))
    for rows, counts in stream.matrices(vocabulary.feature_ids):
        # As floats: SciPy does not add up bools.
        inside += (counts > 0).T @ targets_of_machines(labels[rows], class_weights)[0].astype(
            np.float64
        )
    ratios = naive_bayes_ratios(inside, texts_with)
    epochs = 1 + min(
        MOST_EPOCHS - 1, MOST_WORK // max(1, int(texts_with.sum()) * num_machines * len(PENALTIES))
    )
    # Weights are averaged over all epochs but the first, or over the second half of a single one.
    options = {
        "average": len(labels) if epochs > 1 else max(1, len(labels) // 2),
        "random_state": SEED,
    }
    alphas = [1 / (penalty * len(labels)) for penalty in PENALTIES]
    machines = [
        [SGDClassifier(loss="modified_huber", alpha=it, **options) for it in alphas]
        for _ in ratios.T
    ]
    for _ in range(epochs):
        for rows, counts in stream.matrices(vocabulary.feature_ids):
            check_stop()
            features = vocabulary.tfidf(counts)
            targets, weights = targets_of_machines(labels[rows], class_weights)
            for column, (scales, of_class) in enumerate(zip(ratios.T, machines, strict=True)):
                scaled = scaled_columns(features, scales)
                for machine in of_class:
                    machine.partial_fit(
                        scaled,
                        targets[:, column],
                        classes=[False, True],
                        sample_weight=weights[:, column],
                    )
    by_penalty = []
    for fitted in zip(*machines, strict=True):
        weights, biases = (
            np.stack([it.coef_[0] for it in fitted], axis=1) * ratios,
            [it.intercept_[0] for it in fitted],
        )
        by_penalty.append(OneVsRest(weights.astype(np.float32), np.array(biases, dtype=np.float32)))
    return by_penalty
