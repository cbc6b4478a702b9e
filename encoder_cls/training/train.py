"""Train a run from its first event to its last; ARCHITECTURE.md describes the order.

A run that is stopped at any moment leaves the best model so far; resumed, it equals an uninterrupted one bit for bit.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from dataclasses import replace

import torch
from torch import nn

from encoder_cls.classifier.model_folder import load_classifier
from encoder_cls.encoder.distributed import ALONE, LostProcessError, ProcessGroup
from encoder_cls.errors import ConfigError, EncoderClsError, StoppedError
from encoder_cls.run.metrics_log import MetricLog
from encoder_cls.run.run_folder import RunDir
from encoder_cls.system.terminal import begin_work
from encoder_cls.training.checkpoint import (
    TrainingState,
    check_fingerprint,
    check_free_space,
    fingerprint,
    load_newest,
    save_checkpoint,
)
from encoder_cls.training.events import (
    EncoderGain,
    Event,
    Finished,
    Noted,
    StageStarted,
    Started,
    StepsDecided,
    Validated,
)
from encoder_cls.training.final_report import write_final_report
from encoder_cls.training.fit_linear import Fitted, affordable_texts, fit, pseudo_labels, streamed
from encoder_cls.training.loop import start_stage, train_stage
from encoder_cls.training.prepared import Prepared
from encoder_cls.training.replica import Replica
from encoder_cls.training.stages import make_stages

SECONDS_BETWEEN_CHECKPOINTS = 15.0  # at least, after a validation


def train(
    prepared: Prepared,
    run: RunDir,
    *,
    device: torch.device,
    resume: bool = False,
    with_report: bool = True,
    group: ProcessGroup = ALONE,
) -> Iterator[Event]:
    """Train into a run folder; yields an event for each step, and heeds `system.stop`.

    `resume` continues from the newest checkpoint: a finished run ends at once, an empty folder starts a new run.
    Without a report there is no TensorBoard and no model card, and the best weights stay in float32. This is the first
    process of the group; the others call `assist`.

    Raises:
        ConfigError: the folder holds something else, or a run with another config or other data.
        DivergedError: the loss or the gradient is not finite; earlier checkpoints and the model are intact.
        StoppedError: a signal arrived; a checkpoint has been written, and the best model so far is in `model/`.
        LostProcessError: another process of the group has ended; a checkpoint has been written.
        EncoderClsError: another process trains in the folder, or the disk refuses.
    """
    with run.open_for_training(prepared.config, resume=resume):
        if run.is_finished():
            return
        active = _ActiveRun(prepared, run, device=device, with_report=with_report, group=group)
        run.record_sources(prepared.config)
        with active.metric_log:
            yield Started(step=active.state.step, total_steps=prepared.plan.total_steps)
            try:
                for event in active.events(with_report=with_report):
                    yield from active.new_notes()
                    yield event
            except LostProcessError:
                active.save_checkpoint()
                raise
            except StoppedError as stop:
                active.save_checkpoint()
                saved = f"; {run.model} holds the best model so far" if run.model.is_dir() else ""
                raise StoppedError(
                    f"stopped at step {active.state.step}; a checkpoint is written, --resume goes on from it{saved}",
                    signal_number=stop.signal_number,
                ) from None
        yield from active.new_notes()


class _ActiveRun:
    """A run in progress; `state` is that after the last event."""

    def __init__(
        self,
        prepared: Prepared,
        run: RunDir,
        *,
        device: torch.device,
        with_report: bool,
        group: ProcessGroup,
    ) -> None:
        self._prepared, self._run, self._device, self._group = prepared, run, device, group
        self._started = self._checkpoint_written = time.monotonic()
        self._fitted: Fitted | None = None
        self._fingerprint = fingerprint(prepared, device=device)
        checkpoint, self._notes = load_newest(run.checkpoints)
        check_free_space(prepared, run)
        self._saved_state = checkpoint.state if checkpoint else None
        self.state = self._saved_state or TrainingState()
        self._check_best_is_there()
        self.replica = (
            self._new_replica(is_new=not checkpoint) if prepared.plan.has_encoder else None
        )
        if checkpoint:
            self._notes += check_fingerprint(
                checkpoint.fingerprint, self._fingerprint, run=run.path
            )
            if device.type == "cuda":  # some kernels add up in the order in which their threads end
                self._notes.append(
                    "on a GPU a resumed run may differ in the last digits from an uninterrupted one"
                )
            if self.replica:
                checkpoint.restore(self.replica.model, self.replica.optimizers)
        done = {"data": 0, "train": self.state.step, "validation": self.state.validated_step}
        self.metric_log = MetricLog(
            run,
            prepared.config,
            prepared.dataset.label_names,
            resume_after=done if checkpoint else {},
            warn=self._notes.append,
            with_tensorboard=with_report,
        )
        if not checkpoint:
            self.metric_log.log(0, "data", prepared.data_statistics)

    def _check_best_is_there(self) -> None:
        """Refuse to resume a run whose best model so far is missing or damaged: only a better one would replace it."""
        stages = make_stages(self._prepared, self._device)
        is_last = self.state.stage == len(stages) - 1
        if not stages or self.state.best_score is None:
            return
        if is_last and not self.state.has_beaten_linear:
            return  # the linear classifier is fitted again
        folder = self._run.model
        if not is_last:
            folder = self._run.stages / stages[self.state.stage].name
        try:
            load_classifier(folder, engine="numpy")
        except EncoderClsError as error:
            raise ConfigError(
                f"{error}; it should be the best model so far, of step {self.state.best_step}: bring it back, or train "
                "in another --run-dir"
            ) from None

    def _new_replica(self, *, is_new: bool) -> Replica:
        """Make the model of the current stage; a new one with its first weights."""
        replica = Replica(self._prepared, self.state.stage, device=self._device, group=self._group)
        if is_new:
            replica.load_first_weights(self._run.stages)
        return replica

    def new_notes(self) -> Iterator[Noted]:
        """The warnings since the last call."""
        while self._notes:
            yield Noted(self._notes.pop(0))

    def events(self, *, with_report: bool) -> Iterator[Event]:
        """Fit the linear classifier, train each stage, and write the report."""
        has_work_left = self.state.score_to_beat is None
        if self.replica:
            has_work_left = not self.replica.is_last or self.replica.stage.has_work_left(self.state)
        if self._prepared.plan.linear and has_work_left:  # else at most the final report is missing
            yield from self.fit_linear()
        while self.replica:
            yield from self._train_stage(self.replica)
            if self.replica.is_last:
                break
            self.state = self.state.at_next_stage()
            self.replica = self._new_replica(is_new=True)
            self.save_checkpoint()
        self.save_checkpoint()
        self._group.end()  # the first process does the rest
        if with_report:
            yield self._finished()

    def fit_linear(self) -> Iterator[Event]:
        """Fit the linear classifier, and save it as the model unless an encoder has been better."""
        is_new, data = self.state.score_to_beat is None, self._prepared
        has_better = self.replica and self.replica.is_last and self.state.has_beaten_linear
        begin_work("fitting the linear classifier")
        if is_new and data.budget.left is not None:
            self.state = replace(self.state, linear_texts=affordable_texts(data))
        if (texts := self.state.linear_texts) is not None:
            of_all, data = len(data.dataset.train), streamed(data, texts)
            begin_work(
                f"fitting the linear classifier to {texts:,} of {of_all:,} texts (train.time_budget)"
            )
            self._prepared = replace(self._prepared, plan=data.plan)
        self._fitted = linear = fit(data, self._run, saves_first=is_new, saves=not has_better)
        begin_work("")
        if linear.few_labels:
            yield linear.few_labels
        if linear.validation is None:
            return
        self.state = replace(self.state, score_to_beat=linear.validation.selection_key)
        if is_new:
            self.metric_log.log(0, "validation", linear.validation.row(epoch=0, is_drawn=True))
            yield Validated(stage="model", step=0, epoch=0, result=linear.validation, is_best=True)

    def _train_stage(self, replica: Replica) -> Iterator[Event]:
        """Train one stage; save its best weights, and checkpoints after validations and at the config's steps."""
        stage, every = replica.stage, self._prepared.config.train.checkpoint_every
        seconds = self._prepared.budget.seconds_for(pretraining=not replica.is_last)
        may_skip = (
            bool(self._fitted) or not replica.is_last
        )  # else the last stage makes the only model
        if seconds == 0 and self.state.step_in_stage == 0 and may_skip:
            self.state = replace(self.state, stage_steps=0)
            yield self._steps_decided(replica)
            return
        if self._fitted and replica.is_last:
            stage.linear_logits = self._fitted.validation_logits
            stage.pseudo_labels = pseudo_labels(self._prepared, self._fitted)
        start_stage(replica)
        yield StageStarted(
            stage=stage.name, step=self.state.step, total_steps=self._total_steps(replica)
        )
        for state, event in train_stage(replica, self.state, seconds=seconds, may_skip=may_skip):
            is_decided, self.state = state.stage_steps != self.state.stage_steps, state
            if isinstance(event, Validated):
                row = event.result.row(epoch=event.epoch, is_drawn=event.is_drawn)
                self.metric_log.log(event.step, f"{stage.metric_prefix}validation", row)
                is_best = event.is_best and (not replica.is_last or state.has_beaten_linear)
                if is_best:
                    folder = self._run.model if replica.is_last else self._run.stages / stage.name
                    linear = self._fitted.classifier if self._fitted and replica.is_last else None
                    replica.save(folder, event.result, linear=linear)
                yield event._replace(is_best=is_best)
            else:
                if event.values:
                    self.metric_log.log(event.step, f"{stage.metric_prefix}train", event.values)
                yield event
            if is_decided:
                yield self._steps_decided(replica)
            is_old = time.monotonic() - self._checkpoint_written >= SECONDS_BETWEEN_CHECKPOINTS
            if (every and state.step % every == 0) or (is_old and isinstance(event, Validated)):
                self.save_checkpoint()

    def _total_steps(self, replica: Replica) -> int:
        """The steps of all stages, as far as they are known."""
        still_to_come = sum(
            it.total_steps for it in self._prepared.plan.schedules[replica.number + 1 :]
        )
        return self.state.stage_start + replica.stage.steps(self.state) + still_to_come

    def _steps_decided(self, replica: Replica) -> StepsDecided:
        steps = replica.stage.steps(self.state)
        if (
            steps == self.state.step_in_stage and self.state.validated_step == self.state.step
        ):  # the stage is skipped
            steps = 0
        return StepsDecided(
            stage=replica.stage.name, steps=steps, total_steps=self._total_steps(replica)
        )

    def save_checkpoint(self) -> None:
        """Write a checkpoint, unless the state is that of the newest one."""
        if self.state == self._saved_state:
            return
        self.metric_log.flush()
        save_checkpoint(
            self._run.checkpoints,
            self.replica.model if self.replica else nn.Module(),
            self.replica.optimizers if self.replica else [],
            self.state,
            fingerprint=self._fingerprint,
            keep=self._prepared.config.train.keep_checkpoints,
        )
        self._saved_state, self._checkpoint_written = self.state, time.monotonic()

    def _finished(self) -> Finished:
        """Write the final report."""
        state, prepared = self.state, self._prepared
        best_step = state.best_step if state.has_beaten_linear else 0
        report = write_final_report(
            prepared, self._run, self.metric_log, best_step=best_step, device=self._device
        )
        gain = None
        if state.score_to_beat and self.replica:  # selection keys have the negative loss
            best = abs(state.best_score[1]) if state.best_score else None
            gain = EncoderGain(prepared.config.train.monitor, abs(state.score_to_beat[1]), best)
        return Finished(
            report=report, best_step=best_step, seconds=time.monotonic() - self._started, gain=gain
        )
