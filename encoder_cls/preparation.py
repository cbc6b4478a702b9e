"""Config in, `Preparation` out: all that is known before the first step, and written nowhere yet."""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cached_property

import torch
from tokenizers import Tokenizer

from encoder_cls.batching import BatchSchedule
from encoder_cls.config import Config
from encoder_cls.data import Dataset, load_dataset
from encoder_cls.errors import ConfigError
from encoder_cls.model import EncoderClassifier
from encoder_cls.tokenizer import TokenizedTexts, tokenize, train_tokenizer


@dataclass(frozen=True, kw_only=True)
class Preparation:
    """The data of a run, tokenized, with its tokenizer and the batches of all its steps."""

    config: Config
    dataset: Dataset
    tokenizer: Tokenizer
    train_texts: TokenizedTexts
    validation_texts: TokenizedTexts
    schedule: BatchSchedule

    @property
    def steps_per_epoch(self) -> int:
        """Optimizer steps of one pass over the training texts."""
        return math.ceil(self.schedule.batches_per_epoch / self.config.train.accumulation_steps)

    @property
    def total_steps(self) -> int:
        """Optimizer steps of all epochs."""
        return self.config.train.epochs * self.steps_per_epoch

    @property
    def vocab_size(self) -> int:
        """Number of tokens."""
        return self.tokenizer.get_vocab_size()

    def new_model(self) -> EncoderClassifier:
        """The model with its first weights, a function of the seed."""
        torch.manual_seed(self.config.seed)
        return EncoderClassifier(
            self.config.model, vocab_size=self.vocab_size, num_classes=len(self.dataset.label_names)
        )

    @property
    def num_parameters(self) -> int:
        """Numbers to learn; counted on a model without memory."""
        with torch.device("meta"):
            return sum(parameter.numel() for parameter in self.new_model().parameters())

    @cached_property
    def facts(self) -> dict[str, float]:
        """What the data looks like to the model: fractions of texts cut, of tokens unknown, of padding."""
        lengths, batches = self.train_texts.lengths, self.schedule.batches_per_epoch
        padded = sum(lengths[(batch := self.schedule.indices(i))].max() * len(batch) for i in range(batches))
        return {
            "truncated_fraction": self.train_texts.truncated_fraction,
            "unknown_fraction": self.validation_texts.unknown_fraction,
            "padding_fraction": float(1 - lengths.sum() / padded),
        }


def prepare(config: Config) -> Preparation:
    """Read the data, train the tokenizer and lay out the batches.

    Raises:
        DataError: the data is missing, malformed or not enough.
        ConfigError: class weights name a class that does not occur.
    """
    dataset = load_dataset(config.data, seed=config.seed)
    weights = config.train.class_weights
    unknown = sorted(weights.keys() - set(dataset.label_names)) if isinstance(weights, dict) else []
    if unknown:
        raise ConfigError(f"train.class_weights: no class is called {unknown[0]!r}")
    tokenizer = train_tokenizer(dataset.train.texts, config.tokenizer)
    train_texts, validation_texts = (
        tokenize(tokenizer, split.texts, max_seq_len=config.model.max_seq_len)
        for split in (dataset.train, dataset.validation)
    )
    schedule = BatchSchedule(
        train_texts.lengths,
        batch_size=config.train.batch_size,
        batch_tokens=config.train.batch_tokens,
        seed=config.seed,
    )
    return Preparation(
        config=config,
        dataset=dataset,
        tokenizer=tokenizer,
        train_texts=train_texts,
        validation_texts=validation_texts,
        schedule=schedule,
    )
