"""Sums over the features of texts, from which a linear model predicts.

Most features of a text are character n-grams inside words. Their sum depends only on the word, so
it is computed once for each distinct word, and added up over the words of a text.

The sum of a word has a number for each occurrence of an n-gram, but a text that has an n-gram
several times should get its number once, or 1 + ln(count) times: the difference is added for these
n-grams, which are few.
"""

from __future__ import annotations

import math
from copy import copy
from dataclasses import dataclass
from functools import cached_property
from itertools import pairwise
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from encoder_cls.linear.feature_index import FeatureIndex
from encoder_cls.linear.ngrams import (
    CHAR_NGRAM_IDS,
    CHAR_NGRAM_KIND,
    COLUMN_IDS,
    HASHES,
    Counts,
    bounds_of_runs,
    scales_of_kinds,
)
from encoder_cls.text.tokens import CharNgrams
from encoder_cls.weights import RowTable, SparseTable, Table

Array = NDArray[np.float64]


@dataclass(frozen=True)
class FeatureValues:
    """What a linear model knows of some features: IDF, 0 if unknown, and weights.

    Attributes:
        is_unfamiliar: unknown, or of an unknown word.
        rarities: the IDF, or for an unfamiliar feature that of the rarest.
        table: the weights of all features of the model.
        rows: those of these features in the table; any for unknown ones.
    """

    idf: Array
    is_unfamiliar: NDArray[np.bool_]
    rarities: Array
    table: Table
    rows: NDArray[np.int32]

    @cached_property
    def weights(self) -> NDArray[np.float32]:
        """The weights, (features, classifiers), which have no meaning for unknown features."""
        return self.table.take(self.rows)


NO_IDS = np.zeros(0, dtype=np.int32)


class KnownFeatures:
    """The features that a linear model knows."""

    def __init__(
        self, feature_ids: NDArray[np.int32], idf: NDArray[np.float32], weights: Table
    ) -> None:
        self._index = FeatureIndex(feature_ids)
        self._idf = idf
        self._weights = weights
        self._rarest = float(idf.max(initial=0))
        self.num_classifiers = weights.shape[1]

    def without_rarest(self) -> KnownFeatures:
        """The same without weights, and without features of the lowest document frequency."""
        features = copy(self)
        features._idf = np.where(self._idf == self._rarest, 0, self._idf)
        no_weights = np.zeros((len(self._idf), 0), dtype=np.float32)
        features._weights = RowTable(values=no_weights, num_rows=len(self._idf))
        features.num_classifiers = 0
        return features

    def look_up(
        self, ids: NDArray[np.int32], ids_of_unknown_words: NDArray[np.int32] = NO_IDS
    ) -> FeatureValues:
        """Look up ids, some of which may be of features with an unknown word.

        A model may know such features from unknown words of single training texts, which do not
        make other unknown words familiar.
        """
        # An unknown feature has the index -1, which picks the weights of the last feature.
        indices = self._index.find(ids)
        idf = np.where(indices < 0, 0, self._idf.take(indices)).astype(np.float64)
        is_unfamiliar = (idf == 0) | np.isin(ids, ids_of_unknown_words)
        rarities = np.where(is_unfamiliar, self._rarest, idf)
        return FeatureValues(idf, is_unfamiliar, rarities, self._weights, indices)


def weights_of_classes(weights: NDArray[np.float32]) -> NDArray[np.float32]:
    """The weights that speak for each class; a single classifier speaks for the second one."""
    if weights.shape[1] == 1:
        return np.hstack([-weights, weights])
    return weights


# How many weights of character n-grams are looked up at a time. Their sums stay in the cache of a
# processor; eight times as many weights take twice as long.
WEIGHTS_AT_ONCE = 1 << 15
# So many n-grams are looked up at a time in any case: with very many classes, the weights of fewer
# take less time than the calls that look them up.
MIN_NGRAMS_AT_ONCE = 128


