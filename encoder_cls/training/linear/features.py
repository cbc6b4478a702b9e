"""Sparse feature matrices of tokenized texts.

Latent semantic analysis (Deerwester et al., "Indexing by Latent Semantic Analysis", 1990): a truncated singular value
decomposition of the features of texts, of which no label need be known. A text's coordinates are its features times the
directions, so weights of coordinates are weights of features: a classifier of both is one of the features alone.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from encoder_cls.inference.task import SINGLE_LABEL, Task
from encoder_cls.text.ngrams import (
    CHAR_NGRAM_IDS,
    DISTANCES,
    HASHES,
    NUM_FEATURE_IDS,
    TEMPLATE_SIZES,
    SparseRows,
    count_features,
    find,
    frequent_tokens,
    keep_known,
    tfidf,
)
from encoder_cls.text.tokens import TokenizedTexts

MOST_FEATURES = 700_000  # of which the more frequent are kept: rarer ones tell little, or mislead
MOST_BYTES = 1 << 25  # of features, since each has a weight a class and a model is to be small
NO_TOKENS = np.zeros(0, dtype=np.int32)
FEW_VALUES = 2_000_000  # in a matrix, for which sorting takes less time than an array of all feature ids


def bytes_at_most(texts: TokenizedTexts, *, num_classes: int, use_char_ngrams: bool, task: Task = SINGLE_LABEL) -> int:
    """What the weights of features may take: were no feature ever to occur twice, and within the limit."""
    features = len(texts.words) * (1 + len(DISTANCES))
    if use_char_ngrams:
        features += len(texts.words) * len(TEMPLATE_SIZES) + len(texts.char_ngrams.ngrams)
    return min(features, most_features_of(num_classes, task)) * feature_bytes(num_classes, task)


def most_features_of(num_classes: int, task: Task = SINGLE_LABEL) -> int:
    """How many features are kept, of so many classes."""
    return min(MOST_FEATURES, MOST_BYTES // feature_bytes(num_classes, task))


def feature_bytes(num_classes: int, task: Task = SINGLE_LABEL) -> int:
    """What a feature takes: its id, its inverse document frequency and its weights, four bytes each."""
    return 4 * (2 + task.num_one_vs_rest(num_classes))


class FeatureCounter(NamedTuple):
    """Counts the features of texts; the attributes are the arguments of `count_features`."""

    frequent_token_ids: NDArray[np.int32]
    max_tokens: int
    use_char_ngrams: bool

    @classmethod
    def of(cls, texts: TokenizedTexts, *, max_tokens: int, use_char_ngrams: bool) -> FeatureCounter:
        """With the tokens that are frequent in these texts."""
        frequent = frequent_tokens(texts, max_tokens=max_tokens) if use_char_ngrams else NO_TOKENS
        return cls(frequent, max_tokens, use_char_ngrams)

    def counts(self, texts: TokenizedTexts) -> list[SparseRows]:
        """How often which feature occurs in which text: columns are feature ids; some texts after the other."""
        return list(count_features(texts, **self._asdict()))


class Occurrences(NamedTuple):
    """In how many texts features occur: their ids, increasing, and the numbers."""

    ids: NDArray[np.int32]
    texts: NDArray[np.integer[Any]]

    def of(self, is_wanted: NDArray[np.bool_]) -> Occurrences:
        """Those of some of the features."""
        return Occurrences(self.ids[is_wanted], self.texts[is_wanted])

    def most_frequent(self, limit: int) -> Occurrences:
        """Those of the features that occur in most texts; of one where there is none, since LinearSVC wants one."""
        if not len(self.ids):
            return Occurrences(np.zeros(1, dtype=np.int32), np.zeros(1, dtype=np.int32))
        kept = np.sort(np.argsort(-self.texts, kind="stable")[:limit])
        return Occurrences(self.ids[kept], self.texts[kept])


def count_occurrences(pieces: Sequence[SparseRows]) -> Occurrences:
    """In how many texts features occur; columns are feature ids."""
    if _num_values(pieces) > FEW_VALUES:
        return count_occurrences_of_many(pieces)
    ids, texts = np.unique(np.concatenate([piece.columns for piece in pieces]), return_counts=True)
    return Occurrences(ids.astype(np.int32), texts)


def count_occurrences_of_many(pieces: Iterable[SparseRows], num_ids: int = NUM_FEATURE_IDS) -> Occurrences:
    """The same, of which there are `num_ids` at most, of pieces of which one is looked at after the other."""
    texts = np.zeros(num_ids, dtype=np.int32)
    for piece in pieces:
        np.add.at(texts, piece.columns, np.int32(1))  # of this type: with another it takes ten times as long
    ids = np.flatnonzero(texts).astype(np.int32)
    return Occurrences(ids, texts[ids])


def feature_columns(feature_ids: NDArray[np.int32], num_ids: int = NUM_FEATURE_IDS) -> NDArray[np.int32]:
    """The column of each feature id, (num_ids,); -1: it has none. For many values quicker than to search for each."""
    columns = np.full(num_ids, -1, dtype=np.int32)
    columns[feature_ids] = np.arange(len(feature_ids))
    return columns


def count_matrix(pieces: Sequence[SparseRows], feature_ids: NDArray[np.int32]) -> sp.csr_matrix:
    """How often which text has which of these features; columns of the pieces are feature ids."""
    if _num_values(pieces) > FEW_VALUES:
        columns = feature_columns(feature_ids)
        chosen = [chosen_columns(piece, columns, len(feature_ids)) for piece in pieces]
    else:
        chosen = [as_matrix(keep_known(piece, find(piece, feature_ids)), len(feature_ids)) for piece in pieces]
    return sp.vstack(chosen, format="csr")


def chosen_columns(counts: SparseRows, columns: NDArray[np.int32], num_columns: int) -> sp.csr_matrix:
    """The features that have one of the `feature_columns`."""
    return as_matrix(keep_known(counts, columns[counts.columns]), num_columns)


def _num_values(pieces: Sequence[SparseRows]) -> int:
    return sum(len(piece.columns) for piece in pieces)


def as_matrix(rows: SparseRows, num_columns: int) -> sp.csr_matrix:
    """Sparse rows as SciPy has them."""
    return sp.csr_matrix((rows.values, rows.columns, rows.offsets), shape=(len(rows), num_columns))


def tfidf_matrix(counts: sp.csr_matrix, feature_ids: NDArray[np.int32], idf: NDArray[np.float32]) -> sp.csr_matrix:
    """The features of counts, whose columns are those of the feature ids, as `tfidf` has them."""
    rows = SparseRows(columns=counts.indices, values=counts.data, offsets=counts.indptr)
    return as_matrix(tfidf(rows, feature_ids, idf), counts.shape[1])


def scaled_columns(features: sp.csr_matrix, scales: NDArray[np.float32]) -> sp.csr_matrix:
    """The product with a diagonal matrix: SciPy's takes as long as half the learning."""
    values = features.data * scales[features.indices]
    return sp.csr_matrix((values, features.indices, features.indptr), shape=features.shape)


