"""The prediction for one text."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any

from encoder_cls.classifier.explanation import Explanation


@dataclass(frozen=True, kw_only=True)
class Prediction:
    """The prediction for one text.

    Attributes:
        label: the most probable class; None for a text without words. Multi-label, it need not be
            among `labels`.
        probability: of the label.
        probabilities: of all classes, by name; also for a text without words.
        truncated: whether the text is longer than the encoder reads, or the linear model if
            that is alone.
        unknown_words: the number of tokens that are not in the vocabulary.
        reason: `blank` if the text has no words and so no label.
        unfamiliar: whether the text is out of distribution; None if the model does not measure it.
        labels: multi-label, the labels that reach their thresholds, most probable first;
            single-label None.
        answered_by: the parts that predict this text, `linear`, `encoder` or `both`; None if both
            predict every text.
    """

    label: str | None
    probability: float | None
    probabilities: dict[str, float]
    truncated: bool
    unknown_words: int
    reason: str | None = None
    unfamiliar: bool | None = None
    labels: tuple[str, ...] | None = None
    answered_by: str | None = None

    def top(self, k: int | None = None) -> list[tuple[str, float]]:
        """The `k` most probable classes, by default all, with their probabilities, best first."""
        return sorted(self.probabilities.items(), key=lambda item: -item[1])[:k]

    def label_from(self, threshold: float | None) -> str | None:
        """The label; None if its probability is below the threshold."""
        if self.probability is None or self.probability < (threshold or 0):
            return None
        return self.label

    def labels_from(self, threshold: float | None) -> tuple[str, ...]:
        """Multi-label, the labels of at least this probability; None: by their own thresholds."""
        if self.reason or threshold is None:
            return self.labels or ()
        return tuple(name for name, probability in self.top() if probability >= threshold)

    def label_set(self, threshold: float) -> list[str]:
        """The best class and all others from this probability; empty for a blank text."""
        if self.label is None:
            return []
        best, *others = self.top()
        names = [best[0]]
        names += [name for name, probability in others if probability >= threshold]
        return names

    def to_json(
        self,
        *,
        top_k: int,
        threshold: float | None,
        set_threshold: float | None = None,
        words: Explanation | None = None,
    ) -> dict[str, Any]:
        """The object that `predict --format jsonl` prints and the server responds with.

        Arguments are those of `Request`. Multi-label, `top` has at least as many classes as the
        text has labels.
        """
        labels = self.labels_from(threshold)
        record: dict[str, Any] = {}
        if self.labels is None:
            record["label"] = self.label_from(threshold)
            record["probability"] = self.probability
        else:
            record["labels"] = list(labels)

        top: list[tuple[str, float]] = []
        if not self.reason:
            top = self.top(max(top_k, len(labels)))
        record["top"] = [{"label": name, "probability": probability} for name, probability in top]
        if set_threshold is not None:
            record["set"] = self.label_set(set_threshold)

        record["truncated"] = self.truncated
        record["unknown_words"] = self.unknown_words
        if self.answered_by is not None:
            record["answered_by"] = self.answered_by
        if self.unfamiliar is not None:
            record["unfamiliar"] = self.unfamiliar
        if self.reason is not None:
            record["reason"] = self.reason

        if words is not None:
            record["explanation"] = [asdict(word) for word in words]
            if words.left_out:
                record["explanation_left_out"] = words.left_out
        return record
