"""How much work a fit to few labels is, before it is done."""

from __future__ import annotations

from typing import NamedTuple

from encoder_cls.config.schema import TrainConfig
from encoder_cls.linear.effort import Effort
from encoder_cls.linear.model_selection import C_VALUES_TRIED


class CorpusSizes(NamedTuple):
    """The numbers of texts and classes that the work of a fit depends on."""

    labelled: int
    unlabelled: int
    classes: int


# The maximum number of texts without labels in cross-validation, and of these texts times classes.
MAX_OUT_OF_FOLD = 5000
MAX_WORK = 250_000


def max_cross_validated(num_classes: int) -> int:
    """Return the maximum number of texts without labels that cross-validation uses."""
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
    """Compute the work of an effort, in fits to all labelled texts.

    A fit to half of the labelled texts counts as half a fit, since its time is proportional to
    their number. The `num_held_out` labelled validation texts form one more fold of the
    cross-validation, unless there are none. `with_teacher` adds the fit of a model that has not
    learned from them.

    `time_without_lsa` is the time of a fit without the coordinates of latent semantics, relative to
    a fit with them; 1 counts fits rather than their time.
    """
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
