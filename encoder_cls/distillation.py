"""Teachers in, soft labels out: several classifiers' joint opinion, from which one is then trained.

Hinton et al., "Distilling the Knowledge in a Neural Network" (2015), https://arxiv.org/abs/1503.02531.
Encoders of different seeds err differently, and a linear model differently again, so together they are better
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
from encoder_cls.calibration import Logits, cross_entropy, fit_pool, pool, softmax
from encoder_cls.classifier import compute_logits
from encoder_cls.model import EncoderClassifier
from encoder_cls.tokenizer import TokenizedTexts

if TYPE_CHECKING:
    from encoder_cls.linear import LinearClassifier


class Teachers:
    """Trained encoders, and a linear classifier if there is one.

    The scores of an encoder and of the linear classifier, scaled, are added up as logits; probabilities are averaged
    over the encoders. The scales are those under which that explains the validation labels best.

    Args:
        encoders: trained models, in eval mode.
        linear: a linear classifier of the same classes.
        validation: texts that no teacher was trained on.
        labels: their classes.
        batch_tokens: the most tokens in a batch.
        after_batch: called after each batch; what it raises ends the work.

    Attributes:
        linear_part: how much the linear classifier counts, from 0 to 1.
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
        kinds: list[Logits] = []
        if encoders:
            logits = [
                compute_logits(it, validation, batch_tokens=batch_tokens, after_batch=after_batch) for it in encoders
            ]
            kinds.append(np.stack(logits))
        if linear:
            kinds.append(linear.margins(validation, np.arange(len(validation.words)), validation.lengths)[np.newaxis])
        scales, parts = fit_pool(kinds, labels)
        self._encoder_scale, self._linear_scale = scales[0], scales[-1]
        self.linear_part = parts[-1] if linear else 0.0
        self.validation_probabilities = pool(kinds, scales)
        self.validation_accuracy = float((self.validation_probabilities.argmax(axis=-1) == labels).mean())

    def divergence(self, logits: Logits) -> float:
        """How far answers to the validation texts are from the teachers': the mean KL(teachers || model), in nats."""
        joint = self.validation_probabilities
        return cross_entropy(softmax(logits), joint) - cross_entropy(joint, joint)

    def probabilities(
        self, batch: Batch, texts: TokenizedTexts, places: Indices, lengths: Indices, random: np.random.Generator
    ) -> torch.Tensor:
        """What the teachers make of a batch, (B, C); `gather(texts, places, lengths)` has to be the batch.

        Of the encoders one is asked, drawn anew each time. Cross entropy is linear in its targets, so on average its
        gradient is that of the mean over all encoders, at a part of the time.
        """
        logits = torch.zeros((), device=batch.input_ids.device)
        if self._encoders:
            encoder = self._encoders[int(random.integers(len(self._encoders)))]
            with torch.inference_mode():
                by_encoder = encoder(*batch)
            logits = logits + self._encoder_scale * by_encoder.float()
        if self._linear:
            margins = self._linear.margins(texts, places, lengths)
            logits = logits + self._linear_scale * torch.from_numpy(margins).to(logits.device)
        return logits.softmax(dim=-1)  # made outside of inference mode, so that a loss may use it
