"""The life of a run, as a generator of events.

There are no steps: the classifier is fitted at once, in seconds, so a run that was interrupted is done again from its
data, which are to be the same.

First a linear classifier is fitted, in seconds, and saved as the model so far. Then there are two stages, each from
first weights to the best. Pretraining is masked language modelling; the run's model begins with its weights and learns
from the labels. Its logits are combined with those of the linear classifier, and it takes that one's place as soon as
the validation texts show that to be better. So a run that is stopped at any moment leaves the best so far.

Everything that varies from step to step is a pure function of (config, step): the batch, the learning
rate, the random numbers of dropout. So the state of a run is its weights, the optimizer's moments and a
few numbers, and a resumed run equals an uninterrupted one bit for bit.
"""

from __future__ import annotations

import copy
import time
from collections.abc import Iterator
from dataclasses import replace
from functools import partial

import numpy as np
import torch
from torch import nn

from encoder_cls.errors import DivergedError, StoppedError
from encoder_cls.inference.classifier import Classifier
from encoder_cls.inference.encoder.torch import TorchEncoder
from encoder_cls.inference.folder import read_encoder_weights, save_classifier
from encoder_cls.system.machine import resolve_precision
from encoder_cls.tracking.metric_log import MetricLog
from encoder_cls.tracking.run_dir import RunDir
from encoder_cls.training.base_run import start_from
from encoder_cls.training.disk_space import check_free_space
from encoder_cls.training.encoder.checkpoint import load_newest, save_checkpoint, to_files
from encoder_cls.training.encoder.fingerprint import check_fingerprint, fingerprint
from encoder_cls.training.encoder.follower import lead_stage
from encoder_cls.training.encoder.loop import Learner, StageLoop, step_settings
from encoder_cls.training.encoder.optimizer import UntrainedRows, learning_rate, make_optimizers
from encoder_cls.training.encoder.processes import ALONE, LostProcessError, ProcessGroup
from encoder_cls.training.encoder.stage import TrainingState
from encoder_cls.training.encoder.step import NonFiniteError
from encoder_cls.training.encoder.validation import ValidationResult
from encoder_cls.training.events import (
    EncoderGain,
    Event,
    Finished,
    LinearFitted,
    Noted,
    StageStarted,
    Started,
    Stepped,
    StepsDecided,
    Validated,
)
from encoder_cls.training.finish import write_final_report
from encoder_cls.training.interruptible import StopSignal
from encoder_cls.training.linear.fit import fit_calibrated_linear
from encoder_cls.training.linear.techniques import LinearAnswers
from encoder_cls.training.recipe import LinearInput, TimeBudget
from encoder_cls.training.setup import TrainingSetup


class LinearTrainer:
    """The life of a run without an encoder; arguments as in `trainer.train`.

    Attributes:
        metric_log: where its numbers go.
    """

    def __init__(
        self,
        setup: TrainingSetup,
        run: RunDir,
        *,
        device: torch.device,
        stop_signal: StopSignal,
        with_report: bool,
    ) -> None:
        self._setup, self._run, self._device = setup, run, device
        self._stop_signal, self._with_report = stop_signal, with_report
        self._started = time.monotonic()
        precision = resolve_precision(setup.config.train.precision, device)
        self._fingerprint = fingerprint(setup, device=device, precision=precision)
        checkpoint, self._notes = load_newest(run.checkpoints)
        check_free_space(setup, run, nn.Module())
        if checkpoint:
            self._notes += check_fingerprint(checkpoint.fingerprint, self._fingerprint, run=run.path)
        self.metric_log = MetricLog(
            metrics_file=run.metrics_file,
            tensorboard=run.tensorboard if with_report else None,
            resume_after=None,
            config_text=setup.config.to_yaml(),
            label_names=setup.dataset.label_names,
            warn=self._notes.append,
        )
        self.metric_log.log(0, "data", setup.data_statistics)

    def events(self) -> Iterator[Event]:
        """One validation of the fitted classifier, then the final report."""
        yield Started(step=0, total_steps=0)
        yield from self.noted()
        self._stop_if_asked()
        yield from self._fit()
        self._stop_if_asked()
        if not self._with_report:
            return
        report = write_final_report(
            self._setup,
            self._run,
            self.metric_log,
            best_step=0,
            device=self._device,
            stop_if_asked=self._stop_if_asked,
        )
        yield from self.noted()
        yield Finished(report=report, best_step=0, seconds=time.monotonic() - self._started)

    def noted(self) -> Iterator[Noted]:
        """What has come up since this was asked last."""
        while self._notes:
            yield Noted(self._notes.pop(0))

    def _fit(self) -> Iterator[Event]:
        """Fit the classifier, calibrate it on the validation texts, and save it with what its data was."""
        setup, (stage,) = self._setup, self._setup.stages
        assert setup.recipe.linear
        linear = fit_calibrated_linear(
            setup, self._run, setup.recipe.linear, save_first=True, stop_if_asked=self._stop_if_asked
        )
        if linear.fitted.few_labels:
            yield LinearFitted(step=0, result=linear.fitted.few_labels)
        save_classifier(linear.classifier, self._run.model)
        if linear.result:
            self.metric_log.log(0, "validation", linear.result.row(epoch=0, is_drawn=True))
        self._save_checkpoint()
        if linear.result:
            yield Validated(stage=stage, step=0, epoch=0, result=linear.result, is_best=True)

    def _save_checkpoint(self) -> None:
        save_checkpoint(self._run.checkpoints, nn.Module(), [], TrainingState(), fingerprint=self._fingerprint, keep=1)

    def _stop_if_asked(self) -> None:
        signal_number = self._stop_signal()
        if signal_number is not None:
            raise StoppedError("stopped; --resume begins again: it takes seconds", signal_number=signal_number)


