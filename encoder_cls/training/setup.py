"""All that is known of a run before its first step, and written nowhere yet: data, tokens, recipe, stages."""

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

from encoder_cls.config import Config, TrainConfig
from encoder_cls.data.dataset import Dataset
from encoder_cls.data.load import names_validation
from encoder_cls.inference.classifier import Classifier, Encoder
from encoder_cls.inference.encoder.architecture import EncoderArchitecture
from encoder_cls.inference.task import MULTI_LABEL, SINGLE_LABEL, Task, softmax, task_of
from encoder_cls.model import EncoderClassifier
from encoder_cls.text.tokens import TokenizedTexts
from encoder_cls.training.class_weight_check import balanced_weights
from encoder_cls.training.encoder.batches import BatchSampler, derive_seed
from encoder_cls.training.encoder.classification import ClassificationObjective
from encoder_cls.training.encoder.masked_lm import MaskedLMObjective
from encoder_cls.training.encoder.stage import Stage
from encoder_cls.training.linear.features import sample_rows
from encoder_cls.training.linear.techniques import MOST_LABELLED, FittedLinear, LinearAnswers
from encoder_cls.training.recipe import CorpusSize, Recipe, Schedule

REPORTED_VALIDATIONS = 3  # what comes after training computes logits of the validation texts about so often


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
        seconds: that it took to prepare all this.
        former: the classifier of the run that this one goes on from; none: it begins from nothing.
        long_words: how many words were too long for a sub-word tokenizer to learn from.
    """

    config: Config
    dataset: Dataset
    tokenizer: Tokenizer
    texts: TokenizedTexts
    validation_texts: TokenizedTexts
    recipe: Recipe
    seconds: float = 0.0
    former: Classifier | None = None
    long_words: int = 0

    @cached_property
    def stages(self) -> list[Stage]:
        """Pretraining, if there is any, and the model, which starts from it."""
        schedule = self.recipe.pretraining
        pretraining = [self._pretraining_stage(schedule)] if schedule else []
        return [*pretraining, self._model_stage(starts_from=pretraining[0].name if pretraining else None)]

    @property
    def task(self) -> Task:
        """What the classifier is to answer, as the data has it."""
        return task_of(self.dataset.train.labels)

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

    @cached_property
    def train_texts(self) -> TokenizedTexts:
        """The texts with labels."""
        return self.texts.first(len(self.dataset.train))

    @property
    def has_few_labels(self) -> bool:
        """Whether the linear classifier is to learn from more than the labels, and may find something there."""
        train, num_labelled = self.config.train, len(self.dataset.train)
        wants_texts = train.naive_bayes_em or train.lsa_dimensions > 0 or train.self_training
        has_more = (wants_texts and len(self.texts) > num_labelled) or train.label_names_as_texts
        is_streamed = self.recipe.linear is not None and self.recipe.linear.is_streamed
        is_possible = self.task is SINGLE_LABEL and not self.dataset.has_names_alone and not is_streamed
        return num_labelled <= MOST_LABELLED and has_more and is_possible

    @property
    def has_encoder(self) -> bool:
        """Whether an encoder is trained; without a label there is nothing that would tell it when to stop."""
        return self.config.model.encoder and not self.dataset.has_names_alone

    @property
    def refits_on_validation(self) -> bool:
        """Whether the linear classifier also learns from the texts held out for validation, of no file of their own."""
        config, linear = self.config, self.recipe.linear
        if not config.train.refit_on_validation or names_validation(config):
            return False
        # What a run that goes on from another holds out is what both are compared on.
        is_possible = self.task is SINGLE_LABEL and config.from_run is None and len(self.validation_texts) > 0
        return self.has_few_labels or (is_possible and linear is not None and not linear.is_streamed)

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

    @property
    def has_pseudo_labels(self) -> bool:
        """Whether the encoder also learns from texts without labels what the linear classifier says of them."""
        config = self.config
        has_both = self.has_encoder and self.recipe.linear is not None
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

    def answers_of(self, fitted: FittedLinear) -> LinearAnswers:
        """What the encoder is given of a linear classifier: its validation logits, and pseudo-labels where it teaches.

        Soft labels: Hinton et al., "Distilling the Knowledge in a Neural Network", 2015,
        https://arxiv.org/abs/1503.02531.
        """
        if not self.has_pseudo_labels or not fitted.few_labels:
            return LinearAnswers(fitted.validation_logits)
        unlabelled = self.texts.take(self.rows_of_model_stage[len(self.dataset.train) :])
        pseudo_labels = softmax(fitted.few_labels.teacher.logits(unlabelled)).astype(np.float32)
        return LinearAnswers(fitted.validation_logits, pseudo_labels)

    def new_classifier(self, encoder: Encoder | None) -> Classifier:
        """A classifier of this data, around an encoder if there is one, before a linear classifier has been fitted."""
        data = self.config.data
        classifier = Classifier(
            encoder,
            self.tokenizer,
            self.dataset.label_names,
            max_seq_len=self.config.model.max_seq_len,
            text_columns=data.text_column,
            task=self.task,
        )
        classifier.delimiter, classifier.encoding = data.delimiter, data.encoding
        if self.has_encoder:
            classifier.encoder_architecture = EncoderArchitecture.of(self.config.model)
        return classifier

    @property
    def num_parameters(self) -> int:
        """Numbers to learn of the encoder, if there is one: a linear classifier's are known when it is fitted."""
        if not self.has_encoder:
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
            **({"parameters": self.num_parameters} if self.has_encoder else {}),
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
            validation_cost=self._cost_of(self.validation_texts, texts, sampler),
            report_cost=0.0,
            make_objective=lambda device, _answers: MaskedLMObjective(
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
        validation_cost = self._cost_of(self.validation_texts, texts, sampler)
        num_validated = max(1, len(self.validation_texts))
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
            validation_cost=validation_cost,
            report_cost=validation_cost * (REPORTED_VALIDATIONS + len(self.dataset.test or ()) / num_validated),
            make_objective=lambda device, answers: ClassificationObjective(
                texts,
                sampler,
                self.validation_texts,
                dataset=self.dataset,
                class_weights=self.class_weights,
                config=config.train,
                answers=answers,
                device=device,
            ),
        )

    @staticmethod
    def _cost_of(texts: TokenizedTexts, of_training: TokenizedTexts, sampler: BatchSampler) -> float:
        """The time that logits of texts take, in that of a step: a forward pass is about a third of it."""
        tokens_per_step = int(of_training.lengths.sum()) / sampler.steps_per_epoch
        return int(texts.lengths.sum()) / tokens_per_step / 3


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


def corpus_size(texts: TokenizedTexts, config: Config) -> CorpusSize:
    """How much text that is."""
    sampler = _sampler(texts, config.train, seed=config.seed)
    return CorpusSize(tokens=int(texts.lengths.sum()), steps=sampler.steps_per_epoch)
