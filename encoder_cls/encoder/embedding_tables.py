"""Embedding tables of a model: a batch touches few of their rows, so their gradients are sparse."""

from __future__ import annotations

import copy
from collections.abc import Mapping

import torch
from torch import Tensor, nn
from torch.nn import functional

from encoder_cls.encoder.transformer import EncoderClassifier


def embedding_tables(model: nn.Module) -> dict[str, Tensor]:
    """The weights of all embedding tables of a model, by name."""
    tables = {}
    for name, module in model.named_modules():
        if isinstance(module, nn.Embedding | nn.EmbeddingBag) and module.sparse:
            tables[f"{name}.weight"] = module.weight
    return tables


def sum_by_row(gradient: Tensor) -> tuple[Tensor, Tensor]:
    """Sum the values of each row of a sparse gradient.

    It equals `coalesce`, which uses one thread and takes twice as long.

    Returns:
        The numbers of the rows, increasing, (rows,), and their sums, (rows, D).
    """
    sorted_rows, positions = gradient._indices()[0].sort(stable=True)
    rows, counts = torch.unique_consecutive(sorted_rows, return_counts=True)

    # The values of a row are a bag of embeddings.
    starts = counts.cumsum(0) - counts
    sums = functional.embedding_bag(positions, gradient._values(), starts, mode="sum")
    return rows, sums


def without_untrained(model: EncoderClassifier, initial: Mapping[str, Tensor]) -> EncoderClassifier:
    """Copy a model, with zeros in the rows of tables that still have their initial values.

    Only tables are copied; the copy shares all other weights with the model.

    Args:
        model: stays as it is.
        initial: the tables with which its training began, by name.
    """
    # `deepcopy` copies no object for which it finds a replacement here, by its id.
    replacements: dict[int, object] = {}
    for tensor in (*model.parameters(), *model.buffers()):
        replacements[id(tensor)] = tensor

    for name, table in embedding_tables(model).items():
        is_untrained = (table == initial[name].to(table.device)).all(dim=1, keepdim=True)
        trained_rows = table.detach().masked_fill(is_untrained, 0)
        replacements[id(table)] = nn.Parameter(trained_rows)

    return copy.deepcopy(model, replacements)
