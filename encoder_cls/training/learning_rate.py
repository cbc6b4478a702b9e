"""A step in, its learning rate out: a linear rise, then half a cosine."""

from __future__ import annotations

import math

from encoder_cls.config import TrainConfig


def warmup_steps(total_steps: int, config: TrainConfig) -> int:
    """The steps in which the learning rate rises."""
    return round(config.warmup_fraction * total_steps)


def learning_rate(step: int, *, total_steps: int, config: TrainConfig) -> float:
    """The learning rate of a step, counted from 0: a linear rise, then half a cosine down to zero."""
    warmup = warmup_steps(total_steps, config)
    if step < warmup:
        return config.learning_rate * (step + 1) / warmup
    progress = (step - warmup) / max(1, total_steps - warmup)
    return config.learning_rate * 0.5 * (1 + math.cos(math.pi * progress))
