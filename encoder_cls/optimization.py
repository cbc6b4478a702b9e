"""Parameters and config in, optimizer out; step in, learning rate out."""

from __future__ import annotations

import math
from collections.abc import Sequence

import torch
from torch import Tensor, nn

from encoder_cls.config import TrainConfig

BETAS = (0.9, 0.98)  # Vaswani et al. (2017): a shorter memory of squares than Adam's default 0.999


def make_optimizers(model: nn.Module, config: TrainConfig) -> list[torch.optim.Optimizer]:
    """AdamW (Loshchilov and Hutter, 2019, https://arxiv.org/abs/1711.05101) and, for embeddings, Adam by rows.

    A batch touches few rows of a table, and only these are updated: the time of a step does not grow with
    the vocabulary. Weight decay pulls only the matrices of linear maps towards zero: biases and norms have to
    be where they are, and a rare word's embedding would vanish between its occurrences.
    """
    tables, matrices, others = [], [], []
    for module in model.modules():
        for parameter in module.parameters(recurse=False):
            if getattr(module, "sparse", False):
                tables.append(parameter)
            elif isinstance(module, nn.Linear) and parameter is module.weight:
                matrices.append(parameter)
            else:
                others.append(parameter)
    groups = [{"params": matrices, "weight_decay": config.weight_decay}, {"params": others, "weight_decay": 0.0}]
    return [
        torch.optim.AdamW(groups, lr=config.learning_rate, betas=BETAS, fused=True),
        RowAdam(tables, lr=config.learning_rate, betas=BETAS),
    ]


class RowAdam(torch.optim.Optimizer):
    """Adam (Kingma and Ba, 2015, https://arxiv.org/abs/1412.6980) on the rows of tables that have a gradient.

    The other rows keep their values and moments. The same, to rounding, as `torch.optim.SparseAdam`, which makes sparse
    tensors of all that lies between and takes a third to twice longer for it.

    Args:
        tables: parameters (rows, D) whose gradients are sparse.
        lr: the learning rate.
        betas: how much of the moments a step keeps.
        eps: added to the divisor.
    """

    def __init__(self, tables: Sequence[Tensor], *, lr: float, betas: tuple[float, float], eps: float = 1e-8) -> None:
        super().__init__(tables, {"lr": lr, "betas": betas, "eps": eps})

    @torch.no_grad()
    def step(self) -> None:  # type: ignore[override]
        """Update each table from its gradient."""
        for group in self.param_groups:
            for table in group["params"]:
                if table.grad is not None:
                    self._update(table, lr=group["lr"], betas=group["betas"], eps=group["eps"])

    def _update(self, table: Tensor, *, lr: float, betas: tuple[float, float], eps: float) -> None:
        state = self.state[table]
        if not state:
            state |= {"step": 0, "exp_avg": torch.zeros_like(table), "exp_avg_sq": torch.zeros_like(table)}
        state["step"] += 1
        gradient = table.grad.coalesce()  # type: ignore[union-attr]
        rows, values = gradient.indices()[0], gradient.values()
        mean = state["exp_avg"].index_select(0, rows).lerp_(values, 1 - betas[0])
        square = state["exp_avg_sq"].index_select(0, rows).mul_(betas[1]).addcmul_(values, values, value=1 - betas[1])
        state["exp_avg"].index_copy_(0, rows, mean)
        state["exp_avg_sq"].index_copy_(0, rows, square)
        size = lr * math.sqrt(1 - betas[1] ** state["step"]) / (1 - betas[0] ** state["step"])
        table.index_add_(0, rows, mean.div_(square.sqrt_().add_(eps)), alpha=-size)


def learning_rate(step: int, *, total_steps: int, config: TrainConfig) -> float:
    """The learning rate of a step, counted from 0: a linear rise, then half a cosine down to zero."""
    warmup_steps = round(config.warmup_fraction * total_steps)
    if step < warmup_steps:
        return config.learning_rate * (step + 1) / warmup_steps
    progress = (step - warmup_steps) / max(1, total_steps - warmup_steps)
    return config.learning_rate * 0.5 * (1 + math.cos(math.pi * progress))