SECONDS_BETWEEN_CHECKPOINTS = 15.0  # at the least: small models are validated more often than that


class EncoderTrainer:
    """The life of a run with an encoder; arguments as in `trainer.train`.

    Attributes:
        metric_log: where its numbers go.
    """

    def __init__(
        self,
        setup: TrainingSetup,
        run: RunDir,
        *,
        device: torch.device,
        stop_signal: StopSignal,
        with_report: bool,
        group: ProcessGroup,
    ) -> None:
        self.setup = setup
        self.run = run
        self.device = device
        self.stop_signal = stop_signal
        self.with_report = with_report
        self.started = time.monotonic()
        self.time_budget = TimeBudget(setup.config, seconds_spent=setup.seconds)
        self.linear: Classifier | None = None
        self.answers: LinearAnswers | None = None
        self.group = group
        self.settings = step_settings(setup.config.train, group, device)
        self.fingerprint = fingerprint(setup, device=device, precision=self.settings.precision)
        checkpoint, self.notes = load_newest(run.checkpoints)
        self.state = checkpoint.state if checkpoint else TrainingState()
        self.saved_state = checkpoint.state if checkpoint else None
        self.checkpoint_written = time.monotonic()
        self._begin_stage(is_new=checkpoint is None)
        check_free_space(setup, run, self.model)
        if checkpoint:
            self.notes += check_fingerprint(checkpoint.fingerprint, self.fingerprint, run=run.path)
            if device.type == "cuda":  # some kernels add up in the order in which their threads end
                self.notes.append("on a GPU a run that goes on may differ in the last digits from an uninterrupted one")
            checkpoint.restore(self.model, self.optimizers)
        self.metric_log = MetricLog(
            metrics_file=run.metrics_file,
            tensorboard=run.tensorboard if with_report else None,
            resume_after={"data": 0, "train": self.state.step, "validation": self.state.validated_step}
            if checkpoint
            else None,
            config_text=setup.config.to_yaml(),
            label_names=setup.dataset.label_names,
            warn=self.notes.append,
        )
        if not checkpoint:
            self.metric_log.log(0, "data", setup.data_statistics)

    def _begin_stage(self, *, is_new: bool) -> None:
        """Make the stage's model with its optimizers; of a new stage with its first weights."""
        setup = self.setup
        self.stage = setup.stages[self.state.stage]
        model = setup.new_model(self.stage).to(self.device)
        earlier = self.run.stage(self.stage.starts_from) if self.stage.starts_from else None
        if is_new and earlier and earlier.is_dir():  # else there was no time for it
            former = read_encoder_weights(earlier)
            model.load_state_dict({name: torch.from_numpy(weight) for name, weight in former.items()})
        elif is_new and setup.former and setup.former.encoder:
            start_from(setup.former, model, label_names=setup.dataset.label_names)
        self.model = model
        self.classifier = setup.new_classifier(TorchEncoder(model, setup.config.model))
        self.optimizers = make_optimizers(model, setup.config.train)
        # The weights of an earlier stage are for training alone, so nothing is taken away from them.
        self.untrained_rows = UntrainedRows(setup.new_model(setup.stages[0])) if self._is_last_stage else None

    def events(self) -> Iterator[Event]:
        """All stages, each until its last step or until patience runs out; then the final report."""
        yield Started(step=self.state.step, total_steps=self.setup.total_steps)
        # Where a run goes on that had only its final report before it, nothing more is to be learned.
        if self.setup.recipe.linear and self._has_work_left:
            yield from self._fit_linear(self.setup.recipe.linear)
        while True:
            for event in self._train_stage():
                yield from self.noted()
                yield event
            if self._is_last_stage:
                break
            self.state = self.state.at_next_stage()
            self._begin_stage(is_new=True)
            self._save_checkpoint()
        self.group.end()  # the rest is for one
        if not self.with_report:
            return
        best_step = self.state.best_step if self.state.has_beaten_linear else 0
        report = write_final_report(
            self.setup,
            self.run,
            self.metric_log,
            best_step=best_step,
            device=self.device,
            stop_if_asked=self._stop_if_asked,
        )
        yield from self.noted()
        yield Finished(report=report, best_step=best_step, seconds=time.monotonic() - self.started, gain=self._gain)

    @property
    def _gain(self) -> EncoderGain | None:
        """What the encoder brought; a lower loss is the better one, so a score of it has a sign."""
        best, to_beat = self.state.best_score, self.state.score_to_beat
        if to_beat is None:
            return None
        return EncoderGain(self.setup.config.train.monitor, abs(to_beat[0]), abs(best[0]) if best else None)

    def noted(self) -> Iterator[Noted]:
        """What has come up since this was asked last."""
        while self.notes:
            yield Noted(self.notes.pop(0))

    @property
    def _is_last_stage(self) -> bool:
        return self.stage is self.setup.stages[-1]

    @property
    def _has_work_left(self) -> bool:
        return not self._is_last_stage or self.stage.has_work_left(self.state)

    @property
    def _total_steps(self) -> int:
        """Steps of all stages, as far as is known."""
        still_to_come = sum(later.total_steps for later in self.setup.stages[self.state.stage + 1 :])
        return self.state.stage_start + self.stage.steps(self.state) + still_to_come

    def _train_stage(self) -> Iterator[Event]:
        """One stage, with checkpoints at validations, at the end, and wherever the config asks for one."""
        stage, config = self.stage, self.setup.config.train
        seconds = self.time_budget.seconds_for(pretraining=not self._is_last_stage)
        # Of the model there is a step at least, unless something else is there to be used.
        if seconds == 0 and self.state.step_in_stage == 0 and (self.linear or not self._is_last_stage):
            self.state = replace(self.state, stage_steps=0)
            yield self._steps_decided()
            return
        loop = StageLoop(self._learner(), self.state, config=config, metric_log=self.metric_log, seconds=seconds)
        yield StageStarted(stage=stage, step=self.state.step, total_steps=self._total_steps)
        try:
            for told in loop.events(self._stop_if_asked):
                has_decided = loop.state.stage_steps != self.state.stage_steps
                self.state = loop.state
                event = self._judged(told) if isinstance(told, Validated) and told.is_best else told
                yield event
                if isinstance(event, Stepped) and has_decided:
                    yield self._steps_decided()
                is_due = config.checkpoint_every and self.state.step % config.checkpoint_every == 0
                if is_due or (isinstance(event, Validated) and self._is_checkpoint_old):
                    self._save_checkpoint()
            if self._is_last_stage:
                self._save_checkpoint()
        except NonFiniteError as error:
            raise self._diverged(error) from None
        except LostProcessError:
            self._save_checkpoint()
            raise

    def _learner(self) -> Learner:
        """That of the stage, here and in the other processes."""
        if self.group.size > 1:
            files = to_files(self.model, self.optimizers, self.state, fingerprint=self.fingerprint)
            lead_stage(self.group, self.state.stage, files, self.answers if self._is_last_stage else None)
        return Learner(
            stage=self.stage,
            model=self.model,
            optimizers=self.optimizers,
            objective=self.stage.make_objective(self.device, self.answers),
            settings=self.settings,
            untrained_rows=self.untrained_rows,
        )

    def _steps_decided(self) -> StepsDecided:
        return StepsDecided(stage=self.stage, steps=self.stage.steps(self.state), total_steps=self._total_steps)

    def _fit_linear(self, read: LinearInput) -> Iterator[Event]:
        """Fit the linear classifier, and save it as the model as long as no weights of an encoder were better."""
        is_new = self.state.score_to_beat is None
        linear = fit_calibrated_linear(self.setup, self.run, read, save_first=is_new, stop_if_asked=self._stop_if_asked)
        self.linear, self.answers = linear.classifier, self.setup.answers_of(linear.fitted)
        result = linear.result
        assert result  # there is no encoder without validation texts
        self.state = replace(self.state, score_to_beat=result.selection_key)
        if not (self._is_last_stage and self.state.has_beaten_linear):
            save_classifier(self.linear, self.run.model)
        if linear.fitted.few_labels:
            yield LinearFitted(step=self.state.step, result=linear.fitted.few_labels)
        if is_new:
            self.metric_log.log(0, "validation", result.row(epoch=0, is_drawn=True))
            yield Validated(stage=self.setup.stages[-1], step=0, epoch=0, result=result, is_best=True)

    def _judged(self, event: Validated) -> Validated:
        """The stage's best validation so far; its weights are saved unless the linear classifier alone is better."""
        if self._is_last_stage and not self.state.has_beaten_linear:
            return replace(event, is_best=False)
        self._save_best(event.result)
        return event

    def _save_best(self, result: ValidationResult) -> None:
        """Save the weights with what has been fitted for them, as the stage's result as far as is known."""
        if self.linear and self._is_last_stage:
            self.classifier.linear = self.linear.linear
        if result.mixture_weights and result.mixture_shares:
            self.classifier.mixture_weights = result.mixture_weights
            self.classifier.mixture_shares = dict(zip(self.classifier.parts, result.mixture_shares, strict=True))
            self.classifier.thresholds = result.thresholds
        if self.untrained_rows is None:
            save_classifier(self.classifier, self.run.stage(self.stage.name))
            return
        validated = copy.copy(self.classifier)
        validated.encoder = TorchEncoder(self.untrained_rows.zeroed(self.model), self.setup.config.model)
        save_classifier(validated, self.run.model)

    @property
    def _is_checkpoint_old(self) -> bool:
        """Whether what a crash would lose is worth the time of writing."""
        return time.monotonic() - self.checkpoint_written >= SECONDS_BETWEEN_CHECKPOINTS

    def _save_checkpoint(self) -> None:
        if self.state == self.saved_state:
            return
        self.metric_log.flush()
        save_checkpoint(
            self.run.checkpoints,
            self.model,
            self.optimizers,
            self.state,
            fingerprint=self.fingerprint,
            keep=self.setup.config.train.keep_checkpoints,
        )
        self.saved_state, self.checkpoint_written = self.state, time.monotonic()

    def _stop_if_asked(self) -> None:
        signal_number = self.stop_signal()
        if signal_number is None:
            return
        self._save_checkpoint()
        saved = f"; {self.run.model} holds the best model so far" if self.run.model.is_dir() else ""
        raise StoppedError(
            f"stopped at step {self.state.step}; a checkpoint is written, --resume goes on from it{saved}",
            signal_number=signal_number,
        )

    def _diverged(self, error: NonFiniteError) -> DivergedError:
        """With the step that failed, its learning rate and some of its texts."""
        step = self.state.step_in_stage
        rate = learning_rate(step, total_steps=self.stage.steps(self.state), config=self.setup.config.train)
        texts = np.concatenate(self.stage.sampler.batches_of_step(step))[:3].tolist()
        examples = ", ".join(self.setup.where(self.stage.rows[text]) for text in texts)
        return DivergedError(self.state.step + 1, f"{error}, learning rate {rate:.3g}, batch of {examples}, …")


