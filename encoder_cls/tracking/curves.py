"""A logged row in; under which names TensorBoard shows its numbers, and pictures of curves that belong together, out.

TensorBoard opens with all cards in the order of their names, grouped by what is before the first slash. So names are
chosen for that order: what tells whether a run learns comes first, the F1 of each class last. It draws all curves of a
run in one colour, and curves of one chart must be of several runs to be told apart; so those that are to be compared
within a run (combined, encoder, linear; train, validation) are drawn into a picture, the first card of their group.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from encoder_cls.evaluation import plots

if TYPE_CHECKING:
    from matplotlib.figure import Figure

ACCURACY = "accuracy in validation"
MICRO_F1 = "F1 in validation, micro"
LOSS = "loss"
CLASS_F1 = "f1/"  # begins the names of the F1 of classes in a row
# By split and name in a row: what a person looks at. All else is in `metrics.jsonl` alone.
TAGS = {
    ("validation", "micro_f1"): f"{MICRO_F1}/combined",  # of multi-label data, which has no accuracy
    ("validation", "encoder_micro_f1"): f"{MICRO_F1}/encoder",
    ("validation", "linear_micro_f1"): f"{MICRO_F1}/linear",
    ("validation", "accuracy"): f"{ACCURACY}/combined",
    ("validation", "encoder_accuracy"): f"{ACCURACY}/encoder",
    ("validation", "linear_accuracy"): f"{ACCURACY}/linear",
    ("train", "loss"): f"{LOSS}/train",
    ("validation", "loss"): f"{LOSS}/validation",
    ("pretraining/train", "loss"): "pretraining/loss in training",
    ("pretraining/validation", "loss"): "pretraining/loss in validation",
    ("pretraining/validation", "accuracy"): "pretraining/masked tokens guessed right",
    ("train", "grad_norm"): "training/gradient norm",
    ("train", "learning_rate"): "training/learning rate",
    ("train", "tokens_per_s"): "training/tokens per second",
    ("validation", "ece"): "validation/calibration error",
    ("validation", "macro_f1"): "validation/macro F1",
    ("validation", "mean_average_precision"): "validation/mean average precision",
    ("validation", "subset_accuracy"): "validation/all labels right",
    ("validation", "linear_weight"): "validation/weight of the linear classifier",
}
# Of these, what only data with several labels a text has.
OF_SEVERAL_LABELS = {"micro_f1", "encoder_micro_f1", "linear_micro_f1", "mean_average_precision", "subset_accuracy"}


def scalar_tag(split: str, name: str) -> str | None:
    """The name under which TensorBoard shows a number of a row; none: it does not."""
    if split == "validation" and name.startswith(CLASS_F1):
        return f"validation F1/{name.removeprefix(CLASS_F1)}"
    return TAGS.get((split, name))


def picture_group(split: str) -> str:
    """The group of pictures that are drawn of a split: those of a run's result are apart from those over time."""
    if split == "validation":
        return split
    return f"result on {split.removeprefix('best_')}"


class Curves:
    """The numbers that pictures of several curves are drawn from, gathered row by row.

    Attributes:
        step: of the newest of them.
    """

    def __init__(self) -> None:
        self.step = 0
        self._drawn_step = -1
        self._points: dict[str, dict[str, list[tuple[int, float]]]] = {ACCURACY: {}, MICRO_F1: {}, LOSS: {}}

    def add(self, row: Mapping[str, Any]) -> None:
        """Gather what is to be drawn of a row."""
        for name, value in row.items():
            group, _, curve = (scalar_tag(row["split"], name) or "").partition("/")
            if group in self._points:
                self._points[group].setdefault(curve, []).append((row["step"], value))
                self.step = row["step"]

    def drawn(self) -> dict[str, Figure]:
        """By name, a picture of each group that has several curves of several points; none twice of one step."""
        if self.step == self._drawn_step:
            return {}
        self._drawn_step = self.step
        return {
            f"{group}/all": plots.curves(curves)
            for group, curves in self._points.items()
            if len(curves) > 1 and max(map(len, curves.values())) > 1
        }
