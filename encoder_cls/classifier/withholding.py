"""What is withheld of a prediction, since it is not sure enough."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass

from encoder_cls.classifier.prediction import Prediction


@dataclass(frozen=True, kw_only=True)
class Withholding:
    """The thresholds below which parts of a prediction are withheld; by default, nothing is.

    At most one of the first three is given.

    Attributes:
        threshold: the least probability of a label; multi-label, it replaces the thresholds of the
            model, so that a text may get other labels.
        label_thresholds: the least probability of each label, by name; a label without one is
            withheld from all texts.
        text_threshold: the least probability that the whole prediction for a text is correct.
        set_threshold: the least probability of a class in the set of a text; None makes no sets.

    Raises:
        ValueError: several of the first three are given.
    """

    threshold: float | None = None
    label_thresholds: Mapping[str, float] | None = None
    text_threshold: float | None = None
    set_threshold: float | None = None

    def __post_init__(self) -> None:
        given = [self.threshold, self.label_thresholds, self.text_threshold]
        if len(given) - given.count(None) > 1:
            raise ValueError("threshold, label_thresholds, text_threshold: give one of them")

    @property
    def names_withheld_labels(self) -> bool:
        """Whether withheld labels of a multi-label task are named beside those that are kept."""
        return self.label_thresholds is not None or self.text_threshold is not None

    def labels_kept(self, prediction: Prediction) -> tuple[str, ...]:
        """The labels that are sure enough, most probable first; single-label at most one."""
        if prediction.reason is not None or self._withholds_text(prediction):
            return ()

        labels = prediction.all_labels
        probabilities = prediction.probabilities
        if self.threshold is not None:
            if prediction.labels is not None:
                labels = tuple(name for name, _ in prediction.top())
            return tuple(name for name in labels if probabilities[name] >= self.threshold)
        if self.label_thresholds is not None:
            least = self.label_thresholds
            return tuple(
                name for name in labels if probabilities[name] >= least.get(name, math.inf)
            )
        return labels

    def labels_withheld(self, prediction: Prediction) -> tuple[str, ...]:
        """The labels of a prediction that are not sure enough, most probable first."""
        replaces_thresholds = self.threshold is not None and prediction.labels is not None
        if replaces_thresholds:
            return ()
        kept = self.labels_kept(prediction)
        return tuple(name for name in prediction.all_labels if name not in kept)

    def withholds(self, prediction: Prediction) -> bool:
        """Whether a label is withheld, or the answer that a text has none."""
        return self._withholds_text(prediction) or bool(self.labels_withheld(prediction))

    def _withholds_text(self, prediction: Prediction) -> bool:
        if self.text_threshold is None or prediction.reason is not None:
            return False
        return prediction.prediction_probability < self.text_threshold


NOTHING = Withholding()
