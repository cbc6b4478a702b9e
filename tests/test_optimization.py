"""The optimizer's groups and the learning rate's course."""

from __future__ import annotations

import pytest
import torch

from encoder_cls.config import ModelConfig, TrainConfig
from encoder_cls.model import EncoderClassifier
from encoder_cls.optimization import learning_rate, make_optimizer


def test_only_matrices_of_linear_maps_decay():
    """Biases, norms, embeddings and position scales have no weight decay; every parameter is in one group."""
    model = EncoderClassifier(ModelConfig(d_model=16, num_heads=2), vocab_size=9, num_classes=2)
    decayed, others = make_optimizer(model, TrainConfig(weight_decay=0.3)).param_groups
    names = {parameter: name for name, parameter in model.named_parameters()}
    assert decayed["weight_decay"] == 0.3
    assert others["weight_decay"] == 0
    assert {names[p] for p in decayed["params"]} == {
        name for name in names.values() if name.endswith(("_proj.weight", "head.linear.weight"))
    }
    assert len(decayed["params"]) + len(others["params"]) == len(names)


def test_learning_rate_rises_then_falls_to_zero():
    """Linear warm-up to the peak, then half a cosine."""
    config = TrainConfig(learning_rate=0.5, warmup_fraction=0.1)
    rates = [learning_rate(step, total_steps=100, config=config) for step in range(101)]
    assert rates[:10] == pytest.approx([0.05 * (i + 1) for i in range(10)])
    assert rates[10] == 0.5
    assert rates[55] == pytest.approx(0.25)
    assert rates[100] == pytest.approx(0)
    assert rates[10:] == sorted(rates[10:], reverse=True)


def test_learning_rate_without_warm_up_and_in_one_step():
    """The edges: no warm-up, a single step."""
    config = TrainConfig(learning_rate=0.5, warmup_fraction=0.0)
    assert learning_rate(0, total_steps=1, config=config) == 0.5


def test_adamw_matches_torch_without_fusing():
    """The fused kernel is the same update."""
    torch.manual_seed(0)
    models = [EncoderClassifier(ModelConfig(d_model=16, num_heads=2), vocab_size=9, num_classes=2) for _ in range(2)]
    models[1].load_state_dict(models[0].state_dict())
    fused = make_optimizer(models[0], TrainConfig())
    plain = make_optimizer(models[1], TrainConfig())
    for group in plain.param_groups:
        group["fused"] = False
    for _ in range(3):
        for model, optimizer in zip(models, (fused, plain), strict=True):
            for i, parameter in enumerate(model.parameters()):
                parameter.grad = torch.full_like(parameter, 0.1 * (i % 5 - 2))
            optimizer.step()
    for left, right in zip(models[0].parameters(), models[1].parameters(), strict=True):
        torch.testing.assert_close(left, right)
