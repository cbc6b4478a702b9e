"""Clip the gradients of a step, and sum them over processes."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from encoder_cls.encoder_training.distributed import ProcessGroup
from encoder_cls.encoder_training.embedding_tables import embedding_tables, sum_by_row


def clip_gradients(model: nn.Module, max_norm: float) -> tuple[Tensor, Tensor]:
    """Scale dense gradients down to a norm of at most `max_norm`.

    The sparse ones come through the same layers, and need no clipping.

    Returns:
        The norm before, and whether all gradients are finite, which the device computes later.
    """
    dense = []
    sums_of_sparse = []
    for parameter in model.parameters():
        if parameter.grad is None:
            continue
        if parameter.grad.is_sparse:
            sums_of_sparse.append(parameter.grad._values().sum())
        else:
            dense.append(parameter)

    norm = torch.nn.utils.clip_grad_norm_(dense, max_norm)

    # A norm or a sum is not finite if one of its values is not finite.
    is_finite = torch.stack([norm, *sums_of_sparse]).isfinite().all()
    return norm, is_finite


def sum_gradients(model: nn.Module, group: ProcessGroup) -> None:
    """Sum gradients over all processes."""
    tables = embedding_tables(model)
    dense = [parameter for name, parameter in model.named_parameters() if name not in tables]
    _sum_dense(dense, group)
    for table in tables.values():
        _sum_sparse(table, group)


def _sum_dense(parameters: list[nn.Parameter], group: ProcessGroup) -> None:
    gradients = []
    for parameter in parameters:
        if parameter.grad is None:
            gradients.append(torch.zeros_like(parameter))
        else:
            gradients.append(parameter.grad)

    # Send one tensor with all gradients, followed by a flag for each parameter: whether it has a
    # gradient.
    has_gradient = torch.tensor([parameter.grad is not None for parameter in parameters])
    flat = [gradient.flatten() for gradient in gradients]
    buffer = torch.cat([*flat, has_gradient.to(gradients[0])])
    group.sum(buffer)

    # A summed flag counts the processes in which a parameter has a gradient. If there are none, the
    # parameter stays without a gradient, because the optimizer then leaves it alone.
    sizes = [parameter.numel() for parameter in parameters]
    *sums, counts = torch.split(buffer, [*sizes, len(parameters)])
    for parameter, gradient, count in zip(parameters, sums, counts.tolist(), strict=True):
        parameter.grad = None
        if count:
            parameter.grad = gradient.view_as(parameter)


def _sum_sparse(table: Tensor, group: ProcessGroup) -> None:
    """Exchange only the rows that have a gradient, which are few."""
    if table.grad is None:
        rows = torch.empty(0, dtype=torch.int64, device=table.device)
        values = table.new_empty(0, table.shape[1])
    else:
        rows, values = sum_by_row(table.grad)

    rows = torch.cat(group.gather(rows))
    values = torch.cat(group.gather(values))
    if not len(rows):
        return

    # A row may occur several times in a sparse tensor; its values are then added up. The checks of
    # sparse tensors are not needed here. They are switched off by a context manager, because torch
    # 2.11 emits a warning for the argument `check_invariants`.
    with torch.sparse.check_sparse_tensor_invariants(enable=False):  # type: ignore[no-untyped-call]
        table.grad = torch.sparse_coo_tensor(rows[None], values, table.shape)
