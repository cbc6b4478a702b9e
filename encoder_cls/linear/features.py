"""Sparse feature matrices of tokenized texts.

Latent semantic analysis (Deerwester et al., 1990) is a truncated singular value decomposition of features. A text's
coordinates are its features times the directions, so a classifier of both is one of features alone.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from encoder_cls.linear.linear_model import EVIDENCE_NUMBERS, LinearClassifier
from encoder_cls.linear.ngrams import (
    CHAR_NGRAM_IDS,
    HASHES,
    RARITY_NUMBERS,
    Counts,
    SparseRows,
    count_features,
    find,
    frequent_tokens,
    keep_known,
    rarity,
    tfidf,
)
from encoder_cls.metrics.logits import SINGLE_LABEL, Task
from encoder_cls.text.tokens import TokenizedTexts, drawn_rows
from encoder_cls.weights import compress

MOST_FEATURES = 700_000  # at most, the most frequent ones: rarer ones help little, or mislead
MOST_BYTES = (
    1 << 25
)  # of features: their ids, inverse document frequencies and weights, four bytes each


class Reading(NamedTuple):
    """How far and how closely the linear classifier reads texts, and the weight of each class."""

    max_tokens: int  # of a text, `[CLS]` counted
    char_ngrams: bool  # and n-gram templates; else words and pairs alone
    class_weights: NDArray[np.float32]

    @classmethod
    def like(cls, linear: LinearClassifier, class_weights: NDArray[np.float32]) -> Reading:
        """Read what a fitted classifier reads."""
        return cls(linear.max_tokens, len(linear.frequent_token_ids) > 0, class_weights)


def numbers_before_refit(
    linear: LinearClassifier,
    texts: TokenizedTexts,
    evidence: NDArray[np.float64] | None = None,
) -> NDArray[np.float64]:
    """The numbers of `LinearClassifier.read` of texts that a classifier has learned from, as if they were new.

    Features of the lowest document frequency may be of these texts alone, so they count as unknown. `evidence` is that
    of a classifier that had not learned from the texts; without it, all is zero, which does not count.
    """
    if evidence is None:
        evidence = np.zeros((len(texts), EVIDENCE_NUMBERS))
    rarest = float(linear.idf.max(initial=0))
    rarities = [np.zeros((0, RARITY_NUMBERS))]
    for counts in linear.count_features(texts):
        found = find(counts.ids, linear.feature_ids)
        idf = np.where(found < 0, 0, linear.idf[found])
        idf[idf == rarest] = 0
        rarities.append(rarity(counts, idf, rarest=rarest))
    return np.hstack([evidence, np.concatenate(rarities)])


def balanced_weights(sizes: NDArray[np.int64]) -> NDArray[np.float32]:
    """The weights, (classes,), by which classes of these sizes count alike."""
    weights: NDArray[np.float32] = (sizes.sum() / (len(sizes) * sizes)).astype(np.float32)
    return weights


class Vocabulary(NamedTuple):
    """The features of a `LinearClassifier`; their ids and inverse document frequencies are added step by step."""

    reading: Reading
    frequent_token_ids: NDArray[np.int32]
    feature_ids: NDArray[np.int32] = np.zeros(0, dtype=np.int32)
    idf: NDArray[np.float32] = np.zeros(0, dtype=np.float32)

    @classmethod
    def of(cls, texts: TokenizedTexts, reading: Reading) -> Vocabulary:
        """Start with the frequent tokens of these texts."""
        none = np.zeros(0, dtype=np.int32)
        return cls(
            reading,
            frequent_tokens(texts, max_tokens=reading.max_tokens) if reading.char_ngrams else none,
        )

    def pieces(self, texts: TokenizedTexts) -> list[Counts]:
        """Count all features of texts, some texts at a time."""
        (max_tokens, char_ngrams, _), ids = self.reading, self.frequent_token_ids
        return [
            *count_features(
                texts, max_tokens=max_tokens, frequent_token_ids=ids, use_char_ngrams=char_ngrams
            )
        ]

    def with_most_frequent(
        self, ids: NDArray[np.int32], num_texts: NDArray[np.integer[Any]], task: Task = SINGLE_LABEL
    ) -> Vocabulary:
        """Keep the most frequent features, as many as a model may have; a dummy if there are none, for LinearSVC."""
        num_machines = task.num_one_vs_rest(len(self.reading.class_weights))
        limit = min(MOST_FEATURES, MOST_BYTES // (4 * (2 + num_machines)))
        kept = np.sort(np.argsort(-num_texts, kind="stable")[:limit])
        return self._replace(feature_ids=ids[kept] if len(ids) else np.zeros(1, dtype=np.int32))

    def with_idf(self, occurrences: NDArray[np.integer[Any]], num_texts: int) -> Vocabulary:
        """Set inverse document frequencies from the number of texts with each feature, (features,)."""
        idf = np.log((1 + num_texts) / (1 + occurrences)) + 1
        idf[occurrences == 0] = 0  # a feature of texts held out alone
        return self._replace(idf=idf.astype(np.float32))

    def with_idf_of(self, counts: sp.csr_matrix) -> Vocabulary:
        """Set the inverse document frequencies of these texts."""
        return self.with_idf(counts.getnnz(axis=0), counts.shape[0])

    def tfidf(self, counts: sp.csr_matrix) -> sp.csr_matrix:
        """TF-IDF of the known features, from their counts."""
        rows = SparseRows(columns=counts.indices, values=counts.data, offsets=counts.indptr)
        return as_matrix(tfidf(rows, self.feature_ids, self.idf), counts.shape[1])

    def classifier(
        self,
        weights: NDArray[np.floating[Any]],
        biases: NDArray[np.float32],
        task: Task = SINGLE_LABEL,
    ) -> LinearClassifier:
        """Make a classifier of these features."""
        return LinearClassifier(
            max_tokens=self.reading.max_tokens,
            frequent_token_ids=self.frequent_token_ids,
            feature_ids=self.feature_ids,
            idf=self.idf,
            weights=compress(weights, "float32"),
            biases=biases,
            task=task,
        )


def count_occurrences(pieces: Sequence[Counts]) -> tuple[NDArray[np.int32], NDArray[np.int64]]:
    """The ids of features, increasing, and in how many texts each occurs."""
    ids = np.unique(np.concatenate([piece.ids for piece in pieces]))
    texts = np.zeros(len(ids), dtype=np.int64)
    for piece in pieces:
        texts[np.searchsorted(ids, piece.ids)] += np.bincount(
            piece.columns, minlength=len(piece.ids)
        )
    return ids, texts


def count_matrix(pieces: Sequence[Counts], feature_ids: NDArray[np.int32]) -> sp.csr_matrix:
    """Join counts into a matrix with a column for each of these features."""
    chosen = [keep_known(piece, find(piece.ids, feature_ids)[piece.columns]) for piece in pieces]
    return sp.vstack([as_matrix(piece, len(feature_ids)) for piece in chosen], format="csr")


def as_matrix(rows: SparseRows, num_columns: int) -> sp.csr_matrix:
    """Convert sparse rows to SciPy's type."""
    return sp.csr_matrix((rows.values, rows.columns, rows.offsets), shape=(len(rows), num_columns))


