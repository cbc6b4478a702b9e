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
from encoder_cls.data.data_warnings import data_warnings
from encoder_cls.data.dataset import Dataset, relative_weights
from encoder_cls.encoder.architecture import EncoderArchitecture
from encoder_cls.encoder.predicting_encoder import PredictingEncoder
from encoder_cls.encoder.transformer import EncoderClassifier
from encoder_cls.encoder_training.batch_sampler import BatchSampler
from encoder_cls.linear_training.class_weights import balanced_weights
from encoder_cls.linear_training.corpus import sample_rows
from encoder_cls.metrics.row_groups import RowGroups
from encoder_cls.metrics.tasks import task_of
from encoder_cls.system.reporter import Reporter
from encoder_cls.text.tokens import MAX_LEARNED_LENGTH, TokenizedTexts
from encoder_cls.training.plan import Counts, Plan
from encoder_cls.training.time_budget import TimeBudget

Objective = Callable[[EncoderClassifier, Any], Tensor]

# The share of the training texts that may be truncated without a warning.
MAX_TRUNCATED = 0.05


@dataclass(frozen=True, kw_only=True)
class Prepared:
    """The data, tokens and plan of a run.

    Attributes:
        tokenizer: the tokenizer, trained on the texts; in a continued run it extends the tokenizer
            of the base run.
        texts: the tokens of the texts to learn from: the labelled texts, then the unlabelled texts.
        validation_texts: the tokens of the validation texts with known labels
            (`Dataset.known_validation`), on which the best weights are selected; at least one text.
        long_words: the number of words that are too long for a sub-word tokenizer to learn from.
        base: the classifier of the base run; None unless the run continues another one.
        objective: a loss for the encoder's training on labels; None for the usual cross-entropy.
        model_class: the class of a user's own encoder; None for `EncoderClassifier`.
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
        """The number of tokens in the vocabulary."""
        return self.tokenizer.get_vocab_size()

    @cached_property
    def train_texts(self) -> TokenizedTexts:
        """The tokens of the labelled training texts."""
        return self.texts[: len(self.dataset.train)]

    @cached_property
    def validation_groups(self) -> RowGroups:
        """Which of `validation_texts` belong together."""
        return RowGroups(self.dataset.known_validation.split_groups)

    @cached_property
    def encoder_rows(self) -> NDArray[np.int64]:
        """The rows in `texts` of the texts that the encoder learns classes from, (texts,)."""
        return rows_for_encoder(self.texts, len(self.dataset.train), self.plan.has_pseudo_labels)

    @cached_property
    def encoder_texts(self) -> TokenizedTexts:
        """The tokens of the texts that the encoder learns classes from."""
        if not self.plan.has_pseudo_labels:
            return self.train_texts
        return self.texts.take(self.encoder_rows)

    @cached_property
    def encoder_sampler(self) -> BatchSampler:
        """The sampler of the batches of `encoder_texts`."""
        return BatchSampler(self.encoder_texts.lengths, self.config.train, seed=self.config.seed)

    @cached_property
    def class_weights(self) -> Tensor:
        """The weight of each class in the loss, (classes,).

        In a multi-label task, the weight applies to the texts with the label; the texts without it
        have the weight 1.
        """
        label_names = self.dataset.label_names
        class_weights = self.config.train.class_weights
        if class_weights == "none":
            return torch.ones(len(label_names))
        if class_weights != "balanced":
            return torch.tensor([class_weights.get(name, 1.0) for name in label_names])

        counts = self.dataset.train.class_counts(len(label_names))
        if self.dataset.is_multi_label:
            counts_without = len(self.dataset.train) - counts
            weights = np.maximum(1, counts_without) / counts
            return torch.from_numpy(weights).float()
        return torch.from_numpy(balanced_weights(counts))

    @cached_property
    def text_weights(self) -> NDArray[np.float32] | None:
        """How much each training text counts, 1 on average, (texts,); None if all count alike."""
        return relative_weights(self.dataset.train)

    def where(self, text: int) -> str:
        """The place that a text, a row of `texts`, was read from, such as its file and line."""
        num_labelled = len(self.dataset.train)
        if text < num_labelled:
            return self.dataset.train.where[text]
        return self.dataset.unlabelled.where[text - num_labelled]

    def first_places(self, rows: NDArray[np.int64]) -> str:
        """The places that the first three of these rows of `texts` were read from, for messages."""
        return ", ".join(self.where(int(row)) for row in rows[:3])

    def new_model(
        self, seed: int, kind: type[EncoderClassifier] | None = None
    ) -> EncoderClassifier:
        """Make an encoder with random weights, which depend only on the seed."""
        torch.manual_seed(seed)
        kind = kind or self.model_class or EncoderClassifier
        num_classes = len(self.dataset.label_names)
        return kind(self.config.model, vocab_size=self.vocab_size, num_classes=num_classes)

    def new_classifier(self, encoder: PredictingEncoder | None) -> Classifier:
        """Make a classifier of the classes of this data, without a linear model.

        Without an encoder, it has no parts, and the caller adds a linear model.
        """
        data = self.config.data
        architecture = None
        if self.plan.has_encoder:
            architecture = EncoderArchitecture.of(self.config.model)

        return Classifier(
            encoder,
            self.tokenizer,
            self.dataset.label_names,
            max_seq_len=self.config.model.max_seq_len,
            task=task_of(self.dataset.train.labels),
            text_format=TextFormat(
                columns=data.text_column,
                reading=data.reading_options.for_other_files(),
                label_column=data.label_column,
                label_separator=data.label_separator,
            ),
            encoder_architecture=architecture,
            model_class=self.model_class,
        )

    def tokenize(self, *texts: Iterable[str]) -> TokenizedTexts:
        """Tokenize all texts of these collections, one after another."""
        return self.new_classifier(None).tokenize(chain(*texts))

    def warnings(self) -> Iterator[str]:
        """Yield warnings about the data and about texts that are not read completely."""
        yield from data_warnings(self.dataset, learns_validation=self.plan.refits_on_validation)

        if self.plan.has_encoder and self.base and self.base.encoder is None:
            yield f"{self.config.from_run} has no encoder, so a new one is trained from scratch"

        if self.objective and not self.plan.has_encoder:
            yield "no encoder is trained, so the objective is never called"

        if self.long_words:
            yield (
                f"words of more than {MAX_LEARNED_LENGTH} characters, which the "
                f"{self.config.tokenizer.type} tokenizer does not learn from: "
                f"{self.long_words:,}; are they attachments?"
            )

        truncated = self.data_statistics["truncated_fraction"]
        if self.plan.has_encoder and truncated > MAX_TRUNCATED:
            yield (
                f"{truncated:.1%} of the training texts are longer than the "
                f"{self.config.model.max_seq_len:,} tokens that the encoder reads; a larger "
                "model.max_seq_len reads more of them, and takes longer"
            )

    def report_warnings(self, reporter: Reporter) -> None:
        """Pass all warnings to a reporter."""
        for message in self.warnings():
            reporter.warning(message)

    @property
    def num_parameters(self) -> int:
        """The number of parameters of the encoder; 0 without an encoder."""
        if not self.plan.has_encoder:
            return 0
        if self.model_class:
            return sum(weight.numel() for weight in self.new_model(self.config.seed).parameters())

        architecture = EncoderArchitecture.of(self.config.model)
        shapes = architecture.weight_shapes(
            vocab_size=self.vocab_size, num_classes=len(self.dataset.label_names)
        )
        return sum(math.prod(shape) for shape in shapes.values())

    @cached_property
    def data_statistics(self) -> dict[str, float]:
        """The sizes of the data, and the fractions of truncated texts, unknown tokens and padding.

        The tokens of the encoder's batches include padding: each batch is as wide as its longest
        text.
        """
        # Count the tokens of an epoch, padding included.
        lengths = self.encoder_texts.lengths
        sampler = self.encoder_sampler
        num_with_padding = 0
        for number in range(sampler.batches_per_epoch):
            batch = sampler.indices(number)
            num_with_padding += lengths[batch].max() * len(batch)

        statistics: dict[str, float] = {
            "training_texts": len(self.dataset.train),
            "validation_texts": len(self.dataset.validation),
            "test_texts": len(self.dataset.test or ()),
            "unlabelled_texts": len(self.dataset.unlabelled.texts),
            "tokens": int(self.texts.lengths.sum()),
            "classes": len(self.dataset.label_names),
            "vocabulary": self.vocab_size,
        }
        if self.plan.has_encoder:
            statistics["parameters"] = self.num_parameters
        statistics["truncated_fraction"] = float(self.encoder_texts.truncated.mean())
        statistics["unknown_fraction"] = self.validation_texts.unknown_fraction
        statistics["padding_fraction"] = float(1 - lengths.sum() / num_with_padding)
        return statistics


def rows_for_encoder(
    texts: TokenizedTexts, num_labelled: int, has_pseudo_labels: bool
) -> NDArray[np.int64]:
    """List the rows of the texts that the encoder learns classes from, (texts,).

    The labelled texts come first, in `texts` and in the list. With pseudo-labels, the encoder also
    learns from a sample of the unlabelled texts.
    """
    if has_pseudo_labels:
        return sample_rows(texts, num_labelled, texts.max_seq_len)
    return np.arange(num_labelled)
