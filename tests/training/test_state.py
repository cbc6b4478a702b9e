"""The state of a training: how a step, a validation and a new stage change it."""

from __future__ import annotations

import pytest

from encoder_cls.training.encoder.stage import TrainingState

STATE = TrainingState(step=7, stage=1, stage_start=4, validated_step=6, best_score=(0.5, -1.0), best_step=5)


def test_a_step_adds_up_what_has_not_been_logged():
    """Metric by metric; nothing but the step and the sums changes."""
    metrics = {"loss": 0.5, "tokens": 30}
    once = STATE.after_step(metrics)
    twice = once.after_step(metrics)
    assert (once.step, once.step_in_stage, once.sums) == (8, 4, {"steps": 1, "loss": 0.5, "tokens": 30})
    assert (twice.step, twice.step_in_stage, twice.sums) == (9, 5, {"steps": 2, "loss": 1.0, "tokens": 60})
    assert twice.best_score == STATE.best_score
    assert STATE.sums == {}


@pytest.mark.parametrize(
    ("score", "is_best"),
    [((0.6, -9.0), True), ((0.5, -0.9), True), ((0.5, -1.0), False), ((0.4, 0.0), False)],
    ids=["better", "equal, and better in the second number", "equal", "worse"],
)
def test_a_validation_is_the_best_or_a_stale_one(score, is_best):
    """A better one is remembered with its step, and counting begins anew; of any other only the number is kept."""
    stale = STATE.after_validation((0.0, 0.0), is_warming_up=False)
    after = stale.after_validation(score, is_warming_up=False)
    assert stale.is_best(score) == is_best
    assert after.validated_step == 7
    assert (after.best_score, after.best_step) == ((score, 7) if is_best else (STATE.best_score, 5))
    assert (stale.stale_validations, after.stale_validations) == (1, 0 if is_best else 2)


def test_the_first_validation_is_the_best():
    """However low its score."""
    assert TrainingState().is_best((-9.0, -9.0))


def test_while_the_learning_rate_rises_no_validation_is_stale():
    """And those before do not count either."""
    stale = STATE.after_validation((0.0, 0.0), is_warming_up=False)
    assert stale.after_validation((0.0, 0.0), is_warming_up=True).stale_validations == 0


def test_the_next_stage_begins_at_the_step_of_the_former():
    """With no score, no sums and no limit of steps; what is validated is behind it."""
    ended = TrainingState(step=9, stage=0, stage_steps=9, validated_step=9, best_score=(1.0, 1.0), sums={"loss": 1.0})
    begun = ended.at_next_stage()
    assert begun == TrainingState(step=9, stage=1, stage_start=9, validated_step=9, best_step=9)
    assert begun.step_in_stage == 0
