"""The events of a training; whoever drives it decides what a person sees."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

from encoder_cls.evaluation.report import AnyReport
from encoder_cls.training.encoder.validation import ValidationResult
from encoder_cls.training.linear.techniques import FewLabelsResult


@dataclass(frozen=True, kw_only=True)
class Started:
    """Training begins, or goes on, after `step` of `total_steps`."""

    step: int
    total_steps: int


@dataclass(frozen=True)
class Noted:
    """A warning; training goes on."""

    message: str


@dataclass(frozen=True, kw_only=True)
class StageStarted:
    """A stage begins, or goes on, after `step` of `total_steps` of all stages, as far as they are known."""

    stage: str
    step: int
    total_steps: int


@dataclass(frozen=True, kw_only=True)
class StepsDecided:
    """The first steps of a stage have decided how many `steps` of it there is time for, perhaps none."""

    stage: str
    steps: int
    total_steps: int


@dataclass(frozen=True, kw_only=True)
class LinearFitted:
    """A linear classifier has been fitted on few labels, before step `step`, with those techniques that help."""

    step: int
    result: FewLabelsResult


@dataclass(frozen=True, kw_only=True)
class Stepped:
    """One optimizer step is done; `values` is the logged row, at the steps that have one."""

    step: int
    epoch: float
    loss: float
    values: dict[str, float] | None


@dataclass(frozen=True, kw_only=True)
class Validated:
    """A validation is done.

    Attributes:
        stage: in which.
        step: steps done, in all stages.
        epoch: epochs done, in this stage.
        result: of the validation.
        is_best: the stage has had no better one, and the linear classifier alone is no better.
        is_drawn: its plots are logged.
    """

    stage: str
    step: int
    epoch: float
    result: ValidationResult
    is_best: bool
    is_drawn: bool = True


class EncoderGain(NamedTuple):
    """The gain by an encoder, in the validation score `monitor`.

    Attributes:
        monitor: name of the score.
        linear: that of the linear classifier alone.
        with_encoder: the best of both together; none: there was no time for an encoder.
    """

    monitor: str
    linear: float
    with_encoder: float | None


@dataclass(frozen=True, kw_only=True)
class Finished:
    """The run is complete.

    Attributes:
        report: of the best weights on the test (else the validation) split, if there is any.
        best_step: of these weights; 0: they are those of the linear classifier alone.
        seconds: of this process.
        gain: by the encoder; none where there is but one part.
    """

    report: AnyReport | None
    best_step: int
    seconds: float
    gain: EncoderGain | None = None


Event = Started | Noted | LinearFitted | StageStarted | StepsDecided | Stepped | Validated | Finished
