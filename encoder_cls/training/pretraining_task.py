"""What the encoder learns in pretraining: to guess words that are hidden from it."""

from __future__ import annotations

from functools import partial

import numpy as np
import torch

from encoder_cls.classifier.validation_result import ValidationResult
from encoder_cls.encoder.torch_encoder import make_batch
from encoder_cls.encoder.transformer import DenoisingAutoencoder, EncoderClassifier
from encoder_cls.encoder_training.batch_sampler import BatchSampler, shard_of
from encoder_cls.encoder_training.distributed import ProcessGroup
from encoder_cls.encoder_training.pretraining_loss import (
    GuessedTokens,
    denoise,
    mask_tokens,
    summed_loss,
)
from encoder_cls.metrics.validation_score import ValidationScore
from encoder_cls.training.prepared import Prepared


class PretrainingTask:
    """Masked language modelling, or denoising, on all texts of a run, a `TrainingTask`.

    Each epoch hides other words, so the encoder does not overfit, and needs no early stopping.

    Attributes:
        model_class: with a decoder for denoising; None for the run's own.
    """

    def __init__(self, prepared: Prepared, *, seed: int, group: ProcessGroup) -> None:
        self._prepared = prepared
        self._seed = seed
        self._group = group
        self._sampler = BatchSampler(prepared.texts.lengths, prepared.config.train, seed=seed)

        pretrain = prepared.config.pretrain
        self.model_class: type[EncoderClassifier] | None = None
        self._hide = partial(mask_tokens, fraction=pretrain.mask_probability)
        if pretrain.objective == "denoising":
            self.model_class = DenoisingAutoencoder
            self._hide = partial(denoise, fraction=pretrain.mask_probability)

    def batches_at(
        self, step: int, shard: int, num_shards: int, generator: torch.Generator | None = None
    ) -> list[GuessedTokens]:
        """See `TrainingTask`."""
        texts = self._prepared.texts
        batches = []
        for rows in self._sampler.batches_of_step(step):
            my_rows = shard_of(rows, shard, num_shards)
            if not len(my_rows):
                continue

            # A token is guessed among the tokens of the whole batch, even if this process has only
            # a shard of it: the result must not depend on the number of processes.
            batch = make_batch(texts, rows)
            candidates = torch.unique(batch.input_ids)
            if num_shards > 1:
                batch = make_batch(texts, my_rows)
            batches.append(self._hide(batch, candidates, generator=generator))
        return batches

    def validate(self, model: EncoderClassifier) -> ValidationResult | None:
        """Compute the mean loss, with the same words hidden each time."""
        torch.manual_seed(self._seed)
        my_loss, my_num_targets = summed_loss(
            model,
            self._prepared.validation_texts,
            self._hide,
            batch_tokens=self._prepared.config.train.batch_tokens,
            share=self._group.share,
        )
        loss, num_targets = self._group.summed(my_loss, my_num_targets)
        mean_loss = loss / num_targets
        if not self._group.is_first or not np.isfinite(mean_loss):
            return None

        score = ValidationScore(
            is_sure=True, monitored=mean_loss, loss=mean_loss, lower_is_better=True
        )
        return ValidationResult(scores={"loss": mean_loss}, score=score)

    def describe_step(self, step: int) -> str:
        """See `TrainingTask`."""
        rows = np.concatenate(self._sampler.batches_of_step(step))
        return self._prepared.first_places(rows)
