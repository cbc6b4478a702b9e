"""Fit the linear model to many labels as planned: to all features, or to words alone if better."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import numpy as np

from encoder_cls.classifier.validation_result import surely_lowers_the_loss
from encoder_cls.data.dataset import relative_weights
from encoder_cls.linear.feature_sums import NUM_EVIDENCE_FEATURES
from encoder_cls.linear.linear_model import LinearModel
from encoder_cls.linear_training.calibration import Calibration
from encoder_cls.linear_training.cost import (
    COUNTING_WORK,
    PLAIN_EFFORTS,
    UNREPORTED,
    Effort,
    EffortChoice,
    FitProgress,
    usual_fits,
)
from encoder_cls.linear_training.features import CountedTexts, LabelledTexts, LinearOptions
from encoder_cls.linear_training.model_selection import fit_calibrated, fit_linear
from encoder_cls.linear_training.nb_svm import seconds_to_fit
from encoder_cls.metrics.tasks import task_of
from encoder_cls.training.fitted_linear import (
    FittedLinear,
    held_out_predictions_by_split,
    scored_classifier,
)
from encoder_cls.training.prepared import Prepared

# Words alone replace all features if they lower the mean loss on the validation texts by more than
# this number of standard errors. Otherwise, all features are more accurate on most data.
STANDARD_ERRORS_FOR_WORDS = 2.0
# The minimum number of groups of validation texts to decide that on.
MIN_TEXTS_FOR_WORDS = 50
# The work of counting words alone and of a fit to them, relative to the same with all features. It
# was 0.14 to 0.19 on texts of 10 to 20 words, in 2 to 77 classes.
WORDS_COST = 0.2


def fit_to_many_labels(
    prepared: Prepared,
    options: LinearOptions,
    *,
    effort_choice: EffortChoice,
    on_first: Callable[[LinearModel], None] | None = None,
    progress: FitProgress = UNREPORTED,
) -> FittedLinear:
    """Fit to the training texts, then fit again with the validation texts if so planned.

    With many classes, a model may have so few features that n-grams of characters, which are more
    frequent, take the place of words. They may also mislead, as in product codes. So a quick fit to
    words alone shows whether words alone are better.

    `on_first` receives a first model, of a single C value.

    Raises:
        TooLittleTimeError: there is not enough time for the least effort.
    """
    all_features = _FitToTrain(prepared, options)
    words = _FitToTrain(prepared, options._replace(char_ngrams=False))
    refits = prepared.plan.refits_on_validation
    validation_labels = prepared.dataset.known_validation.labels
    compares_words = prepared.validation_groups.num_groups >= MIN_TEXTS_FOR_WORDS

    def num_fits(effort: Effort) -> float:
        number = all_features.num_fits(is_quick=not effort.tries_all_c_values)
        if refits:
            number += 1
        return number

    texts = all_features.counted()
    effort = effort_choice.choose(
        PLAIN_EFFORTS, seconds_of_fit=lambda: seconds_to_fit(texts), num_fits=num_fits
    )
    is_quick = not effort.tries_all_c_values

    # Expect the work of the final fit and of the comparison now, so that the first fit is reported
    # as a part of the whole.
    if refits:
        num_final = len(texts) + len(validation_labels)
        progress.expect((COUNTING_WORK + texts.num_machines) * num_final)
    comparison = UNREPORTED
    if compares_words:
        comparison = progress.part(WORDS_COST * words.work(is_quick=True))

    # Fit to all features. The validation texts choose C and the calibration.
    linear, calibration = all_features.run(
        texts, is_quick=is_quick, on_first=on_first, progress=progress
    )

    # Use words alone if they surely predict the validation texts better.
    uses_words_alone = False
    if compares_words:
        quick, _ = words.run_as_part(comparison, is_quick=True)
        uses_words_alone = surely_lowers_the_loss(
            linear.logits(prepared.validation_texts),
            quick.logits(prepared.validation_texts),
            validation_labels,
            prepared.validation_groups,
            standard_errors=STANDARD_ERRORS_FOR_WORDS,
        )
    if uses_words_alone:
        options = words.options
        part = progress.part(WORDS_COST * words.work(is_quick=is_quick))
        linear, calibration = words.run_as_part(part, is_quick=is_quick)
    progress.expect_no_more()

    if refits:
        fitted = _refit_on_validation(prepared, linear, options, calibration, progress)
    else:
        fitted = scored_classifier(prepared, linear)
    return fitted._replace(effort=effort, uses_words_alone=uses_words_alone)


class _FitToTrain(NamedTuple):
    """A fit to the training texts, whose C and calibration the validation texts choose."""

    prepared: Prepared
    options: LinearOptions

    def counted(self) -> CountedTexts:
        """Count the features of the training texts."""
        train = self.prepared.dataset.train
        return CountedTexts.of(
            self.prepared.train_texts, train.labels, self.options, self.prepared.text_weights
        )

    def run(
        self,
        texts: CountedTexts,
        *,
        is_quick: bool,
        on_first: Callable[[LinearModel], None] | None = None,
        progress: FitProgress = UNREPORTED,
    ) -> tuple[LinearModel, Calibration]:
        """Fit to the result of `counted`; a quick fit tries only the usual C."""
        dataset = self.prepared.dataset
        return fit_linear(
            texts,
            held_out=LabelledTexts(
                texts=self.prepared.validation_texts,
                labels=dataset.known_validation.labels,
                split_groups=dataset.known_validation.split_groups,
            ),
            split_groups=dataset.train.split_groups,
            is_quick=is_quick,
            on_first=on_first,
            progress=progress,
        )

    def run_as_part(
        self, progress: FitProgress, *, is_quick: bool
    ) -> tuple[LinearModel, Calibration]:
        """Count the features and fit to them; `progress` counts the work of this fit alone."""
        progress.expect(self.work(is_quick=is_quick))
        progress.expect_no_more()

        texts = self.counted()
        progress.add(COUNTING_WORK * len(texts))
        return self.run(texts, is_quick=is_quick, progress=progress)

    def num_fits(self, *, is_quick: bool) -> float:
        """How many fits to the training texts `run` usually makes."""
        dataset = self.prepared.dataset
        return usual_fits(
            len(dataset.train),
            self.prepared.validation_groups.num_groups,
            task_of(dataset.train.labels),
            is_quick=is_quick,
        )

    def work(self, *, is_quick: bool) -> float:
        """The usual work of `run_as_part`."""
        train = self.prepared.dataset.train
        num_machines = task_of(train.labels).num_one_vs_rest(len(self.options.class_weights))
        num_fits = self.num_fits(is_quick=is_quick)
        return (COUNTING_WORK + num_fits * num_machines) * len(train)


def _refit_on_validation(
    prepared: Prepared,
    linear: LinearModel,
    options: LinearOptions,
    calibration: Calibration,
    progress: FitProgress,
) -> FittedLinear:
    """Fit again, to training and validation texts, with the same features, C and calibration."""
    train = prepared.dataset.train
    validation = prepared.dataset.known_validation

    # Predict the validation texts now, before the final fit learns from them.
    logits, familiarity_features = linear.logits_and_familiarity(prepared.validation_texts)
    assert familiarity_features is not None

    all_texts = prepared.tokenize(train.texts, validation.texts)
    all_labels = np.concatenate([train.labels, validation.labels])
    all_weights = relative_weights(train, validation)
    all_counted = CountedTexts.of(all_texts, all_labels, options, all_weights)
    progress.add(COUNTING_WORK * len(all_texts))
    refitted = fit_calibrated(all_counted, calibration, progress)

    # Measure how familiar the validation texts would be if they were new: by the evidence of the
    # first model, and by the rarity of their features in the final model.
    evidence = familiarity_features[:, :NUM_EVIDENCE_FEATURES]
    familiarity_before = refitted.familiarity_before_refit(
        prepared.validation_texts, evidence=evidence
    )

    validation_rows = np.arange(len(train), len(all_texts))
    predictions = held_out_predictions_by_split(
        prepared, validation_rows, logits, familiarity_before
    )
    fitted = scored_classifier(prepared, refitted, logits)
    return fitted._replace(held_out_predictions=predictions)
