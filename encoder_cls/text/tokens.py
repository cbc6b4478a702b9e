"""Token ids and hashed character n-grams of many texts in flat arrays.

The id and the character n-grams of a word, known or not, are kept once, however often it occurs.
Every sequence starts with `[CLS]`, so none is empty.
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

PAD_ID = 0
UNK_ID = 1
CLS_ID = 2
MASK_ID = 3
# The names of the special tokens, by id.
SPECIAL_TOKENS = ["[PAD]", "[UNK]", "[CLS]", "[MASK]"]

# Characters read for each token of the limit, so that a text of 10 MB takes no longer than a page.
CHARACTERS_PER_TOKEN = 64

# Tokens kept for each token of the encoder's limit: a linear model may read more.
KEPT_PER_TOKEN = 8

# Characters of a word whose n-grams are read: the rest of a longer word, such as a link, has no
# meaning.
LONGEST_WORD = 40

# Characters of a word that sub-word models learn from: a single attachment in base64 would fill the
# vocabulary, and take minutes.
LONGEST_LEARNED = 500

# The hash of a pair of words is the number of the first times this prime, plus that of the second.
PAIR_MULTIPLIER = 1_000_003


@dataclass(frozen=True, kw_only=True)
class CharNgrams:
    """Hashed character n-grams of many words, which distinguish unknown words.

    Attributes:
        ngrams: word `i` has `ngrams[offsets[i]:offsets[i + 1]]`, possibly none, (n-grams,).
        offsets: where the n-grams of each word begin, and the end of the last ones, (words + 1,).
    """

    ngrams: NDArray[np.uint32]
    offsets: NDArray[np.int64]

    def __len__(self) -> int:
        return len(self.offsets) - 1

    def take(self, words: NDArray[np.integer[Any]]) -> CharNgrams:
        """Return the n-grams of some of the words, in the order of `words`."""
        starts = self.offsets[words]
        lengths = self.offsets[words + 1] - starts
        return CharNgrams(
            ngrams=self.ngrams[flat_indices(starts, lengths)], offsets=ends_from_zero(lengths)
        )


# Texts whose unknown tokens are counted at a time, and tokens whose words are: in some 32 MB.
TEXTS_AT_ONCE = 1024
TOKENS_AT_ONCE = 1 << 22


@dataclass(frozen=True, kw_only=True)
class TokenizedTexts:
    """The tokens of many texts, one text after the other.

    Attributes:
        words: the index of each token in the list of words, (tokens,). Text `i` has
            `words[offsets[i]:offsets[i + 1]]`.
        word_ids: the token id of each word, (words,); several unknown words are all `[UNK]`.
        char_ngrams: the n-grams of each word; special tokens have none.
        offsets: where the tokens of each text begin, and the end of the last ones, (texts + 1,).
        max_seq_len: how many tokens of a text an encoder reads; `KEPT_PER_TOKEN` times as many are
            kept.
        truncated: whether each text is longer than an encoder reads, (texts,).
    """

    words: NDArray[np.int32]
    word_ids: NDArray[np.int32]
    char_ngrams: CharNgrams
    offsets: NDArray[np.int64]
    max_seq_len: int
    truncated: NDArray[np.bool_]

    def __len__(self) -> int:
        return len(self.truncated)

    def __getitem__(self, texts: slice) -> TokenizedTexts:
        """Return neighbouring texts, such as `[:count]`, with the same list of words."""
        start, stop, _ = texts.indices(len(self))
        offsets = self.offsets[start : stop + 1]
        return replace(
            self,
            words=self.words[offsets[0] : offsets[-1]],
            offsets=offsets - offsets[0],
            truncated=self.truncated[texts],
        )

    def take(self, texts: NDArray[np.int64]) -> TokenizedTexts:
        """Return some of the texts, in the order of `texts`, with the same list of words."""
        lengths = np.diff(self.offsets)[texts]
        tokens = flat_indices(self.offsets[texts], lengths)
        return replace(
            self,
            words=self.words[tokens],
            offsets=ends_from_zero(lengths),
            truncated=self.truncated[texts],
        )

    def input_ids(self, tokens: NDArray[np.int64] | slice = slice(None)) -> NDArray[np.int32]:
        """Return the ids of tokens, by default of all."""
        return self.word_ids[self.words[tokens]]

    @cached_property
    def lengths(self) -> NDArray[np.int64]:
        """The number of tokens of each text that an encoder reads, `[CLS]` included, (texts,)."""
        return self.lengths_within(self.max_seq_len)

    def lengths_within(self, max_tokens: int) -> NDArray[np.int64]:
        """Return the number of tokens of each text, `[CLS]` included, up to a limit, (texts,)."""
        return np.minimum(np.diff(self.offsets), max_tokens)

    def word_counts(self) -> NDArray[np.int64]:
        """Count how often each word of the list occurs, (words,)."""
        counts = np.zeros(len(self.word_ids), dtype=np.int64)
        for start in range(0, len(self.words), TOKENS_AT_ONCE):
            words = self.words[start : start + TOKENS_AT_ONCE]
            counts += np.bincount(words, minlength=len(counts))
        return counts

    @cached_property
    def unknown(self) -> NDArray[np.int32]:
        """The number of `[UNK]` among the tokens of each text that an encoder reads, (texts,)."""
        is_unknown_word = self.word_ids == UNK_ID
        counts = DiskBackedArray(np.int32)

        for first in range(0, len(self), TEXTS_AT_ONCE):
            texts = self[first : first + TEXTS_AT_ONCE]
            tokens = flat_indices(texts.offsets[:-1], texts.lengths)
            is_unknown = is_unknown_word[texts.words[tokens]]

            # Add up the pieces of the texts. None is empty, for which `reduceat` would be wrong.
            starts = ends_from_zero(texts.lengths)[:-1]
            counts.append(np.add.reduceat(is_unknown, starts, dtype=np.int32))

        return counts.array()

    @property
    def unknown_fraction(self) -> float:
        """The fraction of `[UNK]` among the tokens that an encoder reads, `[CLS]` excluded."""
        num_words = self.lengths.sum() - len(self)
        return float(self.unknown.sum() / max(1, num_words))


def ends_from_zero(lengths: NDArray[Any]) -> NDArray[np.int64]:
    """Return the offsets of pieces of these lengths in a flat array: 0, then the end of each."""
    return np.concatenate([[0], np.cumsum(lengths)])


def flat_indices(starts: NDArray[np.int64], lengths: NDArray[np.int64]) -> NDArray[np.int64]:
    """Return the indices of several pieces of a flat array, one piece after the other."""
    # Number the indices from 0, and shift those of each piece to where it starts.
    starts_in_result = np.cumsum(lengths) - lengths
    shifts = np.repeat(starts - starts_in_result, lengths)
    indices: NDArray[np.int64] = np.arange(lengths.sum()) + shifts
    return indices


def drawn_rows(lengths: NDArray[np.int64], most: int, *, seed: int = 0) -> NDArray[np.int64]:
    """Draw texts of these lengths at random, at least one, with a total length up to `most`."""
    order = np.random.default_rng(seed).permutation(len(lengths))
    totals = np.cumsum(lengths[order])
    num_drawn = int(np.searchsorted(totals, most, side="right"))
    return order[: max(1, num_drawn)]


class TokenChunk(NamedTuple):
    """The tokens of some texts, one text after the other.

    Attributes:
        distinct: the tokens, each once.
        indices: the index in `distinct` of each token, (tokens,).
        lengths: the number of tokens of each text, (texts,).
    """

    distinct: list[str]
    indices: NDArray[np.int32]
    lengths: NDArray[np.int64]


TokenReader = Callable[[Sequence[str], int], TokenChunk]
"""Reads the tokens of texts, at most a number of each text, `[CLS]` included."""


# The first chunks are read before other processes start, which takes about as long.
CHUNKS_ALONE = 48


def index_tokens(
    read: TokenReader, texts: Iterable[str], *, max_seq_len: int, in_processes: bool = False
) -> tuple[TokenizedTexts, list[str]]:
    """Read the tokens of any number of texts, and list their words.

    The id of a word is its index in the list. An encoder reads `max_seq_len` tokens of a text.
    `in_processes` divides many texts among processes, each with a copy of `read`.
    """
    words = DiskBackedRaggedArray(np.int32)
    ngrams = DiskBackedRaggedArray(np.uint32)
    truncated = DiskBackedArray(np.bool_)
    index: dict[str, int] = {}

    for chunk, is_truncated in _chunks_read(
        read, texts, max_seq_len=max_seq_len, in_processes=in_processes
    ):
        # Find the words of the chunk in the list; those that are new come at its end.
        new_words = []
        for word in chunk.distinct:
            if word not in index:
                index[word] = len(index)
                new_words.append(word)
        indices = np.array([index[word] for word in chunk.distinct], dtype=np.int32)

        # Special tokens are hashed as empty words, which have no n-grams.
        spellings = ["" if word in SPECIAL_TOKENS else word for word in new_words]
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
    )
    return indexed, list(index)


def _chunks_read(
    read: TokenReader, texts: Iterable[str], *, max_seq_len: int, in_processes: bool
) -> Iterator[tuple[TokenChunk, NDArray[np.bool_]]]:
    """Read texts in chunks: their tokens, and whether each is longer than an encoder reads."""
    chunks = _chunks(texts, most_characters=CHARACTERS_PER_TOKEN * max_seq_len)
    read_chunk = partial(_read_chunk, read, max_seq_len)
    if in_processes:
        return map_in_processes(read_chunk, chunks, alone=CHUNKS_ALONE)
    return map(read_chunk, chunks)


# The most texts and characters that are read at once; a single text may be longer.
CHUNK_TEXTS = 4096
CHUNK_CHARACTERS = 1 << 19


def _chunks(texts: Iterable[str], *, most_characters: int) -> Iterator[list[str]]:
    """Yield texts in large chunks, each text cut one character beyond the most.

    The character beyond shows that the text is longer.
    """
    chunk: list[str] = []
    num_characters = 0
    for text in texts:
        beginning = text[: most_characters + 1]
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
    """Return the tokens of texts, and whether each is longer than an encoder reads."""
    most_characters = CHARACTERS_PER_TOKEN * max_seq_len
    beginnings = [text[:most_characters] for text in texts]
    tokens = read(beginnings, KEPT_PER_TOKEN * max_seq_len)

    is_cut = np.array([len(text) > most_characters for text in texts])
    return tokens, is_cut | (tokens.lengths > max_seq_len)


# Characters of the shortest and of the longest n-gram.
SHORTEST_NGRAM = 2
LONGEST_NGRAM = 5

# The CRC-32 of each byte, by which that of several bytes is computed, a byte at a time.
CRC32_OF_BYTE = np.array([zlib.crc32(bytes([byte])) for byte in range(256)], dtype=np.uint32)


def hash_char_ngrams(words: Sequence[str]) -> CharNgrams:
    """Hash the n-grams of words, the shorter first; an empty word has none.

    A word's n-grams are those of "<word>", as in fastText (Bojanowski et al., "Enriching Word
    Vectors with Subword Information", 2017, https://arxiv.org/abs/1607.04606): "<at", "at>" and so
    on. The hash is the CRC-32 of the bytes in UTF-8. All words are hashed at the same time.
    """
    # Write all words one after the other, and find where each character begins. In UTF-8 all bytes
    # of a character but its first have the bits 10xxxxxx.
    marked = [f"<{word[:LONGEST_WORD]}>" if word else "" for word in words]
    content = np.frombuffer("".join(marked).encode("utf-8", "replace"), dtype=np.uint8)
    character_starts = np.flatnonzero(content & 0xC0 != 0x80)
    character_sizes = np.diff(character_starts, append=len(content))

    # Count the n-grams of each size in each word, (words, sizes), and find their places in the
    # result.
    lengths = np.array([len(word) for word in marked], dtype=np.int64)
    sizes = np.arange(SHORTEST_NGRAM, LONGEST_NGRAM + 1)
    counts = np.maximum(0, lengths[:, None] + 1 - sizes)
    ends = np.cumsum(counts).reshape(counts.shape)
    ngrams = np.zeros(counts.sum(), dtype=np.uint32)

    # Begin an n-gram at each character, still without one. `left` is how many characters the word
    # has from there on.
    firsts = np.arange(len(character_starts))
    hashes = np.zeros(len(firsts), dtype=np.uint32)
    word_ends = np.cumsum(lengths)
    left = np.repeat(word_ends, lengths) - firsts

    for size in range(1, LONGEST_NGRAM + 1):
        # Drop the n-grams that have reached the end of their word.
        fits = left >= size
        firsts = firsts[fits]
        hashes = hashes[fits]
        left = left[fits]

        # Extend the others by their next character.
        last_characters = firsts + size - 1
        _extend_crc32(
            hashes,
            content,
            character_starts[last_characters],
            character_sizes[last_characters],
        )

        # Keep those of this size.
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
    """Extend each CRC-32, in place, by the bytes `content[start : start + size]`."""
    for number in range(sizes.max(initial=0)):
        (extended,) = np.nonzero(sizes > number)
        before = hashes[extended]
        next_bytes = content[starts[extended] + number]
        hashes[extended] = CRC32_OF_BYTE[(before ^ next_bytes) & 0xFF] ^ (before >> 8)
