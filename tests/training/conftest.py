"""What holds in all tests of training: no waiting, and no drawing."""

from __future__ import annotations

import pytest

from encoder_cls.training import interruptible


@pytest.fixture(autouse=True)
def _asked_in_steps_alone(monkeypatch):
    """Not every few milliseconds of a wait: tests count how often the stop signal is asked."""
    monkeypatch.setattr(interruptible, "SECONDS_BETWEEN_LOOKS", 600)


@pytest.fixture(autouse=True)
def _blank_plots(blank_plots):
    """See `blank_plots`."""
