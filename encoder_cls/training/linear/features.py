"""Sparse feature matrices of tokenized texts.

Latent semantic analysis (Deerwester et al., 1990) is a truncated singular value decomposition of features, which needs
no labels. A text's coordinates are its features times the directions, so a classifier of both is one of features alone.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from encoder_cls.inference.linear import LinearClassifier
from encoder_cls.inference.task import SINGLE_LABEL, Task
from encoder_cls.inference.weights import compress
from encoder_cls.text.ngrams import (
    CHAR_NGRAM_IDS,
    HASHES,
    Counts,
    SparseRows,
    count_features,
    find,
    frequent_tokens,
    keep_known,
    tfidf,
)
from encoder_cls.text.token_arrays import TokenizedTexts

MOST_FEATURES = 700_000  # of which the more frequent are kept: rarer ones help little, or mislead
MOST_BYTES = 1 << 25  # of features, since each has a weight a class and a model is to be small


class Reading(NamedTuple):
    """What the linear classifier reads of texts, and how much each class counts."""

    max_tokens: int  # of a text, `[CLS]` counted
    char_ngrams: bool  # and n-gram templates; else words and pairs alone
    class_weights: NDArray[np.float32]

    @classmethod
    def like(cls, linear: LinearClassifier, class_weights: NDArray[np.float32]) -> Reading:
        """Read what a fitted classifier reads."""
        return cls(linear.max_tokens, len(linear.frequent_token_ids) > 0, class_weights)


def most_features_of(num_classes: int, task: Task = SINGLE_LABEL) -> int:
    """How many features a classifier keeps."""
    return min(MOST_FEATURES, MOST_BYTES // feature_bytes(num_classes, task))


def feature_bytes(num_classes: int, task: Task = SINGLE_LABEL) -> int:
    """Bytes of a feature: its id, its inverse document frequency and its weights, four each."""
    return 4 * (2 + task.num_one_vs_rest(num_classes))


class Vocabulary(NamedTuple):
    """The features of a `LinearClassifier`: first only how to count them, then their ids, then their frequencies."""

    frequent_token_ids: NDArray[np.int32]
    max_tokens: int
    use_char_ngrams: bool
    feature_ids: NDArray[np.int32] = np.zeros(0, dtype=np.int32)
    idf: NDArray[np.float32] = np.zeros(0, dtype=np.float32)

    @classmethod
    def of(cls, texts: TokenizedTexts, reading: Reading) -> Vocabulary:
        """Start with the tokens that are frequent in these texts."""
        max_tokens, char_ngrams, _ = reading
        frequent = frequent_tokens(texts, max_tokens=max_tokens) if char_ngrams else np.zeros(0, dtype=np.int32)
        return cls(frequent, max_tokens, char_ngrams)

    def pieces(self, texts: TokenizedTexts) -> list[Counts]:
        """Count all features of texts, some texts after the other."""
        ids, max_tokens, char_ngrams = self[:3]
        return [*count_features(texts, max_tokens=max_tokens, frequent_token_ids=ids, use_char_ngrams=char_ngrams)]

    def with_idf_of(self, counts: sp.csr_matrix) -> Vocabulary:
        """Take the inverse document frequencies from these texts."""
        return self._replace(idf=inverse_document_frequencies(counts.getnnz(axis=0), counts.shape[0]))

    def tfidf(self, counts: sp.csr_matrix) -> sp.csr_matrix:
        """TF-IDF of the known features, from their counts."""
        rows = SparseRows(columns=counts.indices, values=counts.data, offsets=counts.indptr)
        return as_matrix(tfidf(rows, self.feature_ids, self.idf), counts.shape[1])

    def classifier(
        self, weights: NDArray[np.floating[Any]], biases: NDArray[np.float32], task: Task = SINGLE_LABEL
    ) -> LinearClassifier:
        """Make a classifier of these features."""
        return LinearClassifier(
            max_tokens=self.max_tokens,
            frequent_token_ids=self.frequent_token_ids,
            feature_ids=self.feature_ids,
            idf=self.idf,
            weights=compress(weights, "float32"),
            biases=biases,
            task=task,
        )


Occurrences = tuple[NDArray[np.int32], NDArray[np.integer[Any]]]
"""The ids of features, increasing, and in how many texts each occurs."""


def most_frequent(occurrences: Occurrences, limit: int) -> Occurrences:
    """Keep the features that occur in most texts; a single one if there are none, since LinearSVC needs one."""
    ids, texts = occurrences
    if not len(ids):
        return np.zeros(1, dtype=np.int32), np.zeros(1, dtype=np.int32)
    kept = np.sort(np.argsort(-texts, kind="stable")[:limit])
    return ids[kept], texts[kept]


def count_occurrences(pieces: Sequence[Counts]) -> Occurrences:
    """Count the texts of each feature."""
    ids = np.unique(np.concatenate([piece.ids for piece in pieces]))
    texts = np.zeros(len(ids), dtype=np.int64)
    for piece in pieces:
        texts[np.searchsorted(ids, piece.ids)] += np.bincount(piece.columns, minlength=len(piece.ids))
    return ids, texts


def count_matrix(pieces: Sequence[Counts], feature_ids: NDArray[np.int32]) -> sp.csr_matrix:
    """Select the columns of these features."""
    chosen = [keep_known(piece, find(piece.ids, feature_ids)[piece.columns]) for piece in pieces]
    return sp.vstack([as_matrix(piece, len(feature_ids)) for piece in chosen], format="csr")


def as_matrix(rows: SparseRows, num_columns: int) -> sp.csr_matrix:
    """Convert sparse rows to SciPy's type."""
    return sp.csr_matrix((rows.values, rows.columns, rows.offsets), shape=(len(rows), num_columns))


