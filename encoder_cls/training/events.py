"""The events of a training; `FewLabels` is that of a linear classifier fitted to few labels."""

from __future__ import annotations

from typing import NamedTuple

from encoder_cls.evaluation.report import Report
from encoder_cls.training.encoder.validation import ValidationResult
from encoder_cls.training.linear.few_labels import FewLabels


class Started(NamedTuple):
    """Training starts or resumes after `step` of `total_steps`."""

    step: int
    total_steps: int


class Noted(NamedTuple):
    """A warning; training goes on."""

    message: str


class StageStarted(NamedTuple):
    """A stage starts or resumes after `step` of `total_steps` of all stages, as far as they are known."""

    stage: str
    step: int
    total_steps: int


class StepsDecided(NamedTuple):
    """The number of steps that the time budget allows of a stage, perhaps none."""

    stage: str
    steps: int
    total_steps: int


class Stepped(NamedTuple):
    """One optimizer step is done; `values` is the logged row, at the steps that have one."""

    step: int
    epoch: float
    loss: float
    values: dict[str, float] | None


class Validated(NamedTuple):
    """A validation is done, `epoch` epochs into a stage; a best one also beats the linear classifier alone."""

    stage: str
    step: int
    epoch: float
    result: ValidationResult
    is_best: bool
    is_drawn: bool = True


class EncoderGain(NamedTuple):
    """The validation score `monitor` without and with the encoder; none where there was no time for one."""

    monitor: str
    linear: float
    with_encoder: float | None


class Finished(NamedTuple):
    """The run is complete, with a report on its best weights; those of step 0 are the linear classifier alone."""

    report: Report | None
    best_step: int
    seconds: float
    gain: EncoderGain | None = None


Event = Started | Noted | FewLabels | StageStarted | StepsDecided | Stepped | Validated | Finished
