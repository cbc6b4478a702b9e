"""Hashed n-gram features of words and tokens.

- words, and pairs of words with and without a word between them;
- n-gram templates: two to six adjacent words, with a wildcard for infrequent ones, as in "what is
  _ of"; the start of a text counts as a word. They capture style rather than subject (Davidov et
  al., "Enhanced Sentiment Learning Using Twitter Hashtags and Smileys", 2010,
  https://aclanthology.org/C10-2028/);
- character n-grams inside words.

A feature's id is the first id of its kind plus a hash, which needs no vocabulary.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from itertools import pairwise
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

# The distances between the two words of a pair: adjacent, or with one word between them.
DISTANCES = (1, 2)

# The numbers of words in an n-gram template.
TEMPLATE_SIZES = range(2, 7)

# A token is frequent if at least one token in this many is that token. So no more than this many
# tokens are frequent.
MAX_FREQUENT = 300

# The number of hash values of each kind of feature: few of a million different n-grams collide.
HASHES = 1 << 22

# Feature ids: words come first, then a range for each distance of pairs, templates, and character
# n-grams. These are the first ids of the last two kinds, and the number of all ids.
TEMPLATE_IDS = HASHES * (1 + len(DISTANCES))
CHAR_NGRAM_IDS = TEMPLATE_IDS + HASHES
NUM_FEATURE_IDS = CHAR_NGRAM_IDS + HASHES


@dataclass(frozen=True, kw_only=True)
class SparseRows:
    """A sparse matrix in compressed rows, one for each text.

    Attributes:
        columns: the column of each value, increasing within a row, (values,).
        values: text `i` has `values[offsets[i]:offsets[i + 1]]`, (values,).
        offsets: where each text begins in both arrays, and the end of the last one, (texts + 1,).
    """

    columns: NDArray[np.int32]
    values: NDArray[np.float32]
    offsets: NDArray[np.int64]

    def __len__(self) -> int:
        return len(self.offsets) - 1


@dataclass(frozen=True, kw_only=True)
class Counts(SparseRows):
    """How often each feature occurs in each text; columns are indices into `ids`.

    Attributes:
        ids: the ids of the features of all these texts, increasing, (features,).
        kinds: where the words, pairs, templates and character n-grams of each text begin in
            `columns` and `values`, (texts, 4).
    """

    ids: NDArray[np.int32]
    kinds: NDArray[np.int64]


class Hashed(NamedTuple):
    """The occurrences of features of one kind.

    Attributes:
        hashes: the hash of each occurrence, or, with `occurrences`, of each listed feature.
        ends: the index of the last token of each occurrence.
        occurrences: the index in `hashes` of each occurrence; by default, they are in order.
    """

    hashes: NDArray[np.int64]
    ends: NDArray[np.int64]
    occurrences: NDArray[np.int64] | slice = slice(None)


def frequent_tokens(texts: TokenizedTexts, *, max_tokens: int) -> NDArray[np.int32]:
    """Return the ids of the frequent tokens, increasing, at most `MAX_FREQUENT` of them."""
    counts = np.zeros(texts.word_ids.max(initial=0) + 1, dtype=np.int64)
    for tokens, _ in _in_chunks(texts, max_tokens):
        counts += np.bincount(texts.input_ids(tokens), minlength=len(counts))

    # Special tokens are not words.
    counts[: len(SPECIAL_TOKENS)] = 0

    is_frequent = counts * MAX_FREQUENT >= max(1, counts.sum())
    return np.flatnonzero(is_frequent).astype(np.int32)


# The first ids of the words, pairs, templates and character n-grams.
KIND_STARTS = (0, HASHES, TEMPLATE_IDS, CHAR_NGRAM_IDS)


def count_features(
    texts: TokenizedTexts,
    *,
    max_tokens: int,
    frequent_token_ids: NDArray[np.int32],
    use_char_ngrams: bool,
) -> Iterator[Counts]:
    """Yield the counts of the features of texts, for some texts at a time.

    In templates, all tokens except `frequent_token_ids` are wildcards. `use_char_ngrams` also
    counts templates and character n-grams, with twenty times the memory.
    """
    for tokens, offsets in _in_chunks(texts, max_tokens):
        token_ids = texts.input_ids(tokens).astype(np.int64)
        lengths = np.diff(offsets)

        # The position of each token in its text. [CLS] is at position 0.
        positions = np.arange(len(token_ids)) - np.repeat(offsets[:-1], lengths)

        kinds = [_words(token_ids, positions), *_pairs(token_ids, positions)]
        if use_char_ngrams:
            kinds.append(_templates(token_ids, positions, frequent_token_ids))
            kinds.append(_char_ngrams(texts, tokens))

        yield _counts(kinds, lengths)


def _counts(kinds: list[Hashed], lengths: NDArray[np.int64]) -> Counts:
    """Count the occurrences of features in texts, by sorting them.

    An occurrence becomes a single number, its key: row * number of columns + column. Once the keys
    are sorted, equal keys are side by side, and the keys of a text are one piece of the array.
    `lengths` are the numbers of tokens of the texts, (texts,).
    """
    num_texts = len(lengths)

    # List the features that occur, kind after kind. Each has a column, the index in this list.
    distinct = []
    columns_in_kinds = []
    for kind in kinds:
        distinct_hashes, columns = _distinct(kind.hashes & (HASHES - 1))
        distinct.append(distinct_hashes)
        columns_in_kinds.append(columns)

    first_columns = ends_from_zero(np.array([len(hashes) for hashes in distinct]))
    num_columns = int(first_columns[-1])

    # Use 32 bits for the keys if that is enough: sorting them takes half the time.
    key_type: Any = np.uint64
    if num_texts * num_columns < 1 << 32:
        key_type = np.uint32

    # Make the key of each occurrence.
    row_keys = (np.arange(num_texts) * num_columns).astype(key_type)
    token_row_keys = np.repeat(row_keys, lengths)
    keys = _occurrence_keys(kinds, columns_in_kinds, first_columns.astype(key_type), token_row_keys)

    # Sort the keys. The length of each run of equal keys is the count of a feature in a text.
    keys.sort()
    is_first = np.concatenate([keys[:1] >= 0, keys[1:] != keys[:-1]])
    (run_starts,) = np.nonzero(is_first)
    counts = np.diff(run_starts, append=len(keys)).astype(np.float32)
    keys = keys[run_starts]

    # A feature's id is the first id of its kind plus its hash.
    ids_of_kinds = [hashes + HASHES * number for number, hashes in enumerate(distinct)]
    feature_ids = np.concatenate(ids_of_kinds).astype(np.int32)

    # Find where the kinds of features begin in each text. A text begins where its words do.
    kind_columns = np.searchsorted(feature_ids, KIND_STARTS).astype(key_type)
    kind_starts = np.searchsorted(keys, row_keys[:, None] + kind_columns)
    text_starts = kind_starts[:, 0]

    # Subtract the part of the row from each key, which leaves the column.
    text_sizes = np.diff(text_starts, append=len(keys))
    columns = keys - np.repeat(row_keys, text_sizes)

    return Counts(
        columns=columns.astype(np.int32),
        values=counts,
        offsets=np.append(text_starts, len(keys)),
        ids=feature_ids,
        kinds=kind_starts,
    )


def _occurrence_keys(
    kinds: list[Hashed],
    columns_in_kinds: list[NDArray[np.integer[Any]]],
    first_columns: NDArray[Any],
    token_row_keys: NDArray[Any],
) -> NDArray[Any]:
    """Return the keys of the occurrences of all kinds, one kind after the other.

    An occurrence belongs to the text of its last token.
    """
    keys = []
    for number, kind in enumerate(kinds):
        hash_columns = first_columns[number] + columns_in_kinds[number].astype(first_columns.dtype)
        keys.append(token_row_keys[kind.ends] + hash_columns[kind.occurrences])
    return np.concatenate(keys)


def _distinct(hashes: NDArray[np.int64]) -> tuple[NDArray[np.int64], NDArray[np.integer[Any]]]:
    """Return the distinct hashes, increasing, and the index of each hash among them."""
    if len(hashes) < HASHES >> 8:
        return np.unique(hashes, return_inverse=True)

    # For many hashes, tables of all possible hashes are faster than sorting.
    occurs = np.zeros(HASHES, dtype=bool)
    occurs[hashes] = True
    distinct = np.flatnonzero(occurs)

    index = np.empty(HASHES, dtype=np.int32)
    index[distinct] = np.arange(len(distinct))
    return distinct, index[hashes]


def find(ids: NDArray[np.int32], feature_ids: NDArray[np.int32]) -> NDArray[np.int32]:
    """Return the index of each id among increasing feature ids, (ids,); -1 where it is missing."""
    columns = np.searchsorted(feature_ids, ids).astype(np.int32)

    # An id above all others is compared with the last feature id below, and differs from it.
    columns[columns == len(feature_ids)] = -1
    columns[feature_ids[columns] != ids] = -1
    return columns


def keep_known(counts: SparseRows, columns: NDArray[np.int32]) -> SparseRows:
    """Drop unknown features; columns become the indices from `find`."""
    is_known = columns >= 0
    return SparseRows(
        columns=columns[is_known],
        values=counts.values[is_known],
        offsets=ends_from_zero(is_known)[counts.offsets],
    )


# The numbers of `rarity` for a text: two for each kind of feature.
NUM_RARITY_FEATURES = 2 * len(KIND_STARTS)


def rarity(counts: Counts, idf: NDArray[np.float32], *, rarest: float) -> NDArray[np.float64]:
    """Measure how rare the features of texts are, (texts, `NUM_RARITY_FEATURES`).

    The first numbers are the mean inverse document frequencies of the words, pairs, templates and
    character n-grams of a text, where unknown features count as the rarest; then comes the unknown
    share of each kind. Both are 0 for a kind that a text lacks.

    `idf` belongs to the features of the counts, and is 0 for unknown ones; `rarest` is the inverse
    document frequency of the rarest known feature.
    """
    # Look up both numbers of each feature of each text.
    idf_or_rarest = np.where(idf > 0, idf, np.float32(rarest))
    feature_idf = idf_or_rarest[counts.columns]
    is_unknown = (idf == 0)[counts.columns]

    # Divide sums over each kind by the number of its features in the text.
    num_features = np.diff(counts.kinds, axis=1, append=counts.offsets[1:, None])
    idf_means = _means_of_kinds(feature_idf, counts.kinds, num_features)
    unknown_shares = _means_of_kinds(is_unknown, counts.kinds, num_features)
    return np.hstack([idf_means, unknown_shares])


def _means_of_kinds(
    numbers: NDArray[Any], kind_starts: NDArray[np.int64], num_features: NDArray[np.int64]
) -> NDArray[np.float64]:
    """Return the means of numbers, (values,), over each kind of each text, (texts, kinds)."""
    # The last kinds may start at the end of the array, which `reduceat` needs a number for.
    padded = np.append(numbers, 0)
    sums = np.add.reduceat(padded, kind_starts.ravel()).reshape(num_features.shape)

    # The "sum" of an empty piece is the number at its start.
    sums = np.where(num_features > 0, sums, 0)
    means: NDArray[np.float64] = sums / np.maximum(1, num_features)
    return means


# The norms of three vectors of a text: of its words and pairs, templates, and character n-grams.
GROUP_NORMS = (1.0, 0.4, 1.0)


def tfidf(
    counts: SparseRows, feature_ids: NDArray[np.int32], idf: NDArray[np.float32]
) -> SparseRows:
    """Weight features by (1 + ln count) * idf, and scale each of a text's groups to its norm.

    The groups are words and pairs, templates, and character n-grams; their norms are
    `GROUP_NORMS`. Columns are indices of `feature_ids`, (features,), and `idf`, (features,).
    """
    values = (1 + np.log(counts.values)) * idf[counts.columns]

    # Number the groups of all texts: text `i` has the groups 3 * i, 3 * i + 1 and 3 * i + 2.
    first_groups = len(GROUP_NORMS) * np.arange(len(counts))
    groups = np.repeat(first_groups, np.diff(counts.offsets))
    for start in np.searchsorted(feature_ids, (TEMPLATE_IDS, CHAR_NGRAM_IDS)):
        groups += counts.columns >= start

    # Scale the values of each group to the norm of the group.
    num_groups = len(GROUP_NORMS) * len(counts)
    squares = np.bincount(groups, weights=values.astype(np.float64) ** 2, minlength=num_groups)
    norms = np.sqrt(np.where(squares > 0, squares, 1))
    scales = np.tile(GROUP_NORMS, len(counts)) / norms
    return replace(counts, values=(values * scales[groups]).astype(np.float32))


# The tokens that are counted at a time: counting takes many times the memory of the counts, and
# sorting more at once is slower.
TOKENS_AT_ONCE = 1 << 15


def _in_chunks(
    texts: TokenizedTexts, max_tokens: int
) -> Iterator[tuple[NDArray[np.int64], NDArray[np.int64]]]:
    """Yield the indices of the tokens of some texts at a time, and the offsets of the texts."""
    lengths = texts.lengths_within(max_tokens)
    starts = texts.offsets[:-1]

    # A text belongs to the chunk in which its last token lies.
    chunks = (np.cumsum(lengths) - 1) // TOKENS_AT_ONCE
    bounds = np.flatnonzero(np.diff(chunks, prepend=-1, append=-1))

    for first, end in pairwise(bounds):
        chunk_lengths = lengths[first:end]
        yield flat_indices(starts[first:end], chunk_lengths), ends_from_zero(chunk_lengths)


def _words(token_ids: NDArray[np.int64], positions: NDArray[np.int64]) -> Hashed:
    """Return all tokens except `[CLS]`, which every text has."""
    (ends,) = np.nonzero(positions)
    return Hashed(token_ids[ends], ends)


def _pairs(token_ids: NDArray[np.int64], positions: NDArray[np.int64]) -> Iterator[Hashed]:
    """Yield the pairs of tokens of each distance; `[CLS]` is one of the tokens."""
    for distance in DISTANCES:
        (ends,) = np.nonzero(positions >= distance)
        hashes = token_ids[ends - distance] * PAIR_MULTIPLIER + token_ids[ends]
        yield Hashed(hashes, ends)


def _templates(
    token_ids: NDArray[np.int64],
    positions: NDArray[np.int64],
    frequent_token_ids: NDArray[np.int32],
) -> Hashed:
    """Return the templates of all sizes, with `[MASK]`, which no text has, as the wildcard."""
    is_kept = (positions == 0) | np.isin(token_ids, frequent_token_ids)
    slots = np.where(is_kept, token_ids, MASK_ID)

    # Start with templates of one word. Each round extends those of the round before by a word:
    # the hash of a template is that of its first words times a multiplier, plus the last word.
    hashes = slots
    hashes_of_sizes = []
    ends_of_sizes = []
    for size in TEMPLATE_SIZES:
        hashes = (np.roll(hashes, 1) * PAIR_MULTIPLIER & (HASHES - 1)) + slots

        # Leave out those that would begin before the text.
        (ends,) = np.nonzero(positions >= size - 1)
        hashes_of_sizes.append(hashes[ends])
        ends_of_sizes.append(ends)

    return Hashed(np.concatenate(hashes_of_sizes), np.concatenate(ends_of_sizes))


def _char_ngrams(texts: TokenizedTexts, tokens: NDArray[np.int64]) -> Hashed:
    """Return the character n-grams of tokens; those of a word that occurs twice are listed once."""
    distinct_words, words = np.unique(texts.words[tokens], return_inverse=True)
    listed = texts.char_ngrams.take(distinct_words)

    # Each token has the n-grams of its word.
    lengths = np.diff(listed.offsets)[words]
    ends = np.repeat(np.arange(len(words)), lengths)
    occurrences = flat_indices(listed.offsets[words], lengths)
    return Hashed(listed.ngrams.astype(np.int64), ends, occurrences)
