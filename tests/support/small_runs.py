"""Runs of a second for the tests of training: their data, their config, and what is compared of them."""

from __future__ import annotations

import json
import signal
from pathlib import Path

import numpy as np
import torch
from support.events import Event, recorded

from encoder_cls.config.schema import Config
from encoder_cls.encoder.distributed import ALONE
from encoder_cls.encoder.training import EncoderTraining
from encoder_cls.run.run_folder import RunDir
from encoder_cls.system.files import sha256
from encoder_cls.system.stop import stopping_at
from encoder_cls.training.encoder import (
    ON_LABELS,
    PRETRAINING,
    pretraining_of,
    training_on_labels,
)
from encoder_cls.training.prepare import prepare
from encoder_cls.training.prepared import Prepared

CPU = torch.device("cpu")
COLOURS = ["red", "green", "blue"]
SHAPE = {
    **{"d_model": 16, "num_layers": 1, "num_heads": 2, "d_ff": 32, "max_seq_len": 16},
    **{"char_ngram_buckets": 64, "bigram_buckets": 64},
}
# Values of `make_config` for runs through different code. To try all techniques for few labels takes longer than
# everything else in such a run.
NO_TECHNIQUES = {
    "naive_bayes_em": False,
    "label_names_as_texts": False,
    "lsa_dimensions": 0,
    "self_training": False,
}
LABELLED, WITH_LINEAR = {}, {"linear": True} | NO_TECHNIQUES
FEW_LABELS = WITH_LINEAR | {"label_names_as_texts": True}
PRETRAINED = WITH_LINEAR | {"pretrain": {"epochs": 2}}
DENOISED = WITH_LINEAR | {"pretrain": {"epochs": 2, "objective": "denoising"}}


def write_data(folder: Path, *, texts: int) -> Path:
    """Texts whose class is the colour they name, of different lengths."""
    random = np.random.default_rng(0)
    path = folder / "train.csv"
    if not path.exists():
        words = [f"w{i}" for i in range(20)]
        rows = [
            f"{' '.join(random.choice(words, random.integers(1, 9)))} {COLOURS[i % 3]} end,{COLOURS[i % 3]}"
            for i in range(texts)
        ]
        path.write_text("\n".join(["text,label", *rows]) + "\n")
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
    """A config of a tiny encoder; values of `data` and `model` are added to its own, others are of `train`."""
    train = {"epochs": 3, "batch_size": 8, "learning_rate": 0.01, "log_every": 2, "patience": None}
    return Config.model_validate(
        {
            "name": "test",
            "seed": seed,
            "data": {"train": str(write_data(folder, texts=texts)), "validation_fraction": 0.2}
            | (data or {}),
            "model": SHAPE | {"linear": linear, "cascade": False} | (model or {}),
            "pretrain": pretrain or {"epochs": 0},
            "train": train | train_values,
        }
    )


def run_all(config: Config, folder: Path, **options: object) -> list[Event]:
    """The events of a run, at last what it returns; `stop_signal` is asked at each poll."""
    with stopping_at(options.pop("stop_signal", lambda: None)):  # type: ignore[arg-type]
        return recorded(prepare(config), RunDir(folder), device=CPU, **options)


def make_training(prepared: Prepared, name: str = ON_LABELS) -> EncoderTraining:
    """A training of the encoder with its random weights."""
    if name == PRETRAINING:
        return pretraining_of(prepared, device=CPU, group=ALONE)
    return training_on_labels(prepared, device=CPU, group=ALONE)


def stop_after(steps: int):
    """A stop signal that comes after so many polls: at each step, each batch of a validation and before long work."""
    answers = iter([None] * steps)
    return lambda: next(answers, signal.SIGTERM)


def weights_hash(folder: Path) -> str:
    """Of the newest checkpoint's weights and moments, and of the best model's weights."""
    newest = max(
        (folder / "checkpoints").glob("step-*"),
        key=lambda path: int(path.name.removeprefix("step-")),
    )
    return " ".join(
        json.loads((newest / "manifest.json").read_text())["files"][name]["sha256"]
        for name in ("model.safetensors", "optimizer.safetensors", "state.json")
    ) + model_hash(folder)


def model_hash(folder: Path) -> str:
    return sha256((folder / "model" / "model.safetensors").read_bytes())


def metric_rows(folder: Path) -> list[dict[str, object]]:
    rows = [json.loads(line) for line in (folder / "metrics.jsonl").read_text().splitlines()]
    return [
        {key: value for key, value in row.items() if key not in {"tokens_per_s", "time"}}
        for row in rows
    ]


def result(folder: Path) -> tuple[str, list[dict[str, object]]]:
    """All that a run ends with and that must not depend on where it was interrupted."""
    assert not RunDir(folder).pretrained.exists()
    return weights_hash(folder), metric_rows(folder)
