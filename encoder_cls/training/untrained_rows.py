"""Rows of embedding tables that no training text has touched: noise, which a saved model does without."""

from __future__ import annotations

import copy

from torch import Tensor, nn

from encoder_cls.model import EncoderClassifier


class UntrainedRows:
    """The rows that still are what they were at first.

    Args:
        initial: a model with the first weights of all.
    """

    def __init__(self, initial: EncoderClassifier) -> None:
        self._initial = _tables(initial)

    def zeroed(self, model: EncoderClassifier) -> EncoderClassifier:
        """A model in which these rows are zero; all but its tables it shares with the one that is given."""
        replaced: dict[int, object] = {id(tensor): tensor for tensor in (*model.parameters(), *model.buffers())}
        for name, table in _tables(model).items():
            is_untrained = (table == self._initial[name].to(table.device)).all(dim=1, keepdim=True)
            replaced[id(table)] = nn.Parameter(table.detach().masked_fill(is_untrained, 0))
        return copy.deepcopy(model, replaced)


def _tables(model: nn.Module) -> dict[str, Tensor]:
    """The weights whose gradients are sparse: a batch touches few of their rows."""
    return {
        name: module.weight
        for name, module in model.named_modules()
        if isinstance(module, nn.Embedding | nn.EmbeddingBag) and module.sparse
    }