def scaled_columns(features: sp.csr_matrix, scales: NDArray[np.float32]) -> sp.csr_matrix:
    """Multiply columns by scales; SciPy's product with a diagonal matrix takes as long as half the fit."""
    values = features.data * scales[features.indices]
    return sp.csr_matrix((values, features.indices, features.indptr), shape=features.shape)


MOST_TEXTS = 5000  # to find directions in: more of them change little
POWER_ITERATIONS = 2  # of the randomized decomposition (Halko et al., 2011)
SCALE = 2.0  # of the coordinates beside the features, vectors of length 1.5 or so


def find_directions(
    features: sp.csr_matrix, feature_ids: NDArray[np.int32], *, dimensions: int
) -> tuple[NDArray[np.int64], NDArray[np.float32]]:
    """Decompose TF-IDF features into directions: the columns used, and (columns, dimensions) values.

    Pairs, templates and features of a single text are left out: they added nothing to the others.
    """
    from sklearn.utils.extmath import randomized_svd

    if features.shape[0] > MOST_TEXTS:
        chosen = np.random.default_rng(0).permutation(features.shape[0])[:MOST_TEXTS]
        features = features[np.sort(chosen)]
    is_used = (features.getnnz(axis=0) > 1) & (
        (feature_ids < HASHES) | (feature_ids >= CHAR_NGRAM_IDS)
    )
    (columns,) = np.nonzero(is_used)
    wanted = min(dimensions, features.shape[0] - 1, len(columns) - 1)
    if wanted < 1:
        return columns[:0], np.zeros((0, 0), dtype=np.float32)
    _, _, right = randomized_svd(
        features[:, columns], wanted, n_iter=POWER_ITERATIONS, random_state=0
    )
    return columns, np.ascontiguousarray(SCALE * right.T, dtype=np.float32)


