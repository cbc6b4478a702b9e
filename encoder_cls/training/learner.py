"""A stage's model in training: takes steps and is validated, as one of the processes that train it together."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import torch

from encoder_cls.config import TrainConfig
from encoder_cls.model import EncoderClassifier
from encoder_cls.system.device import resolve_precision
from encoder_cls.training.objectives import Objective
from encoder_cls.training.optimizer import Optimizer
from encoder_cls.training.process_group import ProcessGroup
from encoder_cls.training.seeds import derive_seed
from encoder_cls.training.stage import Stage
from encoder_cls.training.train_step import StepMetrics, StepSettings, train_step
from encoder_cls.training.untrained_rows import UntrainedRows
from encoder_cls.training.validation import ValidationResult


def step_settings(config: TrainConfig, group: ProcessGroup, device: torch.device) -> StepSettings:
    """How all steps of a run are computed on a device."""
    return StepSettings(
        max_grad_norm=config.max_grad_norm,
        precision=resolve_precision(config.precision, device),
        num_shards=config.gradient_shards,
        group=group,
        is_exact=config.exact,
    )


@dataclass(frozen=True, kw_only=True)
class Learner:
    """A model and all that changes it.

    What the first process does, it tells the others, which then do the same.

    Attributes:
        stage: of the training.
        model: which is trained.
        optimizers: of the model's parameters.
        objective: what is learned.
        settings: of the steps.
        untrained_rows: which are zero in a validation, as they are in what is saved; none: all are as they are.
    """

    stage: Stage
    model: EncoderClassifier
    optimizers: Sequence[Optimizer]
    objective: Objective
    settings: StepSettings
    untrained_rows: UntrainedRows | None = None

    def step(self, step: int, learning_rate: float) -> StepMetrics:
        """Take a step of the stage, counted from 0.

        Raises:
            NonFiniteError: there is no finite loss or gradient; nothing has been updated.
            LostProcessError: another process has ended; nothing has been updated.
        """
        self.settings.group.lead({"step": step, "learning_rate": learning_rate})
        return train_step(
            self.model,
            self.optimizers,
            self.objective,
            step,
            seed=derive_seed(self.stage.seed, step),
            learning_rate=learning_rate,
            settings=self.settings,
        )

    def validate(self, after_batch: Callable[[], None]) -> ValidationResult | None:
        """Validate the model; none where it gives no finite numbers, and in all processes but the first.

        Args:
            after_batch: called after each batch, or, where others share them, after all; what it raises ends the work.

        Raises:
            LostProcessError: another process has ended.
        """
        group = self.settings.group
        group.lead({"validate": True})
        model = self.untrained_rows.zeroed(self.model) if self.untrained_rows else self.model
        if group.size == 1:
            return self.objective.validate(model, after_batch)
        result = self.objective.validate(model, lambda: None, group)
        after_batch()
        return result
