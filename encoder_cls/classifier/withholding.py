"""What is withheld of a prediction, since it is not sure enough."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import NamedTuple

from encoder_cls.classifier.prediction import Prediction


@dataclass(frozen=True, kw_only=True)
class Withholding:
    """The probabilities below which parts of a prediction are withheld; by default, nothing is.

    Raises:
        ValueError: more than one of `threshold`, `label_thresholds` and `text_threshold` is given.

    Attributes:
        threshold: the least of a label; multi-label, it replaces the thresholds of the model, so
            that a text may get other labels.
        label_thresholds: the least of each label; one without is withheld from all texts.
        text_threshold: the least for the whole prediction for a text to be correct.
        set_threshold: the least of a class in the set of a text; None makes no sets.
        level: of codes, counted from 1 at the top; None is that of the classes.
        back_off: whether the deepest code that reaches `threshold` is answered.
    """

    threshold: float | None = None
    label_thresholds: Mapping[str, float] | None = None
    text_threshold: float | None = None
    set_threshold: float | None = None
    level: int | None = None
    back_off: bool = False

    def __post_init__(self) -> None:
        given = [self.threshold, self.label_thresholds, self.text_threshold]
        if len(given) - given.count(None) > 1:
            raise ValueError("threshold, label_thresholds, text_threshold: give one of them")

    @property
    def names_withheld_labels(self) -> bool:
        """Whether withheld labels of a multi-label task are named, too."""
        return self.label_thresholds is not None or self.text_threshold is not None

    def at_level(self, prediction: Prediction) -> Prediction:
        """The prediction at the level that is answered; all formats take this one."""
        if self.level is not None:
            return prediction.at_level(self.level)
        if self.back_off:
            return prediction.backed_off(self.threshold or 0.0)
        return prediction

    def answer(self, prediction: Prediction) -> Answer:
        """Divide labels into those that are sure enough, and the others."""
        if prediction.reason is not None:
            return Answer((), (), is_withheld=False)
        if self.threshold is not None and prediction.labels is not None:
            # The threshold is in place of those of the model, so nothing counts as withheld.
            return Answer(tuple(prediction.names_from(self.threshold)), (), is_withheld=False)

        labels = prediction.all_labels
        probabilities = prediction.probabilities
        withholds_text = prediction.prediction_probability < (self.text_threshold or 0)
        kept = labels
        if withholds_text:
            kept = ()
        elif self.threshold is not None:
            kept = labels if prediction.label_from(self.threshold) else ()
        elif self.label_thresholds is not None:
            least = {name: self.label_thresholds.get(name, math.inf) for name in labels}
            kept = tuple(name for name in labels if probabilities[name] >= least[name])

        if kept == labels:
            return Answer(labels, (), withholds_text)
        withheld = tuple(name for name in labels if name not in kept)
        return Answer(kept, withheld, is_withheld=True)


class Answer(NamedTuple):
    """What a prediction says of its text once what is not sure enough is withheld.

    Attributes:
        is_withheld: whether a label is withheld, or that the text has none.
    """

    labels: tuple[str, ...]
    withheld_labels: tuple[str, ...]
    is_withheld: bool


NOTHING = Withholding()
