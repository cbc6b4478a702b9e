"""The events that a run yields; one more is `FewLabels`, of a linear classifier fitted to few labels."""

from __future__ import annotations

from typing import NamedTuple

from encoder_cls.evaluation.report import Report
from encoder_cls.linear.few_labels import FewLabels
from encoder_cls.training.validation import ValidationResult


class Started(NamedTuple):
    """Training starts or resumes after `step` of `total_steps`."""

    step: int
    total_steps: int


class Noted(NamedTuple):
    """A warning; training continues."""

    message: str


class StageStarted(NamedTuple):
    """A stage starts or resumes after `step`; `total_steps` are those of all stages, as far as they are known."""

    stage: str
    step: int
    total_steps: int


class StepsDecided(NamedTuple):
    """The time budget allows a stage this number of steps, possibly none."""

    stage: str
    steps: int
    total_steps: int


class Stepped(NamedTuple):
    """An optimizer step is done; `values` is the row that it logged, if any."""

    step: int
    epoch: float
    loss: float
    values: dict[str, float] | None


class Validated(NamedTuple):
    """A validation is done, `epoch` epochs into a stage; the best so far also beats the linear classifier alone."""

    stage: str
    step: int
    epoch: float
    result: ValidationResult
    is_best: bool
    is_drawn: bool = True


class EncoderGain(NamedTuple):
    """The validation score `monitor` without and with the encoder; None where there was no time to train one."""

    monitor: str
    linear: float
    with_encoder: float | None


class Finished(NamedTuple):
    """The run is complete; `best_step` is 0 where the linear classifier alone was the best."""

    report: Report | None
    best_step: int
    seconds: float
    gain: EncoderGain | None = None


Event = Started | Noted | FewLabels | StageStarted | StepsDecided | Stepped | Validated | Finished
