"""Token ids of many texts in flat arrays.

The id and the character n-grams of a word are kept once, however often it occurs, also if it is unknown. Every sequence
begins with `[CLS]`, so that none is empty.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property, partial
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from encoder_cls.system.disk_arrays import DiskBackedArray, DiskBackedRaggedArray
from encoder_cls.system.processes import map_in_processes
from encoder_cls.text.char_ngrams import CharNgrams, flat_indices, hash_char_ngrams

PAD_ID, UNK_ID, CLS_ID, MASK_ID = range(4)
SPECIAL_TOKENS = ["[PAD]", "[UNK]", "[CLS]", "[MASK]"]

# Characters read for each token of the limit: more could not fit anyway, and a 10 MB text costs no more than a page.
CHARACTERS_PER_TOKEN = 64
# Tokens kept for each token of the encoder's limit: a linear classifier reads further.
KEPT_PER_TOKEN = 8

CHUNK_TEXTS, CHUNK_CHARACTERS = 4096, 1 << 19  # the most that are read at once, if it is not a single text
CHUNKS_ALONE = 48  # read before other processes are started: about as long as starting them takes
TEXTS_AT_ONCE, TOKENS_AT_ONCE = 1024, 1 << 22  # that are counted in some 32 MB


class TokenChunk(NamedTuple):
    """The tokens of some texts, one text after the other.

    Attributes:
        distinct: the different tokens.
        indices: of each token in `distinct`, (tokens,).
        lengths: tokens of each text, (texts,).
    """

    distinct: list[str]
    indices: NDArray[np.int32]
    lengths: NDArray[np.int64]


TokenReader = Callable[[Sequence[str], int], TokenChunk]
"""Finds the first tokens of texts, `[CLS]` included, so many at most of each."""


@dataclass(frozen=True, kw_only=True)
class TokenizedTexts:
    """The tokens of many texts, one after the other.

    Attributes:
        words: the index of each token in the list of words; text `i` has `words[offsets[i]:offsets[i + 1]]`.
        word_ids: the token id of each word; several unknown words are all `[UNK]`.
        char_ngrams: of each word; special tokens have none.
        offsets: `len(texts) + 1` indices into `words`.
        max_seq_len: tokens of a text that an encoder reads; `KEPT_PER_TOKEN` times as many are kept.
        truncated: whether text `i` is longer than an encoder reads.
    """

    words: NDArray[np.int32]
    word_ids: NDArray[np.int32]
    char_ngrams: CharNgrams
    offsets: NDArray[np.int64]
    max_seq_len: int
    truncated: NDArray[np.bool_]

    def __len__(self) -> int:
        return len(self.truncated)

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

    def first(self, count: int) -> TokenizedTexts:
        """The first texts of these; the list of words stays the same."""
        return replace(
            self,
            words=self.words[: self.offsets[count]],
            offsets=self.offsets[: count + 1],
            truncated=self.truncated[:count],
        )

    def take(self, texts: NDArray[np.int64]) -> TokenizedTexts:
        """Some of the texts, in this order; the list of words stays the same."""
        lengths = np.diff(self.offsets)[texts]
        return replace(
            self,
            words=self.words[flat_indices(self.offsets[texts], lengths)],
            offsets=np.concatenate([[0], np.cumsum(lengths)]),
            truncated=self.truncated[texts],
        )

    def take_one(self, text: int) -> TokenizedTexts:
        """One of the texts."""
        start, end = self.offsets[text : text + 2]
        return replace(
            self,
            words=self.words[start:end],
            offsets=np.array([0, end - start]),
            truncated=self.truncated[text : text + 1],
        )

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
            offsets = self.offsets[first : first + TEXTS_AT_ONCE + 1]
            starts, lengths = offsets[:-1] - offsets[0], np.diff(offsets)
            are_unknown = is_unknown[self.words[offsets[0] : offsets[-1]]]
            are_unknown &= np.arange(len(are_unknown)) - np.repeat(starts, lengths) < self.max_seq_len
            counts.append(np.add.reduceat(are_unknown, starts, dtype=np.int32))
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


def index_tokens(
    read: TokenReader, texts: Iterable[str], *, max_seq_len: int, in_processes: bool = False
) -> tuple[TokenizedTexts, list[str]]:
    """Find and list the words of texts; the id of each is its index in the list.

    Args:
        read: finds the tokens of some texts.
        texts: any number of texts.
        max_seq_len: tokens of a text that an encoder reads.
        in_processes: whether other processes, to which `read` is sent, help with many texts.
    """
    most_characters = CHARACTERS_PER_TOKEN * max_seq_len
    index, rows, truncated = _TokenIndex(), DiskBackedRaggedArray(np.int32), DiskBackedArray(np.bool_)
    chunks = _chunks(texts, most_characters=most_characters)
    read_chunk = partial(_read_chunk, read, KEPT_PER_TOKEN * max_seq_len)
    chunks_read = map_in_processes(read_chunk, chunks, alone=CHUNKS_ALONE) if in_processes else map(read_chunk, chunks)
    for found, are_cut in chunks_read:
        rows.append(index.rows(found), found.lengths)
        truncated.append(are_cut | (found.lengths > max_seq_len))
    words, offsets = rows.arrays()
    listed = index.words()
    indexed = TokenizedTexts(
        words=words,
        word_ids=np.arange(len(listed), dtype=np.int32),
        char_ngrams=index.char_ngrams(),
        offsets=offsets,
        max_seq_len=max_seq_len,
        truncated=truncated.array(),
    )
    return indexed, listed


class _Chunk(NamedTuple):
    """Some texts, as far as they are read, and whether each is longer."""

    texts: list[str]
    are_cut: list[bool]


def _chunks(texts: Iterable[str], *, most_characters: int) -> Iterator[_Chunk]:
    """Texts in large chunks, since words are looked up once a chunk."""
    chunk, characters = _Chunk([], []), 0
    for text in texts:
        chunk.texts.append(text[:most_characters])
        chunk.are_cut.append(len(text) > most_characters)
        characters += len(chunk.texts[-1])
        if characters >= CHUNK_CHARACTERS or len(chunk.texts) >= CHUNK_TEXTS:
            yield chunk
            chunk, characters = _Chunk([], []), 0
    if chunk.texts:
        yield chunk


def _read_chunk(read: TokenReader, most_kept: int, chunk: _Chunk) -> tuple[TokenChunk, NDArray[np.bool_]]:
    """The tokens of some texts, and whether each text is cut."""
    return read(chunk.texts, most_kept), np.array(chunk.are_cut)


class _TokenIndex:
    """A list of words that grows as texts are read."""

    def __init__(self) -> None:
        self._rows: dict[str, int] = {}
        self._ngrams = DiskBackedRaggedArray(np.uint32)

    def words(self) -> list[str]:
        """All words, in the order of their rows."""
        return list(self._rows)

    def char_ngrams(self) -> CharNgrams:
        """The character n-grams of all words; no word can be added afterwards."""
        ngrams, offsets = self._ngrams.arrays()
        return CharNgrams(ngrams=ngrams, offsets=offsets)

    def rows(self, found: TokenChunk) -> NDArray[np.int32]:
        """The index of each token's word, which is added if it is new."""
        known = len(self._rows)
        rows = [self._rows.setdefault(token, len(self._rows)) for token in found.distinct]
        new = [token for token, row in zip(found.distinct, rows, strict=True) if row >= known]
        ngrams = hash_char_ngrams(["" if token in SPECIAL_TOKENS else token for token in new])
        self._ngrams.append(ngrams.ngrams, np.diff(ngrams.offsets))
        of_tokens: NDArray[np.int32] = np.array(rows, dtype=np.int32)[found.indices]
        return of_tokens