def inverse_document_frequencies(occurrences: NDArray[np.integer[Any]], num_texts: int) -> NDArray[np.float32]:
    """Those of features that so many of the texts have, (features,)."""
    idf = np.log((1 + num_texts) / (1 + occurrences)) + 1
    idf[occurrences == 0] = 0  # where texts are held out; to the others this feature does not exist
    return idf.astype(np.float32)


MOST_TEXTS = 5000  # to find directions in: more of them change little, and take longer
POWER_ITERATIONS = 2  # of the randomized decomposition (Halko et al., 2011)
SCALE = 2.0  # of the coordinates beside the features, whose vectors have a length near 1.5


class LatentDirections(NamedTuple):
    """What a truncated decomposition finds.

    Attributes:
        columns: of the features that the directions are made of.
        values: (columns, dimensions).
    """

    columns: NDArray[np.int64]
    values: NDArray[np.float32]

    def coordinates(self, features: sp.csr_matrix) -> NDArray[np.float32]:
        """Of texts, (texts, dimensions)."""
        found: NDArray[np.float32] = features[:, self.columns] @ self.values
        return found

    def add_to(self, weights: NDArray[np.float32], of_coordinates: NDArray[np.float32]) -> None:
        """Add weights of coordinates, (dimensions, classes), to those of features that have the same effect."""
        weights[self.columns] += self.values @ of_coordinates


def find_directions(features: sp.csr_matrix, feature_ids: NDArray[np.int32], *, dimensions: int) -> LatentDirections:
    """So many directions at most, of words and character n-grams that occur in two texts or more.

    Pairs and templates, most of them rare, are left out: beside the others they were seen to add nothing.

    Args:
        features: TF-IDF, a row a text.
        feature_ids: of the columns.
        dimensions: how many directions are wanted.
    """
    from sklearn.utils.extmath import randomized_svd

    if features.shape[0] > MOST_TEXTS:
        chosen = np.random.default_rng(0).permutation(features.shape[0])[:MOST_TEXTS]
        features = features[np.sort(chosen)]
    is_used = (features.getnnz(axis=0) > 1) & ((feature_ids < HASHES) | (feature_ids >= CHAR_NGRAM_IDS))
    (columns,) = np.nonzero(is_used)
    wanted = min(dimensions, features.shape[0] - 1, len(columns) - 1)
    if wanted < 1:
        return LatentDirections(columns[:0], np.zeros((0, 0), dtype=np.float32))
    _, _, right = randomized_svd(features[:, columns], wanted, n_iter=POWER_ITERATIONS, random_state=0)
    return LatentDirections(columns, np.ascontiguousarray(SCALE * right.T, dtype=np.float32))


