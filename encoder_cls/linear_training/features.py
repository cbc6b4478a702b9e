"""Sparse feature matrices of tokenized texts."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from encoder_cls.linear.linear_model import LinearModel
from encoder_cls.linear.ngrams import (
    Counts,
    SparseRows,
    count_features,
    find,
    frequent_tokens,
    keep_known,
    tfidf,
)
from encoder_cls.linear_training.folds import NO_TEXTS
from encoder_cls.metrics.tasks import SINGLE_LABEL, Task, task_of
from encoder_cls.text.tokens import TokenizedTexts
from encoder_cls.weights import SparseTable, compress


class LinearOptions(NamedTuple):
    """Which features a linear model uses, and the weights of the classes.

    Attributes:
        max_tokens: read of a text, `[CLS]` included.
        char_ngrams: whether these and templates are features, besides words and pairs.
        feature_pairs: whether pairs of a word and a feature of its row are.
        sparse_weights: whether a class has few weights, so that the number of classes does not
            limit that of features.
    """

    max_tokens: int
    char_ngrams: bool
    class_weights: NDArray[np.float32]
    feature_pairs: bool = False
    sparse_weights: bool = False

    @classmethod
    def like(cls, linear: LinearModel, class_weights: NDArray[np.float32]) -> LinearOptions:
        """The options of a fitted model."""
        has_templates = len(linear.frequent_token_ids) > 0
        return cls(
            linear.max_tokens,
            has_templates,
            class_weights,
            feature_pairs=linear.knows_feature_pairs,
        )


# The maximum number of features, and the maximum size of all of them in bytes: more features, which
# are rarer, help little or mislead. A feature takes four bytes for its id, four for its inverse
# document frequency, and four for each of its weights.
MAX_FEATURES = 700_000
MAX_BYTES = 1 << 25
# With many classes, a model may be larger: it knows this many features in any case, since each
# class has words of its own.
ALWAYS_FEATURES = 50_000
# Of still more classes, a model has so many weights: a fit keeps up to seven arrays of them.
MAX_WEIGHTS = 60_000_000


class Vocabulary(NamedTuple):
    """The features that a `LinearModel` knows; `with_most_frequent` adds ids, `with_idf` the IDF.

    Attributes:
        frequent_token_ids: those that n-gram templates keep, increasing.
        feature_ids: increasing, (features,).
        idf: (features,).
    """

    options: LinearOptions
    frequent_token_ids: NDArray[np.int32]
    feature_ids: NDArray[np.int32] = np.zeros(0, dtype=np.int32)
    idf: NDArray[np.float32] = np.zeros(0, dtype=np.float32)

    @classmethod
    def of(cls, texts: TokenizedTexts, options: LinearOptions) -> Vocabulary:
        """The frequent tokens of texts, without features."""
        frequent_token_ids = np.zeros(0, dtype=np.int32)
        if options.char_ngrams:
            frequent_token_ids = frequent_tokens(texts, max_tokens=options.max_tokens)
        return cls(options, frequent_token_ids)

    def pieces(self, texts: TokenizedTexts) -> list[Counts]:
        """Count all features of texts, also unknown ones, chunk by chunk."""
        counts = count_features(
            texts,
            max_tokens=self.options.max_tokens,
            frequent_token_ids=self.frequent_token_ids,
            use_char_ngrams=self.options.char_ngrams,
            use_feature_pairs=self.options.feature_pairs,
        )
        return list(counts)

    def with_most_frequent(
        self,
        ids: NDArray[np.int32],
        num_texts: NDArray[np.integer[Any]],
        task: Task = SINGLE_LABEL,
        *,
        times: int = 1,
    ) -> Vocabulary:
        """Keep the most frequent features, `times` as many as a model may have.

        The limit follows from the weights of a feature. `ids` increase; `num_texts` counts the
        texts with each.
        """
        # Without features, keep the id 0, which occurs in no text: LinearSVC needs a feature.
        if not len(ids):
            return self._replace(feature_ids=np.zeros(1, dtype=np.int32))

        limit = times * MAX_FEATURES
        if not self.options.sparse_weights:
            num_classifiers = task.num_one_vs_rest(len(self.options.class_weights))
            bytes_per_feature = 4 * (2 + num_classifiers)
            always = min(ALWAYS_FEATURES, MAX_WEIGHTS // num_classifiers)
            limit = min(limit, max(always, times * MAX_BYTES // bytes_per_feature))

        most_frequent = np.argsort(-num_texts, kind="stable")[:limit]
        return self._replace(feature_ids=ids[np.sort(most_frequent)])

    def with_idf(self, occurrences: NDArray[np.integer[Any]], num_texts: int) -> Vocabulary:
        """Add inverse document frequencies.

        `occurrences` counts the texts with each feature; one without any, which only held-out texts
        have, gets 0.
        """
        idf = np.log((1 + num_texts) / (1 + occurrences)) + 1
        idf[occurrences == 0] = 0
        return self._replace(idf=idf.astype(np.float32))

    def with_idf_of(self, counts: sp.csr_matrix) -> Vocabulary:
        """Add inverse document frequencies of counts, (texts, features)."""
        return self.with_idf(counts.getnnz(axis=0), counts.shape[0])

    def tfidf(self, counts: sp.csr_matrix) -> sp.csr_matrix:
        """TF-IDF values of counts, both (texts, features)."""
        rows = SparseRows(columns=counts.indices, values=counts.data, offsets=counts.indptr)
        return as_matrix(tfidf(rows, self.feature_ids, self.idf), counts.shape[1])

    def linear_model(
        self,
        weights: NDArray[np.floating[Any]] | sp.csr_matrix,
        biases: NDArray[np.float32],
        task: Task = SINGLE_LABEL,
    ) -> LinearModel:
        """Make a model of weights, (features, classifiers)."""
        table = _sparse_table(weights) if sp.issparse(weights) else compress(weights, "float32")
        return LinearModel(
            max_tokens=self.options.max_tokens,
            frequent_token_ids=self.frequent_token_ids,
            feature_ids=self.feature_ids,
            idf=self.idf,
            weights=table,
            biases=biases,
            task=task,
        )


def _sparse_table(weights: sp.csr_matrix) -> SparseTable:
    weights.sum_duplicates()
    return SparseTable(
        values=weights.data,
        columns=weights.indices.astype(np.int32),
        row_sizes=np.diff(weights.indptr).astype(np.int32),
        num_columns=weights.shape[1],
    )


@dataclass(frozen=True, kw_only=True)
class LabelledTexts:
    """Texts with labels, and which of them are validation texts.

    Attributes:
        texts: others may follow the labelled ones.
        labels: of the labelled texts.
        split_groups: a group is held out as a whole.
        weights: in a fit; None if all count alike.
    """

    texts: TokenizedTexts
    labels: NDArray[Any]
    split_groups: NDArray[np.int64]
    weights: NDArray[np.float32] | None = None
    validation_rows: NDArray[np.int64] = field(default_factory=lambda: NO_TEXTS)

    def __len__(self) -> int:
        return len(self.labels)

    def take(self, rows: NDArray[np.int64]) -> LabelledTexts:
        """Some labelled texts, none of which is marked as a validation text."""
        return LabelledTexts(
            texts=self.texts.take(rows),
            labels=self.labels[rows],
            split_groups=self.split_groups[rows],
            weights=self.weights_of(rows),
        )

    def weights_of(self, rows: NDArray[np.int64]) -> NDArray[np.float32] | None:
        """The weights of some texts; None if all count alike."""
        if self.weights is None:
            return None
        return self.weights[rows]


@dataclass(frozen=True)
class CountedTexts:
    """Labelled texts with counts, (texts, features), of their most frequent features."""

    vocabulary: Vocabulary
    counts: sp.csr_matrix
    labels: NDArray[Any]
    weights: NDArray[np.float32] | None = None

    @classmethod
    def of(
        cls,
        texts: TokenizedTexts,
        labels: NDArray[Any],
        options: LinearOptions,
        weights: NDArray[np.float32] | None = None,
    ) -> CountedTexts:
        """Count features, and keep the most frequent ones."""
        vocabulary = Vocabulary.of(texts, options)
        pieces = vocabulary.pieces(texts)
        ids, num_texts = count_occurrences(pieces)
        vocabulary = vocabulary.with_most_frequent(ids, num_texts, task_of(labels))

        counts = count_matrix(pieces, vocabulary.feature_ids)
        return cls(vocabulary.with_idf_of(counts), counts, labels, weights)

    def __len__(self) -> int:
        return len(self.labels)

    @property
    def class_weights(self) -> NDArray[np.float32]:
        """(classes,)."""
        return self.vocabulary.options.class_weights

    @property
    def num_classifiers(self) -> int:
        """The number of binary classifiers."""
        return task_of(self.labels).num_one_vs_rest(len(self.class_weights))

    @cached_property
    def features(self) -> sp.csr_matrix:
        """TF-IDF values, (texts, features)."""
        return self.vocabulary.tfidf(self.counts)


def count_occurrences(pieces: Sequence[Counts]) -> tuple[NDArray[np.int32], NDArray[np.int64]]:
    """All ids, increasing, and how many texts have each."""
    ids = np.unique(np.concatenate([piece.ids for piece in pieces]))
    num_texts = np.zeros(len(ids), dtype=np.int64)
    for piece in pieces:
        num_texts[np.searchsorted(ids, piece.ids)] += texts_with_features(piece)
    return ids, num_texts


def texts_with_features(counts: Counts) -> NDArray[np.int64]:
    """How many texts have each feature."""
    # A text has one value for each of its features, so the values of a column count texts.
    return np.bincount(counts.columns, minlength=len(counts.ids))


def count_matrix(pieces: Sequence[Counts], feature_ids: NDArray[np.int32]) -> sp.csr_matrix:
    """Join counts into a matrix of the features with these increasing ids."""
    matrices = []
    for piece in pieces:
        columns = find(piece.ids, feature_ids)
        known = keep_known(piece, columns[piece.columns])
        matrices.append(as_matrix(known, len(feature_ids)))
    return sp.vstack(matrices, format="csr")


def as_matrix(rows: SparseRows, num_columns: int) -> sp.csr_matrix:
    """Convert sparse rows to a SciPy matrix."""
    return sp.csr_matrix((rows.values, rows.columns, rows.offsets), shape=(len(rows), num_columns))


def scaled_columns(features: sp.csr_matrix, scales: NDArray[np.float32]) -> sp.csr_matrix:
    """Multiply columns by their scales.

    SciPy's product with a diagonal matrix takes half as long as the fit.
    """
    values = features.data * scales[features.indices]
    return sp.csr_matrix((values, features.indices, features.indptr), shape=features.shape)
