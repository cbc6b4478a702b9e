"""Tokens of many texts: arrays that fit together, with each word once, cut where they are to be."""

from __future__ import annotations

import zlib
from collections.abc import Iterable, Sequence
from dataclasses import replace
from itertools import chain

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from encoder_cls.config.schema import TokenizerConfig
from encoder_cls.system import processes
from encoder_cls.text import tokens as tokens_module
from encoder_cls.text.tokenizer_training import train_and_tokenize
from encoder_cls.text.tokens import (
    CHARACTERS_PER_TOKEN,
    KEPT_PER_TOKEN,
    LONGEST_WORD,
    SPECIAL_TOKENS,
    UNK_ID,
    CharNgrams,
    TokenChunk,
    TokenizedTexts,
    hash_char_ngrams,
    index_tokens,
)


def by_spaces(texts: Sequence[str], most_tokens: int) -> TokenChunk:
    """A reader to whom words are what is between spaces."""
    tokens = [["[CLS]", *text.split()][:most_tokens] for text in texts]
    distinct = list(dict.fromkeys(chain(*tokens)))
    indices = np.array([distinct.index(token) for token in chain(*tokens)], dtype=np.int32)
    return TokenChunk(distinct, indices, np.array([*map(len, tokens)], dtype=np.int64))


def find(*texts: str, max_seq_len: int = 64) -> tuple[TokenizedTexts, list[str]]:
    return index_tokens(by_spaces, texts, max_seq_len=max_seq_len)


def knowing(found: TokenizedTexts, words: Sequence[str], known: Iterable[str]) -> TokenizedTexts:
    """The texts with an id for each of some words."""
    ids = {word: number for number, word in enumerate([*SPECIAL_TOKENS, *known])}
    return replace(
        found, word_ids=np.array([ids.get(word, UNK_ID) for word in words], dtype=np.int32)
    )


def tokens_of(found: TokenizedTexts, words: Sequence[str]) -> list[list[str]]:
    """All that is kept of each text."""
    rows = np.split(found.words, found.offsets[1:-1])[: len(found)]
    return [[words[row] for row in text] for text in rows]


def ngrams_of(char_ngrams: CharNgrams, word: int = 0) -> list[int]:
    return char_ngrams.take(np.array([word])).ngrams.tolist()


WORDS = [
    "a",
    "bb",
    "é",
    "日本",
    "[UNK]",
    "c" * 50,
    "c" * 51,
]  # the last two differ beyond the letters that are read


@settings(max_examples=150, deadline=None, derandomize=True)
@given(
    texts=st.lists(st.lists(st.sampled_from(WORDS), max_size=40), max_size=6),
    max_seq_len=st.integers(1, 5),
    known=st.sets(st.sampled_from(["a", "bb", "é"])),
)
def test_any_texts(texts, max_seq_len, known):
    """Each word is kept in its place up to the limit, and has one row, one id and its n-grams."""
    joined = [" ".join(text) for text in texts]
    found, words = find(*joined, max_seq_len=max_seq_len)
    read = [["[CLS]", *text[: CHARACTERS_PER_TOKEN * max_seq_len].split()] for text in joined]
    kept = [text[: KEPT_PER_TOKEN * max_seq_len] for text in read]
    assert tokens_of(found, words) == kept
    assert sorted(words) == sorted({word for text in kept for word in text})
    assert found.input_ids().tolist() == found.words.tolist()  # not looked up yet
    assert [ngrams_of(found.char_ngrams, word) for word in found.words] == [
        ngrams_of(hash_char_ngrams(["" if word in SPECIAL_TOKENS else word]))
        for text in kept
        for word in text
    ]
    assert found.truncated.tolist() == [
        len(text) > max_seq_len or len(whole) > CHARACTERS_PER_TOKEN * max_seq_len
        for text, whole in zip(read, joined, strict=True)
    ]
    result = knowing(found, words, known)
    is_unknown = [[word not in known for word in text[1:max_seq_len]] for text in kept]
    assert result.unknown.tolist() == [*map(sum, is_unknown)]
    assert result.lengths.tolist() == [min(len(text), max_seq_len) for text in kept]
    assert result.unknown_fraction == pytest.approx(
        sum(map(sum, is_unknown)) / max(1, sum(len(text) for text in is_unknown))
    )


