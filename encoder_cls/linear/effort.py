"""How much work the fit of a linear model does where time is limited.

The work is known before the fit starts: machines times texts, in each fold and round. The time of a
few machines shows how long it takes. So a run that cannot do all of it in time does less, and one
that cannot do the least is refused at once.
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

# The rounds of self-training: the share of the texts without labels in each, the surest first.
ROUNDS = (0.1, 0.3, 0.6, 1.0)

# How many penalties most cross-validations try, of those there are.
C_VALUES_TRIED = 3


class Effort(NamedTuple):
    """How much work a fit does; by default all that is planned.

    Attributes:
        key: its name in the state of a run.
        name: its name for people.
        words_only: whether the features are words alone, without character n-grams.
        tries_all_c_values: whether several values of C are tried, in place of a usual one.
        num_folds: of cross-validation.
        self_trains: whether a model of few labels also learns from its own predictions for
            texts without labels.
        rounds: the share of these texts in each round.
        most_unlabelled: the texts without labels that it learns from, at most.
        extrapolates: whether it measures the accuracy with fewer labels.
    """

    key: str
    name: str
    words_only: bool = False
    tries_all_c_values: bool = True
    num_folds: int = FOLDS
    self_trains: bool = True
    rounds: tuple[float, ...] = ROUNDS
    most_unlabelled: int | None = None
    extrapolates: bool = True


PLANNED = Effort("planned", "all that is planned")
ONE_C_VALUE = Effort("one_penalty", "one penalty", tries_all_c_values=False)
WORDS_ALONE = Effort(
    "words_alone", "words alone, one penalty", tries_all_c_values=False, words_only=True
)
TWO_ROUNDS = Effort(
    "two_rounds",
    "self-training in 2 rounds with 2,000 texts without labels, 3 folds",
    tries_all_c_values=False,
    num_folds=3,
    rounds=(0.3, 1.0),
    most_unlabelled=2000,
    extrapolates=False,
)
ONE_ROUND = Effort(
    "one_round",
    "self-training in 1 round with 1,000 texts without labels, 2 folds",
    tries_all_c_values=False,
    num_folds=2,
    rounds=(1.0,),
    most_unlabelled=1000,
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

# From the most work to the least.
PLAIN_EFFORTS = (PLANNED, ONE_C_VALUE, WORDS_ALONE)
FEW_LABELS_EFFORTS = (PLANNED, TWO_ROUNDS, ONE_ROUND, LABELS_ALONE)

EFFORTS = {effort.key: effort for effort in (*PLAIN_EFFORTS, *FEW_LABELS_EFFORTS)}


class TooLittleTimeError(ConfigError):
    """The time budget ends before the least that a fit can do."""


# The factor of an estimate, for what comes beside the machines, and other programs on the computer.
MARGIN = 1.3

# Seconds that are always there: without a linear model a short run would have no model.
A_MOMENT = 2.0


def affordable_effort(
    efforts: Sequence[Effort], seconds_of: Callable[[Effort], float], *, seconds: float
) -> Effort:
    """Return the first effort that takes no longer than these seconds.

    Args:
        efforts: from the most work to the least.
        seconds_of: the estimated time of an effort.
        seconds: that are left. The last effort may also take a moment where there are fewer.

    Raises:
        TooLittleTimeError: the last one takes too long, too.
    """
    for effort in efforts:
        if MARGIN * seconds_of(effort) <= seconds:
            return effort

    least = MARGIN * seconds_of(efforts[-1])
    if least <= A_MOMENT:
        return efforts[-1]
    raise TooLittleTimeError(
        f"train.time_budget: {max(0.0, seconds):.0f} s are left for the linear model, which "
        f"takes about {least:.0f} s at the least on this machine; give it more time, fewer classes "
        "or fewer texts"
    )


@dataclass(frozen=True)
class EffortChoice:
    """How an effort is chosen: it is given, or it is the largest that there is time for.

    Attributes:
        effort: the effort, where time has no limit.
        end: when the time for the fit ends, by `time.monotonic`; None without a limit.
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
        """Return the effort.

        Args:
            efforts: to choose from where the time is limited, from the most work to the least.
            seconds_of_fit: estimates the time of one fit.
            num_fits: the work of an effort, in such fits.

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


# How many machines are timed. They are drawn at random, since classes have different numbers of
# texts.
TIMED_MACHINES = 8


def seconds_of_machines(
    features: sp.csr_matrix, targets: NDArray[np.bool_], text_weights: NDArray[np.floating[Any]]
) -> float:
    """Estimate the time to fit a machine to each column of the targets, by that of some of them.

    Args:
        features: (texts, features).
        targets: whether each text is of the machine's class, (texts, machines).
        text_weights: (texts, machines).
    """
    # Import it here, so that the time of the import is not measured.
    import sklearn.svm  # noqa: F401

    num_machines = targets.shape[1]
    timed = np.random.default_rng(0).permutation(num_machines)[:TIMED_MACHINES]

    began = time.monotonic()
    fit_nb_svms(features, targets[:, timed], text_weights[:, timed])
    seconds = time.monotonic() - began

    return float(seconds * num_machines / len(timed))


def seconds_to_fit(texts: CountedTexts) -> float:
    """Estimate the time to fit a machine for each class once to all of these texts."""
    targets, text_weights = targets_of_machines(texts.labels, texts.class_weights)
    return seconds_of_machines(texts.features, targets, text_weights)
