"""The prediction for one text."""

from __future__ import annotations

from typing import NamedTuple


class Prediction(NamedTuple):
    """The prediction for one text.

    Attributes:
        label: the most probable class, which need not be among `labels`, with its `probability`;
            None for a text without words.
        probabilities: those of all classes by name, also for a text without words.
        truncated: whether the text is longer than the encoder reads, or, without an encoder,
            than the linear model reads.
        unknown_words: the number of tokens that are not in the vocabulary.
        reason: `blank` for a text without words.
        unfamiliar: whether the text is out of distribution; None if the model does not measure it.
        labels: the labels whose probabilities reach their thresholds, most probable first; None
            in a single-label task.
        prediction_probability: the probability that the prediction is correct: that of `label`;
            multi-label, that of exactly `labels`, if labels are independent of each other.
        answered_by: the parts that predict this text, `linear`, `encoder` or `both`; None if the
            model has both parts and both predict every text.
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

    @property
    def uncertainty(self) -> float:
        """How uncertain the prediction is, from 0 to 1: see `Task.uncertainty`."""
        if self.labels is not None:
            return 1 - self.prediction_probability
        (_, best), (_, second) = self.top(2)
        return 1 - (best - second)

    def top(self, k: int | None = None) -> list[tuple[str, float]]:
        """The `k` most probable classes, by default all, with their probabilities, best first."""
        return sorted(self.probabilities.items(), key=lambda item: -item[1])[:k]

    def names_from(self, probability: float) -> list[str]:
        """The classes with at least this probability, the most probable first."""
        return [name for name, its_probability in self.top() if its_probability >= probability]

    @property
    def all_labels(self) -> tuple[str, ...]:
        """The labels of the text: `labels`, or in a single-label task `label`."""
        if self.labels is not None:
            return self.labels
        return () if self.label is None else (self.label,)

    def label_from(self, threshold: float | None) -> str | None:
        """The label; None if its probability is below the threshold, or if the text is blank."""
        if self.probability is None or self.probability < (threshold or 0):
            return None
        return self.label

    def label_set(self, threshold: float) -> list[str]:
        """The classes with at least the probability `threshold`.

        In a single-label task, the most probable one is always among them. The set of a blank text
        is empty.
        """
        if self.label is None:
            return []
        names = self.names_from(threshold)
        if self.labels is None:
            return names or [self.label]
        return names
