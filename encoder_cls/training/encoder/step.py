"""One optimizer step, on one process or several.

The sum of floating-point numbers depends on their order. So it is always that of the shards, however many processes
have computed them: each gets the gradients of all shards and sums them itself, and all take the same step.

The batches of a step may be cut into shards, by texts. Each shard has a seed of its own, and gradients are summed in
the order of the shards: so a step is the same, bit for bit, however many processes share its shards.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

import torch
from torch import Tensor, nn

from encoder_cls.model import EncoderClassifier
from encoder_cls.system.machine import autocast
from encoder_cls.training.encoder.batches import Shard, derive_seed
from encoder_cls.training.encoder.objectives import Objective, ObjectiveBatch
from encoder_cls.training.encoder.optimizer import Optimizer, sum_by_row
from encoder_cls.training.encoder.processes import ALONE, ProcessGroup


@dataclass(frozen=True, kw_only=True)
class ShardGradients:
    """The gradients of some shards of a step.

    Attributes:
        numbers: (shards, numbers), what else is to be known of each, in float64.
        has_gradient: (shards, dense parameters), whether a shard has touched it.
        dense: (shards, P), the gradients of all dense parameters side by side; 0 where there is none.
        rows: of each shard, which rows of the tables it has touched, each once; counted through all tables.
        values: of each shard, their gradients, (rows, D).
    """

    numbers: Tensor
    has_gradient: Tensor
    dense: Tensor
    rows: Sequence[Tensor]
    values: Sequence[Tensor]


class GradientShards:
    """Of one model: takes its gradients away, and puts the sums of all shards in their place.

    Args:
        model: whose tables all have the width `d_model`.
    """

    def __init__(self, model: nn.Module) -> None:
        tables = {module.weight for module in model.modules() if getattr(module, "sparse", False)}
        self._tables = [parameter for parameter in model.parameters() if parameter in tables]
        self._dense = [parameter for parameter in model.parameters() if parameter not in tables]
        self._starts = [0]
        for table in self._tables:
            self._starts.append(self._starts[-1] + len(table))

    def take(self, numbers: Sequence[float]) -> ShardGradients:
        """The gradients of one shard, which the model has no more.

        Args:
            numbers: of the shard.
        """
        first, *_ = self._dense
        width = self._tables[0].shape[1]
        rows, values = [first.new_empty(0, dtype=torch.int64)], [first.new_empty(0, width)]
        for table, start in zip(self._tables, self._starts, strict=False):
            if table.grad is not None:
                touched, sums = sum_by_row(table.grad)
                rows.append(touched + start)
                values.append(sums)
        dense = [torch.zeros_like(it) if it.grad is None else it.grad for it in self._dense]
        taken = ShardGradients(
            numbers=torch.tensor([numbers], dtype=torch.float64),
            has_gradient=torch.tensor([[it.grad is not None for it in self._dense]], dtype=torch.uint8),
            dense=torch.cat([it.flatten() for it in dense])[None],
            rows=[torch.cat(rows)],
            values=[torch.cat(values)],
        )
        for parameter in (*self._dense, *self._tables):
            parameter.grad = None
        return taken

    def put(self, shards: ShardGradients) -> None:
        """Give the model the sums over shards, in their order; a table's are the rows of all, one shard after another.

        A table's optimizer sums equal rows in the order in which it finds them. The dense gradients given are used up.
        """
        total = shards.dense[0]
        for gradient in shards.dense[1:]:
            total += gradient
        touched = shards.has_gradient.any(dim=0).tolist()
        for parameter, gradient, is_touched in zip(
            self._dense, torch.split(total, [it.numel() for it in self._dense]), touched, strict=True
        ):
            parameter.grad = gradient.view_as(parameter) if is_touched else None
        rows, values = torch.cat(list(shards.rows)), torch.cat(list(shards.values))
        for table, start in zip(self._tables, self._starts, strict=False):
            is_here = (rows >= start) & (rows < start + len(table))
            if is_here.any():
                # Not by the argument `check_invariants`, of which torch 2.11 warns.
                with torch.sparse.check_sparse_tensor_invariants(enable=False):  # type: ignore[no-untyped-call]
                    table.grad = torch.sparse_coo_tensor((rows[is_here] - start)[None], values[is_here], table.shape)

    def summed(self, shards: ShardGradients) -> ShardGradients:
        """The same as of one shard."""
        self.put(shards)
        numbers = shards.numbers.sum(dim=0).tolist()
        return self.take(numbers)


def joined(shards: Sequence[ShardGradients]) -> ShardGradients:
    """Several shards, one after the other."""
    if len(shards) == 1:
        return shards[0]
    return ShardGradients(
        numbers=torch.cat([it.numbers for it in shards]),
        has_gradient=torch.cat([it.has_gradient for it in shards]),
        dense=torch.cat([it.dense for it in shards]),
        rows=[rows for it in shards for rows in it.rows],
        values=[values for it in shards for values in it.values],
    )


def exchange(mine: ShardGradients, group: ProcessGroup, *, num_shards: int, is_exact: bool) -> ShardGradients:
    """The gradients of all shards, in their order, in all processes.

    Args:
        mine: those of the shards that are dealt to this process; where it is not exact, of their sum.
        group: of the processes.
        num_shards: of the step.
        is_exact: whether each shard's are exchanged; else dense ones are summed on the way, in whatever order is
            quickest.

    Raises:
        LostProcessError: another process has ended.
    """
    if group.size == 1:
        return mine
    count = num_shards if is_exact else group.size
    lengths = group.gather(torch.tensor([len(rows) for rows in mine.rows]), count)
    longest = int(lengths.max())
    rows = torch.stack([_padded(it, longest) for it in mine.rows])
    values = torch.stack([_padded(it, longest) for it in mine.values])
    all_rows, all_values = group.gather(rows, count), group.gather(values, count)
    if is_exact:
        dense = group.gather(mine.dense, count)
    else:
        dense = mine.dense
        group.sum(dense)
    return ShardGradients(
        numbers=group.gather(mine.numbers, count),
        has_gradient=group.gather(mine.has_gradient, count),
        dense=dense,
        rows=[it[:length] for it, length in zip(all_rows, lengths.tolist(), strict=True)],
        values=[it[:length] for it, length in zip(all_values, lengths.tolist(), strict=True)],
    )


def _padded(tensor: Tensor, length: int) -> Tensor:
    """The tensor with zeros after it."""
    padded = tensor.new_zeros((length, *tensor.shape[1:]))
    padded[: len(tensor)] = tensor
    return padded


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
