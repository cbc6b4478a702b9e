"""What a model learns in a training: the batches and their loss, and the score of a validation."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol, Self

import torch
from torch import Tensor

from encoder_cls.encoder.torch_encoder import Batch
from encoder_cls.encoder.transformer import EncoderClassifier
from encoder_cls.metrics.validation_score import ValidationScore


class TrainingBatch(Protocol):
    """A batch of texts, and the loss of a model on them.

    It is a dataclass, so that its tensors can be copied to a device (`nested_tensors.on_device`).
    """

    @property
    def inputs(self) -> Batch:
        """The texts."""

    @property
    def normalizer(self) -> Tensor:
        """`loss` divided by it is the mean loss, ()."""

    def loss(self, model: EncoderClassifier) -> Tensor:
        """The sum of the losses of all targets, ()."""

    def padded(self, *, max_seq_len: int) -> Self:
        """The same batch, padded to one of few shapes; its loss is the same up to rounding."""


class HasScore(Protocol):
    """The result of a validation."""

    @property
    def score(self) -> ValidationScore:
        """By which validations are compared."""


class TrainingTask(Protocol):
    """What a model learns in a training, and how it is scored."""

    def batches_at(
        self, step: int, shard: int, num_shards: int, generator: torch.Generator | None = None, /
    ) -> Sequence[TrainingBatch]:
        """Make one shard of each batch of a step, and no empty ones, on the CPU.

        Args:
            generator: None for torch's default generator.
        """

    def validate(self, model: EncoderClassifier) -> HasScore | None:
        """Score a model on the validation texts, by all processes together.

        Returns:
            None in all processes but the first; there, if the logits or the loss are not finite.
        """

    def describe_step(self, step: int) -> str:
        """Name where some texts of a step were read, such as `train.csv:7`."""
