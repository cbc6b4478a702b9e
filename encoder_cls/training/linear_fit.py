"""Fit the linear model of a run as planned, or with less work if time is limited."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import replace

import numpy as np

from encoder_cls.classifier.validation_result import surely_lowers_the_loss
from encoder_cls.data.dataset import relative_weights
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
from encoder_cls.linear.features import CountedTexts, LabelledTexts, LinearOptions
from encoder_cls.linear.few_labels import fit_linear_from_few_labels
from encoder_cls.linear.fit_progress import COUNTING_WORK, UNREPORTED, FitProgress
from encoder_cls.linear.linear_model import LinearModel
from encoder_cls.linear.linear_work import LinearWork, StreamWork
from encoder_cls.linear.nb_svm import fit_linear, usual_fits
from encoder_cls.linear.stream import fit_linear_from_stream
from encoder_cls.metrics.tasks import task_of
from encoder_cls.system.reporter import SILENT, Reporter
from encoder_cls.training.fitted_linear import (
    FittedLinear,
    held_out_predictions_by_split,
    scored_classifier,
)
from encoder_cls.training.plan import Plan
from encoder_cls.training.prepared import Prepared

# The maximum share of the remaining time for the linear model. An encoder, if there is time for it,
# and the report follow.
SHARE = 0.5


def end_of_fit(prepared: Prepared) -> float | None:
    """Return when the fit of the linear model must end, a time of `time.monotonic`.

    Returns:
        None without a time limit.
    """
    seconds = prepared.budget.seconds_for(pretraining=False)
    if seconds is None:
        return None
    return time.monotonic() + SHARE * seconds


# How long a fit to all features takes at least, relative to a pass over words and pairs of words:
# it counts twenty times as many features of a text, and learns from four times as many. Planned
# fits, which fit each machine by itself, took 50 to 120 times as long as a pass.
PLANNED_COST = 40
ALL_FEATURES_COST = 10

# A fit in passes that ends within this time gives no preliminary model. To predict 50,000
# validation texts with one, and to save it, would take a fifth of the time.
MIN_SECONDS_FOR_PRELIMINARY = 20.0

# The names of the work that people wait for.
FIRST_FIT = "fitting a first linear model"
FIT = "fitting the linear model"

# A function that receives a preliminary linear model, before the final one is fitted.
OnPreliminary = Callable[[FittedLinear], None]


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
    is_short = end - time.monotonic() < MIN_SECONDS_FOR_PRELIMINARY
    words = fits.words_in_passes(None if is_short else on_preliminary)
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


# Words alone replace all features if they lower the mean loss on the validation texts by more than
# this number of standard errors. Otherwise, all features are more accurate on most data.
STANDARD_ERRORS_FOR_WORDS = 2.0
# The minimum number of validation texts to decide that on.
MIN_TEXTS_FOR_WORDS = 50
# The work of counting words alone and of a fit to them, relative to the same with all features. It
# was 0.14 to 0.19 on texts of 10 to 20 words, in 2 to 77 classes.
WORDS_COST = 0.2


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

    def _scoring_first(
        self, on_preliminary: OnPreliminary | None
    ) -> Callable[[LinearModel], None] | None:
        """Return a function that passes a first linear model on, as a scored classifier.

        Args:
            on_preliminary: receives the classifier; None if nothing receives it.
        """
        if on_preliminary is None:
            return None

        def pass_on(linear: LinearModel) -> None:
            on_preliminary(scored_classifier(self._prepared, linear))

        return pass_on

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
        stream = fit_linear_from_stream(
            self._labelled_train,
            options,
            end=self._effort_choice.end,
            work=self._stream_work,
            on_first=self._scoring_first(on_preliminary),
            progress=self._progress(),
        )
        return scored_classifier(self._prepared, stream.linear)._replace(stream=stream)

    @property
    def _labelled_train(self) -> LabelledTexts:
        """The training texts with their labels."""
        return LabelledTexts(
            texts=self._prepared.train_texts,
            labels=self._train.labels,
            split_groups=self._train.split_groups,
            weights=relative_weights(self._train),
        )

    def plain(self, on_preliminary: OnPreliminary | None = None) -> FittedLinear:
        """Fit to the training texts, then fit again with the validation texts if so planned.

        Args:
            on_preliminary: receives a preliminary classifier, of a single C value.

        Raises:
            TooLittleTimeError: there is not enough time for the least effort.
        """
        texts = self._counted_train(self._options)
        effort = self._effort_choice.choose(
            PLAIN_EFFORTS, seconds_of_fit=lambda: seconds_to_fit(texts), num_fits=self._num_fits
        )
        is_quick = effort is ONE_C_VALUE

        # The final fit learns from the validation texts as well, if so planned. Expect its work
        # now, so that the first fit is reported as a part of the whole.
        progress = self._progress()
        refits_on_validation = self._prepared.plan.refits_on_validation
        if refits_on_validation:
            num_final = len(self._train) + len(self._prepared.validation_texts)
            progress.expect((COUNTING_WORK + texts.num_machines) * num_final)
        # The comparison with words alone is a part of the whole, too.
        comparison = UNREPORTED
        if self._can_compare_words:
            comparison = progress.part(WORDS_COST * self._work_of_words(is_quick=True))

        # Fit to the training texts. The validation texts choose C and the calibration, and whether
        # to use words alone.
        options = self._options
        linear, calibration = self._fit_to_train(
            texts,
            is_quick=is_quick,
            on_first=self._scoring_first(on_preliminary),
            progress=progress,
        )
        uses_words_alone = self._words_alone_are_better(linear, comparison)
        if uses_words_alone:
            options = self._words_only
            words_progress = progress.part(WORDS_COST * self._work_of_words(is_quick=is_quick))
            linear, calibration = self._fit_to_words(is_quick=is_quick, progress=words_progress)
        progress.expect_no_more()

        if refits_on_validation:
            fitted = self._refit_on_validation(linear, options, calibration, progress)
        else:
            fitted = scored_classifier(self._prepared, linear)
        return fitted._replace(effort=effort, uses_words_alone=uses_words_alone)

    def _refit_on_validation(
        self,
        linear: LinearModel,
        options: LinearOptions,
        calibration: Calibration,
        progress: FitProgress,
    ) -> FittedLinear:
        """Fit again, to training and validation texts, with the same C and calibration.

        Args:
            linear: the linear model that was fitted to the training texts alone.
            options: which features `linear` uses, and the weight of each class.
            calibration: the C and the calibration of `linear`.
            progress: counts the work of the fit.
        """
        prepared = self._prepared
        validation = prepared.dataset.known_validation

        # Predict the validation texts now, before the final fit learns from them.
        logits, familiarity_features = linear.logits_and_familiarity(prepared.validation_texts)
        assert familiarity_features is not None

        all_texts = prepared.tokenize(self._train.texts, validation.texts)
        all_labels = np.concatenate([self._train.labels, validation.labels])
        all_weights = relative_weights(self._train, validation)
        all_counted = CountedTexts.of(all_texts, all_labels, options, all_weights)
        progress.add(COUNTING_WORK * len(all_texts))
        refitted, _ = fit_linear(all_counted, calibration=calibration, progress=progress)

        # Measure how familiar the validation texts would be if they were new: by the evidence of
        # the first model, and by the rarity of their features in the final model.
        evidence = familiarity_features[:, :NUM_EVIDENCE_FEATURES]
        familiarity_before = refitted.familiarity_before_refit(
            prepared.validation_texts, evidence=evidence
        )

        validation_rows = np.arange(len(self._train), len(all_texts))
        predictions = held_out_predictions_by_split(
            prepared, validation_rows, logits, familiarity_before
        )
        fitted = scored_classifier(prepared, refitted, logits)
        return fitted._replace(held_out_predictions=predictions)

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

    def _fit_to_words(
        self, *, is_quick: bool, progress: FitProgress
    ) -> tuple[LinearModel, Calibration]:
        """Fit to words and pairs of words of the training texts.

        Args:
            is_quick: whether only the usual C is tried.
            progress: counts the work of this fit alone.
        """
        progress.expect(self._work_of_words(is_quick=is_quick))
        progress.expect_no_more()

        texts = self._counted_train(self._words_only)
        progress.add(COUNTING_WORK * len(texts))
        return self._fit_to_train(texts, is_quick=is_quick, progress=progress)

    def _work_of_words(self, *, is_quick: bool) -> float:
        """The usual work of `_fit_to_words`, of which each unit costs `WORDS_COST`."""
        num_classes = len(self._options.class_weights)
        num_machines = task_of(self._train.labels).num_one_vs_rest(num_classes)
        num_fits = self._num_fits_to_train(is_quick=is_quick)
        return (COUNTING_WORK + num_fits * num_machines) * len(self._train)

    @property
    def _can_compare_words(self) -> bool:
        """Whether there are enough validation texts to decide whether to use words alone."""
        _, labels = self._held_out
        return len(labels) >= MIN_TEXTS_FOR_WORDS

    def _words_alone_are_better(self, linear: LinearModel, progress: FitProgress) -> bool:
        """Whether a quick fit to words alone surely predicts the validation texts better.

        With many classes, a model may have so few features that n-grams of characters, which are
        more frequent, take the place of words. They may also mislead, as in product codes.

        Args:
            linear: the model of all features to compare with.
            progress: counts the work of the quick fit alone.
        """
        if not self._can_compare_words:
            return False

        texts, labels = self._held_out
        words, _ = self._fit_to_words(is_quick=True, progress=progress)
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
        num_fits = self._num_fits_to_train(is_quick=effort is ONE_C_VALUE)
        if self._prepared.plan.refits_on_validation:
            num_fits += 1
        return num_fits

    def _num_fits_to_train(self, *, is_quick: bool) -> float:
        """Return how many fits to the training texts `_fit_to_train` usually takes."""
        _, validation_labels = self._held_out
        return usual_fits(
            len(self._train),
            len(validation_labels),
            task_of(self._train.labels),
            is_quick=is_quick,
        )

    def few_labels(self) -> FittedLinear:
        """Fit to few labels and to unlabelled texts, and to the validation texts if so planned.

        Raises:
            TooLittleTimeError: there is not enough time for the least effort.
        """
        prepared = self._prepared
        dataset = prepared.dataset
        labelled = replace(self._labelled_train, texts=prepared.texts)
        if prepared.plan.refits_on_validation:
            train = self._train
            validation = dataset.known_validation
            labelled = LabelledTexts(
                texts=prepared.tokenize(train.texts, validation.texts, dataset.unlabelled.texts),
                labels=np.concatenate([train.labels, validation.labels]),
                split_groups=np.concatenate([train.split_groups, validation.split_groups]),
                weights=relative_weights(train, validation),
                validation_rows=len(train) + np.arange(len(validation)),
            )

        linear, result = fit_linear_from_few_labels(
            labelled,
            prepared.name_texts,
            self._options,
            config=prepared.config.train,
            with_teacher=prepared.plan.has_pseudo_labels,
            effort_choice=self._effort_choice,
            progress=self._progress(),
        )
        if not len(labelled.validation_rows):
            fitted = scored_classifier(prepared, linear)
            return fitted._replace(few_labels=result, effort=result.effort)

        # The cross-validation has predicted all labelled texts out of fold.
        familiarity_features = linear.familiarity_before_refit(labelled.texts.take(result.rows))
        predictions = held_out_predictions_by_split(
            prepared, result.rows, result.logits, familiarity_features
        )

        # The linear model is already calibrated on these out-of-fold predictions, so do not
        # calibrate it again on the few validation texts. With an encoder, do: the validation texts
        # choose the weights of both models, so both must be calibrated on the same texts.
        fitted = scored_classifier(
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