@pytest.mark.parametrize("at_once", [1, 2, 1024])
def test_some_of_the_texts_are_those_texts(monkeypatch, at_once):
    """Neighbours by a slice, others in any order: with the words, lengths and flags that each has among all."""
    monkeypatch.setattr(tokens_module, "TEXTS_AT_ONCE", at_once)
    found, words = find("a b c", "z z", "a", "", max_seq_len=3)
    found = knowing(found, words, ["a", "b"])
    for some, rows in (
        (found[:2], [0, 1]),
        (found[1:3], [1, 2]),
        (found[:0], []),
        (found.take(np.array([2, 0])), [2, 0]),
    ):
        assert len(some) == len(rows)
        assert tokens_of(some, words) == [tokens_of(found, words)[row] for row in rows]
        for name in ("lengths", "truncated", "unknown"):
            assert getattr(some, name).tolist() == getattr(found, name)[rows].tolist()
        assert len(some.word_ids) == len(words)
    assert found[:0].unknown_fraction == 0


def test_processes_find_the_same_words(monkeypatch):
    """In the same order; of texts that are not ASCII, too."""
    texts = [f"Text {number % 70} né, größer {number}" for number in range(300)] + ["x " * 200]
    config = TokenizerConfig(min_frequency=2)
    alone, expected, _ = train_and_tokenize(texts, config, max_seq_len=16)
    monkeypatch.setattr(processes, "usable_processes", lambda: 2)
    monkeypatch.setattr(tokens_module, "CHUNKS_ALONE", 1)
    monkeypatch.setattr(tokens_module, "CHUNK_TEXTS", 64)
    shared, found, _ = train_and_tokenize(texts, config, max_seq_len=16)
    assert shared.to_str() == alone.to_str()
    assert np.array_equal(found.words, expected.words)
    assert np.array_equal(found.offsets, expected.offsets)
    assert np.array_equal(found.truncated, expected.truncated)
    assert found.truncated[-1]


SPELT = ["cat", "", "a", "naïve", "", "🙂", "x" * 99, "日本"]


def crc32(*ngrams: str) -> list[int]:
    return [zlib.crc32(ngram.encode("utf-8", "replace")) for ngram in ngrams]


@settings(max_examples=200, deadline=None, derandomize=True)
@given(
    words=st.lists(st.text(st.characters() | st.sampled_from("aé日🙂"), max_size=50), max_size=8)
)
def test_n_grams_are_named_by_the_crc_32_of_their_bytes(words):
    """In any company, whatever the characters and their bytes."""
    spellings = hash_char_ngrams(words)
    assert len(spellings) == len(words)
    assert (spellings.ngrams.dtype, spellings.offsets.dtype) == (np.uint32, np.int64)
    for place, word in enumerate(words):
        marked = f"<{word[:LONGEST_WORD]}>" if word else ""
        pieces = [
            marked[at : at + size] for size in range(2, 6) for at in range(len(marked) - size + 1)
        ]
        assert ngrams_of(spellings, place) == ngrams_of(hash_char_ngrams([word])) == crc32(*pieces)


@settings(max_examples=80, deadline=None, derandomize=True)
@given(
    places=st.lists(st.integers(0, len(SPELT) - 1), max_size=20),
    kind=st.sampled_from([np.int32, np.int64]),
)
def test_taking_words_is_spelling_them(places, kind):
    """In any order, words repeated or left out, none at all, empty ones among them."""
    taken = hash_char_ngrams(SPELT).take(np.array(places, dtype=kind))
    expected = hash_char_ngrams([SPELT[place] for place in places])
    assert taken.ngrams.tolist() == expected.ngrams.tolist()
    assert taken.offsets.tolist() == expected.offsets.tolist()
    assert (taken.ngrams.dtype, taken.offsets.dtype) == (np.uint32, np.int64)
