"""What is due in a stage at each of its steps, and how its state changes, without any training."""

from __future__ import annotations

import numpy as np
import pytest

from encoder_cls.config import TrainConfig
from encoder_cls.training.encoder.batches import BatchSampler
from encoder_cls.training.encoder.checkpoint import TrainingState
from encoder_cls.training.encoder.stages import PLOTTED_VALIDATIONS, ModelStage, Stage
from encoder_cls.training.plan import Schedule


def make_stage(
    *,
    steps_per_epoch: int = 6,
    epochs: int = 3,
    validate_every: int = 6,
    patience: int | None = None,
    validation_cost: float = 0.0,
    report_cost: float = 0.0,
) -> Stage:
    """A stage that learns nothing from texts that there are not."""
    lengths = np.full(steps_per_epoch, 2)
    stage = ModelStage(
        prepared=None,
        device=None,
        seed=0,
        texts=None,
        rows=None,
        sampler=BatchSampler(lengths, TrainConfig(batch_size=1, batch_tokens=100), seed=0),
        schedule=Schedule(epochs=epochs, steps_per_epoch=steps_per_epoch, validate_every=validate_every),
        patience=patience,
    )
    stage.validation_cost, stage.report_cost = validation_cost, report_cost
    return stage


STATE = TrainingState(step=7, stage=1, stage_start=4, validated_step=6, best_score=(0.5, -1.0), best_step=5)


def at(step: int, **values: object) -> TrainingState:
    """The state after so many steps of a second stage."""
    return TrainingState(step=100 + step, stage=1, stage_start=100, validated_step=100, **values)


def test_validations_are_due_at_intervals_and_at_the_end():
    """Counted from the start of the stage; never before its first step."""
    stage = make_stage(validate_every=4)
    due = [step for step in range(19) if stage.is_validation_due(at(step))]
    assert due == [4, 8, 12, 16, 18]


def test_a_stage_is_done_after_its_last_step():
    """That of all epochs, or an earlier one where a limit of time has decided so, which is then validated."""
    stage = make_stage()
    assert [step for step in range(19) if stage.is_done(at(step))] == [18]
    assert [step for step in range(12) if stage.is_done(at(step, stage_steps=11))] == [11]
    assert stage.is_validation_due(at(11, stage_steps=11))


def test_work_is_left_until_the_last_validation():
    """A step or a validation: at the last step there still is one, unless it has been."""
    stage, last = make_stage(patience=2), at(18)
    assert stage.has_work_left(at(17))
    assert stage.has_work_left(last)
    assert not stage.has_work_left(last.after_validation((0.0, 0.0), is_warming_up=False))
    stopped_early = at(6, stale_validations=1, best_score=(1.0, 1.0)).after_validation((0.0, 0.0), is_warming_up=False)
    assert not stage.has_work_left(stopped_early)


@pytest.mark.parametrize(("epochs", "validate_every"), [(1, 6), (3, 6), (10, 6), (27, 6), (100, 7), (5, 1), (3, 4)])
def test_pictures_are_of_ten_validations_at_most(epochs, validate_every):
    """Evenly spaced, the last among them; of each where there are no more than ten."""
    stage = make_stage(epochs=epochs, validate_every=validate_every)
    validated = [step for step in range(stage.schedule.total_steps + 1) if stage.is_validation_due(at(step))]
    drawn = [step for step in validated if stage.is_drawn(at(step))]
    assert drawn[-1] == stage.schedule.total_steps
    assert len(drawn) == min(len(validated), PLOTTED_VALIDATIONS)
    if len(validated) > PLOTTED_VALIDATIONS:
        gaps = np.diff([0, *drawn])
        assert gaps.max() - gaps.min() <= 2 * validate_every
    else:
        assert drawn == validated


@pytest.mark.parametrize(
    ("seconds", "seconds_per_step", "costs", "steps"),
    [
        pytest.param(60, 0.5, (0, 0), 120, id="a limit within the stage"),
        pytest.param(60, 0.5, (3, 0), 78, id="with validations, each as long as three steps"),
        pytest.param(60, 0.5, (0, 50), 70, id="with a report after it"),
        pytest.param(60, 0.01, (0, 0), 600, id="more time than there are steps for"),
        pytest.param(60, 70.0, (0, 0), 0, id="less time than a step takes"),
        pytest.param(1.7e308, 0.1, (0, 0), 600, id="as much time as a number can say"),
    ],
)
def test_a_limit_of_time_affords_so_many_steps(seconds, seconds_per_step, costs, steps):
    """By the time of a step, of a validation every six and of one at the end; never more than there are."""
    stage = make_stage(epochs=100, validation_cost=costs[0], report_cost=costs[1])
    assert stage.affordable_steps(seconds, seconds_per_step) == steps


@pytest.mark.parametrize(
    ("score", "is_best"),
    [((0.6, -9.0), True), ((0.5, -0.9), True), ((0.5, -1.0), False), ((0.4, 0.0), False)],
    ids=["better", "equal, and better in the second number", "equal", "worse"],
)
def test_a_validation_is_the_best_or_a_stale_one(score, is_best):
    """A better one is remembered with its step, and counting restarts; of any other only the number is kept."""
    stale = STATE.after_validation((0.0, 0.0), is_warming_up=False)
    after = stale.after_validation(score, is_warming_up=False)
    assert stale.is_best(score) == is_best
    assert after.validated_step == 7
    assert (after.best_score, after.best_step) == ((score, 7) if is_best else (STATE.best_score, 5))
    assert (stale.stale_validations, after.stale_validations) == (1, 0 if is_best else 2)


def test_the_next_stage_starts_at_the_last_step_of_the_one_before():
    """With no score, no sums and no limit of steps; what is validated is behind it."""
    ended = TrainingState(step=9, stage=0, stage_steps=9, validated_step=9, best_score=(1.0, 1.0), sums={"loss": 1.0})
    new = ended.at_next_stage()
    assert new == TrainingState(step=9, stage=1, stage_start=9, validated_step=9, best_step=9)
    assert new.step_in_stage == 0