MOST_UNLABELLED = 15_000  # texts that are read
MOST_TOKENS = 1_000_000  # of these, in all: time


@dataclass(frozen=True, kw_only=True)
class FeatureCorpus:
    """The features of all texts: rows are the labelled texts, then those without labels, then the names of classes.

    Attributes:
        feature_ids: of the columns.
        frequent_token_ids: as in `LinearClassifier`.
        idf: inverse document frequencies of all texts.
        counts: how often which feature occurs in which text.
        labels: of the labelled texts.
        class_weights: how much each class counts.
        dimensions: of latent semantics.
    """

    feature_ids: NDArray[np.int32]
    frequent_token_ids: NDArray[np.int32]
    idf: NDArray[np.float32]
    counts: sp.csr_matrix
    labels: NDArray[np.int64]
    class_weights: NDArray[np.float32]
    dimensions: int

    @property
    def num_classes(self) -> int:
        """How many classes there are."""
        return len(self.class_weights)

    @property
    def names(self) -> NDArray[np.int64]:
        """The rows of the names that have a feature."""
        rows = np.arange(self.counts.shape[0] - self.num_classes, self.counts.shape[0])
        has_features: NDArray[np.bool_] = np.diff(self.counts.indptr)[rows] > 0
        return rows[has_features]

    def class_of_name(self, rows: NDArray[np.int64]) -> NDArray[np.int64]:
        """The classes whose names these rows are."""
        classes: NDArray[np.int64] = rows - (self.counts.shape[0] - self.num_classes)
        return classes

    @cached_property
    def unlabelled(self) -> NDArray[np.int64]:
        """The rows of the texts without labels."""
        return np.arange(len(self.labels), self.counts.shape[0] - self.num_classes)

    @cached_property
    def features(self) -> sp.csr_matrix:
        """TF-IDF of all rows."""
        return tfidf_matrix(self.counts, self.feature_ids, self.idf)

    @cached_property
    def directions(self) -> LatentDirections:
        """Those of latent semantics, of all texts."""
        texts = self.features[: self.counts.shape[0] - self.num_classes]
        return find_directions(texts, self.feature_ids, dimensions=self.dimensions)

    @cached_property
    def coordinates(self) -> NDArray[np.float32]:
        """Of all rows along these directions."""
        return self.directions.coordinates(self.features)

    @cached_property
    def word_columns(self) -> NDArray[np.int64]:
        """The columns of words that occur in two texts or more."""
        return np.flatnonzero((self.feature_ids < HASHES) & (self.counts.getnnz(axis=0) > 1))

    @cached_property
    def words(self) -> sp.csr_matrix:
        """Which word occurs in which text."""
        return (self.counts[:, self.word_columns] > 0).astype(np.float32)


def sample_rows(texts: TokenizedTexts, num_labelled: int, max_tokens: int) -> NDArray[np.int64]:
    """The rows of the labelled texts, and of as many others as there is time for, drawn at random."""
    others = num_labelled + np.random.default_rng(0).permutation(len(texts) - num_labelled)[:MOST_UNLABELLED]
    tokens = np.cumsum(texts.lengths_within(max_tokens)[others])
    return np.concatenate([np.arange(num_labelled), np.sort(others[tokens <= MOST_TOKENS])])


def read_corpus(
    texts: TokenizedTexts,
    labels: NDArray[np.int64],
    names: TokenizedTexts,
    *,
    class_weights: NDArray[np.float32],
    max_tokens: int,
    use_char_ngrams: bool,
    dimensions: int,
) -> FeatureCorpus:
    """Count the features that occur in a labelled text, or in two texts.

    Args:
        texts: those with labels, then those without, of which a sample is read where there are many.
        labels: the classes of the first of them.
        names: the name of each class, as a text.
        class_weights: how much each class counts, (classes,).
        max_tokens: as in `count_features`.
        use_char_ngrams: as in `count_features`.
        dimensions: of latent semantics.
    """
    texts = texts.take(sample_rows(texts, len(labels), max_tokens))
    counter = FeatureCounter.of(texts, max_tokens=max_tokens, use_char_ngrams=use_char_ngrams)
    labelled, pieces = counter.counts(texts.first(len(labels))), counter.counts(texts)
    occurrences = count_occurrences(pieces)
    is_labelled = np.isin(occurrences.ids, count_occurrences(labelled).ids)
    told = occurrences.of(is_labelled | (occurrences.texts > 1))
    feature_ids = told.most_frequent(most_features_of(len(class_weights))).ids
    counts = count_matrix([*pieces, *counter.counts(names)], feature_ids)
    idf = np.log((1 + len(texts)) / (1 + counts[: len(texts)].getnnz(axis=0))) + 1
    return FeatureCorpus(
        feature_ids=feature_ids,
        frequent_token_ids=counter.frequent_token_ids,
        idf=idf.astype(np.float32),
        counts=counts,
        labels=labels,
        class_weights=class_weights,
        dimensions=dimensions,
    )
