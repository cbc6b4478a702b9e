"""The checkpoints of a run: its state, and whether it may go on from there.

checkpoints/step-120/
      model.safetensors       weights
      optimizer.safetensors   the optimizers' moments
      state.json              step, best score, running sums; fingerprint of data and environment
      manifest.json           size and SHA-256 of the other three

The newest checkpoint is the one of the highest step whose files match its manifest; no pointer
names it. SHA-256 proves that a file is what was written, not who wrote it.
"""

from __future__ import annotations

import json
import re
import shutil
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import safetensors.torch
import torch
from pydantic import TypeAdapter
from safetensors import SafetensorError
from tokenizers import Tokenizer
from torch import Tensor

from encoder_cls.config.schema import Config
from encoder_cls.data.dataset import Dataset
from encoder_cls.encoder.training_state import TrainingState
from encoder_cls.errors import ConfigError, DivergedError, EncoderClsError
from encoder_cls.metrics.validation_score import ValidationScore
from encoder_cls.system.files import read_file, read_json, sha256, to_json, write_folder
from encoder_cls.system.machine import environment, resolve_precision

MODEL_FILE = "model.safetensors"
OPTIMIZER_FILE = "optimizer.safetensors"
STATE_FILE = "state.json"
MANIFEST_FILE = "manifest.json"
# The files that the manifest lists.
LISTED_FILES = (MODEL_FILE, OPTIMIZER_FILE, STATE_FILE)


@dataclass(frozen=True, kw_only=True)
class RunState:
    """How far a run has come: all that decides how it goes on, besides weights and moments.

    Attributes:
        linear_score: the score of the linear model alone; None before it is fitted, or without
            validation labels.
        linear_texts: the number of texts that it learns from, once a time budget has decided this.
        linear_effort: how much work its fit does, the key of one of the `EFFORTS`.
        is_pretraining: whether the encoder's training is the pretraining.
        training: the state of the encoder's training.
    """

    linear_score: ValidationScore | None = None
    linear_texts: int | None = None
    linear_effort: str = "planned"
    is_pretraining: bool = False
    training: TrainingState = field(default_factory=TrainingState)

    @property
    def step(self) -> int:
        """Optimizer steps done, those of pretraining counted."""
        return self.training.step

    @property
    def is_encoder_better(self) -> bool:
        """Whether a validation of the encoder on labels was better than the linear model alone."""
        best = self.training.best_score
        if self.is_pretraining or best is None:
            return False
        return best.is_better_than(self.linear_score)

    @property
    def best_step(self) -> int:
        """The step of the best weights; 0 where the linear model alone is the best."""
        return self.training.best_step if self.is_encoder_better else 0


@dataclass(frozen=True, kw_only=True)
class Checkpoint:
    """A verified checkpoint in memory.

    Attributes:
        state: the state of the run.
        fingerprint: the hashes of its data, and its environment.
        weights: those of the encoder in training, by name; empty in a run without an encoder.
        moments: those of its optimizers, as in `moments_of`.
    """

    state: RunState
    fingerprint: dict[str, Any]
    weights: dict[str, Tensor] = field(default_factory=dict)
    moments: dict[str, Tensor] = field(default_factory=dict)


def save_checkpoint(folder: Path, checkpoint: Checkpoint, *, keep: int) -> None:
    """Write `step-N` into `folder`, verify it, and remove all but the `keep` newest checkpoints.

    After an error, none is removed.

    Raises:
        DivergedError: a weight is not finite.
        EncoderClsError: the disk refuses.
    """
    step = checkpoint.state.step
    for name, tensor in checkpoint.weights.items():
        if not tensor.isfinite().all():
            raise DivergedError(step, f"{name} holds numbers that are not finite")

    state = {"state": asdict(checkpoint.state), "fingerprint": checkpoint.fingerprint}
    files = {
        MODEL_FILE: _to_bytes(checkpoint.weights),
        OPTIMIZER_FILE: _to_bytes(checkpoint.moments),
        STATE_FILE: to_json(state),
    }
    listed = {name: _manifest_entry(content) for name, content in files.items()}
    files[MANIFEST_FILE] = to_json({"files": listed})

    newest = folder / f"step-{step}"
    write_folder(newest, files)
    _read_verified(newest)
    for path in _by_age(folder)[keep:]:
        shutil.rmtree(path, ignore_errors=True)


