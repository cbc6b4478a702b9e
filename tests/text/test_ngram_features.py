"""What a linear classifier looks at: which features texts share, and how much each counts."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import scipy.sparse as sp
from numpy.typing import NDArray
from support.tokenizer import train_tokenizer

from encoder_cls.config import TokenizerConfig
from encoder_cls.text import ngrams as features
from encoder_cls.text.ngrams import (
    CHAR_NGRAM_IDS,
    HASHES,
    NUM_FEATURE_IDS,
    TEMPLATE_IDS,
    SparseRows,
    count_features,
    frequent_tokens,
)
from encoder_cls.text.tokenizer import tokenize
from encoder_cls.text.tokens import CLS_ID, UNK_ID, TokenizedTexts

MAX_SEQ_LEN = 16
TEXTS = ("what is the capital of france", "what is the price of bread", "who is she", "who is he", "")
TOKENIZER = train_tokenizer(TEXTS, TokenizerConfig())


def read(*texts: str) -> TokenizedTexts:
    return tokenize(TOKENIZER, texts, max_seq_len=MAX_SEQ_LEN)


def ids_of(*words: str) -> NDArray[np.int32]:
    return np.array(sorted(TOKENIZER.token_to_id(word) for word in words), dtype=np.int32)


def count(texts: TokenizedTexts, **options: Any) -> list[SparseRows]:
    """`count_features` with feature ids as columns."""
    pieces = count_features(texts, **{"max_tokens": MAX_SEQ_LEN, **options})
    return [SparseRows(columns=it.ids[it.columns], values=it.values, offsets=it.offsets) for it in pieces]


def found(text: str, frequent: str = "what who is the of", *, max_tokens: int = MAX_SEQ_LEN) -> dict[int, float]:
    """The features of a text and how often each occurs."""
    (counts,) = count(
        read(text), max_tokens=max_tokens, frequent_token_ids=ids_of(*frequent.split()), use_char_ngrams=True
    )
    return dict(zip(counts.columns.tolist(), counts.values.tolist(), strict=True))


def dense(rows: SparseRows, num_columns: int = NUM_FEATURE_IDS) -> sp.csr_matrix:
    """The same as a matrix of scipy's."""
    return sp.csr_matrix((rows.values, rows.columns, rows.offsets), shape=(len(rows), num_columns))


def templates(text: str, frequent: str = "what who is the of") -> dict[int, float]:
    return {it: count for it, count in found(text, frequent).items() if TEMPLATE_IDS <= it < CHAR_NGRAM_IDS}


def test_words_are_frequent_by_their_share(monkeypatch):
    """Of 7 words one is two 7ths, the others one: no more than so many can be frequent; special tokens never are."""
    texts = read("is is she", "the of zzz", "he who", "", "zzz zzz zzz zzz")
    for limit, words in ((1, ""), (3, ""), (4, "is"), (7, "is she the of he who")):
        monkeypatch.setattr(features, "MOST_FREQUENT", limit)
        frequent = frequent_tokens(texts, max_tokens=MAX_SEQ_LEN)
        # Unknown words are not in the vocabulary and do not count.
        assert frequent.tolist() == ids_of(*words.split()).tolist()
        assert frequent.dtype == np.int32
        assert len(frequent) <= limit


def test_words_beyond_the_reach_do_not_make_others_frequent(monkeypatch):
    """Nor are they frequent themselves; `[CLS]` is the first token."""
    monkeypatch.setattr(features, "MOST_FREQUENT", 2)
    texts = read("she is is", "she is is", "she is is")
    assert frequent_tokens(texts, max_tokens=2).tolist() == ids_of("she").tolist()
    assert frequent_tokens(texts, max_tokens=4).tolist() == ids_of("is").tolist()


def test_no_text_has_frequent_words():
    """Nothing read, nothing found, and no division by nothing."""
    assert frequent_tokens(read(), max_tokens=9).tolist() == []
    assert frequent_tokens(read("", ""), max_tokens=9).tolist() == []


def test_templates_take_rare_words_for_the_same():
    """Two questions of one form have the same patterns, though no content word in common; with words they have not."""
    one, other = "what is the capital of france", "what is the price of bread"
    assert templates(one) == templates(other)
    assert templates(one) == templates("what is the zzzz of qqq")
    assert found(one) != found(other)
    assert templates(one) != templates("who is the capital of france")
    assert templates(one, "what is the of capital") != templates(other, "what is the of capital")


def test_names_of_a_kind_are_in_its_range():
    """Words, pairs of each distance, patterns, character n-grams, which are 6 of `<is>`: `<i`, `is`, ..., `<is>`."""
    kinds = np.array(sorted(found("who is"))) // HASHES
    assert np.bincount(kinds[kinds < CHAR_NGRAM_IDS // HASHES]).tolist() == [2, 2, 1, 3]
    assert (np.array(sorted(found("is"))) // HASHES).tolist() == [0, 1, 3] + [4] * 6
    assert NUM_FEATURE_IDS // HASHES == 5


def test_unknown_words_are_one_word_and_have_letters_of_their_own():
    """What is not in the vocabulary is told apart by its letters alone."""
    one, other = found("zzz"), found("qqq")
    assert {it for it in one if it < CHAR_NGRAM_IDS} == {it for it in other if it < CHAR_NGRAM_IDS}
    assert not {it for it in one if it >= CHAR_NGRAM_IDS} & {it for it in other if it >= CHAR_NGRAM_IDS}
    assert UNK_ID in one
    assert CLS_ID not in one


@pytest.mark.parametrize(("at_once", "sizes"), [(1, [1] * 7), (12, [1, 4, 2]), (1000, [7])])
def test_texts_are_counted_some_at_a_time(monkeypatch, at_once, sizes):
    """The same rows, however many at a time; no feature crosses from one text into the next."""
    texts = read(*TEXTS, "zzz is", "the")
    options = {"frequent_token_ids": ids_of("is", "the"), "use_char_ngrams": True}
    (whole,) = count(texts, **options)
    monkeypatch.setattr(features, "TOKENS_AT_ONCE", at_once)
    parts = list(count(texts, **options))
    assert [len(part) for part in parts] == sizes
    assert (dense(whole) != sp.vstack([dense(part) for part in parts])).nnz == 0
    assert dense(whole)[4].nnz == 0  # the empty text


def test_features_are_the_same_in_a_large_chunk(monkeypatch):
    """Of which hashes are looked up in a table, and keys of rows and columns are longer; text by text they are not."""
    words = np.random.default_rng(0).integers(97, 123, (20_000, 10), dtype=np.uint8).view("S10").astype(str)
    texts = read(*(f"is {word}" for word in words[:, 0]), "")
    options = {"frequent_token_ids": ids_of("is", "the"), "use_char_ngrams": True}
    monkeypatch.setattr(features, "TOKENS_AT_ONCE", 1 << 18)
    (whole,) = count_features(texts, max_tokens=MAX_SEQ_LEN, **options)
    assert len(whole) * len(whole.ids) > 1 << 32
    assert (np.diff(whole.ids) > 0).all()
    monkeypatch.setattr(features, "TOKENS_AT_ONCE", 300)
    whole = dense(replace(whole, columns=whole.ids[whole.columns]))
    assert (whole != sp.vstack([dense(it) for it in count(texts, **options)])).nnz == 0
