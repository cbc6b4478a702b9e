"""Token ids and hashed character n-grams of many texts in flat arrays.

The id and the character n-grams of a word, known or not, are kept once, however often it occurs. Every sequence starts
with `[CLS]`, so none is empty.
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

PAD_ID, UNK_ID, CLS_ID, MASK_ID = range(4)
SPECIAL_TOKENS = ["[PAD]", "[UNK]", "[CLS]", "[MASK]"]

# Characters read for each token of the limit, so that a text of 10 MB takes no longer than a page.
CHARACTERS_PER_TOKEN = 64
# Tokens kept for each token of the encoder's limit: a linear classifier may read more.
KEPT_PER_TOKEN = 8

CHUNK_TEXTS, CHUNK_CHARACTERS = (
    4096,
    1 << 19,
)  # the most that are read at once, except a single long text
CHUNKS_ALONE = 48  # read before other processes start: about as long as starting them takes
TEXTS_AT_ONCE, TOKENS_AT_ONCE = 1024, 1 << 22  # that are counted in some 32 MB

SHORTEST, LONGEST = 2, 5  # characters of an n-gram
# Sub-word models do not learn from longer words: one attachment would fill the vocabulary, in minutes.
LONGEST_LEARNED = 500
LONGEST_WORD = (
    40  # characters with n-grams: the rest of a longer word, such as a link, has no meaning
)
PAIR_MULTIPLIER = 1_000_003  # the hash of a pair of words is the first's number times this prime plus the second's
CRC32_OF_BYTE = np.array([zlib.crc32(bytes([byte])) for byte in range(256)], dtype=np.uint32)


@dataclass(frozen=True, kw_only=True)
class CharNgrams:
    """Hashed character n-grams of many words, which distinguish unknown words."""

    ngrams: NDArray[np.uint32]  # word `i` has `ngrams[offsets[i]:offsets[i + 1]]`, possibly none
    offsets: NDArray[np.int64]  # `words + 1` indices into `ngrams`

    def __len__(self) -> int:
        return len(self.offsets) - 1

    def take(self, words: NDArray[np.integer[Any]]) -> CharNgrams:
        """The n-grams of some of the words, in their order."""
        starts = self.offsets[words]
        lengths = self.offsets[words + 1] - starts
        return CharNgrams(
            ngrams=self.ngrams[flat_indices(starts, lengths)], offsets=ends_from_zero(lengths)
        )


@dataclass(frozen=True, kw_only=True)
class TokenizedTexts:
    """The tokens of many texts, one after the other."""

    words: NDArray[
        np.int32
    ]  # indices in the list of words; text `i` has `words[offsets[i]:offsets[i + 1]]`
    word_ids: NDArray[np.int32]  # the token id of each word; several unknown words are all `[UNK]`
    char_ngrams: CharNgrams  # of each word; special tokens have none
    offsets: NDArray[np.int64]  # `len(texts) + 1` indices into `words`
    max_seq_len: (
        int  # tokens of a text that an encoder reads; `KEPT_PER_TOKEN` times as many are kept
    )
    truncated: NDArray[np.bool_]  # whether each text is longer than an encoder reads

    def __len__(self) -> int:
        return len(self.truncated)

    def __getitem__(self, texts: slice) -> TokenizedTexts:
        """A slice of the texts, such as `[:count]`, with the same list of words."""
        start, stop, _ = texts.indices(len(self))
        offsets = self.offsets[start : stop + 1]
        return replace(
            self,
            words=self.words[offsets[0] : offsets[-1]],
            offsets=offsets - offsets[0],
            truncated=self.truncated[texts],
        )

    def take(self, texts: NDArray[np.int64]) -> TokenizedTexts:
        """Some of the texts, in this order, with the same list of words."""
        lengths = np.diff(self.offsets)[texts]
        words = self.words[flat_indices(self.offsets[texts], lengths)]
        return replace(
            self, words=words, offsets=ends_from_zero(lengths), truncated=self.truncated[texts]
        )

    def input_ids(self, tokens: NDArray[np.int64] | slice = slice(None)) -> NDArray[np.int32]:
        """The ids of tokens."""
        return self.word_ids[self.words[tokens]]

    @cached_property
    def lengths(self) -> NDArray[np.int64]:
        """The number of tokens of each text that an encoder reads, `[CLS]` included."""
        return self.lengths_within(self.max_seq_len)

    def lengths_within(self, max_tokens: int) -> NDArray[np.int64]:
        """The number of tokens of each text, `[CLS]` included, up to a limit."""
        return np.minimum(np.diff(self.offsets), max_tokens)

    def word_counts(self) -> NDArray[np.int64]:
        """The frequency of each word of the list."""
        counts = np.zeros(len(self.word_ids), dtype=np.int64)
        for start in range(0, len(self.words), TOKENS_AT_ONCE):
            counts += np.bincount(self.words[start : start + TOKENS_AT_ONCE], minlength=len(counts))
        return counts

    @cached_property
    def unknown(self) -> NDArray[np.int32]:
        """The number of `[UNK]` among the tokens of each text that an encoder reads."""
        is_unknown = self.word_ids == UNK_ID
        counts = DiskBackedArray(np.int32)
        for first in range(0, len(self), TEXTS_AT_ONCE):
            some = self[first : first + TEXTS_AT_ONCE]
            are_unknown = is_unknown[some.words[flat_indices(some.offsets[:-1], some.lengths)]]
            counts.append(
                np.add.reduceat(are_unknown, ends_from_zero(some.lengths)[:-1], dtype=np.int32)
            )
        return counts.array()

    @property
    def unknown_fraction(self) -> float:
        """The fraction of `[UNK]` among the tokens that an encoder reads, `[CLS]` excluded."""
        return float(self.unknown.sum() / max(1, self.lengths.sum() - len(self)))


def ends_from_zero(lengths: NDArray[Any]) -> NDArray[np.int64]:
    """The offsets of pieces of these lengths in a flat array: 0, then the end of each piece."""
    return np.concatenate([[0], np.cumsum(lengths)])


def flat_indices(starts: NDArray[np.int64], lengths: NDArray[np.int64]) -> NDArray[np.int64]:
    """The indices of several pieces of a flat array, one piece after the other."""
    indices: NDArray[np.int64] = np.arange(lengths.sum()) + np.repeat(
        starts - np.cumsum(lengths) + lengths, lengths
    )
    return indices


def drawn_rows(lengths: NDArray[np.int64], most: int, *, seed: int = 0) -> NDArray[np.int64]:
    """Draw texts of these lengths at random, at least one, of a total length of at most `most`."""
    order = np.random.default_rng(seed).permutation(len(lengths))
    return order[: max(1, int(np.searchsorted(np.cumsum(lengths[order]), most, side="right")))]


class TokenChunk(NamedTuple):
    """The tokens of some texts, one text after the other."""

    distinct: list[str]
    indices: NDArray[np.int32]  # of each token in `distinct`, (tokens,)
    lengths: NDArray[np.int64]  # tokens of each text, (texts,)


TokenReader = Callable[[Sequence[str], int], TokenChunk]
"""Reads the tokens of texts, at most a number of each text, `[CLS]` included."""


def index_tokens(
    read: TokenReader, texts: Iterable[str], *, max_seq_len: int, in_processes: bool = False
) -> tuple[TokenizedTexts, list[str]]:
    """Read the tokens of any number of texts, and list their words; the id of a word is its index in the list.

    An encoder reads `max_seq_len` tokens of a text. `in_processes` divides many texts among processes, each with a copy
    of `read`.
    """
    words, ngrams = DiskBackedRaggedArray(np.int32), DiskBackedRaggedArray(np.uint32)
    truncated, index = DiskBackedArray(np.bool_), dict[str, int]()
    chunks = _chunks(texts, most_characters=CHARACTERS_PER_TOKEN * max_seq_len)
    read_chunk = partial(_read_chunk, read, max_seq_len)
    chunks_read = (
        map_in_processes(read_chunk, chunks, alone=CHUNKS_ALONE)
        if in_processes
        else map(read_chunk, chunks)
    )
    for chunk, are_truncated in chunks_read:
        known = len(index)
        rows = [index.setdefault(token, len(index)) for token in chunk.distinct]
        new = [token for token, row in zip(chunk.distinct, rows, strict=True) if row >= known]
        hashed = hash_char_ngrams(["" if token in SPECIAL_TOKENS else token for token in new])
        ngrams.append(hashed.ngrams, np.diff(hashed.offsets))
        words.append(np.array(rows, dtype=np.int32)[chunk.indices], chunk.lengths)
        truncated.append(are_truncated)
    words_of_texts, offsets = words.arrays()
    ngrams_of_words, ngram_offsets = ngrams.arrays()
    indexed = TokenizedTexts(
        words=words_of_texts,
        word_ids=np.arange(len(index), dtype=np.int32),
        char_ngrams=CharNgrams(ngrams=ngrams_of_words, offsets=ngram_offsets),
        offsets=offsets,
        max_seq_len=max_seq_len,
        truncated=truncated.array(),
    )
    return indexed, list(index)


def _chunks(texts: Iterable[str], *, most_characters: int) -> Iterator[list[str]]:
    """Texts in large chunks, each text cut one character beyond the most, which shows that it is longer."""
    chunk, characters = list[str](), 0
    for text in texts:
        chunk.append(text[: most_characters + 1])
        characters += len(chunk[-1])
        if characters >= CHUNK_CHARACTERS or len(chunk) >= CHUNK_TEXTS:
            yield chunk
            chunk, characters = [], 0
    if chunk:
        yield chunk


def _read_chunk(
    read: TokenReader, max_seq_len: int, texts: list[str]
) -> tuple[TokenChunk, NDArray[np.bool_]]:
    """The tokens of texts, and whether each is longer than an encoder reads."""
    most = CHARACTERS_PER_TOKEN * max_seq_len
    tokens = read([text[:most] for text in texts], KEPT_PER_TOKEN * max_seq_len)
    return tokens, np.array([len(text) > most for text in texts]) | (tokens.lengths > max_seq_len)


def hash_char_ngrams(words: Sequence[str]) -> CharNgrams:
    """Hash the n-grams of words, the shorter first; an empty word has none.

    A word's n-grams are those of "<word>", as in fastText (Bojanowski et al., "Enriching Word Vectors with Subword
    Information", 2017, https://arxiv.org/abs/1607.04606): "<at", "at>" and so on.
    """
    marked = [f"<{word[:LONGEST_WORD]}>" if word else "" for word in words]
    content = np.frombuffer("".join(marked).encode("utf-8", "replace"), dtype=np.uint8)
    character_starts = np.flatnonzero(content & 0xC0 != 0x80)
    character_sizes = np.diff(character_starts, append=len(content))
    lengths = np.array([len(word) for word in marked], dtype=np.int64)
    word_starts = np.cumsum(lengths) - lengths
    counts = np.maximum(
        0, lengths[:, None] + 1 - np.arange(SHORTEST, LONGEST + 1)
    )  # of n-grams, (words, sizes)
    ends = np.cumsum(counts).reshape(counts.shape)

    ngrams = np.zeros(counts.sum(), dtype=np.uint32)
    firsts = np.arange(
        len(character_starts)
    )  # n-grams of one character, then of two, ...: each grows by the next
    hashes = np.zeros(len(firsts), dtype=np.uint32)
    left = (
        np.repeat(word_starts + lengths, lengths) - firsts
    )  # characters in the word, from each on
    for size in range(1, LONGEST + 1):
        fits = left >= size
        firsts, hashes, left = firsts[fits], hashes[fits], left[fits]
        starts, sizes = character_starts[firsts + size - 1], character_sizes[firsts + size - 1]
        for byte in range(sizes.max(initial=0)):  # CRC-32 with the bytes of a further character
            (more,) = np.nonzero(sizes > byte)
            before = hashes[more]
            hashes[more] = CRC32_OF_BYTE[(before ^ content[starts[more] + byte]) & 0xFF] ^ (
                before >> 8
            )
        if size >= SHORTEST:
            column = size - SHORTEST
            ngrams[flat_indices(ends[:, column] - counts[:, column], counts[:, column])] = hashes
    return CharNgrams(ngrams=ngrams, offsets=np.concatenate([[0], ends[:, -1]]))
