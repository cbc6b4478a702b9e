"""Occurrences n-gram features of words and tokens.

- words, and pairs of words with and without a word between them;
- n-gram templates: two to six adjacent words, with a wildcard for infrequent ones, as in "what is
  _ of"; the start of a text counts as a word. They capture style rather than subject (Davidov et
  al., "Enhanced Sentiment Learning Using Twitter Hashtags and Smileys", 2010,
  https://aclanthology.org/C10-2028/);
- character n-grams inside words.

A feature's id is the first id of its kind plus a hash, which needs no vocabulary.
"""

from __future__ import annotations

from collections import Counter
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
    flat_indices,
    offsets_of_lengths,
)

# The distances between the two words of a pair: adjacent, or with one word between them.
DISTANCES = (1, 2)

# The numbers of words in an n-gram template.
TEMPLATE_SIZES = range(2, 7)

# A word or piece of the tokenizer's vocabulary is frequent if it makes up at least 1 / MAX_FREQUENT
# of all tokens, so there are at most MAX_FREQUENT of them.
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
        values: the values of all texts, of which text `i` has `values[offsets[i]:offsets[i + 1]]`,
            (values,).
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
        ids: the id of the feature of each column, increasing, (features,).
        kinds: where the words, pairs, templates and character n-grams of each text begin in
            `columns` and `values`, (texts, 4).
    """

    ids: NDArray[np.int32]
    kinds: NDArray[np.int64]


class Occurrences(NamedTuple):
    """The occurrences of features of one range of feature ids, such as words, in some texts.

    Attributes:
        hashes: the hashes of features. They may be listed once for many occurrences.
        ends: the index of the last token of each occurrence, (occurrences,).
        indices: the index in `hashes` of each occurrence, (occurrences,); by default occurrence `i`
            has hash `i`.
    """

    hashes: NDArray[np.int64]
    ends: NDArray[np.int64]
    indices: NDArray[np.int64] | slice = slice(None)


def frequent_tokens(texts: TokenizedTexts, *, max_tokens: int) -> NDArray[np.int32]:
    """Return the ids of the frequent tokens of texts, increasing, at most `MAX_FREQUENT` of them.

    Only the first `max_tokens` tokens of each text count.
    """
    counts = np.zeros(texts.word_ids.max(initial=0) + 1, dtype=np.int64)
    for tokens, _ in _in_chunks(texts, max_tokens):
        counts += np.bincount(texts.input_ids(tokens), minlength=len(counts))

    # Special tokens are not words.
    counts[: len(SPECIAL_TOKENS)] = 0

    is_frequent = counts * MAX_FREQUENT >= max(1, counts.sum())
    return np.flatnonzero(is_frequent).astype(np.int32)


# The first feature id of each kind of feature: words, pairs (of both distances), templates, and
# character n-grams.
KIND_STARTS = (0, HASHES, TEMPLATE_IDS, CHAR_NGRAM_IDS)


def count_features(
    texts: TokenizedTexts,
    *,
    max_tokens: int,
    frequent_token_ids: NDArray[np.int32],
    use_char_ngrams: bool,
) -> Iterator[Counts]:
    """Yield the counts of the features of texts, for some texts at a time.

    Args:
        texts: the tokenized texts.
        max_tokens: how many tokens of a text are read, `[CLS]` included.
        frequent_token_ids: the ids of the tokens that templates keep, increasing; the templates
            replace all other tokens by a wildcard.
        use_char_ngrams: whether to also count templates and character n-grams, which takes twenty
            times the memory.
    """
    for tokens, offsets in _in_chunks(texts, max_tokens):
        token_ids = texts.input_ids(tokens).astype(np.int64)
        lengths = np.diff(offsets)

        # The position of each token in its text. [CLS] is at position 0.
        positions = np.arange(len(token_ids)) - np.repeat(offsets[:-1], lengths)

        # List the occurrences of each range of feature ids, in the order of ids. Pairs have a range
        # for each distance.
        ranges = [_words(token_ids, positions), *_pairs(token_ids, positions)]
        if use_char_ngrams:
            ranges.append(_templates(token_ids, positions, frequent_token_ids))
            ranges.append(_char_ngrams(texts, tokens))

        yield _counts(ranges, lengths)


# The ids of pairs of neighbouring words.
NEIGHBOUR_IDS = range(HASHES, 2 * HASHES)


def find_neighbours(
    texts: TokenizedTexts, ids: NDArray[np.int32], *, max_tokens: int
) -> dict[int, tuple[int, int]]:
    """Find the tokens of pairs of neighbouring words by the ids of their features.

    If several pairs have the same id, the most frequent one is found.

    Args:
        texts: the texts in which the pairs are looked up.
        ids: the ids of pairs, among `NEIGHBOUR_IDS`, (ids,).
        max_tokens: how many tokens of a text are read, `[CLS]` included.

    Returns:
        The first and the second token by the id of the pair. Ids of pairs that no text has are
        missing.
    """
    counts: Counter[tuple[int, int, int]] = Counter()
    for tokens, offsets in _in_chunks(texts, max_tokens):
        token_ids = texts.input_ids(tokens).astype(np.int64)
        positions = np.arange(len(token_ids)) - np.repeat(offsets[:-1], np.diff(offsets))
        neighbours = next(_pairs(token_ids, positions))

        pair_ids = NEIGHBOUR_IDS.start + (neighbours.hashes & (HASHES - 1))
        is_wanted = np.isin(pair_ids, ids)
        ends = neighbours.ends[is_wanted]
        columns = [pair_ids[is_wanted], token_ids[ends - 1], token_ids[ends]]
        counts.update(zip(*(column.tolist() for column in columns), strict=True))

    found: dict[int, tuple[int, int]] = {}
    for (pair_id, first, second), _ in counts.most_common():
        found.setdefault(pair_id, (first, second))
    return found


def _counts(ranges: list[Occurrences], lengths: NDArray[np.int64]) -> Counts:
    """Count the occurrences of features in texts, by sorting them.

    An occurrence becomes a single number, its key: row * number of columns + column. Once the keys
    are sorted, equal keys are side by side, and the keys of a text are one piece of the array.

    Args:
        ranges: the occurrences of each range of feature ids, in the order of the ranges.
        lengths: the number of tokens of each text, (texts,).
    """
    num_texts = len(lengths)

    # List the features that occur, range by range. The index of a feature in this list is its
    # column.
    distinct = []
    columns_in_ranges = []
    for occurrences in ranges:
        distinct_hashes, columns = _distinct(occurrences.hashes & (HASHES - 1))
        distinct.append(distinct_hashes)
        columns_in_ranges.append(columns)

    first_columns = offsets_of_lengths(np.array([len(hashes) for hashes in distinct]))
    num_columns = int(first_columns[-1])

    # Use 32 bits for the keys if that is enough: sorting them takes half the time.
    key_type: Any = np.uint64
    if num_texts * num_columns < 1 << 32:
        key_type = np.uint32

    # Make the key of each occurrence.
    row_keys = (np.arange(num_texts) * num_columns).astype(key_type)
    token_row_keys = np.repeat(row_keys, lengths)
    keys = _occurrence_keys(
        ranges, columns_in_ranges, first_columns.astype(key_type), token_row_keys
    )

    # Sort the keys. The length of each run of equal keys is the count of a feature in a text. The
    # first key, if there is one, begins a run: keys are never negative.
    keys.sort()
    is_first = np.concatenate([keys[:1] >= 0, keys[1:] != keys[:-1]])
    (run_starts,) = np.nonzero(is_first)
    counts = np.diff(run_starts, append=len(keys)).astype(np.float32)
    keys = keys[run_starts]

    # A feature's id is the first id of its range plus its hash.
    ids_of_ranges = [hashes + HASHES * number for number, hashes in enumerate(distinct)]
    feature_ids = np.concatenate(ids_of_ranges).astype(np.int32)

    # Find where the kinds of features begin in each text. A text begins where its words do.
    kind_columns = np.searchsorted(feature_ids, KIND_STARTS).astype(key_type)
    kind_starts = np.searchsorted(keys, row_keys[:, None] + kind_columns)
    text_starts = kind_starts[:, 0]

    # Subtract row * number of columns from each key, which leaves the column.
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
    ranges: list[Occurrences],
    columns_in_ranges: list[NDArray[np.integer[Any]]],
    first_columns: NDArray[Any],
    token_row_keys: NDArray[Any],
) -> NDArray[Any]:
    """Return the keys of the occurrences of all ranges of feature ids, range by range.

    An occurrence belongs to the text of its last token.

    Args:
        ranges: the occurrences of each range of feature ids.
        columns_in_ranges: the index of each hash of a range among the distinct hashes of the range.
        first_columns: the column of the first feature of each range.
        token_row_keys: row * number of columns of the text of each token, (tokens,).
    """
    keys = []
    for number, occurrences in enumerate(ranges):
        hash_columns = first_columns[number] + columns_in_ranges[number].astype(first_columns.dtype)
        keys.append(token_row_keys[occurrences.ends] + hash_columns[occurrences.indices])
    return np.concatenate(keys)


def _distinct(hashes: NDArray[np.int64]) -> tuple[NDArray[np.int64], NDArray[np.integer[Any]]]:
    """Return the distinct hashes, increasing, and the index of each hash among them."""
    if len(hashes) < HASHES >> 8:
        return np.unique(hashes, return_inverse=True)

    # For many hashes, use tables of all possible hashes, which are faster than sorting.
    occurs = np.zeros(HASHES, dtype=bool)
    occurs[hashes] = True
    distinct = np.flatnonzero(occurs)

    index = np.empty(HASHES, dtype=np.int32)
    index[distinct] = np.arange(len(distinct))
    return distinct, index[hashes]


def find(ids: NDArray[np.int32], feature_ids: NDArray[np.int32]) -> NDArray[np.int32]:
    """Return the index of each id among increasing feature ids, (ids,); -1 if it is missing."""
    columns = np.searchsorted(feature_ids, ids).astype(np.int32)

    # `searchsorted` returns `len(feature_ids)` for an id above all feature ids. The index -1
    # compares the id with the last feature id, from which it differs.
    columns[columns == len(feature_ids)] = -1
    columns[feature_ids[columns] != ids] = -1
    return columns


def keep_known(counts: SparseRows, columns: NDArray[np.int32]) -> SparseRows:
    """Drop the values of unknown features, and renumber the columns.

    Args:
        counts: how often each text has each feature.
        columns: the new column of each value, (values,); -1 if its feature is unknown.
    """
    is_known = columns >= 0
    return SparseRows(
        columns=columns[is_known],
        values=counts.values[is_known],
        offsets=offsets_of_lengths(is_known)[counts.offsets],
    )


# How many numbers `rarity` returns for each text: two for each kind of feature.
NUM_RARITY_FEATURES = 2 * len(KIND_STARTS)


def rarity(counts: Counts, idf: NDArray[np.float32], *, rarest: float) -> NDArray[np.float64]:
    """Measure how rare the features of texts are, (texts, `NUM_RARITY_FEATURES`).

    The first numbers are the mean inverse document frequencies of the words, pairs, templates and
    character n-grams of a text, where an unknown feature counts as the rarest known one. The other
    numbers are the shares of the words, pairs, templates and character n-grams that are unknown.
    Both numbers are 0 for a kind that a text lacks.

    Args:
        counts: how often each text has each feature.
        idf: the inverse document frequency of each feature of the counts, (features,); 0 for an
            unknown feature.
        rarest: the inverse document frequency of the rarest known feature.
    """
    # Look up the inverse document frequency of each value, and whether its feature is unknown.
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
    """Return the mean of the numbers of each kind in each text, (texts, kinds).

    Args:
        numbers: a number for each value of the counts, (values,).
        kind_starts: where each kind begins in `numbers`, (texts, kinds).
        num_features: how many numbers each kind has, (texts, kinds).
    """
    # Append a number: the last kinds may start at the end of the array, which `reduceat` refuses.
    padded = np.append(numbers, 0)
    sums = np.add.reduceat(padded, kind_starts.ravel()).reshape(num_features.shape)

    # For an empty kind, `reduceat` returns the number at its start: replace it by 0.
    sums = np.where(num_features > 0, sums, 0)
    means: NDArray[np.float64] = sums / np.maximum(1, num_features)
    return means


# A text has three vectors: of words and pairs, of templates, and of character n-grams. Each vector
# is scaled to its norm here.
GROUP_NORMS = (1.0, 0.4, 1.0)


def tfidf(
    counts: SparseRows, feature_ids: NDArray[np.int32], idf: NDArray[np.float32]
) -> SparseRows:
    """Weight features by (1 + ln count) * idf, and scale each of a text's groups to its norm.

    The groups are words and pairs, templates, and character n-grams. Their norms are `GROUP_NORMS`.

    Args:
        counts: how often each text has each feature.
        feature_ids: the id of the feature of each column, increasing, (features,).
        idf: the inverse document frequency of the feature of each column, (features,).
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


