"""The tokens of texts in, what a linear classifier looks at out: sparse vectors of hashed features.

- words, and pairs of words with and without a word between them;
- patterns: two to six words side by side, of which only the frequent ones count as themselves, as in "what is _ of";
  the beginning of a text counts as a word. They tell how something is said, whatever it is about (Davidov et al.,
  "Enhanced Sentiment Learning Using Twitter Hashtags and Smileys", 2010, https://aclanthology.org/C10-2028/);
- character n-grams inside words.

A feature is named by a number: where those of its kind begin plus a hash, so that no list of them has to be kept.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from encoder_cls.text.char_ngrams import PAIR_MULTIPLIER, flat_places
from encoder_cls.text.token_arrays import MASK_ID, SPECIAL_TOKENS, TokenizedTexts

DISTANCES = (1, 2)  # of the words of a pair
PATTERN_SIZES = range(2, 7)  # words
FREQUENT = 300  # words are frequent that are, each, one in so many words of the texts or more
HASHES = 1 << 22  # of a kind of feature: so many that few of a million different n-grams meet
PATTERN_NAMES = HASHES * (1 + len(DISTANCES))  # names of words and pairs come first, then those of patterns,
CHAR_NAMES = PATTERN_NAMES + HASHES  # then those of character n-grams
ALL_NAMES = CHAR_NAMES + HASHES
LENGTHS = (1.0, 0.4, 1.0)  # of the vectors of a text's words and pairs, of its patterns and of its character n-grams
CHUNK = 4096  # texts counted at once: what counting needs is many times the counts


Found = tuple[NDArray[np.int64], NDArray[np.int64]]
"""The hashes of features, and at which of the tokens each ends."""


def frequent_words(texts: TokenizedTexts, *, reach: int) -> NDArray[np.int32]:
    """The ids of the words that are frequent in texts, increasing, `FREQUENT` at most.

    Args:
        texts: the texts.
        reach: how many tokens of a text count, `[CLS]` counted.
    """
    counts = np.zeros(texts.word_ids.max(initial=0) + 1, dtype=np.int64)
    for places, _ in _in_chunks(texts, reach):
        counts += np.bincount(texts.input_ids(places), minlength=len(counts))
    counts[: len(SPECIAL_TOKENS)] = 0
    return np.flatnonzero(counts * FREQUENT >= max(1, counts.sum())).astype(np.int32)


def count_features(
    texts: TokenizedTexts, *, reach: int, frequent: NDArray[np.int32], words_only: bool
) -> Iterator[sp.csr_matrix]:
    """How often which feature occurs in which text, (texts, ALL_NAMES), for `CHUNK` texts after the other.

    Args:
        texts: the texts.
        reach: how many tokens of a text to read, `[CLS]` counted.
        frequent: the ids of the frequent words.
        words_only: whether to look at words and pairs alone, which take a twentieth of the memory.
    """
    for places, offsets in _in_chunks(texts, reach):
        ids, lengths = texts.input_ids(places).astype(np.int64), np.diff(offsets)
        place = np.arange(len(ids)) - np.repeat(offsets[:-1], lengths)  # of each token in its text; 0 is [CLS]
        kinds = [_words(ids, place), *_pairs(ids, place)]
        if not words_only:
            kinds.append(_patterns(ids, place, frequent))
        names = np.concatenate([hashes % HASHES + HASHES * kind for kind, (hashes, _) in enumerate(kinds)])
        text_of = np.repeat(np.arange(len(lengths)), lengths)
        rows = text_of[np.concatenate([ends for _, ends in kinds])]
        shape = (len(lengths), CHAR_NAMES)
        counts = [sp.csr_matrix((np.ones(len(names), dtype=np.float32), (rows, names)), shape=shape)]
        counts.append(sp.csr_matrix((len(lengths), HASHES)) if words_only else _chars(texts, places, offsets))
        yield sp.hstack(counts, format="csr", dtype=np.float32)


def select(counts: sp.csr_matrix, names: NDArray[np.int32]) -> sp.csr_matrix:
    """The columns of some features, (texts, features), in the order of their names, which increase."""
    columns = np.searchsorted(names, counts.indices)
    known = columns < len(names)
    known[known] = names[columns[known]] == counts.indices[known]
    ends = np.concatenate([[0], np.cumsum(known)])[counts.indptr]
    return sp.csr_matrix((counts.data[known], columns[known], ends), shape=(counts.shape[0], len(names)))


def tfidf(counts: sp.csr_matrix, names: NDArray[np.int32], idf: NDArray[np.float32]) -> sp.csr_matrix:
    """(1 + ln count) * idf of each feature of a text; the vectors of its three groups of features have `LENGTHS`."""
    values = (1 + np.log(counts.data)) * idf[counts.indices]
    group_of = np.digitize(names, (PATTERN_NAMES, CHAR_NAMES))
    rows = np.repeat(np.arange(counts.shape[0]), np.diff(counts.indptr))
    vectors = len(LENGTHS) * rows + group_of[counts.indices]
    squares = np.bincount(vectors, weights=values.astype(np.float64) ** 2, minlength=len(LENGTHS) * counts.shape[0])
    scales = np.tile(LENGTHS, counts.shape[0]) / np.sqrt(np.where(squares > 0, squares, 1))
    scaled = (values * scales[vectors]).astype(np.float32)
    return sp.csr_matrix((scaled, counts.indices, counts.indptr), shape=counts.shape)


def _in_chunks(texts: TokenizedTexts, reach: int) -> Iterator[tuple[NDArray[np.int64], NDArray[np.int64]]]:
    """The places of the tokens of some texts, one text after the other, and `texts + 1` offsets into them."""
    lengths = texts.lengths_within(reach)
    for first in range(0, len(texts), CHUNK):
        chunk = slice(first, first + CHUNK)
        yield flat_places(texts.offsets[:-1][chunk], lengths[chunk]), np.concatenate([[0], np.cumsum(lengths[chunk])])


def _words(ids: NDArray[np.int64], place: NDArray[np.int64]) -> Found:
    (ends,) = np.nonzero(place)  # without [CLS], which every text has
    return ids[ends], ends


def _pairs(ids: NDArray[np.int64], place: NDArray[np.int64]) -> Iterator[Found]:
    """Of each distance."""
    for distance in DISTANCES:
        (ends,) = np.nonzero(place >= distance)
        yield ids[ends - distance] * PAIR_MULTIPLIER + ids[ends], ends


def _patterns(ids: NDArray[np.int64], place: NDArray[np.int64], frequent: NDArray[np.int32]) -> Found:
    """Of all sizes; `[MASK]`, which no text has, stands for words that are not frequent."""
    slots = np.where((place == 0) | np.isin(ids, frequent), ids, MASK_ID)
    found, grown = [], slots
    for size in PATTERN_SIZES:  # each grows by the next word
        grown = np.roll(grown, 1) * PAIR_MULTIPLIER % HASHES + slots
        (ends,) = np.nonzero(place >= size - 1)
        found.append((grown[ends], ends))
    hashes, ends = (np.concatenate(parts) for parts in zip(*found, strict=True))
    return hashes, ends


def _chars(texts: TokenizedTexts, places: NDArray[np.int64], offsets: NDArray[np.int64]) -> sp.csr_matrix:
    """Character n-grams inside words, (texts, HASHES): the words of a text times the n-grams of a word."""
    distinct, words = np.unique(texts.words[places], return_inverse=True)
    spellings = texts.spellings.take(distinct)
    hashes, ngrams = np.unique(spellings.ngrams.astype(np.int64) % HASHES, return_inverse=True)
    spelt = sp.csr_matrix(
        (np.ones(len(ngrams), dtype=np.float32), ngrams, spellings.offsets), shape=(len(distinct), len(hashes))
    )
    bags = sp.csr_matrix(
        (np.ones(len(words), dtype=np.float32), words, offsets), shape=(len(offsets) - 1, len(distinct))
    )
    counts = bags @ spelt
    return sp.csr_matrix((counts.data, hashes[counts.indices], counts.indptr), shape=(len(offsets) - 1, HASHES))
