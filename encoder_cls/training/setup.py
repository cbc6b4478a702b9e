"""Config in, `TrainingSetup` out: all that is known before the first step, and written nowhere yet."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from tokenizers import Tokenizer
from torch import Tensor

from encoder_cls.config import Config, TrainConfig
from encoder_cls.data.checks import data_warnings
from encoder_cls.data.dataset import Dataset, listed, load_dataset
from encoder_cls.data.readers import Row
from encoder_cls.errors import ConfigError
from encoder_cls.inference.classifier import Classifier, Encoder
from encoder_cls.inference.encoder_architecture import EncoderArchitecture
from encoder_cls.model import EncoderClassifier
from encoder_cls.system.disk_arrays import ConcatenatedTexts
from encoder_cls.text.token_arrays import TokenizedTexts
from encoder_cls.text.tokenizer import tokenize
from encoder_cls.text.tokenizer_trainer import train_and_tokenize
from encoder_cls.training.class_weight_check import balanced_weights
from encoder_cls.training.feature_corpus import sample_rows
from encoder_cls.training.few_labels import MOST_LABELLED, fit_linear_from_few_labels
from encoder_cls.training.fitted_linear import FittedLinear
from encoder_cls.training.folds import NO_TEXTS, folds
from encoder_cls.training.label_names import names_as_texts
from encoder_cls.training.nbsvm import fit_linear
from encoder_cls.training.objectives import ClassificationObjective, MaskedLMObjective
from encoder_cls.training.recipe import CorpusSize, LinearInput, Recipe, Schedule, resolve_auto, training_schedule
from encoder_cls.training.sampler import BatchSampler
from encoder_cls.training.stage import Stage

MOST_TRUNCATED = 0.05  # of the training texts, without a warning


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
        schedule = self.recipe.pretraining
        pretraining = [self._pretraining_stage(schedule)] if schedule else []
        return [*pretraining, self._model_stage(starts_from=pretraining[0].name if pretraining else None)]

    @cached_property
    def class_weights(self) -> Tensor:
        """The weight of each class in the loss, (classes,)."""
        choice, dataset = self.config.train.class_weights, self.dataset
        counts = np.bincount(dataset.train.labels, minlength=len(dataset.label_names))
        weights: NDArray[np.floating[Any]]
        if choice == "balanced":
            weights = balanced_weights(counts)
        elif choice == "none":
            weights = np.ones(len(counts))
        else:
            weights = np.array([choice.get(name, 1.0) for name in dataset.label_names])
        return torch.from_numpy(weights).float()

    @cached_property
    def train_texts(self) -> TokenizedTexts:
        """The texts with labels."""
        return self.texts.first(len(self.dataset.train))

    @cached_property
    def texts_of_names(self) -> TokenizedTexts:
        """What the names of the classes say, as texts."""
        texts = names_as_texts(self.dataset.label_names)
        return tokenize(self.tokenizer, texts, max_seq_len=self.config.model.max_seq_len)

    @property
    def has_few_labels(self) -> bool:
        """Whether the linear classifier is to learn from more than the labels, and may find something there."""
        train, num_labelled = self.config.train, len(self.dataset.train)
        wants_texts = train.naive_bayes_em or train.lsa_dimensions > 0 or train.self_training
        has_more = (wants_texts and len(self.texts) > num_labelled) or train.label_names_as_texts
        return num_labelled <= MOST_LABELLED and has_more

    @property
    def refits_on_validation(self) -> bool:
        """Whether the linear classifier also learns from the texts held out: few labels, and no file of others."""
        config = self.config
        return self.has_few_labels and config.train.refit_on_validation and config.data.validation is None

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

    def new_model(self, stage: Stage) -> EncoderClassifier:
        """The model of a stage with its first weights, a function of the seed."""
        torch.manual_seed(stage.seed)
        return EncoderClassifier(
            self.config.model, vocab_size=self.vocab_size, num_classes=len(self.dataset.label_names)
        )

    def fit_linear(self, read: LinearInput) -> FittedLinear:
        """A linear classifier of the texts with labels; with few of them, of whatever they show to help."""
        labels, weights = self.dataset.train.labels, self.class_weights.numpy()
        groups = self.dataset.train.groups
        if not self.has_few_labels:
            parts = folds(len(labels), groups)
            classifier = fit_linear(self.train_texts, labels, class_weights=weights, parts=parts, **read._asdict())
            return FittedLinear(classifier, classifier.logits(self.validation_texts), None)
        texts, held_out = self.texts, NO_TEXTS
        if self.refits_on_validation:
            texts = self._texts_with_validation()
            held_out = len(labels) + np.arange(len(self.validation_texts))
            labels = np.concatenate([labels, self.dataset.selection.labels])
            if groups is not None and self.dataset.selection.groups is not None:
                groups = np.concatenate([groups, self.dataset.selection.groups])
        result = fit_linear_from_few_labels(
            texts,
            labels,
            self.texts_of_names,
            held_out=held_out,
            config=self.config.train,
            class_weights=weights,
            groups=groups,
            read=read,
        )
        is_held_out = len(held_out) > 0
        logits = result.logits_held_out if is_held_out else result.classifier.logits(self.validation_texts)
        return FittedLinear(result.classifier, logits, result)

    @property
    def has_pseudo_labels(self) -> bool:
        """Whether the encoder also learns from texts without labels what the linear classifier says of them."""
        config = self.config
        has_both = config.model.encoder and self.recipe.linear is not None
        return (
            has_both and self.has_few_labels and config.train.pseudo_labels and len(self.dataset.unlabelled.texts) > 0
        )

    @cached_property
    def rows_of_model_stage(self) -> NDArray[np.int64]:
        """Which of the texts the encoder learns classes from: those with labels, then those with pseudo-labels."""
        num_labelled = len(self.dataset.train)
        if not self.has_pseudo_labels:
            return np.arange(num_labelled)
        return sample_rows(self.texts, num_labelled, self.config.model.max_seq_len)

    def _texts_with_validation(self) -> TokenizedTexts:
        """The texts with labels, those of validation, and those without labels."""
        dataset = self.dataset
        texts = ConcatenatedTexts(dataset.train.texts, dataset.selection.texts, dataset.unlabelled.texts)
        return tokenize(self.tokenizer, texts, max_seq_len=self.config.model.max_seq_len)

    def new_classifier(self, encoder: Encoder | None) -> Classifier:
        """A classifier of this data, around an encoder if there is one, before a linear classifier has been fitted."""
        data = self.config.data
        classifier = Classifier(
            encoder,
            self.tokenizer,
            self.dataset.label_names,
            max_seq_len=self.config.model.max_seq_len,
            text_columns=data.text_column,
        )
        classifier.delimiter, classifier.encoding = data.delimiter, data.encoding
        return classifier

    @property
    def num_parameters(self) -> int:
        """Numbers to learn of the encoder, if there is one: a linear classifier's are known when it is fitted."""
        if not self.config.model.encoder:
            return 0
        shape = {"vocab_size": self.vocab_size, "num_classes": len(self.dataset.label_names)}
        return sum(map(math.prod, EncoderArchitecture.of(self.config.model).weight_shapes(**shape).values()))

    @cached_property
    def data_statistics(self) -> dict[str, float]:
        """How much there is of what, and what it looks like to the model: texts too long, tokens unknown, padding."""
        texts, sampler = self.stages[-1].texts, self.stages[-1].sampler
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
            **({"parameters": self.num_parameters} if self.config.model.encoder else {}),
            "truncated_fraction": texts.truncated_fraction,
            "unknown_fraction": self.validation_texts.unknown_fraction,
            "padding_fraction": float(1 - lengths.sum() / padded),
        }

    def _pretraining_stage(self, schedule: Schedule) -> Stage:
        config, texts = self.config, self.texts
        seed = derive_seed(config.seed, 1000)  # far from those that a person would try for the model
        sampler = _sampler(texts, config.train, seed=seed)
        return Stage(
            name="pretraining",
            metric_prefix="pretraining/",
            seed=seed,
            starts_from=None,
            texts=texts,
            rows=np.arange(len(texts)),
            sampler=sampler,
            epochs=schedule.epochs,
            validate_every=_validate_every(schedule, sampler, config.train),
            patience=None,  # other tokens are masked each time, so there is no overfitting
            time_budget=config.pretrain.time_budget,
            linear=None,
            make_objective=lambda device, _linear: MaskedLMObjective(
                texts,
                sampler,
                self.validation_texts,
                mask_probability=config.pretrain.mask_probability,
                batch_tokens=config.train.batch_tokens,
                validation_seed=seed,
                device=device,
            ),
        )

    def _model_stage(self, *, starts_from: str | None) -> Stage:
        config, schedule, rows = self.config, self.recipe.training, self.rows_of_model_stage
        texts = self.texts.take(rows) if self.has_pseudo_labels else self.train_texts
        sampler = _sampler(texts, config.train, seed=config.seed)
        return Stage(
            name="model",
            metric_prefix="",
            seed=config.seed,
            starts_from=starts_from,
            texts=texts,
            rows=rows,
            sampler=sampler,
            epochs=schedule.epochs,
            validate_every=_validate_every(schedule, sampler, config.train),
            patience=config.train.patience,
            time_budget=None,
            linear=self.recipe.linear,
            make_objective=lambda device, linear: ClassificationObjective(
                texts,
                sampler,
                self.validation_texts,
                dataset=self.dataset,
                class_weights=self.class_weights,
                config=config.train,
                linear=linear,
                device=device,
            ),
        )


