"""The arrays of tokens fit together, list each word once, and end where a text is cut."""

from __future__ import annotations

import zlib
from collections.abc import Iterable, Sequence
from dataclasses import replace
from itertools import chain, pairwise

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
    MAX_WORD_LENGTH,
    SPECIAL_TOKENS,
    UNK_ID,
    CharNgrams,
    TokenChunk,
    TokenizedTexts,
    hash_char_ngrams,
    index_tokens,
)


def by_spaces(texts: Sequence[str], max_tokens: int) -> TokenChunk:
    """Read the words between spaces."""
    distinct = []
    indices = []
    lengths = []
    for text in texts:
        tokens = ["[CLS]", *text.split()][:max_tokens]
        lengths.append(len(tokens))
        for token in tokens:
            if token not in distinct:
                distinct.append(token)
            indices.append(distinct.index(token))

    return TokenChunk(
        distinct=distinct,
        indices=np.array(indices, dtype=np.int32),
        lengths=np.array(lengths, dtype=np.int64),
    )


def find(texts: Sequence[str], *, max_seq_len: int = 64) -> tuple[TokenizedTexts, list[str]]:
    """The tokens of texts, and their words."""
    return index_tokens(by_spaces, texts, max_seq_len=max_seq_len)


def knowing(found: TokenizedTexts, words: Sequence[str], known: Iterable[str]) -> TokenizedTexts:
    """Give an id to each of the known words; all other words are unknown."""
    vocabulary = [*SPECIAL_TOKENS, *known]
    ids = {word: number for number, word in enumerate(vocabulary)}
    word_ids = [ids.get(word, UNK_ID) for word in words]
    return replace(found, word_ids=np.array(word_ids, dtype=np.int32))


def tokens_of(found: TokenizedTexts, words: Sequence[str]) -> list[list[str]]:
    """All tokens that are kept of each text."""
    texts_tokens = []
    for start, end in pairwise(found.offsets):
        indices = found.words[start:end]
        texts_tokens.append([words[index] for index in indices])
    return texts_tokens


def ngrams_of(char_ngrams: CharNgrams, word: int = 0) -> list[int]:
    """The hashes of the n-grams of the word with this number."""
    return char_ngrams.take(np.array([word])).ngrams.tolist()


# The last two words differ only beyond the characters that are hashed.
WORDS = ["a", "bb", "é", "日本", "[UNK]", "c" * 50, "c" * 51]

TEXTS = st.lists(st.lists(st.sampled_from(WORDS), max_size=40).map(" ".join), max_size=6)


@settings(max_examples=50, deadline=None, derandomize=True)
@given(texts=TEXTS, max_seq_len=st.integers(1, 5))
def test_each_text_keeps_its_tokens_up_to_the_limits(texts, max_seq_len):
    found, words = find(texts, max_seq_len=max_seq_len)

    max_characters = CHARACTERS_PER_TOKEN * max_seq_len
    kept = []
    truncated = []
    for text in texts:
        tokens = ["[CLS]", *text[:max_characters].split()]
        kept.append(tokens[: KEPT_PER_TOKEN * max_seq_len])
        truncated.append(len(text) > max_characters or len(tokens) > max_seq_len)

    assert tokens_of(found, words) == kept
    assert found.truncated.tolist() == truncated

    # Each word is listed once, and its id is its index until a vocabulary gives it another.
    assert sorted(words) == sorted(set(chain.from_iterable(kept)))
    assert found.input_ids().tolist() == found.words.tolist()


@settings(max_examples=50, deadline=None, derandomize=True)
@given(texts=TEXTS)
def test_each_word_has_its_own_n_grams_and_special_tokens_have_none(texts):
    found, words = find(texts)

    for number, word in enumerate(words):
        spelling = "" if word in SPECIAL_TOKENS else word
        assert ngrams_of(found.char_ngrams, number) == ngrams_of(hash_char_ngrams([spelling]))


