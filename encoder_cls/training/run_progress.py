"""How far a run has come, and what keeps that: its checkpoints and its log."""

from __future__ import annotations

import shutil
import time
from collections.abc import Mapping
from contextlib import ExitStack
from dataclasses import asdict, replace
from typing import Any, Self

import torch
from pydantic import TypeAdapter

from encoder_cls.classifier.model_folder import load_classifier
from encoder_cls.encoder.distributed import ProcessGroup
from encoder_cls.encoder.optimizer import load_moments, moments_of
from encoder_cls.encoder.training import EncoderTraining
from encoder_cls.encoder.training_state import TrainingState
from encoder_cls.errors import ConfigError, EncoderClsError
from encoder_cls.run.checkpoint import (
    Checkpoint,
    RunState,
    check_fingerprint,
    fingerprint,
    load_newest,
    save_checkpoint,
)
from encoder_cls.run.metrics_log import MetricsLog
from encoder_cls.run.run_folder import RunDir
from encoder_cls.system.files import reporting_os_errors
from encoder_cls.system.reporter import Reporter
from encoder_cls.training.encoder_stage import ON_LABELS, PRETRAINING, load_first_weights
from encoder_cls.training.prepared import Prepared

# A checkpoint follows a validation where the one before is older than this.
SECONDS_BETWEEN_CHECKPOINTS = 15.0
BYTES_PER_WEIGHT = 4


