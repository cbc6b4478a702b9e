"""Train an encoder: the loop of steps and validations.

Pretraining and training on labels use the same loop, and differ in their `TrainingTask`.
"""

from __future__ import annotations

import time
from collections.abc import Generator, Iterator, Mapping
from contextlib import closing
from dataclasses import dataclass, replace
from typing import NamedTuple

from torch import Tensor

from encoder_cls.config.schema import TrainConfig
from encoder_cls.encoder.transformer import EncoderClassifier
from encoder_cls.encoder_training.embedding_tables import without_untrained
from encoder_cls.encoder_training.learning_rate import learning_rate, warmup_steps
from encoder_cls.encoder_training.steps_in_time import (
    CPU_TIMING,
    GPU_TIMING,
    StepLimiter,
    TrainingLength,
)
from encoder_cls.encoder_training.training_state import Outcome, StepMetrics, TrainingState
from encoder_cls.encoder_training.training_step import StartedStep, Trainer, metrics_of
from encoder_cls.encoder_training.training_task import HasScore
from encoder_cls.errors import DivergedError
from encoder_cls.metrics.validation_score import ValidationScore
from encoder_cls.system.machine import release_memory
from encoder_cls.system.stop import check_stop

# --- The events of a training ---------------------------------------------------------------------


class StepDone(NamedTuple):
    """A step; a training that runs ahead yields several at once, when their metrics are known.

    The model is then that of the last one, after which alone a checkpoint or a validation is due.

    Attributes:
        values: to log; None between rows of the log.
    """

    state: TrainingState
    loss: float
    values: dict[str, float] | None


class ValidationDone(NamedTuple):
    """A validation; `result` is None in all processes but the first."""

    state: TrainingState
    result: HasScore | None
    is_best: bool


class Ended(NamedTuple):
    """The last event."""

    state: TrainingState


@dataclass
class Speed:
    """Tokens without padding, and seconds, since the last row of the log."""

    tokens: int = 0
    seconds: float = 0.0

    def add(self, tokens: int, seconds: float) -> None:
        """Add a step."""
        self.tokens += tokens
        self.seconds += seconds

    def tokens_per_second(self) -> float:
        """The tokens per second, without padding."""
        return self.tokens / self.seconds

    def reset(self) -> None:
        """Begin again, after a row of the log."""
        self.tokens = 0
        self.seconds = 0.0


# --- A training -----------------------------------------------------------------------------------

# The number of steps in a row that may be skipped because their gradients are not finite. After one
# more, the training has diverged.
MAX_SKIPPED_IN_A_ROW = 2

# The maximum number of steps that are started before their metrics are read. The progress bar and
# signals to stop wait for these steps.
MAX_STEPS_AHEAD = 50

# Freed memory is returned to the system after this many steps. To return it every ten steps would
# take 5% of the training time.
STEPS_BETWEEN_RELEASES = 50