# The approximate number of tokens that are counted at a time. Counting takes many times the memory
# of the counts, and sorting more tokens at once is slower.
TOKENS_AT_ONCE = 1 << 15


def _in_chunks(
    texts: TokenizedTexts, max_tokens: int
) -> Iterator[tuple[NDArray[np.int64], NDArray[np.int64]]]:
    """Yield the token indices of some texts at a time, and the offsets of the texts in them."""
    lengths = texts.lengths_within(max_tokens)
    starts = texts.offsets[:-1]

    # A text belongs to the chunk in which its last token lies.
    chunks = (np.cumsum(lengths) - 1) // TOKENS_AT_ONCE
    bounds = np.flatnonzero(np.diff(chunks, prepend=-1, append=-1))

    for first, end in pairwise(bounds):
        chunk_lengths = lengths[first:end]
        yield flat_indices(starts[first:end], chunk_lengths), offsets_of_lengths(chunk_lengths)


def _words(token_ids: NDArray[np.int64], positions: NDArray[np.int64]) -> Occurrences:
    """Return the occurrences of all tokens except `[CLS]`, which every text has."""
    (ends,) = np.nonzero(positions)
    return Occurrences(token_ids[ends], ends)


def _pairs(token_ids: NDArray[np.int64], positions: NDArray[np.int64]) -> Iterator[Occurrences]:
    """Yield the pairs of tokens at each distance; `[CLS]` counts as a token."""
    for distance in DISTANCES:
        (ends,) = np.nonzero(positions >= distance)
        hashes = token_ids[ends - distance] * PAIR_MULTIPLIER + token_ids[ends]
        yield Occurrences(hashes, ends)


