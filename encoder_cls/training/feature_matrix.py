"""The counted features of texts in, sparse matrices of the most frequent ones out: a row a text, a column a feature."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from encoder_cls.inference.tasks import SINGLE_LABEL, Task
from encoder_cls.text.ngram_features import (
    DISTANCES,
    NUM_FEATURE_IDS,
    TEMPLATE_SIZES,
    SparseRows,
    count_features,
    find,
    frequent_tokens,
    keep_known,
    tfidf,
)
from encoder_cls.text.token_arrays import TokenizedTexts

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
