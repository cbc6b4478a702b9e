"""What a linear classifier looks at: which features texts share, and how much each counts."""

from __future__ import annotations

import numpy as np
import pytest
from numpy.typing import NDArray

from encoder_cls.config import TokenizerConfig
from encoder_cls.text import ngram_features as features
from encoder_cls.text.ngram_features import (
    ALL_NAMES,
    CHAR_NAMES,
    HASHES,
    LENGTHS,
    PATTERN_NAMES,
    count_features,
    frequent_words,
    select,
    tfidf,
)
from encoder_cls.text.token_arrays import CLS_ID, UNK_ID, TokenizedTexts
from encoder_cls.text.tokenizer import tokenize, train_tokenizer

MAX_SEQ_LEN = 16
TEXTS = ("what is the capital of france", "what is the price of bread", "who is she", "who is he", "")
TOKENIZER = train_tokenizer(TEXTS, TokenizerConfig())


def read(*texts: str) -> TokenizedTexts:
    return tokenize(TOKENIZER, texts, max_seq_len=MAX_SEQ_LEN)


def ids_of(*words: str) -> NDArray[np.int32]:
    return np.array(sorted(TOKENIZER.token_to_id(word) for word in words), dtype=np.int32)


def found(text: str, frequent: str = "what who is the of", *, reach: int = MAX_SEQ_LEN) -> dict[int, float]:
    """The features of a text and how often each occurs."""
    (counts,) = count_features(read(text), reach=reach, frequent=ids_of(*frequent.split()), words_only=False)
    return dict(zip(counts.indices.tolist(), counts.data.tolist(), strict=True))


def patterns(text: str, frequent: str = "what who is the of") -> dict[int, float]:
    return {name: count for name, count in found(text, frequent).items() if PATTERN_NAMES <= name < CHAR_NAMES}


# ---------------------------------------------------------------- frequent words


def test_words_are_frequent_by_their_share(monkeypatch):
    """Of 7 words one is two 7ths, the others one: no more than so many can be frequent; special tokens never are."""
    texts = read("is is she", "the of zzz", "he who", "", "zzz zzz zzz zzz")
    for limit, words in ((1, ""), (3, ""), (4, "is"), (7, "is she the of he who")):
        monkeypatch.setattr(features, "FREQUENT", limit)
        frequent = frequent_words(texts, reach=MAX_SEQ_LEN)
        # Unknown words are not in the vocabulary and do not count.
        assert frequent.tolist() == ids_of(*words.split()).tolist()
        assert frequent.dtype == np.int32
        assert len(frequent) <= limit


def test_words_beyond_the_reach_do_not_make_others_frequent(monkeypatch):
    """Nor are they frequent themselves; `[CLS]` is the first token."""
    monkeypatch.setattr(features, "FREQUENT", 2)
    texts = read("she is is", "she is is", "she is is")
    assert frequent_words(texts, reach=2).tolist() == ids_of("she").tolist()
    assert frequent_words(texts, reach=4).tolist() == ids_of("is").tolist()


def test_no_text_has_frequent_words():
    """Nothing read, nothing found, and no division by nothing."""
    assert frequent_words(read(), reach=9).tolist() == []
    assert frequent_words(read("", ""), reach=9).tolist() == []


# ---------------------------------------------------------------- patterns


def test_patterns_do_not_tell_rare_words_apart():
    """Two questions of one form have the same patterns, though no content word in common; with words they have not."""
    one, other = "what is the capital of france", "what is the price of bread"
    assert patterns(one) == patterns(other)
    assert patterns(one) == patterns("what is the zzzz of qqq")
    assert found(one) != found(other)
    assert patterns(one) != patterns("who is the capital of france")
    assert patterns(one, "what is the of capital") != patterns(other, "what is the of capital")


def test_patterns_know_the_order_and_the_beginning():
    """The same words in another order, and the same words later in a text, are other patterns."""
    assert patterns("is the") != patterns("the is")
    inside = set(patterns("zzz is the"))
    assert set(patterns("is the")) - inside  # `[CLS]` is before them
    assert set(patterns("is the")) & inside  # the pair itself


@pytest.mark.parametrize("num_words", range(8))
def test_patterns_are_two_to_six_tokens_long(num_words):
    """Of a text of n tokens there are n-1 of two, n-2 of three, ..., here all different."""
    words = ["what", "is", "the", "of", "who", "she", "he"][:num_words]
    tokens = num_words + 1
    expected = sum(max(0, tokens - size + 1) for size in range(2, 7))
    counts = patterns(" ".join(words), " ".join(words))
    assert len(counts) == expected
    assert set(counts.values()) <= {1.0}
    all_open = patterns(" ".join(["zzz"] * num_words))
    assert sum(all_open.values()) == expected


# ---------------------------------------------------------------- all features