def load_newest(folder: Path) -> tuple[Checkpoint | None, list[str]]:
    """Load the newest undamaged checkpoint, with a warning for each damaged one that is newer."""
    warnings: list[str] = []

    for path in _by_age(folder):
        try:
            checkpoint = _parse(_read_verified(path))
        except (
            EncoderClsError,
            SafetensorError,
            ValueError,
            LookupError,
            TypeError,
            AttributeError,
        ) as error:
            reason, _, _ = str(error).partition("\n")
            warnings.append(f"{path}: passed over, damaged: {reason}")
        else:
            return checkpoint, warnings
    return None, warnings


def newest_fingerprint(folder: Path) -> dict[str, Any]:
    """The fingerprint in the newest undamaged checkpoint; empty without one."""
    checkpoint, _ = load_newest(folder)
    return checkpoint.fingerprint if checkpoint else {}


def fingerprint(
    config: Config, dataset: Dataset, tokenizer: Tokenizer, *, device: torch.device
) -> dict[str, Any]:
    """What a resumed run must have in common with the checkpoint, as JSON values.

    That is the hashes of data and tokenizer, the names of the classes, and the environment.
    """
    precision = resolve_precision(config.train.precision, device)
    return {
        **environment(device, precision),
        "tokenizer": sha256(tokenizer.to_str().encode()),
        "training_data": dataset.train.fingerprint,
        "unlabelled_data": dataset.unlabelled.fingerprint,
        "validation_data": dataset.validation.fingerprint,
        "classes": list(dataset.label_names),
    }


# Changes that forbid resuming a run; any other change affects the last digits at most.
REFUSED = {
    "training_data": "training data has",
    "unlabelled_data": "unlabelled texts have",
    "validation_data": "validation data has",
    "classes": "names of the classes have",
    "tokenizer": "tokenizer's library has",
}


def check_fingerprint(saved: dict[str, Any], current: dict[str, Any], *, run: Path) -> list[str]:
    """Compare the fingerprints of a run before and now.

    Returns:
        Warnings of changes that affect the last digits at most.

    Raises:
        ConfigError: something has changed with which the run cannot go on.
    """
    changed = [name for name in saved if saved[name] != current.get(name)]
    for name, meaning in REFUSED.items():
        if name in changed:
            raise ConfigError(f"{run}: the {meaning} changed since the run began; start a new run")

    if not changed:
        return []
    names = ", ".join(changed)
    return [f"{names} changed since the run began: the result may differ in the last digits"]


def _by_age(folder: Path) -> list[Path]:
    """Checkpoint folders, the newest first.

    One that was being replaced, with `.old` at its end, comes after its successor.
    """
    found = []
    for path in folder.glob("step-*"):
        match = re.fullmatch(r"step-(\d+)(\.old)?", path.name)
        if match and path.is_dir():
            is_replaced = match[2] is not None
            found.append((int(match[1]), not is_replaced, path))

    found.sort(reverse=True)
    return [path for _, _, path in found]


def _read_verified(path: Path) -> dict[str, bytes]:
    """Read the files of a checkpoint, and check them against its manifest."""
    files = {}
    try:
        listed = read_json(path / MANIFEST_FILE)["files"]
        for name in LISTED_FILES:
            files[name] = read_file(path / name, most_bytes=int(listed[name]["size"]))
    except (ValueError, KeyError, TypeError) as error:
        raise EncoderClsError(f"{path / MANIFEST_FILE}: not a manifest: {error}") from None

    for name, content in files.items():
        if listed[name] != _manifest_entry(content):
            raise EncoderClsError(f"{path / name}: has changed since it was written")
    return files


def _manifest_entry(content: bytes) -> dict[str, Any]:
    """What the manifest says of a file."""
    return {"size": len(content), "sha256": sha256(content)}


def _to_bytes(tensors: Mapping[str, Tensor]) -> bytes:
    on_cpu = {name: tensor.detach().cpu().contiguous() for name, tensor in tensors.items()}
    return safetensors.torch.save(on_cpu)


def _parse(files: Mapping[str, bytes]) -> Checkpoint:
    """Parse the files of a checkpoint.

    Raises:
        ValueError, LookupError, TypeError, AttributeError, SafetensorError: the files are of
            something else, or of another version.
    """
    content = json.loads(files[STATE_FILE])
    state = content["state"]
    known = asdict(RunState())
    if state.keys() != known.keys() or state["training"].keys() != known["training"].keys():
        raise ValueError(f"{STATE_FILE} is of another version")

    return Checkpoint(
        state=TypeAdapter(RunState).validate_python(state),
        fingerprint=content["fingerprint"],
        weights=safetensors.torch.load(files[MODEL_FILE]),
        moments=safetensors.torch.load(files[OPTIMIZER_FILE]),
    )
