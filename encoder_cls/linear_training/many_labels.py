"""Fit the linear model of a run to many labels, with the features that are best."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

from encoder_cls.linear.feature_sums import NUM_EVIDENCE_FEATURES
from encoder_cls.linear.linear_model import LinearModel
from encoder_cls.linear_training.calibration import Calibration
from encoder_cls.linear_training.cost import (
    COUNTING_WORK,
    PLAIN_EFFORTS,
    Effort,
    EffortChoice,
    count_work,
    counting_at,
    expect_work,
    usual_fits,
)
from encoder_cls.linear_training.features import CountedTexts, LinearOptions
from encoder_cls.linear_training.fit_data import FitData, HeldOutLogits, LinearFit
from encoder_cls.linear_training.model_selection import fit_calibrated, fit_linear
from encoder_cls.linear_training.nb_svm import seconds_to_fit
from encoder_cls.metrics.row_groups import RowGroups
from encoder_cls.metrics.tasks import task_of
from encoder_cls.text.tokens import FEATURE

# The work of counting words alone and of a fit to them, relative to the same with all features. It
# was 0.14 to 0.19 on texts of 10 to 20 words, in 2 to 77 classes.
WORDS_COST = 0.2


def fit_to_many_labels(
    data: FitData,
    *,
    effort_choice: EffortChoice,
    on_first: Callable[[LinearModel], None] | None = None,
) -> LinearFit:
    """Fit to the training texts, then again with the validation texts if so planned.

    With many classes, a model has few features, and frequent character n-grams may displace words,
    or mislead, as in product codes: a quick fit to words alone shows it.

    `on_first` receives a first model, of a single C value.

    Raises:
        TooLittleTimeError: there is not enough time for the least effort.
    """
    all_features = _FitToTrain(data, data.options)
    words = _FitToTrain(data, data.options._replace(char_ngrams=False))

    def num_fits(effort: Effort) -> float:
        number = all_features.num_fits(is_quick=not effort.tries_all_c_values)
        if all_features.compares_feature_pairs:
            number += 1
        if data.refits_on_validation:
            number += 1
        return number

    texts = all_features.counted()
    effort = effort_choice.choose(
        PLAIN_EFFORTS, seconds_of_fit=lambda: seconds_to_fit(texts), num_fits=num_fits
    )
    is_quick = not effort.tries_all_c_values

    # Expect all work now, so that each fit is reported as a part of the whole. The features of the
    # training texts are counted already.
    expect_work(all_features.work(is_quick=is_quick) - COUNTING_WORK * len(texts))
    if data.has_enough_validation:
        expect_work(WORDS_COST * words.work(is_quick=True))
    if data.refits_on_validation:
        num_final = len(texts) + len(data.validation)
        expect_work((COUNTING_WORK + data.num_classifiers) * num_final)

    fitted = _fit_and_try_words(texts, all_features, words, is_quick, on_first)
    if fitted.made_by.compares_feature_pairs:
        fitted = _try_feature_pairs(fitted, is_quick)

    linear = fitted.linear
    fit = LinearFit(linear, effort, uses_words_alone=not fitted.made_by.options.char_ngrams)
    if data.refits_on_validation:
        linear, held_out = refit_on_validation(
            data,
            linear,
            fitted.made_by.options,
            lambda texts: fit_calibrated(texts, fitted.calibration),
        )
        fit = fit._replace(linear=linear, held_out=held_out)
    return fit


class _Fitted(NamedTuple):
    made_by: _FitToTrain
    linear: LinearModel
    calibration: Calibration


def _fit_and_try_words(
    texts: CountedTexts,
    all_features: _FitToTrain,
    words: _FitToTrain,
    is_quick: bool,
    on_first: Callable[[LinearModel], None] | None,
) -> _Fitted:
    # Fit to all features. The validation texts choose C and the calibration.
    linear, calibration = all_features.run(texts, is_quick=is_quick, on_first=on_first)

    # All features are more accurate on most data. Use words alone if they surely predict the
    # validation texts better.
    data = all_features.data
    if data.has_enough_validation:
        with counting_at(WORDS_COST):
            quick, _ = words.count_and_run(is_quick=True)
        if data.is_surely_better(LinearFit(quick), LinearFit(linear)):
            with counting_at(WORDS_COST):
                expect_work(words.work(is_quick=is_quick))
                return _Fitted(words, *words.count_and_run(is_quick=is_quick))
    return _Fitted(all_features, linear, calibration)


def _try_feature_pairs(fitted: _Fitted, is_quick: bool) -> _Fitted:
    """Add pairs of a word and a feature of its row if the fit surely predicts better with them.

    Such a pair learns what the word says only together with the feature.
    """
    data = fitted.made_by.data
    paired = _FitToTrain(data, fitted.made_by.options._replace(feature_pairs=True))
    expect_work(paired.work(is_quick=True))
    quick, calibration = paired.count_and_run(is_quick=True)
    if not data.is_surely_better(LinearFit(quick), LinearFit(fitted.linear)):
        return fitted

    if not is_quick:
        expect_work(paired.work(is_quick=False))
        quick, calibration = paired.count_and_run(is_quick=False)
    return _Fitted(paired, quick, calibration)


class _FitToTrain(NamedTuple):
    """A fit to training texts, whose C and calibration the validation texts choose."""

    data: FitData
    options: LinearOptions

    def counted(self) -> CountedTexts:
        train = self.data.train
        return CountedTexts.of(train.texts, train.labels, self.options, train.weights)

    def run(
        self,
        texts: CountedTexts,
        *,
        is_quick: bool,
        on_first: Callable[[LinearModel], None] | None = None,
    ) -> tuple[LinearModel, Calibration]:
        return fit_linear(
            texts,
            held_out=self.data.validation,
            split_groups=self.data.train.split_groups,
            is_quick=is_quick,
            on_first=on_first,
        )

    def count_and_run(self, *, is_quick: bool) -> tuple[LinearModel, Calibration]:
        texts = self.counted()
        count_work(COUNTING_WORK * len(texts))
        return self.run(texts, is_quick=is_quick)

    @property
    def compares_feature_pairs(self) -> bool:
        kinds = self.data.texts.kinds
        return kinds is not None and FEATURE in kinds and self.data.has_enough_validation

    def num_fits(self, *, is_quick: bool) -> float:
        train = self.data.train
        num_held_out = RowGroups(self.data.validation.split_groups).num_groups
        return usual_fits(len(train), num_held_out, task_of(train.labels), is_quick=is_quick)

    def work(self, *, is_quick: bool) -> float:
        work_of_text = COUNTING_WORK + self.num_fits(is_quick=is_quick) * self.data.num_classifiers
        return work_of_text * len(self.data.train)


def refit_on_validation(
    data: FitData,
    linear: LinearModel,
    options: LinearOptions,
    fit: Callable[[CountedTexts], LinearModel],
) -> tuple[LinearModel, HeldOutLogits]:
    """Fit again, to training and validation texts; `linear` is the model of the training texts."""
    # Predict the validation texts now, before the final fit learns from them.
    logits, familiarity_features = linear.logits_and_familiarity(data.validation_texts)
    assert familiarity_features is not None

    texts = data.train_and_validation()
    counted = CountedTexts.of(texts.texts, texts.labels, options, texts.weights)
    count_work(COUNTING_WORK * len(texts))
    refitted = fit(counted)

    # Measure how familiar the validation texts would be if they were new: by the evidence of the
    # first model, and by the rarity of their features in the final model.
    evidence = familiarity_features[:, :NUM_EVIDENCE_FEATURES]
    familiarity_before = refitted.familiarity_before_refit(data.validation_texts, evidence=evidence)
    return refitted, HeldOutLogits(texts.validation_rows, logits, familiarity_before)
