"""The data of a run, tokenized, with its plan: all that is fixed before the first step."""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from tokenizers import Tokenizer
from torch import Tensor

from encoder_cls.config import Config
from encoder_cls.data.dataset import Dataset
from encoder_cls.inference.classifier import Classifier
from encoder_cls.inference.encoder.architecture import Encoder, EncoderArchitecture
from encoder_cls.inference.task import MULTI_LABEL, Task, task_of
from encoder_cls.model import EncoderClassifier
from encoder_cls.text.tokens import TokenizedTexts
from encoder_cls.training.encoder.batches import BatchSampler
from encoder_cls.training.plan import Plan, TimeBudget


@dataclass(frozen=True, kw_only=True)
class Prepared:
    """Data, tokens and plan of a run.

    Attributes:
        texts: texts to learn from, by the tokenizer that is trained on them: labelled ones, then unlabelled ones.
        validation_texts: the texts that choose the weights (`Dataset.selection`).
        model_rows: which of the texts the encoder learns classes from: labelled ones, then those with pseudo-labels.
        base: the classifier of the run that this one continues.
        long_words: words that were too long for a sub-word tokenizer to learn from.
    """

    config: Config
    dataset: Dataset
    tokenizer: Tokenizer
    texts: TokenizedTexts
    validation_texts: TokenizedTexts
    model_rows: NDArray[np.int64]
    plan: Plan
    budget: TimeBudget
    base: Classifier | None = None
    long_words: int = 0

    @property
    def task(self) -> Task:
        """Whether a text has one label or several."""
        return task_of(self.dataset.train.labels)

    @property
    def vocab_size(self) -> int:
        """Number of tokens."""
        return self.tokenizer.get_vocab_size()

    @cached_property
    def train_texts(self) -> TokenizedTexts:
        """The labelled texts."""
        return self.texts[: len(self.dataset.train)]

    @cached_property
    def model_texts(self) -> TokenizedTexts:
        """The texts that the encoder learns classes from."""
        return self.texts.take(self.model_rows) if self.plan.has_pseudo_labels else self.train_texts

    @cached_property
    def model_sampler(self) -> BatchSampler:
        """Their batches."""
        return BatchSampler.of(self.model_texts.lengths, self.config.train, seed=self.config.seed)

    @cached_property
    def class_weights(self) -> Tensor:
        """The weight of each class in the loss, (classes,); multi-label, of a label's examples beside all others."""
        choice, dataset = self.config.train.class_weights, self.dataset
        counts = dataset.train.class_counts(len(dataset.label_names))
        weights: NDArray[np.floating[Any]]
        if choice == "balanced" and self.task is MULTI_LABEL:
            weights = np.maximum(1, len(dataset.train) - counts) / np.maximum(1, counts)
        elif choice == "balanced":
            weights = balanced_weights(counts)
        elif choice == "none":
            weights = np.ones(len(counts))
        else:
            weights = np.array([choice.get(name, 1.0) for name in dataset.label_names])
        return torch.from_numpy(weights).float()

    def where(self, text: int) -> str:
        """Source location of one of `texts`."""
        train, unlabelled = self.dataset.train, self.dataset.unlabelled
        return train.where[text] if text < len(train) else unlabelled.where[text - len(train)]

    def new_model(self, seed: int) -> EncoderClassifier:
        """A model with random weights, a function of the seed."""
        torch.manual_seed(seed)
        return EncoderClassifier(
            self.config.model, vocab_size=self.vocab_size, num_classes=len(self.dataset.label_names)
        )

    def new_classifier(self, encoder: Encoder | None) -> Classifier:
        """A classifier of this data without a linear part."""
        data, model = self.config.data, self.config.model
        return Classifier(
            encoder,
            self.tokenizer,
            self.dataset.label_names,
            max_seq_len=model.max_seq_len,
            text_columns=data.text_column,
            task=self.task,
            delimiter=data.delimiter,
            encoding=data.encoding,
            encoder_architecture=EncoderArchitecture.of(model) if self.plan.has_encoder else None,
        )

    @property
    def num_parameters(self) -> int:
        """Numbers to learn of the encoder; the linear classifier's are known once it is fitted."""
        if not self.plan.has_encoder:
            return 0
        shape = {"vocab_size": self.vocab_size, "num_classes": len(self.dataset.label_names)}
        return sum(map(math.prod, EncoderArchitecture.of(self.config.model).weight_shapes(**shape).values()))

    @cached_property
    def data_statistics(self) -> dict[str, float]:
        """Sizes of the data, and the parts of it that are truncated, unknown or padding."""
        texts, sampler = self.model_texts, self.model_sampler
        lengths = texts.lengths
        batches = (sampler.indices(i) for i in range(sampler.batches_per_epoch))
        padded = sum(lengths[batch].max() * len(batch) for batch in batches)
        return {
            "training_texts": len(self.dataset.train),
            "validation_texts": len(self.dataset.validation),
            "test_texts": len(self.dataset.test) if self.dataset.test else 0,
            "unlabelled_texts": len(self.dataset.unlabelled.texts),
            "tokens": int(self.texts.lengths.sum()),
            "classes": len(self.dataset.label_names),
            "vocabulary": self.vocab_size,
            **({"parameters": self.num_parameters} if self.plan.has_encoder else {}),
            "truncated_fraction": texts.truncated_fraction,
            "unknown_fraction": self.validation_texts.unknown_fraction,
            "padding_fraction": float(1 - lengths.sum() / padded),
        }


def balanced_weights(sizes: NDArray[np.int64]) -> NDArray[np.float32]:
    """The weights, (classes,), by which classes of these sizes count alike."""
    weights: NDArray[np.float32] = (sizes.sum() / (len(sizes) * sizes)).astype(np.float32)
    return weights
