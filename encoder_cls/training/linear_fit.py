"""Fit the linear model of a run as planned, or with less work if time is limited."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import replace
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from encoder_cls.classifier.classifier import Classifier, FamiliarityFeatures
from encoder_cls.classifier.mixture import Mixture
from encoder_cls.classifier.validation_result import (
    ValidationResult,
    score_mixture,
    surely_lowers_the_loss,
)
from encoder_cls.data.dataset import relative_weights
from encoder_cls.evaluation.held_out_predictions import HeldOutPredictions, LinearPredictions
from encoder_cls.linear.calibration import Calibration
from encoder_cls.linear.effort import (
    EFFORTS,
    IN_PASSES,
    ONE_C_VALUE,
    PLAIN_EFFORTS,
    PLANNED,
    WORDS_ALONE,
    Effort,
    EffortChoice,
    TooLittleTimeError,
    seconds_to_fit,
)
from encoder_cls.linear.feature_sums import NUM_EVIDENCE_FEATURES
from encoder_cls.linear.features import CountedTexts, LinearOptions
from encoder_cls.linear.few_labels import FewLabelsFit, fit_linear_from_few_labels
from encoder_cls.linear.fit_progress import COUNTING_WORK, UNREPORTED, FitProgress
from encoder_cls.linear.linear_model import LinearModel
from encoder_cls.linear.linear_work import LinearWork, StreamWork
from encoder_cls.linear.nb_svm import fit_linear, usual_fits
from encoder_cls.linear.stream import StreamFit, fit_linear_from_stream
from encoder_cls.metrics.logits import Logits, task_of
from encoder_cls.system.reporter import SILENT, Reporter
from encoder_cls.training.linear_time import end_of_fit
from encoder_cls.training.plan import Plan
from encoder_cls.training.prepared import Prepared


class FittedLinear(NamedTuple):
    """The fitted linear model of a run.

    Attributes:
        classifier: a classifier of the linear model alone; calibrated if there are validation
            labels.
        validation_logits: the logits of the validation texts, (texts, classes), by a linear model
            that has not learned from them.
        validation: the scores of `validation_logits`; None without validation labels.
        held_out_predictions: the predictions for validation (or out-of-fold) texts, saved before
            the final fit that includes these texts; None if no fit includes the validation texts.
        few_labels: the accuracy and the teacher of a fit to few labels; None for other fits.
        stream: the result of a fit in passes over the texts; None for other fits.
        effort: how much work the fit did.
        uses_words_alone: whether a planned fit has left out the n-grams of characters, since
            validation texts were surely predicted better without them.
        plan: the changed plan of the run, if the time allowed only a simpler fit; None if the plan
            is unchanged.
    """

    classifier: Classifier
    validation_logits: Logits
    validation: ValidationResult | None
    held_out_predictions: HeldOutPredictions | None = None
    few_labels: FewLabelsFit | None = None
    stream: StreamFit | None = None
    effort: Effort = PLANNED
    uses_words_alone: bool = False
    plan: Plan | None = None

    @property
    def work(self) -> LinearWork:
        """How much work the fit did."""
        if self.stream is None:
            return LinearWork(self.effort.key)
        return LinearWork(self.effort.key, self.stream.work, self.stream.num_unread)


# A function that receives a preliminary linear model, before the final one is fitted.
OnPreliminary = Callable[[FittedLinear], None]


# How long a fit to all features takes at least, relative to a pass over words and pairs of words:
# it counts twenty times as many features of a text, and learns from four times as many. Planned
# fits, which fit each machine by itself, took 50 to 120 times as long as a pass.
PLANNED_COST = 40
ALL_FEATURES_COST = 10

# Words alone replace all features if they lower the mean loss on the validation texts by more than
# this number of standard errors. Otherwise, all features are more accurate on most data.
STANDARD_ERRORS_FOR_WORDS = 2.0
# The minimum number of validation texts to decide that on.
MIN_TEXTS_FOR_WORDS = 50

# The names of the work that people wait for.
FIRST_FIT = "fitting a first linear model"
FIT = "fitting the linear model"


def fit_linear_classifier(
    prepared: Prepared,
    *,
    on_preliminary: OnPreliminary | None = None,
    reporter: Reporter = SILENT,
) -> FittedLinear:
    """Fit the linear model as planned, or with less work if time is limited.

    The first model, of words and pairs of words, is there after a few seconds.

    Args:
        prepared: the data and the plan of the run.
        on_preliminary: receives the preliminary classifiers, each better than the one before.
        reporter: receives how far the fit is.

    Raises:
        TooLittleTimeError: there is not enough time for the teacher of the encoder.
    """
    end = end_of_fit(prepared)
    fits = _Fits(prepared, end=end, reporter=reporter)
    is_streamed = prepared.plan.linear_fit == "stream"

    # Without a time limit, fit as planned. A person who waits for a model gets one at once: the fit
    # in passes that must end now, which has learned from the first chunk of texts.
    if end is None:
        if on_preliminary and not is_streamed:
            reporter.working(FIRST_FIT)
            on_preliminary(_Fits(prepared, end=time.monotonic()).words_in_passes())
        reporter.working(FIT)
        return fits.planned(on_preliminary)

    # With a time limit, fit in passes first: this fit is there when the time is over.
    reporter.working(FIT if is_streamed else FIRST_FIT)
    words = fits.words_in_passes(on_preliminary)
    if is_streamed:
        return words
    if on_preliminary:
        on_preliminary(words)

    # Fit as planned if there is time for it, or if the encoder needs the teacher that only the
    # planned fit has.
    reporter.working(FIT)
    assert words.stream
    seconds_of_pass = words.stream.seconds_of_pass
    needs_teacher = prepared.plan.has_pseudo_labels
    if needs_teacher or end - time.monotonic() > PLANNED_COST * seconds_of_pass:
        try:
            return fits.planned(on_preliminary)
        except TooLittleTimeError:
            if needs_teacher:
                raise

    # Otherwise, learn from all features in passes, and keep the better of both fits.
    if end - time.monotonic() > ALL_FEATURES_COST * seconds_of_pass:
        all_features = fits.all_features_in_passes()
        assert all_features.stream
        if all_features.stream.loss < words.stream.loss:
            return all_features
    return words


def repeat_linear_fit(
    prepared: Prepared, work: LinearWork, *, reporter: Reporter = SILENT
) -> FittedLinear:
    """Do the work of an earlier fit again, regardless of the time.

    Equal data and equal work give an equal classifier.

    Args:
        prepared: the data and the plan of the run, as planned before the earlier fit.
        work: the work of the earlier fit.
        reporter: receives how far the fit is.
    """
    reporter.working(FIT)
    effort = EFFORTS[work.effort]
    fits = _Fits(prepared, effort=effort, stream_work=work.stream, reporter=reporter)
    if effort is WORDS_ALONE:
        return fits.words_in_passes()
    if effort is IN_PASSES:
        return fits.all_features_in_passes()
    return fits.planned()


class _Fits:
    """The ways to fit the linear model of a run.

    Args:
        prepared: the data and the plan of the run.
        end: when a fit must end, a time of `time.monotonic`; None without a limit.
        effort: how much work a fit does if it has no limit.
        stream_work: the work of an earlier fit to a stream, to repeat it; None for a new fit.
        reporter: receives how far a fit is.
    """

    def __init__(
        self,
        prepared: Prepared,
        *,
        end: float | None = None,
        effort: Effort = PLANNED,
        stream_work: StreamWork | None = None,
        reporter: Reporter = SILENT,
    ) -> None:
        self._prepared = prepared
        self._options = _linear_options(prepared)
        self._train = prepared.dataset.train
        self._held_out = (prepared.validation_texts, prepared.dataset.known_validation.labels)
        self._effort_choice = EffortChoice(effort, end)
        self._stream_work = stream_work
        self._reporter = reporter

    def _progress(self) -> FitProgress:
        """The progress of a fit that begins now."""
        return FitProgress(self._reporter.progressed, end=self._effort_choice.end)

    def planned(self, on_preliminary: OnPreliminary | None = None) -> FittedLinear:
        """Fit as planned, with as much effort as there is time for.

        Args:
            on_preliminary: receives preliminary classifiers.

        Raises:
            TooLittleTimeError: there is not enough time for the least effort.
        """
        linear_fit = self._prepared.plan.linear_fit
        if linear_fit == "stream":
            return self.words_in_passes(on_preliminary)
        if linear_fit == "few_labels":
            return self.few_labels()
        return self.plain(on_preliminary)

    def words_in_passes(self, on_preliminary: OnPreliminary | None = None) -> FittedLinear:
        """Fit to words and pairs of words, in passes over the training texts.

        The fit ends when its time does, if not before.

        Args:
            on_preliminary: receives a preliminary classifier.
        """
        fitted = self._in_passes(self._words_only, on_preliminary)
        if self._prepared.plan.linear_fit == "stream":
            return fitted
        return fitted._replace(effort=WORDS_ALONE, plan=self._stream_plan)

    def all_features_in_passes(self) -> FittedLinear:
        """Fit to all features, in passes over the training texts.

        The fit ends when its time does, if not before.
        """
        fitted = self._in_passes(self._options)
        return fitted._replace(effort=IN_PASSES, plan=self._stream_plan)

    @property
    def _stream_plan(self) -> Plan:
        """The plan of the run, changed to a fit in passes."""
        return replace(self._prepared.plan, linear_fit="stream", refits_on_validation=False)

    def _in_passes(
        self, options: LinearOptions, on_preliminary: OnPreliminary | None = None
    ) -> FittedLinear:
        """Fit in passes over the training texts.

        Args:
            options: which features are used, and the weight of each class.
            on_preliminary: receives a preliminary classifier.
        """

        def on_first(linear: LinearModel) -> None:
            if on_preliminary:
                on_preliminary(_scored_classifier(self._prepared, linear))

        stream = fit_linear_from_stream(
            self._prepared.train_texts,
            self._train.labels,
            options,
            split_groups=self._train.split_groups,
            text_weights=relative_weights(self._train),
            end=self._effort_choice.end,
            work=self._stream_work,
            on_first=on_first,
            progress=self._progress(),
        )
        return _scored_classifier(self._prepared, stream.linear)._replace(stream=stream)

    def plain(self, on_preliminary: OnPreliminary | None = None) -> FittedLinear:
        """Fit to the training texts, then fit again with the validation texts if so planned.

        Args:
            on_preliminary: receives a preliminary classifier, of a single C value.

        Raises:
            TooLittleTimeError: there is not enough time for the least effort.
        """
        prepared = self._prepared
        options = self._options
        texts = self._counted_train(options)
        effort = self._effort_choice.choose(
            PLAIN_EFFORTS, seconds_of_fit=lambda: seconds_to_fit(texts), num_fits=self._num_fits
        )

        def on_first(linear: LinearModel) -> None:
            if on_preliminary:
                on_preliminary(_scored_classifier(prepared, linear))

        # The final fit learns from the validation texts as well, if so planned. Expect its work
        # now, so that the first fit is reported as a part of the whole.
        progress = self._progress()
        num_final = 0
        if prepared.plan.refits_on_validation:
            num_final = len(self._train) + len(prepared.validation_texts)
        progress.expect((COUNTING_WORK + texts.num_machines) * num_final)

        # Fit to the training texts. The validation texts choose C and the calibration, and whether
        # to use words alone.
        is_quick = effort is ONE_C_VALUE
        linear, calibration = self._fit_to_train(
            texts, is_quick=is_quick, on_first=on_first, progress=progress
        )
        uses_words_alone = self._words_alone_are_better(linear)
        if uses_words_alone:
            options = self._words_only
            texts = self._counted_train(options)
            linear, calibration = self._fit_to_train(texts, is_quick=is_quick)
        progress.expect_no_more()
        if not prepared.plan.refits_on_validation:
            fitted = _scored_classifier(prepared, linear)
            return fitted._replace(effort=effort, uses_words_alone=uses_words_alone)

        # Predict the validation texts now, before the final fit learns from them.
        validation = prepared.dataset.known_validation
        logits, familiarity_features = linear.logits_and_familiarity(prepared.validation_texts)
        assert familiarity_features is not None

        # Fit again to training and validation texts, with the same C and calibration.
        all_texts = prepared.tokenize(self._train.texts, validation.texts)
        all_labels = np.concatenate([self._train.labels, validation.labels])
        all_weights = relative_weights(self._train, validation)
        all_counted = CountedTexts.of(all_texts, all_labels, options, all_weights)
        progress.add(COUNTING_WORK * num_final)
        refitted, _ = fit_linear(all_counted, calibration=calibration, progress=progress)

        # Measure how familiar the validation texts would be if they were new: by the evidence of
        # the first model, and by the rarity of their features in the final model.
        evidence = familiarity_features[:, :NUM_EVIDENCE_FEATURES]
        familiarity_before = refitted.familiarity_before_refit(
            prepared.validation_texts, evidence=evidence
        )

        rows = np.arange(len(self._train), len(all_texts))
        predictions = _held_out_predictions(prepared, rows, logits, familiarity_before)
        fitted = _scored_classifier(prepared, refitted, logits)
        return fitted._replace(
            held_out_predictions=predictions, effort=effort, uses_words_alone=uses_words_alone
        )

    @property
    def _words_only(self) -> LinearOptions:
        """The options of a model of words and pairs of words."""
        return self._options._replace(char_ngrams=False)

    def _counted_train(self, options: LinearOptions) -> CountedTexts:
        """Count the features of the training texts."""
        return CountedTexts.of(
            self._prepared.train_texts,
            self._train.labels,
            options,
            relative_weights(self._train),
        )

    def _fit_to_train(
        self,
        texts: CountedTexts,
        *,
        is_quick: bool,
        on_first: Callable[[LinearModel], None] | None = None,
        progress: FitProgress = UNREPORTED,
    ) -> tuple[LinearModel, Calibration]:
        """Fit to the training texts, and choose C and the calibration on the validation texts."""
        return fit_linear(
            texts,
            held_out=self._held_out,
            split_groups=self._train.split_groups,
            is_quick=is_quick,
            on_first=on_first,
            progress=progress,
        )

    def _words_alone_are_better(self, linear: LinearModel) -> bool:
        """Whether a quick fit to words alone surely predicts the validation texts better.

        With many classes, a model may have so few features that n-grams of characters, which are
        more frequent, take the place of words. They may also mislead, as in product codes.

        Args:
            linear: the model of all features to compare with.
        """
        texts, labels = self._held_out
        if len(labels) < MIN_TEXTS_FOR_WORDS:
            return False

        words, _ = self._fit_to_train(self._counted_train(self._words_only), is_quick=True)
        return surely_lowers_the_loss(
            linear.logits(texts),
            words.logits(texts),
            labels,
            standard_errors=STANDARD_ERRORS_FOR_WORDS,
        )

    def _num_fits(self, effort: Effort) -> float:
        """Return how many fits to the training texts an effort takes.

        Args:
            effort: one of the `PLAIN_EFFORTS`.
        """
        _, validation_labels = self._held_out
        num_fits = usual_fits(
            len(self._train),
            len(validation_labels),
            task_of(self._train.labels),
            is_quick=effort is ONE_C_VALUE,
        )
        if self._prepared.plan.refits_on_validation:
            num_fits += 1
        return num_fits

    def few_labels(self) -> FittedLinear:
        """Fit to few labels and to unlabelled texts, and to the validation texts if so planned.

        Raises:
            TooLittleTimeError: there is not enough time for the least effort.
        """
        prepared = self._prepared
        dataset = prepared.dataset
        texts = prepared.texts
        labels = self._train.labels
        split_groups = self._train.split_groups
        text_weights = relative_weights(self._train)
        num_held_out = 0
        if prepared.plan.refits_on_validation:
            validation = dataset.known_validation
            texts = prepared.tokenize(self._train.texts, validation.texts, dataset.unlabelled.texts)
            labels = np.concatenate([labels, validation.labels])
            split_groups = np.concatenate([split_groups, validation.split_groups])
            text_weights = relative_weights(self._train, validation)
            num_held_out = len(validation)

        linear, result = fit_linear_from_few_labels(
            texts,
            labels,
            prepared.name_texts,
            self._options,
            config=prepared.config.train,
            split_groups=split_groups,
            text_weights=text_weights,
            validation_rows=len(self._train) + np.arange(num_held_out),
            with_teacher=prepared.plan.has_pseudo_labels,
            effort_choice=self._effort_choice,
            progress=self._progress(),
        )
        if not num_held_out:
            fitted = _scored_classifier(prepared, linear)
            return fitted._replace(few_labels=result, effort=result.effort)

        # The cross-validation has predicted all labelled texts out of fold.
        familiarity_features = linear.familiarity_before_refit(texts.take(result.rows))
        predictions = _held_out_predictions(
            prepared, result.rows, result.logits, familiarity_features
        )

        # The linear model is already calibrated on these out-of-fold predictions, so do not
        # calibrate it again on the few validation texts. With an encoder, do: the validation texts
        # choose the weights of both models, so both must be calibrated on the same texts.
        fitted = _scored_classifier(
            prepared,
            linear,
            predictions.validation.logits,
            is_calibrated=not prepared.plan.has_encoder,
        )
        return fitted._replace(
            held_out_predictions=predictions, few_labels=result, effort=result.effort
        )


def _linear_options(prepared: Prepared) -> LinearOptions:
    """Return which features the linear model uses, and the weight of each class."""
    max_tokens = prepared.plan.linear_max_tokens
    assert max_tokens is not None
    return LinearOptions(max_tokens, char_ngrams=True, class_weights=prepared.class_weights.numpy())


def _held_out_predictions(
    prepared: Prepared,
    rows: NDArray[np.int64],
    logits: Logits,
    familiarity_features: FamiliarityFeatures,
) -> HeldOutPredictions:
    """Collect held-out predictions by split, with the rows of their texts in the split.

    Args:
        prepared: the data of the run.
        rows: the numbers of the predicted texts, (texts,): first the training texts are numbered,
            then the texts of `Dataset.known_validation`.
        logits: the logits of the predicted texts, (texts, classes).
        familiarity_features: the familiarity features of the predicted texts, (texts, features).
    """
    dataset = prepared.dataset
    num_train = len(dataset.train)
    is_train = rows < num_train

    # Translate rows of `Dataset.known_validation` to rows of `Dataset.validation`, which also has
    # the texts whose labels do not occur in train.
    is_known = ~dataset.validation.has_unseen_label(len(dataset.label_names))
    known_rows = np.flatnonzero(is_known)
    validation_rows = known_rows[rows[~is_train] - num_train]

    return HeldOutPredictions(
        validation=LinearPredictions(
            validation_rows, logits[~is_train], familiarity_features[~is_train]
        ),
        train=LinearPredictions(rows[is_train], logits[is_train], familiarity_features[is_train]),
        texts_sha256=dataset.validation.texts_fingerprint,
    )


def _scored_classifier(
    prepared: Prepared,
    linear: LinearModel,
    logits: Logits | None = None,
    *,
    is_calibrated: bool = False,
) -> FittedLinear:
    """Make a classifier of a linear model, calibrate it and score it on the validation texts.

    Args:
        prepared: the data of the run.
        linear: the linear model.
        logits: the logits of the validation texts, (texts, classes); by default those of `linear`.
            They are given if `linear` has learned from these texts.
        is_calibrated: the logits are already calibrated, so leave them as they are.
    """
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
