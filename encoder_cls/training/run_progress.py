"""The progress of a run in training, its checkpoints and its log."""

from __future__ import annotations

import shutil
import time
from collections.abc import Mapping
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any, Self

import torch
from pydantic import TypeAdapter

from encoder_cls.classifier.model_folder import load_classifier
from encoder_cls.encoder_training.distributed import ProcessGroup
from encoder_cls.encoder_training.optimizer import load_moments, moments_of
from encoder_cls.encoder_training.training_loop import EncoderTraining
from encoder_cls.encoder_training.training_state import TrainingState
from encoder_cls.errors import ConfigError, EncoderClsError
from encoder_cls.run.checkpoint_files import (
    Checkpoint,
    check_fingerprint,
    fingerprint,
    load_newest,
    save_checkpoint,
)
from encoder_cls.run.metrics_log import MetricsLog
from encoder_cls.run.run_folder import RunDir
from encoder_cls.run.run_state import RunState
from encoder_cls.system.files import reporting_os_errors
from encoder_cls.system.reporter import Reporter
from encoder_cls.training.data_statistics import data_statistics, num_parameters
from encoder_cls.training.encoder_stage import ON_LABELS, PRETRAINING, load_first_weights
from encoder_cls.training.prepared import Prepared

# The minimum age of the newest checkpoint for a validation to be followed by another one.
SECONDS_BETWEEN_CHECKPOINTS = 15.0
BYTES_PER_WEIGHT = 4


