"""What holds in all tests of training: no drawing, and saved weights are exact."""

from __future__ import annotations

import pytest

from encoder_cls.training import final_model, progress


@pytest.fixture(autouse=True)
def _blank_plots(blank_plots):
    """See `blank_plots`."""


@pytest.fixture(autouse=True)
def _exact_weights(monkeypatch):
    """A run ends with float32: what its weights are can be compared. Smaller types have tests of their own."""
    monkeypatch.setattr(final_model, "compact", lambda *_arguments, **_options: {})


@pytest.fixture(autouse=True)
def _checkpoints_at_each_validation(monkeypatch):
    """However soon after the one before."""
    monkeypatch.setattr(progress, "SECONDS_BETWEEN_CHECKPOINTS", 0)
