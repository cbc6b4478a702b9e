"""Save and load the checkpoints of a run, and check whether the run can be resumed from them.

checkpoints/step-120/
      model.safetensors       the weights of the encoder
      optimizer.safetensors   the moments of its optimizers
      state.json              the state of the run, and the fingerprint of data and environment
      manifest.json           the size and the SHA-256 hash of each of the other three files

A finished run keeps only the state and manifest of its last checkpoint: its data and last weights,
by their hashes, can still be compared.

The newest undamaged checkpoint is that of the highest step whose files match its manifest: no
separate file names it. The hashes detect damaged files, not forged ones.
"""

from __future__ import annotations

import json
import re
import shutil
from collections.abc import Collection, Mapping
from contextlib import suppress
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pydantic import TypeAdapter
from safetensors import SafetensorError
from tokenizers import Tokenizer

from encoder_cls.config.schema import Config
from encoder_cls.data.dataset import Dataset
from encoder_cls.errors import ConfigError, DivergedError, EncoderClsError
from encoder_cls.run.run_state import RunState
from encoder_cls.system.files import read_file, read_json, sha256, to_json, write_folder
from encoder_cls.system.machine import environment, resolve_precision

if TYPE_CHECKING:
    import torch
    from torch import Tensor

MODEL_FILE = "model.safetensors"
OPTIMIZER_FILE = "optimizer.safetensors"
STATE_FILE = "state.json"
MANIFEST_FILE = "manifest.json"
# The files that the manifest lists: all files except the manifest.
LISTED_FILES = (MODEL_FILE, OPTIMIZER_FILE, STATE_FILE)


@dataclass(frozen=True, kw_only=True)
class Checkpoint:
    """A verified checkpoint.

    Attributes:
        fingerprint: the hashes of the run's data, and its environment.
        weights: of the encoder in training; empty if no training of it has begun.
        moments: the running averages of the optimizers; empty without weights.
    """

    state: RunState
    fingerprint: dict[str, Any]
    weights: dict[str, Tensor] = field(default_factory=dict)
    moments: dict[str, Tensor] = field(default_factory=dict)


