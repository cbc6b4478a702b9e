"""Teachers in, soft labels out: several classifiers' joint opinion, from which one is then trained.

Hinton et al., "Distilling the Knowledge in a Neural Network" (2015), https://arxiv.org/abs/1503.02531.
Encoders of different seeds err differently, and a linear model differently again, so their mean is better
than each. One encoder learns nearly all of it when it is asked about many varied texts, each of them
labelled by the teachers as it is seen (Beyer et al., "Knowledge distillation: A good teacher is patient
and consistent", 2022, https://arxiv.org/abs/2106.05237).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

import numpy as np
import torch
from numpy.typing import NDArray

from encoder_cls.batching import Batch, Indices
from encoder_cls.calibration import Logits, cross_entropy, fit_temperature, one_hot, softmax
from encoder_cls.classifier import compute_logits
from encoder_cls.model import EncoderClassifier
from encoder_cls.tokenizer import TokenizedTexts

if TYPE_CHECKING:
    from encoder_cls.linear import LinearClassifier

LINEAR_WEIGHTS = (0.0, 0.25, 0.5, 0.75, 1.0)  # coarse: a validation split is small


class Teachers:
    """Trained encoders, and a linear classifier if there is one.

    The encoders' probabilities are averaged. How much the linear classifier counts beside them, and how sure
    it may be, is what explains the validation labels best.

    Args:
        encoders: trained models, in eval mode.
        linear: a linear classifier of the same classes.
        validation: texts that no teacher was trained on.
        labels: their classes.
        batch_tokens: the most tokens in a batch.
        after_batch: called after each batch; what it raises ends the work.

    Attributes:
        linear_weight: how much the linear classifier counts, from 0 to 1.
        validation_probabilities: of all teachers together, (texts, classes).
        validation_accuracy: of all teachers together.
    """

    def __init__(
        self,
        encoders: Sequence[EncoderClassifier],
        linear: LinearClassifier | None,
        *,
        validation: TokenizedTexts,
        labels: NDArray[np.int64],
        batch_tokens: int,
        after_batch: Callable[[], None] | None = None,
    ) -> None:
        self._encoders = encoders
        self._linear = linear
        self._temperature, self.linear_weight = 1.0, 0.0 if linear is None else 1.0
        opinions = [
            softmax(compute_logits(encoder, validation, batch_tokens=batch_tokens, after_batch=after_batch))
            for encoder in encoders
        ]
        by_encoders = np.mean(opinions, axis=0) if opinions else np.zeros(())
        by_linear = np.zeros(())
        if linear:
            margins = linear.margins(validation, np.arange(len(validation.words)), validation.lengths)
            self._temperature = fit_temperature(margins, labels)
            by_linear = softmax(margins / self._temperature)
            if encoders:
                targets = one_hot(labels, margins.shape[1])
                self.linear_weight = min(
                    LINEAR_WEIGHTS, key=lambda w: cross_entropy(w * by_linear + (1 - w) * by_encoders, targets)
                )
        joint = self.linear_weight * by_linear + (1 - self.linear_weight) * by_encoders
        self.validation_probabilities = joint
        self.validation_accuracy = float((joint.argmax(axis=-1) == labels).mean())

    def divergence(self, logits: Logits) -> float:
        """How far answers to the validation texts are from the teachers': the mean KL(teachers || model), in nats."""
        joint = self.validation_probabilities
        return cross_entropy(softmax(logits), joint) - cross_entropy(joint, joint)

    def probabilities(
        self, batch: Batch, texts: TokenizedTexts, places: Indices, lengths: Indices, random: np.random.Generator
    ) -> torch.Tensor:
        """What the teachers make of a batch, (B, C); `gather(texts, places, lengths)` has to be the batch.

        Of the encoders one is asked, drawn anew each time. Cross entropy is linear in its targets, so on average its
        gradient is the one that the mean of all encoders would give, at a part of the time.
        """
        device = batch.input_ids.device
        weight = self.linear_weight
        total = torch.zeros(())
        if self._encoders and weight < 1:
            encoder = self._encoders[int(random.integers(len(self._encoders)))]
            with torch.inference_mode():
                opinion = encoder(*batch).softmax(dim=-1)
            total = (1 - weight) * opinion
        if self._linear and weight > 0:
            by_linear = softmax(self._linear.margins(texts, places, lengths) / self._temperature)
            total = total + weight * torch.from_numpy(by_linear).float().to(device)
        return total  # made outside of inference mode, so that a loss may use it
