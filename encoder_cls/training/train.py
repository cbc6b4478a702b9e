"""Train a run, from top to bottom: read `train` first.

A run that is stopped at any moment leaves the best model so far; resumed, it equals an
uninterrupted one bit for bit. Under torchrun all processes run this same program: the first one
writes and decides, and the others compute their share of each step and each validation.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from typing import NamedTuple

import torch

from encoder_cls.classifier.mixture_scores import ValidationResult
from encoder_cls.encoder.distributed import ALONE, LostProcessError, ProcessGroup
from encoder_cls.encoder.training import EncoderTraining, StepDone, ValidationDone
from encoder_cls.errors import StoppedError
from encoder_cls.evaluation.report import Report
from encoder_cls.linear.linear_model import LinearModel
from encoder_cls.run.run_folder import RunDir
from encoder_cls.system.reporter import SILENT, Reporter
from encoder_cls.training.encoder_stage import pretraining_of, save_encoder, training_on_labels
from encoder_cls.training.final_report import write_final_report
from encoder_cls.training.linear_fit import FittedLinear
from encoder_cls.training.linear_stage import broadcast_pseudo_labels, fit_linear_model
from encoder_cls.training.prepared import Prepared
from encoder_cls.training.run_progress import Progress, check_free_space


class EncoderGain(NamedTuple):
    """The validation score `monitor` without and with the encoder.

    The latter is None where there was no time to train one.
    """

    monitor: str
    linear: float
    with_encoder: float | None


class Finished(NamedTuple):
    """A run that has come to its end.

    Attributes:
        report: the report on its model; None where no text has a label, or none was asked for.
        best_step: the step of the best weights; 0 where the linear model alone is the best.
        last_step: the number of steps taken.
        seconds: the time since the start or resumption.
        gain: what the encoder has added to the linear model; None where there is only one of them.
    """

    report: Report | None
    best_step: int
    last_step: int
    seconds: float
    gain: EncoderGain | None


def train(
    prepared: Prepared,
    run: RunDir,
    *,
    device: torch.device,
    resume: bool = False,
    with_report: bool = True,
    group: ProcessGroup = ALONE,
    reporter: Reporter = SILENT,
) -> Finished | None:
    """Train into a run folder; a signal stops it (`system.stop`).

    Args:
        prepared: data, tokens and plan.
        run: the folder.
        device: where the encoder is trained.
        resume: continue from the newest checkpoint; an empty folder starts a new run.
        with_report: write TensorBoard's files, the report and the model card, and save the model in
            small types.
        group: the processes that train together.
        reporter: hears what happens.

    Returns:
        None where the run was finished already, and in all processes but the first.

    Raises:
        ConfigError: the folder holds something else, or a run with another config or other data.
        DivergedError: the loss or the gradient is not finite; earlier checkpoints and the model are
            intact.
        StoppedError: a signal arrived; a checkpoint has been written, and the best model so far is
            in `model/`.
        LostProcessError: another process of the group has ended; a checkpoint has been written.
        EncoderClsError: another process trains in the folder, or the disk refuses.
    """
    started = time.monotonic()
    plan = prepared.plan

    with ExitStack() as held:
        if group.leads:
            held.enter_context(run.open_for_training(prepared.config, resume=resume))
        if group.decide(run.is_finished()):
            return None
        if group.leads:
            check_free_space(prepared, run)

        with Progress(
            prepared, run, device=device, group=group, reporter=reporter, with_report=with_report
        ) as progress:
            if group.leads:
                run.record_sources(prepared.config)
            reporter.training_started(step=progress.state.step, total_steps=plan.total_steps)

            with saving_what_is_done(progress, run):
                # A model is there after seconds.
                linear = fit_linear_model(run, progress, group, reporter)

                # The encoder learns the language from texts without their labels.
                if progress.state.is_pretraining:
                    pretraining = pretraining_of(prepared, device=device, group=group)
                    progress.begin(pretraining)
                    train_encoder(pretraining, run, progress, reporter, may_skip=True)
                    progress.end_pretraining()

                # Then it learns the labels, and joins the model once it is surely better than the
                # linear one alone.
                if plan.training:
                    train_on_labels(
                        prepared, run, progress, linear, reporter, device=device, group=group
                    )

                # The first process does the rest: the model in small types, report and card.
                progress.save_checkpoint()
                group.separate()
                if not group.leads:
                    return None

                report = None
                if with_report:
                    report = write_final_report(run, progress, reporter, device=device)

            return Finished(
                report=report,
                best_step=progress.state.best_step,
                last_step=progress.state.step,
                seconds=time.monotonic() - started,
                gain=encoder_gain(progress),
            )


@contextmanager
def saving_what_is_done(progress: Progress, run: RunDir) -> Iterator[None]:
    """Write a checkpoint where training is stopped, or another process of the group has ended."""
    try:
        yield
    except LostProcessError:
        progress.save_checkpoint()
        raise
    except StoppedError as stop:
        progress.save_checkpoint()
        step = progress.state.step
        message = f"stopped at step {step}; a checkpoint is written: continue with --resume"
        if run.model.is_dir():
            message += f"; {run.model} holds the best model so far"
        raise StoppedError(message, signal_number=stop.signal_number) from None


def train_on_labels(
    prepared: Prepared,
    run: RunDir,
    progress: Progress,
    linear: FittedLinear | None,
    reporter: Reporter,
    *,
    device: torch.device,
    group: ProcessGroup,
) -> None:
    """Train the encoder on labels, beside the linear model if the run has one.

    The first process has the linear model. With one, the training may be skipped for want of time.
    """
    linear_model = None
    linear_logits = None
    if linear:
        linear_model = linear.classifier.linear
        linear_logits = linear.validation_logits

    training = training_on_labels(
        prepared,
        device=device,
        group=group,
        linear_logits=linear_logits,
        pseudo_labels=broadcast_pseudo_labels(prepared, linear, group),
    )
    progress.begin(training)

    may_skip = group.decide(linear is not None)
    train_encoder(training, run, progress, reporter, may_skip=may_skip, linear=linear_model)


def train_encoder(
    training: EncoderTraining,
    run: RunDir,
    progress: Progress,
    reporter: Reporter,
    *,
    may_skip: bool,
    linear: LinearModel | None = None,
) -> None:
    """Run a training of the encoder; log its steps and validations, and save its best weights.

    With `may_skip`, it is skipped where there is time for a few steps only: the run has another
    model.
    """
    is_pretraining = progress.state.is_pretraining
    seconds = progress.prepared.budget.seconds_for(pretraining=is_pretraining)
    total_steps = progress.total_steps(training)
    reporter.encoder_started(training.name, step=progress.state.step, total_steps=total_steps)

    for event in training.run(progress.state.training, seconds=seconds, may_skip=may_skip):
        had_limit = progress.state.training.step_limit is not None
        progress.state = replace(progress.state, training=event.state)
        epoch = training.epoch(event.state)

        if isinstance(event, StepDone):
            if event.values:
                progress.log_row("train", event.values)
            reporter.step_done(
                step=event.state.step, epoch=epoch, loss=event.loss, values=event.values
            )

        # The first process has the result of a validation.
        if isinstance(event, ValidationDone) and isinstance(event.result, ValidationResult):
            progress.log_row("validation", event.result.row(epoch=epoch))
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

        # The first steps have shown how many there is time for.
        if event.state.step_limit is not None and not had_limit:
            num_steps = training.max_steps(event.state)
            if event.state.outcome == "skipped":
                num_steps = 0
            reporter.steps_decided(
                training.name, steps=num_steps, total_steps=progress.total_steps(training)
            )

        progress.save_checkpoint_if_due(after_validation=isinstance(event, ValidationDone))


def encoder_gain(progress: Progress) -> EncoderGain | None:
    """What the encoder has added; None in a run of one part, or without labels to compare on."""
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