def train(
    setup: TrainingSetup,
    run: RunDir,
    *,
    device: torch.device,
    resume: bool = False,
    stop_signal: StopSignal = lambda: None,
    with_report: bool = True,
    group: ProcessGroup = ALONE,
) -> Iterator[Event]:
    """Train into a run folder, telling of each step.

    Args:
        setup: of the config and its data.
        run: where to; it must be new, unless resumed.
        device: where to train.
        resume: go on from the newest checkpoint; a finished run ends at once, an empty folder starts a new run.
        stop_signal: asked after each step and each batch of a validation.
        with_report: else nothing is shown in TensorBoard, and with the best weights in `model/` the run is at its end:
            no report, no model card, and weights in float32.
        group: the processes that train together, of which this is the first; the others call `follow`.

    Raises:
        ConfigError: the folder holds something else, or a run with another config or other data.
        DivergedError: the loss or the gradient is no finite number; what was written before is good.
        StoppedError: a signal asked to stop; a checkpoint has been written, and the best model so far is in `model/`.
        LostProcessError: another process of the group has ended; a checkpoint has been written.
        EncoderClsError: another process trains in the folder, or the disk refuses.
    """
    with run.open_for_training(setup.config, resume=resume):
        if run.is_finished():
            return
        make = partial(EncoderTrainer, group=group) if setup.has_encoder else LinearTrainer
        trainer = make(setup, run, device=device, stop_signal=stop_signal, with_report=with_report)
        run.record_sources(setup.config)
        with trainer.metric_log:
            yield from trainer.events()
        yield from trainer.noted()
