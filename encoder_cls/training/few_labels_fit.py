"""Fit the linear model to few labels as planned: to labelled and to unlabelled texts."""

from __future__ import annotations

import numpy as np

from encoder_cls.data.dataset import relative_weights
from encoder_cls.data.label_names import names_as_texts
from encoder_cls.linear_training.cost import UNREPORTED, EffortChoice, FitProgress
from encoder_cls.linear_training.features import LabelledTexts, LinearOptions
from encoder_cls.linear_training.few_labels import fit_linear_from_few_labels
from encoder_cls.training.fitted_linear import (
    FittedLinear,
    held_out_predictions_by_split,
    scored_classifier,
)
from encoder_cls.training.prepared import Prepared


def fit_to_few_labels(
    prepared: Prepared,
    options: LinearOptions,
    *,
    effort_choice: EffortChoice,
    progress: FitProgress = UNREPORTED,
) -> FittedLinear:
    """Fit to few labels and to unlabelled texts, and to the validation texts if so planned.

    Raises:
        TooLittleTimeError: there is not enough time for the least effort.
    """
    labelled = _labelled_texts(prepared)
    linear, result = fit_linear_from_few_labels(
        labelled,
        prepared.tokenize(names_as_texts(prepared.dataset.label_names)),
        options,
        config=prepared.config.train,
        with_teacher=prepared.plan.has_pseudo_labels,
        effort_choice=effort_choice,
        progress=progress,
    )
    if not prepared.plan.refits_on_validation:
        fitted = scored_classifier(prepared, linear)
        return fitted._replace(few_labels=result, effort=result.effort)

    # The cross-validation has predicted all labelled texts out of fold.
    familiarity_features = linear.familiarity_before_refit(labelled.texts.take(result.rows))
    predictions = held_out_predictions_by_split(
        prepared, result.rows, result.logits, familiarity_features
    )

    # The linear model is already calibrated on these out-of-fold predictions, so do not calibrate
    # it again on the few validation texts. With an encoder, do: the validation texts choose the
    # weights of both models, so both must be calibrated on the same texts.
    fitted = scored_classifier(
        prepared,
        linear,
        predictions.validation.logits,
        is_calibrated=not prepared.plan.has_encoder,
    )
    return fitted._replace(
        held_out_predictions=predictions, few_labels=result, effort=result.effort
    )


def _labelled_texts(prepared: Prepared) -> LabelledTexts:
    """The labelled texts to learn from, followed by the unlabelled ones."""
    train = prepared.dataset.train
    if not prepared.plan.refits_on_validation:
        return LabelledTexts(
            texts=prepared.texts,
            labels=train.labels,
            split_groups=train.split_groups,
            weights=prepared.text_weights,
        )

    validation = prepared.dataset.known_validation
    unlabelled = prepared.dataset.unlabelled
    return LabelledTexts(
        texts=prepared.tokenize(train.texts, validation.texts, unlabelled.texts),
        labels=np.concatenate([train.labels, validation.labels]),
        split_groups=np.concatenate([train.split_groups, validation.split_groups]),
        weights=relative_weights(train, validation),
        validation_rows=len(train) + np.arange(len(validation)),
    )
