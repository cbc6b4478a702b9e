"""The state of a training, its checkpoints, and the conditions under which a run writes and resumes them.

checkpoints/step-120/
      model.safetensors       weights
      optimizer.safetensors   the optimizers' moments
      state.json              step, best score, running sums, and the fingerprint of data and environment
      manifest.json           size and SHA-256 of the other three

The newest checkpoint is the one of the highest step whose files match its manifest; no pointer names it. SHA-256 proves
that a file is what was written, not who wrote it.
"""

from __future__ import annotations

import json
import math
import re
import shutil
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any

import safetensors.torch
import torch
from pydantic import TypeAdapter
from safetensors import SafetensorError
from torch import Tensor, nn

from encoder_cls.encoder.optimizer import Optimizer, load_moments, moments_of
from encoder_cls.errors import ConfigError, DivergedError, EncoderClsError
from encoder_cls.run.run_folder import RunDir
from encoder_cls.system.files import read_file, reporting_os_errors, sha256, to_json, write_folder
from encoder_cls.system.machine import environment, resolve_precision
from encoder_cls.training.prepared import Prepared

MODEL_FILE, OPTIMIZER_FILE, STATE_FILE = "model.safetensors", "optimizer.safetensors", "state.json"
MANIFEST_FILE = "manifest.json"

# Changes that forbid resuming a run; any other change affects the last digits at most.
REFUSED = {
    "training_data": "training data has",
    "unlabelled_data": "unlabelled texts have",
    "validation_data": "validation data has",
    "classes": "names of the classes have",
    "tokenizer": "tokenizer's library has",
}
BYTES_PER_WEIGHT = 4
STATE_FILES = (MODEL_FILE, OPTIMIZER_FILE, STATE_FILE)


@dataclass(frozen=True, kw_only=True)
class TrainingState:
    """All that decides how training continues, besides weights and moments."""

    step: int = 0  # optimizer steps done, in all stages
    stage: int = 0  # the current one, counted from 0
    stage_start: int = 0  # its first step
    stage_steps: int | None = None  # its number of steps, once a time budget has decided it
    validated_step: int = 0  # of the last validation
    best_score: tuple[float, float, float] | None = (
        None  # the best selection key of the stage so far,
    )
    best_step: int = 0  # its step,
    stale_validations: int = 0  # and the later validations that count against patience
    score_to_beat: tuple[float, float, float] | None = (
        None  # the selection key of the linear classifier alone
    )
    linear_texts: int | None = (
        None  # texts that it learns from, as a stream, once a time budget has decided this
    )
    skipped_in_a_row: int = 0  # the last steps that updated nothing: their gradient was not finite
    sums: dict[str, float] = field(
        default_factory=dict
    )  # of the metrics of steps that are not logged yet

    @property
    def step_in_stage(self) -> int:
        """Optimizer steps done in this stage."""
        return self.step - self.stage_start

    @property
    def has_beaten_linear(self) -> bool:
        """Whether a validation of the last stage was better than the linear classifier alone."""
        if self.best_score is None:
            return False
        return self.score_to_beat is None or self.best_score > self.score_to_beat

    def after_step(
        self, metrics: Mapping[str, float], *, is_skipped: bool = False
    ) -> TrainingState:
        """The state one step later, with its metrics added to the sums; a skipped step has updated nothing."""
        counts = {"steps": 1, "skipped_steps": 1 if is_skipped else 0}
        sums = dict(self.sums)
        for name, value in {**counts, **metrics}.items():
            sums[name] = sums.get(name, 0.0) + value
        skipped_in_a_row = self.skipped_in_a_row + 1 if is_skipped else 0
        return replace(self, step=self.step + 1, skipped_in_a_row=skipped_in_a_row, sums=sums)

    def at_next_stage(self) -> TrainingState:
        """The next stage, before its first step."""
        new = TrainingState(
            stage=self.stage + 1, score_to_beat=self.score_to_beat, linear_texts=self.linear_texts
        )
        return replace(
            new,
            step=self.step,
            stage_start=self.step,
            validated_step=self.step,
            best_step=self.step,
        )


@dataclass(frozen=True, kw_only=True)
class Checkpoint:
    """A verified checkpoint in memory: the weights by name, and the moments as in `moments_of`."""

    state: TrainingState
    fingerprint: dict[str, Any]
    weights: dict[str, Tensor]
    moments: dict[str, Tensor]

    def restore(self, model: nn.Module, optimizers: Sequence[Optimizer]) -> None:
        """Load weights and moments into a model of the same shape and its new optimizers."""
        model.load_state_dict(self.weights)
        load_moments(optimizers, self.moments)


def save_checkpoint(
    folder: Path,
    model: nn.Module,
    optimizers: Sequence[Optimizer],
    state: TrainingState,
    *,
    fingerprint: dict[str, Any],
    keep: int,
) -> None:
    """Write `step-N` into `folder`, verify it, and remove all but the `keep` newest checkpoints.

    Removes none where a weight is not finite (`DivergedError`) or the disk refuses (`EncoderClsError`).
    """
    for name, tensor in model.state_dict().items():
        if not tensor.isfinite().all():
            raise DivergedError(state.step, f"{name} holds numbers that are not finite")
    files = to_files(model, optimizers, state, fingerprint=fingerprint)
    manifest = {
        name: {"size": len(content), "sha256": sha256(content)} for name, content in files.items()
    }
    newest = folder / f"step-{state.step}"
    write_folder(newest, files | {MANIFEST_FILE: to_json({"files": manifest})})
    _read_verified(newest)
    for path in _by_age(folder)[keep:]:
        shutil.rmtree(path, ignore_errors=True)


