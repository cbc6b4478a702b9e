"""Config in, `TrainingSetup` out: all that is known before the first step, and written nowhere yet."""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cached_property
from typing import Literal

import numpy as np
import torch
from tokenizers import Tokenizer
from torch import Tensor

from encoder_cls.config import Config, TrainConfig
from encoder_cls.data.dataset import Dataset, listed, load_dataset
from encoder_cls.errors import ConfigError
from encoder_cls.inference.architecture import EncoderArchitecture
from encoder_cls.inference.collate import Indices
from encoder_cls.model import EncoderClassifier
from encoder_cls.system.disk_arrays import Joined
from encoder_cls.text.token_arrays import TokenizedTexts
from encoder_cls.text.tokenizer import tokenize
from encoder_cls.text.tokenizer_trainer import train_and_tokenize
from encoder_cls.training.recipe import CorpusSize, Recipe, Schedule, resolve_auto
from encoder_cls.training.sampler import BatchSchedule


@dataclass(frozen=True, kw_only=True)
class Stage:
    """A part of the training, from first weights to the best.

    Attributes:
        name: `pretraining`, then `model`.
        seed: of its batches and its dropout, and of its first weights where it starts from none.
        length: how long it is.
        learns_from: `words`, of which some are masked, or `labels`.
        starts_from: the stage whose weights are its first; none: random ones.
        texts: from which it learns.
        schedule: the batches of all epochs.
        accumulation_steps: batches of an optimizer step.
    """

    name: str
    seed: int
    length: Schedule
    learns_from: Literal["words", "labels"]
    starts_from: str | None
    texts: TokenizedTexts
    schedule: BatchSchedule
    accumulation_steps: int

    @property
    def steps_per_epoch(self) -> int:
        """Optimizer steps of one pass."""
        return math.ceil(self.schedule.batches_per_epoch / self.accumulation_steps)

    @property
    def total_steps(self) -> int:
        """Optimizer steps of all epochs."""
        return self.length.epochs * self.steps_per_epoch

    def batches(self, step: int) -> list[Indices]:
        """The batches of a step; the last step of an epoch may have fewer, so that no step spans two epochs."""
        epoch, place = divmod(step, self.steps_per_epoch)
        first = epoch * self.schedule.batches_per_epoch
        last = min((place + 1) * self.accumulation_steps, self.schedule.batches_per_epoch)
        return [self.schedule.indices(first + batch) for batch in range(place * self.accumulation_steps, last)]


