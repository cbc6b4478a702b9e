"""What the encoder learns in the training on labels: the classes of texts."""

from __future__ import annotations

import numpy as np
import torch
from numpy.typing import NDArray

from encoder_cls.classifier.validation_result import ValidationResult, score_mixture
from encoder_cls.encoder.torch_encoder import TorchEncoder
from encoder_cls.encoder.transformer import EncoderClassifier
from encoder_cls.encoder_training.batch_sampler import shard_of
from encoder_cls.encoder_training.classification_loss import (
    ClassificationBatch,
    Targets,
    make_labelled_batch,
)
from encoder_cls.encoder_training.distributed import ProcessGroup
from encoder_cls.linear_training.class_weights import class_weights
from encoder_cls.metrics.logits import Logits
from encoder_cls.training.prepared import Prepared


class ClassificationTask:
    """The labels and pseudo-labels of a run, a `TrainingTask`.

    Beside a linear model, validations score the mixture of both.

    Args:
        linear_logits: of the validation texts; None in other processes than the first, and without
            a linear model.
        pseudo_labels: probabilities of the unlabelled ones among `prepared.encoder_texts`, (texts,
            classes).
    """

    def __init__(
        self,
        prepared: Prepared,
        *,
        group: ProcessGroup,
        linear_logits: Logits | None = None,
        pseudo_labels: NDArray[np.float32] | None = None,
    ) -> None:
        self._prepared = prepared
        self._group = group
        self._linear_logits = linear_logits
        self.targets = Targets(
            labels=prepared.dataset.train.labels,
            class_weights=torch.from_numpy(
                class_weights(prepared.config.train.class_weights, prepared.dataset)
            ),
            text_weights=prepared.text_weights,
            pseudo_labels=pseudo_labels,
        )

    def batches_at(
        self, step: int, shard: int, num_shards: int, generator: torch.Generator | None = None
    ) -> list[ClassificationBatch]:
        """See `TrainingTask`."""
        prepared = self._prepared
        batches = []
        for rows in prepared.encoder_sampler.batches_of_step(step):
            my_rows = shard_of(rows, shard, num_shards)
            if len(my_rows):
                batch = make_labelled_batch(
                    prepared.encoder_texts,
                    my_rows,
                    self.targets,
                    prepared.config.train,
                    generator=generator,
                )
                batches.append(batch)
        return batches

    def validate(self, model: EncoderClassifier) -> ValidationResult | None:
        """See `TrainingTask`."""
        prepared = self._prepared
        encoder = TorchEncoder(model, prepared.config.model)

        # Each process computes its share of the logits, and has zeros for all others.
        logits = encoder.logits(
            prepared.validation_texts,
            batch_tokens=prepared.config.train.batch_tokens,
            share=self._group.share,
        )
        self._group.sum(torch.from_numpy(logits))
        if not self._group.is_first or not np.isfinite(logits).all():
            return None

        return score_mixture(
            logits,
            self._linear_logits,
            prepared.dataset,
            monitor=prepared.config.train.monitor,
            expects_equal_shares=self.targets.pseudo_labels is not None,
        )

    def describe_step(self, step: int) -> str:
        """See `TrainingTask`."""
        rows = np.concatenate(self._prepared.encoder_sampler.batches_of_step(step))
        return self._prepared.first_places(self._prepared.encoder_rows[rows])