def scaled_columns(features: sp.csr_matrix, scales: NDArray[np.float32]) -> sp.csr_matrix:
    """Multiply by a diagonal matrix: SciPy's product takes as long as half the fit."""
    values = features.data * scales[features.indices]
    return sp.csr_matrix((values, features.indices, features.indptr), shape=features.shape)


def inverse_document_frequencies(occurrences: NDArray[np.integer[Any]], num_texts: int) -> NDArray[np.float32]:
    """Inverse document frequencies of features that so many of the texts have, (features,)."""
    idf = np.log((1 + num_texts) / (1 + occurrences)) + 1
    idf[occurrences == 0] = 0  # where texts are held out; to the others this feature does not exist
    return idf.astype(np.float32)


MOST_TEXTS = 5000  # to find directions in: more of them change little, and take longer
POWER_ITERATIONS = 2  # of the randomized decomposition (Halko et al., 2011)
SCALE = 2.0  # of the coordinates beside the features, whose vectors have a length near 1.5


def find_directions(
    features: sp.csr_matrix, feature_ids: NDArray[np.int32], *, dimensions: int
) -> tuple[NDArray[np.int64], NDArray[np.float32]]:
    """Decompose TF-IDF features into directions: the columns used, and (columns, dimensions) values.

    Pairs, templates and features of a single text are left out: beside the others they added nothing.
    """
    from sklearn.utils.extmath import randomized_svd

    if features.shape[0] > MOST_TEXTS:
        chosen = np.random.default_rng(0).permutation(features.shape[0])[:MOST_TEXTS]
        features = features[np.sort(chosen)]
    is_used = (features.getnnz(axis=0) > 1) & ((feature_ids < HASHES) | (feature_ids >= CHAR_NGRAM_IDS))
    (columns,) = np.nonzero(is_used)
    wanted = min(dimensions, features.shape[0] - 1, len(columns) - 1)
    if wanted < 1:
        return columns[:0], np.zeros((0, 0), dtype=np.float32)
    _, _, right = randomized_svd(features[:, columns], wanted, n_iter=POWER_ITERATIONS, random_state=0)
    return columns, np.ascontiguousarray(SCALE * right.T, dtype=np.float32)


MOST_UNLABELLED = 15_000  # texts that are read
MOST_TOKENS = 1_000_000  # of these, in all: time


