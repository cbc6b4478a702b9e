"""The number of steps of a training: those of all epochs, or as many as there is time for.

The first steps are timed, on a GPU after a warm-up.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

from encoder_cls.encoder_training.distributed import ProcessGroup
from encoder_cls.encoder_training.training_state import TrainingState


@dataclass(frozen=True, kw_only=True)
class TrainingLength:
    """The most epochs, and the steps between validations."""

    epochs: int
    steps_per_epoch: int
    validate_every: int

    @property
    def total_steps(self) -> int:
        """The steps of all epochs."""
        return self.epochs * self.steps_per_epoch


# The step limit is decided earlier if the timed steps have taken this fraction of the time.
MAX_TIMING_SHARE = 0.1

# The warm-up ends earlier if it has taken this fraction of the time.
MAX_WARM_UP_SHARE = 0.3


@dataclass(frozen=True, kw_only=True)
class StepTiming:
    """The first steps, which are slower and not timed, and those that are timed after them."""

    warm_up_steps: int
    timed_steps: int


# All steps on a CPU are equally fast.
CPU_TIMING = StepTiming(warm_up_steps=0, timed_steps=20)

# A GPU loads its kernels in the first step, which takes seconds, and records a CUDA graph for each
# shape of a batch in further ones: they take up to ten times as long as those that are replayed.
GPU_TIMING = StepTiming(warm_up_steps=200, timed_steps=100)

# A training with time for fewer steps is skipped if the run has another model.
MIN_STEPS_IN_TIME = 20


class StepLimiter:
    """Times steps, and decides how many the time budget allows.

    It counts those since the start or resumption, as the time of earlier ones is unknown.

    Args:
        seconds: for training and what follows; None without a limit.
        validation_cost: in steps.
        report_cost: of what follows the training, in steps.
        may_skip: whether a training with time for a few steps only is skipped.
        group: whose processes all get the decision of the first.
    """

    def __init__(
        self,
        seconds: float | None,
        *,
        length: TrainingLength,
        validation_cost: float,
        report_cost: float,
        may_skip: bool,
        timing: StepTiming,
        group: ProcessGroup,
    ) -> None:
        self._has_budget = seconds is not None
        self._seconds = math.inf if seconds is None else seconds
        self._length = length
        self._validation_cost = validation_cost
        self._report_cost = report_cost
        self._may_skip = may_skip
        self._timing = timing
        self._group = group

        self._warm_up_steps = 0
        self._warm_up_seconds = 0.0
        self._timed_steps = 0
        self._timed_seconds = 0.0

    def add_steps(self, count: int, seconds: float) -> None:
        """Count steps that took some seconds together."""
        if self._is_warming_up:
            self._warm_up_steps += count
            self._warm_up_seconds += seconds
        else:
            self._timed_steps += count
            self._timed_seconds += seconds

    @property
    def _is_warming_up(self) -> bool:
        if self._warm_up_steps >= self._timing.warm_up_steps:
            return False
        return self._warm_up_seconds < MAX_WARM_UP_SHARE * self._seconds

    def is_deciding(self, state: TrainingState) -> bool:
        """Whether there is a budget, and no decision yet."""
        return self._has_budget and state.step_limit is None

    def has_enough_with(self, more_steps: int, more_seconds: float) -> bool:
        """Whether the steps so far, and some more, show how long others take."""
        if self._is_warming_up:
            return False
        if self._timed_steps + more_steps >= self._timing.timed_steps:
            return True
        return self._timed_seconds + more_seconds >= MAX_TIMING_SHARE * self._seconds

    def decide(self, state: TrainingState) -> TrainingState:
        """Set the step limit once enough steps are timed; as a part of the state, it is resumed."""
        limit = None
        if self.has_enough_with(0, 0.0):
            steps_before_timing = state.step_in_training - self._timed_steps
            limit = steps_before_timing + self.affordable_steps(
                self._timed_seconds / self._timed_steps
            )

        limit = self._group.broadcast_value(limit)
        if limit is None:
            return state

        steps_done = state.step_in_training
        total_steps = self._length.total_steps
        if self._may_skip and limit < min(MIN_STEPS_IN_TIME, total_steps):
            return replace(state, step_limit=steps_done, outcome="skipped")
        return replace(state, step_limit=min(max(limit, steps_done), total_steps))

    def affordable_steps(self, seconds_per_step: float) -> int:
        """The steps that there is time for, with validations and report."""
        # Measure the time after the warm-up in steps, which may be infinitely many. The last
        # validation and the report come in any case.
        seconds = self._seconds - self._warm_up_seconds
        steps = seconds / seconds_per_step - self._validation_cost - self._report_cost

        # Validations come at regular intervals, so each step pays for a part of a validation.
        cost_per_step = 1 + self._validation_cost / self._length.validate_every
        return int(min(max(steps / cost_per_step, 0), self._length.total_steps))
