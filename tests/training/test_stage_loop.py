"""One stage by itself, without folder and checkpoint: what is due at each step, and its loop over scripted scores."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pytest
from encoder_cls.training.events import Stepped, Validated
from encoder_cls.training.loop import TIMED_STEPS, train_stage
from encoder_cls.training.replica import Replica
from encoder_cls.training.stages import PLOTTED_VALIDATIONS
from encoder_cls.training.validation import ValidationResult
from small_runs import make_config, make_replica

from encoder_cls.errors import DivergedError
from encoder_cls.run.checkpoint import TrainingState
from encoder_cls.system.stop import check_stop
from encoder_cls.training import loop as stage_loop
from encoder_cls.training.prepare import prepare


@dataclass
class Loop:
    """The loop of the only stage of a tiny run, six steps an epoch, with the state after the last event."""

    replica: Replica
    state: TrainingState
    seconds: float | None

    def events(self) -> Iterator[Stepped | Validated]:
        for state, event in train_stage(self.replica, self.state, seconds=self.seconds):
            self.state = state
            yield event


def make_loop(
    folder: Path,
    losses: Sequence[float] = (0.5,) * 99,
    *,
    state: TrainingState | None = None,
    seconds: float | None = None,
    **train_values: object,
) -> Loop:
    """A loop whose validations find these losses, one after the other, and then no finite ones."""
    replica, found = make_replica(prepare(make_config(folder, **train_values))), iter(losses)
    replica.stage.validation_cost = replica.stage.report_cost = 0.0

    def validate() -> ValidationResult | None:
        check_stop()
        loss = next(found, None)
        return None if loss is None else ValidationResult({"loss": loss}, (-loss, -loss))

    replica.validate = validate
    return Loop(replica, state or TrainingState(), seconds)


def test_steps_and_validations_come_in_order(tmp_path):
    """A validation after each epoch, and the state is that after the event."""
    loop = make_loop(tmp_path)
    seen = []
    for event in loop.events():
        assert loop.state.step == event.step
        assert (loop.state.validated_step == event.step) == isinstance(event, Validated)
        seen.append((type(event), event.step, event.epoch))
    expected = []
    for epoch in range(3):
        expected += [(Stepped, step, step / 6) for step in range(6 * epoch + 1, 6 * epoch + 7)]
        expected += [(Validated, 6 * epoch + 6, epoch + 1)]
    assert seen == expected


def due(loop: Loop, moment: str) -> list[int]:
    """The steps of a second stage, counted from its start, at which something is due."""
    is_due, steps = getattr(loop.replica.stage, moment), loop.replica.stage.schedule.total_steps + 1
    states = (
        TrainingState(step=100 + it, stage=1, stage_start=100, validated_step=100)
        for it in range(steps)
    )
    return [step for step, state in enumerate(states) if is_due(state)]


def test_validations_are_due_at_intervals_and_at_the_end(tmp_path):
    assert due(make_loop(tmp_path, validate_every=4), "is_validation_due") == [4, 8, 12, 16, 18]


@pytest.mark.parametrize(("epochs", "validate_every"), [(1, 6), (10, 6), (27, 6), (100, 7), (3, 4)])
def test_pictures_are_of_ten_validations_at_most(tmp_path, epochs, validate_every):
    """Evenly spaced, the last among them; of each where there are no more than ten."""
    loop = make_loop(tmp_path, epochs=epochs, validate_every=validate_every)
    validated = due(loop, "is_validation_due")
    drawn = [step for step in validated if step in due(loop, "is_drawn")]
    assert drawn[-1] == loop.replica.stage.schedule.total_steps
    assert len(drawn) == min(len(validated), PLOTTED_VALIDATIONS)
    assert np.ptp(np.diff([0, *drawn])) <= 2 * validate_every


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
def test_a_limit_of_time_affords_so_many_steps(tmp_path, seconds, seconds_per_step, costs, steps):
    """By the time of a step, of a validation every six and of one at the end; never more than there are."""
    stage = make_loop(tmp_path, epochs=100).replica.stage
    stage.validation_cost, stage.report_cost = costs
    assert stage.affordable_steps(seconds, seconds_per_step) == steps


@pytest.mark.parametrize(
    ("losses", "patience", "is_best"),
    [
        ([0.5, 0.3, 0.4, 0.4, 0.1], 2, [True, True, False, False]),
        ([0.5, 0.6, 0.4, 0.5, 0.5, 0.1], 2, [True, False, True, False, False]),
        ([0.5, 0.6, 0.7, 0.8, 0.9, 0.6, 0.7, 0.8, 0.4], None, [True, *[False] * 7, True]),
    ],
)
def test_patience_ends_the_stage(tmp_path, losses, patience, is_best):
    """After so many validations in a row without a better score; without patience it goes on."""
    loop = make_loop(tmp_path, losses, epochs=9, patience=patience, warmup_fraction=0.0)
    assert [event.is_best for event in loop.events() if isinstance(event, Validated)] == is_best


@pytest.mark.parametrize(("warmup", "validations"), [(0.0, 2), (0.5, 5)])
def test_patience_waits_for_the_learning_rate_to_rise(tmp_path, warmup, validations):
    """Worse validations on the way up say nothing; those after it count as ever."""
    loop = make_loop(tmp_path, [0.5, *[0.6] * 8], epochs=8, patience=1, warmup_fraction=warmup)
    assert sum(isinstance(event, Validated) for event in loop.events()) == validations


def test_a_validation_without_finite_numbers_ends_it(tmp_path):
    loop = make_loop(tmp_path, [0.5])
    with pytest.raises(DivergedError, match="step 12: the logits of a validation text"):
        list(loop.events())
    assert (loop.state.step, loop.state.validated_step) == (12, 6)


def test_rows_are_means_over_the_steps_since_the_last_row(tmp_path):
    """Of steps of a process before this one, too, where they are in the state."""
    steps = [
        event for event in make_loop(tmp_path, log_every=4).events() if isinstance(event, Stepped)
    ]
    assert [step.step for step in steps if step.values] == [4, 8, 12, 16]
    for last in (4, 8, 12, 16):
        mean = sum(step.loss for step in steps[last - 4 : last]) / 4
        assert steps[last - 1].values["loss"] == pytest.approx(mean)
    sums = {"steps": 3.0, "loss": 30.0, "grad_norm": 3.0, "tokens": 30.0, "padded_tokens": 60.0}
    resumed = make_loop(tmp_path, log_every=4, state=TrainingState(step=3, sums=sums))
    first = next(resumed.events())
    assert first.values["loss"] == pytest.approx((30 + first.loss) / 4)


def test_optimizers_follow_the_learning_rate(tmp_path):
    """Tables are learned at the same rate as all else, and that is what is logged."""
    loop = make_loop(tmp_path, warmup_fraction=0.5, log_every=1)
    events = loop.events()
    for step in (1, 2):
        event = next(events)
        rates = {
            group["lr"] for optimizer in loop.replica.optimizers for group in optimizer.param_groups
        }
        assert rates == {event.values["learning_rate"]} == {0.01 * step / 9}


def test_a_limit_of_time_is_decided_once_by_the_first_steps(tmp_path, monkeypatch):
    """And is part of the state: with it, a loop that goes on keeps to it, however fast it is then."""
    seconds, clock = [0.5], iter(range(10**6))
    monkeypatch.setattr(stage_loop.time, "perf_counter", lambda: next(clock) * seconds[0])
    monkeypatch.setattr(stage_loop, "MOST_TIMING", 1)
    loop = make_loop(tmp_path, epochs=10, seconds=15)
    events = loop.events()
    while loop.state.step < TIMED_STEPS:
        assert loop.state.stage_steps is None
        next(events)
    assert loop.state.stage_steps == 30  # 15 s, at half a second a step, of 60 steps
    seconds[0] = 0.001
    resumed = make_loop(tmp_path, epochs=10, seconds=15, state=loop.state)
    assert list(resumed.events())[-1].step == 30


def test_fewer_steps_are_timed_where_each_takes_long(tmp_path, monkeypatch):
    """A tenth of the time is spent to find out, at most; a step that takes longer than all of it is the only one."""
    clock = iter(range(10**6))
    monkeypatch.setattr(stage_loop.time, "perf_counter", lambda: next(clock) * 0.5)
    for seconds, decided_at, steps in ((15, 3, 30), (0.25, 1, 1)):
        loop = make_loop(tmp_path, epochs=10, seconds=seconds)
        events = loop.events()
        while loop.state.stage_steps is None:
            next(events)
        assert (loop.state.step, loop.state.stage_steps) == (decided_at, steps)
