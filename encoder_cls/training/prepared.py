"""The tokenized data of a run with its plan: all that is fixed before the first step."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from functools import cached_property
from itertools import chain
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from tokenizers import Tokenizer
from torch import Tensor

from encoder_cls.classifier.classifier import Classifier, TextFormat
from encoder_cls.config.schema import Config
from encoder_cls.data.checks import data_warnings
from encoder_cls.data.dataset import Dataset, names_as_texts
from encoder_cls.encoder.architecture import EncoderArchitecture
from encoder_cls.encoder.batches import BatchSampler
from encoder_cls.encoder.engines import Encoder
from encoder_cls.encoder.transformer import EncoderClassifier
from encoder_cls.linear.class_weights import balanced_weights
from encoder_cls.linear.corpus import sample_rows
from encoder_cls.metrics.logits import task_of
from encoder_cls.text.tokens import LONGEST_LEARNED, TokenizedTexts
from encoder_cls.training.plan import Plan, TimeBudget

Objective = Callable[[EncoderClassifier, Any], Tensor]
MOST_TRUNCATED = 0.05  # of the training texts, without a warning


@dataclass(frozen=True, kw_only=True)
class Prepared:
    """Data, tokens and plan of a run."""

    config: Config
    dataset: Dataset
    tokenizer: Tokenizer
    texts: TokenizedTexts  # to learn from: labelled ones, then unlabelled ones
    validation_texts: TokenizedTexts  # that choose the best weights (`Dataset.selection`)
    long_words: int  # too long for a sub-word tokenizer to learn from
    plan: Plan
    budget: TimeBudget
    base: Classifier | None = None  # of the base run
    # Of the encoder's training on labels, in place of the usual one.
    objective: Objective | None = None

    @property
    def vocab_size(self) -> int:
        """The number of tokens."""
        return self.tokenizer.get_vocab_size()

    @cached_property
    def train_texts(self) -> TokenizedTexts:
        """The labelled texts."""
        return self.texts[: len(self.dataset.train)]

    @cached_property
    def model_rows(self) -> NDArray[np.int64]:
        """The rows of the texts that the encoder learns classes from."""
        return model_rows(self.texts, len(self.dataset.train), self.plan.has_pseudo_labels)

    @cached_property
    def model_texts(self) -> TokenizedTexts:
        """The texts that the encoder learns classes from."""
        return self.texts.take(self.model_rows) if self.plan.has_pseudo_labels else self.train_texts

    @cached_property
    def model_sampler(self) -> BatchSampler:
        """The batches of `model_texts`."""
        return BatchSampler(self.model_texts.lengths, self.config.train, seed=self.config.seed)

    @cached_property
    def class_weights(self) -> Tensor:
        """The weight of each class in the loss, (classes,); multi-label, of texts with the label: others count 1."""
        choice, dataset = self.config.train.class_weights, self.dataset
        if choice != "balanced":
            named = {} if choice == "none" else choice
            return torch.tensor([named.get(name, 1.0) for name in dataset.label_names])
        counts = dataset.train.class_counts(len(dataset.label_names))
        if dataset.is_multi_label:
            return torch.from_numpy(
                np.maximum(1, len(dataset.train) - counts) / np.maximum(1, counts)
            ).float()
        return torch.from_numpy(balanced_weights(counts))

    def where(self, text: int) -> str:
        """The location of one of `texts`."""
        train, unlabelled = self.dataset.train, self.dataset.unlabelled
        return train.where[text] if text < len(train) else unlabelled.where[text - len(train)]

    def new_model(
        self, seed: int, kind: type[EncoderClassifier] = EncoderClassifier
    ) -> EncoderClassifier:
        """Make a model with random weights, a function of the seed."""
        torch.manual_seed(seed)
        classes = len(self.dataset.label_names)
        return kind(self.config.model, vocab_size=self.vocab_size, num_classes=classes)

    def new_classifier(self, encoder: Encoder | None) -> Classifier:
        """Make a classifier for this data, without a linear part."""
        data, model = self.config.data, self.config.model
        return Classifier(
            encoder,
            self.tokenizer,
            self.dataset.label_names,
            max_seq_len=model.max_seq_len,
            task=task_of(self.dataset.train.labels),
            text_format=TextFormat(
                columns=data.text_column, delimiter=data.delimiter, encoding=data.encoding
            ),
            encoder_architecture=EncoderArchitecture.of(model) if self.plan.has_encoder else None,
        )

    def tokenize(self, *texts: Iterable[str]) -> TokenizedTexts:
        """Tokenize several collections of texts as one."""
        return self.new_classifier(None).tokenize(chain(*texts))

    @property
    def name_texts(self) -> TokenizedTexts:
        """The class names as texts."""
        return self.tokenize(names_as_texts(self.dataset.label_names))

    def warnings(self) -> Iterator[str]:
        """Warnings about the data and how it is read."""
        yield from data_warnings(self.dataset, learns_validation=self.plan.refits_on_validation)
        if self.plan.has_encoder and self.base and self.base.encoder is None:
            yield f"{self.config.from_run} has no encoder, so a new one is trained from scratch"
        if self.long_words:
            yield (
                f"words of more than {LONGEST_LEARNED} characters, which the {self.config.tokenizer.type} tokenizer "
                f"does not learn from: {self.long_words:,}; are they attachments?"
            )
        truncated = self.data_statistics["truncated_fraction"]
        if self.plan.has_encoder and truncated > MOST_TRUNCATED:
            yield (
                f"{truncated:.1%} of the training texts are longer than the {self.config.model.max_seq_len:,} tokens "
                "that the encoder reads; a larger model.max_seq_len reads more of them, and takes longer"
            )

    @property
    def num_parameters(self) -> int:
        """The number of parameters of the encoder."""
        if not self.plan.has_encoder:
            return 0
        shape = {"vocab_size": self.vocab_size, "num_classes": len(self.dataset.label_names)}
        return sum(
            map(
                math.prod, EncoderArchitecture.of(self.config.model).weight_shapes(**shape).values()
            )
        )

    @cached_property
    def data_statistics(self) -> dict[str, float]:
        """Sizes of the data, and the fractions that are truncated, unknown or padding."""
        lengths, sampler = self.model_texts.lengths, self.model_sampler
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
            "truncated_fraction": float(self.model_texts.truncated.mean()),
            "unknown_fraction": self.validation_texts.unknown_fraction,
            "padding_fraction": float(1 - lengths.sum() / padded),
        }


def model_rows(
    texts: TokenizedTexts, num_labelled: int, has_pseudo_labels: bool
) -> NDArray[np.int64]:
    """The rows that the encoder learns classes from: labelled texts, then a sample of those with pseudo-labels."""
    return (
        sample_rows(texts, num_labelled, texts.max_seq_len)
        if has_pseudo_labels
        else np.arange(num_labelled)
    )
