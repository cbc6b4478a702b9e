"""The words and pairs of words that speak most for each class, by their weights."""

from __future__ import annotations

from collections.abc import Callable
from itertools import pairwise
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from encoder_cls.linear.feature_sums import weights_of_classes
from encoder_cls.linear.linear_model import LinearModel
from encoder_cls.linear.ngrams import (
    COLUMN_IDS,
    FIELD_PAIR_IDS,
    HASHES,
    NEIGHBOUR_IDS,
    find_neighbours,
)
from encoder_cls.text.row_tokens import feature_name, kind_of_token
from encoder_cls.text.tokens import CLS_ID, SPECIAL_TOKENS, WORD, TokenizedTexts, drawn_rows
from encoder_cls.weights import SparseTable

# The most tokens of texts in which pairs of words are looked up, which takes about a second.
MAX_TOKENS = 1_000_000
# How many pairs are looked up for each one that is wanted: not every pair is in the texts.
LOOKED_UP_PER_WANTED = 4


class NgramWeight(NamedTuple):
    """A word or a pair of words, and its weight for a class, above 0.

    Attributes:
        ngram: a word; two neighbouring words with a space; `^` and the first word of a text; or a
            feature of a row, such as `channel=email`.
    """

    ngram: str
    weight: float


def top_features(
    linear: LinearModel,
    texts: TokenizedTexts,
    *,
    num_classes: int,
    top_k: int,
    word_of: Callable[[int], str],
) -> list[list[NgramWeight]]:
    """Find at most `top_k` words and pairs with the largest weights for each class, in order.

    What says little to people is left out: character n-grams, templates, pairs with a gap,
    punctuation and whole numbers, such as those of orders.

    The model knows pairs by hash alone, so only those in `texts` are listed.
    """
    feature_ids = linear.feature_ids
    is_word = (feature_ids >= len(SPECIAL_TOKENS)) & (feature_ids < HASHES)
    is_pair = (feature_ids >= NEIGHBOUR_IDS.start) & (feature_ids < NEIGHBOUR_IDS.stop)
    words = np.flatnonzero(is_word)
    pairs = np.flatnonzero(is_pair)
    columns = np.flatnonzero((feature_ids >= COLUMN_IDS) & (feature_ids < FIELD_PAIR_IDS))

    # Choose the features with the largest weights for each class.
    count = LOOKED_UP_PER_WANTED * top_k
    top_words = _largest_of_classes(linear, words, num_classes, count)
    top_columns = _largest_of_classes(linear, columns, num_classes, count)
    top_pairs = _largest_of_classes(linear, pairs, num_classes, count)

    chosen_pairs = np.unique(np.concatenate([features for features, _ in top_pairs]))
    drawn = np.sort(drawn_rows(texts.lengths_within(linear.max_tokens), MAX_TOKENS))
    tokens_of_pairs = find_neighbours(
        texts.take(drawn), feature_ids[chosen_pairs], max_tokens=linear.max_tokens
    )

    top_of_classes = []
    tops = zip(top_words, top_columns, top_pairs, strict=True)
    for class_words, class_columns, class_pairs in tops:
        ngrams = []
        for feature, weight in zip(*class_columns, strict=True):
            token = word_of(int(feature_ids[feature]) - COLUMN_IDS)
            ngrams.append(NgramWeight(feature_name(token), float(weight)))
        for feature, weight in zip(*class_words, strict=True):
            word = word_of(int(feature_ids[feature]))
            if _has_meaning(word):
                ngrams.append(NgramWeight(word, float(weight)))

        for feature, weight in zip(*class_pairs, strict=True):
            tokens = tokens_of_pairs.get(int(feature_ids[feature]))
            if tokens is not None:
                name = _pair_name(*tokens, word_of=word_of)
                if name:
                    ngrams.append(NgramWeight(name, float(weight)))

        ngrams.sort(key=lambda ngram: -ngram.weight)
        top_of_classes.append(ngrams[:top_k])
    return top_of_classes


# Features, and their weights for a class.
Weighted = tuple[NDArray[np.int64], NDArray[np.float32]]


def _largest_of_classes(
    linear: LinearModel, features: NDArray[np.int64], num_classes: int, count: int
) -> list[Weighted]:
    if isinstance(linear.weights, SparseTable):
        return _largest_of_columns(linear.weights, features, count)

    weights = linear.weights.take(features)
    if weights.shape[1] != num_classes:
        weights = weights_of_classes(weights)
    return [_largest(features, weights[:, number], count) for number in range(num_classes)]


def _largest_of_columns(
    table: SparseTable, features: NDArray[np.int64], count: int
) -> list[Weighted]:
    # List the features with a weight for each class, class by class.
    is_asked = np.zeros(len(table.row_sizes), dtype=bool)
    is_asked[features] = True
    rows = np.repeat(np.arange(len(is_asked)), table.row_sizes)
    (places,) = np.nonzero(is_asked[rows])
    places = places[np.argsort(table.columns[places], kind="stable")]
    bounds = np.searchsorted(table.columns[places], np.arange(table.num_columns + 1))

    largest = []
    for first, end in pairwise(bounds):
        of_class = places[first:end]
        weights = table.values[of_class].astype(np.float32)
        largest.append(_largest(rows[of_class], weights, count))
    return largest


def _largest(features: NDArray[np.int64], weights: NDArray[np.float32], count: int) -> Weighted:
    largest_first = np.argsort(-weights, kind="stable")[:count]
    largest_first = largest_first[weights[largest_first] > 0]
    return features[largest_first], weights[largest_first]


def _pair_name(first: int, second: int, *, word_of: Callable[[int], str]) -> str:
    """The name of a pair; empty if one is punctuation, a number or unknown."""
    second_word = word_of(second)
    if second < len(SPECIAL_TOKENS) or not _has_meaning(second_word):
        return ""
    if first == CLS_ID:
        return f"^ {second_word}"

    first_word = word_of(first)
    if first < len(SPECIAL_TOKENS) or not _has_meaning(first_word):
        return ""
    return f"{first_word} {second_word}"


def _has_meaning(word: str) -> bool:
    if kind_of_token(word) != WORD:
        return False
    return any(character.isalnum() for character in word) and not word.isdecimal()
