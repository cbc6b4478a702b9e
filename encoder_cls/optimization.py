"""Parameters and config in, optimizer out; step in, learning rate out."""

from __future__ import annotations

import math

import torch
from torch import nn

from encoder_cls.config import TrainConfig


def make_optimizer(model: nn.Module, config: TrainConfig) -> torch.optim.AdamW:
    """AdamW (Loshchilov and Hutter, 2019, https://arxiv.org/abs/1711.05101).

    Weight decay pulls only the matrices of linear maps towards zero: biases and norms have to be where
    they are, and a rare word's embedding would vanish between its occurrences.
    """
    matrices = {module.weight for module in model.modules() if isinstance(module, nn.Linear)}
    others = [parameter for parameter in model.parameters() if parameter not in matrices]
    return torch.optim.AdamW(
        [
            {"params": [p for p in model.parameters() if p in matrices], "weight_decay": config.weight_decay},
            {"params": others, "weight_decay": 0.0},
        ],
        lr=config.learning_rate,
        betas=(0.9, 0.98),  # Vaswani et al. (2017): a shorter memory of squares than Adam's default 0.999
        fused=True,
    )


def learning_rate(step: int, *, total_steps: int, config: TrainConfig) -> float:
    """The learning rate of a step, counted from 0: a linear rise, then half a cosine down to zero."""
    warmup_steps = round(config.warmup_fraction * total_steps)
    if step < warmup_steps:
        return config.learning_rate * (step + 1) / warmup_steps
    progress = (step - warmup_steps) / max(1, total_steps - warmup_steps)
    return config.learning_rate * 0.5 * (1 + math.cos(math.pi * progress))
