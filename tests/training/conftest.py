"""What holds in all tests of training: no waiting, and no drawing."""

from __future__ import annotations

import pytest
from matplotlib.figure import Figure

from encoder_cls.evaluation import report
from encoder_cls.tracking import metric_log, tensorboard
from encoder_cls.training import interruptible


@pytest.fixture(autouse=True)
def _asked_in_steps_alone(monkeypatch):
    """Not every few milliseconds of a wait: tests count how often the stop signal is asked."""
    monkeypatch.setattr(interruptible, "SECONDS_BETWEEN_LOOKS", 600)


@pytest.fixture(autouse=True)
def _blank_pictures(monkeypatch):
    """Drawing takes most of the time of a tiny run; how it is done is tested elsewhere."""
    names = {
        metric_log: ["reliability"],
        report: ["reliability", "precision_recall", "thresholds", "accuracy_by_length"],
        tensorboard: ["attention", "positions"],
    }
    for module, name in ((module, name) for module, some in names.items() for name in some):
        monkeypatch.setattr(module, name, lambda *_: Figure(figsize=(1, 1)))