@dataclass(kw_only=True)
class EncoderTraining:
    """The steps and validations of a trainer, and when they end.

    Attributes:
        name: `pretraining` or `model`.
        length: the most steps, and the interval of validations.
        patience: how many validations in a row without a better score end it; None for all epochs.
        validation_cost: in steps.
        report_cost: of what follows the training, in steps.
        initial_tables: the embedding tables before any training, to find rows never trained; None
            if they do not matter.
    """

    name: str
    trainer: Trainer
    length: TrainingLength
    config: TrainConfig
    patience: int | None = None
    validation_cost: float = 0.0
    report_cost: float = 0.0
    initial_tables: Mapping[str, Tensor] | None = None

    @property
    def model_for_users(self) -> EncoderClassifier:
        """The model to validate and save, with zeros in untrained rows."""
        if self.initial_tables is None:
            return self.trainer.model
        return without_untrained(self.trainer.model, self.initial_tables)

    def run(
        self, state: TrainingState, *, seconds: float | None = None, may_skip: bool = False
    ) -> Iterator[StepDone | ValidationDone | Ended]:
        """Train until the last step, or until patience or time runs out.

        `seconds` and `may_skip` are as in `StepLimiter`.

        Raises:
            StoppedError: by a signal before a step or during a validation.
            DivergedError: the loss of a step, the logits of a validation, or the gradients of more
                than `MAX_SKIPPED_IN_A_ROW` steps in a row are not finite. The last step has updated
                nothing.
            LostProcessError: another process has ended.
        """
        with closing(self.trainer):
            yield from self._events(state, seconds, may_skip=may_skip)

    def _events(
        self, state: TrainingState, seconds: float | None, *, may_skip: bool
    ) -> Iterator[StepDone | ValidationDone | Ended]:
        group = self.trainer.group

        # All processes follow the first one, because their clocks may differ.
        has_no_time = group.broadcast_value(seconds == 0)
        has_begun = state.step_in_training > 0 or state.outcome is not None
        if has_no_time and may_skip and not has_begun:
            yield Ended(replace(state, step_limit=0, outcome="skipped"))
            return

        limiter = StepLimiter(
            seconds,
            length=self.length,
            validation_cost=self.validation_cost,
            report_cost=self.report_cost,
            may_skip=may_skip,
            timing=GPU_TIMING if self.trainer.device.type == "cuda" else CPU_TIMING,
            group=group,
        )
        speed = Speed()

        while True:
            if self.is_validation_due(state):
                group.exit_if_first_has_ended()
                state, result = self._validate(state)

                # A new best score has set the best step to the current one.
                is_best = state.best_step == state.step
                yield ValidationDone(state, result, is_best=is_best)

            outcome = self.outcome(state)
            if outcome is not None:
                release_memory()
                yield Ended(replace(state, outcome=outcome))
                return

            # The first process stops at a signal, and the others end with it.
            check_stop()
            group.exit_if_first_has_ended()

            state = yield from self._take_steps(state, limiter, speed)

    def _take_steps(
        self, state: TrainingState, limiter: StepLimiter, speed: Speed
    ) -> Generator[StepDone, None, TrainingState]:
        # Start the steps, then wait for their metrics.
        started = time.perf_counter()
        steps = self._start_steps(state, limiter, started)
        all_metrics = metrics_of(steps)
        seconds = time.perf_counter() - started
        last_step = state.step + len(steps)

        for metrics in all_metrics:
            rate = self._learning_rate(state.step_in_training, state)
            self._check_finite(state, metrics, rate)
            state = state.after_step(metrics)

            # The speed of the first steps shows how many steps the time budget allows. The event of
            # the last step already has this limit in its state, for a checkpoint.
            if state.step == last_step:
                limiter.add_steps(len(steps), seconds)
                if limiter.is_deciding(state):
                    state = limiter.decide(state)

            # A row of the log has the means over all steps since the row before.
            speed.add(metrics.tokens, seconds / len(steps))
            row = None
            if state.step_in_training % self.config.log_every == 0:
                row = {
                    **state.mean_metrics(),
                    "learning_rate": rate,
                    "tokens_per_s": speed.tokens_per_second(),
                    "epoch": self.epoch(state),
                }
                state = replace(state, sums={})
                speed.reset()
            yield StepDone(state, metrics.loss, row)

            if state.step % STEPS_BETWEEN_RELEASES == 0:
                release_memory()
        return state

    def _start_steps(
        self, state: TrainingState, limiter: StepLimiter, started: float
    ) -> list[StartedStep]:
        """Start the next step, or several if the training runs ahead.

        While the step limit is not decided, the last one is the step that decides it. The first one
        starts at `started`, a time of `time.perf_counter`.
        """
        steps: list[StartedStep] = []
        for step in self._steps_to_start(state):
            if steps and limiter.is_deciding(state):
                seconds = time.perf_counter() - started
                if limiter.has_enough_with(len(steps), seconds):
                    break
            steps.append(self.trainer.start_step(step, self._learning_rate(step, state)))
        return steps

    def _steps_to_start(self, state: TrainingState) -> range:
        """The steps, counted from 0, to start before their metrics are read.

        A training that runs ahead starts those up to the next row of the log, validation or
        checkpoint; any other starts one.
        """
        first = state.step_in_training
        if not self.trainer.runs_ahead:
            return range(first, first + 1)

        ends = [
            first + MAX_STEPS_AHEAD,
            self.max_steps(state),
            _next_multiple(first, self.config.log_every),
            _next_multiple(first, self.length.validate_every),
        ]
        # Checkpoints are due by the steps of the run, which may begin with another training.
        if self.config.checkpoint_every:
            next_checkpoint = _next_multiple(state.step, self.config.checkpoint_every)
            ends.append(next_checkpoint - state.first_step)
        return range(first, min(ends))

    def _learning_rate(self, step: int, state: TrainingState) -> float:
        return learning_rate(step, total_steps=self.max_steps(state), config=self.config)

    def max_steps(self, state: TrainingState) -> int:
        """The steps of all epochs, or as many as there is time for."""
        if state.step_limit is None:
            return self.length.total_steps
        return state.step_limit

    def epoch(self, state: TrainingState) -> float:
        """The epochs done, with a fraction."""
        return state.step_in_training / self.length.steps_per_epoch

    def is_validation_due(self, state: TrainingState) -> bool:
        """Whether to validate before the next step."""
        if state.outcome == "skipped" or state.step == state.validated_step:
            return False
        step = state.step_in_training
        return step % self.length.validate_every == 0 or step == self.max_steps(state)

    def outcome(self, state: TrainingState) -> Outcome | None:
        """How the training has ended; None if it goes on."""
        if state.outcome is not None:
            return state.outcome
        if self.patience is not None and state.stale_validations >= self.patience:
            return "patience"
        if state.step_in_training < self.max_steps(state):
            return None
        return "done" if self.max_steps(state) == self.length.total_steps else "time"

    def _validate(self, state: TrainingState) -> tuple[TrainingState, HasScore | None]:
        group = self.trainer.group
        with group.deferring_stops():
            result = self.trainer.task.validate(self.model_for_users)
        if group.is_first and result is None:
            raise DivergedError(state.step, "the logits of a validation text are not finite")

        my_score = vars(result.score) if result else {}
        score = ValidationScore(**group.broadcast_value(my_score))

        # Validations in which the learning rate still rises do not count against patience.
        is_warming_up = state.step_in_training <= warmup_steps(self.max_steps(state), self.config)
        return state.after_validation(score, is_warming_up=is_warming_up), result

    def _check_finite(self, state: TrainingState, metrics: StepMetrics, rate: float) -> None:
        has_failed_too_often = (
            not metrics.should_update and state.skipped_in_a_row == MAX_SKIPPED_IN_A_ROW
        )
        if metrics.has_finite_loss and not has_failed_too_often:
            return

        reason = f"loss {metrics.loss}, gradient norm {metrics.grad_norm}, learning rate {rate:.3g}"
        if state.skipped_in_a_row:
            reason += f", after {state.skipped_in_a_row} skipped steps"
        texts = self.trainer.task.describe_step(state.step_in_training)
        raise DivergedError(state.step + 1, f"{reason}; the batch includes {texts}")


def _next_multiple(number: int, interval: int) -> int:
    return (number // interval + 1) * interval
