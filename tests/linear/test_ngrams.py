"""The counts of features are correct for any number of texts that are counted at once."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pytest
import scipy.sparse as sp
from numpy.typing import NDArray
from support.tokenizer import train_tokenizer

from encoder_cls.config.schema import TokenizerConfig
from encoder_cls.linear import ngrams
from encoder_cls.linear.ngrams import NUM_FEATURE_IDS, Counts, SparseRows, count_features
from encoder_cls.text.tokenizer import tokenize
from encoder_cls.text.tokens import TokenizedTexts

MAX_SEQ_LEN = 16
TEXTS = (
    "what is the capital of france",
    "what is the price of bread",
    "who is she",
    "who is he",
    "",
)
TOKENIZER = train_tokenizer(TEXTS, TokenizerConfig())


def read(*texts: str) -> TokenizedTexts:
    return tokenize(TOKENIZER, texts, max_seq_len=MAX_SEQ_LEN)


def ids_of(*words: str) -> NDArray[np.int32]:
    return np.array(sorted(TOKENIZER.token_to_id(word) for word in words), dtype=np.int32)


def count(texts: TokenizedTexts) -> list[SparseRows]:
    """Count features as `count_features` does, but with feature ids as columns."""
    all_counts = count_features(
        texts,
        max_tokens=MAX_SEQ_LEN,
        frequent_token_ids=ids_of("is", "the"),
        use_char_ngrams=True,
    )
    return [with_ids_as_columns(counts) for counts in all_counts]


def with_ids_as_columns(counts: Counts) -> SparseRows:
    return SparseRows(
        columns=counts.ids[counts.columns], values=counts.values, offsets=counts.offsets
    )


def to_matrix(rows: SparseRows) -> sp.csr_matrix:
    return sp.csr_matrix(
        (rows.values, rows.columns, rows.offsets), shape=(len(rows), NUM_FEATURE_IDS)
    )


def are_equal(whole: SparseRows, parts: Sequence[SparseRows]) -> bool:
    """Return whether the rows of all parts, in order, are the rows of the whole."""
    joined = sp.vstack([to_matrix(part) for part in parts])
    return (to_matrix(whole) != joined).nnz == 0


@pytest.mark.parametrize(
    ("at_once", "sizes"),
    [
        (1, [1, 1, 1, 1, 1, 1, 1]),
        (12, [1, 4, 2]),
        (1000, [7]),
    ],
)
def test_counts_do_not_depend_on_how_many_texts_are_counted_at_once(monkeypatch, at_once, sizes):
    """No feature crosses from one text into the next."""
    texts = read(*TEXTS, "zzz is", "the")
    (whole,) = count(texts)

    monkeypatch.setattr(ngrams, "TOKENS_AT_ONCE", at_once)
    parts = count(texts)

    assert [len(part) for part in parts] == sizes
    assert are_equal(whole, parts)


def test_an_empty_text_has_no_features():
    (counts,) = count(read(*TEXTS))

    row = TEXTS.index("")
    assert to_matrix(counts)[row].nnz == 0


def test_features_are_the_same_if_there_are_more_texts_than_can_be_counted_at_once(monkeypatch):
    # Words of ten random letters.
    letters = np.random.default_rng(0).integers(97, 123, (3_000, 10), dtype=np.uint8)
    words = letters.view("S10").astype(str)[:, 0]
    texts = read(*[f"is {word}" for word in words], "")

    monkeypatch.setattr(ngrams, "TOKENS_AT_ONCE", 1 << 18)
    large = count(texts)
    assert [len(part) for part in large] == [1024, 1024, 953]

    monkeypatch.setattr(ngrams, "TOKENS_AT_ONCE", 300)
    small = count(texts)
    assert len(small) > 20

    joined = sp.vstack([to_matrix(part) for part in large])
    assert (joined != sp.vstack([to_matrix(part) for part in small])).nnz == 0
