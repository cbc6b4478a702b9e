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

    It is a dataclass, whose tensors `nested_tensors.on_device` can copy.
    """

    @property
    def inputs(self) -> Batch:
        """The texts."""

    @property
    def normalizer(self) -> Tensor:
        """`loss` divided by it is the mean loss, ()."""

    def loss(self, model: EncoderClassifier) -> Tensor:
        """The losses of all targets, summed, ()."""

    def padded(self, *, max_seq_len: int) -> Self:
        """Padded to one of few shapes, with the same loss up to rounding."""


class HasScore(Protocol):
    """The result of a validation."""

    @property
    def score(self) -> ValidationScore:
        """The score by which validations are compared."""


class TrainingTask(Protocol):
    """What a model learns in a training, and how it is scored."""

    def batches_at(
        self, step: int, shard: int, num_shards: int, generator: torch.Generator | None = None, /
    ) -> Sequence[TrainingBatch]:
        """One shard of each batch of a step, without empty ones, on the CPU.

        Args:
            generator: None for torch's default one.
        """

    def validate(self, model: EncoderClassifier) -> HasScore | None:
        """Score a model on the validation texts, in all processes together.

        Returns:
            None in all but the first; there, if logits or loss are not finite.
        """

    def describe_step(self, step: int) -> str:
        """Where some texts of a step were read, such as `train.csv:7`."""
