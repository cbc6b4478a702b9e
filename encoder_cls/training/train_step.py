"""One optimizer step: batches of an objective in, an updated model and the step's numbers out.

The batches of a step may be cut into shards, by texts. Each shard has a seed of its own, and gradients are summed in
the order of the shards: so a step is the same, bit for bit, however many processes share its shards.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

import torch
from torch import Tensor

from encoder_cls.model import EncoderClassifier
from encoder_cls.system.device import autocast
from encoder_cls.training.gradient_shards import GradientShards, exchange, joined
from encoder_cls.training.objectives import Objective, ObjectiveBatch
from encoder_cls.training.optimizer import Optimizer
from encoder_cls.training.process_group import ALONE, ProcessGroup
from encoder_cls.training.sampler import Shard
from encoder_cls.training.seeds import derive_seed


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


@dataclass(frozen=True, kw_only=True)
class StepSettings:
    """How all steps of a run are computed.

    Attributes:
        max_grad_norm: to which longer gradients are scaled down.
        precision: of the matrix products.
        num_shards: into how many shards a step is cut.
        group: the processes that share them.
        is_exact: whether gradients are summed in the order of the shards, whatever it costs.
    """

    max_grad_norm: float
    precision: torch.dtype

    num_shards: int = 1
    group: ProcessGroup = ALONE
    is_exact: bool = True


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
    settings: StepSettings,
) -> StepMetrics:
    """Update a model once, from all batches of a step; a pure function of its arguments, whatever was drawn before.

    Args:
        model: in any mode; it is in training mode afterwards.
        optimizers: of its parameters.
        objective: what is learned.
        step: of the stage, counted from 0.
        seed: of all random numbers of the step.
        learning_rate: of the step.
        settings: of the run.

    Raises:
        NonFiniteError: before anything has been updated.
        LostProcessError: likewise.
    """
    for optimizer in optimizers:
        for group in optimizer.param_groups:
            group["lr"] = learning_rate
    model.train()
    if settings.num_shards == 1:
        torch.manual_seed(seed)
        batches = objective.batches_at(step)
        normalizer = sum(batch.normalizer for batch in batches)
        loss = accumulate_gradients(model, batches, normalizer, precision=settings.precision)
        tokens, padded_tokens = _tokens(batches)
    else:
        loss, tokens, padded_tokens = _sharded_gradients(model, objective, step, seed=seed, settings=settings)
    # Of the embeddings' sparse gradients there is no norm; they come through the same layers as the others.
    dense = [p for p in model.parameters() if p.grad is not None and not p.grad.is_sparse]
    grad_norm = float(torch.nn.utils.clip_grad_norm_(dense, settings.max_grad_norm))
    if not (math.isfinite(loss) and math.isfinite(grad_norm)):
        raise NonFiniteError(loss, grad_norm)
    for optimizer in optimizers:
        optimizer.step()
        optimizer.zero_grad()
    return StepMetrics(loss=loss, grad_norm=grad_norm, tokens=tokens, padded_tokens=padded_tokens)


def accumulate_gradients(
    model: EncoderClassifier, batches: Sequence[ObjectiveBatch], normalizer: Tensor | float, *, precision: torch.dtype
) -> float:
    """Gradients of the summed loss of batches over a normalizer; returns that loss.

    The normalizer is that of all batches of the step together: so many small batches give the same gradient as one
    large, that of the mean loss over the targets of all, each target by its weight.
    """
    device = next(model.parameters()).device
    total_loss = 0.0
    for batch in batches:
        with autocast(precision, device):
            loss: Tensor = batch.loss(model) / normalizer
        loss.backward()  # type: ignore[no-untyped-call]
        total_loss += loss.item()
    return total_loss


def _sharded_gradients(
    model: EncoderClassifier, objective: Objective, step: int, *, seed: int, settings: StepSettings
) -> tuple[float, int, int]:
    """Give the model the gradients of all shards; returns the loss, the tokens and those padded.

    Raises:
        LostProcessError: another process has ended.
    """
    group, num_shards = settings.group, settings.num_shards
    mine = group.dealt(num_shards)
    shards = []
    for shard in mine:
        torch.manual_seed(derive_seed(seed, shard))
        shards.append(objective.batches_at(step, Shard(shard, num_shards)))
    normalizers = torch.tensor([sum(float(it.normalizer) for it in batches) for batches in shards], dtype=torch.float64)
    normalizer = sum(group.gather(normalizers, num_shards).tolist())
    gradients = GradientShards(model)
    taken = []
    for shard, batches in zip(mine, shards, strict=True):
        torch.manual_seed(derive_seed(seed, shard, 1))  # others have drawn meanwhile
        loss = accumulate_gradients(model, batches, normalizer, precision=settings.precision)
        taken.append(gradients.take([loss, *_tokens(batches)]))
    together = joined(taken)
    if not settings.is_exact:
        together = gradients.summed(together)
    everything = exchange(together, group, num_shards=num_shards, is_exact=settings.is_exact)
    gradients.put(everything)
    loss, tokens, padded_tokens = (sum(numbers) for numbers in everything.numbers.T.tolist())
    return loss, int(tokens), int(padded_tokens)


def _tokens(batches: Sequence[ObjectiveBatch]) -> tuple[int, int]:
    """How many tokens the model reads, without padding and with it."""
    masks = [batch.inputs.attention_mask for batch in batches]
    return sum(int(mask.sum()) for mask in masks), sum(mask.numel() for mask in masks)
