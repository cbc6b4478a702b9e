"""Checkpoints.

checkpoints/step-120/
      model.safetensors       weights
      optimizer.safetensors   the optimizers' moments
      state.json              step, best score, running sums, the optimizers' settings, and the fingerprint of what
                              exactness depends on
      manifest.json           size and SHA-256 of the other three

The newest good checkpoint is found by looking at all of them, never by a pointer that could be wrong.
SHA-256 proves that a file is what was written, not who wrote it.
"""

from __future__ import annotations

import json
import re
import shutil
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import safetensors.torch
import torch
from pydantic import TypeAdapter
from safetensors import SafetensorError
from torch import Tensor, nn

from encoder_cls.errors import DivergedError, EncoderClsError
from encoder_cls.system.files import read_file, sha256, to_json, write_folder
from encoder_cls.training.encoder.optimizer import Optimizer
from encoder_cls.training.encoder.stage import TrainingState

MODEL_FILE, OPTIMIZER_FILE, STATE_FILE, MANIFEST_FILE = (
    "model.safetensors",
    "optimizer.safetensors",
    "state.json",
    "manifest.json",
)

STATE_FILES = (MODEL_FILE, OPTIMIZER_FILE, STATE_FILE)
LARGEST_MANIFEST = 1 << 16  # bytes


@dataclass(frozen=True, kw_only=True)
class Checkpoint:
    """One verified checkpoint, read into memory.

    Attributes:
        state: where the training stood.
        fingerprint: of what exactness depends on.
        model: the weights, a `state_dict`.
        optimizers: a `state_dict` each.
    """

    state: TrainingState
    fingerprint: dict[str, Any]
    model: dict[str, Tensor]
    optimizers: list[dict[str, Any]]

    def restore(self, model: nn.Module, optimizers: Sequence[Optimizer]) -> None:
        """Put weights and moments into a model and its optimizers of the same shapes."""
        model.load_state_dict(self.model)
        for optimizer, state_dict in zip(optimizers, self.optimizers, strict=True):
            optimizer.load_state_dict(state_dict)


def save_checkpoint(
    folder: Path,
    model: nn.Module,
    optimizers: Sequence[Optimizer],
    state: TrainingState,
    *,
    fingerprint: dict[str, Any],
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
    files = to_files(model, optimizers, state, fingerprint=fingerprint)
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
            return from_files(_read_verified(path)), warnings
        except (EncoderClsError, SafetensorError, ValueError, LookupError, TypeError, AttributeError) as error:
            reason, _, _ = str(error).partition("\n")
            warnings.append(f"{path}: passed over, damaged: {reason}")
    return None, warnings


def newest_fingerprint(folder: Path) -> dict[str, Any]:
    """That of the newest checkpoint that is whole; nothing where there is none."""
    checkpoint, _ = load_newest(folder)
    return checkpoint.fingerprint if checkpoint else {}


def _by_age(folder: Path) -> list[Path]:
    """Checkpoint folders, the newest first; one that was being replaced comes after its successor."""
    found = [(path, re.fullmatch(r"step-(\d+)(\.old)?", path.name)) for path in folder.glob("step-*")]
    named = [(int(match[1]), match[2] is None, path) for path, match in found if match and path.is_dir()]
    return [path for _, _, path in sorted(named, reverse=True)]


def _read_verified(path: Path) -> dict[str, bytes]:
    """The files of a checkpoint, each read once and checked against the manifest."""
    try:
        manifest = json.loads(read_file(path / MANIFEST_FILE, most_bytes=LARGEST_MANIFEST))
        listed = {name: manifest["files"][name] for name in STATE_FILES}
        sizes = {name: int(entry["size"]) for name, entry in listed.items()}
    except (ValueError, KeyError, TypeError, RecursionError) as error:
        raise EncoderClsError(f"{path / MANIFEST_FILE}: not a manifest: {error}") from None
    files = {name: read_file(path / name, most_bytes=size) for name, size in sizes.items()}
    for name, content in files.items():
        if listed[name] != {"size": len(content), "sha256": sha256(content)}:
            raise EncoderClsError(f"{path / name}: has changed since it was written")
    return files


def to_files(
    model: nn.Module, optimizers: Sequence[Optimizer], state: TrainingState, *, fingerprint: dict[str, Any]
) -> dict[str, bytes]:
    """The files of a checkpoint but its manifest, by name."""
    state_dicts = [optimizer.state_dict() for optimizer in optimizers]
    weights = {name: tensor.detach().cpu().contiguous() for name, tensor in model.state_dict().items()}
    rest = {
        "state": asdict(state),
        "fingerprint": fingerprint,
        "param_groups": [state_dict["param_groups"] for state_dict in state_dicts],
    }
    return {
        MODEL_FILE: safetensors.torch.save(weights),
        OPTIMIZER_FILE: safetensors.torch.save(_moments(state_dicts)),
        STATE_FILE: to_json(rest),
    }


def from_files(files: Mapping[str, bytes]) -> Checkpoint:
    """The inverse.

    Raises:
        ValueError, SafetensorError: these are no files of a checkpoint.
    """
    content = json.loads(files[STATE_FILE])
    if content["state"].keys() != asdict(TrainingState()).keys():
        raise ValueError(f"{STATE_FILE} is of another version")
    state = TypeAdapter(TrainingState).validate_python(content["state"])  # JSON has no tuples, and anything else
    return Checkpoint(
        state=state,
        fingerprint=content["fingerprint"],
        model=safetensors.torch.load(files[MODEL_FILE]),
        optimizers=_state_dicts(safetensors.torch.load(files[OPTIMIZER_FILE]), content["param_groups"]),
    )


def _moments(state_dicts: Sequence[Mapping[str, Any]]) -> dict[str, Tensor]:
    """What several optimizers remember, each tensor under "optimizer.parameter.name"."""
    return {
        f"{number}.{index}.{name}": torch.as_tensor(value).detach().cpu().contiguous()
        for number, state_dict in enumerate(state_dicts)
        for index, values in state_dict["state"].items()
        for name, value in values.items()
    }


def _state_dicts(moments: Mapping[str, Tensor], param_groups: Sequence[Any]) -> list[dict[str, Any]]:
    """The inverse: the states of the optimizers whose groups these are."""
    states: list[dict[int, dict[str, Tensor]]] = [{} for _ in param_groups]
    for key, tensor in moments.items():
        number, index, name = key.split(".")
        states[int(number)].setdefault(int(index), {})[name] = tensor
    return [{"state": state, "param_groups": groups} for state, groups in zip(states, param_groups, strict=True)]