@dataclass(frozen=True, kw_only=True)
class TrainingSetup:
    """The data of a run, tokenized, with its tokenizer and all stages of its training.

    Attributes:
        config: of the run.
        dataset: its data.
        tokenizer: trained on all texts but those of validation and test.
        texts: those texts: those with labels, then those without.
        validation_texts: the validation texts that choose the weights (`Dataset.selection`).
        recipe: what was decided for so much text.
    """

    config: Config
    dataset: Dataset
    tokenizer: Tokenizer
    texts: TokenizedTexts
    validation_texts: TokenizedTexts
    recipe: Recipe

    @cached_property
    def stages(self) -> list[Stage]:
        """Pretraining, if there is any, and the model, which starts from it."""
        recipe, seed = self.recipe, self.config.seed
        if not recipe.pretraining:
            return [self._stage("model", seed, recipe.length, None)]
        # The model's seed is the config's; that of pretraining is far from those that a person would try.
        pretraining = self._stage("pretraining", derive_seed(seed, 1000), recipe.pretraining, None)
        return [pretraining, self._stage("model", seed, recipe.length, pretraining.name)]

    @cached_property
    def class_weights(self) -> Tensor:
        """The weight of each class in the loss, (classes,)."""
        choice, dataset = self.config.train.class_weights, self.dataset
        counts = np.bincount(dataset.train.labels, minlength=len(dataset.label_names))
        if choice == "balanced":
            weights = len(dataset.train) / (len(counts) * counts)
        elif choice == "none":
            weights = np.ones(len(counts))
        else:
            weights = np.array([choice.get(name, 1.0) for name in dataset.label_names])
        return torch.from_numpy(weights).float()

    @cached_property
    def train_texts(self) -> TokenizedTexts:
        """The texts with labels."""
        return self.texts.first(len(self.dataset.train))

    def where(self, text: int) -> str:
        """Where one of the texts was read."""
        train, unlabelled = self.dataset.train, self.dataset.unlabelled
        return train.where[text] if text < len(train) else unlabelled.where[text - len(train)]

    @property
    def total_steps(self) -> int:
        """Optimizer steps of all epochs of all stages."""
        return sum(stage.total_steps for stage in self.stages)

    @property
    def vocab_size(self) -> int:
        """Number of tokens."""
        return self.tokenizer.get_vocab_size()

    def validate_every(self, stage: Stage) -> int:
        """Steps of a stage between validations."""
        return self.config.train.validate_every or stage.length.epochs_between_validations * stage.steps_per_epoch

    def new_model(self, stage: Stage) -> EncoderClassifier:
        """The model of a stage with its first weights, a function of the seed."""
        torch.manual_seed(stage.seed)
        return EncoderClassifier(
            self.config.model, vocab_size=self.vocab_size, num_classes=len(self.dataset.label_names)
        )

    @property
    def num_parameters(self) -> int:
        """Numbers to learn."""
        shape = {"vocab_size": self.vocab_size, "num_classes": len(self.dataset.label_names)}
        return sum(map(math.prod, EncoderArchitecture.of(self.config.model).weight_shapes(**shape).values()))

    @cached_property
    def facts(self) -> dict[str, float]:
        """How much there is of what, and what it looks like to the model: texts too long, tokens unknown, padding."""
        texts, schedule = self.stages[-1].texts, self.stages[-1].schedule
        lengths = texts.lengths
        batches = (schedule.indices(i) for i in range(schedule.batches_per_epoch))
        padded = sum(lengths[batch].max() * len(batch) for batch in batches)
        return {
            "training_texts": len(self.dataset.train),
            "validation_texts": len(self.dataset.validation),
            "test_texts": len(self.dataset.test) if self.dataset.test else 0,
            "unlabelled_texts": len(self.dataset.unlabelled.texts),
            "tokens": int(self.texts.lengths.sum()),
            "classes": len(self.dataset.label_names),
            "vocabulary": self.vocab_size,
            "parameters": self.num_parameters,
            "truncated_fraction": texts.truncated_fraction,
            "unknown_fraction": self.validation_texts.unknown_fraction,
            "padding_fraction": float(1 - lengths.sum() / padded),
        }

    def _stage(self, name: str, seed: int, length: Schedule, starts_from: str | None) -> Stage:
        learns_from: Literal["words", "labels"] = "words" if name == "pretraining" else "labels"
        texts = self.texts if learns_from == "words" else self.train_texts
        return Stage(
            name=name,
            seed=seed,
            length=length,
            learns_from=learns_from,
            starts_from=starts_from,
            texts=texts,
            schedule=_schedule(texts, self.config.train, seed=seed),
            accumulation_steps=self.config.train.accumulation_steps,
        )


def _schedule(texts: TokenizedTexts, config: TrainConfig, *, seed: int) -> BatchSchedule:
    return BatchSchedule(texts.lengths, batch_size=config.batch_size, batch_tokens=config.batch_tokens, seed=seed)


def _amount(texts: TokenizedTexts, config: Config) -> CorpusSize:
    batches = _schedule(texts, config.train, seed=config.seed).batches_per_epoch
    return CorpusSize(int(texts.lengths.sum()), math.ceil(batches / config.train.accumulation_steps))


def derive_seed(*numbers: int) -> int:
    """One seed made of several numbers; of 32 bits, since torch's CPU generator looks at no more of its seed."""
    return int(np.random.SeedSequence(numbers).generate_state(1)[0])


def prepare(config: Config) -> TrainingSetup:
    """Read the data, train the tokenizer and decide on the recipe.

    Raises:
        DataError: the data is missing, malformed or not enough.
        ConfigError: class weights name a class that does not occur.
    """
    dataset = load_dataset(config.data, seed=config.seed)
    weights = config.train.class_weights
    unknown = sorted(weights.keys() - set(dataset.label_names)) if isinstance(weights, dict) else []
    if unknown:
        raise ConfigError(
            f"train.class_weights: no class is called {unknown[0]!r}; there are {listed(dataset.label_names)}"
        )
    given = Joined(dataset.train.texts, dataset.unlabelled.texts)
    max_seq_len = config.model.max_seq_len
    tokenizer, texts = train_and_tokenize(given, config.tokenizer, max_seq_len=max_seq_len)
    validation_texts = tokenize(tokenizer, dataset.selection.texts, max_seq_len=max_seq_len)
    labelled = texts.first(len(dataset.train))
    amounts = [_amount(some, config) for some in (texts, labelled)]
    recipe = resolve_auto(
        config,
        texts=amounts[0],
        labelled=amounts[1],
        tokens_within=lambda max_tokens: int(labelled.lengths_within(max_tokens).sum()),
        num_classes=len(dataset.label_names),
    )
    return TrainingSetup(
        config=config,
        dataset=dataset,
        tokenizer=tokenizer,
        texts=texts,
        validation_texts=validation_texts,
        recipe=recipe,
    )