MOST_UNLABELLED, MOST_TOKENS = (
    15_000,
    1_000_000,
)  # texts that are read, and their tokens in all: time


class FeatureCorpus:
    """The features of labelled texts, of a sample of unlabelled ones, and of class names: rows in this order.

    Attributes:
        vocabulary: the features of any labelled text, or of two texts; document frequencies are of all texts.
        features: TF-IDF.
        labels: of the labelled texts.
        class_weights: (classes,).
        unlabelled: the rows of the unlabelled texts.
        first_name: the row of the first class's name.
        names: the rows of the names that have a feature.
        directions: of latent semantics, as `find_directions` returns them; none without unlabelled texts.
        coordinates: of all rows along these directions.
        words: whether each row has each word that at least two rows have.
    """

    def __init__(
        self,
        texts: TokenizedTexts,
        labels: NDArray[np.int64],
        names: TokenizedTexts,
        reading: Reading,
        *,
        dimensions: int,
    ) -> None:
        """Read texts; arguments are those of `fit_linear_from_few_labels`."""
        texts = texts.take(sample_rows(texts, len(labels), reading.max_tokens))
        vocabulary = Vocabulary.of(texts, reading)
        labelled, pieces = vocabulary.pieces(texts[: len(labels)]), vocabulary.pieces(texts)
        ids, of_texts = count_occurrences(pieces)
        is_used = np.isin(ids, count_occurrences(labelled)[0]) | (of_texts > 1)
        vocabulary = vocabulary.with_most_frequent(ids[is_used], of_texts[is_used])
        self._counts = counts = count_matrix(
            [*pieces, *vocabulary.pieces(names)], vocabulary.feature_ids
        )
        self.vocabulary = vocabulary = vocabulary.with_idf_of(counts[: len(texts)])
        self.features = vocabulary.tfidf(counts)
        self.labels, self.class_weights, self.first_name = labels, reading.class_weights, len(texts)
        self.unlabelled = np.arange(len(labels), len(texts))
        self.names = len(texts) + np.flatnonzero(np.diff(counts.indptr)[len(texts) :])
        dimensions = dimensions if len(self.unlabelled) else 0
        self.directions = find_directions(
            self.features[: len(texts)], vocabulary.feature_ids, dimensions=dimensions
        )
        self.coordinates: NDArray[np.float32] = (
            self.features[:, self.directions[0]] @ self.directions[1]
        )
        self._word_columns = np.flatnonzero(
            (vocabulary.feature_ids < HASHES) & (counts.getnnz(axis=0) > 1)
        )
        self.words = (counts[:, self._word_columns] > 0).astype(np.float32)

    def spread_words(self, of_words: NDArray[np.floating[Any]]) -> NDArray[np.float32]:
        """Turn weights of words, (words, machines), into weights of features, which have the idf as a factor."""
        weights = np.zeros((len(self.vocabulary.feature_ids), of_words.shape[1]), dtype=np.float32)
        weights[self._word_columns] = of_words / self.vocabulary.idf[self._word_columns, None]
        return weights

    def labelled(self) -> tuple[Vocabulary, sp.csr_matrix]:
        """The features of the labelled texts, at least one, and their counts."""
        counts = self._counts[: len(self.labels)]
        columns = (
            np.flatnonzero(counts.getnnz(axis=0)) if counts.nnz else np.zeros(1, dtype=np.int64)
        )
        return self.vocabulary._replace(feature_ids=self.vocabulary.feature_ids[columns]), counts[
            :, columns
        ]


def sample_rows(texts: TokenizedTexts, num_labelled: int, max_tokens: int) -> NDArray[np.int64]:
    """The rows of the labelled texts, and of a random sample of the others."""
    others = drawn_rows(texts.lengths_within(max_tokens)[num_labelled:], MOST_TOKENS)[
        :MOST_UNLABELLED
    ]
    return np.concatenate([np.arange(num_labelled), num_labelled + np.sort(others)])
