"""The token ids and hashed character n-grams of many texts, in flat arrays.

The id and the n-grams of a word, known or unknown, are stored once. Every sequence starts with
`[CLS]`, so none is empty.
"""

from __future__ import annotations

import zlib
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property, partial
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from encoder_cls.system.disk_arrays import DiskBackedArray, DiskBackedRaggedArray
from encoder_cls.system.processes import map_in_processes

# The ids of the special tokens: padding, an unknown word, the start of a text, a masked word.
PAD_ID = 0
UNK_ID = 1
CLS_ID = 2
MASK_ID = 3

# The names of the special tokens, in the order of their ids.
SPECIAL_TOKENS = ["[PAD]", "[UNK]", "[CLS]", "[MASK]"]

# The number of characters that are read of a text, for each token that the encoder reads of it. So
# a text of 10 MB takes no longer than a page.
CHARACTERS_PER_TOKEN = 64

# The number of tokens that are stored of a text, for each token that the encoder reads of it: a
# linear model may read more of a text than the encoder.
KEPT_PER_TOKEN = 8

# The maximum number of characters of a word whose n-grams are hashed. The rest of a longer word,
# such as a link, has no meaning.
MAX_WORD_LENGTH = 40

# The maximum number of characters of a word from which sub-word models learn. A single attachment
# in base64 would fill the vocabulary, and take minutes.
MAX_LEARNED_LENGTH = 500

# The hash of a pair of words or tokens is the number of the first one times this prime, plus the
# number of the second one.
PAIR_MULTIPLIER = 1_000_003


@dataclass(frozen=True, kw_only=True)
class CharNgrams:
    """The hashed character n-grams of many words, which distinguish unknown words.

    Attributes:
        ngrams: hashes, word after word, (n-grams,). Those of word `i` are
            `ngrams[offsets[i]:offsets[i + 1]]`, maybe none.
        offsets: (words + 1,).
    """

    ngrams: NDArray[np.uint32]
    offsets: NDArray[np.int64]

    def __len__(self) -> int:
        return len(self.offsets) - 1

    def take(self, words: NDArray[np.integer[Any]]) -> CharNgrams:
        """The n-grams of some of the words."""
        starts = self.offsets[words]
        lengths = self.offsets[words + 1] - starts
        return CharNgrams(
            ngrams=self.ngrams[flat_indices(starts, lengths)], offsets=offsets_of_lengths(lengths)
        )


# The kinds of tokens: words, also `[CLS]`; marks before the words of a text column; features.
WORD = 0
FIELD = 1
FEATURE = 2

# The number of texts whose unknown tokens are counted at a time.
TEXTS_AT_ONCE = 1024

# The number of tokens whose words are counted at a time, which takes some 32 MB.
TOKENS_AT_ONCE = 1 << 22

# The number of tokens whose groups are counted at a time, which takes some 20 MB: the pairs of a
# group and a word are sorted.
GROUPED_TOKENS_AT_ONCE = 1 << 19


