"""What a resumed run must have in common with its checkpoint."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import torch

from encoder_cls.errors import ConfigError
from encoder_cls.system.files import sha256
from encoder_cls.system.machine import environment
from encoder_cls.training.setup import TrainingSetup

# What a run cannot go on with where it has changed; anything else changes the last digits at most.
REFUSED = {
    "training_data": "training data has",
    "unlabelled_data": "unlabelled texts have",
    "validation_data": "validation data has",
    "classes": "names of the classes have",
    "tokenizer": "tokenizer's library has",
}


def fingerprint(setup: TrainingSetup, *, device: torch.device, precision: torch.dtype) -> dict[str, Any]:
    """The hashes of the data, the names of the classes, and the environment, as values of JSON."""
    dataset = setup.dataset
    return environment(device, precision) | {
        "tokenizer": sha256(setup.tokenizer.to_str().encode()),
        "training_data": dataset.train.fingerprint,
        "unlabelled_data": dataset.unlabelled.fingerprint,
        "validation_data": dataset.selection.fingerprint,
        "classes": list(dataset.label_names),
    }


def check_fingerprint(saved: dict[str, Any], current: dict[str, Any], *, run: Path) -> list[str]:
    """Compare the fingerprint of a run with that which it goes on with; returns what to warn of.

    Raises:
        ConfigError: the run cannot go on.
    """
    changed = [name for name in saved if saved[name] != current.get(name)]
    for name, meaning in REFUSED.items():
        if name in changed:
            raise ConfigError(f"{run}: the {meaning} changed since the run began; start a new run")
    if not changed:
        return []
    return [f"{', '.join(changed)} changed since the run began: the result may differ in the last digits"]
