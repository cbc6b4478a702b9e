"""A linear classifier of word and character n-grams: trained in seconds, hard to beat on small data.

NB-SVM (Wang and Manning, "Baselines and Bigrams: Simple, Good Sentiment and Topic Classification", 2012,
https://aclanthology.org/P12-2018/): each feature is scaled by how much it tells of the class under naive
Bayes, then a linear support vector machine weighs them. Features are TF-IDF of words, pairs of words with and
without a word between them, and character n-grams; columns are hashes, of which those that training shows are kept.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray
from sklearn.feature_extraction.text import TfidfTransformer
from sklearn.svm import LinearSVC

from encoder_cls.batching import Indices
from encoder_cls.calibration import Logits
from encoder_cls.model import BIGRAM_MULTIPLIER
from encoder_cls.tokenizer import TokenizedTexts

HASHES = 1 << 22  # so many that few of a million different n-grams meet
DISTANCES = (1, 2)  # of the words of a pair
TRUST = 0.5  # in naive Bayes, the power of its ratios: at 1, where classes have few texts, chance scales features
PENALTY = 1.0  # LinearSVC's C
CHUNK = 4096  # training texts counted at once: what counting needs is many times the counts


class LinearClassifier:
    """NB-SVM, one class against the rest.

    Args:
        texts: training texts.
        labels: their classes, (texts,).
        num_classes: number of classes.
        char_ngrams: whether to look at character n-grams, which take twenty times the memory of words.
    """

    def __init__(
        self, texts: TokenizedTexts, labels: NDArray[np.int64], *, num_classes: int, char_ngrams: bool
    ) -> None:
        self._blocks = [_Block(_word_counts)] + ([_Block(_char_counts)] if char_ngrams else [])
        features = sp.hstack([block.fit(texts) for block in self._blocks], format="csr")
        weights, biases = [], []
        present = features > 0
        for number in range(num_classes) if num_classes > 2 else [1]:
            is_class = labels == number
            ratios = np.abs(_log_count_ratios(present, is_class)) ** TRUST
            svm = LinearSVC(C=PENALTY, random_state=0).fit(features @ sp.diags(ratios), is_class)
            weights.append(svm.coef_[0] * ratios)
            biases.append(svm.intercept_[0])
        self._weights = np.stack(weights, axis=1).astype(np.float32)
        self._biases = np.array(biases, dtype=np.float32)

    def margins(self, texts: TokenizedTexts, places: Indices, lengths: Indices) -> Logits:
        """How far each sequence is on the side of each class, (sequences, classes).

        Args:
            texts: where the tokens are from.
            places: of all sequences, which tokens they are made of.
            lengths: the number of tokens of each sequence.
        """
        features = sp.hstack([block.transform(texts, places, lengths) for block in self._blocks], format="csr")
        margins: Logits = features @ self._weights + self._biases
        return np.hstack([-margins, margins]) if margins.shape[1] == 1 else margins


class _Block:
    """Features of one kind: counts of hashes -> TF-IDF of those that training shows, rows of length 1."""

    def __init__(self, count: Any) -> None:
        self._count = count
        self._tfidf = TfidfTransformer(sublinear_tf=True)

    def fit(self, texts: TokenizedTexts) -> sp.csr_matrix:
        pieces = [(i, min(i + CHUNK, len(texts))) for i in range(0, len(texts), CHUNK)]
        counts = sp.vstack(
            [
                self._count(texts, np.arange(texts.offsets[first], texts.offsets[last]), texts.lengths[first:last])
                for first, last in pieces
            ],
            format="csr",
        )
        self._seen = np.unique(counts.indices)
        self._column_of = np.full(counts.shape[1], -1, dtype=np.int32)
        self._column_of[self._seen] = np.arange(len(self._seen))
        return self._tfidf.fit_transform(self._kept(counts)).astype(np.float32)

    def transform(self, texts: TokenizedTexts, places: Indices, lengths: Indices) -> sp.csr_matrix:
        return self._tfidf.transform(self._kept(self._count(texts, places, lengths))).astype(np.float32)

    def _kept(self, counts: sp.csr_matrix) -> sp.csr_matrix:
        columns = self._column_of[counts.indices]
        known = columns >= 0
        ends = np.concatenate([[0], np.cumsum(known)])[counts.indptr]
        return sp.csr_matrix((counts.data[known], columns[known], ends), shape=(counts.shape[0], len(self._seen)))


def _word_counts(texts: TokenizedTexts, places: Indices, lengths: Indices) -> sp.csr_matrix:
    """A block of columns for words, and one for the hashed pairs of each distance."""
    ids = texts.input_ids(places).astype(np.int64)
    rows = np.repeat(np.arange(len(lengths)), lengths)
    place = np.arange(len(ids)) - np.repeat(np.cumsum(lengths) - lengths, lengths)  # in its text; 0 is [CLS]
    blocks = [(ids, place > 0)]  # without [CLS], which every text has
    for distance in DISTANCES:
        pairs = np.roll(ids, distance) * BIGRAM_MULTIPLIER + ids
        blocks.append((pairs, place >= distance))
    columns = np.concatenate([hashes[kept] % HASHES + HASHES * i for i, (hashes, kept) in enumerate(blocks)])
    rows = np.concatenate([rows[kept] for _, kept in blocks])
    ones = np.ones(len(columns), dtype=np.float32)
    return sp.csr_matrix((ones, (rows, columns)), shape=(len(lengths), HASHES * len(blocks)))


def _char_counts(texts: TokenizedTexts, places: Indices, lengths: Indices) -> sp.csr_matrix:
    """Hashed character n-grams inside words: the words of a text times the n-grams of a word."""
    ends = np.concatenate([[0], np.cumsum(lengths)])
    distinct, words = np.unique(texts.words[places], return_inverse=True)
    spellings = texts.spellings.take(distinct)
    hashes, ngrams = np.unique(spellings.ngrams.astype(np.int64) % HASHES, return_inverse=True)
    spelt = sp.csr_matrix(
        (np.ones(len(ngrams), dtype=np.float32), ngrams, spellings.offsets), shape=(len(distinct), len(hashes))
    )
    bags = sp.csr_matrix((np.ones(len(words), dtype=np.float32), words, ends), shape=(len(lengths), len(distinct)))
    counts = bags @ spelt
    return sp.csr_matrix((counts.data, hashes[counts.indices], counts.indptr), shape=(len(lengths), HASHES))


def _log_count_ratios(present: sp.csr_matrix, is_class: NDArray[np.bool_]) -> NDArray[np.float32]:
    """Of each feature, ln(its share of the class's features / its share of the others'), counts being one more."""
    inside = 1 + np.asarray(present[is_class].sum(axis=0), dtype=np.float64).ravel()
    outside = 1 + np.asarray(present[~is_class].sum(axis=0), dtype=np.float64).ravel()
    ratios: NDArray[np.float32] = np.log((inside / inside.sum()) / (outside / outside.sum())).astype(np.float32)
    return ratios
