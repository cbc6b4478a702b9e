"""Hashed n-gram features of words and tokens.

- words, and pairs of words with and without a word between them;
- n-gram templates: two to six words side by side, with a wildcard for infrequent words, as in "what is _ of"; the
  beginning of a text counts as a word. They show the manner of speaking whatever the subject (Davidov et al., "Enhanced
  Sentiment Learning Using Twitter Hashtags and Smileys", 2010, https://aclanthology.org/C10-2028/);
- character n-grams inside words.

A feature's id is the first id of its kind plus a hash, which needs no vocabulary.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from encoder_cls.text.tokens import (
    MASK_ID,
    PAIR_MULTIPLIER,
    SPECIAL_TOKENS,
    TokenizedTexts,
    ends_from_zero,
    flat_indices,
)

DISTANCES = (1, 2)  # of the words of a pair
TEMPLATE_SIZES = range(2, 7)  # words
MOST_FREQUENT = 300  # a frequent token is one in so many or more
HASHES = 1 << 22  # of a kind of feature: few of a million different n-grams collide
TEMPLATE_IDS = HASHES * (1 + len(DISTANCES))  # ids of words and pairs come first, then those of templates,
CHAR_NGRAM_IDS = TEMPLATE_IDS + HASHES  # then those of character n-grams
NUM_FEATURE_IDS = CHAR_NGRAM_IDS + HASHES
GROUP_NORMS = (1.0, 0.4, 1.0)  # of the vectors of a text's words and pairs, of its templates, of its character n-grams
KINDS_BEGIN = (0, HASHES, TEMPLATE_IDS, CHAR_NGRAM_IDS)  # of words, pairs, templates, character n-grams
RARITY_NUMBERS = 2 * len(KINDS_BEGIN)
TOKENS_AT_ONCE = 1 << 17  # counting takes many times the memory of the counts


@dataclass(frozen=True, kw_only=True)
class SparseRows:
    """A sparse matrix in compressed rows, a row a text.

    Attributes:
        columns: of the values, increasing within a row.
        values: text `i` has `values[offsets[i]:offsets[i + 1]]`.
        offsets: `texts + 1` indices into both.
    """

    columns: NDArray[np.int32]
    values: NDArray[np.float32]
    offsets: NDArray[np.int64]

    def __len__(self) -> int:
        return len(self.offsets) - 1


Found = tuple[NDArray[np.int64], NDArray[np.int64]]
"""The hashes of features, and the token at which each ends."""


def frequent_tokens(texts: TokenizedTexts, *, max_tokens: int) -> NDArray[np.int32]:
    """The ids of the frequent tokens, increasing, `MOST_FREQUENT` at most."""
    counts = np.zeros(texts.word_ids.max(initial=0) + 1, dtype=np.int64)
    for tokens, _ in _in_chunks(texts, max_tokens):
        counts += np.bincount(texts.input_ids(tokens), minlength=len(counts))
    counts[: len(SPECIAL_TOKENS)] = 0
    return np.flatnonzero(counts * MOST_FREQUENT >= max(1, counts.sum())).astype(np.int32)


def count_features(
    texts: TokenizedTexts, *, max_tokens: int, frequent_token_ids: NDArray[np.int32], use_char_ngrams: bool
) -> Iterator[SparseRows]:
    """Count the features of texts, some texts at a time; columns are feature ids.

    In templates all tokens but `frequent_token_ids` are wildcards. `use_char_ngrams` counts templates and character
    n-grams, too, with twenty times the memory.
    """
    for tokens, offsets in _in_chunks(texts, max_tokens):
        ids, lengths = texts.input_ids(tokens).astype(np.int64), np.diff(offsets)
        position = np.arange(len(ids)) - np.repeat(offsets[:-1], lengths)  # of each token in its text; 0 is [CLS]
        kinds = [_words(ids, position), *_pairs(ids, position)]
        if use_char_ngrams:
            kinds += [_templates(ids, position, frequent_token_ids), _char_ngrams(texts, tokens)]
        feature_ids = np.concatenate([hashes % HASHES + HASHES * kind for kind, (hashes, _) in enumerate(kinds)])
        text_of = np.repeat(np.arange(len(lengths)), lengths)
        rows = text_of[np.concatenate([ends for _, ends in kinds])]
        keys, counts = np.unique(rows * NUM_FEATURE_IDS + feature_ids, return_counts=True)
        yield SparseRows(
            columns=(keys % NUM_FEATURE_IDS).astype(np.int32),
            values=counts.astype(np.float32),
            offsets=np.searchsorted(keys, np.arange(len(lengths) + 1) * NUM_FEATURE_IDS),
        )


def find(counts: SparseRows, feature_ids: NDArray[np.int32]) -> NDArray[np.int32]:
    """The index of each column among increasing feature ids, (values,); -1: none of them."""
    columns = np.searchsorted(feature_ids, counts.columns).astype(np.int32)
    columns[columns == len(feature_ids)] = -1
    columns[feature_ids[columns] != counts.columns] = -1
    return columns


def keep_known(counts: SparseRows, found: NDArray[np.int32]) -> SparseRows:
    """The known features alone; columns are then the indices from `find`."""
    known = found >= 0
    offsets = ends_from_zero(known)[counts.offsets]
    return SparseRows(columns=found[known], values=counts.values[known], offsets=offsets)


def rarity(
    counts: SparseRows, found: NDArray[np.int32], idf: NDArray[np.float32], *, leave_out: bool = False
) -> NDArray[np.float64]:
    """Measure the rarity of the features of texts, (texts, `RARITY_NUMBERS`).

    The mean inverse document frequency of the words, pairs, templates and character n-grams of a text, where the
    unknown count as the rarest; then the unknown share of each of the four. Both are 0 for a kind that a text lacks.
    `found` is from `find`. `leave_out` treats the texts, which were learned from, as if they were not: a feature of a
    single text is unknown.
    """
    if leave_out:
        found = np.where(np.append(idf, 0)[found] == idf.max(), -1, found)
    starts = np.stack([_first_at_least(counts, first) for first in KINDS_BEGIN], axis=1)
    numbers = np.diff(starts, axis=1, append=counts.offsets[1:, None])  # columns increase, so a kind is a run of them
    of_features = np.append(idf, idf.max())[found]
    sums = [np.add.reduceat(np.append(it, 0), starts.ravel()).reshape(starts.shape) for it in (of_features, found < 0)]
    return np.hstack([np.where(numbers > 0, it, 0) / np.maximum(1, numbers) for it in sums])


def _first_at_least(rows: SparseRows, column: int) -> NDArray[np.int64]:
    """The index of the first value of each row in this column or a later one, else the row's end, (rows,)."""
    low, high = rows.offsets[:-1].copy(), rows.offsets[1:].copy()
    while (is_open := low < high).any():
        middle = (low + high) // 2
        is_before = np.zeros(len(low), dtype=bool)
        is_before[is_open] = rows.columns[middle[is_open]] < column
        low = np.where(is_open & is_before, middle + 1, low)
        high = np.where(is_open & ~is_before, middle, high)
    return low


