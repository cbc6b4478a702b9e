"""Fit the linear model of a run as planned, or with less work where time is limited."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import cached_property
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from encoder_cls.classifier.classifier import Classifier, FamiliarityFeatures, Mixture
from encoder_cls.classifier.mixture_scores import ValidationResult, score_mixture
from encoder_cls.evaluation.held_out_predictions import HeldOutPredictions, Predictions
from encoder_cls.linear.effort import (
    C_VALUES_TRIED,
    ONE_C_VALUE,
    PLAIN_EFFORTS,
    PLANNED,
    WORDS_ALONE,
    Effort,
    EffortChoice,
    TooLittleTimeError,
    seconds_to_fit,
)
from encoder_cls.linear.features import CountedTexts, LinearOptions
from encoder_cls.linear.few_labels import FewLabels, fit_linear_from_few_labels
from encoder_cls.linear.folds import FOLDS
from encoder_cls.linear.linear_model import NUM_EVIDENCE_FEATURES, LinearModel
from encoder_cls.linear.nb_svm import MIN_HELD_OUT, fit_linear
from encoder_cls.linear.stream import fit_linear_from_stream
from encoder_cls.metrics.logits import Logits, task_of
from encoder_cls.training.linear_time import end_of_fit, linear_options
from encoder_cls.training.plan import Plan
from encoder_cls.training.prepared import Prepared


class FittedLinear(NamedTuple):
    """The linear model of a run.

    Attributes:
        classifier: without an encoder; calibrated if there are validation labels.
        validation_logits: those of a linear model that has not learned from the validation
            texts, (texts, classes).
        validation: the scores on these texts; None without validation labels.
        held_out_predictions: the predictions for these texts from before a refit with them.
        few_labels: what the fit to few labels has found, if it was one.
        effort: how much work the fit did.
        plan: the plan of the run where time changed it.
    """

    classifier: Classifier
    validation_logits: Logits
    validation: ValidationResult | None
    held_out_predictions: HeldOutPredictions | None = None
    few_labels: FewLabels | None = None
    effort: Effort = PLANNED
    plan: Plan | None = None


OnPreliminary = Callable[[FittedLinear], None]


def fit_linear_classifier(
    prepared: Prepared, *, on_preliminary: OnPreliminary | None = None, effort: Effort | None = None
) -> FittedLinear:
    """Fit the linear model as planned, or with less work where time is limited.

    Equal data and an equal effort give an equal classifier.

    Args:
        prepared: the data and the plan.
        on_preliminary: receives preliminary classifiers where there are validation texts: a quick one,
            then one of a single penalty.
        effort: how much work the fit does; by default the time left decides.

    Raises:
        TooLittleTimeError: there is not enough time for the least effort.
    """
    plan = prepared.plan
    if plan.linear_fit == "stream":
        return _fit_stream(prepared)

    fit = _Fit(prepared, effort)
    fit.check_least_effort()
    if on_preliminary and fit.options.char_ngrams and len(prepared.dataset.known_validation):
        on_preliminary(fit.words_alone())

    if effort is WORDS_ALONE:
        return fit.words_alone()
    if plan.linear_fit == "few_labels":
        try:
            return fit.few_labels()
        except TooLittleTimeError:
            # The teacher of an encoder learns from few labels.
            if plan.has_pseudo_labels:
                raise
            return fit.words_alone()
    return fit.plain(on_preliminary)


def _fit_stream(prepared: Prepared) -> FittedLinear:
    train = prepared.dataset.train
    linear = fit_linear_from_stream(
        prepared.train_texts,
        train.labels,
        linear_options(prepared),
        split_groups=train.split_groups,
    )
    return _calibrated(prepared, linear)


class _Fit:
    """The fits of a linear model to texts in memory.

    Attributes:
        options: what is read of texts.
    """

    def __init__(self, prepared: Prepared, effort: Effort | None) -> None:
        self.options: LinearOptions = linear_options(prepared)
        self._prepared = prepared
        self._train = prepared.dataset.train
        self._held_out = (prepared.validation_texts, prepared.dataset.known_validation.labels)
        if effort is None:
            self._effort_choice = EffortChoice(end=end_of_fit(prepared))
        else:
            self._effort_choice = EffortChoice(effort)

    def check_least_effort(self) -> None:
        """Raise a `TooLittleTimeError` if there is no time for a classifier of words alone."""
        self._effort_choice.choose(
            [WORDS_ALONE],
            seconds_of_fit=lambda: seconds_to_fit(self._words),
            num_fits=lambda _: 1,
        )

    @cached_property
    def _words(self) -> CountedTexts:
        """The training texts, with words and pairs alone."""
        words_only = self.options._replace(char_ngrams=False)
        return CountedTexts.of(self._prepared.train_texts, self._train.labels, words_only)

    def words_alone(self) -> FittedLinear:
        """Fit to words with one penalty, and not again: the quickest."""
        linear, _ = fit_linear(
            self._words,
            held_out=self._held_out,
            split_groups=self._train.split_groups,
            is_quick=True,
        )
        plan = replace(self._prepared.plan, linear_fit="plain", refits_on_validation=False)
        return _calibrated(self._prepared, linear)._replace(effort=WORDS_ALONE, plan=plan)

    def plain(self, on_preliminary: OnPreliminary | None) -> FittedLinear:
        """Fit to the training texts, then again with the validation texts if so planned."""
        prepared = self._prepared
        texts = CountedTexts.of(prepared.train_texts, self._train.labels, self.options)
        effort = self._effort_choice.choose(
            PLAIN_EFFORTS, seconds_of_fit=lambda: seconds_to_fit(texts), num_fits=self._num_fits
        )
        if effort is WORDS_ALONE:
            return self.words_alone()

        def on_first(linear: LinearModel) -> None:
            if on_preliminary:
                on_preliminary(_calibrated(prepared, linear))

        linear, choice = fit_linear(
            texts,
            held_out=self._held_out,
            split_groups=self._train.split_groups,
            is_quick=effort is ONE_C_VALUE,
            on_first=on_first,
        )
        if not prepared.plan.refits_on_validation:
            return _calibrated(prepared, linear)._replace(effort=effort)

        # Keep the predictions for the validation texts from before these are learned from.
        validation = prepared.dataset.known_validation
        logits, familiarity_features = linear.read(prepared.validation_texts)
        assert familiarity_features is not None

        all_texts = prepared.tokenize(self._train.texts, validation.texts)
        all_labels = np.concatenate([self._train.labels, validation.labels])
        refitted, _ = fit_linear(
            CountedTexts.of(all_texts, all_labels, self.options), choice=choice
        )
        numbers_before = refitted.familiarity_before_refit(
            prepared.validation_texts, evidence=familiarity_features[:, :NUM_EVIDENCE_FEATURES]
        )
        rows = np.arange(len(self._train), len(all_texts))
        predictions = _held_out_predictions(prepared, rows, logits, numbers_before)
        fitted = _calibrated(prepared, refitted, logits)
        return fitted._replace(held_out_predictions=predictions, effort=effort)

    def _num_fits(self, effort: Effort) -> float:
        """The work of one of the `PLAIN_EFFORTS`, in fits to the training texts."""
        # That there is time for words alone is known.
        if effort.words_only:
            return 0

        num_fits = 1
        if effort.tries_all_c_values:
            _, validation_labels = self._held_out
            num_fits = C_VALUES_TRIED
            if len(validation_labels) < MIN_HELD_OUT[task_of(self._train.labels)]:
                # Each fold learns from the others; the last fit is with the penalty chosen.
                num_fits = C_VALUES_TRIED * (FOLDS - 1) + 1

        if self._prepared.plan.refits_on_validation:
            num_fits += 1
        return num_fits

    def few_labels(self) -> FittedLinear:
        """Fit to few labels, those of the validation texts among them if so planned."""
        prepared = self._prepared
        dataset = prepared.dataset
        texts = prepared.texts
        labels = self._train.labels
        split_groups = self._train.split_groups
        num_held_out = 0
        if prepared.plan.refits_on_validation:
            validation = dataset.known_validation
            texts = prepared.tokenize(self._train.texts, validation.texts, dataset.unlabelled.texts)
            labels = np.concatenate([labels, validation.labels])
            split_groups = np.concatenate([split_groups, validation.split_groups])
            num_held_out = len(validation)

        linear, found = fit_linear_from_few_labels(
            texts,
            labels,
            prepared.name_texts,
            self.options,
            config=prepared.config.train,
            split_groups=split_groups,
            held_out=len(self._train) + np.arange(num_held_out),
            with_teacher=prepared.plan.has_pseudo_labels,
            effort_choice=self._effort_choice,
        )
        if not num_held_out:
            fitted = _calibrated(prepared, linear)
            return fitted._replace(few_labels=found, effort=found.effort)

        # It is calibrated on all labelled texts already: the few held out would only add chance.
        # But an encoder is weighed by these few, and both parts must be judged alike.
        familiarity_features = linear.familiarity_before_refit(texts.take(found.rows))
        predictions = _held_out_predictions(
            prepared, found.rows, found.logits, familiarity_features
        )
        fitted = _calibrated(
            prepared,
            linear,
            predictions.validation.logits,
            is_calibrated=not prepared.plan.has_encoder,
        )
        return fitted._replace(
            held_out_predictions=predictions, few_labels=found, effort=found.effort
        )


def _held_out_predictions(
    prepared: Prepared,
    rows: NDArray[np.int64],
    logits: Logits,
    familiarity_features: FamiliarityFeatures,
) -> HeldOutPredictions:
    """The table of predictions for labelled texts.

    `rows` count the training texts, then those of `Dataset.known_validation`.
    """
    dataset = prepared.dataset
    num_train = len(dataset.train)
    is_train = rows < num_train

    # The table has the rows of `Dataset.validation`, which may have more texts.
    is_selected = ~dataset.validation.has_unseen_label(len(dataset.label_names))
    selected_rows = np.flatnonzero(is_selected)
    validation_rows = selected_rows[rows[~is_train] - num_train]
    return HeldOutPredictions(
        validation=Predictions(validation_rows, logits[~is_train], familiarity_features[~is_train]),
        train=Predictions(rows[is_train], logits[is_train], familiarity_features[is_train]),
        texts_sha256=dataset.validation.texts_fingerprint,
    )


def _calibrated(
    prepared: Prepared,
    linear: LinearModel,
    logits: Logits | None = None,
    *,
    is_calibrated: bool = False,
) -> FittedLinear:
    """Calibrate a classifier by validation logits, its own by default, if it is not yet."""
    if logits is None:
        logits = linear.logits(prepared.validation_texts)

    classifier = prepared.new_classifier(None)
    classifier.linear = linear
    classifier.mixture = Mixture(shares={"linear": 1.0})
    if not len(prepared.validation_texts):
        return FittedLinear(classifier, logits, None)

    result = score_mixture(
        None,
        logits,
        prepared.dataset,
        monitor=prepared.config.train.monitor,
        is_calibrated=is_calibrated,
    )
    classifier.mixture = result.mixture
    classifier.thresholds = result.thresholds
    return FittedLinear(classifier, logits, result)
