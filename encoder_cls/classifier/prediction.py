"""The prediction for one text."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from encoder_cls.data.codes import Codes


class CodeOfPath(NamedTuple):
    """A code above a predicted class, or the class itself, with the sum of its probabilities."""

    label: str
    name: str | None
    probability: float


class Prediction(NamedTuple):
    """The prediction for one text.

    Attributes:
        label: the most probable class, which need not be among `labels`, with its `probability`;
            None if there is a `reason`.
        probabilities: of all classes by name, also for a text that gets none of them.
        truncated: whether the text is longer than the encoder reads, or without one the linear
            model.
        unknown_words: the tokens that are not in the vocabulary, of `num_words`.
        reason: why the text gets no class: `blank` if it has no words, `none` if the most probable
            class is `none_label`.
        unfamiliar: out of distribution; None if the model does not measure it.
        labels: those that reach their thresholds, most probable first; None if single-label.
        prediction_probability: that the prediction is correct: that of `label`; multi-label, of
            exactly `labels`, if they are independent.
        answered_by: `linear`, `encoder` or `both`; None if both parts predict every text.
        none_label: the class for none of the others, which is never answered.
    """

    label: str | None
    probability: float | None
    probabilities: dict[str, float]
    truncated: bool
    unknown_words: int
    reason: str | None = None
    unfamiliar: bool | None = None
    labels: tuple[str, ...] | None = None
    prediction_probability: float = 0.0
    answered_by: str | None = None
    codes: Codes | None = None
    num_words: int = 0
    none_label: str | None = None

    @property
    def uncertainty(self) -> float:
        """See `Task.uncertainty`."""
        if self.labels is not None:
            return 1 - self.prediction_probability
        # A level of codes may have a single one.
        second, best = sorted([0.0, *self.probabilities.values()])[-2:]
        return 1 - (best - second)

    def top(self, k: int | None = None) -> list[tuple[str, float]]:
        """The `k` most probable classes, by default all, best first."""
        classes = [item for item in self.probabilities.items() if item[0] != self.none_label]
        return sorted(classes, key=lambda item: -item[1])[:k]

    def names_from(self, probability: float) -> list[str]:
        """The classes with at least this probability, best first."""
        return [name for name, its_probability in self.top() if its_probability >= probability]

    @property
    def all_labels(self) -> tuple[str, ...]:
        """The labels of the text: `labels`, or in a single-label task `label`."""
        if self.labels is not None:
            return self.labels
        return () if self.label is None else (self.label,)

    def label_from(self, threshold: float | None) -> str | None:
        """The label; None if its probability is below the threshold, or if there is a `reason`."""
        if self.probability is None or self.probability < (threshold or 0):
            return None
        return self.label

    def label_set(self, threshold: float) -> list[str]:
        """The classes with at least the probability `threshold`; empty if there is a `reason`.

        In a single-label task, the most probable one is always among them.
        """
        if self.label is None:
            return []
        names = self.names_from(threshold)
        if self.labels is None:
            return names or [name for name, _ in self.top(1)]
        return names

    # --- Levels of codes --------------------------------------------------------------------------

    @property
    def path(self) -> list[CodeOfPath]:
        """The codes from the top to the label; empty without levels, and for a blank text."""
        if self.label is None or self.codes is None or not self.codes.has_levels:
            return []
        path = []
        codes = self.codes.path(self.label)
        for code, members in zip(codes, self.codes.members, strict=False):
            probability = self._sum(members[code])
            path.append(CodeOfPath(code, self.codes.names.get(code), probability))
        return path

    def name_of(self, label: str) -> str | None:
        """The name beside a code, if it has one."""
        return self.codes.names.get(label) if self.codes else None

    def shown(self, label: str) -> str:
        """A label with its name, if it has one."""
        return self.codes.shown(label) if self.codes else label

    def at_level(self, number: int) -> Prediction:
        """The prediction of the most probable code of a level, counted from 1 at the top.

        It need not be above `label`: several classes that belong to it may be more probable
        together.

        Raises:
            ValueError: the model has no such level.
        """
        num_levels = self.codes.num_levels if self.codes else 1
        if not 1 <= number <= num_levels:
            raise ValueError(f"level {number}: the model has {num_levels}")
        if self.codes is None or number == num_levels:
            return self

        probabilities = {}
        for code, members in self.codes.members[number - 1].items():
            probabilities[code] = self._sum(members)
        best = max(probabilities, key=lambda code: probabilities[code])
        is_blank = self.label is None
        return self._replace(
            label=None if is_blank else best,
            probability=None if is_blank else probabilities[best],
            probabilities=probabilities,
            prediction_probability=probabilities[best],
            codes=self.codes.at_level[number],
        )

    def _sum(self, classes: Sequence[str]) -> float:
        # Not more than 1 by the rounding of sums.
        return min(1.0, sum(self.probabilities[name] for name in classes))

    def backed_off(self, threshold: float) -> Prediction:
        """The prediction of the deepest level whose code reaches a probability; else as it is.

        `probabilities` stay those of the classes.
        """
        if self.codes is None:
            return self
        for number in range(self.codes.num_levels, 0, -1):
            at_level = self.at_level(number)
            if at_level.probability is not None and at_level.probability >= threshold:
                return self._replace(
                    label=at_level.label,
                    probability=at_level.probability,
                    prediction_probability=at_level.prediction_probability,
                )
        return self
