"""The loop of a training, with scripted scores and without folder or checkpoint."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

import pytest
from support.small_runs import make_config, make_training

from encoder_cls.encoder.transformer import EncoderClassifier
from encoder_cls.encoder_training import steps_in_time, training_loop
from encoder_cls.encoder_training.distributed import GOES_ON, HAS_ENDED, ProcessGroup
from encoder_cls.encoder_training.steps_in_time import CPU_TIMING
from encoder_cls.encoder_training.training_loop import (
    EncoderTraining,
    Ended,
    StepDone,
    ValidationDone,
)
from encoder_cls.encoder_training.training_state import TrainingState
from encoder_cls.errors import DivergedError
from encoder_cls.metrics.validation_score import ValidationScore
from encoder_cls.training.prepare import prepare


class Validation(NamedTuple):
    """The scripted result of a validation."""

    score: ValidationScore


@dataclass
class Loop:
    """The loop of a tiny training with six steps per epoch, and the state after the last event."""

    training: EncoderTraining
    state: TrainingState
    seconds: float | None

    def events(self) -> Iterator[StepDone | ValidationDone | Ended]:
        for event in self.training.run(self.state, seconds=self.seconds):
            self.state = event.state
            yield event

    def validations(self) -> list[ValidationDone]:
        return [event for event in self.events() if isinstance(event, ValidationDone)]


def make_loop(
    folder: Path,
    losses: Sequence[float] = (0.5,) * 99,
    *,
    state: TrainingState | None = None,
    seconds: float | None = None,
    **train_values: object,
) -> Loop:
    """A loop whose validations have these losses, and then losses that are not finite."""
    found = iter(losses)

    def validate(_: EncoderClassifier) -> Validation | None:
        loss = next(found, None)
        if loss is None:
            return None
        return Validation(
            ValidationScore(is_sure=True, monitored=loss, loss=loss, lower_is_better=True)
        )

    training = make_training(prepare(make_config(folder, **train_values)))
    training.trainer.task.validate = validate
    training.validation_cost = 0.0
    training.report_cost = 0.0
    return Loop(training, state or TrainingState(), seconds)


def test_steps_and_validations_come_in_order(tmp_path):
    """A validation follows each epoch; an event has the state after it."""
    loop = make_loop(tmp_path)

    seen = []
    for event in loop.events():
        state = event.state
        if isinstance(event, ValidationDone):
            assert state.validated_step == state.step
        seen.append((type(event), state.step, loop.training.epoch(state)))

    expected = []
    for step in range(1, 19):
        expected.append((StepDone, step, step / 6))
        if step % 6 == 0:
            expected.append((ValidationDone, step, step / 6))
    expected.append((Ended, 18, 3))
    assert seen == expected
    assert loop.state.outcome == "done"


def test_validations_are_due_at_intervals_and_at_the_end(tmp_path):
    """Steps are counted from the start of the training, which follows another training here."""
    training = make_loop(tmp_path, validate_every=4).training

    due = []
    for step in range(training.length.total_steps + 1):
        state = TrainingState(step=100 + step, first_step=100, validated_step=100)
        if training.is_validation_due(state):
            due.append(step)

    assert due == [4, 8, 12, 16, 18]


@pytest.mark.parametrize(
    ("losses", "is_best"),
    [
        ([0.5, 0.3, 0.4, 0.4, 0.1], [True, True, False, False]),
        ([0.5, 0.6, 0.4, 0.5, 0.5, 0.1], [True, False, True, False, False]),
    ],
)
def test_patience_ends_the_training_after_validations_without_a_better_score(
    tmp_path, losses, is_best
):
    """With a patience of 2, the second such validation in a row ends the training."""
    loop = make_loop(tmp_path, losses, epochs=9, patience=2, warmup_fraction=0.0)

    assert [event.is_best for event in loop.validations()] == is_best
    assert loop.state.outcome == "patience"


def test_without_patience_the_training_ends_with_the_last_epoch(tmp_path):
    losses = [0.5, 0.6, 0.7, 0.8, 0.9, 0.6, 0.7, 0.8, 0.4]
    loop = make_loop(tmp_path, losses, epochs=9, patience=None, warmup_fraction=0.0)

    is_best = [event.is_best for event in loop.validations()]

    assert is_best == [True, False, False, False, False, False, False, False, True]
    assert loop.state.outcome == "done"


@pytest.mark.parametrize(("warmup_fraction", "validations"), [(0.0, 2), (0.5, 5)])
def test_patience_waits_for_the_learning_rate_to_rise(tmp_path, warmup_fraction, validations):
    """Validations without a better score do not count while the rate rises."""
    losses = [0.5, *[0.6] * 8]
    loop = make_loop(tmp_path, losses, epochs=8, patience=1, warmup_fraction=warmup_fraction)

    assert len(loop.validations()) == validations


def test_a_validation_without_finite_numbers_ends_the_training(tmp_path):
    loop = make_loop(tmp_path, [0.5])

    with pytest.raises(DivergedError, match="step 12: the logits of a validation text"):
        list(loop.events())

    assert loop.state.step == 12
    assert loop.state.validated_step == 6


def test_rows_are_means_over_the_steps_since_the_last_row(tmp_path):
    loop = make_loop(tmp_path, log_every=4)

    steps = [event for event in loop.events() if isinstance(event, StepDone)]

    assert [event.state.step for event in steps if event.values] == [4, 8, 12, 16]
    for last in (4, 8, 12, 16):
        losses = [event.loss for event in steps[last - 4 : last]]
        assert steps[last - 1].values["loss"] == pytest.approx(sum(losses) / 4)


def test_the_first_row_of_a_resumed_training_counts_the_steps_before(tmp_path):
    """The state has the sums of the steps before."""
    sums = {
        "steps": 3.0,
        "skipped_steps": 0.0,
        "loss": 30.0,
        "grad_norm": 3.0,
        "tokens": 30.0,
        "padded_tokens": 60.0,
    }
    state = TrainingState(step=3, sums=sums)
    resumed = make_loop(tmp_path, log_every=4, state=state)

    first = next(resumed.events())

    assert first.values["loss"] == pytest.approx((30 + first.loss) / 4)


def test_optimizers_follow_the_learning_rate(tmp_path):
    """Embedding tables have the same rate as all other parameters, and the rate is logged."""
    loop = make_loop(tmp_path, warmup_fraction=0.5, log_every=1)
    events = loop.events()

    for step in (1, 2):
        event = next(events)

        rate = 0.01 * step / 9
        assert event.values["learning_rate"] == rate
        for optimizer in loop.training.trainer.optimizers:
            for parameters in optimizer.param_groups:
                assert parameters["lr"] == rate


class Clock:
    """A clock that advances by the same time whenever it is read.

    A step reads it twice, so `seconds` is the time of a step.
    """

    def __init__(self, monkeypatch: pytest.MonkeyPatch, *, seconds: float) -> None:
        self.seconds = seconds
        self.time = 0.0
        monkeypatch.setattr(training_loop.time, "perf_counter", self.advance)

    def advance(self) -> float:
        self.time += self.seconds
        return self.time


def test_the_step_limit_is_decided_once_by_the_first_steps(tmp_path, monkeypatch):
    """The limit is in the state: a resumed loop keeps it, even if its steps are faster."""
    clock = Clock(monkeypatch, seconds=0.5)
    monkeypatch.setattr(steps_in_time, "MAX_TIMING_SHARE", 1)
    loop = make_loop(tmp_path, epochs=10, seconds=15)
    events = loop.events()
    while loop.state.step < CPU_TIMING.timed_steps:
        assert loop.state.step_limit is None
        next(events)
    # That is 15 seconds, at half a second a step, of 60 steps.
    assert loop.state.step_limit == 30

    clock.seconds = 0.001
    resumed = make_loop(tmp_path, epochs=10, seconds=15, state=loop.state)
    last_event = list(resumed.events())[-1]

    assert last_event.state.step == 30
    assert resumed.state.outcome == "time"


@pytest.mark.parametrize(("seconds", "decided_at", "steps"), [(15, 3, 30), (0.25, 1, 1)])
def test_fewer_steps_are_timed_where_each_takes_long(
    tmp_path, monkeypatch, seconds, decided_at, steps
):
    """Timing takes at most a tenth of the time. A step that takes all the time is the only one."""
    Clock(monkeypatch, seconds=0.5)
    loop = make_loop(tmp_path, epochs=10, seconds=seconds)
    events = loop.events()

    while loop.state.step_limit is None:
        next(events)

    assert loop.state.step == decided_at
    assert loop.state.step_limit == steps


class AfterFirst(ProcessGroup):
    """The second of two processes, which receives scripted messages from the first one."""

    def __init__(self, *messages: bytes) -> None:
        super().__init__(rank=1, size=2)
        self.messages = iter(messages)

    def gather_bytes(self, mine: bytes) -> list[bytes]:
        return [next(self.messages), mine]


@pytest.mark.parametrize(
    "state",
    [
        pytest.param(TrainingState(step=5), id="before a step"),
        pytest.param(TrainingState(step=6), id="before a validation"),
    ],
)
def test_a_process_exits_where_the_first_one_has_ended(tmp_path, state):
    """The process exits before it begins a step or a validation that the first one left out."""
    loop = make_loop(tmp_path, state=state)
    has_time = GOES_ON + b"false"
    loop.training.trainer.group = AfterFirst(has_time, HAS_ENDED)
    work = []
    loop.training.trainer.task.validate = lambda _: work.append("validation")
    loop.training.trainer.task.batches_at = lambda *_: work.append("step")

    with pytest.raises(SystemExit) as ended:
        list(loop.events())
    assert ended.value.code == 0
    assert work == []
