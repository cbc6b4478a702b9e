"""Words in, hashed character n-grams out: how a word is spelt says something of words never seen.

A word's n-grams are those of "<word>", as in fastText (Bojanowski et al., "Enriching Word Vectors with
Subword Information", 2017, https://arxiv.org/abs/1607.04606): "<at", "at>" and so on. They are named by a hash,
so that no list of them has to be kept; whoever uses them takes the hash modulo a number of buckets.
"""

from __future__ import annotations

import zlib
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

SHORTEST, LONGEST = 2, 5  # characters of an n-gram
LONGEST_WORD = 40  # characters read of a word: a link or a hash has no telling parts


@dataclass(frozen=True, kw_only=True)
class Spellings:
    """The n-grams of many words, one after the other.

    Attributes:
        ngrams: hashes; word `i` has `ngrams[offsets[i]:offsets[i + 1]]`, possibly none.
        offsets: `words + 1` places in `ngrams`.
    """

    ngrams: NDArray[np.uint32]
    offsets: NDArray[np.int64]

    def __len__(self) -> int:
        return len(self.offsets) - 1

    def take(self, words: NDArray[np.integer[Any]]) -> Spellings:
        """The spellings of some of the words, in their order."""
        starts = self.offsets[words]
        lengths = self.offsets[words + 1] - starts
        offsets = np.concatenate([[0], np.cumsum(lengths)])
        return Spellings(ngrams=self.ngrams[flat_places(starts, lengths)], offsets=offsets)


def flat_places(starts: NDArray[np.int64], lengths: NDArray[np.int64]) -> NDArray[np.int64]:
    """The places of several pieces of a flat array, one piece after the other: each from its start, so many long."""
    places: NDArray[np.int64] = np.arange(lengths.sum()) + np.repeat(starts - np.cumsum(lengths) + lengths, lengths)
    return places


def spell(words: Sequence[str]) -> Spellings:
    """The hashed n-grams of words; an empty word has none."""
    ngrams: list[int] = []
    offsets = [0]
    for word in words:
        if word:
            ngrams += map(zlib.crc32, _pieces(f"<{word[:LONGEST_WORD]}>"))
        offsets.append(len(ngrams))
    return Spellings(ngrams=np.array(ngrams, dtype=np.uint32), offsets=np.array(offsets, dtype=np.int64))


def _pieces(word: str) -> list[bytes]:
    """The n-grams of a word, the shorter first, as UTF-8."""
    if word.isascii():  # a character is a byte: to encode once is enough
        content = word.encode()
        return [content[place] for place in _places(len(word))]
    return [word[place].encode("utf-8", "replace") for place in _places(len(word))]


@cache
def _places(characters: int) -> list[slice]:
    """Where the n-grams are of a word of so many characters."""
    lengths = range(SHORTEST, LONGEST + 1)
    return [slice(start, start + length) for length in lengths for start in range(characters - length + 1)]
