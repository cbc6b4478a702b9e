"""What the fit of a linear model costs, how far it is, and how much of it there is time for.

The work is known before: classifiers times texts, in each fold and round. The time of a few
classifiers gives an estimate; with too little time, less work is planned.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from typing import Literal, NamedTuple

from encoder_cls.config.schema import TrainConfig
from encoder_cls.errors import ConfigError
from encoder_cls.linear_training.folds import FOLDS, MIN_HELD_OUT
from encoder_cls.metrics.tasks import Task

# How a linear model is fitted: to all features of all texts in memory ("plain"), to the same with
# weights for few features of each class ("many_classes"), to a stream of texts, or to few labels
# with the help of unlabelled texts or class names.
FitKind = Literal["plain", "many_classes", "stream", "few_labels"]

# The rounds of self-training. Each round learns from this share of the texts without labels, namely
# from the texts with the surest predictions.
ROUNDS = (0.1, 0.3, 0.6, 1.0)


class Effort(NamedTuple):
    """How much work a fit does; by default all work that is planned.

    Attributes:
        key: in the saved state of a run.
        name: in messages.
        tries_all_c_values: rather than the usual one alone.
        self_trains: whether a fit to few labels learns from its own predictions, too.
        rounds: of self-training, the share of unlabelled texts in each.
        max_unlabelled: the most of these texts; None for no limit.
        extrapolates: whether the accuracy with twice as many labels is estimated.
    """

    key: str
    name: str
    tries_all_c_values: bool = True
    num_folds: int = FOLDS
    self_trains: bool = True
    rounds: tuple[float, ...] = ROUNDS
    max_unlabelled: int | None = None
    extrapolates: bool = True


PLANNED = Effort("planned", "all that is planned")
ONE_C_VALUE = Effort("one_penalty", "one value of C", tries_all_c_values=False)
NAIVE_BAYES = Effort("naive_bayes", "naive Bayes alone")
TWO_ROUNDS = Effort(
    "two_rounds",
    "self-training in 2 rounds with 2,000 texts without labels, 3 folds",
    tries_all_c_values=False,
    num_folds=3,
    rounds=(0.3, 1.0),
    max_unlabelled=2000,
    extrapolates=False,
)
ONE_ROUND = Effort(
    "one_round",
    "self-training in 1 round with 1,000 texts without labels, 2 folds",
    tries_all_c_values=False,
    num_folds=2,
    rounds=(1.0,),
    max_unlabelled=1000,
    extrapolates=False,
)
LABELS_ALONE = Effort(
    "labels_alone",
    "no self-training, 2 folds",
    tries_all_c_values=False,
    num_folds=2,
    self_trains=False,
    extrapolates=False,
)

# The fits that can stop at any time, since they learn in passes over the texts (`stream`).
IN_PASSES = Effort("in_passes", "all features, learned in passes over the texts")
WORDS_ALONE = Effort("words_alone", "words alone, learned in passes over the texts")

# The efforts of a fit to many labels, to labels of very many classes and to few labels, from the
# most work to the least. If there is no time even for the least of them, the model of `IN_PASSES`
# or `WORDS_ALONE` is kept.
PLAIN_EFFORTS = (PLANNED, ONE_C_VALUE)
MANY_CLASSES_EFFORTS = (PLANNED, NAIVE_BAYES)
FEW_LABELS_EFFORTS = (PLANNED, TWO_ROUNDS, ONE_ROUND, LABELS_ALONE)

EFFORTS = {
    effort.key: effort
    for effort in (
        *PLAIN_EFFORTS,
        *MANY_CLASSES_EFFORTS,
        *FEW_LABELS_EFFORTS,
        IN_PASSES,
        WORDS_ALONE,
    )
}


class TooLittleTimeError(ConfigError):
    """The time budget is too short even for the least effort of a fit."""


# Estimates are multiplied by this factor, because a fit does more than fit classifiers, and other
# programs may use the computer.
SAFETY_FACTOR = 1.3

# The least effort may always take this many seconds, even if less time is left: a person does not
# notice them, and the fit is better than one in passes.
MIN_SECONDS = 2.0


def affordable_effort(
    efforts: Sequence[Effort], seconds_of: Callable[[Effort], float], *, seconds: float
) -> Effort:
    """The first effort, from the most work to the least, for which the time is enough.

    The last one may take `MIN_SECONDS`; a `TooLittleTimeError` says that it takes longer.
    """
    for effort in efforts:
        if SAFETY_FACTOR * seconds_of(effort) <= seconds:
            return effort

    least = SAFETY_FACTOR * seconds_of(efforts[-1])
    if least <= MIN_SECONDS:
        return efforts[-1]
    raise TooLittleTimeError(
        f"train.time_budget: {max(0.0, seconds):.0f} s are left for the linear model, which "
        f"takes at least about {least:.0f} s on this computer; give it more time, fewer classes "
        "or fewer texts"
    )


@dataclass(frozen=True)
class EffortChoice:
    """A given effort, or the largest one before `end`, a time of `time.monotonic`."""

    effort: Effort = PLANNED
    end: float | None = None

    def has_seconds(self, seconds: float) -> bool:
        """Whether so much time is left."""
        return self.end is None or time.monotonic() + seconds <= self.end

    def choose(
        self,
        efforts: Sequence[Effort],
        *,
        seconds_of_fit: Callable[[], float],
        num_fits: Callable[[Effort], float],
    ) -> Effort:
        """Choose the first effort, from the most work to the least, that there is time for.

        Raises:
            TooLittleTimeError: there is not enough time for the last one.
        """
        if self.end is None:
            return self.effort

        seconds = seconds_of_fit()

        def seconds_of(effort: Effort) -> float:
            return seconds * num_fits(effort)

        return affordable_effort(efforts, seconds_of, seconds=self.end - time.monotonic())


ALL_AS_PLANNED = EffortChoice()


class StreamWork(NamedTuple):
    """How much work a fit to a stream did; repeated on equal texts, it gives an equal model.

    Attributes:
        chunks_counted: the chunks whose features are known.
        times_features: how many times as many features are learned as in a fit in memory.
        chunks_learned: in all passes together.
    """

    chunks_counted: int
    times_features: int
    chunks_learned: int


class LinearWork(NamedTuple):
    """How much work a fit did; equal work on equal data gives an equal model.

    Attributes:
        effort: the key of an `Effort`.
        num_unread: training texts that there was no time for.
    """

    effort: str
    stream: StreamWork | None = None
    num_unread: int = 0


# How many of the values of C are usually tried.
C_VALUES_TRIED = 3


def usual_fits(num_texts: int, num_held_out: int, task: Task, *, is_quick: bool = False) -> float:
    """The usual work of `fit_linear`, in fits to all texts; `num_held_out` counts groups."""
    num_tried = C_VALUES_TRIED
    enough = MIN_HELD_OUT[task]
    if is_quick:
        num_tried = 1
        enough = 1

    # On held-out texts, each C is fitted once.
    if num_held_out >= enough:
        return num_tried

    # Cross-validation fits each C once for each fold, to the texts of the other folds. It uses no
    # more folds than have enough texts. One more fit, with the best C, learns from all texts.
    num_folds = min(FOLDS, math.ceil(enough * FOLDS / num_texts))
    return num_tried * num_folds * (1 - 1 / FOLDS) + 1


class CorpusSizes(NamedTuple):
    """What the work of a fit to few labels depends on."""

    labelled: int
    unlabelled: int
    classes: int


# The maximum number of texts without labels in cross-validation, and of these texts times classes.
MAX_OUT_OF_FOLD = 5000
MAX_WORK = 250_000


def max_cross_validated(num_classes: int) -> int:
    """The most unlabelled texts that cross-validation uses."""
    return max(1, min(MAX_OUT_OF_FOLD, MAX_WORK // num_classes))


# The time of a fit without the coordinates of latent semantics, relative to a fit with them.
TIME_WITHOUT_LSA = 0.6


def count_fits(
    effort: Effort,
    sizes: CorpusSizes,
    config: TrainConfig,
    *,
    num_held_out: int,
    with_teacher: bool,
    time_without_lsa: float = TIME_WITHOUT_LSA,
) -> float:
    """The work of a fit to few labels, in fits to all labelled texts.

    A fit to half of them counts half. Held-out texts form one more fold; `with_teacher` adds a fit
    without them.

    `time_without_lsa` is the time of a fit without latent semantics, relative to one with it; 1
    counts fits.
    """
    # Without unlabelled texts, there are no coordinates of latent semantics: all fits take the same
    # time.
    if sizes.unlabelled == 0:
        time_without_lsa = 1.0

    num_folds = effort.num_folds
    if num_held_out:
        num_folds += 1
    share_learned = 1 - 1 / num_folds

    # The final model, and the teacher. Without validation texts, one model is both.
    num_final = 1
    if with_teacher and num_held_out:
        num_final = 2

    # The labels alone: a fit for each value of C in each fold.
    num_c_values = 1
    if effort.tries_all_c_values:
        num_c_values = C_VALUES_TRIED
    fits = time_without_lsa * num_c_values * num_folds * share_learned
    if not effort.self_trains:
        return fits + time_without_lsa * num_final

    num_unlabelled = sizes.unlabelled
    if effort.max_unlabelled is not None:
        num_unlabelled = min(num_unlabelled, effort.max_unlabelled)
    num_cross_validated = min(num_unlabelled, max_cross_validated(sizes.classes))

    rounds = effort.rounds
    if not config.self_training or num_unlabelled == 0:
        rounds = ()

    # Self-training: a fit to labelled texts, then a fit in each round to labelled texts and a share
    # of the unlabelled ones.
    def fits_of_rounds(share_labelled: float, num_unlabelled: int) -> float:
        labelled_fits = (1 + len(rounds)) * share_labelled
        unlabelled_fits = sum(rounds) * num_unlabelled / sizes.labelled
        return labelled_fits + unlabelled_fits

    fits += num_folds * fits_of_rounds(share_learned, num_cross_validated)
    if effort.extrapolates:
        fits += 2 * fits_of_rounds(0.5, num_cross_validated)
    return fits + num_final * fits_of_rounds(1.0, num_unlabelled)


# The time to count the features of texts, in passes over them.
COUNTING_PASSES = 1
MAX_PASSES = 10
# So many texts that all passes together would read more than this get fewer passes, since more data
# needs fewer passes. They always get the minimum number of passes, if there is time.
MAX_TEXTS_IN_ALL_PASSES = 2_000_000
MIN_PASSES = 2


def num_passes(num_texts: int) -> int:
    """The most passes over this number of texts."""
    affordable = MAX_TEXTS_IN_ALL_PASSES // num_texts
    return min(MAX_PASSES, max(MIN_PASSES, affordable))


# The work of counting the features of a text, in classifiers that learn from the text: between 2
# and 4 on texts of 10 to 45 words.
COUNTING_WORK = 3.0


@dataclass
class _Progress:
    report: Callable[[float], None]
    end: float | None
    began: float
    expected: float = 0.0
    done: float = 0.0
    rate: float = 1.0


_PROGRESS: ContextVar[_Progress | None] = ContextVar("progress of a fit", default=None)


@contextmanager
def reporting_progress(
    report: Callable[[float], None], *, end: float | None = None
) -> Iterator[None]:
    """Report the share of the work of the fit in this context, from 0 to 1.

    The unit is one text for one binary classifier. A fit with an `end`, a time of `time.monotonic`,
    is done then.
    """
    token = _PROGRESS.set(_Progress(report, end, began=time.monotonic()))
    try:
        yield
    finally:
        _PROGRESS.reset(token)


@contextmanager
def counting_at(rate: float) -> Iterator[None]:
    """Let work in this context, on cheaper features, count so many times."""
    progress = _PROGRESS.get()
    if progress is None:
        yield
        return

    rate_before = progress.rate
    progress.rate = rate
    try:
        yield
    finally:
        progress.rate = rate_before


def expect_work(work: float) -> None:
    """Add work that is to be done."""
    progress = _PROGRESS.get()
    if progress:
        progress.expected += progress.rate * work


def count_work(work: float) -> None:
    """Count work that is done, and report the share."""
    progress = _PROGRESS.get()
    if progress is None:
        return
    progress.done += progress.rate * work

    share = 0.0
    if progress.expected:
        share = progress.done / progress.expected
    if progress.end is not None:
        now = time.monotonic()
        seconds = max(progress.end, now) - progress.began
        share = max(share, (now - progress.began) / seconds)
    progress.report(min(share, 1.0))
