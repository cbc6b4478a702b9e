"""How many steps of a training a time budget allows."""

from __future__ import annotations

import pytest

from encoder_cls.encoder.distributed import ProcessGroup
from encoder_cls.encoder.step_limit import StepLimiter, TrainingLength


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
    limiter = StepLimiter(
        seconds,
        length=TrainingLength(epochs=100, steps_per_epoch=6, validate_every=6),
        validation_cost=validation_cost,
        report_cost=report_cost,
        may_skip=False,
        group=ProcessGroup(),
    )

    assert limiter.affordable_steps(seconds_per_step) == steps
