"""A training in; whether the disk can hold it to its end."""

from __future__ import annotations

import shutil

from torch import nn

from encoder_cls.errors import EncoderClsError
from encoder_cls.system.files import reporting_os_errors
from encoder_cls.tracking.run_dir import RunDir
from encoder_cls.training.linear.features import bytes_at_most
from encoder_cls.training.setup import TrainingSetup


def check_free_space(setup: TrainingSetup, run: RunDir, model: nn.Module) -> None:
    """Make sure that there is room for all that a run writes.

    Raises:
        EncoderClsError: there is not; the message says how much is needed.
    """
    needed = _bytes_needed(setup, model)
    present = sum(path.stat().st_size for path in run.path.rglob("*.safetensors") if path.is_file())
    with reporting_os_errors(run.path):
        free = shutil.disk_usage(run.path).free
    if free < needed - present:
        raise EncoderClsError(
            f"{run.path}: {free / 1e6:,.1f} MB are free, the run needs up to "
            f"{(needed - present) / 1e6:,.1f} MB: make room, or choose another --run-dir"
        )


def _bytes_needed(setup: TrainingSetup, model: nn.Module) -> int:
    """What the models and checkpoints of a run take at most."""
    weights = sum(tensor.nbytes for tensor in model.state_dict().values())
    checkpoints = min(setup.config.train.keep_checkpoints, _most_checkpoints(setup))
    # A checkpoint has the weights and two moments of each; one more of each kind is there while it is replaced.
    needed: int = weights * (3 * (checkpoints + 1) + len(setup.stages) + 1)
    if linear := setup.recipe.linear:
        classes = len(setup.dataset.label_names)
        texts = setup.texts if setup.has_few_labels or setup.dataset.has_names_alone else setup.train_texts
        needed += 2 * bytes_at_most(texts, num_classes=classes, use_char_ngrams=linear.use_char_ngrams, task=setup.task)
    return needed


def _most_checkpoints(setup: TrainingSetup) -> int:
    """How many checkpoints a run writes if it goes on to its last step."""
    checkpoint_every = setup.config.train.checkpoint_every
    written = 0
    for stage in setup.stages:
        every = [stage.validate_every, *([checkpoint_every] if checkpoint_every else [])]
        written += 2 + sum(stage.total_steps // steps for steps in every)  # with the stage's first and last
    return written
