"""The table of all scores: their names, the tasks that have them, and the places that show them.

To add a score, compute it as a field of `Metrics`, `SingleLabelMetrics` or `MultiLabelMetrics` in
`metrics/classification`, and describe it here.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum, Flag, auto


class TaskKinds(Flag):
    """A set of kinds of tasks (`metrics.tasks`): single-label, multi-label, both or none."""

    NONE = 0
    SINGLE_LABEL = auto()
    MULTI_LABEL = auto()
    BOTH = SINGLE_LABEL | MULTI_LABEL

    @classmethod
    def of(cls, *, is_multi_label: bool) -> TaskKinds:
        """Return the set of one kind of task."""
        if is_multi_label:
            return cls.MULTI_LABEL
        return cls.SINGLE_LABEL


class Place(Enum):
    """A place that shows some of the scores; `metrics.jsonl` and `report.json` have all."""

    VALIDATION = "the line that `train` prints after each validation"
    REPORT = "the line of a report with scores that have no interval"
    RUN_TABLE = "the table of runs in TensorBoard"
    COMPARE = "the table of `encoder-cls compare`"


@dataclass(frozen=True, kw_only=True)
class Score:
    """A number that says how good predictions are.

    Attributes:
        key: the name of the score's field in `Metrics`, and its key in `metrics.jsonl` and
            `report.json`.
        name: the name of the score in sentences and tables.
        tasks: the kinds of tasks for which the score is computed.
        is_main: whether models and their parts are compared by this score. Each kind of task has
            one such score.
        interval_in: the kinds of tasks in which `evaluation/comparisons` computes a 95% interval of
            the score.
        can_be_monitored: whether `train.monitor` can name the score. The type of this setting in
            `config/schema` lists the same keys.
        higher_is_better: whether a higher value is better.
        shown_in: the places that show the score. A report also shows all scores with an interval.
        curve: the tag of the score's curve over all validations in TensorBoard; None if it has no
            curve.
    """

    key: str
    name: str
    tasks: TaskKinds
    is_main: bool = False
    interval_in: TaskKinds = TaskKinds.NONE
    can_be_monitored: bool = False
    higher_is_better: bool = True
    shown_in: tuple[Place, ...] = ()
    curve: str | None = None

    @property
    def interval_key(self) -> str:
        """The key of the score's 95% interval in `report.json`."""
        return f"{self.key}_interval"


# All scores, in the order in which they are shown.
ALL_SCORES = (
    Score(
        key="loss",
        name="loss",
        tasks=TaskKinds.BOTH,
        can_be_monitored=True,
        higher_is_better=False,
        shown_in=(Place.VALIDATION, Place.RUN_TABLE),
        curve="loss/validation",
    ),
    Score(
        key="accuracy",
        name="accuracy",
        tasks=TaskKinds.SINGLE_LABEL,
        is_main=True,
        interval_in=TaskKinds.SINGLE_LABEL,
        can_be_monitored=True,
        shown_in=(Place.VALIDATION, Place.RUN_TABLE, Place.COMPARE),
        curve="accuracy in validation/combined",
    ),
    Score(
        key="micro_f1",
        name="micro-F1",
        tasks=TaskKinds.MULTI_LABEL,
        is_main=True,
        interval_in=TaskKinds.MULTI_LABEL,
        can_be_monitored=True,
        shown_in=(Place.VALIDATION, Place.RUN_TABLE, Place.COMPARE),
        curve="F1 in validation, micro/combined",
    ),
    Score(
        key="macro_f1",
        name="macro-F1",
        tasks=TaskKinds.BOTH,
        interval_in=TaskKinds.SINGLE_LABEL,
        can_be_monitored=True,
        shown_in=(Place.VALIDATION, Place.RUN_TABLE, Place.COMPARE),
        curve="validation/macro F1",
    ),
    Score(
        key="mean_average_precision",
        name="mean average precision",
        tasks=TaskKinds.MULTI_LABEL,
        can_be_monitored=True,
        shown_in=(Place.VALIDATION, Place.REPORT, Place.RUN_TABLE),
        curve="validation/mean average precision",
    ),
    Score(
        key="subset_accuracy",
        name="all labels right",
        tasks=TaskKinds.MULTI_LABEL,
        shown_in=(Place.REPORT,),
        curve="validation/all labels right",
    ),
    Score(
        key="samples_f1",
        name="F1 of texts",
        tasks=TaskKinds.MULTI_LABEL,
        shown_in=(Place.REPORT,),
    ),
    Score(
        key="ece",
        name="calibration error",
        tasks=TaskKinds.BOTH,
        higher_is_better=False,
        shown_in=(Place.RUN_TABLE, Place.COMPARE),
        curve="validation/calibration error",
    ),
)

SCORES = {score.key: score for score in ALL_SCORES}
"""The scores by key, in the order in which they are shown."""


def scores_of_task(*, is_multi_label: bool) -> list[Score]:
    """Return the scores of single-label or of multi-label tasks."""
    task = TaskKinds.of(is_multi_label=is_multi_label)
    return [score for score in ALL_SCORES if task in score.tasks]


def main_score(*, is_multi_label: bool) -> Score:
    """Return the score by which models and their parts are compared.

    It is accuracy in single-label tasks, and micro-F1 in multi-label tasks.
    """
    (score,) = [score for score in scores_of_task(is_multi_label=is_multi_label) if score.is_main]
    return score


def scores_shown_in(place: Place) -> list[Score]:
    """Return the scores of all kinds of tasks that a place shows."""
    return [score for score in ALL_SCORES if place in score.shown_in]
