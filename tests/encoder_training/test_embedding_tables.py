"""Embedding tables, of which a batch uses some rows."""

from __future__ import annotations

import pytest
import torch

from encoder_cls.config.schema import ModelConfig
from encoder_cls.encoder.transformer import EncoderClassifier
from encoder_cls.encoder_training.embedding_tables import (
    embedding_tables,
    sum_at_occurrences,
    without_untrained,
)


def new_model() -> EncoderClassifier:
    torch.manual_seed(0)
    config = ModelConfig(d_model=16, num_heads=2, char_ngram_buckets=64, bigram_buckets=64)
    return EncoderClassifier(config, vocab_size=8, num_classes=2)


def train_two_rows(model: EncoderClassifier) -> None:
    """Change the rows 2 and 4 of each table, the latter by little and in one place."""
    with torch.no_grad():
        for table in embedding_tables(model).values():
            table[2] += 1
            table[4, 1] += 1e-6


def test_the_tables_of_a_model_are_those_of_its_input():
    tables = embedding_tables(new_model())

    assert set(tables) == {
        "encoder.embedding.tokens.weight",
        "encoder.embedding.char_ngrams.table.weight",
        "encoder.embedding.bigrams.table.weight",
    }


def test_rows_are_zero_until_they_are_trained():
    """Rows that differ from their initial values are kept; other weights are shared."""
    model = new_model()
    train_two_rows(model)

    copied = without_untrained(model, embedding_tables(new_model()))

    parameters = dict(model.named_parameters())
    tables = embedding_tables(model)
    for name, found in copied.named_parameters():
        if name in tables:
            trained = found.any(dim=1).nonzero().squeeze(1)
            assert trained.tolist() == [2, 4]
            assert torch.equal(found[trained], parameters[name][trained])
        else:
            assert found is parameters[name]


def test_a_copy_without_untrained_rows_does_not_change_the_model():
    model = new_model()
    train_two_rows(model)
    before = {name: tensor.clone() for name, tensor in model.state_dict().items()}

    without_untrained(model, embedding_tables(new_model()))

    for name, tensor in model.state_dict().items():
        assert torch.equal(tensor, before[name])


@pytest.mark.parametrize("rows", [[], [3], [3, 3, 3], [4, 0, 4, 2, 0, 4, 5]])
def test_a_row_has_its_sum_wherever_it_occurs(rows):
    """The sums are those of torch, and the rows are in order."""
    torch.manual_seed(0)
    values = torch.randn(len(rows), 3)
    indices = torch.tensor([rows], dtype=torch.int64)
    gradient = torch.sparse_coo_tensor(indices, values, (6, 3), check_invariants=True)

    found_rows, sums = sum_at_occurrences(gradient)

    assert found_rows.tolist() == sorted(rows)
    torch.testing.assert_close(sums, gradient.to_dense()[found_rows])
