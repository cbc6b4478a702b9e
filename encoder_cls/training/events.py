"""What a training tells of itself while it goes on; whoever drives it decides what a person sees."""

from __future__ import annotations

from dataclasses import dataclass

from encoder_cls.evaluation.report import AnyReport
from encoder_cls.training.few_labels import FewLabelsResult
from encoder_cls.training.stage import Stage
from encoder_cls.training.validation import ValidationResult


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
class LinearFitted:
    """A linear classifier has been fitted on few labels, after so many steps: with what of all that was tried."""

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
        is_best: whether its weights are the stage's best so far.
    """

    stage: Stage
    step: int
    epoch: float
    result: ValidationResult
    is_best: bool


@dataclass(frozen=True, kw_only=True)
class Finished:
    """The run is complete: the best weights' report on the test (else the validation) split, if there is any."""

    report: AnyReport | None
    best_step: int
    seconds: float


Event = Started | Noted | LinearFitted | StageStarted | Stepped | Validated | Finished
