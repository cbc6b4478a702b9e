"""What training knows of the linear classifier once it has been fitted."""

from __future__ import annotations

from typing import NamedTuple

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
