"""What a linear classifier looks at: which features texts share, and how much each counts."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import scipy.sparse as sp
from numpy.typing import NDArray

from encoder_cls.config import TokenizerConfig
from encoder_cls.text import ngrams as features
from encoder_cls.text.ngrams import (
    CHAR_NGRAM_IDS,
    GROUP_NORMS,
    HASHES,
    NUM_FEATURE_IDS,
    TEMPLATE_IDS,
    SparseRows,
    count_features,
    find,
    frequent_tokens,
    keep_known,
    tfidf,
)
from encoder_cls.text.tokenizer import tokenize
from encoder_cls.text.tokenizer_trainer import train_tokenizer
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


# ---------------------------------------------------------------- frequent tokens


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


# ---------------------------------------------------------------- n-gram templates


def test_templates_do_not_tell_rare_words_apart():
    """Two questions of one form have the same patterns, though no content word in common; with words they have not."""
    one, other = "what is the capital of france", "what is the price of bread"
    assert templates(one) == templates(other)
    assert templates(one) == templates("what is the zzzz of qqq")
    assert found(one) != found(other)
    assert templates(one) != templates("who is the capital of france")
    assert templates(one, "what is the of capital") != templates(other, "what is the of capital")


def test_templates_know_the_order_and_the_beginning():
    """The same words in another order, and the same words later in a text, are other patterns."""
    assert templates("is the") != templates("the is")
    inside = set(templates("zzz is the"))
    assert set(templates("is the")) - inside  # `[CLS]` is before them
    assert set(templates("is the")) & inside  # the pair itself


@pytest.mark.parametrize("num_words", range(8))
def test_templates_are_two_to_six_tokens_long(num_words):
    """Of a text of n tokens there are n-1 of two, n-2 of three, ..., here all different."""
    words = ["what", "is", "the", "of", "who", "she", "he"][:num_words]
    tokens = num_words + 1
    expected = sum(max(0, tokens - size + 1) for size in range(2, 7))
    counts = templates(" ".join(words), " ".join(words))
    assert len(counts) == expected
    assert set(counts.values()) <= {1.0}
    all_open = templates(" ".join(["zzz"] * num_words))
    assert sum(all_open.values()) == expected


# ---------------------------------------------------------------- all features


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


def test_what_lies_beyond_max_tokens_is_not_counted():
    """`[CLS]` is the first token of those read."""
    assert found("who is the", max_tokens=3) == found("who is")
    assert found("who is the", max_tokens=1) == {}


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
    words = np.random.default_rng(0).integers(97, 123, (96_000, 10), dtype=np.uint8).view("S10").astype(str)
    texts = read(*map(" is ".join, words.reshape(-1, 12)), "")
    options = {"frequent_token_ids": ids_of("is", "the"), "use_char_ngrams": True}
    monkeypatch.setattr(features, "TOKENS_AT_ONCE", 1 << 18)
    (whole,) = count_features(texts, max_tokens=MAX_SEQ_LEN, **options)
    assert len(whole) * len(whole.ids) > 1 << 32
    assert (np.diff(whole.ids) > 0).all()
    monkeypatch.setattr(features, "TOKENS_AT_ONCE", 300)
    whole = dense(replace(whole, columns=whole.ids[whole.columns]))
    assert (whole != sp.vstack([dense(it) for it in count(texts, **options)])).nnz == 0


def test_of_much_text_there_are_words_and_pairs_only():
    """Counted as with all the others."""
    options = {"frequent_token_ids": ids_of("is")}
    (every,) = count(read("who is she"), use_char_ngrams=True, **options)
    (words,) = count(read("who is she"), use_char_ngrams=False, **options)
    assert words.values.sum() == 3 + 3 + 2
    assert words.columns.tolist() == [it for it in every.columns.tolist() if it < TEMPLATE_IDS]


# ---------------------------------------------------------------- how much they count


def test_the_groups_of_a_text_have_their_norms():
    """Words and pairs, templates, character n-grams: whatever the text and however long; nothing has no length."""
    texts = read(*TEXTS)
    frequent = ids_of("is", "the")
    (counts,) = count(texts, frequent_token_ids=frequent, use_char_ngrams=True)
    ids = np.unique(counts.columns).astype(np.int32)
    idf = np.random.default_rng(0).uniform(1, 3, len(ids)).astype(np.float32)
    vectors = dense(tfidf(keep_known(counts, find(counts.columns, ids)), ids, idf), len(ids)).toarray()
    for text in range(len(TEXTS) - 1):
        squares = np.bincount(np.digitize(ids, (TEMPLATE_IDS, CHAR_NGRAM_IDS)), weights=vectors[text] ** 2)
        np.testing.assert_allclose(np.sqrt(squares), GROUP_NORMS, rtol=1e-5)
    assert not vectors[-1].any()


def test_rare_features_count_more_and_often_counts_less_than_so_often():
    """(1 + ln count) * idf, before a vector is made as long as it is to be."""
    (counts,) = count(read("is is is she"), frequent_token_ids=ids_of("is"), use_char_ngrams=False)
    ids = np.array([TOKENIZER.token_to_id("is"), TOKENIZER.token_to_id("she")], dtype=np.int32)
    order = np.argsort(ids)
    idf = np.array([1.0, 2.5], dtype=np.float32)
    row = tfidf(keep_known(counts, find(counts.columns, ids[order])), ids[order], idf[order]).values[np.argsort(order)]
    assert row[0] / row[1] == pytest.approx((1 + np.log(3)) / 2.5)


def test_of_features_only_those_asked_for_are_selected():
    """In the order of their ids; those that no text has are nothing."""
    (counts,) = count(read("who is", "she"), frequent_token_ids=ids_of("is"), use_char_ngrams=False)
    ids = np.array([*ids_of("is", "she", "bread"), CHAR_NGRAM_IDS], dtype=np.int32)
    expected = [[float(word in text.split()) for word in ("is", "she", "bread")] for text in ("who is", "she")]
    columns = np.argsort(np.argsort([TOKENIZER.token_to_id(word) for word in ("is", "she", "bread")]))
    found = dense(keep_known(counts, find(counts.columns, ids)), len(ids)).toarray()
    assert found[:, columns].tolist() == expected
    assert not found[:, 3].any()
