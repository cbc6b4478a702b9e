"""Fit the linear model of a run as planned, or with less work if time is limited."""

from __future__ import annotations

import time
from collections.abc import Callable

from encoder_cls.linear.linear_model import LinearModel
from encoder_cls.linear_training.cost import (
    EFFORTS,
    IN_PASSES,
    PLANNED,
    WORDS_ALONE,
    Effort,
    EffortChoice,
    FitProgress,
    LinearWork,
    StreamWork,
    TooLittleTimeError,
)
from encoder_cls.linear_training.features import LabelledTexts, LinearOptions
from encoder_cls.linear_training.stream import fit_linear_from_stream
from encoder_cls.system.reporter import SILENT, Reporter
from encoder_cls.training.few_labels_fit import fit_to_few_labels
from encoder_cls.training.fitted_linear import FittedLinear, scored_classifier
from encoder_cls.training.many_labels_fit import fit_to_many_labels
from encoder_cls.training.prepared import Prepared

# The maximum share of the remaining time for the linear model. An encoder, if there is time for it,
# and the report follow.
SHARE = 0.5


def end_of_fit(prepared: Prepared) -> float | None:
    """Return when the fit of the linear model must end, a time of `time.monotonic`, or None."""
    seconds = prepared.budget.seconds_for(pretraining=False)
    if seconds is None:
        return None
    return time.monotonic() + SHARE * seconds


# How long a planned fit takes at least, relative to a pass over words and pairs of words: it fits
# each machine by itself. It took 20 to 100 times as long as a pass.
PLANNED_COST = 20
# How long a fit in passes to all features takes at least, relative to the same pass: it counts
# twenty times as many features of a text, and learns from four times as many.
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

    The first model, of words and pairs of words, is there after a few seconds. `on_preliminary`
    receives it and further preliminary classifiers, each better than the one before.

    Raises:
        TooLittleTimeError: there is not enough time for the teacher of the encoder.
    """
    end = end_of_fit(prepared)
    fits = _Fits(prepared, end=end, reporter=reporter)

    # From much text, learn in passes for as long as there is time.
    if prepared.plan.linear_fit == "stream":
        reporter.working(FIT)
        return fits.words_in_passes(on_preliminary)

    if end is None:
        return _fit_without_limit(fits, on_preliminary)
    return _fit_until(end, fits, on_preliminary)


def _fit_without_limit(fits: _Fits, on_preliminary: OnPreliminary | None) -> FittedLinear:
    """Fit as planned.

    A person who waits for a model gets one at once: the fit in passes that must end now, which has
    learned from the first chunk of texts.
    """
    if on_preliminary:
        fits.reporter.working(FIRST_FIT)
        on_preliminary(_Fits(fits.prepared, end=time.monotonic()).words_in_passes())
    fits.reporter.working(FIT)
    return fits.planned(on_preliminary)


def _fit_until(end: float, fits: _Fits, on_preliminary: OnPreliminary | None) -> FittedLinear:
    """Fit as planned, or with less work if there is too little time until `end`.

    `end` is a time of `time.monotonic`.
    """
    # Fit in passes first: this fit is there when the time is over.
    fits.reporter.working(FIRST_FIT)
    words = fits.words_in_passes(on_preliminary)
    if on_preliminary:
        on_preliminary(words)

    # Fit as planned if there is time for it, or if the encoder needs the teacher that only the
    # planned fit has.
    fits.reporter.working(FIT)
    assert words.stream
    seconds_of_pass = words.stream.seconds_of_pass
    needs_teacher = fits.prepared.plan.has_pseudo_labels
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
        end: when a fit must end, a time of `time.monotonic`; None without a limit.
        effort: how much work a fit does if it has no limit.
        stream_work: the work of an earlier fit to a stream, to repeat it; None for a new fit.
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
        self.prepared = prepared
        self._options = _linear_options(prepared)
        self._effort_choice = EffortChoice(effort, end)
        self._stream_work = stream_work
        self.reporter = reporter

    def _progress(self) -> FitProgress:
        """The progress of a fit that begins now."""
        return FitProgress(self.reporter.progressed, end=self._effort_choice.end)

    def _scoring_first(
        self, on_preliminary: OnPreliminary | None
    ) -> Callable[[LinearModel], None] | None:
        """Return a function that passes a first linear model on, as a scored classifier."""
        if on_preliminary is None:
            return None

        def pass_on(linear: LinearModel) -> None:
            on_preliminary(scored_classifier(self.prepared, linear))

        return pass_on

    def planned(self, on_preliminary: OnPreliminary | None = None) -> FittedLinear:
        """Fit as planned, with as much effort as there is time for.

        A `TooLittleTimeError` is raised if there is not enough time for the least effort.
        """
        linear_fit = self.prepared.plan.linear_fit
        if linear_fit == "stream":
            return self.words_in_passes(on_preliminary)
        if linear_fit == "few_labels":
            return fit_to_few_labels(
                self.prepared,
                self._options,
                effort_choice=self._effort_choice,
                progress=self._progress(),
            )
        return fit_to_many_labels(
            self.prepared,
            self._options,
            effort_choice=self._effort_choice,
            on_first=self._scoring_first(on_preliminary),
            progress=self._progress(),
        )

    def words_in_passes(self, on_preliminary: OnPreliminary | None = None) -> FittedLinear:
        """Fit to words and pairs of words, in passes over the training texts.

        The fit ends when its time does, if not before. There is no preliminary classifier if it
        ends soon.
        """
        end = self._effort_choice.end
        if end is not None and end - time.monotonic() < MIN_SECONDS_FOR_PRELIMINARY:
            on_preliminary = None

        words_only = self._options._replace(char_ngrams=False)
        fitted = self._in_passes(words_only, on_preliminary)
        if self.prepared.plan.linear_fit == "stream":
            return fitted
        return fitted._replace(effort=WORDS_ALONE)

    def all_features_in_passes(self) -> FittedLinear:
        """Fit to all features, in passes over the training texts.

        The fit ends when its time does, if not before.
        """
        fitted = self._in_passes(self._options)
        return fitted._replace(effort=IN_PASSES)

    def _in_passes(
        self, options: LinearOptions, on_preliminary: OnPreliminary | None = None
    ) -> FittedLinear:
        train = self.prepared.dataset.train
        labelled = LabelledTexts(
            texts=self.prepared.train_texts,
            labels=train.labels,
            split_groups=train.split_groups,
            weights=self.prepared.text_weights,
        )
        stream = fit_linear_from_stream(
            labelled,
            options,
            end=self._effort_choice.end,
            work=self._stream_work,
            on_first=self._scoring_first(on_preliminary),
            progress=self._progress(),
        )
        return scored_classifier(self.prepared, stream.linear)._replace(stream=stream)


def _linear_options(prepared: Prepared) -> LinearOptions:
    max_tokens = prepared.plan.linear_max_tokens
    assert max_tokens is not None
    return LinearOptions(max_tokens, char_ngrams=True, class_weights=prepared.class_weights.numpy())
