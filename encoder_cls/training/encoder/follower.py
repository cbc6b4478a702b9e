"""Steps and validations of all processes but the first."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import suppress

import numpy as np
import torch

from encoder_cls.system.machine import resolve_precision
from encoder_cls.training.encoder.checkpoint import STATE_FILES, from_files
from encoder_cls.training.encoder.fingerprint import fingerprint
from encoder_cls.training.encoder.loop import Learner, step_settings
from encoder_cls.training.encoder.optimizer import UntrainedRows, make_optimizers
from encoder_cls.training.encoder.processes import ProcessGroup
from encoder_cls.training.encoder.step import NonFiniteError
from encoder_cls.training.linear.techniques import LinearAnswers
from encoder_cls.training.setup import TrainingSetup


def lead_stage(group: ProcessGroup, number: int, files: Mapping[str, bytes], answers: LinearAnswers | None) -> None:
    """Begin a stage in the other processes, too.

    Args:
        group: of the processes.
        number: of the stage.
        files: what its model and its optimizers are at first, as in a checkpoint.
        answers: of the linear classifier, if there is one.
    """
    pseudo_labels = answers.pseudo_labels if answers else None
    group.lead({"stage": number, "has_pseudo_labels": pseudo_labels is not None})
    if pseudo_labels is not None:
        group.broadcast(pseudo_labels.tobytes())
    for name in STATE_FILES:
        group.broadcast(files[name])


def check_equal(setup: TrainingSetup, group: ProcessGroup, *, device: torch.device) -> None:
    """Make sure that all processes train the same, on the same data, with the same libraries.

    Raises:
        ConfigError: one does not.
    """
    precision = resolve_precision(setup.config.train.precision, device)
    facts = fingerprint(setup, device=device, precision=precision) | {"config": setup.config.model_dump(mode="json")}
    group.check_equal(facts)


def follow(setup: TrainingSetup, group: ProcessGroup, *, device: torch.device) -> None:
    """Take part in a training until its first process ends it; nothing is written or printed.

    Args:
        setup: the same as that of the first process.
        group: of the processes.
        device: where to compute.

    Raises:
        LostProcessError: another process has ended before its time.
    """
    learner: Learner | None = None
    while True:
        match group.follow():
            case {"stage": int(number), "has_pseudo_labels": bool(has_pseudo_labels)}:
                learner = _learner(setup, group, number, device=device, has_pseudo_labels=has_pseudo_labels)
            case {"step": int(step), "learning_rate": float(rate)} if learner:
                with suppress(NonFiniteError):  # which the first process has found, too
                    learner.step(step, rate)
            case {"validate": True} if learner:
                learner.validate(lambda: None)
            case _:
                return


def _learner(
    setup: TrainingSetup, group: ProcessGroup, number: int, *, device: torch.device, has_pseudo_labels: bool
) -> Learner:
    """The learner of a stage, with the weights, the moments and the pseudo-labels of the first process."""
    stage, config = setup.stages[number], setup.config.train
    answers = None
    if has_pseudo_labels:
        pseudo_labels = np.frombuffer(group.broadcast(), dtype=np.float32)
        answers = LinearAnswers(None, pseudo_labels.reshape(-1, len(setup.dataset.label_names)))
    checkpoint = from_files({name: group.broadcast() for name in STATE_FILES})
    model = setup.new_model(stage).to(device)
    optimizers = make_optimizers(model, config)
    checkpoint.restore(model, optimizers)
    return Learner(
        stage=stage,
        model=model,
        optimizers=optimizers,
        objective=stage.make_objective(device, answers),
        settings=step_settings(config, group, device),
        untrained_rows=UntrainedRows(setup.new_model(setup.stages[0])) if stage is setup.stages[-1] else None,
    )