class Progress:
    """The state of a run in training.

    The first process of a group keeps it on disk; all have it in memory.

    Attributes:
        prepared: the run's data and plan.
        state: how far the run has come.
    """

    def __init__(
        self,
        prepared: Prepared,
        run: RunDir,
        *,
        device: torch.device,
        group: ProcessGroup,
        reporter: Reporter,
        with_report: bool,
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
        self._open = ExitStack()

        if group.leads:
            self._load_checkpoint(device)
            self._open_log(with_tensorboard=with_report)
        self.share_state()

    def _load_checkpoint(self, device: torch.device) -> None:
        """Go on from the newest checkpoint, if there is one."""
        self._fingerprint = fingerprint(
            self.prepared.config, self.prepared.dataset, self.prepared.tokenizer, device=device
        )
        checkpoint, warnings = load_newest(self._run.checkpoints)
        if checkpoint:
            warnings += check_fingerprint(
                checkpoint.fingerprint, self._fingerprint, run=self._run.path
            )
            if device.type == "cuda":
                # Some kernels add up in the order in which threads end.
                warnings.append(
                    "on a GPU a resumed run may differ in the last digits from an uninterrupted one"
                )
            self._checkpoint = checkpoint
            self._saved_state = checkpoint.state
            self.state = checkpoint.state
            self._check_best_is_there()

        for warning in warnings:
            self._reporter.warning(warning)

    def _check_best_is_there(self) -> None:
        """Refuse to resume a run whose best model is missing or damaged.

        Only a better one would replace it.
        """
        training = self.state.training
        if training.best_score is None:
            return
        if self.state.is_pretraining:
            folder = self._run.pretrained
        elif self.state.is_encoder_better:
            folder = self._run.model
        else:
            # The linear model is fitted again.
            return

        try:
            load_classifier(folder, engine="numpy")
        except EncoderClsError as error:
            raise ConfigError(
                f"{error}; it should be the best model so far, of step {training.best_step}: bring "
                "it back, or train in another --run-dir"
            ) from None

    def _open_log(self, *, with_tensorboard: bool) -> None:
        """Open the log, without the rows that come after the checkpoint."""
        training = self.state.training
        known = {"data": 0, "train": training.step, "validation": training.validated_step}
        self._log = MetricsLog(
            self._run,
            self.prepared.config,
            self.prepared.dataset.label_names,
            resume_after=known if self._checkpoint else {},
            warn=self._reporter.warning,
            with_tensorboard=with_tensorboard,
        )
        self._open.enter_context(self._log)
        if not self._checkpoint:
            self._log.log(0, "data", self.prepared.data_statistics)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exception: Any) -> None:
        self._open.__exit__(*exception)

    @property
    def log(self) -> MetricsLog:
        """The log; in the first process."""
        assert self._log
        return self._log

    def share_state(self) -> None:
        """Give all processes the state of the first one."""
        if self._group.size > 1:
            state = self._group.decide(asdict(self.state))
            self.state = TypeAdapter(RunState).validate_python(state)

    def begin(self, training: EncoderTraining) -> None:
        """Give a training of the encoder the weights of the checkpoint, else its first ones."""
        name = PRETRAINING if self.state.is_pretraining else ON_LABELS
        assert training.name == name
        self._training = training

        if self._group.leads:
            # A run that was stopped before this training began has none.
            if self._checkpoint and self._checkpoint.weights:
                training.model.load_state_dict(self._checkpoint.weights)
                load_moments(training.optimizers, self._checkpoint.moments)
            else:
                self._reporter.working("first weights")
                load_first_weights(training, self.prepared, self._run)
                self._reporter.working("")
                if self.state.step:
                    # After the pretraining, these weights are not made again.
                    self.save_checkpoint()
            self._checkpoint = None
        training.share_weights()

    def end_pretraining(self) -> None:
        """Go on to the training on labels, which has no weights before it begins."""
        self._training = None
        self.state = replace(
            self.state,
            is_pretraining=False,
            training=TrainingState.starting_at(self.state.step),
        )

    def total_steps(self, training: EncoderTraining) -> int:
        """The steps of the whole run, as far as they are known."""
        state = self.state.training
        steps = state.first_step + training.max_steps(state)
        if self.state.is_pretraining and self.prepared.plan.training:
            steps += self.prepared.plan.training.total_steps
        return steps

    def log_row(self, split: str, values: Mapping[str, Any]) -> None:
        """Log values of the encoder's training or validation."""
        if self._group.leads:
            prefix = "pretraining/" if self.state.is_pretraining else ""
            self.log.log(self.state.step, f"{prefix}{split}", values)

    def save_checkpoint_if_due(self, *, after_validation: bool) -> None:
        """Write a checkpoint at the steps of the config, and after some validations."""
        every = self.prepared.config.train.checkpoint_every
        is_due = every is not None and self.state.step % every == 0
        is_old = time.monotonic() - self._saved_at >= SECONDS_BETWEEN_CHECKPOINTS
        if is_due or (is_old and after_validation):
            self.save_checkpoint()

    def save_checkpoint(self) -> None:
        """Write a checkpoint, unless the newest one has the same state."""
        if self.state == self._saved_state or not self._group.leads:
            return
        self.log.flush()

        checkpoint = Checkpoint(state=self.state, fingerprint=self._fingerprint)
        if self._training:
            checkpoint = replace(
                checkpoint,
                weights=self._training.model.state_dict(),
                moments=moments_of(self._training.optimizers),
            )
        elif self._checkpoint:
            # The run was stopped before the training was there again.
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

    # Count the checkpoints that are there at the end: the newest few of those that are written.
    num_written = 0
    for length in lengths:
        num_written += 2 + length.total_steps // length.validate_every
        if config.checkpoint_every:
            num_written += length.total_steps // config.checkpoint_every
    num_kept = min(config.keep_checkpoints, num_written)

    # A checkpoint has the weights and two moments of each; one more of each kind exists while it is
    # replaced.
    copies = 3 * (num_kept + 1) + len(lengths) + 1
    needed = BYTES_PER_WEIGHT * prepared.num_parameters * copies
    needed -= sum(path.stat().st_size for path in run.path.rglob("*.safetensors") if path.is_file())

    with reporting_os_errors(run.path):
        free = shutil.disk_usage(run.path).free
    if free < needed:
        raise EncoderClsError(
            f"{run.path}: {free / 1e6:,.1f} MB are free, the run needs up to "
            f"{needed / 1e6:,.1f} MB: make room, or choose another --run-dir"
        )
