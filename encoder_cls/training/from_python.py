"""Train from Python in one call."""

from __future__ import annotations

import threading
import warnings
from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from itertools import chain
from pathlib import Path
from typing import Any

import torch

from encoder_cls.classifier.classifier import Classifier
from encoder_cls.classifier.model_folder import load_classifier
from encoder_cls.config.loading import config_of, load_config
from encoder_cls.config.schema import Config
from encoder_cls.data.rows import Row, SourceLocation
from encoder_cls.run.run_folder import RunDir
from encoder_cls.system.machine import resolve_device
from encoder_cls.system.terminal import begin_work, note_work
from encoder_cls.training.events import Noted, StageStarted, Validated
from encoder_cls.training.final_model import finish_model
from encoder_cls.training.prepare import prepare
from encoder_cls.training.prepared import Objective
from encoder_cls.training.train import train as train_run

# Two trainings would draw from the same random generator: torch has one per process.
_ALONE = threading.Lock()


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
        config: a config, its file, or its values by dotted key: `{"data.train": "spam.csv", "train.epochs": 5}`.
        run_dir: by default `runs/<name of the config>`.
        objective: called with the `EncoderClassifier` and a batch: the sum of the weighted losses of its texts, (). A
            batch has `inputs`, the arguments of the model, `targets`, (B, C), and `weights`; `batch.loss(model)` is the
            usual objective. Where a run is resumed, give it again.
        device: `auto`, `cpu`, `cuda` or `cuda:N`.
        resume: continue from the newest checkpoint.

    Raises:
        EncoderClsError: with the message of the command.
    """
    if isinstance(config, str | Path):
        config = load_config(Path(config), ())
    elif not isinstance(config, Config):
        config = config_of({"name": "run", **config}, source="train")
    run = RunDir(Path(run_dir or Path("runs", config.name)))
    prepared = replace(prepare(config), objective=objective)
    events = train_run(prepared, run, device=resolve_device(device), resume=resume)
    for message in chain(
        prepared.warnings(), (event.message for event in events if isinstance(event, Noted))
    ):
        warnings.warn(message, UserWarning, stacklevel=2)
    return load_classifier(run.path, device=device)


def train_texts(
    config: Config,
    texts: Iterable[tuple[int, str, str | list[str] | None]],
    run: RunDir,
    *,
    warn: Callable[[str], None],
) -> Classifier:
    """Train into an empty run folder, without a report, on texts with their numbers and their label or labels.

    Reports the work in progress, as the command does. Threads train one at a time, and the state of the caller's random
    generators is restored.

    Raises:
        EncoderClsError: with the message of the command.
    """
    rows = (
        Row(text, label, None, SourceLocation(f"texts[{number}]")) for number, text, label in texts
    )
    device = resolve_device("auto")
    with _ALONE, torch.random.fork_rng(devices=[device] if device.type == "cuda" else []):
        prepared = prepare(config, train_rows=rows)
        for message in prepared.warnings():
            warn(message)
        for event in train_run(prepared, run, device=device, with_report=False):
            if isinstance(event, Noted):
                warn(event.message)
            elif isinstance(event, StageStarted):
                begin_work(event.stage)
            elif isinstance(event, Validated):
                scores = ", ".join(
                    f"{name} {value:.4f}" for name, value in event.result.scores.items()
                )
                best = ", the best so far" if event.is_best else ""
                note_work(
                    f"{event.stage}, epoch {event.epoch:.1f}, step {event.step}: {scores}{best}"
                )
        begin_work("finishing the model")
        finish_model(prepared, run, device=str(device))
        return load_classifier(run.model)