class RunProgress:
    """How far a run in training has come, from its newest checkpoint if there is one.

    All processes have the state in memory; the first one also writes it to disk.
    """

    def __init__(
        self,
        prepared: Prepared,
        run: RunDir,
        *,
        device: torch.device,
        group: ProcessGroup,
        reporter: Reporter,
        with_tensorboard: bool,
    ) -> None:
        self.prepared = prepared
        self.state = RunState(is_pretraining=prepared.plan.pretraining is not None)
        self._run = run
        self._group = group
        self._reporter = reporter
        self._training: EncoderTraining | None = None
        self._checkpoint: Checkpoint | None = None
        self._saved_state: RunState | None = None
        self._saved_at = time.monotonic()
        self._log: MetricsLog | None = None

        if group.is_first:
            self._load_checkpoint(device)
            self._open_log(with_tensorboard=with_tensorboard)
            if not self.keeps_checkpoints:
                self._save_beginning()
        self.share_state()

    def _load_checkpoint(self, device: torch.device) -> None:
        self._fingerprint = fingerprint(
            self.prepared.config, self.prepared.dataset, self.prepared.tokenizer, device=device
        )
        checkpoint, warnings = load_newest(self._run.checkpoints)
        if checkpoint:
            warnings += check_fingerprint(
                checkpoint.fingerprint, self._fingerprint, run=self._run.path
            )
        # A run that keeps no checkpoints has only its beginning, from which it starts again.
        if checkpoint and self.keeps_checkpoints:
            if device.type == "cuda":
                # Some kernels add numbers in the order in which their threads end.
                warnings.append(
                    "on a GPU a resumed run may differ in the last digits from an uninterrupted one"
                )
            self._checkpoint = checkpoint
            self._saved_state = checkpoint.state
            self.state = checkpoint.state
            self._check_best_model()

        for warning in warnings:
            self._reporter.warning(warning)

    def _check_best_model(self) -> None:
        """Raise a `ConfigError` if the best model of a run to resume is missing or damaged.

        The run would save a model only if it were better than the missing one.
        """
        folder = self._folder_of_best_model()
        if folder is None:
            return

        try:
            load_classifier(folder, engine="numpy", model_class=self.prepared.model_class)
        except EncoderClsError as error:
            raise ConfigError(
                f"{error}; it should be the best model so far: bring it back, or train in another "
                "--run-dir"
            ) from None

    def _folder_of_best_model(self) -> Path | None:
        """The folder of the best model so far; None if there is none, or if it is made again."""
        if self.state.is_pretraining:
            is_saved = self.state.training.best_score is not None
            return self._run.pretrained if is_saved else None
        if self.state.is_encoder_better:
            return self._run.model
        has_linear_model = self.state.linear_work is not None and not self.needs_linear_model
        return self._run.model if has_linear_model else None

    def _open_log(self, *, with_tensorboard: bool) -> None:
        """Open the log without the rows after the checkpoint, whose steps will be repeated."""
        resume_after = {}
        if self._checkpoint:
            training = self.state.training
            resume_after = {
                "data": 0,
                "train": training.step,
                "validation": training.validated_step,
            }

        self._log = MetricsLog(
            self._run,
            self.prepared.config,
            self.prepared.dataset.label_names,
            resume_after=resume_after,
            warn=self._reporter.warning,
            with_tensorboard=with_tensorboard,
        )

        if not self._checkpoint:
            self._log.log(0, "data", data_statistics(self.prepared))

    def _save_beginning(self) -> None:
        """Save a fingerprint that shows later whether the data has changed."""
        beginning = Checkpoint(state=self.state, fingerprint=self._fingerprint)
        save_checkpoint(self._run.checkpoints, beginning, keep=1)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exception: Any) -> None:
        if self._log:
            self._log.__exit__(*exception)

    @property
    def keeps_checkpoints(self) -> bool:
        """Whether checkpoints are written while the run is training."""
        return self.prepared.config.train.keep_checkpoints > 0

    @property
    def needs_linear_model(self) -> bool:
        """Whether the linear model is still to be fitted, or the encoder still in training."""
        if not self.prepared.plan.has_encoder:
            return self.state.linear_work is None
        return self.state.is_pretraining or self.state.training.outcome is None

    @property
    def log(self) -> MetricsLog:
        """The log, which the first process has."""
        assert self._log
        return self._log

    def share_state(self) -> None:
        """Send the state of the first process to all."""
        if self._group.size > 1:
            state = self._group.broadcast_value(asdict(self.state))
            self.state = TypeAdapter(RunState).validate_python(state)

    def begin(self, training: EncoderTraining) -> None:
        """Begin a training of the encoder, or continue it."""
        name = PRETRAINING if self.state.is_pretraining else ON_LABELS
        assert training.name == name
        self._training = training
        trainer = training.trainer

        if self._group.is_first:
            # The checkpoint has no weights if the run was stopped before this training began.
            if self._checkpoint and self._checkpoint.weights:
                trainer.model.load_state_dict(self._checkpoint.weights)
                load_moments(trainer.optimizers, self._checkpoint.moments)
            else:
                self._reporter.working("first weights")
                load_first_weights(training, self.prepared, self._run)
                self._reporter.working("")
                if self.state.step:
                    # Save the first weights after the pretraining, so that a resumed run does not
                    # make them again.
                    self.save_checkpoint()
            self._checkpoint = None
        trainer.share_weights()

    def end_pretraining(self) -> None:
        """Go on to the training on labels, which has no weights before it begins."""
        self._training = None
        self.state = replace(
            self.state,
            is_pretraining=False,
            training=TrainingState.starting_at(self.state.step),
        )

    def total_steps(self, training: EncoderTraining) -> int:
        """The steps of the whole run, as far as known."""
        state = self.state.training
        steps = state.first_step + training.max_steps(state)
        if self.state.is_pretraining and self.prepared.plan.training:
            steps += self.prepared.plan.training.total_steps
        return steps

    def log_row(self, split: str, values: Mapping[str, Any]) -> None:
        """Log values of "train" or "validation" in the first process."""
        if self._group.is_first:
            prefix = "pretraining/" if self.state.is_pretraining else ""
            self.log.log(self.state.step, f"{prefix}{split}", values)

    def save_checkpoint_if_due(self, *, after_validation: bool) -> None:
        """Write a checkpoint at every `train.checkpoint_every`-th step, and instead of an old one.

        An old one is replaced after a validation only.
        """
        every = self.prepared.config.train.checkpoint_every
        is_due = every is not None and self.state.step % every == 0
        is_old = time.monotonic() - self._saved_at >= SECONDS_BETWEEN_CHECKPOINTS
        if is_due or (is_old and after_validation):
            self.save_checkpoint()

    def save_checkpoint(self) -> None:
        """Write a checkpoint, unless the newest one has the same state, or the run keeps none."""
        if self.state == self._saved_state or not self._group.is_first:
            return
        if not self.keeps_checkpoints:
            return
        self.log.flush()

        checkpoint = Checkpoint(state=self.state, fingerprint=self._fingerprint)
        if self._training:
            trainer = self._training.trainer
            checkpoint = replace(
                checkpoint,
                weights=trainer.model.state_dict(),
                moments=moments_of(trainer.optimizers),
            )
        elif self._checkpoint:
            # The resumed run was stopped before its training began again: keep the old weights.
            checkpoint = replace(
                checkpoint, weights=self._checkpoint.weights, moments=self._checkpoint.moments
            )
        save_checkpoint(
            self._run.checkpoints, checkpoint, keep=self.prepared.config.train.keep_checkpoints
        )
        self._saved_state = self.state
        self._saved_at = time.monotonic()


def check_free_space(prepared: Prepared, run: RunDir) -> None:
    """Raise an `EncoderClsError` if the disk has no room for the encoder and its checkpoints."""
    config = prepared.config.train
    lengths = prepared.plan.training_lengths

    # Count the checkpoints at the end of the run: the newest few of all that are written.
    num_written = 0
    for length in lengths:
        num_written += 2 + length.total_steps // length.validate_every
        if config.checkpoint_every:
            num_written += length.total_steps // config.checkpoint_every
    num_kept = min(config.keep_checkpoints, num_written)

    # Count the copies of the weights. A checkpoint has three: the weights and two moments of each.
    # One checkpoint more exists while an old one is replaced. Each training saves its best weights,
    # and one copy more exists while they are replaced.
    copies = len(lengths) + 1
    if num_kept:
        copies += 3 * (num_kept + 1)
    needed = BYTES_PER_WEIGHT * num_parameters(prepared) * copies
    needed -= sum(path.stat().st_size for path in run.path.rglob("*.safetensors") if path.is_file())

    with reporting_os_errors(run.path):
        free = shutil.disk_usage(run.path).free
    if free < needed:
        raise EncoderClsError(
            f"{run.path}: {free / 1e6:,.1f} MB are free, the run needs up to "
            f"{needed / 1e6:,.1f} MB: make room, or choose another --run-dir"
        )
