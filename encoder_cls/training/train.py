"""The whole story of a training run. Start with `train` and read down.

A run can be stopped at any moment. It leaves the best model so far, and once resumed it gives the
same result, bit for bit. Under torchrun, all processes run this program: the first writes and
decides, and each computes its share of every step and validation.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from typing import NamedTuple

import torch

from encoder_cls.classifier.validation_result import ValidationResult
from encoder_cls.encoder_training.distributed import ALONE, LostProcessError, ProcessGroup
from encoder_cls.encoder_training.training_loop import EncoderTraining, StepDone, ValidationDone
from encoder_cls.errors import StoppedError
from encoder_cls.evaluation.report import Report
from encoder_cls.linear.linear_model import LinearModel
from encoder_cls.run.checkpoint_files import remove_files_to_resume
from encoder_cls.run.run_folder import RunDir
from encoder_cls.system.reporter import SILENT, Reporter
from encoder_cls.training.encoder_stage import (
    make_pretraining,
    make_training_on_labels,
    save_encoder,
)
from encoder_cls.training.final_report import write_final_report
from encoder_cls.training.linear_stage import (
    FittedLinear,
    broadcast_pseudo_labels,
    run_linear_stage,
)
from encoder_cls.training.prepared import Prepared
from encoder_cls.training.run_progress import RunProgress, check_free_space


class EncoderGain(NamedTuple):
    """How much the encoder improves the score of `train.monitor`.

    Attributes:
        with_encoder: of both models together; None if there was no time for an encoder.
    """

    monitor: str
    linear: float
    with_encoder: float | None


class Finished(NamedTuple):
    """A finished run.

    Attributes:
        report: None if none was asked for.
        best_step: 0 if the linear model alone is best.
        seconds: since the start or resumption, with reading the data.
        seconds_of_stages: the same, by stage.
        gain: None unless both models were trained.
    """

    report: Report | None
    best_step: int
    last_step: int
    seconds: float
    seconds_of_stages: Mapping[str, float]
    gain: EncoderGain | None


def train(
    prepared: Prepared,
    run: RunDir,
    *,
    device: torch.device,
    resume: bool = False,
    with_report: bool = True,
    with_tensorboard: bool = True,
    group: ProcessGroup = ALONE,
    reporter: Reporter = SILENT,
) -> Finished | None:
    """Train a classifier into a run folder.

    A resumed training continues from the newest checkpoint, or starts a new run if the folder is
    empty. `with_report` saves the model in small number types, and writes the report and the model
    card.

    The training stops at the next step after SIGINT or SIGTERM (`system.stop`).

    Returns:
        None if the run was already finished, and in all processes except the first.

    Raises:
        ConfigError: the folder holds something else, or a run with another config or other data.
        DivergedError: the loss or the gradient is not finite. Checkpoints and the model are intact.
        StoppedError: a signal arrived. A checkpoint is written, and the best model is in `model/`.
        LostProcessError: another process has ended. A checkpoint is written.
        EncoderClsError: another process is training in the folder, or the disk is full or not
            writable.
    """
    plan = prepared.plan

    with ExitStack() as contexts:
        if group.is_first:
            contexts.enter_context(run.open_for_training(prepared.config, resume=resume))

        # All processes must decide alike, so they use the value of the first process.
        if group.broadcast_value(run.is_finished()):
            return None
        if group.is_first:
            check_free_space(prepared, run)

        # The progress starts from the newest checkpoint, if there is one.
        progress = contexts.enter_context(
            RunProgress(
                prepared,
                run,
                device=device,
                group=group,
                reporter=reporter,
                with_tensorboard=with_tensorboard,
            )
        )
        if group.is_first:
            run.record_sources(prepared.config)
        reporter.training_started(step=progress.state.step, total_steps=plan.total_steps)

        # From here on, what is done is saved if the training stops.
        contexts.enter_context(saving_what_is_done(progress, run))
        stages = StageClock()
        stages.seconds["reading"] = time.monotonic() - prepared.budget.started

        # Fit the linear model first, so that the run has a model after a few seconds.
        linear = None
        if plan.linear_fit:
            with stages.timing("linear model"):
                linear = run_linear_stage(run, progress, group, reporter)

        # Pretrain the encoder on the texts, without their labels. A resumed run may be past this.
        if progress.state.is_pretraining:
            with stages.timing("pretraining"):
                pretraining = make_pretraining(prepared, device=device, group=group)
                progress.begin(pretraining)
                train_encoder(pretraining, run, progress, reporter, may_skip=True)
                progress.end_pretraining()

        # Train the encoder on the labels. It becomes part of the model at the first validation that
        # shows it to be surely better than the linear model alone.
        if plan.training:
            with stages.timing("encoder"):
                train_on_labels(
                    prepared, run, progress, linear, reporter, device=device, group=group
                )

        # The first process does the rest alone, so the communication ends here.
        progress.save_checkpoint()
        group.end_communication()
        if not group.is_first:
            return None

        report = None
        if with_report:
            with stages.timing("report"):
                report = write_final_report(run, progress, reporter, device=device)
            # The run is finished, so nothing will resume it.
            remove_files_to_resume(run.checkpoints)

        return Finished(
            report=report,
            best_step=progress.state.best_step,
            last_step=progress.state.step,
            seconds=time.monotonic() - prepared.budget.started,
            seconds_of_stages=stages.seconds,
            gain=encoder_gain(progress),
        )


class StageClock:
    """Measures the seconds of the stages of a run."""

    def __init__(self) -> None:
        self.seconds: dict[str, float] = {}

    @contextmanager
    def timing(self, stage: str) -> Iterator[None]:
        """Measure the time of a stage."""
        started = time.monotonic()
        yield
        self.seconds[stage] = time.monotonic() - started


@contextmanager
def saving_what_is_done(progress: RunProgress, run: RunDir) -> Iterator[None]:
    """Write a checkpoint if the training is stopped or another process has ended."""
    try:
        yield
    except LostProcessError:
        progress.save_checkpoint()
        raise
    except StoppedError as stop:
        progress.save_checkpoint()
        message = f"stopped at step {progress.state.step}; "
        if progress.keeps_checkpoints:
            message += "a checkpoint is written: continue with --resume"
        else:
            message += "no checkpoint (train.keep_checkpoints is 0): --resume starts again"
        if run.model.is_dir():
            message += f"; {run.model} holds the best model so far"
        raise StoppedError(message, signal_number=stop.signal_number) from None


def train_on_labels(
    prepared: Prepared,
    run: RunDir,
    progress: RunProgress,
    linear: FittedLinear | None,
    reporter: Reporter,
    *,
    device: torch.device,
    group: ProcessGroup,
) -> None:
    """Train the encoder on labels; beside a linear model, skip that when time is short.

    `linear` is None in all processes but the first.
    """
    linear_model = None
    linear_logits = None
    if linear:
        linear_model = linear.classifier.linear
        linear_logits = linear.validation_logits

    training = make_training_on_labels(
        prepared,
        device=device,
        group=group,
        linear_logits=linear_logits,
        pseudo_labels=broadcast_pseudo_labels(prepared, linear, group),
    )
    progress.begin(training)

    # All processes must decide alike, but only the first one has the linear model.
    may_skip = group.broadcast_value(linear is not None)
    train_encoder(training, run, progress, reporter, may_skip=may_skip, linear=linear_model)


def train_encoder(
    training: EncoderTraining,
    run: RunDir,
    progress: RunProgress,
    reporter: Reporter,
    *,
    may_skip: bool,
    linear: LinearModel | None = None,
) -> None:
    """Run a training of the encoder, log its steps and validations, and save its best weights.

    A training that may be skipped is skipped if there is time for a few steps only. `linear` is
    saved with the encoder; only the first process has it, in training on labels.
    """
    is_pretraining = progress.state.is_pretraining
    seconds = progress.prepared.budget.seconds_for(pretraining=is_pretraining)
    total_steps = progress.total_steps(training)
    reporter.encoder_started(
        training.name,
        step=progress.state.step,
        total_steps=total_steps,
        epochs=training.length.epochs,
    )

    for event in training.run(progress.state.training, seconds=seconds, may_skip=may_skip):
        is_limit_new = (
            progress.state.training.step_limit is None and event.state.step_limit is not None
        )
        progress.state = replace(progress.state, training=event.state)
        epoch = training.epoch(event.state)

        if isinstance(event, StepDone):
            if event.values:
                progress.log_row("train", event.values)
            reporter.step_done(
                step=event.state.step, epoch=epoch, loss=event.loss, values=event.values
            )

        # Log a validation in the first process: the others have None as its result.
        if isinstance(event, ValidationDone) and isinstance(event.result, ValidationResult):
            progress.log_row("validation", event.result.row(epoch=epoch))

            # Save the best weights so far. Training on labels must also beat the linear model.
            is_best = event.is_best and (is_pretraining or progress.state.is_encoder_better)
            if is_best:
                save_encoder(training, event.result, progress.prepared, run, linear=linear)
            reporter.validated(
                training.name,
                step=event.state.step,
                epoch=epoch,
                scores=event.result.scores,
                is_best=is_best,
            )

        # Once the time of the first steps is known, report how many steps there is time for.
        if is_limit_new:
            num_steps = training.max_steps(event.state)
            if event.state.outcome == "skipped":
                num_steps = 0
            reporter.steps_decided(
                training.name, steps=num_steps, total_steps=progress.total_steps(training)
            )

        progress.save_checkpoint_if_due(after_validation=isinstance(event, ValidationDone))


def encoder_gain(progress: RunProgress) -> EncoderGain | None:
    """The gain by the encoder; None without both models."""
    state = progress.state
    if state.linear_score is None or not progress.prepared.plan.has_encoder:
        return None

    with_encoder = None
    if state.training.best_score:
        with_encoder = state.training.best_score.monitored
    return EncoderGain(
        monitor=progress.prepared.config.train.monitor,
        linear=state.linear_score.monitored,
        with_encoder=with_encoder,
    )
