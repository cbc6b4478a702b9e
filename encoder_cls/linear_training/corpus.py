"""The features of few labelled texts, of texts without labels, and of class names."""

from __future__ import annotations

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from encoder_cls.linear.ngrams import HASHES, Counts
from encoder_cls.linear_training.features import (
    CountedTexts,
    LabelledTexts,
    LinearOptions,
    Vocabulary,
    count_matrix,
    count_occurrences,
)
from encoder_cls.linear_training.latent_semantics import Directions, find_directions
from encoder_cls.metrics.row_groups import RowGroups
from encoder_cls.text.tokens import TokenizedTexts, drawn_rows


class FeatureCorpus:
    """The features of labelled texts, a sample of unlabelled ones, and class names, in this order.

    Attributes:
        vocabulary: features of a labelled text, or of at least two texts, with the IDF of all.
        features: TF-IDF values, (rows, features).
        unseen_features: of labelled texts as if each were new: only features that another text has.
        text_weights: None if all labelled texts count alike.
        names: the rows of class names that have a feature.
        coordinates: of latent semantics, (rows, dimensions).
        words: 1 for each word of a row, (rows, words), of those in at least two rows.
    """

    def __init__(
        self,
        labelled: LabelledTexts,
        names: TokenizedTexts,
        options: LinearOptions,
        *,
        dimensions: int,
    ) -> None:
        """Unlabelled texts follow the labelled ones; latent semantics has at most `dimensions`."""
        num_labelled = len(labelled)
        sampled = sample_rows(labelled.texts, num_labelled, options.max_tokens)
        texts = labelled.texts.take(sampled)
        num_texts = len(texts)
        self.labels: NDArray[np.int64] = labelled.labels
        self.groups = RowGroups(labelled.split_groups)
        self.class_weights = options.class_weights
        self.text_weights = labelled.weights

        vocabulary = Vocabulary.of(texts, options)
        pieces = vocabulary.pieces(texts)
        vocabulary = _with_useful_features(vocabulary, pieces, texts[:num_labelled])
        counts = count_matrix([*pieces, *vocabulary.pieces(names)], vocabulary.feature_ids)
        vocabulary = vocabulary.with_idf_of(counts[:num_texts])
        self._counts = counts
        self.vocabulary = vocabulary
        self.features = vocabulary.tfidf(counts)

        # Compute the features of each labelled text as if the text were new.
        is_in_two_texts = counts[:num_texts].getnnz(axis=0) > 1
        idf_of_shared = np.where(is_in_two_texts, vocabulary.idf, 0).astype(np.float32)
        self.unseen_features = vocabulary._replace(idf=idf_of_shared).tfidf(counts[:num_labelled])

        # Number the rows of unlabelled texts and of names; a name may have no feature.
        self.unlabelled = np.arange(num_labelled, num_texts)
        self.first_name = num_texts
        num_features = np.diff(counts.indptr)
        self.names = num_texts + np.flatnonzero(num_features[num_texts:])

        if not len(self.unlabelled):
            dimensions = 0
        self.directions: Directions = find_directions(
            self.features[:num_texts], vocabulary.feature_ids, dimensions=dimensions
        )
        self.coordinates = self.directions.coordinates(self.features)

        # Note which words occur in each row. Here, a class name counts like a text.
        is_word = vocabulary.feature_ids < HASHES
        is_in_two_rows = counts.getnnz(axis=0) > 1
        self._word_columns = np.flatnonzero(is_word & is_in_two_rows)
        self.words = (counts[:, self._word_columns] > 0).astype(np.float32)

    def spread_words(self, word_weights: NDArray[np.floating]) -> NDArray[np.float32]:
        """Turn weights of words into weights of features, (features, classifiers).

        They are divided by the IDF, by which features are multiplied.
        """
        num_features = len(self.vocabulary.feature_ids)
        weights = np.zeros((num_features, word_weights.shape[1]), dtype=np.float32)
        idf = self.vocabulary.idf[self._word_columns, None]
        weights[self._word_columns] = word_weights / idf
        return weights

    def labelled(self) -> CountedTexts:
        """The labelled texts, with only the features that one of them has."""
        counts: sp.csr_matrix = self._counts[: len(self.labels)]
        columns = np.flatnonzero(counts.getnnz(axis=0))

        # Keep a feature that no labelled text has if there is no other: a fit needs at least one.
        if not len(columns):
            columns = np.zeros(1, dtype=np.int64)

        counts = counts[:, columns]
        feature_ids = self.vocabulary.feature_ids[columns]
        vocabulary = self.vocabulary._replace(feature_ids=feature_ids).with_idf_of(counts)
        return CountedTexts(vocabulary, counts, self.labels, self.text_weights)


def _with_useful_features(
    vocabulary: Vocabulary, pieces: list[Counts], labelled: TokenizedTexts
) -> Vocabulary:
    ids, num_texts = count_occurrences(pieces)
    labelled_ids, _ = count_occurrences(vocabulary.pieces(labelled))
    is_useful = np.isin(ids, labelled_ids) | (num_texts > 1)
    return vocabulary.with_most_frequent(ids[is_useful], num_texts[is_useful])


# The maximum number of unlabelled texts, and of tokens in all of them, so that a fit does not take
# too long.
MAX_UNLABELLED = 15_000
MAX_TOKENS = 1_000_000


def sample_rows(texts: TokenizedTexts, num_labelled: int, max_tokens: int) -> NDArray[np.int64]:
    """The rows of all labelled texts, then of a random sample of the others."""
    lengths = texts.lengths_within(max_tokens)[num_labelled:]
    drawn = drawn_rows(lengths, MAX_TOKENS)[:MAX_UNLABELLED]
    return np.concatenate([np.arange(num_labelled), num_labelled + np.sort(drawn)])
