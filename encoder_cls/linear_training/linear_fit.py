"""Fit the linear model of a run as planned, or with less work if time is limited. Start here.

The four fits are to many labels (`many_labels`), also of very many classes (`many_classes`), to few
labels (`few_labels`), and to more text than memory holds (`stream`).
"""

from __future__ import annotations

import time
from collections.abc import Callable

import numpy as np

from encoder_cls.data.label_names import names_as_texts
from encoder_cls.linear.linear_model import LinearModel
from encoder_cls.linear_training.cost import (
    EFFORTS,
    IN_PASSES,
    MIN_SECONDS,
    NAIVE_BAYES,
    PLANNED,
    WORDS_ALONE,
    Effort,
    EffortChoice,
    LinearWork,
    StreamWork,
    TooLittleTimeError,
    reporting_progress,
)
from encoder_cls.linear_training.features import LinearOptions
from encoder_cls.linear_training.few_labels import fit_linear_from_few_labels
from encoder_cls.linear_training.fit_data import FitData, HeldOutLogits, LinearFit
from encoder_cls.linear_training.many_classes import fit_to_many_classes
from encoder_cls.linear_training.many_labels import fit_to_many_labels
from encoder_cls.linear_training.stream import fit_linear_from_stream
from encoder_cls.system.reporter import SILENT, Reporter

# How long a planned fit takes at least, relative to a pass over words and pairs of words: it fits
# each binary classifier by itself. It took 20 to 100 times as long as a pass.
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

# A function that receives a preliminary fit, before the final one is made.
OnPreliminary = Callable[[LinearFit], None]


def fit_linear_model(
    data: FitData,
    *,
    end: float | None = None,
    on_preliminary: OnPreliminary | None = None,
    reporter: Reporter = SILENT,
) -> LinearFit:
    """Fit as planned, or with less work to end at `end`, a time of `time.monotonic`.

    `on_preliminary` receives ever better models; the first, of words and pairs of words, is there
    after seconds.

    Raises:
        TooLittleTimeError: there is not enough time for the teacher of the encoder.
    """
    fits = _Fits(data, end=end, reporter=reporter)

    # From much text, learn in passes for as long as there is time. With very many classes, no other
    # fit has a first model sooner than the planned one.
    if data.kind in ("stream", "many_classes"):
        reporter.working(FIT)
        return fits.planned(on_preliminary)

    if end is None:
        return _fit_without_limit(fits, on_preliminary)
    return _fit_until(end, fits, on_preliminary)


def repeat_linear_fit(data: FitData, work: LinearWork, *, reporter: Reporter = SILENT) -> LinearFit:
    """Do the work of an earlier fit again, whatever it takes; equal data gives an equal model."""
    reporter.working(FIT)
    effort = EFFORTS[work.effort]
    fits = _Fits(data, effort=effort, stream_work=work.stream, reporter=reporter)
    if effort is WORDS_ALONE:
        return fits.words_in_passes()
    if effort is IN_PASSES:
        return fits.all_features_in_passes()
    if effort is NAIVE_BAYES:
        return fits.naive_bayes()
    return fits.planned()


def _fit_without_limit(fits: _Fits, on_preliminary: OnPreliminary | None) -> LinearFit:
    # A person who waits gets a first model at once: by passes that must end now, and so have
    # learned from the first chunk of texts.
    fits.reporter.working(FIRST_FIT)
    words = _Fits(fits.data, end=time.monotonic()).words_in_passes()
    if on_preliminary:
        on_preliminary(words)
    first = _better_of_words_and_naive_bayes(words, fits, on_preliminary)

    fits.reporter.working(FIT)
    return _planned_unless_surely_worse(first, fits, on_preliminary)


def _fit_until(end: float, fits: _Fits, on_preliminary: OnPreliminary | None) -> LinearFit:
    # Fit in passes first: this fit is there when the time is over.
    fits.reporter.working(FIRST_FIT)
    first = fits.words_in_passes(on_preliminary)
    if on_preliminary:
        on_preliminary(first)
    assert first.stream
    seconds_of_pass = first.stream.seconds_of_pass

    def has_passes(number: float) -> bool:
        return end - time.monotonic() > number * seconds_of_pass

    # Fit naive Bayes, too: of few tokens in any case, since a person does not notice its seconds.
    if has_passes(ALL_FEATURES_COST) or ALL_FEATURES_COST * seconds_of_pass <= MIN_SECONDS:
        first = _better_of_words_and_naive_bayes(first, fits, on_preliminary)

    # Fit as planned if there is time for it, or if the encoder needs the teacher that only the
    # planned fit has.
    fits.reporter.working(FIT)
    needs_teacher = fits.data.with_teacher
    if needs_teacher or has_passes(PLANNED_COST):
        try:
            return _planned_unless_surely_worse(first, fits, on_preliminary)
        except TooLittleTimeError:
            if needs_teacher:
                raise

    # Otherwise, learn from all features in passes, and keep the better of both fits. Where naive
    # Bayes is a choice, passes have too few texts.
    if not fits.have_naive_bayes and has_passes(ALL_FEATURES_COST):
        all_features = fits.all_features_in_passes()
        if fits.data.is_better(all_features, first):
            return all_features
    return first


