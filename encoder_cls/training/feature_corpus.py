"""Texts with and without labels in, their features as matrices out, with names of classes for further texts."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from encoder_cls.text.ngram_features import HASHES
from encoder_cls.text.token_arrays import TokenizedTexts
from encoder_cls.training.feature_matrix import (
    FeatureCounter,
    count_matrix,
    count_occurrences,
    most_features_of,
    tfidf_matrix,
)
from encoder_cls.training.latent_semantics import LatentDirections, find_directions

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
