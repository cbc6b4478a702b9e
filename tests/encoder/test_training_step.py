"""One optimizer step by itself: what it updates, and what it depends on."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from support.small_runs import make_config, make_training

from encoder_cls.training.prepare import prepare
from encoder_cls.training.prepared import Prepared


@pytest.fixture
def setup(tmp_path: Path) -> Prepared:
    """All texts are in one batch."""
    return prepare(make_config(tmp_path, batch_size=60))


def stepped(setup: Prepared, *, step: int = 0, scale: float = 1.0, drawn_before: int = 0):
    """The weights before a step and after it, and the step's numbers."""
    training = make_training(setup)
    with torch.no_grad():
        training.model.head.linear.weight.mul_(scale)
    before = {name: tensor.clone() for name, tensor in training.model.state_dict().items()}
    torch.rand(drawn_before)
    metrics = training.step(step, 0.01)
    return before, training.model.state_dict(), metrics


def test_a_step_depends_on_its_arguments_alone(setup):
    """Not on random numbers that were drawn before; another step drops other features and words."""
    first, again, other = (
        stepped(setup, **how)[1:] for how in ({}, {"drawn_before": 99}, {"step": 1})
    )
    assert all(torch.equal(first[0][name], again[0][name]) for name in first[0])
    assert first[1] == again[1]
    assert other[1] != first[1]


def test_a_step_without_finite_numbers_updates_nothing(setup):
    before, after, metrics = stepped(setup, scale=float("inf"))
    assert not metrics.has_finite_loss
    assert not metrics.has_updated
    torch.testing.assert_close(after, before, rtol=0, atol=0, equal_nan=True)


def test_accumulated_gradients_equal_one_large_batch(tmp_path):
    """Many small batches of unequal sizes and weights give the gradient of all their texts at once."""
    gradients = []
    for batch_size, accumulation_steps in ((48, 1), (7, 7)):
        batches_of = {
            "batch_size": batch_size,
            "accumulation_steps": accumulation_steps,
            "precision": "float32",
        }
        config = make_config(
            tmp_path,
            model={"dropout": 0, "head_dropout": 0},
            word_dropout=0,
            max_grad_norm=1e9,
            class_weights={"red": 3.0, "blue": 0.5},
            **batches_of,
        )
        training = make_training(prepare(config))
        assert len(training.batches_at(0, 0, 1)) == accumulation_steps
        training.optimizers.clear()  # gradients stay
        metrics = training.step(0, 0.01)
        gradients.append(
            [
                metrics.loss,
                *(parameter.grad.to_dense() for parameter in training.model.parameters()),
            ]
        )
    assert gradients[0][0] == pytest.approx(gradients[1][0], rel=1e-6)
    for one, many in zip(gradients[0][1:], gradients[1][1:], strict=True):
        torch.testing.assert_close(one, many, atol=1e-6, rtol=1e-4)
