"""Fit a linear classifier from a stream of features.

What is learned is as in `training/linear/svm`: words and pairs, ratios of naive Bayes, a linear machine for each
class, by averaged stochastic gradient descent (Xu, "Towards Optimal One Pass Large Scale Learning with Averaged
Stochastic Gradient Descent", 2011, https://arxiv.org/abs/1107.2490), which looks at some texts at a time.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from encoder_cls.evaluation.metrics import one_hot
from encoder_cls.inference.linear import LinearClassifier
from encoder_cls.inference.task import task_of
from encoder_cls.inference.weights import compress
from encoder_cls.system.disk_arrays import DiskBackedArray, DiskBackedRaggedArray
from encoder_cls.system.stop import while_waited_for
from encoder_cls.text.ngrams import TEMPLATE_IDS, SparseRows, count_features
from encoder_cls.text.tokens import TokenizedTexts
from encoder_cls.training.linear.features import (
    NO_TOKENS,
    Occurrences,
    chosen_columns,
    count_occurrences_of_many,
    feature_columns,
    inverse_document_frequencies,
    most_features_of,
    scaled_columns,
    tfidf_matrix,
)
from encoder_cls.training.linear.folds import first_held_out
from encoder_cls.training.linear.svm import (
    OneVsRest,
    calibrate,
    classes_to_tell,
    naive_bayes_ratios,
    of_one_class,
    weights_of_texts,
)

PENALTIES = (0.3, 1.0)  # as LinearSVC's C, of which the texts held out choose one
MOST_HELD_OUT = 20_000  # texts, to calibrate with
TEXTS_AT_ONCE = 1 << 14  # that are learned from
MOST_EPOCHS = 5
MOST_WORK = 10_000_000_000  # values of features times classes in all epochs but the first: a minute or two
SEED = 0


def fit_linear_from_stream(
    texts: TokenizedTexts,
    labels: NDArray[Any],
    *,
    class_weights: NDArray[np.float32],
    max_tokens: int,
    together: NDArray[np.int64],
) -> LinearClassifier:
    """Train a linear classifier of words and pairs; texts that are held out calibrate its scores.

    Memory holds what a fixed number of texts needs, besides a few numbers for each text and feature. The order of the
    texts is random, so that it does not matter how they are sorted.

    Args as of `nbsvm.fit_linear` and `folds`.
    """
    task = task_of(labels)
    order = np.random.default_rng(SEED).permutation(len(labels))
    is_held_out = first_held_out(order, together, min(MOST_HELD_OUT, max(1, len(labels) // 20)))[order]
    held_out, learned = order[is_held_out], order[~is_held_out]
    stream = _CountStream(texts, learned, max_tokens=max_tokens)
    most = most_features_of(len(class_weights), task)
    occurrences = count_occurrences_of_many(stream, TEMPLATE_IDS).most_frequent(most)
    feature_ids = occurrences.ids
    idf, by_penalty = _learn(stream, occurrences, labels[learned], class_weights)
    features = sp.vstack(
        [
            tfidf_matrix(counts, feature_ids, idf)
            for _, counts in _CountStream(texts, held_out, max_tokens=max_tokens).matrices(feature_ids)
        ]
    )
    calibrated = [
        calibrate(features @ it.weights + it.biases, labels[held_out], class_weights, penalty)
        for it, penalty in zip(by_penalty, PENALTIES, strict=True)
    ]
    found, machines = min(zip(calibrated, by_penalty, strict=True), key=lambda it: it[0].loss)
    return LinearClassifier(
        max_tokens=max_tokens,
        frequent_token_ids=NO_TOKENS,
        feature_ids=feature_ids,
        idf=idf,
        weights=compress(machines.weights * found.scale, "float32"),
        biases=machines.biases * found.scale + found.shift,
        task=task,
    )


class _CountStream:
    """How often which feature occurs in which text, in a file, read from its beginning as often as that is wanted.

    Args:
        texts: the texts.
        rows: which of them, in their order.
        max_tokens: how many tokens of a text to read, `[CLS]` counted.
    """

    def __init__(self, texts: TokenizedTexts, rows: NDArray[np.int64], *, max_tokens: int) -> None:
        self._columns = DiskBackedRaggedArray(np.int32)
        self._counts = DiskBackedArray(np.uint16)
        for first in range(0, len(rows), TEXTS_AT_ONCE):
            some = texts.take(rows[first : first + TEXTS_AT_ONCE])
            for counts in count_features(
                some, max_tokens=max_tokens, frequent_token_ids=NO_TOKENS, use_char_ngrams=False
            ):
                self._columns.append(counts.columns, np.diff(counts.offsets))
                self._counts.append(np.minimum(counts.values, np.iinfo(np.uint16).max))

    def __iter__(self) -> Iterator[SparseRows]:
        """The counts of some texts after the other; columns are feature ids."""
        columns, offsets = self._columns.arrays()
        counts = self._counts.array()
        for first in range(0, len(self._columns), TEXTS_AT_ONCE):
            ends = offsets[first : first + TEXTS_AT_ONCE + 1]
            part = slice(ends[0], ends[-1])
            yield SparseRows(columns=columns[part], values=counts[part].astype(np.float32), offsets=ends - ends[0])
            self._columns.forget()
            self._counts.forget()

    def matrices(self, feature_ids: NDArray[np.int32]) -> Iterator[tuple[slice, sp.csr_matrix]]:
        """Which texts come next, and the counts of these; columns are indices of the feature ids."""
        columns, first = feature_columns(feature_ids, TEMPLATE_IDS), 0
        for counts in self:
            yield slice(first, first + len(counts)), chosen_columns(counts, columns, len(feature_ids))
            first += len(counts)


def _learn(
    stream: _CountStream, occurrences: Occurrences, labels: NDArray[Any], class_weights: NDArray[np.float32]
) -> tuple[NDArray[np.float32], list[OneVsRest]]:
    """Inverse document frequencies (features,), and what one-vs-rest classifiers learn under each penalty."""
    from sklearn.linear_model import SGDClassifier  # most of a second

    num_classes = len(class_weights)
    classes = classes_to_tell(labels, num_classes)
    feature_ids, texts_with = occurrences
    of_classes = _texts_of_classes(stream, feature_ids, labels, num_classes)
    idf = inverse_document_frequencies(texts_with, len(labels))
    ratios = [naive_bayes_ratios(of_classes[:, number], texts_with - of_classes[:, number]) for number in classes]
    epochs = 1 + min(MOST_EPOCHS - 1, MOST_WORK // max(1, int(texts_with.sum()) * len(classes) * len(PENALTIES)))
    # Averaged are the weights of all epochs but the first, or of the second half of a single one.
    averaged_from = len(labels) if epochs > 1 else max(1, len(labels) // 2)
    machines = [
        [
            SGDClassifier(
                loss="modified_huber", alpha=1 / (penalty * len(labels)), average=averaged_from, random_state=SEED
            )
            for penalty in PENALTIES
        ]
        for _ in classes
    ]
    for _ in range(epochs):
        for rows, counts in stream.matrices(feature_ids):
            with while_waited_for():
                pass
            features = tfidf_matrix(counts, feature_ids, idf)
            text_weights = weights_of_texts(labels[rows], class_weights)
            for number, scales, of_class in zip(classes, ratios, machines, strict=True):
                is_class, weights = of_one_class(labels[rows], text_weights, number)
                scaled = scaled_columns(features, scales)
                for machine in of_class:
                    machine.partial_fit(scaled, is_class, classes=[False, True], sample_weight=weights)
    return idf, [
        OneVsRest(
            np.stack([it.coef_[0] * scales for it, scales in zip(found, ratios, strict=True)], axis=1).astype(
                np.float32
            ),
            np.concatenate([it.intercept_ for it in found]).astype(np.float32),
        )
        for found in zip(*machines, strict=True)
    ]


def _texts_of_classes(
    stream: _CountStream, feature_ids: NDArray[np.int32], labels: NDArray[Any], num_classes: int
) -> NDArray[np.float64]:
    """How many texts of each class have each feature, (features, classes)."""
    of_classes = np.zeros((len(feature_ids), num_classes))
    for rows, counts in stream.matrices(feature_ids):
        # As floats: labels of several are int8, in which SciPy would add up, too, and overflow.
        of_texts = labels[rows].astype(np.float64) if labels.ndim > 1 else one_hot(labels[rows], num_classes)
        of_classes += (counts > 0).T @ of_texts
    return of_classes
