"""What is learnt in a step: batches of texts, and how probable each class is to be for each of them.

Both kinds are pure functions of the step, given that torch's random numbers have been seeded for it.
"""

from __future__ import annotations

from typing import NamedTuple, Protocol

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional

from encoder_cls.batching import Batch, Indices, drop_words, gather, pad, vary
from encoder_cls.distillation import Teachers
from encoder_cls.preparation import Preparation, Stage

HIDDEN = 0.1  # of the words of a lesson are unknown, with their letters, as in texts to come


class Lesson(NamedTuple):
    """A batch and its targets, (B, C) probabilities."""

    batch: Batch
    targets: Tensor


class Lessons(Protocol):
    """The lessons of all steps of a stage."""

    def at(self, step: int) -> list[Lesson]:
        """Those of a step of the stage, counted from 0: one for each batch."""


class LabelLessons:
    """The training texts, some of their words dropped, with their labels, which are smoothed."""

    def __init__(self, preparation: Preparation, stage: Stage, *, device: torch.device) -> None:
        self._texts = preparation.train_texts
        self._labels = preparation.dataset.train.labels
        self._num_classes = len(preparation.dataset.label_names)
        self._config = preparation.config.train
        self._stage = stage
        self._device = device

    def at(self, step: int) -> list[Lesson]:
        """See `Lessons`."""
        return [self._lesson(indices) for indices in self._stage.batches(step)]

    def _lesson(self, indices: Indices) -> Lesson:
        batch = pad(self._texts, indices).to(self._device)
        dropped = drop_words(batch.input_ids, fraction=self._config.word_dropout)
        labels = torch.from_numpy(self._labels[indices]).to(self._device)
        smoothing = self._config.label_smoothing
        targets = functional.one_hot(labels, self._num_classes) * (1 - smoothing) + smoothing / self._num_classes
        return Lesson(batch._replace(input_ids=dropped), targets)


class TeacherLessons:
    """Variants of the training texts, new in each step, with what the teachers make of them.

    Some words are `[UNK]` to the encoders, which have to tell by their letters what they mean.
    """

    def __init__(
        self,
        preparation: Preparation,
        stage: Stage,
        teachers: Teachers,
        *,
        device: torch.device,
        precision: torch.dtype,
    ) -> None:
        self._texts = preparation.train_texts
        self._stage = stage
        self._teachers = teachers
        self._device = device
        self._precision = precision

    def at(self, step: int) -> list[Lesson]:
        """See `Lessons`."""
        random = np.random.default_rng([self._stage.seed, step])
        return [self._lesson(indices, random) for indices in self._stage.batches(step)]

    def _lesson(self, indices: Indices, random: np.random.Generator) -> Lesson:
        places, lengths = vary(self._texts, indices, random)
        batch = gather(self._texts, places, lengths).to(self._device)
        with torch.autocast(self._device.type, self._precision, enabled=self._precision != torch.float32):
            batch = batch._replace(input_ids=drop_words(batch.input_ids, fraction=HIDDEN))
            return Lesson(batch, self._teachers.probabilities(batch, self._texts, places, lengths))
