"""The linear model of a run as it was fitted, with its scores and its held-out predictions."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from encoder_cls.classifier.classifier import Classifier, FamiliarityFeatures
from encoder_cls.classifier.validation_result import ValidationResult, score_mixture
from encoder_cls.evaluation.held_out_predictions import HeldOutPredictions, LinearPredictions
from encoder_cls.linear.linear_model import LinearModel
from encoder_cls.linear_training.cost import PLANNED, Effort, LinearWork
from encoder_cls.linear_training.few_labels import FewLabelsFit
from encoder_cls.linear_training.stream import StreamFit
from encoder_cls.metrics.logits import Logits
from encoder_cls.training.prepared import Prepared


class FittedLinear(NamedTuple):
    """The fitted linear model of a run.

    Attributes:
        validation_logits: the logits of the validation texts, (texts, classes), by a linear model
            that has not learned from them.
        held_out_predictions: the predictions for validation (or out-of-fold) texts, saved before
            the final fit that includes these texts; None if no fit includes the validation texts.
        few_labels: the accuracy and the teacher of a fit to few labels; None for other fits.
        stream: the result of a fit in passes over the texts; None for other fits.
        uses_words_alone: whether a planned fit has left out the n-grams of characters, since
            validation texts were surely predicted better without them.
    """

    classifier: Classifier
    validation_logits: Logits
    validation: ValidationResult
    held_out_predictions: HeldOutPredictions | None = None
    few_labels: FewLabelsFit | None = None
    stream: StreamFit | None = None
    effort: Effort = PLANNED
    uses_words_alone: bool = False

    @property
    def work(self) -> LinearWork:
        """How much work the fit did."""
        if self.stream is None:
            return LinearWork(self.effort.key)
        return LinearWork(self.effort.key, self.stream.work, self.stream.num_unread)


def scored_classifier(
    prepared: Prepared,
    linear: LinearModel,
    logits: Logits | None = None,
    *,
    is_calibrated: bool = False,
) -> FittedLinear:
    """Make a classifier of a linear model, calibrate it and score it on the validation texts.

    `logits` are those of the validation texts, (texts, classes), given if `linear` has learned from
    these texts. If they are already calibrated, they stay as they are.
    """
    if logits is None:
        logits = linear.logits(prepared.validation_texts)

    result = score_mixture(
        None,
        logits,
        prepared.dataset,
        monitor=prepared.config.train.monitor,
        is_calibrated=is_calibrated,
    )

    classifier = prepared.new_classifier(None)
    classifier.linear = linear
    classifier.mixture = result.mixture
    classifier.thresholds = result.thresholds
    return FittedLinear(classifier, logits, result)


def held_out_predictions_by_split(
    prepared: Prepared,
    rows: NDArray[np.int64],
    logits: Logits,
    familiarity_features: FamiliarityFeatures,
) -> HeldOutPredictions:
    """Collect held-out predictions by split, with the rows of their texts in the split.

    `rows` are the numbers of the predicted texts, (texts,): first the training texts are numbered,
    then the texts of `Dataset.known_validation`. The logits of the texts are (texts, classes), and
    their familiarity features (texts, features).
    """
    dataset = prepared.dataset
    num_train = len(dataset.train)
    is_train = rows < num_train

    # Translate rows of `Dataset.known_validation` to rows of `Dataset.validation`.
    validation_rows = dataset.known_validation_rows[rows[~is_train] - num_train]

    return HeldOutPredictions(
        validation=LinearPredictions(
            validation_rows, logits[~is_train], familiarity_features[~is_train]
        ),
        train=LinearPredictions(rows[is_train], logits[is_train], familiarity_features[is_train]),
        texts_sha256=dataset.validation.texts_fingerprint,
    )
