"""Send this process a signal while it trains."""

from __future__ import annotations

import signal
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest

from encoder_cls.encoder_training.training_step import Trainer


@contextmanager
def signal_in_step(number: signal.Signals, step: int) -> Iterator[None]:
    """Send the signal at the start of a step, counted from 0, of trainings in this block."""
    start_step = Trainer.start_step

    def start_step_with_signal(trainer: Trainer, started: int, rate: float) -> Any:
        if started == step:
            signal.raise_signal(number)
        return start_step(trainer, started, rate)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Trainer, "start_step", start_step_with_signal)
        yield