def tfidf(counts: SparseRows, feature_ids: NDArray[np.int32], idf: NDArray[np.float32]) -> SparseRows:
    """(1 + ln count) * idf of each feature of a text; the vectors of its three groups have the `GROUP_NORMS`.

    Columns are indices of the feature ids.
    """
    values = (1 + np.log(counts.values)) * idf[counts.columns]
    group_of = np.searchsorted((TEMPLATE_IDS, CHAR_NGRAM_IDS), feature_ids, side="right")[counts.columns]
    vectors = len(GROUP_NORMS) * np.repeat(np.arange(len(counts)), np.diff(counts.offsets)) + group_of
    squares = np.bincount(vectors, weights=values.astype(np.float64) ** 2, minlength=len(GROUP_NORMS) * len(counts))
    scales = np.tile(GROUP_NORMS, len(counts)) / np.sqrt(np.where(squares > 0, squares, 1))
    return replace(counts, values=(values * scales[vectors]).astype(np.float32))


def _in_chunks(texts: TokenizedTexts, max_tokens: int) -> Iterator[tuple[NDArray[np.int64], NDArray[np.int64]]]:
    """The indices of the tokens of some texts, and `texts + 1` offsets into them."""
    lengths = texts.lengths_within(max_tokens)
    chunk_of = (np.cumsum(lengths) - 1) // TOKENS_AT_ONCE
    bounds = np.flatnonzero(np.diff(chunk_of, prepend=-1, append=-1))
    for chunk in map(slice, bounds[:-1], bounds[1:]):
        yield flat_indices(texts.offsets[:-1][chunk], lengths[chunk]), ends_from_zero(lengths[chunk])


def _words(ids: NDArray[np.int64], position: NDArray[np.int64]) -> Found:
    (ends,) = np.nonzero(position)  # without [CLS], which every text has
    return ids[ends], ends


def _pairs(ids: NDArray[np.int64], position: NDArray[np.int64]) -> Iterator[Found]:
    for distance in DISTANCES:
        (ends,) = np.nonzero(position >= distance)
        yield ids[ends - distance] * PAIR_MULTIPLIER + ids[ends], ends


def _templates(ids: NDArray[np.int64], position: NDArray[np.int64], frequent_token_ids: NDArray[np.int32]) -> Found:
    """Templates of all sizes; `[MASK]`, which no text has, is the wildcard."""
    slots = np.where((position == 0) | np.isin(ids, frequent_token_ids), ids, MASK_ID)
    found, grown = [], slots
    for size in TEMPLATE_SIZES:  # each grows by the next word
        grown = np.roll(grown, 1) * PAIR_MULTIPLIER % HASHES + slots
        (ends,) = np.nonzero(position >= size - 1)
        found.append((grown[ends], ends))
    hashes, ends = (np.concatenate(parts) for parts in zip(*found, strict=True))
    return hashes, ends


def _char_ngrams(texts: TokenizedTexts, tokens: NDArray[np.int64]) -> Found:
    distinct, words = np.unique(texts.words[tokens], return_inverse=True)
    of_distinct = texts.char_ngrams.take(distinct)
    lengths = np.diff(of_distinct.offsets)
    indices = flat_indices(of_distinct.offsets[words], lengths[words])
    return of_distinct.ngrams[indices].astype(np.int64), np.repeat(np.arange(len(words)), lengths[words])
