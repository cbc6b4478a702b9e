"""What training knows of the linear classifier once it has been fitted."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from encoder_cls.inference.linear import LinearClassifier
from encoder_cls.inference.logits import Logits
from encoder_cls.training.few_labels import FewLabelsResult


class FittedLinear(NamedTuple):
    """A linear classifier.

    Attributes:
        classifier: the classifier.
        validation_logits: of texts that it has not learned from, or else those of cross-validation.
        few_labels: where labels are few, what was kept of all that was tried.
    """

    classifier: LinearClassifier
    validation_logits: Logits
    few_labels: FewLabelsResult | None


class LinearAnswers(NamedTuple):
    """What an encoder is given of a linear classifier.

    Attributes:
        validation_logits: as in `FittedLinear`; none: the encoder is judged elsewhere.
        pseudo_labels: how probable each class is for each text of the stage that has no label, (texts, classes); none:
            there is no such text.
    """

    validation_logits: Logits | None
    pseudo_labels: NDArray[np.float32] | None = None
