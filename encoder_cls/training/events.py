"""What a training tells of itself while it goes on; whoever drives it decides what a person sees."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

from encoder_cls.evaluation.report import AnyReport
from encoder_cls.training.encoder.stage import Stage
from encoder_cls.training.encoder.validation import ValidationResult
from encoder_cls.training.linear.techniques import FewLabelsResult


@dataclass(frozen=True, kw_only=True)
class Started:
    """Training begins, or goes on, after `step` of `total_steps`."""

    step: int
    total_steps: int


@dataclass(frozen=True)
class Noted:
    """Something that a person should know, and that training goes on in spite of."""

    message: str


@dataclass(frozen=True, kw_only=True)
class StageStarted:
    """A stage begins, or goes on, after `step` of all steps.

    Attributes:
        stage: which.
        step: steps done, in all stages.
        total_steps: steps of all stages, without those that a former one had no time for.
    """

    stage: Stage
    step: int
    total_steps: int


@dataclass(frozen=True, kw_only=True)
class StepsDecided:
    """The first steps of a stage have told how many there is time for, or that there is time for none.

    Attributes:
        stage: which.
        steps: of this stage.
        total_steps: steps of all stages.
    """

    stage: Stage
    steps: int
    total_steps: int


@dataclass(frozen=True, kw_only=True)
class LinearFitted:
    """A linear classifier has been fitted on few labels, before so many steps: with what of all that was tried."""

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
        result: what it found out.
        is_best: whether the stage has had no better one, and the linear classifier alone is no better.
    """

    stage: Stage
    step: int
    epoch: float
    result: ValidationResult
    is_best: bool


class EncoderGain(NamedTuple):
    """What an encoder brought, by the validation score `monitor`.

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
        best_step: at which they were found; 0: they are those of the linear classifier alone.
        seconds: that this process has taken.
        gain: what the encoder brought; none where there is but one part.
    """

    report: AnyReport | None
    best_step: int
    seconds: float
    gain: EncoderGain | None = None


Event = Started | Noted | LinearFitted | StageStarted | StepsDecided | Stepped | Validated | Finished
