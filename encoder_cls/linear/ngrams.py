"""Hashed n-gram features of words and tokens.

- words, and pairs of words with and without a word between them;
- n-gram templates: two to six adjacent words, with a wildcard for infrequent ones, as in "what is _ of"; the start of a
  text counts as a word. They capture style rather than subject (Davidov et al., "Enhanced Sentiment Learning
  Using Twitter Hashtags and Smileys", 2010, https://aclanthology.org/C10-2028/);
- character n-grams inside words.

A feature's id is the first id of its kind plus a hash, which needs no vocabulary.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

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
MOST_FREQUENT = 300  # tokens: one is frequent if at least every 300th token is it
HASHES = 1 << 22  # of a kind of feature: few of a million different n-grams collide
TEMPLATE_IDS = HASHES * (
    1 + len(DISTANCES)
)  # ids of words and pairs come first, then those of templates,
CHAR_NGRAM_IDS = TEMPLATE_IDS + HASHES  # then those of character n-grams
NUM_FEATURE_IDS = CHAR_NGRAM_IDS + HASHES
GROUP_NORMS = (
    1.0,
    0.4,
    1.0,
)  # of the vectors of a text's words and pairs, of its templates, of its character n-grams
KIND_STARTS = (
    0,
    HASHES,
    TEMPLATE_IDS,
    CHAR_NGRAM_IDS,
)  # of words, pairs, templates, character n-grams
RARITY_NUMBERS = 2 * len(KIND_STARTS)
TOKENS_AT_ONCE = (
    1 << 15
)  # counting takes many times the memory of the counts, and sorting more at once is slower


@dataclass(frozen=True, kw_only=True)
class SparseRows:
    """A sparse matrix in compressed rows, one for each text."""

    columns: NDArray[np.int32]  # of the values, increasing within a row
    values: NDArray[np.float32]  # text `i` has `values[offsets[i]:offsets[i + 1]]`
    offsets: NDArray[np.int64]  # `texts + 1` indices into both

    def __len__(self) -> int:
        return len(self.offsets) - 1


@dataclass(frozen=True, kw_only=True)
class Counts(SparseRows):
    """The counts of features in texts; columns are indices into `ids`."""

    ids: NDArray[np.int32]  # of the features of all these texts, increasing
    kinds: NDArray[
        np.int64
    ]  # starts of the words, pairs, templates and character n-grams of each text, (texts, 4)


class Hashed(NamedTuple):
    """Features of one kind."""

    hashes: NDArray[np.int64]
    ends: NDArray[np.int64]  # the last token of each occurrence
    occurrences: NDArray[np.int64] | slice = slice(None)  # the index of the hash of each occurrence


def frequent_tokens(texts: TokenizedTexts, *, max_tokens: int) -> NDArray[np.int32]:
    """The ids of the frequent tokens, increasing, `MOST_FREQUENT` at most."""
    counts = np.zeros(texts.word_ids.max(initial=0) + 1, dtype=np.int64)
    for tokens, _ in _in_chunks(texts, max_tokens):
        counts += np.bincount(texts.input_ids(tokens), minlength=len(counts))
    counts[: len(SPECIAL_TOKENS)] = 0
    return np.flatnonzero(counts * MOST_FREQUENT >= max(1, counts.sum())).astype(np.int32)


def count_features(
    texts: TokenizedTexts,
    *,
    max_tokens: int,
    frequent_token_ids: NDArray[np.int32],
    use_char_ngrams: bool,
) -> Iterator[Counts]:
    """Count the features of texts, some texts at a time.

    In templates, all tokens except `frequent_token_ids` are wildcards. `use_char_ngrams` also counts templates and
    character n-grams, with twenty times the memory.
    """
    for tokens, offsets in _in_chunks(texts, max_tokens):
        ids, lengths = texts.input_ids(tokens).astype(np.int64), np.diff(offsets)
        position = np.arange(len(ids)) - np.repeat(
            offsets[:-1], lengths
        )  # of each token in its text; 0 is [CLS]
        kinds = [_words(ids, position), *_pairs(ids, position)]
        if use_char_ngrams:
            kinds += [_templates(ids, position, frequent_token_ids), _char_ngrams(texts, tokens)]
        distinct, columns = zip(*(_distinct(it.hashes & (HASHES - 1)) for it in kinds), strict=True)
        begins = ends_from_zero(np.array([*map(len, distinct)]))  # of the columns of each kind
        num_columns = int(begins[-1])
        # A key is a row and a column. Sorting small ones takes half the time.
        key: Any = np.uint32 if len(lengths) * num_columns < 1 << 32 else np.uint64
        rows = (np.arange(len(lengths)) * num_columns).astype(key)
        row_of = np.repeat(rows, lengths)
        keys = np.concatenate(
            [
                row_of[it.ends] + (begin + of_kind.astype(key))[it.occurrences]
                for it, of_kind, begin in zip(kinds, columns, begins[:-1].astype(key), strict=True)
            ]
        )
        keys.sort()
        firsts = np.flatnonzero(np.concatenate([keys[:1] >= 0, keys[1:] != keys[:-1]]))
        num_keys, keys = len(keys), keys[firsts]
        feature_ids = np.concatenate(
            [it + HASHES * kind for kind, it in enumerate(distinct)]
        ).astype(np.int32)
        kind_starts = np.searchsorted(feature_ids, KIND_STARTS).astype(key)
        of_kinds = np.searchsorted(keys, rows[:, None] + kind_starts)
        yield Counts(
            columns=(keys - np.repeat(rows, np.diff(of_kinds[:, 0], append=len(keys)))).astype(
                np.int32
            ),
            values=np.diff(firsts, append=num_keys).astype(np.float32),
            offsets=np.append(of_kinds[:, 0], len(keys)),
            ids=feature_ids,
            kinds=of_kinds,
        )


def _distinct(hashes: NDArray[np.int64]) -> tuple[NDArray[np.int64], NDArray[np.integer[Any]]]:
    """The distinct hashes, increasing, and the index of each hash among them."""
    if len(hashes) < HASHES >> 8:
        return np.unique(hashes, return_inverse=True)
    occurs = np.zeros(HASHES, dtype=bool)  # for many hashes, tables are faster than sorting
    occurs[hashes] = True
    distinct = np.flatnonzero(occurs)
    index = np.empty(HASHES, dtype=np.int32)
    index[distinct] = np.arange(len(distinct))
    return distinct, index[hashes]


def find(ids: NDArray[np.int32], feature_ids: NDArray[np.int32]) -> NDArray[np.int32]:
    """The index of each id among increasing feature ids, (ids,); -1 if it is not one of them."""
    columns = np.searchsorted(feature_ids, ids).astype(np.int32)
    columns[columns == len(feature_ids)] = -1
    columns[feature_ids[columns] != ids] = -1
    return columns


def keep_known(counts: SparseRows, columns: NDArray[np.int32]) -> SparseRows:
    """Drop unknown features; columns become the indices from `find`."""
    known = columns >= 0
    offsets = ends_from_zero(known)[counts.offsets]
    return SparseRows(columns=columns[known], values=counts.values[known], offsets=offsets)


def rarity(counts: Counts, idf: NDArray[np.float32], *, rarest: float) -> NDArray[np.float64]:
    """Measure the rarity of the features of texts, (texts, `RARITY_NUMBERS`).

    The mean inverse document frequencies of the words, pairs, templates and character n-grams of a text, with unknown
    ones as the rarest; then the unknown share of each kind. Both are 0 for a kind that a text lacks. `idf` is that of
    the features of the counts, 0 for unknown ones; `rarest` is that of the rarest known feature.
    """
    numbers = np.diff(counts.kinds, axis=1, append=counts.offsets[1:, None])
    of_features, are_unknown = (
        it[counts.columns] for it in (np.where(idf > 0, idf, np.float32(rarest)), idf == 0)
    )
    starts = counts.kinds.ravel()
    sums = [
        np.add.reduceat(np.append(it, 0), starts).reshape(numbers.shape)
        for it in (of_features, are_unknown)
    ]
    return np.hstack([np.where(numbers > 0, it, 0) / np.maximum(1, numbers) for it in sums])


def tfidf(
    counts: SparseRows, feature_ids: NDArray[np.int32], idf: NDArray[np.float32]
) -> SparseRows:
    """Compute (1 + ln count) * idf of each feature, scaled so that a text's three groups have the `GROUP_NORMS`.

    Columns are indices of the feature ids.
    """
    values = (1 + np.log(counts.values)) * idf[counts.columns]
    vectors = np.repeat(len(GROUP_NORMS) * np.arange(len(counts)), np.diff(counts.offsets))
    for begin in np.searchsorted(feature_ids, (TEMPLATE_IDS, CHAR_NGRAM_IDS)):
        vectors += counts.columns >= begin
    squares = np.bincount(
        vectors, weights=values.astype(np.float64) ** 2, minlength=len(GROUP_NORMS) * len(counts)
    )
    scales = np.tile(GROUP_NORMS, len(counts)) / np.sqrt(np.where(squares > 0, squares, 1))
    return replace(counts, values=(values * scales[vectors]).astype(np.float32))


def _in_chunks(
    texts: TokenizedTexts, max_tokens: int
) -> Iterator[tuple[NDArray[np.int64], NDArray[np.int64]]]:
    """The indices of the tokens of some texts at a time, and `texts + 1` offsets into them."""
    lengths = texts.lengths_within(max_tokens)
    chunk_of = (np.cumsum(lengths) - 1) // TOKENS_AT_ONCE
    bounds = np.flatnonzero(np.diff(chunk_of, prepend=-1, append=-1))
    for chunk in map(slice, bounds[:-1], bounds[1:]):
        yield (
            flat_indices(texts.offsets[:-1][chunk], lengths[chunk]),
            ends_from_zero(lengths[chunk]),
        )


def _words(ids: NDArray[np.int64], position: NDArray[np.int64]) -> Hashed:
    (ends,) = np.nonzero(position)  # without [CLS], which every text has
    return Hashed(ids[ends], ends)


def _pairs(ids: NDArray[np.int64], position: NDArray[np.int64]) -> Iterator[Hashed]:
    for distance in DISTANCES:
        (ends,) = np.nonzero(position >= distance)
        yield Hashed(ids[ends - distance] * PAIR_MULTIPLIER + ids[ends], ends)


def _templates(
    ids: NDArray[np.int64], position: NDArray[np.int64], frequent_token_ids: NDArray[np.int32]
) -> Hashed:
    """Templates of all sizes, with `[MASK]`, which no text has, as the wildcard."""
    slots = np.where((position == 0) | np.isin(ids, frequent_token_ids), ids, MASK_ID)
    of_sizes, grown = [], slots
    for size in TEMPLATE_SIZES:  # each extends the one before by a word
        grown = (np.roll(grown, 1) * PAIR_MULTIPLIER & (HASHES - 1)) + slots
        (ends,) = np.nonzero(position >= size - 1)
        of_sizes.append((grown[ends], ends))
    return Hashed(*(np.concatenate(parts) for parts in zip(*of_sizes, strict=True)))


def _char_ngrams(texts: TokenizedTexts, tokens: NDArray[np.int64]) -> Hashed:
    distinct, words = np.unique(texts.words[tokens], return_inverse=True)
    of_distinct = texts.char_ngrams.take(distinct)
    lengths = np.diff(of_distinct.offsets)[words]
    ends = np.repeat(np.arange(len(words)), lengths)
    return Hashed(
        of_distinct.ngrams.astype(np.int64), ends, flat_indices(of_distinct.offsets[words], lengths)
    )