def _sampler(texts: TokenizedTexts, config: TrainConfig, *, seed: int) -> BatchSampler:
    return BatchSampler(
        texts.lengths,
        batch_size=config.batch_size,
        batch_tokens=config.batch_tokens,
        seed=seed,
        accumulation_steps=config.accumulation_steps,
    )


def _validate_every(schedule: Schedule, sampler: BatchSampler, config: TrainConfig) -> int:
    """Steps between the validations of a stage."""
    return config.validate_every or schedule.epochs_between_validations * sampler.steps_per_epoch


def _corpus_size(texts: TokenizedTexts, config: Config) -> CorpusSize:
    sampler = _sampler(texts, config.train, seed=config.seed)
    return CorpusSize(tokens=int(texts.lengths.sum()), steps=sampler.steps_per_epoch)


def derive_seed(*numbers: int) -> int:
    """One seed made of several numbers; of 32 bits, since torch's CPU generator looks at no more of its seed."""
    return int(np.random.SeedSequence(numbers).generate_state(1)[0])


def prepare(config: Config, *, train_rows: Iterable[Row] | None = None) -> TrainingSetup:
    """Read the data, train the tokenizer and decide on the recipe.

    Args:
        config: of the run.
        train_rows: as in `load_dataset`.

    Raises:
        DataError: the data is missing, malformed or not enough.
        ConfigError: class weights name a class that does not occur.
    """
    dataset = load_dataset(config.data, train_rows=train_rows)
    _check_class_weights(config, dataset)
    max_seq_len = config.model.max_seq_len
    texts_to_learn_from = ConcatenatedTexts(dataset.train.texts, dataset.unlabelled.texts)
    tokenizer, texts = train_and_tokenize(texts_to_learn_from, config.tokenizer, max_seq_len=max_seq_len)
    validation_texts = tokenize(tokenizer, dataset.selection.texts, max_seq_len=max_seq_len)
    labelled = texts.first(len(dataset.train))
    recipe = resolve_auto(
        config,
        texts=_corpus_size(texts, config),
        labelled=_corpus_size(labelled, config),
        tokens_within=lambda max_tokens: int(labelled.lengths_within(max_tokens).sum()),
        num_classes=len(dataset.label_names),
    )
    setup = TrainingSetup(
        config=config,
        dataset=dataset,
        tokenizer=tokenizer,
        texts=texts,
        validation_texts=validation_texts,
        recipe=recipe,
    )
    if setup.has_pseudo_labels:
        learned_from = _corpus_size(texts.take(setup.rows_of_model_stage), config)
        setup = replace(setup, recipe=replace(recipe, training=training_schedule(config, learned_from)))
    return setup


def setup_warnings(setup: TrainingSetup) -> Iterator[str]:
    """What a person should look at before training: warnings about the data, and of texts that are cut."""
    yield from data_warnings(setup.dataset)
    truncated = setup.data_statistics["truncated_fraction"]
    if truncated > MOST_TRUNCATED:
        yield (
            f"{truncated:.1%} of the training texts are longer than the {setup.config.model.max_seq_len:,} tokens that "
            "the encoder reads; a larger model.max_seq_len reads more of them, and takes longer"
        )


def _check_class_weights(config: Config, dataset: Dataset) -> None:
    """Make sure that each class that has a weight occurs."""
    weights = config.train.class_weights
    unknown = sorted(weights.keys() - set(dataset.label_names)) if isinstance(weights, dict) else []
    if unknown:
        raise ConfigError(
            f"train.class_weights: no class is called {unknown[0]!r}; there are {listed(dataset.label_names)}"
        )