@dataclass(frozen=True, kw_only=True)
class FeatureCorpus:
    """The features of the labelled texts, then of those without labels, then of the names of classes, a row each."""

    vocabulary: Vocabulary  # with inverse document frequencies of all texts
    counts: sp.csr_matrix
    labels: NDArray[np.int64]
    class_weights: NDArray[np.float32]
    dimensions: int  # of latent semantics

    @property
    def first_name(self) -> int:
        """The row of the first class's name."""
        return int(self.counts.shape[0]) - len(self.class_weights)

    @property
    def names(self) -> NDArray[np.int64]:
        """The rows of the names that have a feature."""
        has_features = np.diff(self.counts.indptr)[self.first_name :] > 0
        return self.first_name + np.flatnonzero(has_features)

    @cached_property
    def unlabelled(self) -> NDArray[np.int64]:
        """The rows of the texts without labels."""
        return np.arange(len(self.labels), self.first_name)

    @cached_property
    def features(self) -> sp.csr_matrix:
        """TF-IDF of all rows."""
        return self.vocabulary.tfidf(self.counts)

    @cached_property
    def directions(self) -> tuple[NDArray[np.int64], NDArray[np.float32]]:
        """Directions of latent semantics, as in `find_directions`."""
        texts = self.features[: self.first_name]
        return find_directions(texts, self.vocabulary.feature_ids, dimensions=self.dimensions)

    @cached_property
    def coordinates(self) -> NDArray[np.float32]:
        """Coordinates of all rows along these directions."""
        columns, values = self.directions
        coordinates: NDArray[np.float32] = self.features[:, columns] @ values
        return coordinates

    @cached_property
    def word_columns(self) -> NDArray[np.int64]:
        """The columns of words that occur in two texts or more."""
        return np.flatnonzero((self.vocabulary.feature_ids < HASHES) & (self.counts.getnnz(axis=0) > 1))

    @cached_property
    def words(self) -> sp.csr_matrix:
        """Whether each of these words occurs in each text."""
        return (self.counts[:, self.word_columns] > 0).astype(np.float32)

    def spread_words(self, of_words: NDArray[np.floating[Any]]) -> NDArray[np.float32]:
        """Spread numbers of words, (words, machines), to weights of features, which have their idf as a factor."""
        weights = np.zeros((self.counts.shape[1], of_words.shape[1]), dtype=np.float32)
        weights[self.word_columns] = of_words / self.vocabulary.idf[self.word_columns, None]
        return weights

    def labelled(self) -> tuple[Vocabulary, sp.csr_matrix]:
        """The features of the labelled texts, and their counts there."""
        counts = self.counts[: len(self.labels)]
        (columns,) = np.nonzero(counts.getnnz(axis=0))
        columns = columns if len(columns) else np.zeros(1, dtype=np.int64)
        return self.vocabulary._replace(feature_ids=self.vocabulary.feature_ids[columns]), counts[:, columns]


def sample_rows(texts: TokenizedTexts, num_labelled: int, max_tokens: int) -> NDArray[np.int64]:
    """The rows of the labelled texts, and of a random sample of the others that is read in a limited time."""
    others = num_labelled + np.random.default_rng(0).permutation(len(texts) - num_labelled)[:MOST_UNLABELLED]
    tokens = np.cumsum(texts.lengths_within(max_tokens)[others])
    return np.concatenate([np.arange(num_labelled), np.sort(others[tokens <= MOST_TOKENS])])


def read_corpus(
    texts: TokenizedTexts, labels: NDArray[np.int64], names: TokenizedTexts, reading: Reading, *, dimensions: int
) -> FeatureCorpus:
    """Count the features that occur in a labelled text, or in two; args as of `fit_linear_from_few_labels`."""
    texts = texts.take(sample_rows(texts, len(labels), reading.max_tokens))
    vocabulary = Vocabulary.of(texts, reading)
    labelled, pieces = vocabulary.pieces(texts[: len(labels)]), vocabulary.pieces(texts)
    ids, of_texts = count_occurrences(pieces)
    is_used = np.isin(ids, count_occurrences(labelled)[0]) | (of_texts > 1)
    feature_ids, _ = most_frequent((ids[is_used], of_texts[is_used]), most_features_of(len(reading.class_weights)))
    counts = count_matrix([*pieces, *vocabulary.pieces(names)], feature_ids)
    return FeatureCorpus(
        vocabulary=vocabulary._replace(feature_ids=feature_ids).with_idf_of(counts[: len(texts)]),
        counts=counts,
        labels=labels,
        class_weights=reading.class_weights,
        dimensions=dimensions,
    )
