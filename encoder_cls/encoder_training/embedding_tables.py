"""The embedding tables of a model, and their sparse gradients."""

from __future__ import annotations

import copy
from collections.abc import Mapping

import torch
from torch import Tensor, nn
from torch.nn import functional

from encoder_cls.encoder.transformer import EncoderClassifier


def embedding_tables(model: nn.Module) -> dict[str, Tensor]:
    """The tables of a model, by the names of `state_dict`."""
    tables = {}
    for name, module in model.named_modules():
        if isinstance(module, nn.Embedding | nn.EmbeddingBag):
            tables[f"{name}.weight"] = module.weight
    return tables


def use_sparse_gradients(model: nn.Module) -> None:
    """Let the gradients of all tables be sparse from now on.

    So the time of a step does not depend on the sizes of tables; only some optimizers take them.
    """
    for module in model.modules():
        if isinstance(module, nn.Embedding | nn.EmbeddingBag):
            module.sparse = True


def sum_by_row(gradient: Tensor) -> tuple[Tensor, Tensor]:
    """Sum the values of each row of a sparse gradient.

    The result is that of `Tensor.coalesce`, which takes twice as long, on a single thread.

    Returns:
        Rows, increasing, and sums, (rows, D).
    """
    sorted_rows, positions = gradient._indices()[0].sort(stable=True)
    rows, counts = torch.unique_consecutive(sorted_rows, return_counts=True)

    # Sum the values of each row as a bag of embeddings.
    starts = counts.cumsum(0) - counts
    sums = functional.embedding_bag(positions, gradient._values(), starts, mode="sum")
    return rows, sums


def sum_at_occurrences(gradient: Tensor) -> tuple[Tensor, Tensor]:
    """Sum the values of each row of a sparse gradient, wherever it occurs.

    No shape depends on values, so nothing waits for a GPU; `sum_by_row` waits for the number of
    rows.

    Returns:
        The row of each value, increasing, and its sum, (values, D).
    """
    sorted_rows, positions = gradient._indices()[0].sort(stable=True)

    # Number the different rows, from 0. A row is another one than that before it if they differ.
    differs = sorted_rows[1:] != sorted_rows[:-1]
    numbers = functional.pad(differs.cumsum(0), (1, 0))[: len(sorted_rows)]

    # Sum the values of each row as a bag of embeddings. There are as many bags as values; those for
    # which there is no row are empty.
    bags = torch.arange(len(numbers), device=numbers.device)
    starts = torch.searchsorted(numbers, bags)
    sums = functional.embedding_bag(positions, gradient._values(), starts, mode="sum")
    return sorted_rows, sums.index_select(0, numbers)


def without_untrained(model: EncoderClassifier, initial: Mapping[str, Tensor]) -> EncoderClassifier:
    """Copy a model, with zeros in rows of tables that still have `initial` values.

    All other weights are shared.
    """
    # Give `deepcopy` a replacement for each tensor, by the tensor's id: it then copies none of
    # them. A tensor whose replacement is itself is shared.
    replacements: dict[int, object] = {}
    for tensor in (*model.parameters(), *model.buffers()):
        replacements[id(tensor)] = tensor

    for name, table in embedding_tables(model).items():
        is_untrained = (table == initial[name].to(table.device)).all(dim=1, keepdim=True)
        trained_rows = table.detach().masked_fill(is_untrained, 0)
        replacements[id(table)] = nn.Parameter(trained_rows)

    return copy.deepcopy(model, replacements)
