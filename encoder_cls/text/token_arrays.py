"""Token ids and hashed character n-grams of many texts in flat arrays.

The id and the character n-grams of a word are kept once, however often it occurs, also if it is unknown. Every sequence
starts with `[CLS]`, so that none is empty.
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

# Characters read for each token of the limit: more could not fit anyway, and a 10 MB text costs no more than a page.
CHARACTERS_PER_TOKEN = 64
# Tokens kept for each token of the encoder's limit: a linear classifier reads further.
KEPT_PER_TOKEN = 8

CHUNK_TEXTS, CHUNK_CHARACTERS = 4096, 1 << 19  # the most that are read at once, if it is not a single text
CHUNKS_ALONE = 48  # read before other processes are started: about as long as starting them takes
TEXTS_AT_ONCE, TOKENS_AT_ONCE = 1024, 1 << 22  # that are counted in some 32 MB

SHORTEST, LONGEST = 2, 5  # characters of an n-gram
# Sub-word models do not learn from longer words: one attachment would fill the vocabulary, in minutes.
LONGEST_LEARNED = 500
LONGEST_WORD = 40  # characters: parts of a longer word, such as a link, mean nothing
PAIR_MULTIPLIER = 1_000_003  # the hash of a pair of words is the first's number times this prime plus the second's
CRC32_OF_BYTE = np.array([zlib.crc32(bytes([byte])) for byte in range(256)], dtype=np.uint32)


@dataclass(frozen=True, kw_only=True)
class CharNgrams:
    """Hashed character n-grams of many words, by which unknown words are not alike."""

    ngrams: NDArray[np.uint32]  # word `i` has `ngrams[offsets[i]:offsets[i + 1]]`, possibly none
    offsets: NDArray[np.int64]  # `words + 1` indices into `ngrams`

    def __len__(self) -> int:
        return len(self.offsets) - 1

    def take(self, words: NDArray[np.integer[Any]]) -> CharNgrams:
        """The n-grams of some of the words, in their order."""
        starts = self.offsets[words]
        lengths = self.offsets[words + 1] - starts
        return CharNgrams(ngrams=self.ngrams[flat_indices(starts, lengths)], offsets=ends_from_zero(lengths))


@dataclass(frozen=True, kw_only=True)
class TokenizedTexts:
    """The tokens of many texts, one after the other."""

    words: NDArray[np.int32]  # indices in the list of words; text `i` has `words[offsets[i]:offsets[i + 1]]`
    word_ids: NDArray[np.int32]  # the token id of each word; several unknown words are all `[UNK]`
    char_ngrams: CharNgrams  # of each word; special tokens have none
    offsets: NDArray[np.int64]  # `len(texts) + 1` indices into `words`
    max_seq_len: int  # tokens of a text that an encoder reads; `KEPT_PER_TOKEN` times as many are kept
    truncated: NDArray[np.bool_]  # whether each text is longer than an encoder reads

    def __len__(self) -> int:
        return len(self.truncated)

    def __getitem__(self, texts: slice) -> TokenizedTexts:
        """Some neighbouring texts, such as `[:count]`; the list of words stays the same."""
        start, stop, _ = texts.indices(len(self))
        offsets = self.offsets[start : stop + 1]
        return replace(
            self,
            words=self.words[offsets[0] : offsets[-1]],
            offsets=offsets - offsets[0],
            truncated=self.truncated[texts],
        )

    def take(self, texts: NDArray[np.int64]) -> TokenizedTexts:
        """Some of the texts, in this order; the list of words stays the same."""
        lengths = np.diff(self.offsets)[texts]
        words = self.words[flat_indices(self.offsets[texts], lengths)]
        return replace(self, words=words, offsets=ends_from_zero(lengths), truncated=self.truncated[texts])

    def input_ids(self, tokens: NDArray[np.int64] | slice = slice(None)) -> NDArray[np.int32]:
        """The ids of tokens."""
        return self.word_ids[self.words[tokens]]

    @cached_property
    def lengths(self) -> NDArray[np.int64]:
        """Tokens of each text that an encoder reads, `[CLS]` counted."""
        return self.lengths_within(self.max_seq_len)

    def lengths_within(self, max_tokens: int) -> NDArray[np.int64]:
        """Tokens of each text, `[CLS]` counted, up to a limit."""
        return np.minimum(np.diff(self.offsets), max_tokens)

    def word_counts(self) -> NDArray[np.int64]:
        """The frequency of each word of the list."""
        counts = np.zeros(len(self.word_ids), dtype=np.int64)
        for start in range(0, len(self.words), TOKENS_AT_ONCE):
            counts += np.bincount(self.words[start : start + TOKENS_AT_ONCE], minlength=len(counts))
        return counts

    @cached_property
    def unknown(self) -> NDArray[np.int32]:
        """The number of `[UNK]` in each text as far as an encoder reads."""
        is_unknown = self.word_ids == UNK_ID
        counts = DiskBackedArray(np.int32)
        for first in range(0, len(self), TEXTS_AT_ONCE):
            some = self[first : first + TEXTS_AT_ONCE]
            position = np.arange(len(some.words)) - np.repeat(some.offsets[:-1], np.diff(some.offsets))
            are_unknown = is_unknown[some.words] & (position < self.max_seq_len)
            counts.append(np.add.reduceat(are_unknown, some.offsets[:-1], dtype=np.int32))
        return counts.array()

    @property
    def unknown_share(self) -> NDArray[np.float64]:
        """The part of the tokens of each text that an encoder reads, `[CLS]` not counted, that is `[UNK]`, (texts,)."""
        shares: NDArray[np.float64] = self.unknown / np.maximum(1, self.lengths - 1)
        return shares

    @property
    def truncated_fraction(self) -> float:
        """The part of the texts that are longer than an encoder reads."""
        return float(self.truncated.mean()) if len(self) else 0.0

    @property
    def unknown_fraction(self) -> float:
        """The part of the tokens that an encoder reads, `[CLS]` not counted, that is `[UNK]`."""
        return float(self.unknown.sum() / max(1, self.lengths.sum() - len(self)))


def ends_from_zero(lengths: NDArray[Any]) -> NDArray[np.int64]:
    """The offsets of pieces of these lengths in a flat array: 0, then the end of each."""
    return np.concatenate([[0], np.cumsum(lengths)])


def flat_indices(starts: NDArray[np.int64], lengths: NDArray[np.int64]) -> NDArray[np.int64]:
    """The indices of several pieces of a flat array, one piece after the other."""
    indices: NDArray[np.int64] = np.arange(lengths.sum()) + np.repeat(starts - np.cumsum(lengths) + lengths, lengths)
    return indices


class TokenChunk(NamedTuple):
    """The tokens of some texts, one text after the other."""

    distinct: list[str]
    indices: NDArray[np.int32]  # of each token in `distinct`, (tokens,)
    lengths: NDArray[np.int64]  # tokens of each text, (texts,)


TokenReader = Callable[[Sequence[str], int], TokenChunk]
"""Reads the first tokens of texts, `[CLS]` included, so many at most of each."""


def index_tokens(
    read: TokenReader, texts: Iterable[str], *, max_seq_len: int, in_processes: bool = False
) -> tuple[TokenizedTexts, list[str]]:
    """Read the tokens of any number of texts, and list their words; the id of each is its index in the list.

    An encoder reads `max_seq_len` tokens of a text. Other processes, to which `read` is sent, may help with many texts.
    """
    words, ngrams = DiskBackedRaggedArray(np.int32), DiskBackedRaggedArray(np.uint32)
    truncated, index = DiskBackedArray(np.bool_), dict[str, int]()
    chunks = _chunks(texts, most_characters=CHARACTERS_PER_TOKEN * max_seq_len)
    read_chunk = partial(_read_chunk, read, KEPT_PER_TOKEN * max_seq_len)
    chunks_read = map_in_processes(read_chunk, chunks, alone=CHUNKS_ALONE) if in_processes else map(read_chunk, chunks)
    for chunk, are_cut in chunks_read:
        known = len(index)
        rows = [index.setdefault(token, len(index)) for token in chunk.distinct]
        new = [token for token, row in zip(chunk.distinct, rows, strict=True) if row >= known]
        hashed = hash_char_ngrams(["" if token in SPECIAL_TOKENS else token for token in new])
        ngrams.append(hashed.ngrams, np.diff(hashed.offsets))
        words.append(np.array(rows, dtype=np.int32)[chunk.indices], chunk.lengths)
        truncated.append(are_cut | (chunk.lengths > max_seq_len))
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


def _chunks(texts: Iterable[str], *, most_characters: int) -> Iterator[list[tuple[str, bool]]]:
    """Texts as far as they are read, and whether each is longer; in large chunks, since words are looked up in each."""
    chunk, characters = list[tuple[str, bool]](), 0
    for text in texts:
        chunk.append((text[:most_characters], len(text) > most_characters))
        characters += len(chunk[-1][0])
        if characters >= CHUNK_CHARACTERS or len(chunk) >= CHUNK_TEXTS:
            yield chunk
            chunk, characters = [], 0
    if chunk:
        yield chunk


def _read_chunk(
    read: TokenReader, most_kept: int, chunk: list[tuple[str, bool]]
) -> tuple[TokenChunk, NDArray[np.bool_]]:
    texts, are_cut = zip(*chunk, strict=True)
    return read(texts, most_kept), np.array(are_cut)


def hash_char_ngrams(words: Sequence[str]) -> CharNgrams:
    """Hash the n-grams of words, the shorter first; an empty word has none.

    A word's n-grams are those of "<word>", as in fastText (Bojanowski et al., "Enriching Word Vectors with Subword
    Information", 2017, https://arxiv.org/abs/1607.04606): "<at", "at>" and so on. Hashes need no vocabulary; users of
    them take them modulo a number of buckets.
    """
    marked = [f"<{word[:LONGEST_WORD]}>" if word else "" for word in words]
    content = np.frombuffer("".join(marked).encode("utf-8", "replace"), dtype=np.uint8)
    character_starts = np.flatnonzero(content & 0xC0 != 0x80)
    character_sizes = np.diff(character_starts, append=len(content))
    lengths = np.array([len(word) for word in marked], dtype=np.int64)
    word_starts = np.cumsum(lengths) - lengths
    counts = np.maximum(0, lengths[:, None] + 1 - np.arange(SHORTEST, LONGEST + 1))  # of n-grams, (words, sizes)
    ends = np.cumsum(counts).reshape(counts.shape)

    ngrams = np.zeros(counts.sum(), dtype=np.uint32)
    begins = np.arange(len(character_starts))  # n-grams of one character, then of two, ...: each grows by the next
    hashes = np.zeros(len(begins), dtype=np.uint32)
    left = np.repeat(word_starts + lengths, lengths) - begins  # characters in the word, from each on
    for size in range(1, LONGEST + 1):
        fits = left >= size
        begins, hashes, left = begins[fits], hashes[fits], left[fits]
        last = begins + size - 1
        hashes = _extended(hashes, content, character_starts[last], character_sizes[last])
        if size >= SHORTEST:
            column = size - SHORTEST
            ngrams[flat_indices(ends[:, column] - counts[:, column], counts[:, column])] = hashes
    return CharNgrams(ngrams=ngrams, offsets=np.concatenate([[0], ends[:, -1]]))


def _extended(
    hashes: NDArray[np.uint32], content: NDArray[np.uint8], starts: NDArray[np.int64], sizes: NDArray[np.int64]
) -> NDArray[np.uint32]:
    """CRC-32 of n-grams that are one character longer: its bytes are `content[start : start + size]`."""
    for byte in range(sizes.max(initial=0)):
        (more,) = np.nonzero(sizes > byte)
        before = hashes[more]
        hashes[more] = CRC32_OF_BYTE[(before ^ content[starts[more] + byte]) & 0xFF] ^ (before >> 8)
    return hashes