def save_checkpoint(folder: Path, checkpoint: Checkpoint, *, keep: int) -> None:
    """Write `step-N` in a folder, verify it, and then keep the `keep` newest checkpoints.

    Raises:
        DivergedError: a weight is not finite.
        EncoderClsError: the checkpoint cannot be written.
    """
    # Imported here, because a finished run is reported without PyTorch.
    from encoder_cls.encoder_training.training_step import as_safetensors

    step = checkpoint.state.step
    for name, tensor in checkpoint.weights.items():
        if not tensor.isfinite().all():
            raise DivergedError(step, f"{name} holds numbers that are not finite")

    state = {"state": asdict(checkpoint.state), "fingerprint": checkpoint.fingerprint}
    files = {
        MODEL_FILE: as_safetensors(checkpoint.weights),
        OPTIMIZER_FILE: as_safetensors(checkpoint.moments),
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
    """Load the newest undamaged checkpoint, if any, with a warning for each damaged newer one."""
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
    """The fingerprint of the newest checkpoint with an undamaged state; empty without one.

    Weights are not verified: a finished run has none.
    """
    path = _newest_with_state(folder)
    if path is None:
        return {}
    content = json.loads(_read_verified(path, [STATE_FILE])[STATE_FILE])
    fingerprint: dict[str, Any] = content["fingerprint"]
    return fingerprint


def files_to_resume(folder: Path) -> list[Path]:
    """List the files that only resuming a run needs, so that a finished run does not.

    They are all but the newest state and manifest. A folder that is a link belongs to somebody
    else.
    """
    kept = _newest_with_state(folder)
    files = []
    for path in _by_age(folder):
        if path.is_symlink():
            continue
        names = [MODEL_FILE, OPTIMIZER_FILE]
        if path != kept:
            names += [STATE_FILE, MANIFEST_FILE]
        files += [path / name for name in names]
    return [file for file in files if file.is_symlink() or file.exists()]


def remove_files_to_resume(folder: Path) -> None:
    """Remove `files_to_resume`, as far as possible, and empty folders."""
    for file in files_to_resume(folder):
        with suppress(OSError):
            file.unlink()
    for path in _by_age(folder):
        # `rmdir` raises an error for a folder that is not empty.
        with suppress(OSError):
            path.rmdir()


def _newest_with_state(folder: Path) -> Path | None:
    for path in _by_age(folder):
        with suppress(EncoderClsError):
            _read_verified(path, [STATE_FILE])
            return path
    return None


def fingerprint(
    config: Config, dataset: Dataset, tokenizer: Tokenizer, *, device: torch.device
) -> dict[str, Any]:
    """What a resumed run must have in common with its checkpoint, as JSON values."""
    precision = resolve_precision(config.train.precision, device)
    return {
        **environment(device, precision),
        "tokenizer": sha256(tokenizer.to_str().encode()),
        "training_data": dataset.train.fingerprint,
        "unlabelled_data": dataset.unlabelled.fingerprint,
        "validation_data": dataset.validation.fingerprint,
        "classes": list(dataset.label_names),
    }


# The changes after which a run cannot be resumed, with their names in the message. Any other change
# affects at most the last digits of the result.
REFUSED_CHANGES = {
    "training_data": "training data has",
    "unlabelled_data": "unlabelled texts have",
    "validation_data": "validation data has",
    "classes": "names of the classes have",
    "tokenizer": "tokenizer's library has",
}


def check_fingerprint(saved: dict[str, Any], current: dict[str, Any], *, run: Path) -> list[str]:
    """Compare the fingerprint of a run with that of its checkpoint.

    The result warns of changes that affect at most the last digits.

    Raises:
        ConfigError: another change makes it impossible to resume the run.
    """
    changed = [name for name in saved if saved[name] != current.get(name)]
    for name, meaning in REFUSED_CHANGES.items():
        if name in changed:
            raise ConfigError(f"{run}: the {meaning} changed since the run began; start a new run")

    if not changed:
        return []
    names = ", ".join(changed)
    return [f"{names} changed since the run began: the result may differ in the last digits"]


def _by_age(folder: Path) -> list[Path]:
    """The folders, the newest first; one that was being replaced ends with `.old`."""
    keyed_folders = []
    for path in folder.glob("step-*"):
        match = re.fullmatch(r"step-(\d+)(\.old)?", path.name)
        if match and path.is_dir():
            is_replaced = match[2] is not None
            keyed_folders.append((int(match[1]), not is_replaced, path))

    keyed_folders.sort(reverse=True)
    return [path for _, _, path in keyed_folders]


def _read_verified(path: Path, names: Collection[str] = LISTED_FILES) -> dict[str, bytes]:
    files = {}
    try:
        listed = read_json(path / MANIFEST_FILE)["files"]
        for name in names:
            files[name] = read_file(path / name, most_bytes=int(listed[name]["size"]))
    except (ValueError, KeyError, TypeError) as error:
        raise EncoderClsError(f"{path / MANIFEST_FILE}: not a manifest: {error}") from None

    for name, content in files.items():
        if listed[name] != _manifest_entry(content):
            raise EncoderClsError(f"{path / name}: has changed since it was written")
    return files


def _manifest_entry(content: bytes) -> dict[str, Any]:
    return {"size": len(content), "sha256": sha256(content)}


def _parse(files: Mapping[str, bytes]) -> Checkpoint:
    """Parse the files of a checkpoint.

    Raises:
        ValueError, LookupError, TypeError, AttributeError, SafetensorError: the files have another
            content, or are of another version of the program.
    """
    import safetensors.torch

    content = json.loads(files[STATE_FILE])
    state = content["state"]
    default = asdict(RunState())
    if state.keys() != default.keys() or state["training"].keys() != default["training"].keys():
        raise ValueError(f"{STATE_FILE} is of another version")

    return Checkpoint(
        state=TypeAdapter(RunState).validate_python(state),
        fingerprint=content["fingerprint"],
        weights=safetensors.torch.load(files[MODEL_FILE]),
        moments=safetensors.torch.load(files[OPTIMIZER_FILE]),
    )
