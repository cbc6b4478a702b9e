"""How many steps of a training a time budget allows."""

from __future__ import annotations

from dataclasses import replace

import pytest

from encoder_cls.encoder_training.distributed import ProcessGroup
from encoder_cls.encoder_training.steps_in_time import (
    CPU_TIMING,
    StepLimiter,
    StepTiming,
    TrainingLength,
)
from encoder_cls.encoder_training.training_state import TrainingState


@pytest.mark.parametrize(
    ("seconds", "seconds_per_step", "validation_cost", "report_cost", "steps"),
    [
        pytest.param(60, 0.5, 0, 0, 120, id="a limit within the training"),
        pytest.param(60, 0.5, 3, 0, 78, id="with validations, each as long as three steps"),
        pytest.param(60, 0.5, 0, 50, 70, id="with a report after it"),
        pytest.param(60, 0.01, 0, 0, 600, id="more time than there are steps for"),
        pytest.param(60, 70.0, 0, 0, 0, id="less time than a step takes"),
        pytest.param(1.7e308, 0.1, 0, 0, 600, id="as much time as a float can represent"),
    ],
)
def test_a_time_budget_allows_this_number_of_steps(
    seconds, seconds_per_step, validation_cost, report_cost, steps
):
    """A validation comes after every sixth step and at the end; there are 600 steps."""
    limiter = new_limiter(
        seconds, timing=CPU_TIMING, validation_cost=validation_cost, report_cost=report_cost
    )

    assert limiter.affordable_steps(seconds_per_step) == steps


def new_limiter(
    seconds: float, *, timing: StepTiming, validation_cost: float = 0, report_cost: float = 0
) -> StepLimiter:
    """A limiter for a training of 600 steps."""
    return StepLimiter(
        seconds,
        length=TrainingLength(epochs=100, steps_per_epoch=6, validate_every=6),
        validation_cost=validation_cost,
        report_cost=report_cost,
        may_skip=False,
        timing=timing,
        group=ProcessGroup(),
    )


def limit_after(limiter: StepLimiter, *groups: tuple[int, float]) -> int | None:
    """The step limit after groups of steps, each with its seconds; None if it is not decided."""
    state = TrainingState()
    for count, seconds in groups:
        state = replace(state, step=state.step + count)
        limiter.add_steps(count, seconds)
        if limiter.is_deciding(state):
            state = limiter.decide(state)
    return state.step_limit


def test_the_first_steps_on_a_gpu_do_not_count_for_its_speed():
    """Ten steps take 30 seconds, and all later ones a second each: 70 seconds are left."""
    timing = StepTiming(warm_up_steps=10, timed_steps=5)

    assert limit_after(new_limiter(100, timing=timing), (10, 30.0)) is None
    assert limit_after(new_limiter(100, timing=timing), (10, 30.0), (5, 5.0)) == 80


def test_a_long_warm_up_ends_early():
    """The first step takes a third of the time; the next ones show the speed."""
    timing = StepTiming(warm_up_steps=200, timed_steps=5)

    assert limit_after(new_limiter(100, timing=timing), (1, 35.0), (5, 5.0)) == 66
