"""Sparse feature matrices of tokenized texts.

Latent semantic analysis (Deerwester et al., 1990) is a truncated singular value decomposition of
features. A text's coordinates are its features times the directions, so a classifier of both is one
of features alone.
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


class Reading(NamedTuple):
    """How far and how closely the linear classifier reads texts, and the weight of each class.

    Attributes:
        max_tokens: how many tokens of a text are read, `[CLS]` included.
        char_ngrams: whether character n-grams and n-gram templates are features beside words and
            pairs.
        class_weights: (classes,).
    """

    max_tokens: int
    char_ngrams: bool
    class_weights: NDArray[np.float32]

    @classmethod
    def like(cls, linear: LinearClassifier, class_weights: NDArray[np.float32]) -> Reading:
        """Read what a fitted classifier reads."""
        has_templates = len(linear.frequent_token_ids) > 0
        return cls(linear.max_tokens, has_templates, class_weights)


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


# The most features, by number and by size: rarer ones help little, or mislead. A feature takes four
# bytes each for its id, its inverse document frequency and each of its weights.
MOST_FEATURES = 700_000
MOST_BYTES = 1 << 25


class Vocabulary(NamedTuple):
    """The features of a `LinearClassifier`.

    Ids and inverse document frequencies are empty at first; `with_most_frequent` and then
    `with_idf` return a vocabulary that has them.

    Attributes:
        reading: how texts are read.
        frequent_token_ids: tokens that are not wildcards in templates, increasing.
        feature_ids: increasing, (features,).
        idf: inverse document frequencies, (features,).
    """

    reading: Reading
    frequent_token_ids: NDArray[np.int32]
    feature_ids: NDArray[np.int32] = np.zeros(0, dtype=np.int32)
    idf: NDArray[np.float32] = np.zeros(0, dtype=np.float32)

    @classmethod
    def of(cls, texts: TokenizedTexts, reading: Reading) -> Vocabulary:
        """Start with the frequent tokens of these texts."""
        frequent_token_ids = np.zeros(0, dtype=np.int32)
        if reading.char_ngrams:
            frequent_token_ids = frequent_tokens(texts, max_tokens=reading.max_tokens)
        return cls(reading, frequent_token_ids)

    def pieces(self, texts: TokenizedTexts) -> list[Counts]:
        """Count all features of texts, some texts at a time."""
        counts = count_features(
            texts,
            max_tokens=self.reading.max_tokens,
            frequent_token_ids=self.frequent_token_ids,
            use_char_ngrams=self.reading.char_ngrams,
        )
        return list(counts)

    def with_most_frequent(
        self, ids: NDArray[np.int32], num_texts: NDArray[np.integer[Any]], task: Task = SINGLE_LABEL
    ) -> Vocabulary:
        """Keep the most frequent features, as many as a model may have.

        `num_texts` is the number of texts with each feature, (ids,).
        """
        # LinearSVC needs at least one feature.
        if not len(ids):
            return self._replace(feature_ids=np.zeros(1, dtype=np.int32))

        num_machines = task.num_one_vs_rest(len(self.reading.class_weights))
        bytes_per_feature = 4 * (2 + num_machines)
        limit = min(MOST_FEATURES, MOST_BYTES // bytes_per_feature)

        most_frequent = np.argsort(-num_texts, kind="stable")[:limit]
        return self._replace(feature_ids=ids[np.sort(most_frequent)])

    def with_idf(self, occurrences: NDArray[np.integer[Any]], num_texts: int) -> Vocabulary:
        """Set inverse document frequencies from the number of texts with each feature, (features,).

        That of a feature that no text has is 0: only texts held out have such features.
        """
        idf = np.log((1 + num_texts) / (1 + occurrences)) + 1
        idf[occurrences == 0] = 0
        return self._replace(idf=idf.astype(np.float32))

    def with_idf_of(self, counts: sp.csr_matrix) -> Vocabulary:
        """Set the inverse document frequencies of these texts."""
        return self.with_idf(counts.getnnz(axis=0), counts.shape[0])

    def tfidf(self, counts: sp.csr_matrix) -> sp.csr_matrix:
        """Weight the counts of the features by `ngrams.tfidf`."""
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
    """Return the ids of features, increasing, and in how many texts each occurs."""
    ids = np.unique(np.concatenate([piece.ids for piece in pieces]))
    num_texts = np.zeros(len(ids), dtype=np.int64)
    for piece in pieces:
        # A feature has one value in each text that has it.
        num_texts_here = np.bincount(piece.columns, minlength=len(piece.ids))
        num_texts[np.searchsorted(ids, piece.ids)] += num_texts_here
    return ids, num_texts


def count_matrix(pieces: Sequence[Counts], feature_ids: NDArray[np.int32]) -> sp.csr_matrix:
    """Join counts into a matrix with a column for each of these features."""
    matrices = []
    for piece in pieces:
        columns = find(piece.ids, feature_ids)
        known = keep_known(piece, columns[piece.columns])
        matrices.append(as_matrix(known, len(feature_ids)))
    return sp.vstack(matrices, format="csr")


def as_matrix(rows: SparseRows, num_columns: int) -> sp.csr_matrix:
    """Convert sparse rows to SciPy's type."""
    return sp.csr_matrix((rows.values, rows.columns, rows.offsets), shape=(len(rows), num_columns))


