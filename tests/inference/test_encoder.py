"""The shape of an encoder and of its weights, and padded batches."""

from __future__ import annotations

import itertools
from dataclasses import asdict

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from encoder_cls.config import ModelConfig
from encoder_cls.inference.encoder import Batch, EncoderArchitecture, by_length, pad
from encoder_cls.text.tokens import CLS_ID, PAD_ID, UNK_ID, TokenizedTexts, hash_char_ngrams
from encoder_cls.transformer import EncoderClassifier

SHAPE = {
    "d_model": 8,
    "num_layers": 2,
    "num_heads": 2,
    "d_ff": 12,
    "max_seq_len": 16,
    "norm": "pre",
    "activation": "gelu",
    "positions": "sinusoidal",
    "char_ngram_buckets": 32,
    "bigram_buckets": 16,
}
KNOBS = [*itertools.product(["pre", "post"], ["sinusoidal", "learned", "none"], [0, 32], [0, 16])]


@pytest.mark.parametrize(("norm", "positions", "char_ngram_buckets", "bigram_buckets"), KNOBS)
def test_the_weights_are_those_of_the_model(norm, positions, char_ngram_buckets, bigram_buckets):
    chosen = {
        "norm": norm,
        "positions": positions,
        "char_ngram_buckets": char_ngram_buckets,
        "bigram_buckets": bigram_buckets,
    }
    config = ModelConfig(**SHAPE | chosen)
    architecture = EncoderArchitecture.of(config)
    assert asdict(architecture) == SHAPE | chosen
    model = EncoderClassifier(config, vocab_size=10, num_classes=3)
    expected = {name: tuple(weight.shape) for name, weight in model.state_dict().items()}
    assert architecture.weight_shapes(vocab_size=10, num_classes=3) == expected


@pytest.mark.parametrize(
    "wrong",
    [
        *(
            {name: value}
            for name in ("d_model", "num_layers", "max_seq_len")
            for value in (0, -1, 1.0, True, "8", None)
        ),
        *({name: value} for name in ("char_ngram_buckets", "bigram_buckets") for value in (-1, 2.0, False)),
        *({name: value} for name in ("norm", "activation", "positions") for value in ("other", None, 1)),
        {"num_heads": 3},
        {"d_model": 7, "num_heads": 7},
        {"num_layers": 10**9},
        {"max_seq_len": 10**9},
    ],
    ids=str,
)
def test_a_shape_that_no_encoder_has_is_refused(wrong):
    """Before anything is made of it, however large it would be."""
    with pytest.raises(ValueError, match=r"none of|no number|more than there can be|does not fit"):
        EncoderArchitecture(**SHAPE | wrong)


LENGTHS = np.random.default_rng(0).integers(1, 200, size=500)


def make_texts(lengths, max_seq_len: int | None = None) -> TokenizedTexts:
    """Texts of these lengths whose tokens are all different, but for `[CLS]`; that of id 7 is "word7"."""
    offsets = np.concatenate([[0], np.cumsum(lengths)]).astype(np.int64)
    input_ids = np.arange(4, 4 + offsets[-1], dtype=np.int32)
    input_ids[offsets[:-1]] = CLS_ID
    distinct, words = np.unique(input_ids, return_inverse=True)
    return TokenizedTexts(
        word_ids=distinct.astype(np.int32),
        words=words.astype(np.int32),
        char_ngrams=hash_char_ngrams([word_of(token) for token in distinct]),
        offsets=offsets,
        max_seq_len=max_seq_len or max(lengths, default=2),
        truncated=np.zeros(len(lengths), dtype=bool),
    )


def word_of(token: int) -> str:
    return "" if token == CLS_ID else f"word{token}"


def assert_ngrams_are_those_of_its_ids(batch: Batch) -> None:
    """Where the mask is True, the n-grams are those of the token's word; each word is kept once."""
    mask, words = batch.attention_mask, batch.words
    for token, word in zip(batch.input_ids[mask].tolist(), words[mask], strict=True):
        found = batch.char_ngrams.take(np.array([word])).ngrams
        assert found.tolist() == hash_char_ngrams([word_of(token)]).ngrams.tolist()
    assert words.shape == batch.input_ids.shape
    assert len(batch.char_ngrams) == len(np.unique(batch.input_ids[mask]))
    assert 0 <= words.min() <= words.max() < len(batch.char_ngrams)
    assert {array.dtype for array in (words, batch.input_ids)} == {np.dtype(np.int64)}


