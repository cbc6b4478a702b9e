"""Batches of labelled texts, and their loss: cross-entropy, with R-Drop if the config asks for it.

R-Drop shows each text to the model twice, with different dropout masks and dropped words, and adds
the symmetric Kullback-Leibler divergence of both predictions to the loss (Liang et al., "R-Drop:
Regularized Dropout for Neural Networks", 2021, https://arxiv.org/abs/2106.14448).
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass, replace
from typing import Any, Self

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.nn import functional

from encoder_cls.config.schema import TrainConfig
from encoder_cls.encoder.padding import Indices
from encoder_cls.encoder.torch_encoder import Batch, make_batch
from encoder_cls.encoder.transformer import EncoderClassifier
from encoder_cls.encoder_training.graph_shapes import pad_to_few_shapes
from encoder_cls.encoder_training.random_numbers import drop_tokens
from encoder_cls.metrics.tasks import MULTI_LABEL, SINGLE_LABEL, Task, task_of
from encoder_cls.text.tokens import TokenizedTexts

# --- What a model learns --------------------------------------------------------------------------


@dataclass(frozen=True, kw_only=True)
class Targets:
    """The target probabilities of texts, labelled ones first, and how much texts and classes count.

    A labelled text has probability 1 of each label, an unlabelled one its pseudo-label's.

    Attributes:
        labels: of the labelled texts.
        text_weights: of the labelled texts, 1 on average; None if all count alike.
        pseudo_labels: of the others, (texts, C); None without any.
    """

    labels: NDArray[Any]
    class_weights: Tensor
    text_weights: NDArray[np.float32] | None = None
    pseudo_labels: NDArray[np.float32] | None = None

    @property
    def task(self) -> Task:
        """Single-label or multi-label."""
        return task_of(self.labels)

    def probabilities_of(self, rows: Indices) -> Tensor:
        """The target probabilities of some texts, (B, C)."""
        if self.task is MULTI_LABEL:
            return torch.from_numpy(self.labels[rows])

        probabilities = np.zeros((len(rows), len(self.class_weights)), dtype=np.float32)
        num_labelled = len(self.labels)
        is_labelled = rows < num_labelled
        probabilities[is_labelled, self.labels[rows[is_labelled]]] = 1

        if self.pseudo_labels is not None:
            pseudo_label_rows = rows[~is_labelled] - num_labelled
            probabilities[~is_labelled] = self.pseudo_labels[pseudo_label_rows]
        return torch.from_numpy(probabilities)

    def text_weights_of(self, rows: Indices) -> Tensor | None:
        """How much texts count, (B,), unlabelled ones as the mean, 1; None if all count alike."""
        if self.text_weights is None:
            return None
        weights = np.ones(len(rows), dtype=np.float32)
        is_labelled = rows < len(self.labels)
        weights[is_labelled] = self.text_weights[rows[is_labelled]]
        return torch.from_numpy(weights)


# --- The loss -------------------------------------------------------------------------------------


@dataclass(frozen=True, kw_only=True)
class ClassificationBatch(ABC):
    """A batch of texts with target probabilities.

    Attributes:
        inputs: with R-Drop, its second half repeats the first.
        targets: probabilities, (B, C).
        rdrop_weight: 0 turns R-Drop off.
    """

    inputs: Batch
    targets: Tensor
    rdrop_weight: float

    @property
    @abstractmethod
    def normalizer(self) -> Tensor:
        """See `TrainingBatch`.

        Weights of texts do not count: that of a single text would cancel out.
        """

    def loss(self, model: EncoderClassifier) -> Tensor:
        """See `TrainingBatch`."""
        logits = model(*self.inputs)
        loss = self._cross_entropy(logits)
        if self.rdrop_weight:
            loss = loss + self.rdrop_weight * self._symmetric_kl(logits)
        return loss

    def padded(self, *, max_seq_len: int) -> Self:
        """See `TrainingBatch`."""
        return replace(self, inputs=pad_to_few_shapes(self.inputs, max_seq_len=max_seq_len))

    @abstractmethod
    def _cross_entropy(self, logits: Tensor) -> Tensor:
        """The weighted sum of the cross-entropies of all texts, ()."""

    @abstractmethod
    def _symmetric_kl(self, logits: Tensor) -> Tensor:
        """Weight * (KL(p || q) + KL(q || p)) / 2 of two predictions p and q, summed, ()."""


@dataclass(frozen=True, kw_only=True)
class SingleLabelBatch(ClassificationBatch):
    """Texts with one label each.

    Attributes:
        weights: of the classes, (C,).
        text_weights: (B,); None if all count alike.
    """

    weights: Tensor
    text_weights: Tensor | None = None

    @property
    def normalizer(self) -> Tensor:
        """The sum of the class weights of all targets, ()."""
        return (self.targets @ self.weights).sum()

    def _cross_entropy(self, logits: Tensor) -> Tensor:
        if self.text_weights is None:
            return functional.cross_entropy(
                logits, self.targets, weight=self.weights, reduction="sum"
            )
        losses = functional.cross_entropy(
            logits, self.targets, weight=self.weights, reduction="none"
        )
        return (self.text_weights * losses).sum()

    def _symmetric_kl(self, logits: Tensor) -> Tensor:
        log_p, log_q = functional.log_softmax(logits, dim=-1).chunk(2)

        # KL(p || q) + KL(q || p) is the sum over classes of (p - q) * (ln p - ln q).
        differences = log_p.exp() - log_q.exp()
        log_ratios = log_p - log_q
        divergences = (differences * log_ratios).sum(dim=-1) / 2

        # Both halves of the batch have the same targets, and so the same weights.
        all_weights = self.targets @ self.weights
        if self.text_weights is not None:
            all_weights = all_weights * self.text_weights
        weights, _ = all_weights.chunk(2)
        return (weights * divergences).sum()


@dataclass(frozen=True, kw_only=True)
class MultiLabelBatch(ClassificationBatch):
    """Texts with any number of labels.

    Attributes:
        weights: of each label of each text, (B, C): that of the class times that of the text.
        text_weights: None, since `weights` include them; a user's objective may ask any batch.
    """

    weights: Tensor
    text_weights: None = None

    @property
    def normalizer(self) -> Tensor:
        """The number of texts, (): each counts once, however many labels it has."""
        return self.targets.new_full((), len(self.targets))

    def _cross_entropy(self, logits: Tensor) -> Tensor:
        return functional.binary_cross_entropy_with_logits(
            logits, self.targets, weight=self.weights, reduction="sum"
        )

    def _symmetric_kl(self, logits: Tensor) -> Tensor:
        logit_p, logit_q = logits.chunk(2)

        # For two Bernoulli distributions, KL(p || q) + KL(q || p) is
        # (p - q) * (logit p - logit q).
        divergences = (logit_p.sigmoid() - logit_q.sigmoid()) * (logit_p - logit_q) / 2

        # Both halves of the batch have the same weights.
        weights, _ = self.weights.chunk(2)
        return (weights * divergences).sum()


# --- A batch --------------------------------------------------------------------------------------


def make_labelled_batch(
    texts: TokenizedTexts,
    rows: Indices,
    targets: Targets,
    config: TrainConfig,
    *,
    generator: torch.Generator | None,
) -> ClassificationBatch:
    """Make a batch, with word dropout and smoothed targets.

    Args:
        generator: for dropped words; None for torch's default one.
    """
    # R-Drop compares two passes over each text, so put each text into the batch twice.
    if config.rdrop_weight:
        rows = np.tile(rows, 2)

    batch = make_batch(texts, rows)
    dropped = drop_tokens(batch.input_ids, fraction=config.word_dropout, generator=generator)
    inputs = batch._replace(input_ids=dropped)

    probabilities = targets.probabilities_of(rows)
    text_weights = targets.text_weights_of(rows)
    if targets.task is SINGLE_LABEL:
        num_classes = probabilities.shape[1]
        return SingleLabelBatch(
            inputs=inputs,
            targets=_smoothed(probabilities, config.label_smoothing, alternatives=num_classes),
            weights=targets.class_weights,
            rdrop_weight=config.rdrop_weight,
            text_weights=text_weights,
        )

    # The weight of a class applies to the texts that have the label.
    weights = torch.where(probabilities > 0, targets.class_weights, 1.0)
    if text_weights is not None:
        weights = weights * text_weights[:, None]

    # Each label has two alternatives: a text has it or does not have it.
    return MultiLabelBatch(
        inputs=inputs,
        targets=_smoothed(probabilities, config.label_smoothing, alternatives=2),
        weights=weights,
        rdrop_weight=config.rdrop_weight,
    )


def _smoothed(probabilities: Tensor, smoothing: float, *, alternatives: int) -> Tensor:
    return probabilities * (1 - smoothing) + smoothing / alternatives