class WordSums(NamedTuple):
    """Sums over the character n-grams of words, with a number for each occurrence of an n-gram.

    An effect is IDF times weight, for each class.

    Attributes:
        numbers: of n-grams, (words,); `unknown` are those that are unfamiliar.
        squares: of IDF, (words,).
        effects: (words, classes).
        positive_effects: (words, classes).
        positive_squares: of the IDF of n-grams with a positive effect, (words, classes).
    """

    numbers: Array
    unknown: Array
    rarities: Array
    squares: Array
    effects: Array
    positive_effects: Array
    positive_squares: Array

    @classmethod
    def of(cls, char_ngrams: CharNgrams, known: KnownFeatures) -> WordSums:
        """Sum over the n-grams of at least one word."""
        # Divide the words into blocks. A word belongs to the block in which its n-grams begin.
        num_classifiers = max(1, known.num_classifiers)
        ngrams_at_once = max(MIN_NGRAMS_AT_ONCE, WEIGHTS_AT_ONCE // num_classifiers)
        blocks = char_ngrams.offsets[:-1] // ngrams_at_once
        bounds = bounds_of_runs(blocks)

        sums_of_blocks = []
        for first, end in pairwise(bounds):
            block = char_ngrams.take(np.arange(first, end))
            sums_of_blocks.append(cls._of_block(block, known))

        sums = zip(*sums_of_blocks, strict=True)
        return cls(*(np.concatenate(sum_of_blocks) for sum_of_blocks in sums))

    @classmethod
    def _of_block(cls, char_ngrams: CharNgrams, known: KnownFeatures) -> WordSums:
        hashes = char_ngrams.ngrams & np.uint32(HASHES - 1)
        features = known.look_up(hashes.astype(np.int32) + np.int32(CHAR_NGRAM_IDS))
        squares = features.idf**2

        starts = char_ngrams.offsets[:-1]
        numbers = np.diff(char_ngrams.offsets)
        if isinstance(features.table, SparseTable):
            sums_by_class = _sums_of_nonzero(features, features.table, numbers)
        else:
            sums_by_class = _sums_of_all(features, starts, numbers)
        effects, positive_effects, positive_squares = sums_by_class

        return cls(
            numbers=numbers.astype(np.float64),
            unknown=sums_of_pieces(features.is_unfamiliar, starts, numbers),
            rarities=sums_of_pieces(features.rarities, starts, numbers),
            squares=sums_of_pieces(squares, starts, numbers),
            effects=effects,
            positive_effects=positive_effects,
            positive_squares=positive_squares,
        )


def _sums_of_all(
    ngrams: FeatureValues, starts: NDArray[np.int64], numbers: NDArray[np.int64]
) -> tuple[Array, Array, Array]:
    effects = ngrams.idf[:, None] * weights_of_classes(ngrams.weights)
    is_positive = effects > 0
    squares = ngrams.idf**2
    return (
        sums_of_rows(effects, starts, numbers),
        sums_of_rows(is_positive * effects, starts, numbers),
        sums_of_rows(is_positive * squares[:, None], starts, numbers),
    )


def _sums_of_nonzero(
    ngrams: FeatureValues, table: SparseTable, numbers: NDArray[np.int64]
) -> tuple[Array, Array, Array]:
    rows, classes, weights = table.nonzero(ngrams.rows)
    idf = ngrams.idf.take(rows)
    effects = idf * weights

    shape = (len(numbers), table.num_columns)
    words = np.repeat(np.arange(len(numbers)), numbers)
    cells = words.take(rows) * table.num_columns + classes

    def summed(cells: NDArray[Any], values: Array) -> Array:
        sums = np.bincount(cells, weights=values, minlength=math.prod(shape))
        return sums.astype(np.float64, copy=False).reshape(shape)

    is_positive = effects > 0
    positive_cells = cells[is_positive]
    return (
        summed(cells, effects),
        summed(positive_cells, effects[is_positive]),
        summed(positive_cells, idf[is_positive] ** 2),
    )


def sums_of_pieces(
    numbers: NDArray[Any], starts: NDArray[np.int64], lengths: NDArray[np.int64]
) -> Array:
    """Sum over neighbouring pieces of an array, which may be empty.

    `starts`, `lengths` and the sums have one shape, which may be any.
    """
    # `reduceat` sums up to the next start, so leave out empty pieces, which have no numbers.
    is_full = lengths > 0
    sums = np.zeros(starts.shape)
    if is_full.any():
        sums[is_full] = np.add.reduceat(numbers, starts[is_full], dtype=np.float64)
    return sums


# Up to this number of columns or classifiers, it is fastest to compute one after the other.
FEW_COLUMNS = 8


def sums_of_rows(matrix: Array, starts: NDArray[np.int64], lengths: NDArray[np.int64]) -> Array:
    """Sum over neighbouring rows of a matrix, (rows, columns), into (pieces, columns)."""
    sums = np.zeros((len(starts), matrix.shape[1]))
    if matrix.shape[1] <= FEW_COLUMNS:
        for column, numbers in enumerate(np.ascontiguousarray(matrix.T)):
            sums[:, column] = sums_of_pieces(numbers, starts, lengths)
        return sums

    is_full = lengths > 0
    if is_full.any():
        sums[is_full] = np.add.reduceat(matrix, starts[is_full], axis=0)
    return sums


# How many numbers `TextSums.evidence` and `TextSums.rarity` return for each text: the latter two
# for each kind of feature up to character n-grams.
NUM_EVIDENCE_FEATURES = 2
NUM_RARITY_FEATURES = 2 * (CHAR_NGRAM_KIND + 1)

# Added to a sum of effects, so that its logarithm is finite.
MIN_EVIDENCE = 0.01


class TextSums:
    """Sums over the features of a chunk; `margins` is (texts, classifiers).

    Args:
        counts: of features, without character n-grams that a text has once.
        words: of tokens, in `word_sums`.
        offsets: of texts in `words`, (texts + 1,).
    """

    def __init__(
        self,
        counts: Counts,
        features: FeatureValues,
        *,
        biases: NDArray[np.float32],
        word_sums: WordSums,
        words: NDArray[np.int64],
        offsets: NDArray[np.int64],
    ) -> None:
        self._counts = counts
        self._features = features
        self._word_sums = word_sums
        self._words = words
        self._offsets = offsets

        # How often the sums of words have each value already: an n-gram once for each occurrence.
        first, end = np.searchsorted(counts.ids, (CHAR_NGRAM_IDS, COLUMN_IDS))
        is_char_ngram = (counts.columns >= first) & (counts.columns < end)
        self._summed = is_char_ngram * counts.values.astype(np.float64)

        # Sum the squares of the values before they are scaled, from which the scales follow.
        idf = features.idf.take(counts.columns)
        frequencies = (1 + np.log(counts.values)).astype(np.float64)
        self._squares = (frequencies**2 - self._summed) * idf**2
        self._sums_of_squares = self._sums_of_kinds(self._squares, word_sums.squares)
        self._scales = scales_of_kinds(self._sums_of_squares)
        self._scales_of_values = np.repeat(self._scales.ravel(), counts.kind_sizes.ravel())

        self._values = (frequencies - self._summed) * idf * self._scales_of_values
        self.margins = self._products() + self._products_of_words() + biases

    def _products(self) -> Array:
        columns = self._counts.columns
        weights = self._features.weights
        num_classifiers = weights.shape[1]
        products = np.zeros((len(self._counts), num_classifiers))

        if num_classifiers <= FEW_COLUMNS:
            for classifier in range(num_classifiers):
                effects = self._values * weights[:, classifier].take(columns)
                products[:, classifier] = self._sums_of_texts(effects)
        else:
            for text, (start, end) in enumerate(pairwise(self._counts.offsets)):
                products[text] = self._values[start:end] @ weights.take(columns[start:end], axis=0)
        return products

    def _products_of_words(self) -> Array:
        # A single classifier has the weights of the last class.
        num_classifiers = self._features.weights.shape[1]
        effects = self._word_sums.effects[:, -num_classifiers:].take(self._words, axis=0)
        sums = sums_of_rows(effects, self._offsets[:-1], np.diff(self._offsets))
        return sums * self._scales[:, CHAR_NGRAM_KIND, None]

    def evidence(self) -> Array:
        """How little speaks for the best class, (texts, `NUM_EVIDENCE_FEATURES`).

        An effect is a TF-IDF value times its weight for the best class. The numbers are minus the
        logarithm of the sum of positive effects, and minus the share of features with a positive
        effect, weighted by squared values.
        """
        best_classes = self.margins.argmax(axis=1)
        if self.margins.shape[1] == 1:
            best_classes = (self.margins[:, 0] >= 0).astype(np.int64)

        # Sum over the values. An unknown feature has the value and the square 0.
        classes_of_values = np.repeat(best_classes, np.diff(self._counts.offsets))
        class_weights = weights_of_classes(self._features.weights)
        places = self._counts.columns * class_weights.shape[1] + classes_of_values
        weights = class_weights.take(places)
        is_positive = weights > 0
        effects = self._sums_of_texts(is_positive * self._values * weights)
        squares = self._sums_of_texts(is_positive * self._squares * self._scales_of_values**2)

        classes_of_words = np.repeat(best_classes, np.diff(self._offsets))
        places = self._words * class_weights.shape[1] + classes_of_words
        effects_of_words = self._word_sums.positive_effects.take(places)
        squares_of_words = self._word_sums.positive_squares.take(places)
        starts = self._offsets[:-1]
        scales = self._scales[:, CHAR_NGRAM_KIND]
        effects += scales * np.add.reduceat(effects_of_words, starts)
        squares += scales**2 * np.add.reduceat(squares_of_words, starts)

        log_effects = np.log(MIN_EVIDENCE + effects)
        all_squares = (self._sums_of_squares * self._scales**2).sum(axis=1)
        shares = squares / np.maximum(all_squares, 1e-9)
        return -np.stack([log_effects, shares], axis=1)

    def rarity(self) -> Array:
        """How rare the features of texts are, (texts, `NUM_RARITY_FEATURES`).

        These are the mean IDFs of words, pairs, templates and character n-grams, then the shares
        that are unfamiliar, which count as the rarest; 0 for a kind that a text lacks.
        """
        columns = self._counts.columns

        # Each value counts once.
        missing = 1 - self._summed
        numbers = self._sums_of_kinds(missing, self._word_sums.numbers)
        rarities = self._sums_of_kinds(
            missing * self._features.rarities.take(columns), self._word_sums.rarities
        )
        is_unfamiliar = self._features.is_unfamiliar.take(columns)
        unknown = self._sums_of_kinds(missing * is_unfamiliar, self._word_sums.unknown)

        numbers = np.maximum(1, numbers)
        kinds_of_texts = slice(CHAR_NGRAM_KIND + 1)
        rarities = (rarities / numbers)[:, kinds_of_texts]
        unknown = (unknown / numbers)[:, kinds_of_texts]
        return np.hstack([rarities, unknown])

    def _sums_of_kinds(self, numbers: NDArray[Any], numbers_of_words: Array) -> Array:
        """Sum over the features of each kind, (texts, kinds).

        `numbers` are of the values of the counts, and `numbers_of_words` sums of the same over each
        word.
        """
        sums = sums_of_pieces(numbers, self._counts.kinds, self._counts.kind_sizes)
        sums[:, CHAR_NGRAM_KIND] += self._sums_of_words(numbers_of_words)
        return sums

    def _sums_of_texts(self, numbers: NDArray[Any]) -> Array:
        offsets = self._counts.offsets
        return sums_of_pieces(numbers, offsets[:-1], np.diff(offsets))

    def _sums_of_words(self, numbers: Array) -> Array:
        sums: Array = np.add.reduceat(numbers.take(self._words), self._offsets[:-1])
        return sums
