"""The loop over one stage."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace

import torch

from encoder_cls.config import TrainConfig
from encoder_cls.errors import DivergedError
from encoder_cls.model import EncoderClassifier
from encoder_cls.system.machine import release_memory, resolve_precision
from encoder_cls.tracking.metric_log import MetricLog
from encoder_cls.training.encoder.batches import derive_seed
from encoder_cls.training.encoder.objectives import Objective
from encoder_cls.training.encoder.optimizer import Optimizer, UntrainedRows, learning_rate, warmup_steps
from encoder_cls.training.encoder.processes import ProcessGroup
from encoder_cls.training.encoder.stage import Stage, TrainingState
from encoder_cls.training.encoder.step import StepMetrics, StepSettings, train_step
from encoder_cls.training.encoder.validation import ValidationResult
from encoder_cls.training.events import Stepped, Validated


def step_settings(config: TrainConfig, group: ProcessGroup, device: torch.device) -> StepSettings:
    """How all steps of a run are computed on a device."""
    return StepSettings(
        max_grad_norm=config.max_grad_norm,
        precision=resolve_precision(config.precision, device),
        num_shards=config.gradient_shards,
        group=group,
        is_exact=config.exact,
    )


@dataclass(frozen=True, kw_only=True)
class Learner:
    """A model and all that changes it.

    What the first process does, it tells the others, which then do the same.

    Attributes:
        stage: of the training.
        model: which is trained.
        optimizers: of the model's parameters.
        objective: what is learned.
        settings: of the steps.
        untrained_rows: which are zero in a validation, as they are in what is saved; none: all are as they are.
    """

    stage: Stage
    model: EncoderClassifier
    optimizers: Sequence[Optimizer]
    objective: Objective
    settings: StepSettings
    untrained_rows: UntrainedRows | None = None

    def step(self, step: int, learning_rate: float) -> StepMetrics:
        """Take a step of the stage, counted from 0.

        Raises:
            NonFiniteError: there is no finite loss or gradient; nothing has been updated.
            LostProcessError: another process has ended; nothing has been updated.
        """
        self.settings.group.lead({"step": step, "learning_rate": learning_rate})
        return train_step(
            self.model,
            self.optimizers,
            self.objective,
            step,
            seed=derive_seed(self.stage.seed, step),
            learning_rate=learning_rate,
            settings=self.settings,
        )

    def validate(self, after_batch: Callable[[], None]) -> ValidationResult | None:
        """Validate the model; none where it gives no finite numbers, and in all processes but the first.

        Args:
            after_batch: called after each batch, or, where others share them, after all; what it raises ends the work.

        Raises:
            LostProcessError: another process has ended.
        """
        group = self.settings.group
        group.lead({"validate": True})
        model = self.untrained_rows.zeroed(self.model) if self.untrained_rows else self.model
        if group.size == 1:
            return self.objective.validate(model, after_batch)
        result = self.objective.validate(model, lambda: None, group)
        after_batch()
        return result


TIMED_STEPS = 20  # from which the time of the others is judged,
MOST_TIMING = 0.1  # of the time of the stage, or fewer that have taken this much of it
STEPS_BETWEEN_RELEASES = 50  # of memory, which is then allocated again: at every ten steps a twentieth of the time


class StageLoop:
    """One stage in progress.

    Args:
        learner: the stage's model with all that changes it.
        state: where it goes on.
        config: of the training.
        metric_log: where metrics go.
        seconds: that the stage may take, with what comes after it; none: as many as it takes.

    Attributes:
        state: after the last event.
    """

    def __init__(
        self,
        learner: Learner,
        state: TrainingState,
        *,
        config: TrainConfig,
        metric_log: MetricLog,
        seconds: float | None = None,
    ) -> None:
        self.state = state
        self._learner = learner
        self._stage = learner.stage
        self._config = config
        self._metric_log = metric_log
        self._seconds_to_spend = seconds
        # Of this process alone: how fast a run was before it was resumed is not known.
        self._timed_steps, self._seconds = 0, 0.0
        self._tokens_since_row, self._seconds_since_row = 0, 0.0

    def events(self, stop_if_asked: Callable[[], None]) -> Iterator[Stepped | Validated]:
        """Train until the last step, or until patience runs out.

        Args:
            stop_if_asked: called before each step and after each batch of a validation; what it raises ends the loop.

        Raises:
            NonFiniteError: a step had no finite loss or gradient; nothing has been updated.
            DivergedError: a validation had no finite logits.
        """
        while True:
            if self._stage.is_validation_due(self.state):
                yield self._validate(stop_if_asked)
            if self._stage.is_done(self.state):
                release_memory()
                return
            stop_if_asked()
            yield self._step()
            if self.state.step % STEPS_BETWEEN_RELEASES == 0:
                release_memory()

    def _step(self) -> Stepped:
        """One optimizer step."""
        began = time.perf_counter()
        stage, step = self._stage, self.state.step_in_stage
        rate = learning_rate(step, total_steps=stage.steps(self.state), config=self._config)
        metrics = self._learner.step(step, rate)
        self.state = self.state.after_step(metrics._asdict())
        taken = time.perf_counter() - began
        self._timed_steps, self._seconds = self._timed_steps + 1, self._seconds + taken
        self._tokens_since_row += metrics.tokens
        self._seconds_since_row += taken
        self._keep_to_time_budget()
        values = self._log_training(rate) if self.state.step_in_stage % self._config.log_every == 0 else None
        return Stepped(step=self.state.step, epoch=stage.epoch(self.state), loss=metrics.loss, values=values)

    def _keep_to_time_budget(self) -> None:
        """Where the stage has a limit of time, decide by its first steps how many there will be.

        The decision is part of the state: a run that goes on keeps to it, so that it equals one undisturbed.
        """
        seconds, done = self._seconds_to_spend, self.state.step_in_stage
        if seconds is None or self.state.stage_steps is not None:
            return
        if self._timed_steps >= TIMED_STEPS or self._seconds >= MOST_TIMING * seconds:
            affordable = self._stage.affordable_steps(seconds, self._seconds / self._timed_steps)
            steps = done - self._timed_steps + affordable
            self.state = replace(self.state, stage_steps=min(max(steps, done), self._stage.total_steps))

    def _log_training(self, rate: float) -> dict[str, float]:
        """Log the means since the last row."""
        sums = self.state.sums
        values = {
            "loss": sums["loss"] / sums["steps"],
            "grad_norm": sums["grad_norm"] / sums["steps"],
            "learning_rate": rate,
            "tokens_per_s": self._tokens_since_row / self._seconds_since_row,
            "padding_fraction": 1 - sums["tokens"] / sums["padded_tokens"],
            "epoch": self._stage.epoch(self.state),
        }
        self._metric_log.log(self.state.step, f"{self._stage.metric_prefix}train", values)
        self.state = replace(self.state, sums={})
        self._tokens_since_row, self._seconds_since_row = 0, 0.0
        return values

    def _validate(self, stop_if_asked: Callable[[], None]) -> Validated:
        """Validate the model."""
        state, stage = self.state, self._stage
        result = self._learner.validate(stop_if_asked)
        if result is None:
            raise DivergedError(state.step, "a validation text gets numbers that are not finite")
        is_best = state.is_best(result.selection_key)
        is_warming_up = state.step_in_stage <= warmup_steps(stage.steps(state), self._config)
        self.state = state.after_validation(result.selection_key, is_warming_up=is_warming_up)
        epoch = stage.epoch(state)
        values = result.row(epoch=epoch, is_drawn=stage.is_drawn(self.state))
        self._metric_log.log(state.step, f"{stage.metric_prefix}validation", values)
        return Validated(stage=stage, step=state.step, epoch=epoch, result=result, is_best=is_best)
