"""The tokenized data of a run with its plan."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray
from tokenizers import Tokenizer
from torch import Tensor

from encoder_cls.classifier.classifier import Classifier
from encoder_cls.config.schema import Config
from encoder_cls.data.dataset import Dataset, relative_weights
from encoder_cls.encoder.transformer import EncoderClassifier
from encoder_cls.encoder_training.batch_sampler import BatchSampler
from encoder_cls.linear_training.corpus import sample_rows
from encoder_cls.metrics.row_groups import RowGroups
from encoder_cls.text.tokens import TokenizedTexts
from encoder_cls.training.plan import Counts, Plan
from encoder_cls.training.time_budget import TimeBudget

Objective = Callable[[EncoderClassifier, Any], Tensor]


@dataclass(frozen=True, kw_only=True)
class Prepared:
    """The data, tokens and plan of a run: all that is fixed before the first step.

    Attributes:
        tokenizer: extends that of a base run.
        texts: the labelled ones to learn from, then the unlabelled ones.
        validation_texts: those of `Dataset.known_validation`, at least one.
        long_words: how many are too long for a sub-word tokenizer to learn from.
        base: the classifier of a base run.
        objective: of the training on labels; None for the usual loss.
        model_class: a user's own encoder.
    """

    config: Config
    dataset: Dataset
    tokenizer: Tokenizer
    texts: TokenizedTexts
    validation_texts: TokenizedTexts
    long_words: int
    counts: Counts
    plan: Plan
    budget: TimeBudget
    base: Classifier | None = None
    objective: Objective | None = None
    model_class: type[EncoderClassifier] | None = None

    @property
    def vocab_size(self) -> int:
        """The size of the vocabulary."""
        return self.tokenizer.get_vocab_size()

    @cached_property
    def train_texts(self) -> TokenizedTexts:
        """The labelled training texts."""
        return self.texts[: len(self.dataset.train)]

    @cached_property
    def validation_groups(self) -> RowGroups:
        """Which of `validation_texts` belong together."""
        return RowGroups(self.dataset.known_validation.split_groups)

    @cached_property
    def encoder_rows(self) -> NDArray[np.int64]:
        """The rows in `texts` that the encoder learns classes from."""
        return rows_for_encoder(self.texts, len(self.dataset.train), self.plan.has_pseudo_labels)

    @cached_property
    def encoder_texts(self) -> TokenizedTexts:
        """The texts that the encoder learns classes from."""
        if not self.plan.has_pseudo_labels:
            return self.train_texts
        return self.texts.take(self.encoder_rows)

    @cached_property
    def encoder_sampler(self) -> BatchSampler:
        """The batches of `encoder_texts`."""
        return BatchSampler(self.encoder_texts.lengths, self.config.train, seed=self.config.seed)

    @cached_property
    def text_weights(self) -> NDArray[np.float32] | None:
        """How much each training text counts, 1 on average; None if all count alike."""
        return relative_weights(self.dataset.train)

    def where(self, text: int) -> str:
        """Where a row of `texts` was read, such as its file and line."""
        num_labelled = len(self.dataset.train)
        if text < num_labelled:
            return self.dataset.train.where[text]
        return self.dataset.unlabelled.where[text - num_labelled]

    def first_places(self, rows: NDArray[np.int64]) -> str:
        """Where the first three of these rows of `texts` were read."""
        return ", ".join(self.where(int(row)) for row in rows[:3])


def rows_for_encoder(
    texts: TokenizedTexts, num_labelled: int, has_pseudo_labels: bool
) -> NDArray[np.int64]:
    """The rows that the encoder learns classes from, the labelled ones first.

    With pseudo-labels, it also learns from a sample of the unlabelled ones.
    """
    if has_pseudo_labels:
        return sample_rows(texts, num_labelled, texts.max_seq_len)
    return np.arange(num_labelled)
