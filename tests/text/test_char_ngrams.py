"""Words in, hashes of their character n-grams out."""

from __future__ import annotations

import zlib

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from encoder_cls.text.tokens import LONGEST_WORD, CharNgrams, flat_indices, hash_char_ngrams

WORDS = ["cat", "", "a", "naïve", "", "🙂", "x" * 99, "日本"]


def ngrams_of(spellings: CharNgrams, word: int = 0) -> list[int]:
    return spellings.ngrams[spellings.offsets[word] : spellings.offsets[word + 1]].tolist()


def crc32(*ngrams: str) -> list[int]:
    return [zlib.crc32(ngram.encode("utf-8", "replace")) for ngram in ngrams]


@pytest.mark.parametrize(
    ("word", "ngrams"),
    [
        ("cat", ["<c", "ca", "at", "t>", "<ca", "cat", "at>", "<cat", "cat>", "<cat>"]),
        ("a", ["<a", "a>", "<a>"]),
        ("🙂", ["<🙂", "🙂>", "<🙂>"]),
        ("aa", ["<a", "aa", "a>", "<aa", "aa>", "<aa>"]),
        ("\ud800", ["<?", "?>", "<?>"]),
        ("cats", ["<c", "ca", "at", "ts", "s>", "<ca", "cat", "ats", "ts>", "<cat", "cats", "ats>", "<cats", "cats>"]),
    ],
)
def test_the_n_grams_of_a_word_are_those_of_the_word_in_angle_brackets(word, ngrams):
    """2 to 5 characters, by CRC-32 of their UTF-8: a change would make every saved model read other n-grams."""
    assert ngrams_of(hash_char_ngrams([word])) == crc32(*ngrams)


def test_a_long_word_is_read_up_to_a_limit():
    """What comes after `LONGEST_WORD` characters makes no difference, and what is shorter is read whole."""
    word = "".join(chr(ord("a") + i % 26) for i in range(LONGEST_WORD))
    assert (
        ngrams_of(hash_char_ngrams([word]))
        == ngrams_of(hash_char_ngrams([word + "q"]))
        == ngrams_of(hash_char_ngrams([word + "x" * 10_000]))
    )
    assert crc32(word[-4:] + ">")[0] in ngrams_of(hash_char_ngrams([word]))
    assert ngrams_of(hash_char_ngrams([word[:-1]])) != ngrams_of(hash_char_ngrams([word]))


@pytest.mark.parametrize(("words", "offsets"), [([], [0]), ([""], [0, 0]), (["", "a", ""], [0, 0, 3, 3])])
def test_an_empty_word_has_no_n_grams(words, offsets):
    """Not even "<>"; the other words keep their places."""
    spellings = hash_char_ngrams(words)
    assert spellings.offsets.tolist() == offsets
    assert len(spellings) == len(words)
    assert len(spellings.ngrams) == offsets[-1]


@settings(max_examples=200, deadline=None, derandomize=True)
@given(words=st.lists(st.text(st.characters() | st.sampled_from("aé日🙂"), max_size=50), max_size=8))
def test_n_grams_are_named_by_the_crc_32_of_their_bytes(words):
    """In any company, whatever the characters and their bytes."""
    spellings = hash_char_ngrams(words)
    assert len(spellings) == len(words)
    assert (spellings.ngrams.dtype, spellings.offsets.dtype) == (np.uint32, np.int64)
    for place, word in enumerate(words):
        marked = f"<{word[:LONGEST_WORD]}>" if word else ""
        pieces = [marked[at : at + size] for size in range(2, 6) for at in range(len(marked) - size + 1)]
        assert ngrams_of(spellings, place) == ngrams_of(hash_char_ngrams([word])) == crc32(*pieces)


@settings(max_examples=80, deadline=None, derandomize=True)
@given(places=st.lists(st.integers(0, len(WORDS) - 1), max_size=20), kind=st.sampled_from([np.int32, np.int64]))
def test_taking_words_is_spelling_them(places, kind):
    """In any order, words repeated or left out, none at all, empty ones among them."""
    taken = hash_char_ngrams(WORDS).take(np.array(places, dtype=kind))
    expected = hash_char_ngrams([WORDS[place] for place in places])
    assert taken.ngrams.tolist() == expected.ngrams.tolist()
    assert taken.offsets.tolist() == expected.offsets.tolist()
    assert (taken.ngrams.dtype, taken.offsets.dtype) == (np.uint32, np.int64)


@pytest.mark.parametrize(
    ("starts", "lengths", "places"),
    [([], [], []), ([7], [0], []), ([5, 0, 9, 5], [2, 3, 0, 1], [5, 6, 0, 1, 2, 5])],
)
def test_the_places_of_pieces_follow_each_other(starts, lengths, places):
    """In any order, pieces of no length and pieces that overlap among them."""
    found = flat_indices(np.array(starts, dtype=np.int64), np.array(lengths, dtype=np.int64))
    assert found.tolist() == places
