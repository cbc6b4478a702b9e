"""N-gram features of words and tokens.

- words, and pairs of words with and without a word between them;
- n-gram templates: two to six adjacent words, with a wildcard for infrequent ones, as in "what is
  _ of"; the start of a text counts as a word. They capture style rather than subject (Davidov et
  al., "Enhanced Sentiment Learning Using Twitter Hashtags and Smileys", 2010,
  https://aclanthology.org/C10-2028/);
- character n-grams inside words;
- of rows of several columns: the tokens of features, and pairs of a word with the mark of its
  field, or with a feature.

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
    FEATURE,
    FIELD,
    MASK_ID,
    PAIR_MULTIPLIER,
    SPECIAL_TOKENS,
    UNK_ID,
    WORD,
    TokenizedTexts,
    flat_indices,
    offsets_of_lengths,
)

# The distances between the two words of a pair: adjacent, or with one word between them.
DISTANCES = (1, 2)

TEMPLATE_SIZES = range(2, 7)

# A word or piece of the tokenizer's vocabulary is frequent if it makes up at least 1 / MAX_FREQUENT
# of all tokens, so there are at most MAX_FREQUENT of them.
MAX_FREQUENT = 300

# The number of hash values of each kind of feature: few of a million different n-grams collide.
HASHES = 1 << 22

# Feature ids: words come first, then a range for each distance of pairs, templates, character
# n-grams, tokens of features, and pairs of words with fields and with features. These are the first
# ids of all but the first two kinds, and the number of all ids.
TEMPLATE_IDS = HASHES * (1 + len(DISTANCES))
CHAR_NGRAM_IDS = TEMPLATE_IDS + HASHES
COLUMN_IDS = CHAR_NGRAM_IDS + HASHES
FIELD_PAIR_IDS = COLUMN_IDS + HASHES
FEATURE_PAIR_IDS = FIELD_PAIR_IDS + HASHES
NUM_FEATURE_IDS = FEATURE_PAIR_IDS + HASHES


@dataclass(frozen=True, kw_only=True)
class SparseRows:
    """A sparse matrix, a row for each text: `values[offsets[i]:offsets[i + 1]]`.

    Attributes:
        columns: increasing within a row.
        offsets: (texts + 1,).
    """

    columns: NDArray[np.int32]
    values: NDArray[np.float32]
    offsets: NDArray[np.int64]

    def __len__(self) -> int:
        return len(self.offsets) - 1


@dataclass(frozen=True, kw_only=True)
class Counts(SparseRows):
    """Counts of features in texts; columns are indices into `ids`.

    Attributes:
        ids: increasing, (features,).
        kinds: where features of the `KIND_STARTS` begin in each text, (texts, kinds).
        kind_sizes: of these, (texts, kinds).
    """

    ids: NDArray[np.int32]
    kinds: NDArray[np.int64]
    kind_sizes: NDArray[np.int64]


class Occurrences(NamedTuple):
    """The occurrences of features of one range of ids, such as words.

    Attributes:
        first_id: of the range.
        hashes: of features, (occurrences,).
        ends: of the last token of each.
    """

    first_id: int
    hashes: NDArray[np.integer[Any]]
    ends: NDArray[np.int64]


def frequent_tokens(texts: TokenizedTexts, *, max_tokens: int) -> NDArray[np.int32]:
    """The ids of at most `MAX_FREQUENT` frequent tokens, increasing."""
    counts = np.zeros(texts.word_ids.max(initial=0) + 1, dtype=np.int64)
    for tokens, _ in in_chunks(texts, max_tokens):
        counts += np.bincount(texts.input_ids(tokens), minlength=len(counts))

    # Special tokens are not words.
    counts[: len(SPECIAL_TOKENS)] = 0

    is_frequent = counts * MAX_FREQUENT >= max(1, counts.sum())
    return np.flatnonzero(is_frequent).astype(np.int32)


# The first feature id of each kind of feature: words, pairs (of both distances), templates,
# character n-grams, tokens of features, and pairs with fields and with features.
KIND_STARTS = (
    0,
    HASHES,
    TEMPLATE_IDS,
    CHAR_NGRAM_IDS,
    COLUMN_IDS,
    FIELD_PAIR_IDS,
    FEATURE_PAIR_IDS,
)
# The index of character n-grams among the kinds; those of texts come up to it.
CHAR_NGRAM_KIND = 3


def count_features(
    texts: TokenizedTexts,
    *,
    max_tokens: int,
    frequent_token_ids: NDArray[np.int32],
    use_char_ngrams: bool,
    use_feature_pairs: bool = False,
) -> Iterator[Counts]:
    """Count features, chunk by chunk.

    The first `max_tokens` of a text are read, `[CLS]` included. Templates, which keep
    `frequent_token_ids`, and character n-grams take twenty times the memory, and need
    `use_char_ngrams`.
    """
    for tokens, offsets in in_chunks(texts, max_tokens):
        yield count_in_chunk(
            texts,
            tokens,
            offsets,
            frequent_token_ids=frequent_token_ids,
            use_char_ngrams=use_char_ngrams,
            use_feature_pairs=use_feature_pairs,
        )


def count_in_chunk(
    texts: TokenizedTexts,
    tokens: NDArray[np.int64],
    offsets: NDArray[np.int64],
    *,
    frequent_token_ids: NDArray[np.int32],
    use_char_ngrams: bool,
    use_feature_pairs: bool = False,
    only_repeated_char_ngrams: bool = False,
) -> Counts:
    """Count the features of a chunk, of which `in_chunks` yields the tokens and the offsets.

    With `only_repeated_char_ngrams`, those that a text has once are left out.
    """

    def ranges_of_texts(
        tokens: NDArray[np.int64], offsets: NDArray[np.int64]
    ) -> Iterator[Occurrences]:
        token_ids = texts.input_ids(tokens).astype(np.int64)

        # The position of each token in its text. [CLS] is at position 0.
        positions = np.arange(len(token_ids)) - np.repeat(offsets[:-1], np.diff(offsets))

        yield _words(token_ids, positions)
        yield from _pairs(token_ids, positions)
        if use_char_ngrams:
            yield _templates(token_ids, positions, frequent_token_ids)
            yield _char_ngrams(texts, tokens)

    # List the occurrences of each range of feature ids, in the order of ids.
    kinds = texts.kinds_of(tokens)
    ranges: list[Occurrences] = []
    if kinds is None:
        ranges += ranges_of_texts(tokens, offsets)
    else:
        # Take the tokens of features out: they are between [CLS] and the words.
        is_text = kinds != FEATURE
        (kept,) = np.nonzero(is_text)
        for occurrences in ranges_of_texts(tokens[kept], offsets_of_lengths(is_text)[offsets]):
            ranges.append(occurrences._replace(ends=kept[occurrences.ends]))
        ranges += _of_columns(
            texts.input_ids(tokens).astype(np.int64),
            kinds,
            offsets,
            use_feature_pairs=use_feature_pairs,
        )

    lengths = np.diff(offsets)
    return _counts(ranges, lengths, only_repeated_char_ngrams=only_repeated_char_ngrams)


def ids_of_unknown_words(
    texts: TokenizedTexts, tokens: NDArray[np.int64], offsets: NDArray[np.int64]
) -> NDArray[np.int32]:
    """The ids of features with an unknown word: `[UNK]`, and its pairs."""
    kinds = texts.kinds_of(tokens)
    if kinds is not None:
        is_text = kinds != FEATURE
        tokens = tokens[is_text]
        offsets = offsets_of_lengths(is_text)[offsets]
    token_ids = texts.input_ids(tokens).astype(np.int64)
    positions = np.arange(len(token_ids)) - np.repeat(offsets[:-1], np.diff(offsets))

    is_unknown = token_ids == UNK_ID
    ids = [np.array([UNK_ID])]
    for distance, (first_id, hashes, ends) in zip(
        DISTANCES, _pairs(token_ids, positions), strict=True
    ):
        has_unknown = is_unknown[ends] | is_unknown[ends - distance]
        ids.append(first_id + (hashes[has_unknown] & (HASHES - 1)))
    return np.unique(np.concatenate(ids)).astype(np.int32)


# The ids of pairs of neighbouring words.
NEIGHBOUR_IDS = range(HASHES, 2 * HASHES)


def find_neighbours(
    texts: TokenizedTexts, ids: NDArray[np.int32], *, max_tokens: int
) -> dict[int, tuple[int, int]]:
    """Find the tokens of neighbouring pairs, by ids among `NEIGHBOUR_IDS`.

    Ids that no text has are missing; of pairs with one id, the most frequent is found.
    """
    counts: Counter[tuple[int, int, int]] = Counter()
    for tokens, offsets in in_chunks(texts, max_tokens):
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


def _counts(
    ranges: list[Occurrences], lengths: NDArray[np.int64], *, only_repeated_char_ngrams: bool
) -> Counts:
    num_texts = len(lengths)
    texts_of_tokens = np.repeat(np.arange(num_texts, dtype=np.uint32), lengths)

    # Count range by range. This gives the counts of all texts, in the order of feature ids.
    ids_of_ranges = []
    texts_of_ranges = []
    counts_of_ranges = []
    sizes = np.zeros((num_texts, len(KIND_STARTS)), dtype=np.int64)
    for occurrences in ranges:
        first_id = occurrences.first_id
        kind = int(np.searchsorted(KIND_STARTS, first_id, side="right")) - 1
        only_repeated = only_repeated_char_ngrams and kind == CHAR_NGRAM_KIND

        keys, counts = _count_keys(occurrences, texts_of_tokens, only_repeated=only_repeated)
        ids_of_ranges.append((keys >> TEXT_BITS).astype(np.int32) + np.int32(first_id))
        counts_of_ranges.append(counts.astype(np.float32))

        texts = (keys & (MAX_TEXTS_AT_ONCE - 1)).astype(np.uint16)
        texts_of_ranges.append(texts)
        sizes[:, kind] += np.bincount(texts, minlength=num_texts)

    # List the features that occur. The index of a feature in this list is its column.
    ids = np.concatenate(ids_of_ranges)
    is_new_id = np.ones(len(ids), dtype=bool)
    is_new_id[1:] = ids[1:] != ids[:-1]
    columns = np.cumsum(is_new_id, dtype=np.int32) - np.int32(1)

    # Group the counts by text. A stable sort keeps the order of ids, and it is fast for numbers of
    # 16 bits.
    order = np.argsort(np.concatenate(texts_of_ranges), kind="stable")
    kind_starts = offsets_of_lengths(sizes.ravel())

    return Counts(
        columns=columns[order],
        values=np.concatenate(counts_of_ranges)[order],
        offsets=kind_starts[:: len(KIND_STARTS)],
        ids=ids[is_new_id],
        kinds=kind_starts[:-1].reshape(sizes.shape),
        kind_sizes=sizes,
    )


# The bits of a key that are left for the text if a hash takes the others of 32 bits.
TEXT_BITS = 32 - (HASHES - 1).bit_length()
# The maximum number of texts that are counted at a time.
MAX_TEXTS_AT_ONCE = 1 << TEXT_BITS


def _count_keys(
    occurrences: Occurrences, texts_of_tokens: NDArray[np.uint32], *, only_repeated: bool
) -> tuple[NDArray[np.uint32], NDArray[np.int64]]:
    """Find distinct keys, increasing, and how often each occurs.

    A key of 32 bits is the hash of the feature, then the text of its last token; sorted, equal ones
    are side by side.
    """
    keys = occurrences.hashes.astype(np.uint32)
    keys <<= TEXT_BITS
    keys |= texts_of_tokens[occurrences.ends]
    keys.sort()

    # Find the runs of equal keys. The length of a run is the count of its key.
    if only_repeated:
        # Look only at the keys that equal the next one, because they are few. Those of a run are
        # side by side, so their indices less their numbers are equal. The run has one more key.
        indices = np.flatnonzero(keys[1:] == keys[:-1])
        bounds = bounds_of_runs(indices - np.arange(len(indices)))
        run_starts = indices[bounds[:-1]]
        counts = bounds[1:] - bounds[:-1] + 1
    else:
        bounds = bounds_of_runs(keys)
        run_starts = bounds[:-1]
        counts = bounds[1:] - bounds[:-1]
    return keys[run_starts], counts


def bounds_of_runs(numbers: NDArray[Any]) -> NDArray[np.int64]:
    """The bounds of runs of equal numbers, from 0 to the end, (runs + 1,)."""
    is_bound = np.ones(len(numbers) + 1, dtype=bool)
    is_bound[1:-1] = numbers[1:] != numbers[:-1]
    return np.flatnonzero(is_bound)


def find(ids: NDArray[np.int32], feature_ids: NDArray[np.int32]) -> NDArray[np.int32]:
    """The index of each id among increasing ones; -1 where it is missing."""
    columns = np.searchsorted(feature_ids, ids).astype(np.int32)

    # `searchsorted` returns `len(feature_ids)` for an id above all feature ids. The index -1
    # compares the id with the last feature id, from which it differs.
    columns[columns == len(feature_ids)] = -1
    columns[feature_ids[columns] != ids] = -1
    return columns


def keep_known(counts: SparseRows, columns: NDArray[np.int32]) -> SparseRows:
    """Drop unknown features, and renumber columns.

    `columns` has the new column of each value; -1 if its feature is unknown.
    """
    is_known = columns >= 0
    return SparseRows(
        columns=columns[is_known],
        values=counts.values[is_known],
        offsets=offsets_of_lengths(is_known)[counts.offsets],
    )


# A text has six vectors: of words and pairs, of templates, of character n-grams, of the tokens of
# features, and of pairs with fields and with features. Each vector is scaled to its norm here.
GROUP_NORMS = (1.0, 0.4, 1.0, 0.2, 0.5, 1.0)
# The group of each kind of feature.
GROUPS_OF_KINDS = (0, 0, 1, 2, 3, 4, 5)


def scales_of_kinds(squares: NDArray[np.float64]) -> NDArray[np.float64]:
    """The factors that scale groups of kinds to their norms.

    `squares` are the summed squares of each kind, (texts, kinds).
    """
    squares_of_groups = np.zeros((len(squares), len(GROUP_NORMS)))
    for kind, group in enumerate(GROUPS_OF_KINDS):
        squares_of_groups[:, group] += squares[:, kind]

    norms = np.sqrt(np.where(squares_of_groups > 0, squares_of_groups, 1))
    scales: NDArray[np.float64] = np.array(GROUP_NORMS) / norms
    return scales[:, GROUPS_OF_KINDS]


def tfidf(
    counts: SparseRows, feature_ids: NDArray[np.int32], idf: NDArray[np.float32]
) -> SparseRows:
    """Weight features by (1 + ln count) * idf, and scale each group of a text (`GROUP_NORMS`)."""
    values = (1 + np.log(counts.values)) * idf[counts.columns]

    # Number the groups of all texts: those of a text follow those of the text before it.
    first_groups = len(GROUP_NORMS) * np.arange(len(counts))
    groups = np.repeat(first_groups, np.diff(counts.offsets))
    for start in np.searchsorted(feature_ids, KIND_STARTS[2:]):
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


def in_chunks(
    texts: TokenizedTexts, max_tokens: int
) -> Iterator[tuple[NDArray[np.int64], NDArray[np.int64]]]:
    """Divide texts into chunks to count together.

    Yields:
        The indices of a chunk's tokens, and where its texts begin in them, (texts + 1,).
    """
    lengths = texts.lengths_within(max_tokens)
    starts = texts.offsets[:-1]

    # A text belongs to the piece in which its last token lies. A chunk ends where a piece ends, or
    # a block of as many texts as can be counted at a time.
    pieces = (np.cumsum(lengths) - 1) // TOKENS_AT_ONCE
    blocks = np.arange(len(texts)) // MAX_TEXTS_AT_ONCE
    for first, end in pairwise(bounds_of_runs(pieces + blocks)):
        chunk_lengths = lengths[first:end]
        yield flat_indices(starts[first:end], chunk_lengths), offsets_of_lengths(chunk_lengths)


def _words(token_ids: NDArray[np.int64], positions: NDArray[np.int64]) -> Occurrences:
    """All tokens but `[CLS]`, which every text has."""
    (ends,) = np.nonzero(positions)
    return Occurrences(0, token_ids[ends], ends)


def _pairs(token_ids: NDArray[np.int64], positions: NDArray[np.int64]) -> Iterator[Occurrences]:
    """The pairs at each distance; `[CLS]` counts as a token."""
    for distance in DISTANCES:
        (ends,) = np.nonzero(positions >= distance)
        hashes = _pair_hashes(token_ids[ends - distance], token_ids[ends])
        yield Occurrences(HASHES * distance, hashes, ends)


def _pair_hashes(firsts: NDArray[np.int64], seconds: NDArray[np.int64]) -> NDArray[np.int64]:
    return firsts * PAIR_MULTIPLIER + seconds


def _templates(
    token_ids: NDArray[np.int64],
    positions: NDArray[np.int64],
    frequent_token_ids: NDArray[np.int32],
) -> Occurrences:
    """The templates of all sizes, with `[MASK]`, which no text has, as the wildcard."""
    is_kept = (positions == 0) | np.isin(token_ids, frequent_token_ids)
    slots = np.where(is_kept, token_ids, MASK_ID)

    # Start with templates of one word. Each round appends a word to all templates: the new hash is
    # the hash of the template so far times a multiplier, plus the id of the new word.
    hashes = slots
    hashes_of_sizes = []
    ends_of_sizes = []
    for size in TEMPLATE_SIZES:
        hashes_before = np.concatenate([hashes[-1:], hashes[:-1]])
        hashes = (hashes_before * PAIR_MULTIPLIER & (HASHES - 1)) + slots

        # Leave out templates that would begin before the text.
        (ends,) = np.nonzero(positions >= size - 1)
        hashes_of_sizes.append(hashes[ends])
        ends_of_sizes.append(ends)

    return Occurrences(TEMPLATE_IDS, np.concatenate(hashes_of_sizes), np.concatenate(ends_of_sizes))


def _char_ngrams(texts: TokenizedTexts, tokens: NDArray[np.int64]) -> Occurrences:
    words = texts.words[tokens]
    starts = texts.char_ngrams.offsets[words]
    lengths = texts.char_ngrams.offsets[words + 1] - starts

    hashes = texts.char_ngrams.ngrams[flat_indices(starts, lengths)]
    ends = np.repeat(np.arange(len(tokens)), lengths)
    return Occurrences(CHAR_NGRAM_IDS, hashes, ends)


def _of_columns(
    token_ids: NDArray[np.int64],
    kinds: NDArray[np.uint8],
    offsets: NDArray[np.int64],
    *,
    use_feature_pairs: bool,
) -> Iterator[Occurrences]:
    is_feature = kinds == FEATURE
    (features,) = np.nonzero(is_feature)
    yield Occurrences(COLUMN_IDS, token_ids[features], features)

    is_word = kinds == WORD
    is_word[offsets[:-1]] = False  # [CLS]
    (words,) = np.nonzero(is_word)
    starts = np.repeat(offsets[:-1], np.diff(offsets))

    # The last mark before each word is that of its field. A text that is no row has no marks.
    numbers = np.arange(len(kinds))
    marks = np.maximum.accumulate(np.where(kinds == FIELD, numbers, -1))
    in_field = words[marks[words] > starts[words]]
    yield Occurrences(
        FIELD_PAIR_IDS,
        _pair_hashes(token_ids[marks[in_field]], token_ids[in_field]),
        in_field,
    )

    if use_feature_pairs:
        # The tokens of the features of a text follow its [CLS].
        num_features = np.add.reduceat(is_feature, offsets[:-1], dtype=np.int64)
        numbers_of_words = np.repeat(num_features, np.diff(offsets))[words]
        ends = np.repeat(words, numbers_of_words)
        others = flat_indices(starts[words] + 1, numbers_of_words)
        yield Occurrences(FEATURE_PAIR_IDS, _pair_hashes(token_ids[others], token_ids[ends]), ends)
