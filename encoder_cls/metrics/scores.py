"""The table of all scores: their names, the tasks that have them, and the places that show them.

To add a score, compute it as a field in `metrics/classification`, and describe it here.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum

from encoder_cls.metrics.tasks import MULTI_LABEL, SINGLE_LABEL, Task


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
        name: as sentences and tables have it.
        is_main: whether models and their parts are compared by this score; one of each task is.
        interval_in: the tasks in which it has a 95% interval.
        can_be_monitored: whether `train.monitor` can name it, whose type in `config/schema` lists
            the same keys.
        curve: the tag of its curve in TensorBoard; None if it has none.
    """

    key: str
    name: str
    tasks: tuple[Task, ...]
    is_main: bool = False
    interval_in: tuple[Task, ...] = ()
    can_be_monitored: bool = False
    higher_is_better: bool = True
    shown_in: tuple[Place, ...] = ()
    curve: str | None = None

    @property
    def interval_key(self) -> str:
        """The key of the score's 95% interval in `report.json`."""
        return f"{self.key}_interval"


# How many of the most probable classes are counted, and from how many classes on.
TOP_K = (3, 5, 10)
MIN_CLASSES_OF_TOP_K = 20

# All scores, in the order in which they are shown.
ALL_SCORES = (
    Score(
        key="loss",
        name="loss",
        tasks=(SINGLE_LABEL, MULTI_LABEL),
        can_be_monitored=True,
        higher_is_better=False,
        shown_in=(Place.VALIDATION, Place.RUN_TABLE),
        curve="loss/validation",
    ),
    Score(
        key="accuracy",
        name="accuracy",
        tasks=(SINGLE_LABEL,),
        is_main=True,
        interval_in=(SINGLE_LABEL,),
        can_be_monitored=True,
        shown_in=(Place.VALIDATION, Place.RUN_TABLE, Place.COMPARE),
        curve="accuracy in validation/combined",
    ),
    Score(
        key="micro_f1",
        name="micro-F1",
        tasks=(MULTI_LABEL,),
        is_main=True,
        interval_in=(MULTI_LABEL,),
        can_be_monitored=True,
        shown_in=(Place.VALIDATION, Place.RUN_TABLE, Place.COMPARE),
        curve="F1 in validation, micro/combined",
    ),
    Score(
        key="macro_f1",
        name="macro-F1",
        tasks=(SINGLE_LABEL, MULTI_LABEL),
        interval_in=(SINGLE_LABEL,),
        can_be_monitored=True,
        shown_in=(Place.VALIDATION, Place.RUN_TABLE, Place.COMPARE),
        curve="validation/macro F1",
    ),
    *(
        Score(
            key=f"top_{k}",
            name=f"top-{k} accuracy",
            tasks=(SINGLE_LABEL,),
            shown_in=(Place.REPORT,),
        )
        for k in TOP_K
    ),
    Score(
        key="mean_average_precision",
        name="mean average precision",
        tasks=(MULTI_LABEL,),
        can_be_monitored=True,
        shown_in=(Place.VALIDATION, Place.REPORT, Place.RUN_TABLE),
        curve="validation/mean average precision",
    ),
    Score(
        key="subset_accuracy",
        name="all labels right",
        tasks=(MULTI_LABEL,),
        shown_in=(Place.REPORT,),
        curve="validation/all labels right",
    ),
    Score(
        key="samples_f1",
        name="F1 of texts",
        tasks=(MULTI_LABEL,),
        shown_in=(Place.REPORT,),
    ),
    Score(
        key="ece",
        name="calibration error",
        tasks=(SINGLE_LABEL, MULTI_LABEL),
        higher_is_better=False,
        shown_in=(Place.RUN_TABLE, Place.COMPARE),
        curve="validation/calibration error",
    ),
)

SCORES = {score.key: score for score in ALL_SCORES}
"""The scores by key, in the order in which they are shown."""


def scores_of_task(task: Task) -> list[Score]:
    """The scores of a task, in the order in which they are shown."""
    return [score for score in ALL_SCORES if task in score.tasks]


def main_score(task: Task) -> Score:
    """Accuracy, or micro-F1."""
    (score,) = [score for score in scores_of_task(task) if score.is_main]
    return score


def scores_shown_in(place: Place) -> list[Score]:
    """The scores that a place shows, of both tasks."""
    return [score for score in ALL_SCORES if place in score.shown_in]


def names_shown_after_validation() -> dict[str, str]:
    """The names of the values of a validation that `train` shows, by key."""
    names = {score.key: score.name for score in scores_shown_in(Place.VALIDATION)}
    names["linear_weight"] = "linear weight"
    return names