def scaled_columns(features: sp.csr_matrix, scales: NDArray[np.float32]) -> sp.csr_matrix:
    """Multiply columns by scales.

    SciPy's product with a diagonal matrix takes as long as half the fit.
    """
    values = features.data * scales[features.indices]
    return sp.csr_matrix((values, features.indices, features.indptr), shape=features.shape)


# The most texts to find directions in: more of them change little.
MOST_TEXTS = 5000
# Power iterations of the randomized decomposition (Halko et al., 2011).
POWER_ITERATIONS = 2
# The scale of the coordinates beside the features, which are vectors of length 1.5 or so.
SCALE = 2.0


def find_directions(
    features: sp.csr_matrix, feature_ids: NDArray[np.int32], *, dimensions: int
) -> tuple[NDArray[np.int64], NDArray[np.float32]]:
    """Decompose TF-IDF features into directions.

    Pairs, templates and features of a single text are left out: they added nothing to the others.

    Returns:
        The columns of the features used, and the directions, (columns used, dimensions).
    """
    from sklearn.utils.extmath import randomized_svd

    # Draw some of the texts.
    if features.shape[0] > MOST_TEXTS:
        drawn = np.random.default_rng(0).permutation(features.shape[0])[:MOST_TEXTS]
        features = features[np.sort(drawn)]

    # Choose words and character n-grams that several of them have.
    is_shared = features.getnnz(axis=0) > 1
    is_word = feature_ids < HASHES
    is_char_ngram = feature_ids >= CHAR_NGRAM_IDS
    (columns,) = np.nonzero(is_shared & (is_word | is_char_ngram))

    # A matrix has fewer directions than rows or columns.
    dimensions = min(dimensions, features.shape[0] - 1, len(columns) - 1)
    if dimensions < 1:
        return columns[:0], np.zeros((0, 0), dtype=np.float32)

    _, _, right = randomized_svd(
        features[:, columns], dimensions, n_iter=POWER_ITERATIONS, random_state=0
    )
    return columns, np.ascontiguousarray(SCALE * right.T, dtype=np.float32)