def _templates(
    token_ids: NDArray[np.int64],
    positions: NDArray[np.int64],
    frequent_token_ids: NDArray[np.int32],
) -> Occurrences:
    """Return the templates of all sizes, with `[MASK]`, which no text has, as the wildcard."""
    is_kept = (positions == 0) | np.isin(token_ids, frequent_token_ids)
    slots = np.where(is_kept, token_ids, MASK_ID)

    # Start with templates of one word. Each round appends a word to all templates: the new hash is
    # the hash of the template so far times a multiplier, plus the id of the new word.
    hashes = slots
    hashes_of_sizes = []
    ends_of_sizes = []
    for size in TEMPLATE_SIZES:
        hashes = (np.roll(hashes, 1) * PAIR_MULTIPLIER & (HASHES - 1)) + slots

        # Leave out templates that would begin before the text.
        (ends,) = np.nonzero(positions >= size - 1)
        hashes_of_sizes.append(hashes[ends])
        ends_of_sizes.append(ends)

    return Occurrences(np.concatenate(hashes_of_sizes), np.concatenate(ends_of_sizes))


def _char_ngrams(texts: TokenizedTexts, tokens: NDArray[np.int64]) -> Occurrences:
    """Return the character n-grams of tokens; the hashes of a word's n-grams are listed once."""
    distinct_words, words = np.unique(texts.words[tokens], return_inverse=True)
    listed = texts.char_ngrams.take(distinct_words)

    # Each token has the n-grams of its word.
    lengths = np.diff(listed.offsets)[words]
    ends = np.repeat(np.arange(len(words)), lengths)
    occurrences = flat_indices(listed.offsets[words], lengths)
    return Occurrences(listed.ngrams.astype(np.int64), ends, occurrences)
