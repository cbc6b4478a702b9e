"""A single optimizer step: what it updates, and what it depends on."""

from __future__ import annotations

from pathlib import Path
from typing import NamedTuple

import numpy as np
import pytest
import torch
from support.small_runs import make_config, make_training
from torch import Tensor

from encoder_cls.encoder.torch_encoder import make_batch
from encoder_cls.encoder_training.classification_loss import (
    ClassificationBatch,
    MultiLabelBatch,
    SingleLabelBatch,
)
from encoder_cls.encoder_training.training_state import StepMetrics
from encoder_cls.training.prepare import prepare
from encoder_cls.training.prepared import Prepared


@pytest.fixture
def setup(tmp_path: Path) -> Prepared:
    """All texts are in one batch."""
    return prepare(make_config(tmp_path, batch_size=60))


class TakenStep(NamedTuple):
    """The weights before a step and after it, and the step's metrics."""

    before: dict[str, Tensor]
    after: dict[str, Tensor]
    metrics: StepMetrics


def take_step(
    setup: Prepared, *, step: int = 0, scale: float = 1.0, drawn_before: int = 0
) -> TakenStep:
    """Take one step of a new training.

    Args:
        scale: a factor of the head's weights.
        drawn_before: how many random numbers are drawn before the step.
    """
    trainer = make_training(setup).trainer
    with torch.no_grad():
        trainer.model.head.linear.weight.mul_(scale)
    before = {name: tensor.clone() for name, tensor in trainer.model.state_dict().items()}

    torch.rand(drawn_before)
    metrics = trainer.start_step(step, 0.01).metrics()
    return TakenStep(before, trainer.model.state_dict(), metrics)


def test_a_step_depends_on_its_arguments_alone(setup):
    """Random numbers drawn earlier do not matter; other steps drop other features and words."""
    first = take_step(setup)
    same = take_step(setup, drawn_before=99)
    other = take_step(setup, step=1)

    for name, weight in first.after.items():
        assert torch.equal(same.after[name], weight)
    assert same.metrics == first.metrics
    assert other.metrics != first.metrics


def test_a_step_without_finite_numbers_updates_nothing(setup):
    taken = take_step(setup, scale=float("inf"))

    assert not taken.metrics.has_finite_loss
    assert not taken.metrics.should_update
    torch.testing.assert_close(taken.after, taken.before, rtol=0, atol=0, equal_nan=True)


def test_accumulated_gradients_equal_one_large_batch(tmp_path):
    """Small batches of unequal sizes and weights give the gradient of one batch of all texts."""

    def loss_and_gradients(
        *, batch_size: int, accumulation_steps: int
    ) -> tuple[float, list[Tensor]]:
        config = make_config(
            tmp_path,
            model={"dropout": 0, "head_dropout": 0},
            word_dropout=0,
            max_grad_norm=1e9,
            class_weights={"red": 3.0, "blue": 0.5},
            precision="float32",
            batch_size=batch_size,
            accumulation_steps=accumulation_steps,
        )
        trainer = make_training(prepare(config)).trainer
        assert len(trainer.task.batches_at(0, 0, 1)) == accumulation_steps

        # Without optimizers, gradients stay.
        trainer.optimizers.clear()
        metrics = trainer.start_step(0, 0.01).metrics()
        gradients = [parameter.grad.to_dense() for parameter in trainer.model.parameters()]
        return metrics.loss, gradients

    loss, gradients = loss_and_gradients(batch_size=48, accumulation_steps=1)
    accumulated_loss, accumulated = loss_and_gradients(batch_size=7, accumulation_steps=7)

    assert accumulated_loss == pytest.approx(loss, rel=1e-6)
    for found, expected in zip(accumulated, gradients, strict=True):
        torch.testing.assert_close(found, expected, atol=1e-6, rtol=1e-4)


@pytest.mark.parametrize("rdrop_weight", [0.0, 1.0])
@pytest.mark.parametrize("kind", [SingleLabelBatch, MultiLabelBatch])
def test_a_text_of_weight_3_counts_as_three_texts_in_the_loss(setup, kind, rdrop_weight):
    """The normalizer stays the number of texts, so that a batch of one text keeps its weight."""
    model = make_training(setup).trainer.model.eval()
    texts = setup.train_texts.take(np.array([0, 1]))
    targets = torch.eye(len(setup.dataset.label_names))[setup.dataset.train.labels[:2]]
    class_weights = torch.ones(targets.shape[1])

    def batch(rows: list[int], text_weights: Tensor | None) -> ClassificationBatch:
        if kind is SingleLabelBatch:
            weights = {"weights": class_weights, "text_weights": text_weights}
        elif text_weights is None:
            weights = {"weights": class_weights.expand(len(rows), -1)}
        else:
            weights = {"weights": text_weights[:, None] * class_weights}

        # R-Drop compares the two halves of a batch: here, the first text with the second one.
        return kind(
            inputs=make_batch(texts, np.array(rows)),
            targets=targets[rows],
            rdrop_weight=rdrop_weight,
            **weights,
        )

    weighted = batch([0, 1], torch.tensor([3.0, 3.0]))
    repeated = batch([0, 0, 0, 1, 1, 1], None)

    assert weighted.loss(model).item() == pytest.approx(repeated.loss(model).item(), rel=1e-5)
    assert weighted.normalizer.item() == 2
