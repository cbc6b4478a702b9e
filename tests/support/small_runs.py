"""Runs of a second for tests of training: their data, config, and what is compared of them."""

from __future__ import annotations

import json
import signal
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import torch
from support.events import Event, recorded
from support.tiny_encoder import SHAPE

from encoder_cls.config.schema import Config
from encoder_cls.encoder_training.distributed import ALONE
from encoder_cls.encoder_training.training_loop import EncoderTraining
from encoder_cls.run.run_folder import RunDir
from encoder_cls.system.files import sha256
from encoder_cls.system.stop import stopping_at
from encoder_cls.training.encoder_stage import (
    ON_LABELS,
    PRETRAINING,
    make_pretraining,
    make_training_on_labels,
)
from encoder_cls.training.prepare import prepare
from encoder_cls.training.prepared import Prepared

CPU = torch.device("cpu")
COLOURS = ["red", "green", "blue"]

# Values of `make_config` for runs through different code. The techniques for few labels are off
# where they are not tested: trying them takes longer than the rest of such a run.
NO_TECHNIQUES = {
    "naive_bayes": False,
    "label_names_as_texts": False,
    "lsa_dimensions": 0,
    "self_training": False,
}
WITHOUT_TECHNIQUES = [f"train.{name}={json.dumps(value)}" for name, value in NO_TECHNIQUES.items()]
LABELLED = {}
WITH_LINEAR = {"linear": True, **NO_TECHNIQUES}
FEW_LABELS = WITH_LINEAR | {"label_names_as_texts": True}
PRETRAINED = WITH_LINEAR | {"pretrain": {"epochs": 2}}
DENOISED = WITH_LINEAR | {"pretrain": {"epochs": 2, "objective": "denoising"}}


def write_data(folder: Path, *, texts: int) -> Path:
    """A file of texts of different lengths, whose class is the colour that they name."""
    path = folder / "train.csv"
    if path.exists():
        return path

    random = np.random.default_rng(0)
    words = [f"w{number}" for number in range(20)]
    lines = ["text,label"]
    for number in range(texts):
        colour = COLOURS[number % len(COLOURS)]
        others = " ".join(random.choice(words, random.integers(1, 9)))
        lines.append(f"{others} {colour} end,{colour}")
    path.write_text("\n".join(lines) + "\n")
    return path


def make_config(
    folder: Path,
    *,
    texts: int = 60,
    linear: bool = False,
    pretrain: dict[str, object] | None = None,
    data: dict[str, object] | None = None,
    model: dict[str, object] | None = None,
    seed: int = 0,
    **train_values: object,
) -> Config:
    """A config of a tiny encoder.

    Values of `data` and `model` are added to those sections; other values are of `train`.
    """
    data_section = {
        "train": str(write_data(folder, texts=texts)),
        "validation_fraction": 0.2,
    }

    train_section = {
        "epochs": 3,
        "batch_size": 8,
        "learning_rate": 0.01,
        "log_every": 2,
        "patience": None,
    }

    return Config.model_validate(
        {
            "name": "test",
            "seed": seed,
            "data": data_section | (data or {}),
            "model": SHAPE | {"linear": linear, "cascade": False} | (model or {}),
            "pretrain": pretrain or {"epochs": 0},
            "train": train_section | train_values,
        }
    )


# Letters in place of digits: texts that differ only in digits would count as copies.
LETTERS = str.maketrans("0123456789", "qwertzuiop")


def config_of_many_topics(folder: Path, *, classes: int, texts_per_class: int) -> Config:
    """A run without an encoder on texts with two words of their class among common words."""
    random = np.random.default_rng(0)
    lines = ["text,label"]
    for number in range(texts_per_class * classes):
        label = number % classes
        words = [f"common{word}" for word in random.integers(0, 100, 6)]
        words += [f"topic{label}x{end}" for end in random.permutation(3)[:2]]
        text = " ".join(random.permutation(words)).translate(LETTERS)
        lines.append(f"{text},class {label}")
    path = folder / "texts.csv"
    path.write_text("\n".join(lines) + "\n")

    data = {"train": str(path)}
    return make_config(folder, linear=True, data=data, model={"encoder": False}, **NO_TECHNIQUES)


def run_all(
    config: Config,
    folder: Path,
    *,
    stop_signal: Callable[[], signal.Signals | None] = lambda: None,
    **options: Any,
) -> list[Event]:
    """The events of a run, and at last what the training returns.

    The run asks `stop_signal` wherever it looks for a signal.
    """
    with stopping_at(stop_signal):
        return recorded(prepare(config), RunDir(folder), device=CPU, **options)


def make_training(prepared: Prepared, name: str = ON_LABELS) -> EncoderTraining:
    """A training of the encoder with its random weights."""
    if name == PRETRAINING:
        return make_pretraining(prepared, device=CPU, group=ALONE)
    return make_training_on_labels(prepared, device=CPU, group=ALONE)


def stop_after(times: int) -> Callable[[], signal.Signals | None]:
    """A stop signal that comes when it was asked for so many times.

    A run asks at each step, at each batch of a validation and before long work.
    """
    signals = iter([None] * times)
    return lambda: next(signals, signal.SIGTERM)


def newest_checkpoint(folder: Path) -> Path:
    """The checkpoint of the highest step of a run."""
    checkpoints = (folder / "checkpoints").glob("step-*")
    return max(checkpoints, key=lambda path: int(path.name.removeprefix("step-")))


def weights_hash(folder: Path) -> str:
    """The hashes of the newest checkpoint's files and of the best model's weights."""
    manifest = json.loads((newest_checkpoint(folder) / "manifest.json").read_text())
    names = ("model.safetensors", "optimizer.safetensors", "state.json")
    hashes = [manifest["files"][name]["sha256"] for name in names]
    return " ".join([*hashes, model_hash(folder)])


def model_hash(folder: Path) -> str:
    """The hash of the best model's weights."""
    return sha256((folder / "model" / "model.safetensors").read_bytes())


def metric_rows(folder: Path) -> list[dict[str, object]]:
    """The rows of a run's metrics, without what depends on the clock."""
    rows = []
    for line in (folder / "metrics.jsonl").read_text().splitlines():
        row = json.loads(line)
        row.pop("tokens_per_s", None)
        row.pop("time", None)
        rows.append(row)
    return rows


def result(folder: Path) -> tuple[str, list[dict[str, object]]]:
    """What must not depend on where a run was interrupted: its weights and its metrics."""
    assert not RunDir(folder).pretrained.exists()
    return weights_hash(folder), metric_rows(folder)
