"""Parameters and config in, optimizer out; step in, learning rate out."""

from __future__ import annotations

import math

import torch
from torch import nn

from encoder_cls.config import TrainConfig

BETAS = (0.9, 0.98)  # Vaswani et al. (2017): a shorter memory of squares than Adam's default 0.999


def make_optimizers(model: nn.Module, config: TrainConfig) -> list[torch.optim.Optimizer]:
    """AdamW (Loshchilov and Hutter, 2019, https://arxiv.org/abs/1711.05101) and, for embeddings, sparse Adam.

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
        torch.optim.SparseAdam(tables, lr=config.learning_rate, betas=BETAS),
    ]


def learning_rate(step: int, *, total_steps: int, config: TrainConfig) -> float:
    """The learning rate of a step, counted from 0: a linear rise, then half a cosine down to zero."""
    warmup_steps = round(config.warmup_fraction * total_steps)
    if step < warmup_steps:
        return config.learning_rate * (step + 1) / warmup_steps
    progress = (step - warmup_steps) / max(1, total_steps - warmup_steps)
    return config.learning_rate * 0.5 * (1 + math.cos(math.pi * progress))
