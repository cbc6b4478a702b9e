"""What is learnt in a step, and how a validation judges what has been learnt so far.

Pretraining guesses hidden words; teachers, and models without any, learn the labels; a model that has teachers learns
what they make of varied texts. All are pure functions of the step, given that torch's random numbers have been seeded
for it.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import NamedTuple, Protocol

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional

from encoder_cls.batching import Batch, Indices, by_length, drop_words, gather, hide_words, pad, vary
from encoder_cls.calibration import Logits
from encoder_cls.classifier import compute_logits
from encoder_cls.distillation import Teachers
from encoder_cls.metrics import Metrics, compute_metrics
from encoder_cls.model import EncoderClassifier
from encoder_cls.preparation import Preparation, Stage

UNKNOWN = 0.1  # of the words of a lesson are unknown, with their letters, as in texts to come
LOWER_IS_BETTER = {"loss", "divergence"}


class Lesson(Protocol):
    """A batch and what is asked about it."""

    @property
    def batch(self) -> Batch:
        """What the model reads."""

    @property
    def weight(self) -> Tensor:
        """How much all answers to it count together, ()."""

    def loss(self, model: EncoderClassifier) -> Tensor:
        """The sum of the losses of all answers, each by its weight, ()."""


class Verdict(NamedTuple):
    """What a validation found out.

    Attributes:
        scores: by name.
        rank: the greater the better; of equals the second number decides.
        metrics: how well classes are told apart, where classes are learnt.
        logits: of the validation texts, (texts, classes), where classes are learnt.
    """

    scores: dict[str, float]
    rank: tuple[float, float]
    metrics: Metrics | None = None
    logits: Logits | None = None


class Lessons(Protocol):
    """The lessons of all steps of a stage."""

    def at(self, step: int) -> list[Lesson]:
        """Those of a step of the stage, counted from 0: one for each batch."""

    def validate(self, model: EncoderClassifier, after_batch: Callable[[], None]) -> Verdict | None:
        """Judge a model on the validation texts; none where its answers are no finite numbers.

        Args:
            model: the model.
            after_batch: called after each batch; what it raises ends the work.
        """


@dataclass(frozen=True, kw_only=True)
class WordLesson:
    """Texts of which some words are hidden; each has to be told from the other words of the batch.

    So the softmax is over the words that occur in the batch, few of all there are, drawn as often as they are used.

    Attributes:
        batch: the texts.
        is_hidden: (B, T), where a word is hidden.
        candidates: (V,), the ids to choose from.
        answers: (hidden words,), which of the candidates stood there.
    """

    batch: Batch
    is_hidden: Tensor
    candidates: Tensor
    answers: Tensor

    @property
    def weight(self) -> Tensor:
        """See `Lesson`; a batch without any word asks nothing."""
        return self.is_hidden.sum().clamp(min=1)

    def loss(self, model: EncoderClassifier) -> Tensor:
        """See `Lesson`."""
        vectors = model.encoder(*self.batch)[self.is_hidden]
        scores = model.encoder.embedding.token_scores(vectors, self.candidates)
        return functional.cross_entropy(scores.float(), self.answers, reduction="sum")


class WordLessons:
    """All texts, with and without labels, some of their words hidden.

    Devlin et al., "BERT: Pre-training of Deep Bidirectional Transformers" (2019), https://arxiv.org/abs/1810.04805;
    hidden words are always `[MASK]`, as Wettig et al. (2023), https://arxiv.org/abs/2202.08005, found to be enough.
    """

    def __init__(self, preparation: Preparation, stage: Stage, *, device: torch.device) -> None:
        self._preparation = preparation
        self._stage = stage
        self._fraction = preparation.config.pretrain.masked_fraction
        self._device = device

    def at(self, step: int) -> list[Lesson]:
        """See `Lessons`."""
        texts = self._stage.texts
        return [self._lesson(pad(texts, indices).to(self._device)) for indices in self._stage.batches(step)]

    def validate(self, model: EncoderClassifier, after_batch: Callable[[], None]) -> Verdict | None:
        """See `Lessons`: the mean loss, of the same hidden words each time."""
        torch.manual_seed(self._stage.seed)
        texts = self._preparation.validation_texts
        was_training = model.training
        model.eval()
        loss = weight = 0.0
        try:
            with torch.inference_mode():
                for indices in by_length(texts.lengths, batch_tokens=self._preparation.config.train.batch_tokens):
                    lesson = self._lesson(pad(texts, indices).to(self._device))
                    loss += float(lesson.loss(model))
                    weight += float(lesson.weight)
                    after_batch()
        finally:
            model.train(was_training)
        mean = loss / weight
        return Verdict({"loss": mean}, (-mean, -mean)) if np.isfinite(mean) else None

    def _lesson(self, batch: Batch) -> WordLesson:
        masked, is_hidden = hide_words(batch, fraction=self._fraction)
        candidates, rows = torch.unique(batch.input_ids, return_inverse=True)
        return WordLesson(batch=masked, is_hidden=is_hidden, candidates=candidates, answers=rows[is_hidden])


@dataclass(frozen=True, kw_only=True)
class ClassLesson:
    """Texts, and how probable each class is to be for each of them.

    Attributes:
        batch: the texts.
        targets: (B, C) probabilities.
        class_weights: (C,), how much each class counts.
    """

    batch: Batch
    targets: Tensor
    class_weights: Tensor

    @property
    def weight(self) -> Tensor:
        """See `Lesson`."""
        return (self.targets @ self.class_weights).sum()

    def loss(self, model: EncoderClassifier) -> Tensor:
        """See `Lesson`."""
        return functional.cross_entropy(model(*self.batch), self.targets, weight=self.class_weights, reduction="sum")


class LabelLessons:
    """The training texts, some of their words dropped, with their labels, which are smoothed.

    Args:
        preparation: of the run.
        stage: of which these are the lessons.
        class_weights: (C,), how much each class counts.
        device: where to.
    """

    def __init__(self, preparation: Preparation, stage: Stage, *, class_weights: Tensor, device: torch.device) -> None:
        self._preparation = preparation
        self._class_weights = class_weights.to(device)
        self._stage = stage
        self._device = device

    def at(self, step: int) -> list[Lesson]:
        """See `Lessons`."""
        return [self._lesson(indices) for indices in self._stage.batches(step)]

    def validate(self, model: EncoderClassifier, after_batch: Callable[[], None]) -> Verdict | None:
        """See `Lessons`."""
        return _judge(self._preparation, model, after_batch)

    def _lesson(self, indices: Indices) -> ClassLesson:
        config, dataset = self._preparation.config.train, self._preparation.dataset
        batch = pad(self._stage.texts, indices).to(self._device)
        dropped = drop_words(batch.input_ids, fraction=config.word_dropout)
        labels = torch.from_numpy(dataset.train.labels[indices]).to(self._device)
        classes, smoothing = len(dataset.label_names), config.label_smoothing
        targets = functional.one_hot(labels, classes) * (1 - smoothing) + smoothing / classes
        return ClassLesson(batch=batch._replace(input_ids=dropped), targets=targets, class_weights=self._class_weights)


class TeacherLessons:
    """Variants of all texts, with and without labels, new in each step, with what the teachers make of them.

    Some words are `[UNK]` to the encoders, which have to tell by their letters what they mean.

    Args:
        preparation: of the run.
        stage: of which these are the lessons.
        teachers: who are asked.
        class_weights: (C,), how much each class counts.
        device: where to.
        precision: of the teachers' matrix products.
    """

    def __init__(
        self,
        preparation: Preparation,
        stage: Stage,
        teachers: Teachers,
        *,
        class_weights: Tensor,
        device: torch.device,
        precision: torch.dtype,
    ) -> None:
        self._preparation = preparation
        self._stage = stage
        self._teachers = teachers
        self._class_weights = class_weights.to(device)
        self._device = device
        self._precision = precision

    def at(self, step: int) -> list[Lesson]:
        """See `Lessons`."""
        random = np.random.default_rng([self._stage.seed, step])
        return [self._lesson(indices, random) for indices in self._stage.batches(step)]

    def validate(self, model: EncoderClassifier, after_batch: Callable[[], None]) -> Verdict | None:
        """See `Lessons`."""
        return _judge(self._preparation, model, after_batch, teachers=self._teachers)

    def _lesson(self, indices: Indices, random: np.random.Generator) -> ClassLesson:
        texts = self._stage.texts
        places, lengths = vary(texts, indices, random)
        batch = gather(texts, places, lengths).to(self._device)
        with torch.autocast(self._device.type, self._precision, enabled=self._precision != torch.float32):
            batch = batch._replace(input_ids=drop_words(batch.input_ids, fraction=UNKNOWN))
            targets = self._teachers.probabilities(batch, texts, places, lengths, random)
        return ClassLesson(batch=batch, targets=targets, class_weights=self._class_weights)


def _judge(
    preparation: Preparation,
    model: EncoderClassifier,
    after_batch: Callable[[], None],
    *,
    teachers: Teachers | None = None,
) -> Verdict | None:
    """The verdict on how a model tells classes apart."""
    dataset, config = preparation.dataset, preparation.config.train
    logits = compute_logits(
        model, preparation.validation_texts, batch_tokens=config.batch_tokens, after_batch=after_batch
    )
    if not np.isfinite(logits).all():
        return None
    metrics = compute_metrics(logits, dataset.validation.labels, dataset.label_names)
    scores = metrics.scalars()
    if teachers:
        scores["divergence"] = teachers.divergence(logits)
    by_default = "divergence" if teachers else "accuracy"
    monitored = by_default if config.monitor == "auto" else config.monitor
    # On small splits many validations have equal accuracy: the loss then tells which is better.
    rank = (scores[monitored] * (-1 if monitored in LOWER_IS_BETTER else 1), -metrics.loss)
    return Verdict(scores, rank, metrics, logits)