def test_names_of_a_kind_are_in_its_range():
    """Words, pairs of each distance, patterns, character n-grams, which are 6 of `<is>`: `<i`, `is`, ..., `<is>`."""
    kinds = np.array(sorted(found("who is"))) // HASHES
    assert np.bincount(kinds[kinds < CHAR_NAMES // HASHES]).tolist() == [2, 2, 1, 3]
    assert (np.array(sorted(found("is"))) // HASHES).tolist() == [0, 1, 3] + [4] * 6
    assert ALL_NAMES // HASHES == 5


def test_unknown_words_are_one_word_and_have_letters_of_their_own():
    """What is not in the vocabulary is told apart by its letters alone."""
    one, other = found("zzz"), found("qqq")
    assert {it for it in one if it < CHAR_NAMES} == {it for it in other if it < CHAR_NAMES}
    assert not {it for it in one if it >= CHAR_NAMES} & {it for it in other if it >= CHAR_NAMES}
    assert UNK_ID in one
    assert CLS_ID not in one


def test_what_lies_beyond_the_reach_is_not_counted():
    """`[CLS]` is the first token of those read."""
    assert found("who is the", reach=3) == found("who is")
    assert found("who is the", reach=1) == {}


def test_texts_are_counted_some_at_a_time(monkeypatch):
    """The same rows, however many at a time; no feature crosses from one text into the next."""
    texts = read(*TEXTS, "zzz is", "the")
    options = {"reach": MAX_SEQ_LEN, "frequent": ids_of("is", "the"), "words_only": False}
    (whole,) = count_features(texts, **options)
    monkeypatch.setattr(features, "CHUNK", 2)
    parts = list(count_features(texts, **options))
    assert [part.shape for part in parts] == [(2, ALL_NAMES)] * 3 + [(1, ALL_NAMES)]
    rows = [part[row] for part in parts for row in range(part.shape[0])]
    for row, alone in enumerate(rows):
        assert (whole[row] != alone).nnz == 0
    assert whole[4].nnz == 0  # the empty text


def test_of_much_text_there_are_words_and_pairs_only():
    """Counted as with all the others."""
    options = {"reach": MAX_SEQ_LEN, "frequent": ids_of("is")}
    (every,) = count_features(read("who is she"), words_only=False, **options)
    (words,) = count_features(read("who is she"), words_only=True, **options)
    assert words.shape == every.shape
    assert words.sum() == 3 + 3 + 2
    assert words.indices.tolist() == [it for it in every.indices.tolist() if it < PATTERN_NAMES]


# ---------------------------------------------------------------- how much they count


def test_the_groups_of_a_text_have_their_lengths():
    """Words and pairs, patterns, character n-grams: whatever the text and however long; nothing has no length."""
    texts = read(*TEXTS)
    (counts,) = count_features(texts, reach=MAX_SEQ_LEN, frequent=ids_of("is", "the"), words_only=False)
    names = np.unique(counts.indices).astype(np.int32)
    random = np.random.default_rng(0)
    vectors = tfidf(select(counts, names), names, random.uniform(1, 3, len(names)).astype(np.float32)).toarray()
    for text in range(len(TEXTS) - 1):
        squares = np.bincount(np.digitize(names, (PATTERN_NAMES, CHAR_NAMES)), weights=vectors[text] ** 2)
        np.testing.assert_allclose(np.sqrt(squares), LENGTHS, rtol=1e-5)
    assert not vectors[-1].any()


def test_rare_features_count_more_and_often_counts_less_than_so_often():
    """(1 + ln count) * idf, before a vector is made as long as it is to be."""
    (counts,) = count_features(read("is is is she"), reach=MAX_SEQ_LEN, frequent=ids_of("is"), words_only=True)
    names = np.array([TOKENIZER.token_to_id("is"), TOKENIZER.token_to_id("she")], dtype=np.int32)
    order = np.argsort(names)
    idf = np.array([1.0, 2.5], dtype=np.float32)
    row = tfidf(select(counts, names[order]), names[order], idf[order]).toarray()[0, np.argsort(order)]
    assert row[0] / row[1] == pytest.approx((1 + np.log(3)) / 2.5)


def test_of_features_only_those_asked_for_are_selected():
    """In the order of their names; those that no text has are nothing."""
    (counts,) = count_features(read("who is", "she"), reach=MAX_SEQ_LEN, frequent=ids_of("is"), words_only=True)
    names = np.array([*ids_of("is", "she", "bread"), CHAR_NAMES], dtype=np.int32)
    expected = [[float(word in text.split()) for word in ("is", "she", "bread")] for text in ("who is", "she")]
    columns = np.argsort(np.argsort([TOKENIZER.token_to_id(word) for word in ("is", "she", "bread")]))
    assert select(counts, names).toarray()[:, columns].tolist() == expected
    assert not select(counts, names).toarray()[:, 3].any()
