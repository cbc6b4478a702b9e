"""Hashed character n-grams of words, by which unknown words are not alike.

A word's n-grams are those of "<word>", as in fastText (Bojanowski et al., "Enriching Word Vectors with
Subword Information", 2017, https://arxiv.org/abs/1607.04606): "<at", "at>" and so on. Hashes need no vocabulary; users
of them take them modulo a number of buckets.
"""

from __future__ import annotations

import zlib
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

SHORTEST, LONGEST = 2, 5  # characters of an n-gram
PAIR_MULTIPLIER = 1_000_003  # the hash of a pair of words is the first's number times this prime plus the second's
LONGEST_WORD = 40  # characters: parts of a longer word, such as a link, mean nothing
CRC32_OF_BYTE = np.array([zlib.crc32(bytes([byte])) for byte in range(256)], dtype=np.uint32)


@dataclass(frozen=True, kw_only=True)
class CharNgrams:
    """The n-grams of many words, one after the other.

    Attributes:
        ngrams: hashes; word `i` has `ngrams[offsets[i]:offsets[i + 1]]`, possibly none.
        offsets: `words + 1` indices into `ngrams`.
    """

    ngrams: NDArray[np.uint32]
    offsets: NDArray[np.int64]

    def __len__(self) -> int:
        return len(self.offsets) - 1

    def take(self, words: NDArray[np.integer[Any]]) -> CharNgrams:
        """The n-grams of some of the words, in their order."""
        starts = self.offsets[words]
        lengths = self.offsets[words + 1] - starts
        offsets = np.concatenate([[0], np.cumsum(lengths)])
        return CharNgrams(ngrams=self.ngrams[flat_indices(starts, lengths)], offsets=offsets)


def flat_indices(starts: NDArray[np.int64], lengths: NDArray[np.int64]) -> NDArray[np.int64]:
    """The indices of several pieces of a flat array, one piece after the other."""
    indices: NDArray[np.int64] = np.arange(lengths.sum()) + np.repeat(starts - np.cumsum(lengths) + lengths, lengths)
    return indices


def hash_char_ngrams(words: Sequence[str]) -> CharNgrams:
    """The hashed n-grams of words, the shorter first; an empty word has none."""
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
    """The hashes of n-grams that are one character longer: its bytes are `content[start : start + size]`."""
    for byte in range(sizes.max(initial=0)):
        (more,) = np.nonzero(sizes > byte)
        before = hashes[more]
        hashes[more] = CRC32_OF_BYTE[(before ^ content[starts[more] + byte]) & 0xFF] ^ (before >> 8)
    return hashes
