"""Training state on disk: written whole or not at all, verified before it is trusted.

    checkpoints/step-120/
      model.safetensors       weights
      optimizer.safetensors   Adam's moments, by parameter name
      state.json              step, best score, running sums, and the facts that exactness depends on
      manifest.json           size and SHA-256 of the other three

The newest good checkpoint is found by looking at all of them, never by a pointer that could be wrong.
SHA-256 proves that a file is what was written, not who wrote it.
"""

from __future__ import annotations

import json
import re
import shutil
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import safetensors.torch
import torch
from pydantic import TypeAdapter
from safetensors import SafetensorError
from torch import Tensor, nn

from encoder_cls.errors import DivergedError, EncoderClsError
from encoder_cls.system.files import read_file, sha256, to_json, write_folder
from encoder_cls.training.optimizer import Optimizer

MODEL_FILE, OPTIMIZER_FILE, STATE_FILE, MANIFEST_FILE = (
    "model.safetensors",
    "optimizer.safetensors",
    "state.json",
    "manifest.json",
)

LARGEST_MANIFEST = 1 << 16  # bytes


@dataclass(frozen=True, kw_only=True)
class TrainingState:
    """The few numbers that, with weights and moments, decide how training goes on.

    Attributes:
        step: optimizer steps done, in all stages.
        stage: which stage is going on, counted from 0; the last is that of the model.
        stage_start: the step at which its training began.
        stage_steps: its steps, where a limit of time has decided on fewer than there would be.
        validated_step: the step of the last validation.
        best_score: the stage's best validation score so far and what breaks a tie; none before the first.
        best_step: when it was reached.
        stale_validations: validations since then.
        sums: running sums of the metrics that have not been logged yet.
    """

    step: int = 0
    stage: int = 0
    stage_start: int = 0
    stage_steps: int | None = None
    validated_step: int = 0
    best_score: tuple[float, float] | None = None
    best_step: int = 0
    stale_validations: int = 0
    sums: dict[str, float] = field(default_factory=dict)


@dataclass(frozen=True, kw_only=True)
class Checkpoint:
    """One verified checkpoint, read into memory."""

    state: TrainingState
    facts: dict[str, Any]
    model: dict[str, Tensor]
    optimizer: dict[str, Tensor]

    def restore(self, model: nn.Module, optimizers: Sequence[Optimizer]) -> None:
        """Put weights and moments into a model and its optimizers of the same shapes."""
        model.load_state_dict(self.model)
        parameters = dict(model.named_parameters())
        owner = {p: optimizer for optimizer in optimizers for group in optimizer.param_groups for p in group["params"]}
        for key, tensor in self.optimizer.items():
            moment, _, name = key.partition("|")
            # A count is a tensor to AdamW and a number to RowAdam.
            value = tensor.to(parameters[name].device) if tensor.is_floating_point() else int(tensor)
            owner[parameters[name]].state[parameters[name]][moment] = value


def save_checkpoint(
    folder: Path,
    model: nn.Module,
    optimizers: Sequence[Optimizer],
    state: TrainingState,
    *,
    facts: dict[str, Any],
    keep: int,
) -> None:
    """Write `step-N` under `folder`, verify it, and then remove all but the `keep` newest.

    Raises:
        DivergedError: a weight is no finite number; former checkpoints are still there.
        EncoderClsError: the disk refused; former checkpoints are still there.
    """
    wild = next((name for name, tensor in model.state_dict().items() if not tensor.isfinite().all()), None)
    if wild:
        raise DivergedError(state.step, f"{wild} holds numbers that are not finite")
    names: dict[Tensor, str] = {parameter: name for name, parameter in model.named_parameters()}
    moments = {
        f"{key}|{names[parameter]}": torch.as_tensor(value).detach().cpu().contiguous()
        for optimizer in optimizers
        for parameter, values in optimizer.state.items()
        for key, value in values.items()
    }
    weights = {name: tensor.detach().cpu().contiguous() for name, tensor in model.state_dict().items()}
    files = {
        MODEL_FILE: safetensors.torch.save(weights),
        OPTIMIZER_FILE: safetensors.torch.save(moments),
        STATE_FILE: to_json({"state": asdict(state), "facts": facts}),
    }
    manifest = {name: {"size": len(content), "sha256": sha256(content)} for name, content in files.items()}
    newest = folder / f"step-{state.step}"
    write_folder(newest, files | {MANIFEST_FILE: to_json({"files": manifest})})
    _read_verified(newest)
    for path in _by_age(folder)[keep:]:
        shutil.rmtree(path, ignore_errors=True)


def load_newest(folder: Path) -> tuple[Checkpoint | None, list[str]]:
    """The newest checkpoint that is whole, and a warning for each damaged one that was passed over."""
    warnings: list[str] = []
    for path in _by_age(folder):
        try:
            return _parse(_read_verified(path)), warnings
        except (EncoderClsError, SafetensorError, ValueError, KeyError, TypeError, AttributeError) as error:
            reason, _, _ = str(error).partition("\n")
            warnings.append(f"{path}: passed over, damaged: {reason}")
    return None, warnings


def newest_facts(folder: Path) -> dict[str, Any]:
    """What the newest checkpoint that is whole was made from; nothing where there is none."""
    checkpoint, _ = load_newest(folder)
    return checkpoint.facts if checkpoint else {}


def _by_age(folder: Path) -> list[Path]:
    """Checkpoint folders, the newest first; one that was being replaced comes after its successor."""
    found = [(path, re.fullmatch(r"step-(\d+)(\.old)?", path.name)) for path in folder.glob("step-*")]
    named = [(int(match[1]), match[2] is None, path) for path, match in found if match and path.is_dir()]
    return [path for _, _, path in sorted(named, reverse=True)]


def _read_verified(path: Path) -> dict[str, bytes]:
    """The files of a checkpoint, each read once and checked against the manifest."""
    try:
        manifest = json.loads(read_file(path / MANIFEST_FILE, most_bytes=LARGEST_MANIFEST))
        listed = {name: manifest["files"][name] for name in (MODEL_FILE, OPTIMIZER_FILE, STATE_FILE)}
        sizes = {name: int(entry["size"]) for name, entry in listed.items()}
    except (ValueError, KeyError, TypeError, RecursionError) as error:
        raise EncoderClsError(f"{path / MANIFEST_FILE}: not a manifest: {error}") from None
    files = {name: read_file(path / name, most_bytes=size) for name, size in sizes.items()}
    for name, content in files.items():
        if listed[name] != {"size": len(content), "sha256": sha256(content)}:
            raise EncoderClsError(f"{path / name}: has changed since it was written")
    return files


def _parse(files: dict[str, bytes]) -> Checkpoint:
    content = json.loads(files[STATE_FILE])
    if content["state"].keys() != asdict(TrainingState()).keys():
        raise ValueError(f"{STATE_FILE} is of another version")
    state = TypeAdapter(TrainingState).validate_python(content["state"])  # JSON has no tuples, and anything else
    return Checkpoint(
        state=state,
        facts=content["facts"],
        model=safetensors.torch.load(files[MODEL_FILE]),
        optimizer=safetensors.torch.load(files[OPTIMIZER_FILE]),
    )
