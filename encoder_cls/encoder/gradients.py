"""The gradients of a step: clipped, and summed over processes."""

from __future__ import annotations

import math

import torch
from torch import nn

from encoder_cls.encoder.distributed import ProcessGroup
from encoder_cls.encoder.embedding_tables import embedding_tables, sum_by_row


def clip_gradients(model: nn.Module, max_norm: float) -> tuple[float, bool]:
    """Scale the dense gradients down to a norm.

    Those of tables are sparse; they come through the same layers and need no clipping.

    Returns:
        The norm of the dense gradients before, and whether all gradients are finite.
    """
    dense = []
    sum_of_sparse = 0.0
    for parameter in model.parameters():
        if parameter.grad is None:
            continue
        if parameter.grad.is_sparse:
            # The sum is not finite if any value is not.
            sum_of_sparse += float(parameter.grad._values().sum())
        else:
            dense.append(parameter)

    norm = float(torch.nn.utils.clip_grad_norm_(dense, max_norm))
    return norm, math.isfinite(norm) and math.isfinite(sum_of_sparse)


def sum_gradients(model: nn.Module, group: ProcessGroup) -> None:
    """Replace the gradients by their sums over all processes."""
    tables = embedding_tables(model)
    dense = [parameter for name, parameter in model.named_parameters() if name not in tables]
    _sum_dense(dense, group)
    for table in tables.values():
        _sum_sparse(table, group)


def _sum_dense(parameters: list[nn.Parameter], group: ProcessGroup) -> None:
    """Sum dense gradients, in one exchange."""
    gradients = []
    for parameter in parameters:
        if parameter.grad is None:
            gradients.append(torch.zeros_like(parameter))
        else:
            gradients.append(parameter.grad)

    # One buffer holds all gradients, and for each parameter whether it has one.
    has_gradient = torch.tensor([parameter.grad is not None for parameter in parameters])
    flat = [gradient.flatten() for gradient in gradients]
    buffer = torch.cat([*flat, has_gradient.to(gradients[0])])
    group.sum(buffer)

    # A parameter without a gradient in any process has none.
    sizes = [parameter.numel() for parameter in parameters]
    *sums, counts = torch.split(buffer, [*sizes, len(parameters)])
    for parameter, gradient, count in zip(parameters, sums, counts.tolist(), strict=True):
        parameter.grad = gradient.view_as(parameter) if count else None


def _sum_sparse(table: torch.Tensor, group: ProcessGroup) -> None:
    """Sum the gradient of a table: the rows that have one are gathered from all processes.

    A sum over the whole table would cost what the table costs.
    """
    if table.grad is None:
        rows = torch.empty(0, dtype=torch.int64, device=table.device)
        values = table.new_empty(0, table.shape[1])
    else:
        rows, values = sum_by_row(table.grad)

    rows = torch.cat(group.gather(rows))
    values = torch.cat(group.gather(values))
    if not len(rows):
        return

    # A sparse tensor may list a row several times, which adds up. Its argument `check_invariants`
    # would switch off the checks, too, but torch 2.11 warns of it.
    with torch.sparse.check_sparse_tensor_invariants(enable=False):  # type: ignore[no-untyped-call]
        table.grad = torch.sparse_coo_tensor(rows[None], values, table.shape)