def test_padding_and_mask():
    """Tokens are where the mask is True, in order; padding is elsewhere."""
    texts = make_texts([3, 1, 5])
    input_ids, mask, *_ = pad(texts, np.array([2, 0]))
    assert input_ids.tolist() == [[CLS_ID, 9, 10, 11, 12], [CLS_ID, 5, 6, PAD_ID, PAD_ID]]
    assert mask.tolist() == [[True] * 5, [True] * 3 + [False] * 2]
    longer_ids, longer_mask, *_ = pad(texts, np.array([2, 0]), 7)
    assert longer_ids.tolist() == [[*row, PAD_ID, PAD_ID] for row in input_ids.tolist()]
    assert longer_mask.tolist() == [[*row, False, False] for row in mask.tolist()]


@settings(max_examples=50, deadline=None, derandomize=True)
@given(lengths=st.lists(st.integers(1, 12), min_size=1, max_size=10), data=st.data())
def test_a_padded_batch_has_the_ngrams_of_its_texts(lengths, data):
    """Any texts in any order, one of them twice: every token has the n-grams of its own word."""
    indices = data.draw(st.lists(st.integers(0, len(lengths) - 1), min_size=1, max_size=12))
    texts = make_texts(lengths)
    batch = pad(texts, np.array(indices))
    assert_ngrams_are_those_of_its_ids(batch)
    longest = max(lengths[index] for index in indices)
    assert batch.attention_mask.tolist() == [[t < lengths[index] for t in range(longest)] for index in indices]
    assert (batch.input_ids[~batch.attention_mask] == PAD_ID).all()
    for row, index in enumerate(indices):
        expected = texts.input_ids(slice(*texts.offsets[index : index + 2]))
        assert batch.input_ids[row][batch.attention_mask[row]].tolist() == expected.tolist()


def test_a_word_that_occurs_often_is_kept_once():
    """Unknown words have one id and n-grams of their own; the same word in two texts is one word."""
    texts = TokenizedTexts(
        words=np.array([0, 2, 1, 0, 2], dtype=np.int32),
        word_ids=np.array([CLS_ID, UNK_ID, UNK_ID, 7], dtype=np.int32),
        char_ngrams=hash_char_ngrams(["", "one", "another", "unused"]),
        offsets=np.array([0, 3, 5]),
        max_seq_len=8,
        truncated=np.zeros(2, dtype=bool),
    )
    batch = pad(texts, np.array([0, 1]))
    assert batch.input_ids.tolist() == [[CLS_ID, UNK_ID, UNK_ID], [CLS_ID, UNK_ID, PAD_ID]]
    assert batch.words[batch.attention_mask].tolist() == [0, 2, 1, 0, 2]
    assert batch.char_ngrams.ngrams.tolist() == hash_char_ngrams(["", "one", "another"]).ngrams.tolist()


@pytest.mark.parametrize("batch_tokens", [1, 50, 10_000])
def test_inference_batches_hold_every_text_once_longest_first(batch_tokens):
    pieces = by_length(LENGTHS, batch_tokens=batch_tokens)
    assert sorted(np.concatenate([piece.indices for piece in pieces]).tolist()) == list(range(len(LENGTHS)))
    assert all(piece.length >= LENGTHS[piece.indices].max() for piece in pieces)
    assert all(len(piece.indices) == 1 or len(piece.indices) * piece.length <= batch_tokens for piece in pieces)
    padded = [piece.length for piece in pieces]
    assert padded == sorted(padded, reverse=True)
    assert padded[0] == LENGTHS.max()  # never longer than the model reads
    assert by_length(np.zeros(0, dtype=np.int64), batch_tokens=8) == []


def test_inference_batches_have_few_shapes():
    """Each number of texts comes with one length, but for what is left at the end."""
    lengths = np.random.default_rng(0).integers(1, 500, 20_000)
    *full, _ = by_length(lengths, batch_tokens=4096)
    shapes = {(len(piece.indices), piece.length) for piece in full}
    assert len(shapes) == len({length for _, length in shapes}) <= 16 + 16 * 5
    assert sum(lengths) > 0.95 * sum(len(piece.indices) * piece.length for piece in full)


def test_a_batch_has_no_more_of_a_text_than_an_encoder_reads():
    """Of texts that are kept further, the first tokens; what follows in the arrays is the next text's."""
    batch = pad(make_texts([6, 2, 9], max_seq_len=4), np.array([0, 1, 2]))
    whole = pad(make_texts([6, 2, 9]), np.array([0, 1, 2]))
    assert batch.input_ids.tolist() == whole.input_ids[:, :4].tolist()
    assert batch.attention_mask.sum(axis=1).tolist() == [4, 2, 4]
