"""One optimizer step: batches of an objective in, an updated model and the step's numbers out."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import NamedTuple

import torch
from torch import Tensor

from encoder_cls.model import EncoderClassifier
from encoder_cls.system.device import autocast
from encoder_cls.training.objectives import Objective, ObjectiveBatch
from encoder_cls.training.optimizer import Optimizer


class StepMetrics(NamedTuple):
    """What a step was like.

    Attributes:
        loss: the mean over all targets of the step, by their weights.
        grad_norm: of the dense gradients, before clipping.
        tokens: real tokens that the model has read.
        padded_tokens: these and the padding.
    """

    loss: float
    grad_norm: float
    tokens: int
    padded_tokens: int


class NonFiniteError(ArithmeticError):
    """The loss or the gradient norm is no finite number; the model is as it was before the step."""

    def __init__(self, loss: float, grad_norm: float) -> None:
        super().__init__(f"loss {loss}, gradient norm {grad_norm}")


def train_step(
    model: EncoderClassifier,
    optimizers: Sequence[Optimizer],
    objective: Objective,
    step: int,
    *,
    seed: int,
    learning_rate: float,
    max_grad_norm: float,
    precision: torch.dtype,
) -> StepMetrics:
    """Update a model once, from all batches of a step; a pure function of its arguments, whatever was drawn before.

    Args:
        model: in any mode; it is in training mode afterwards.
        optimizers: of its parameters.
        objective: what is learned.
        step: of the stage, counted from 0.
        seed: of all random numbers of the step.
        learning_rate: of the step.
        max_grad_norm: to which longer gradients are scaled down.
        precision: of the matrix products.

    Raises:
        NonFiniteError: before anything has been updated.
    """
    torch.manual_seed(seed)
    for optimizer in optimizers:
        for group in optimizer.param_groups:
            group["lr"] = learning_rate
    model.train()
    batches = objective.batches_at(step)
    loss = accumulate_gradients(model, batches, precision=precision)
    # Of the embeddings' sparse gradients there is no norm; they come through the same layers as the others.
    dense = [p for p in model.parameters() if p.grad is not None and not p.grad.is_sparse]
    grad_norm = float(torch.nn.utils.clip_grad_norm_(dense, max_grad_norm))
    if not (math.isfinite(loss) and math.isfinite(grad_norm)):
        raise NonFiniteError(loss, grad_norm)
    for optimizer in optimizers:
        optimizer.step()
        optimizer.zero_grad()
    masks = [batch.inputs.attention_mask for batch in batches]
    return StepMetrics(
        loss=loss,
        grad_norm=grad_norm,
        tokens=sum(int(mask.sum()) for mask in masks),
        padded_tokens=sum(mask.numel() for mask in masks),
    )


def accumulate_gradients(
    model: EncoderClassifier, batches: Sequence[ObjectiveBatch], *, precision: torch.dtype
) -> float:
    """Gradients of the mean loss over the targets of all batches, each target by its weight; returns that loss.

    The sum over a batch is divided by the normalizer of all batches together: so many small batches give the
    same gradient as one large.
    """
    device = next(model.parameters()).device
    normalizer = sum(batch.normalizer for batch in batches)
    total_loss = 0.0
    for batch in batches:
        with autocast(precision, device):
            loss: Tensor = batch.loss(model) / normalizer
        loss.backward()  # type: ignore[no-untyped-call]
        total_loss += loss.item()
    return total_loss
