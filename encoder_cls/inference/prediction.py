"""What the classifier says of one text: its class or its labels, and what else is known of the answer."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, kw_only=True)
class Prediction:
    """What the classifier says of one text.

    Attributes:
        label: the most probable class; none where there is nothing to be classified, see `reason`. Multi-label, the
            most probable label, whether or not it is one of the `labels`.
        probability: its probability; none where there is no label.
        probabilities: of all classes, by name, as `predict_proba` has them; of a blank text, what is likely anyway.
        truncated: the text was longer than the encoder reads, or the linear classifier where it is alone.
        unknown_words: how many of its tokens the classifier has never seen.
        reason: why there is no label: `blank`, the text has no words.
        labels: multi-label, the labels that are as probable as their thresholds, the most probable first; none where
            there is one label a text.
        unfamiliar: whether the text is unlike those of training; none where the model cannot tell.
    """

    label: str | None
    probability: float | None
    probabilities: dict[str, float]
    truncated: bool
    unknown_words: int
    reason: str | None = None
    unfamiliar: bool | None = None
    labels: tuple[str, ...] | None = None

    @property
    def is_multi_label(self) -> bool:
        """Whether `labels` is the answer, not `label`."""
        return self.labels is not None

    def labels_from(self, threshold: float) -> tuple[str, ...]:
        """Multi-label, the labels that have this probability or more; 0: the `labels`."""
        if self.reason or not threshold:
            return self.labels or ()
        return tuple(name for name, probability in self.top(len(self.probabilities)) if probability >= threshold)

    def label_from(self, threshold: float) -> str | None:
        """The label, unless its probability is lower."""
        return self.label if self.probability is not None and self.probability >= threshold else None

    def top(self, k: int) -> list[tuple[str, float]]:
        """The `k` most probable classes with their probabilities, best first."""
        return sorted(self.probabilities.items(), key=lambda item: -item[1])[:k]

    def label_set(self, threshold: float) -> list[str]:
        """The classes from a probability up, best first, the best one in any case; none of a text without a label."""
        if self.label is None:
            return []
        named = self.top(len(self.probabilities))
        return [name for rank, (name, probability) in enumerate(named) if rank == 0 or probability >= threshold]
