"""What a training reports, as a list of events."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

from encoder_cls.run.run_folder import RunDir
from encoder_cls.system.reporter import Reporter
from encoder_cls.training.prepared import Prepared
from encoder_cls.training.train import Finished, train


class Noted(NamedTuple):
    message: str


class Warned(NamedTuple):
    message: str


class Started(NamedTuple):
    step: int
    total_steps: int


class EncoderStarted(NamedTuple):
    name: str
    step: int
    total_steps: int
    epochs: int


class StepsDecided(NamedTuple):
    name: str
    steps: int
    total_steps: int


class Stepped(NamedTuple):
    step: int
    epoch: float
    loss: float
    values: Mapping[str, float] | None


class Validated(NamedTuple):
    name: str
    step: int
    epoch: float
    scores: Mapping[str, float]
    is_best: bool


Event = Noted | Warned | Started | EncoderStarted | StepsDecided | Stepped | Validated | Finished


class Interrupted(Exception):  # noqa: N818 - no error
    """Raised to end a training early, when a test has seen enough of it."""


class RecordingReporter(Reporter):
    """A reporter that keeps a list of events, and calls a function with each."""

    def __init__(self, on_event: Callable[[Event], object] = lambda _: None) -> None:
        self.events: list[Event] = []
        self._on_event = on_event

    def _add(self, event: Event) -> None:
        self.events.append(event)
        self._on_event(event)

    def note(self, message: str) -> None:
        self._add(Noted(message))

    def warning(self, message: str) -> None:
        self._add(Warned(message))

    def training_started(self, **values: Any) -> None:
        self._add(Started(**values))

    def encoder_started(self, name: str, **values: Any) -> None:
        self._add(EncoderStarted(name, **values))

    def steps_decided(self, name: str, **values: Any) -> None:
        self._add(StepsDecided(name, **values))

    def step_done(self, **values: Any) -> None:
        self._add(Stepped(**values))

    def validated(self, name: str, **values: Any) -> None:
        self._add(Validated(name, **values))


def recorded(
    prepared: Prepared,
    run: RunDir,
    *,
    on_event: Callable[[Event], object] = lambda _: None,
    **options: Any,
) -> list[Event]:
    """The events of a training, and at last what it returns unless that is None."""
    reporter = RecordingReporter(on_event)
    finished = train(prepared, run, reporter=reporter, **options)

    events = list(reporter.events)
    if finished:
        events.append(finished)
    return events


def train_until(
    is_enough: Callable[[Event], bool], prepared: Prepared, run: RunDir, **options: Any
) -> list[Event]:
    """The events of a training up to the first for which a function is true, which ends it."""
    events: list[Event] = []

    def look(event: Event) -> None:
        events.append(event)
        if is_enough(event):
            raise Interrupted

    try:
        recorded(prepared, run, on_event=look, **options)
    except Interrupted:
        return events
    raise AssertionError("the training ended before such an event")
