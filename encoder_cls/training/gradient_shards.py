"""The gradients of a step whose batches are cut into shards: taken of each, exchanged, and summed in order.

The sum of floating-point numbers depends on their order. So it is always that of the shards, however many processes
have computed them: each gets the gradients of all shards and sums them itself, and all take the same step.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from encoder_cls.training.optimizer import sum_by_row
from encoder_cls.training.process_group import ProcessGroup


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
