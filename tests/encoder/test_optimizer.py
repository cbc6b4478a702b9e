"""The optimizers, the learning rate, and rows of tables that training has not touched."""

from __future__ import annotations

import pytest
import torch

from encoder_cls.config.schema import ModelConfig, TrainConfig
from encoder_cls.encoder.embedding_tables import embedding_tables, without_untrained
from encoder_cls.encoder.optimizer import (
    BETAS,
    AdamW,
    RowwiseAdam,
    learning_rate,
    make_optimizers,
)
from encoder_cls.encoder.transformer import EncoderClassifier

needs_cuda = pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")

TABLES = ("tokens.weight", "char_ngrams.table.weight", "bigrams.table.weight")
SHAPE = ModelConfig(d_model=16, num_heads=2, char_ngram_buckets=64, bigram_buckets=64)


def test_only_matrices_of_linear_maps_decay():
    """Biases, norms, tables and position scales have no weight decay; every parameter is in one group."""
    model = EncoderClassifier(SHAPE, vocab_size=9, num_classes=2)
    dense, sparse = make_optimizers(model, TrainConfig(weight_decay=0.3))
    (decayed, others), (tables,) = dense.param_groups, sparse.param_groups
    names = {parameter: name for name, parameter in model.named_parameters()}
    assert decayed["weight_decay"] == 0.3
    assert others["weight_decay"] == 0
    assert {names[p] for p in decayed["params"]} == {
        name for name in names.values() if name.endswith(("_proj.weight", "head.linear.weight"))
    }
    assert "weight_decay" not in tables
    assert {names[p] for p in tables["params"]} == {
        f"encoder.embedding.{name}.weight"
        for name in ("tokens", "char_ngrams.table", "bigrams.table")
    }
    assert sum(len(group["params"]) for group in (decayed, others, tables)) == len(names)


@pytest.mark.parametrize("device", ["cpu", pytest.param("cuda", marks=needs_cuda)])
def test_adam_by_rows_is_sparse_adam(device):
    """Rows that come twice in a batch, or never, steps without any: the update is that of torch's."""
    torch.manual_seed(0)
    tables = [torch.nn.Embedding(20, 6, sparse=True, device=device) for _ in range(2)]
    tables[1].load_state_dict(tables[0].state_dict())
    ours = RowwiseAdam([{"params": list(tables[0].parameters())}], lr=0.1)
    theirs = torch.optim.SparseAdam(tables[1].parameters(), lr=0.1, betas=BETAS)
    for _ in range(20):
        rows, weights = (
            torch.randint(0, 15, (12,), device=device),
            torch.randn(12, 6, device=device),
        )
        for table, optimizer in zip(tables, (ours, theirs), strict=True):
            optimizer.zero_grad()
            (table(rows) * weights).sum().backward()
            optimizer.step()
    torch.testing.assert_close(tables[0].weight, tables[1].weight)
    for one, other in zip(ours.state.values(), theirs.state.values(), strict=True):
        assert one.keys() == other.keys()
        torch.testing.assert_close(one["exp_avg"], other["exp_avg"])
        torch.testing.assert_close(one["exp_avg_sq"], other["exp_avg_sq"])
        assert one["step"] == other["step"]
    before = tables[0].weight.detach().clone()
    ours.zero_grad()
    ours.step()
    assert torch.equal(tables[0].weight, before)


def test_learning_rate_rises_then_falls_to_zero():
    """Linear warm-up to the peak, then half a cosine."""
    config = TrainConfig(learning_rate=0.5, warmup_fraction=0.1)
    rates = [learning_rate(step, total_steps=100, config=config) for step in range(101)]
    assert rates[:10] == pytest.approx([0.05 * (i + 1) for i in range(10)])
    assert rates[10] == 0.5
    assert rates[55] == pytest.approx(0.25)
    assert rates[100] == pytest.approx(0)
    assert rates[10:] == sorted(rates[10:], reverse=True)
    at_once = TrainConfig(learning_rate=0.5, warmup_fraction=0.0)
    assert learning_rate(0, total_steps=1, config=at_once) == 0.5


@pytest.mark.parametrize("device", ["cpu", pytest.param("cuda", marks=needs_cuda)])
def test_adamw_is_torch_s(device):
    """The update and what is remembered, group by group, whatever the rate of a step and whoever has no gradient."""
    torch.manual_seed(0)
    ours, theirs = (
        [torch.nn.Parameter(torch.ones(3, i, device=device)) for i in (1, 2, 4)] for _ in range(2)
    )
    groups = [
        [{"params": of[:2], "weight_decay": 0.3}, {"params": of[2:], "weight_decay": 0.0}]
        for of in (ours, theirs)
    ]
    optimizers = (
        AdamW(groups[0], lr=0.1),
        torch.optim.AdamW(groups[1], lr=0.1, betas=BETAS, fused=False),
    )
    for step in range(5):
        gradients = [
            torch.randn_like(parameter) if (step + i) % 3 else None
            for i, parameter in enumerate(ours)
        ]
        for optimizer, parameters in zip(optimizers, (ours, theirs), strict=True):
            optimizer.param_groups[0]["lr"] = 0.1 / (1 + step)
            optimizer.zero_grad()
            assert all(parameter.grad is None for parameter in parameters)
            for parameter, gradient in zip(parameters, gradients, strict=True):
                parameter.grad = gradient
            optimizer.step()
    for one, other in zip(ours, theirs, strict=True):
        torch.testing.assert_close(one, other)
        remembered, expected = optimizers[0].state[one], optimizers[1].state[other]
        assert remembered.keys() == expected.keys()
        for name in remembered:
            torch.testing.assert_close(remembered[name], expected[name], check_device=False)


def new_model() -> EncoderClassifier:
    torch.manual_seed(0)
    return EncoderClassifier(SHAPE, vocab_size=8, num_classes=2)


def test_rows_are_zero_until_they_are_trained():
    """Those that differ from the first weights stay; all else is shared, and the model itself stays as it is."""
    model = new_model()
    with torch.no_grad():
        for name, table in model.named_parameters():
            if name.endswith(TABLES):
                table[2] += 1
                table[4, 1] += 1e-6
    before = {name: tensor.clone() for name, tensor in model.state_dict().items()}
    zeroed = without_untrained(model, embedding_tables(new_model()))
    parameters = dict(model.named_parameters())
    for name, found in zeroed.named_parameters():
        if name.endswith(TABLES):
            assert found.any(dim=1).nonzero().squeeze(1).tolist() == [2, 4]
            assert torch.equal(found[[2, 4]], parameters[name][[2, 4]])
        else:
            assert found is parameters[name]
    assert all(torch.equal(tensor, before[name]) for name, tensor in model.state_dict().items())