@dataclass(frozen=True, kw_only=True)
class TokenizedTexts:
    """The tokens of many texts, one text after the other, and a list of their distinct words.

    Attributes:
        words: the index of each token in the list of words, (tokens,). Those of text `i` are
            `words[offsets[i]:offsets[i + 1]]`.
        word_ids: the id of each word of the list, (words,); unknown words have that of `[UNK]`.
        char_ngrams: of each word of the list; special tokens have none.
        offsets: (texts + 1,).
        max_seq_len: how many tokens of a text an encoder reads; `KEPT_PER_TOKEN` times as many are
            stored.
        truncated: whether an encoder does not read all of a text, (texts,).
        kinds: of words of the list: `WORD`, `FIELD` or `FEATURE`, (words,); None if all are words.
    """

    words: NDArray[np.int32]
    word_ids: NDArray[np.int32]
    char_ngrams: CharNgrams
    offsets: NDArray[np.int64]
    max_seq_len: int
    truncated: NDArray[np.bool_]
    kinds: NDArray[np.uint8] | None = None

    def __len__(self) -> int:
        return len(self.truncated)

    def __getitem__(self, texts: slice) -> TokenizedTexts:
        """Neighbouring texts, with the same list of words."""
        start, stop, _ = texts.indices(len(self))
        offsets = self.offsets[start : stop + 1]
        return replace(
            self,
            words=self.words[offsets[0] : offsets[-1]],
            offsets=offsets - offsets[0],
            truncated=self.truncated[texts],
        )

    def take(self, texts: NDArray[np.int64]) -> TokenizedTexts:
        """Some of the texts, with the same list of words."""
        lengths = np.diff(self.offsets)[texts]
        tokens = flat_indices(self.offsets[texts], lengths)
        return replace(
            self,
            words=self.words[tokens],
            offsets=offsets_of_lengths(lengths),
            truncated=self.truncated[texts],
        )

    def input_ids(self, tokens: NDArray[np.int64] | slice = slice(None)) -> NDArray[np.int32]:
        """The ids of the tokens with these indices, by default of all."""
        return self.word_ids[self.words[tokens]]

    @cached_property
    def lengths(self) -> NDArray[np.int64]:
        """How many tokens of each text an encoder reads, with `[CLS]`, (texts,)."""
        return self.lengths_within(self.max_seq_len)

    def lengths_within(self, max_tokens: int) -> NDArray[np.int64]:
        """The tokens of each text, with `[CLS]`, at most `max_tokens`, (texts,)."""
        return np.minimum(np.diff(self.offsets), max_tokens)

    def word_counts(self) -> NDArray[np.int64]:
        """How often each word of the list occurs, (words,)."""
        counts = np.zeros(len(self.word_ids), dtype=np.int64)
        for start in range(0, len(self.words), TOKENS_AT_ONCE):
            words = self.words[start : start + TOKENS_AT_ONCE]
            counts += np.bincount(words, minlength=len(counts))
        return counts

    def kinds_of(self, tokens: NDArray[np.int64]) -> NDArray[np.uint8] | None:
        """The kinds of the tokens with these indices; None if all are words."""
        if self.kinds is None:
            return None
        return self.kinds[self.words[tokens]]

    @property
    def num_words(self) -> NDArray[np.int64]:
        """How many words of each text an encoder reads, (texts,)."""
        if self.kinds is None:
            return self.lengths - 1

        tokens = flat_indices(self.offsets[:-1], self.lengths)
        starts = offsets_of_lengths(self.lengths)[:-1]
        is_word = self.kinds[self.words[tokens]] == WORD
        counts: NDArray[np.int64] = np.add.reduceat(is_word, starts, dtype=np.int64)
        return counts - 1

    def group_counts(self, groups: NDArray[np.int64]) -> NDArray[np.int64]:
        """How many groups have each word of the list in a text, (words,).

        `groups` are equal numbers of texts that belong together, (texts,).
        """
        counts = np.zeros(len(self.word_ids), dtype=np.int64)
        _, numbers = np.unique(groups, return_inverse=True)
        lengths = np.diff(self.offsets)

        # Count a group at one time, however far apart its texts are.
        tokens_of_groups = np.bincount(numbers, weights=lengths)
        ends = np.cumsum(tokens_of_groups).astype(np.int64)
        pieces = (ends // GROUPED_TOKENS_AT_ONCE)[numbers]
        for piece in np.unique(pieces):
            (texts,) = np.nonzero(pieces == piece)
            groups_of_tokens = np.repeat(numbers[texts], lengths[texts])
            pairs = np.unique(groups_of_tokens * len(counts) + self.take(texts).words)
            counts += np.bincount(pairs % len(counts), minlength=len(counts))
        return counts

    @cached_property
    def unknown(self) -> NDArray[np.int32]:
        """The number of `[UNK]` that an encoder reads of each text, (texts,)."""
        is_unknown_word = self.word_ids == UNK_ID
        counts = DiskBackedArray(np.int32)

        for first in range(0, len(self), TEXTS_AT_ONCE):
            texts = self[first : first + TEXTS_AT_ONCE]
            tokens = flat_indices(texts.offsets[:-1], texts.lengths)
            is_unknown = is_unknown_word[texts.words[tokens]]

            # Sum over the tokens of each text. `reduceat` would be wrong for a text without tokens,
            # but each text has at least `[CLS]`.
            starts = offsets_of_lengths(texts.lengths)[:-1]
            counts.append(np.add.reduceat(is_unknown, starts, dtype=np.int32))

        return counts.array()

    @property
    def unknown_fraction(self) -> float:
        """The share of `[UNK]` among all words that an encoder reads."""
        num_words = self.lengths.sum() - len(self)
        return float(self.unknown.sum() / max(1, num_words))


def offsets_of_lengths(lengths: NDArray[Any]) -> NDArray[np.int64]:
    """The offsets of pieces with these lengths: 0, then each end."""
    return np.concatenate([[0], np.cumsum(lengths)])


def flat_indices(starts: NDArray[np.int64], lengths: NDArray[np.int64]) -> NDArray[np.int64]:
    """The indices of the elements of several pieces of a flat array, piece after piece."""
    # Number the elements of the result from 0. To the numbers of each piece, add the distance from
    # its start in the result to its start in the array.
    starts_in_result = np.cumsum(lengths) - lengths
    shifts = np.repeat(starts - starts_in_result, lengths)
    indices: NDArray[np.int64] = np.arange(lengths.sum()) + shifts
    return indices


def drawn_rows(lengths: NDArray[np.int64], max_total: int, *, seed: int = 0) -> NDArray[np.int64]:
    """Draw indices of texts at random, up to a limit of their total length, but at least one."""
    order = np.random.default_rng(seed).permutation(len(lengths))
    totals = np.cumsum(lengths[order])
    num_drawn = int(np.searchsorted(totals, max_total, side="right"))
    return order[: max(1, num_drawn)]


class TokenChunk(NamedTuple):
    """The tokens of some texts, one text after the other.

    Attributes:
        indices: of tokens in `distinct`, (tokens,).
        lengths: of texts, (texts,).
    """

    distinct: list[str]
    indices: NDArray[np.int32]
    lengths: NDArray[np.int64]


TokenReader = Callable[[Sequence[str], int], TokenChunk]
"""A function that splits texts into tokens.

Its second argument is the maximum number of tokens of each text, including `[CLS]`.
"""

KindOf = Callable[[str], int]
"""A function that tells whether a token is a `WORD`, a `FIELD` or a `FEATURE`."""


# The number of chunks that are read before other processes are started. Starting them takes about
# as long as reading these chunks.
CHUNKS_ALONE = 48


def index_tokens(
    read: TokenReader,
    texts: Iterable[str],
    *,
    max_seq_len: int,
    kind_of: KindOf | None = None,
    in_processes: bool = False,
) -> tuple[TokenizedTexts, list[str]]:
    """Split texts into tokens, and list their distinct words, whose ids are their indices.

    One chunk is in memory. With `in_processes`, many texts are divided among processes, each with a
    copy of `read`. Without `kind_of`, all tokens are words.
    """
    words = DiskBackedRaggedArray(np.int32)
    ngrams = DiskBackedRaggedArray(np.uint32)
    truncated = DiskBackedArray(np.bool_)
    index: dict[str, int] = {}
    kinds_of_words: list[int] = []

    for chunk, is_truncated in _chunks_read(
        read, texts, max_seq_len=max_seq_len, in_processes=in_processes
    ):
        # Append new words to the list, and find the words of the chunk in it.
        new_words = [word for word in chunk.distinct if word not in index]
        for word in new_words:
            index[word] = len(index)
        indices = np.array([index[word] for word in chunk.distinct], dtype=np.int32)

        # Hash the n-grams of new words. What is no word is replaced by an empty word, which has no
        # n-grams.
        spellings = ["" if word in SPECIAL_TOKENS else word for word in new_words]
        if kind_of is not None:
            kinds = [kind_of(word) for word in new_words]
            kinds_of_words += kinds
            spellings = [
                word if kind == WORD else "" for word, kind in zip(spellings, kinds, strict=True)
            ]
        hashed = hash_char_ngrams(spellings)
        ngrams.append(hashed.ngrams, np.diff(hashed.offsets))

        words.append(indices[chunk.indices], chunk.lengths)
        truncated.append(is_truncated)

    all_words, offsets = words.arrays()
    all_ngrams, ngram_offsets = ngrams.arrays()
    indexed = TokenizedTexts(
        words=all_words,
        word_ids=np.arange(len(index), dtype=np.int32),
        char_ngrams=CharNgrams(ngrams=all_ngrams, offsets=ngram_offsets),
        offsets=offsets,
        max_seq_len=max_seq_len,
        truncated=truncated.array(),
        kinds=None if kind_of is None else np.array(kinds_of_words, dtype=np.uint8),
    )
    return indexed, list(index)


def _chunks_read(
    read: TokenReader, texts: Iterable[str], *, max_seq_len: int, in_processes: bool
) -> Iterator[tuple[TokenChunk, NDArray[np.bool_]]]:
    chunks = _chunks(texts, max_characters=CHARACTERS_PER_TOKEN * max_seq_len)
    read_chunk = partial(_read_chunk, read, max_seq_len)
    if in_processes:
        return map_in_processes(read_chunk, chunks, alone=CHUNKS_ALONE)
    return map(read_chunk, chunks)


CHUNK_TEXTS = 4096

# A chunk ends with the text that brings it to this number of characters.
CHUNK_CHARACTERS = 1 << 19


def _chunks(texts: Iterable[str], *, max_characters: int) -> Iterator[list[str]]:
    """Cut texts after `max_characters` + 1 characters: the last one shows that a text is longer."""
    chunk: list[str] = []
    num_characters = 0
    for text in texts:
        beginning = text[: max_characters + 1]
        chunk.append(beginning)
        num_characters += len(beginning)

        if num_characters >= CHUNK_CHARACTERS or len(chunk) >= CHUNK_TEXTS:
            yield chunk
            chunk = []
            num_characters = 0

    if chunk:
        yield chunk


def _read_chunk(
    read: TokenReader, max_seq_len: int, texts: list[str]
) -> tuple[TokenChunk, NDArray[np.bool_]]:
    max_characters = CHARACTERS_PER_TOKEN * max_seq_len
    beginnings = [text[:max_characters] for text in texts]
    tokens = read(beginnings, KEPT_PER_TOKEN * max_seq_len)

    is_cut = np.array([len(text) > max_characters for text in texts])
    return tokens, is_cut | (tokens.lengths > max_seq_len)


# The number of characters of the shortest and of the longest n-grams.
SHORTEST_NGRAM = 2
LONGEST_NGRAM = 5

# The CRC-32 of each byte. With this table, the CRC-32 of several bytes is computed byte by byte.
CRC32_OF_BYTE = np.array([zlib.crc32(bytes([byte])) for byte in range(256)], dtype=np.uint32)


def hash_char_ngrams(words: Sequence[str]) -> CharNgrams:
    """Hash the character n-grams of words.

    A word is put between "<" and ">" first, which gives "<at" and "at>", as in fastText (Bojanowski
    et al., "Enriching Word Vectors with Subword Information", 2017,
    https://arxiv.org/abs/1607.04606). The hash is the CRC-32 of an n-gram's bytes in UTF-8. The
    n-grams of a word are sorted by length; an empty word has none.
    """
    # Join all words, and find the first byte of each character. In UTF-8, all bytes of a character
    # except the first one have the form 10xxxxxx.
    marked = [f"<{word[:MAX_WORD_LENGTH]}>" if word else "" for word in words]
    content = np.frombuffer("".join(marked).encode("utf-8", "replace"), dtype=np.uint8)
    character_starts = np.flatnonzero(content & 0xC0 != 0x80)
    character_sizes = np.diff(character_starts, append=len(content))

    # Count the n-grams of each size in each word, (words, sizes), and find the places at which they
    # end in the result.
    lengths = np.array([len(word) for word in marked], dtype=np.int64)
    sizes = np.arange(SHORTEST_NGRAM, LONGEST_NGRAM + 1)
    counts = np.maximum(0, lengths[:, None] + 1 - sizes)
    ends = np.cumsum(counts).reshape(counts.shape)
    ngrams = np.zeros(counts.sum(), dtype=np.uint32)

    # Begin an empty n-gram at each character. `left` is the number of characters from there to the
    # end of the word.
    firsts = np.arange(len(character_starts))
    hashes = np.zeros(len(firsts), dtype=np.uint32)
    word_ends = np.cumsum(lengths)
    left = np.repeat(word_ends, lengths) - firsts

    for size in range(1, LONGEST_NGRAM + 1):
        # Drop the n-grams that have reached the end of their word already.
        fits = left >= size
        firsts = firsts[fits]
        hashes = hashes[fits]
        left = left[fits]

        # Extend all other n-grams by the next character.
        last_characters = firsts + size - 1
        _extend_crc32(
            hashes,
            content,
            character_starts[last_characters],
            character_sizes[last_characters],
        )

        if size >= SHORTEST_NGRAM:
            column = size - SHORTEST_NGRAM
            starts = ends[:, column] - counts[:, column]
            ngrams[flat_indices(starts, counts[:, column])] = hashes

    return CharNgrams(ngrams=ngrams, offsets=np.concatenate([[0], ends[:, -1]]))


def _extend_crc32(
    hashes: NDArray[np.uint32],
    content: NDArray[np.uint8],
    starts: NDArray[np.int64],
    sizes: NDArray[np.int64],
) -> None:
    for number in range(sizes.max(initial=0)):
        (extended,) = np.nonzero(sizes > number)
        before = hashes[extended]
        next_bytes = content[starts[extended] + number]
        hashes[extended] = CRC32_OF_BYTE[(before ^ next_bytes) & 0xFF] ^ (before >> 8)