class FeatureCorpus:
    """The features of labelled texts, of a sample of unlabelled ones, and of class names.

    Rows are in this order.

    Attributes:
        vocabulary: the features of any labelled text, or of two texts; document frequencies are of
            all texts.
        features: TF-IDF, (rows, features).
        unseen_features: TF-IDF of the labelled texts as of new ones: without the features that no other
            text has.
        labels: of the labelled texts.
        class_weights: (classes,).
        unlabelled: the rows of the unlabelled texts.
        first_name: the row of the first class's name.
        names: the rows of the names that have a feature.
        directions: of latent semantics, as `find_directions` returns them; none without unlabelled
            texts.
        coordinates: of all rows along these directions, (rows, dimensions).
        words: 1 for each word in each row, (rows, words), of the words that at least two rows have.
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
        num_labelled = len(labels)
        num_texts = len(texts)

        # Keep the features of any labelled text, or of two texts.
        vocabulary = Vocabulary.of(texts, reading)
        pieces = vocabulary.pieces(texts)
        ids, num_texts_with = count_occurrences(pieces)
        labelled_ids, _ = count_occurrences(vocabulary.pieces(texts[:num_labelled]))
        is_used = np.isin(ids, labelled_ids) | (num_texts_with > 1)
        vocabulary = vocabulary.with_most_frequent(ids[is_used], num_texts_with[is_used])

        # Compute the TF-IDF features of texts and names.
        counts = count_matrix([*pieces, *vocabulary.pieces(names)], vocabulary.feature_ids)
        vocabulary = vocabulary.with_idf_of(counts[:num_texts])
        self._counts = counts
        self.vocabulary = vocabulary
        self.features = vocabulary.tfidf(counts)

        # Of each labelled text as if it were new: without the features that no other text has.
        is_shared = counts[:num_texts].getnnz(axis=0) > 1
        idf_of_shared = np.where(is_shared, vocabulary.idf, 0).astype(np.float32)
        self.unseen_features = vocabulary._replace(idf=idf_of_shared).tfidf(counts[:num_labelled])

        self.labels = labels
        self.class_weights = reading.class_weights
        self.unlabelled = np.arange(num_labelled, num_texts)
        self.first_name = num_texts
        num_features = np.diff(counts.indptr)
        self.names = num_texts + np.flatnonzero(num_features[num_texts:])

        # Find latent semantics.
        self.directions = find_directions(
            self.features[:num_texts],
            vocabulary.feature_ids,
            dimensions=dimensions if len(self.unlabelled) else 0,
        )
        columns, directions = self.directions
        self.coordinates: NDArray[np.float32] = self.features[:, columns] @ directions

        # Note which words occur in each row.
        is_word = vocabulary.feature_ids < HASHES
        is_shared = counts.getnnz(axis=0) > 1
        self._word_columns = np.flatnonzero(is_word & is_shared)
        self.words = (counts[:, self._word_columns] > 0).astype(np.float32)

    def spread_words(self, word_weights: NDArray[np.floating[Any]]) -> NDArray[np.float32]:
        """Turn weights of words, (words, machines), into weights of features, (features, machines).

        Values of features have the inverse document frequency as a factor, which is divided out.
        """
        num_features = len(self.vocabulary.feature_ids)
        weights = np.zeros((num_features, word_weights.shape[1]), dtype=np.float32)
        idf = self.vocabulary.idf[self._word_columns, None]
        weights[self._word_columns] = word_weights / idf
        return weights

    def labelled(self) -> tuple[Vocabulary, sp.csr_matrix]:
        """Return the features of the labelled texts, at least one, and their counts."""
        counts = self._counts[: len(self.labels)]
        columns = np.flatnonzero(counts.getnnz(axis=0))
        if not len(columns):
            columns = np.zeros(1, dtype=np.int64)

        vocabulary = self.vocabulary._replace(feature_ids=self.vocabulary.feature_ids[columns])
        return vocabulary, counts[:, columns]


# The most unlabelled texts that are read, and the most tokens in all of them, for the sake of time.
MOST_UNLABELLED = 15_000
MOST_TOKENS = 1_000_000


def sample_rows(texts: TokenizedTexts, num_labelled: int, max_tokens: int) -> NDArray[np.int64]:
    """Return the rows of the labelled texts, and of a random sample of the others."""
    lengths = texts.lengths_within(max_tokens)[num_labelled:]
    drawn = drawn_rows(lengths, MOST_TOKENS)[:MOST_UNLABELLED]
    return np.concatenate([np.arange(num_labelled), num_labelled + np.sort(drawn)])
