"""Train from Python in one call."""

from __future__ import annotations

import threading
from collections.abc import Iterable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch

from encoder_cls.classifier.classifier import Classifier
from encoder_cls.classifier.model_folder import load_classifier
from encoder_cls.config.loading import config_of, load_config
from encoder_cls.config.schema import Config
from encoder_cls.data.reading.locations import SourceLocation
from encoder_cls.data.reading.rows import Row
from encoder_cls.evaluation.held_out_predictions import HeldOutPredictions
from encoder_cls.run.run_folder import RunDir
from encoder_cls.system.machine import resolve_device
from encoder_cls.system.reporter import Reporter, WarningReporter
from encoder_cls.system.settings import own_settings
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
        config: a config, its file, or its values by dotted key: `{"data.train": "spam.csv",
            "train.epochs": 5}`.
        run_dir: by default `runs/<name of the config>`.
        objective: called with the `EncoderClassifier` and a batch: the sum of the weighted losses
            of its texts, (). A batch has `inputs`, the arguments of the model, `targets`, (B, C),
            and `weights`; `batch.loss(model)` is the usual objective. Where a run is resumed, give
            it again.
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
    reporter = WarningReporter()
    with own_settings():
        prepared = replace(prepare(config), objective=objective)
        prepared.report_warnings(reporter)
        train_run(prepared, run, device=resolve_device(device), resume=resume, reporter=reporter)
        return load_classifier(run.path, device=device)


def train_texts(
    config: Config,
    texts: Iterable[tuple[int, str, str | list[str] | None]],
    run: RunDir,
    *,
    reporter: Reporter,
) -> Classifier:
    """Train into an empty run folder, without a report.

    `texts` are texts with their numbers and their label or labels.

    Threads train one at a time, and the state of the caller's random generators is restored.

    Raises:
        EncoderClsError: with the message of the command.
    """
    rows = (
        Row(text, label, None, SourceLocation(f"texts[{number}]")) for number, text, label in texts
    )
    device = resolve_device("auto")
    gpus = [device] if device.type == "cuda" else []
    with own_settings(), _ALONE, torch.random.fork_rng(devices=gpus):
        prepared = prepare(config, train_rows=rows, reporter=reporter)
        prepared.report_warnings(reporter)
        train_run(prepared, run, device=device, with_report=False, reporter=reporter)

        reporter.working("finishing the model")
        table = HeldOutPredictions.of_run(run.held_out_predictions)
        finish_model(prepared, run, table, device=str(device))
        reporter.working("")
        return load_classifier(run.model)