@settings(max_examples=50, deadline=None, derandomize=True)
@given(
    texts=TEXTS,
    max_seq_len=st.integers(1, 5),
    known=st.sets(st.sampled_from(["a", "bb", "é"])),
)
def test_unknown_words_are_counted_among_those_that_an_encoder_reads(texts, max_seq_len, known):
    found, words = find(texts, max_seq_len=max_seq_len)
    tokenized = knowing(found, words, known)

    # An encoder reads these tokens. The first one is `[CLS]`, which is no word.
    lengths = []
    unknown = []
    for tokens in tokens_of(found, words):
        read = tokens[:max_seq_len]
        lengths.append(len(read))
        unknown.append(sum(word not in known for word in read[1:]))
    num_words = sum(lengths) - len(lengths)

    assert tokenized.lengths.tolist() == lengths
    assert tokenized.unknown.tolist() == unknown
    assert tokenized.unknown_fraction == pytest.approx(sum(unknown) / max(1, num_words))


@pytest.mark.parametrize("at_once", [1, 2, 1024])
def test_some_of_the_texts_are_those_texts(monkeypatch, at_once):
    """A part of the texts, in any order, has the words, lengths and flags of the whole."""
    monkeypatch.setattr(tokens_module, "TEXTS_AT_ONCE", at_once)
    found, words = find(["a b c", "z z", "a", ""], max_seq_len=3)
    found = knowing(found, words, ["a", "b"])

    parts = [
        (found[:2], [0, 1]),
        (found[1:3], [1, 2]),
        (found[:0], []),
        (found.take(np.array([2, 0])), [2, 0]),
    ]
    all_tokens = tokens_of(found, words)
    for part, rows in parts:
        assert len(part) == len(rows)
        assert len(part.word_ids) == len(words)
        assert tokens_of(part, words) == [all_tokens[row] for row in rows]
        assert part.lengths.tolist() == found.lengths[rows].tolist()
        assert part.truncated.tolist() == found.truncated[rows].tolist()
        assert part.unknown.tolist() == found.unknown[rows].tolist()


def test_no_texts_have_no_unknown_words():
    found, _ = find(["a b c"])
    assert found[:0].unknown_fraction == 0


def test_processes_find_the_same_words(monkeypatch):
    """The words have the same order, and include words that are not ASCII."""
    texts = [f"Text {number % 70} né, größer {number}" for number in range(300)]
    texts.append("x " * 200)
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


def ngrams_within(word: str) -> list[str]:
    """The n-grams of two to five characters of "<word>", the shorter first."""
    if not word:
        return []
    marked = f"<{word[:MAX_WORD_LENGTH]}>"
    ngrams = []
    for size in range(2, 6):
        for start in range(len(marked) - size + 1):
            ngrams.append(marked[start : start + size])
    return ngrams


ODD_WORDS = st.text(st.characters() | st.sampled_from("aé日🙂"), max_size=50)


@settings(max_examples=80, deadline=None, derandomize=True)
@given(words=st.lists(ODD_WORDS, max_size=8))
def test_n_grams_are_hashed_by_the_crc_32_of_their_bytes(words):
    """The hashes of a word do not depend on the other words that are hashed with it."""
    char_ngrams = hash_char_ngrams(words)

    assert len(char_ngrams) == len(words)
    assert char_ngrams.ngrams.dtype == np.uint32
    assert char_ngrams.offsets.dtype == np.int64
    for number, word in enumerate(words):
        ngrams = [ngram.encode("utf-8", "replace") for ngram in ngrams_within(word)]
        expected = [zlib.crc32(ngram) for ngram in ngrams]
        assert ngrams_of(char_ngrams, number) == expected
        assert ngrams_of(hash_char_ngrams([word])) == expected


SPELT = ["cat", "", "a", "naïve", "", "🙂", "x" * 99, "日本"]


@settings(max_examples=40, deadline=None, derandomize=True)
@given(
    numbers=st.lists(st.integers(0, len(SPELT) - 1), max_size=20),
    number_type=st.sampled_from([np.int32, np.int64]),
)
def test_taking_words_is_spelling_them(numbers, number_type):
    """Words may be in any order, repeated, left out or empty; there may be none at all."""
    taken = hash_char_ngrams(SPELT).take(np.array(numbers, dtype=number_type))
    expected = hash_char_ngrams([SPELT[number] for number in numbers])

    assert taken.ngrams.tolist() == expected.ngrams.tolist()
    assert taken.offsets.tolist() == expected.offsets.tolist()
    assert taken.ngrams.dtype == np.uint32
    assert taken.offsets.dtype == np.int64
