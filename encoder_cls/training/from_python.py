"""Train from Python in one call."""

from __future__ import annotations

import threading
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple

import torch

from encoder_cls.classifier.classifier import Classifier
from encoder_cls.classifier.model_folder import load_classifier
from encoder_cls.config.loading import config_of, load_config
from encoder_cls.config.schema import Config
from encoder_cls.data.reading.locations import SourceLocation
from encoder_cls.data.reading.rows import Row
from encoder_cls.encoder.transformer import EncoderClassifier
from encoder_cls.errors import ConfigError
from encoder_cls.evaluation.held_out_predictions import HeldOutPredictions
from encoder_cls.run.run_folder import RunDir
from encoder_cls.system.machine import resolve_device
from encoder_cls.system.reporter import Reporter, WarningReporter
from encoder_cls.system.settings import own_settings
from encoder_cls.training.final_model import finish_model
from encoder_cls.training.prepare import prepare
from encoder_cls.training.prepared import Objective
from encoder_cls.training.reading_time import affordable_train_fraction, with_train_fraction
from encoder_cls.training.run_warnings import report_warnings
from encoder_cls.training.time_budget import TimeBudget
from encoder_cls.training.train import train as train_run

_TRAINING_LOCK = threading.Lock()


@contextmanager
def _training_alone(device: torch.device) -> Iterator[None]:
    """Let no other thread train in this context, and leave the caller's settings as they are."""
    gpus = [device] if device.type == "cuda" else []
    with own_settings(), _TRAINING_LOCK, torch.random.fork_rng(devices=gpus):
        yield


def train(
    config: Config | Mapping[str, Any] | str | Path,
    *,
    run_dir: str | Path | None = None,
    objective: Objective | None = None,
    model_class: type[EncoderClassifier] | None = None,
    device: str = "auto",
    resume: bool = False,
    with_report: bool = True,
    reporter: Reporter | None = None,
) -> Classifier:
    """Train into a run folder as `encoder-cls train` does, and load the trained classifier.

    Threads train one at a time, and the caller's random generators are restored.

    Args:
        config: a config, the path of a config file, or values by dotted key, such as
            `{"data.train": "spam.csv", "train.epochs": 5}`.
        run_dir: by default `runs/<name of the config>`.
        objective: the loss of the encoder, in place of the usual one. It is called with the
            `EncoderClassifier` and a batch, and returns the sum of the weighted losses of its
            texts, a tensor of shape (). A batch has `inputs` (the arguments of the model),
            `targets`, (B, C), `weights` of the classes and `text_weights`, (B,), which are None
            without `data.weight_column`; `batch.loss(model)` is the usual loss. A resumed run needs
            the same objective again.
        model_class: a subclass of `EncoderClassifier` for the encoder with its head: it keeps
            `encoder.embedding` and `head.linear`, and may replace all else. A resumed run needs the
            same class again, as `load_classifier` does.
        device: `auto`, `cpu`, `cuda` or `cuda:N`.
        resume: continue from the newest checkpoint, or start a new run if the folder is empty.
        with_report: save the model in small number types, and write the report and the model card.
        reporter: by default, warnings become Python warnings, and nothing else is reported.

    Raises:
        EncoderClsError: the training fails; the message is that of the command. It is a
            `DivergedError` if the loss is not finite, and a `LockedError` if another process is
            training in the folder.
        TypeError: `model_class` is no subclass of `EncoderClassifier`.
    """
    if model_class and not issubclass(model_class, EncoderClassifier):
        raise TypeError(f"model_class: {model_class} is no subclass of EncoderClassifier")
    if isinstance(config, str | Path):
        config = load_config(config)
    elif not isinstance(config, Config):
        config = config_of({"name": "run", **config}, source="train")

    if model_class and config.pretrain.objective == "denoising":
        raise ConfigError("pretrain.objective: denoising has a model of its own; use masked_lm")

    run = RunDir(Path(run_dir or Path("runs", config.name)))
    reporter = reporter or WarningReporter()
    torch_device = resolve_device(device)
    with _training_alone(torch_device):
        budget = TimeBudget(config)
        fraction = affordable_train_fraction(config, run, budget=budget)
        config = with_train_fraction(config, fraction)

        prepared = prepare(config, budget=budget, model_class=model_class, reporter=reporter)
        prepared = replace(prepared, objective=objective)
        report_warnings(prepared, reporter)
        train_run(
            prepared,
            run,
            device=torch_device,
            resume=resume,
            with_report=with_report,
            reporter=reporter,
        )
        return load_classifier(run.path, device=device, model_class=model_class)


class TextInMemory(NamedTuple):
    """A text to train on.

    Attributes:
        number: its name in messages.
        label: one or several; None without a label.
        weight: how much it counts in the loss; None if no text has a weight.
    """

    number: int
    text: str
    label: str | list[str] | None
    weight: float | None = None


def train_texts(
    config: Config,
    texts: Iterable[TextInMemory],
    run: RunDir,
    *,
    with_tensorboard: bool,
    reporter: Reporter,
) -> Classifier:
    """Train on texts in memory into an empty run folder, without a report.

    `data.train` is not read. Threads and errors are as in `train`.
    """
    rows = (
        Row(
            text.text,
            text.label,
            where=SourceLocation(f"texts[{text.number}]"),
            weight=text.weight,
        )
        for text in texts
    )

    device = resolve_device("auto")
    with _training_alone(device):
        prepared = prepare(config, train_rows=rows, reporter=reporter)
        report_warnings(prepared, reporter)
        train_run(
            prepared,
            run,
            device=device,
            with_report=False,
            with_tensorboard=with_tensorboard,
            reporter=reporter,
        )

        reporter.working("finishing the model")
        held_out_predictions = HeldOutPredictions.of_run(run.held_out_predictions)
        finish_model(prepared, run, held_out_predictions, device=str(device))
        reporter.working("")
        return load_classifier(run.model)
