"""The state of a run: how far it has come, as a checkpoint keeps it."""

from __future__ import annotations

from dataclasses import dataclass, field

from encoder_cls.encoder_training.training_state import TrainingState
from encoder_cls.linear_training.cost import LinearWork
from encoder_cls.metrics.validation_score import ValidationScore


@dataclass(frozen=True, kw_only=True)
class RunState:
    """How far a run has come.

    With the weights and moments, it determines the rest of the run.

    Attributes:
        linear_score: the validation score of the linear model alone; None, as is `linear_work`,
            before it is fitted, or without one.
        is_pretraining: whether `training` is the pretraining.
    """

    linear_score: ValidationScore | None = None
    linear_work: LinearWork | None = None
    is_pretraining: bool = False
    training: TrainingState = field(default_factory=TrainingState)

    @property
    def step(self) -> int:
        """The optimizer steps so far, those of pretraining included."""
        return self.training.step

    @property
    def is_encoder_better(self) -> bool:
        """Whether a model with the encoder has been better than the linear model alone."""
        best = self.training.best_score
        if self.is_pretraining or best is None:
            return False
        return best.is_better_than(self.linear_score)

    @property
    def best_step(self) -> int:
        """The step of the best weights; 0 if the linear model alone is best."""
        if not self.is_encoder_better:
            return 0
        return self.training.best_step
