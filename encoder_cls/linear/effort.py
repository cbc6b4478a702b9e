"""Choose how much work the fit of a linear model does in a limited time.

The amount of work is known before the fit starts: the number of machines times the number of texts,
in each fold and round. A few machines are fitted first, and their time gives an estimate of the
whole. A run that has too little time for all planned work does less work.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from encoder_cls.errors import ConfigError
from encoder_cls.linear.features import CountedTexts
from encoder_cls.linear.folds import FOLDS
from encoder_cls.linear.nb_svm import fit_nb_svms, targets_of_machines

# The rounds of self-training. Each round learns from this share of the texts without labels, namely
# from the texts with the surest predictions.
ROUNDS = (0.1, 0.3, 0.6, 1.0)


class Effort(NamedTuple):
    """How much work a fit does; by default all work that is planned.

    Attributes:
        key: the name of the effort in the saved state of a run.
        name: the name of the effort in messages.
        tries_all_c_values: whether the fit tries several values of C, rather than the usual one.
        num_folds: the number of folds of cross-validation.
        self_trains: whether a fit to few labels also learns from its own predictions.
        rounds: the share of the texts without labels that each round of self-training learns from.
        max_unlabelled: the most texts without labels to learn from; None for no limit.
        extrapolates: whether the fit estimates the accuracy with twice as many labels.
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

# The efforts of a fit to many labels and of a fit to few labels, from the most work to the least.
# If there is no time even for the least of them, the model of `IN_PASSES` or `WORDS_ALONE` is kept.
PLAIN_EFFORTS = (PLANNED, ONE_C_VALUE)
FEW_LABELS_EFFORTS = (PLANNED, TWO_ROUNDS, ONE_ROUND, LABELS_ALONE)

EFFORTS = {
    effort.key: effort for effort in (*PLAIN_EFFORTS, *FEW_LABELS_EFFORTS, IN_PASSES, WORDS_ALONE)
}


class TooLittleTimeError(ConfigError):
    """The time budget is too short even for the least effort of a fit."""


# Estimates are multiplied by this factor, because a fit does more than fit machines, and other
# programs may use the computer.
SAFETY_FACTOR = 1.3

# The least effort may always take this many seconds, even if less time is left: a person does not
# notice them, and the fit is better than one in passes.
MIN_SECONDS = 2.0


def affordable_effort(
    efforts: Sequence[Effort], seconds_of: Callable[[Effort], float], *, seconds: float
) -> Effort:
    """Return the first effort that takes no longer than the seconds that are left.

    The efforts go from the most work to the least. The last one may always take `MIN_SECONDS`; if
    it takes too long even so, a `TooLittleTimeError` is raised.
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
    """How to choose an effort: a given effort, or the largest effort that there is time for.

    Attributes:
        effort: the effort that is made if the time has no limit.
        end: when the time for the fit ends, in seconds of `time.monotonic`; None if the time has no
            limit.
    """

    effort: Effort = PLANNED
    end: float | None = None

    def choose(
        self,
        efforts: Sequence[Effort],
        *,
        seconds_of_fit: Callable[[], float],
        num_fits: Callable[[Effort], float],
    ) -> Effort:
        """Return the first of the efforts, from the most work to the least, that there is time for.

        An effort takes its number of fits times the seconds of one fit. Without a limit, `effort`
        is returned.

        Raises:
            TooLittleTimeError: there is not enough time for the last of the efforts.
        """
        if self.end is None:
            return self.effort

        seconds = seconds_of_fit()

        def seconds_of(effort: Effort) -> float:
            return seconds * num_fits(effort)

        return affordable_effort(efforts, seconds_of, seconds=self.end - time.monotonic())


ALL_AS_PLANNED = EffortChoice()


# How many machines are timed. They are drawn at random, because the time depends on the number of
# texts of a class.
TIMED_MACHINES = 8


def seconds_of_machines(
    features: sp.csr_matrix,
    targets: NDArray[np.bool_],
    weights_in_machines: NDArray[np.floating[Any]],
) -> float:
    """Fit some of the machines, and return the estimated seconds of a fit of all machines.

    The targets and the weights of texts are those of `targets_of_machines`.
    """
    # Import scikit-learn before the clock starts, because the import takes most of a second.
    import sklearn.svm  # noqa: F401

    num_machines = targets.shape[1]
    timed = np.random.default_rng(0).permutation(num_machines)[:TIMED_MACHINES]

    began = time.monotonic()
    fit_nb_svms(features, targets[:, timed], weights_in_machines[:, timed])
    seconds = time.monotonic() - began

    return float(seconds * num_machines / len(timed))


def seconds_to_fit(texts: CountedTexts) -> float:
    """Estimate the seconds of one fit of all machines to all of these texts."""
    targets, weights_in_machines = targets_of_machines(texts.labels, texts.class_weights)
    return seconds_of_machines(texts.features, targets, weights_in_machines)
