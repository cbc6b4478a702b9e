"""The protocol of objectives.

The batches of a step are a pure function of the step, given that torch's random numbers have been seeded for it.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Protocol

from torch import Tensor

from encoder_cls.inference.encoder.torch import Batch
from encoder_cls.model import EncoderClassifier
from encoder_cls.training.encoder.batches import WHOLE, Shard
from encoder_cls.training.encoder.processes import ALONE, ProcessGroup
from encoder_cls.training.encoder.validation import ValidationResult


class ObjectiveBatch(Protocol):
    """A batch with its targets."""

    @property
    def inputs(self) -> Batch:
        """What the model reads."""

    @property
    def normalizer(self) -> Tensor:
        """The sum of the weights of all targets, (): the summed loss divided by it is the mean loss."""

    def loss(self, model: EncoderClassifier) -> Tensor:
        """The losses of all targets, summed by their weights, ()."""


class Objective(Protocol):
    """What a stage learns."""

    def batches_at(self, step: int, shard: Shard = WHOLE) -> Sequence[ObjectiveBatch]:
        """The batches of a step of the stage, counted from 0, or a shard of each that has a text in it."""

    def validate(
        self, model: EncoderClassifier, after_batch: Callable[[], None], group: ProcessGroup = ALONE
    ) -> ValidationResult | None:
        """Validate a model; none where its logits are no finite numbers, and in all processes but the first.

        Args:
            model: the model.
            after_batch: called after each batch; what it raises ends the work.
            group: the processes that share the batches.
        """
