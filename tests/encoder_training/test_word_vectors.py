"""The word vectors with which the embeddings of an encoder start."""

from __future__ import annotations

import itertools
from pathlib import Path

import numpy as np
import pytest
import torch
from support.small_runs import make_config, make_training
from support.tokenizer import train_tokenizer
from torch import Tensor

from encoder_cls.config.loading import config_of
from encoder_cls.config.schema import TokenizerConfig
from encoder_cls.encoder.transformer import INITIAL_STD, InputEmbedding
from encoder_cls.encoder_training.word_vectors import neighbour_information
from encoder_cls.run.run_folder import RunDir
from encoder_cls.text.tokenizer import tokenize
from encoder_cls.training.encoder_stage import load_first_weights, untrained_encoder
from encoder_cls.training.prepare import prepare
from encoder_cls.training.prepared import Prepared

TEXTS = (
    "an apple and pear are fruit",
    "a plum and pear are fruit",
    "that car has wheels",
    "that truck has wheels",
)


def prepared(folder: Path, *texts: str) -> Prepared:
    """Prepare a run in which most texts are these, without labels."""
    (folder / "more.txt").write_text("".join(f"{text}\n" for text in texts))
    config = make_config(
        folder,
        data={"unlabelled": str(folder / "more.txt")},
        model={"encoder": True},
        pretrain={"epochs": "auto"},
        linear=True,
    )
    return prepare(config_of({"tokenizer.min_frequency": 1}, base=config))


def first_tables(setup: Prepared, folder: Path) -> tuple[InputEmbedding, InputEmbedding]:
    """The random embeddings of an encoder, and the embeddings with which it starts."""
    training = make_training(setup)
    load_first_weights(training, setup, RunDir(folder))
    random = untrained_encoder(setup, training.trainer.seed)
    started = training.trainer.model.requires_grad_(False)
    return random.encoder.embedding, started.encoder.embedding


def test_words_of_equal_neighbours_start_alike(tmp_path):
    setup = prepared(tmp_path, *TEXTS * 30)
    _, embedding = first_tables(setup, tmp_path)

    def vector(word: str) -> Tensor:
        return embedding.tokens.weight[setup.tokenizer.token_to_id(word)]

    def similarity(word: str, other_word: str) -> float:
        cosine = torch.nn.functional.cosine_similarity(vector(word), vector(other_word), dim=0)
        return float(cosine)

    assert similarity("apple", "plum") > 0.7
    assert similarity("car", "truck") > 0.7
    assert similarity("apple", "car") < 0.4


def test_word_vectors_have_the_scale_of_random_weights(tmp_path):
    """Rows without a word, and the rows of pairs, keep their initial weights."""
    setup = prepared(tmp_path, *TEXTS * 30)
    before, after = first_tables(setup, tmp_path)

    assert torch.equal(after.tokens.weight[:4], before.tokens.weight[:4])
    is_known = (after.tokens.weight != before.tokens.weight).any(dim=1)
    assert float(after.tokens.weight[is_known].std()) == pytest.approx(INITIAL_STD, rel=0.02)

    assert not torch.equal(after.char_ngrams.table.weight, before.char_ngrams.table.weight)
    assert torch.equal(after.bigrams.table.weight, before.bigrams.table.weight)


def test_equal_texts_give_equal_word_vectors(tmp_path):
    setup = prepared(tmp_path, *TEXTS * 30)

    _, first = first_tables(setup, tmp_path)
    _, again = first_tables(setup, tmp_path)

    assert torch.equal(again.tokens.weight, first.tokens.weight)


def test_a_word_without_neighbours_starts_at_random(tmp_path):
    setup = prepared(tmp_path, *["lonely"] * 70)

    before, after = first_tables(setup, tmp_path)

    word = setup.tokenizer.token_to_id("lonely")
    assert torch.equal(after.tokens.weight[word], before.tokens.weight[word])


def test_texts_of_one_word_say_nothing_of_neighbours(tmp_path):
    setup = prepared(tmp_path, *["lonely"] * 70)
    texts_of_one_word = setup.texts[-70:]

    information = neighbour_information(texts_of_one_word, setup.vocab_size)

    assert information.nnz == 0


def test_the_information_of_neighbours_agrees_with_a_plain_count():
    """Neighbours are up to five words away in the same text, on both sides, and count 1 / d."""
    words = "a b a c d a b e a c"
    tokenizer = train_tokenizer([words], TokenizerConfig(min_frequency=1))
    vocab_size = tokenizer.get_vocab_size()
    texts = [words, "e d", "a b c"]

    counts = np.zeros((vocab_size, vocab_size))
    for text in texts:
        ids = [tokenizer.token_to_id(word) for word in text.split()]
        for (first, token), (second, neighbour) in itertools.permutations(enumerate(ids), 2):
            distance = abs(first - second)
            if distance <= 5:
                counts[token, neighbour] += 1 / distance

    token_counts = counts.sum(axis=1)
    neighbour_shares = token_counts**0.75 / (token_counts**0.75).sum()
    expected_counts = np.outer(token_counts, neighbour_shares)
    is_counted = counts > 0
    expected = np.zeros_like(counts)
    expected[is_counted] = np.log(counts[is_counted] / expected_counts[is_counted]).clip(min=0)

    found = neighbour_information(tokenize(tokenizer, texts, max_seq_len=16), vocab_size)

    assert (expected > 0).any()
    np.testing.assert_allclose(found.toarray(), expected)
