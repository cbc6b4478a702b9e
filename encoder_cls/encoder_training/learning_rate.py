"""The learning rate of each step: the schedule, with its warm-up."""

from __future__ import annotations

import math

from encoder_cls.config.schema import TrainConfig


def warmup_steps(total_steps: int, config: TrainConfig) -> int:
    """The steps in which the learning rate rises."""
    return round(config.warmup_fraction * total_steps)


def learning_rate(step: int, *, total_steps: int, config: TrainConfig) -> float:
    """The rate of a step, counted from 0.

    It rises linearly, then falls to zero along half a period of a cosine.
    """
    warmup = warmup_steps(total_steps, config)
    if step < warmup:
        return config.learning_rate * (step + 1) / warmup

    progress = (step - warmup) / max(1, total_steps - warmup)
    return config.learning_rate * 0.5 * (1 + math.cos(math.pi * progress))
