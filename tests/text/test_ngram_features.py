"""What a linear classifier looks at: which features texts share, and how much each counts."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import scipy.sparse as sp
from numpy.typing import NDArray
from support.tokenizer import train_tokenizer

from encoder_cls.config.schema import TokenizerConfig
from encoder_cls.linear import ngrams as features
from encoder_cls.linear.ngrams import NUM_FEATURE_IDS, SparseRows, count_features
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


def count(texts: TokenizedTexts, **options: Any) -> list[SparseRows]:
    """`count_features` with feature ids as columns."""
    pieces = count_features(texts, **{"max_tokens": MAX_SEQ_LEN, **options})
    return [
        SparseRows(columns=it.ids[it.columns], values=it.values, offsets=it.offsets)
        for it in pieces
    ]


def dense(rows: SparseRows, num_columns: int = NUM_FEATURE_IDS) -> sp.csr_matrix:
    """The same as a matrix of scipy's."""
    return sp.csr_matrix((rows.values, rows.columns, rows.offsets), shape=(len(rows), num_columns))


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
    words = (
        np.random.default_rng(0)
        .integers(97, 123, (20_000, 10), dtype=np.uint8)
        .view("S10")
        .astype(str)
    )
    texts = read(*(f"is {word}" for word in words[:, 0]), "")
    options = {"frequent_token_ids": ids_of("is", "the"), "use_char_ngrams": True}
    monkeypatch.setattr(features, "TOKENS_AT_ONCE", 1 << 18)
    (whole,) = count_features(texts, max_tokens=MAX_SEQ_LEN, **options)
    assert len(whole) * len(whole.ids) > 1 << 32
    assert (np.diff(whole.ids) > 0).all()
    monkeypatch.setattr(features, "TOKENS_AT_ONCE", 300)
    whole = dense(replace(whole, columns=whole.ids[whole.columns]))
    assert (whole != sp.vstack([dense(it) for it in count(texts, **options)])).nnz == 0