def load_newest(folder: Path) -> tuple[Checkpoint | None, list[str]]:
    """Load the newest undamaged checkpoint; also returns a warning for each damaged one that is newer."""
    warnings: list[str] = []
    for path in _by_age(folder):
        try:
            return from_files(_read_verified(path)), warnings
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
    return None, warnings


def newest_fingerprint(folder: Path) -> dict[str, Any]:
    """The fingerprint in the newest undamaged checkpoint; empty without one."""
    checkpoint, _ = load_newest(folder)
    return checkpoint.fingerprint if checkpoint else {}


def fingerprint(prepared: Prepared, *, device: torch.device) -> dict[str, Any]:
    """The hashes of data and tokenizer, the names of the classes, and the environment, as JSON values."""
    dataset = prepared.dataset
    return environment(device, resolve_precision(prepared.config.train.precision, device)) | {
        "tokenizer": sha256(prepared.tokenizer.to_str().encode()),
        "training_data": dataset.train.fingerprint,
        "unlabelled_data": dataset.unlabelled.fingerprint,
        "validation_data": dataset.selection.fingerprint,
        "classes": list(dataset.label_names),
    }


def check_fingerprint(saved: dict[str, Any], current: dict[str, Any], *, run: Path) -> list[str]:
    """Compare the fingerprints of a run before and now: refuse it with a `ConfigError`, or return warnings."""
    changed = [name for name in saved if saved[name] != current.get(name)]
    for name, meaning in REFUSED.items():
        if name in changed:
            raise ConfigError(f"{run}: the {meaning} changed since the run began; start a new run")
    names = ", ".join(changed)
    return (
        [f"{names} changed since the run began: the result may differ in the last digits"]
        if changed
        else []
    )


def check_free_space(prepared: Prepared, run: RunDir) -> None:
    """Raise an `EncoderClsError` if the disk has no room for the encoder's weights and checkpoints."""
    plan, config = prepared.plan, prepared.config.train
    every = config.checkpoint_every or math.inf
    written = sum(
        2 + it.total_steps // it.validate_every + it.total_steps // every for it in plan.schedules
    )
    kept = int(min(config.keep_checkpoints, written))
    # A checkpoint has the weights and two moments of each; one more of each kind exists while it is replaced.
    needed = BYTES_PER_WEIGHT * prepared.num_parameters * (3 * (kept + 1) + len(plan.schedules) + 1)
    needed -= sum(path.stat().st_size for path in run.path.rglob("*.safetensors") if path.is_file())
    with reporting_os_errors(run.path):
        free = shutil.disk_usage(run.path).free
    if free < needed:
        raise EncoderClsError(
            f"{run.path}: {free / 1e6:,.1f} MB are free, the run needs up to {needed / 1e6:,.1f} MB: make room, or "
            "choose another --run-dir"
        )


def _by_age(folder: Path) -> list[Path]:
    """Checkpoint folders, the newest first; `.old`, one that was being replaced, after its successor."""
    matches = {
        path: re.fullmatch(r"step-(\d+)(\.old)?", path.name) for path in folder.glob("step-*")
    }
    ages = {
        path: (int(match[1]), match[2] is None)
        for path, match in matches.items()
        if match and path.is_dir()
    }
    return sorted(ages, key=ages.__getitem__, reverse=True)


def _read_verified(path: Path) -> dict[str, bytes]:
    """Read the files of a checkpoint, and check them against its manifest."""
    try:
        listed = json.loads(read_file(path / MANIFEST_FILE))["files"]
        files = {
            name: read_file(path / name, most_bytes=int(listed[name]["size"]))
            for name in STATE_FILES
        }
    except (ValueError, KeyError, TypeError, RecursionError) as error:
        raise EncoderClsError(f"{path / MANIFEST_FILE}: not a manifest: {error}") from None
    for name, content in files.items():
        if listed[name] != {"size": len(content), "sha256": sha256(content)}:
            raise EncoderClsError(f"{path / name}: has changed since it was written")
    return files


def to_files(
    model: nn.Module,
    optimizers: Sequence[Optimizer],
    state: TrainingState,
    *,
    fingerprint: dict[str, Any],
) -> dict[str, bytes]:
    """The files of a checkpoint without its manifest, by name."""
    return {
        MODEL_FILE: _saved(model.state_dict()),
        OPTIMIZER_FILE: _saved(moments_of(optimizers)),
        STATE_FILE: to_json({"state": asdict(state), "fingerprint": fingerprint}),
    }


def _saved(tensors: Mapping[str, Tensor]) -> bytes:
    return safetensors.torch.save(
        {name: it.detach().cpu().contiguous() for name, it in tensors.items()}
    )


def from_files(files: Mapping[str, bytes]) -> Checkpoint:
    """The inverse of `to_files`; raises a `ValueError`, `LookupError` or `SafetensorError` for other files."""
    content = json.loads(files[STATE_FILE])
    if content["state"].keys() != asdict(TrainingState()).keys():
        raise ValueError(f"{STATE_FILE} is of another version")
    return Checkpoint(
        state=TypeAdapter(TrainingState).validate_python(
            content["state"]
        ),  # with tuples, or an error
        fingerprint=content["fingerprint"],
        weights=safetensors.torch.load(files[MODEL_FILE]),
        moments=safetensors.torch.load(files[OPTIMIZER_FILE]),
    )
