"""The prediction for one text."""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping
from dataclasses import asdict
from typing import Any, NamedTuple

from encoder_cls.classifier.explanation import Explanation


class Prediction(NamedTuple):
    """The prediction for one text.

    Attributes:
        label: the most probable class, which need not be among `labels`; None for a text
            without words.
        probability: the probability of `label`; None for a text without words.
        probabilities: of all classes by name, also for a text without words.
        truncated: whether the text is longer than the encoder reads, or, without an encoder,
            than the linear model reads.
        unknown_words: the number of tokens that are not in the vocabulary.
        reason: `blank` for a text without words; else None.
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

    def top(self, k: int | None = None) -> list[tuple[str, float]]:
        """The `k` most probable classes with their probabilities, the most probable first.

        By default, all classes are returned.
        """
        return sorted(self.probabilities.items(), key=lambda item: -item[1])[:k]

    def label_from(self, threshold: float | None) -> str | None:
        """The label; None if its probability is below the threshold, or if the text is blank.

        If `threshold` is None, every label is kept.
        """
        if self.probability is None or self.probability < (threshold or 0):
            return None
        return self.label

    def labels_from(
        self,
        threshold: float | None,
        *,
        label_thresholds: Mapping[str, float] | None = None,
        text_threshold: float | None = None,
    ) -> tuple[str, ...]:
        """The labels of a multi-label task, without those that are withheld.

        `threshold` is the least probability of a label; None for the thresholds of the model.
        `label_thresholds` has the least probability of each of `labels`; a label without one is
        withheld, and None withholds no label. All labels are withheld if `prediction_probability`
        is below `text_threshold`; None withholds no label.
        """
        labels = self.labels or ()
        if self.reason:
            return labels
        if threshold is not None:
            return tuple(name for name, probability in self.top() if probability >= threshold)

        if text_threshold is not None and self.prediction_probability < text_threshold:
            return ()
        if label_thresholds is not None:
            return tuple(
                name
                for name in labels
                if self.probabilities[name] >= label_thresholds.get(name, math.inf)
            )
        return labels

    def withheld_labels(self, kept: Collection[str]) -> list[str]:
        """The labels of a multi-label task that are not among `kept`, most probable first."""
        return [name for name in self.labels or () if name not in kept]

    def label_set(self, threshold: float) -> list[str]:
        """The most probable class, and all others with at least the probability `threshold`.

        In a multi-label task, these are all labels with at least this probability, which may be
        none. The set of a blank text is empty.
        """
        if self.label is None:
            return []
        if self.labels is not None:
            return list(self.labels_from(threshold))
        best, *others = self.top()
        names = [best[0]]
        names += [name for name, probability in others if probability >= threshold]
        return names

    def to_json(
        self,
        *,
        top_k: int,
        threshold: float | None,
        label_thresholds: Mapping[str, float] | None = None,
        text_threshold: float | None = None,
        set_threshold: float | None = None,
        words: Explanation | None = None,
    ) -> dict[str, Any]:
        """The JSON values that `predict --format jsonl` prints and the server responds with.

        Args:
            top_k: the number of most probable classes in `top`; multi-label, at least all predicted
                labels are there.
            threshold: the probability below which labels are withheld; None to withhold no label
                (multi-label, to use the thresholds of the model).
            label_thresholds: multi-label, the least probability of each label, as in `labels_from`.
                If it is given, `withheld_labels` has the labels that are withheld.
            text_threshold: multi-label, the least probability of a whole prediction, as in
                `labels_from`. If it is given, `labels` is None for a text whose labels are
                withheld, `withheld_labels` has these labels, and `probability` is that of the
                prediction.
            set_threshold: the probability from which a class is in `set`; None to leave out `set`.
            words: the explanation of the prediction; None to leave it out.
        """
        labels = self.labels_from(
            threshold, label_thresholds=label_thresholds, text_threshold=text_threshold
        )
        record: dict[str, Any]
        if self.labels is None:
            record = {"label": self.label_from(threshold), "probability": self.probability}
        else:
            record = self._labels_to_json(
                labels, label_thresholds=label_thresholds, text_threshold=text_threshold
            )

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

    def _labels_to_json(
        self,
        kept: tuple[str, ...],
        *,
        label_thresholds: Mapping[str, float] | None,
        text_threshold: float | None,
    ) -> dict[str, Any]:
        """The JSON values for the labels of a multi-label task; `kept` are not withheld."""
        record: dict[str, Any] = {"labels": list(kept)}
        if text_threshold is not None and not self.reason:
            if self.prediction_probability < text_threshold:
                record["labels"] = None
            record["probability"] = self.prediction_probability

        if label_thresholds is not None or text_threshold is not None:
            record["withheld_labels"] = self.withheld_labels(kept)
        return record