def _better_of_words_and_naive_bayes(
    words: LinearFit, fits: _Fits, on_preliminary: OnPreliminary | None
) -> LinearFit:
    """The better one of two fits that take seconds: to words in passes, and naive Bayes."""
    if not fits.have_naive_bayes:
        return words
    naive_bayes = fits.naive_bayes()
    if not fits.data.is_better(naive_bayes, words):
        return words
    if on_preliminary:
        on_preliminary(naive_bayes)
    return naive_bayes


def _planned_unless_surely_worse(
    first: LinearFit, fits: _Fits, on_preliminary: OnPreliminary | None
) -> LinearFit:
    """The planned fit, unless the first one is surely better; a teacher is always planned.

    Raises:
        TooLittleTimeError: there is not enough time for the planned fit.
    """
    planned = fits.planned(on_preliminary)
    if not fits.data.with_teacher and fits.data.is_surely_better(first, planned):
        return first._replace(is_surely_better_than_planned=True)
    return planned


class _Fits:
    """The ways to fit the linear model of a run.

    A fit ends at `end`; without it, it makes its effort, or repeats the `stream_work` of an earlier
    one.
    """

    def __init__(
        self,
        data: FitData,
        *,
        end: float | None = None,
        effort: Effort = PLANNED,
        stream_work: StreamWork | None = None,
        reporter: Reporter = SILENT,
    ) -> None:
        self.data = data
        self._effort_choice = EffortChoice(effort, end)
        self._stream_work = stream_work
        self.reporter = reporter

    def planned(self, on_preliminary: OnPreliminary | None = None) -> LinearFit:
        if self.data.kind == "stream":
            return self.words_in_passes(on_preliminary)

        with reporting_progress(self.reporter.progressed, end=self._effort_choice.end):
            if self.data.kind == "few_labels":
                return _fit_to_few_labels(self.data, self._effort_choice)
            fit = fit_to_many_labels
            if self.data.kind == "many_classes":
                fit = fit_to_many_classes
            return fit(
                self.data,
                effort_choice=self._effort_choice,
                on_first=_receiving_model(on_preliminary),
            )

    @property
    def have_naive_bayes(self) -> bool:
        """Whether naive Bayes is a fit to choose from.

        It needs fewer texts of each class than passes do. It knows no weights of classes.
        """
        data = self.data
        has_equal_weights = np.ptp(data.options.class_weights) == 0
        return (
            data.kind == "few_labels"
            and data.config.naive_bayes
            and data.num_classifiers > 1
            and bool(has_equal_weights)
        )

    def naive_bayes(self) -> LinearFit:
        return fit_to_many_classes(self.data, effort_choice=EffortChoice(NAIVE_BAYES))

    def words_in_passes(self, on_preliminary: OnPreliminary | None = None) -> LinearFit:
        end = self._effort_choice.end
        if end is not None and end - time.monotonic() < MIN_SECONDS_FOR_PRELIMINARY:
            on_preliminary = None

        words_only = self.data.options._replace(char_ngrams=False)
        effort = PLANNED if self.data.kind == "stream" else WORDS_ALONE
        return self._in_passes(words_only, effort, on_preliminary)

    def all_features_in_passes(self) -> LinearFit:
        return self._in_passes(self.data.options, IN_PASSES)

    def _in_passes(
        self,
        options: LinearOptions,
        effort: Effort,
        on_preliminary: OnPreliminary | None = None,
    ) -> LinearFit:
        with reporting_progress(self.reporter.progressed, end=self._effort_choice.end):
            stream = fit_linear_from_stream(
                self.data.train,
                options,
                end=self._effort_choice.end,
                work=self._stream_work,
                on_first=_receiving_model(on_preliminary),
            )
        return LinearFit(stream.linear, effort, stream=stream)


def _receiving_model(on_preliminary: OnPreliminary | None) -> Callable[[LinearModel], None] | None:
    if on_preliminary is None:
        return None
    return lambda linear: on_preliminary(LinearFit(linear))


def _fit_to_few_labels(data: FitData, effort_choice: EffortChoice) -> LinearFit:
    labelled = data.train_and_unlabelled
    if data.refits_on_validation:
        labelled = data.train_and_validation(data.dataset.unlabelled.texts)

    linear, result = fit_linear_from_few_labels(
        labelled,
        data.tokenize(names_as_texts(data.dataset.label_names)),
        data.options,
        config=data.config,
        with_teacher=data.with_teacher,
        effort_choice=effort_choice,
    )
    fit = LinearFit(linear, result.effort, few_labels=result)
    if not data.refits_on_validation:
        return fit

    # The cross-validation has predicted all labelled texts out of fold.
    familiarity_features = linear.familiarity_before_refit(labelled.texts.take(result.rows))
    held_out = HeldOutLogits(result.rows, result.logits, familiarity_features)
    return fit._replace(held_out=held_out)
