"""Train from Python in one call."""

from __future__ import annotations

import warnings
from collections.abc import Mapping
from dataclasses import replace
from itertools import chain
from pathlib import Path
from typing import Any

from encoder_cls.config import Config, config_of, load_config
from encoder_cls.inference.classifier import Classifier
from encoder_cls.inference.folder import load_classifier
from encoder_cls.system.machine import resolve_device
from encoder_cls.tracking.run_dir import RunDir
from encoder_cls.training.events import Noted
from encoder_cls.training.prepare import prepare
from encoder_cls.training.prepared import Objective
from encoder_cls.training.run import train as train_run


def train(
    config: Config | Mapping[str, Any] | str | Path,
    *,
    run_dir: str | Path | None = None,
    objective: Objective | None = None,
    device: str = "auto",
    resume: bool = False,
) -> Classifier:
    """Train into a run folder as `encoder-cls train` does, and load its classifier.

    Args:
        config: or its file, or its values by dotted key: `{"data.train": "spam.csv", "train.epochs": 5}`.
        run_dir: by default `runs/<name of the config>`.
        objective: called with the `EncoderClassifier` and a batch: the sum of the weighted losses of its texts, (). A
            batch has `inputs`, the arguments of the model, `targets`, (B, C), and `weights`; `batch.loss(model)` is the
            usual objective. Where a run is resumed, give it again.
        device: `auto`, `cpu`, `cuda` or `cuda:N`.
        resume: go on from the newest checkpoint.

    Raises:
        EncoderClsError: as the command, in the same words.
    """
    if isinstance(config, str | Path):
        config = load_config(Path(config), ())
    elif not isinstance(config, Config):
        config = config_of({"name": "run", **config}, source="train")
    run = RunDir(Path(run_dir or Path("runs", config.name)))
    prepared = replace(prepare(config), objective=objective)
    events = train_run(prepared, run, device=resolve_device(device), resume=resume)
    for message in chain(prepared.warnings(), (event.message for event in events if isinstance(event, Noted))):
        warnings.warn(message, UserWarning, stacklevel=2)
    return load_classifier(run.path, device=device)
