"""What a person should know of many answers, counted while they come: one line at the end of `predict`."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from encoder_cls.cli.columns import Answer


class Tally:
    """How many texts are answered, and how many of them otherwise than a person may expect.

    Args:
        max_seq_len: the tokens of a text that the encoder reads.
        threshold: below which labels are withheld.
    """

    def __init__(self, *, max_seq_len: int, threshold: float) -> None:
        self._max_seq_len = max_seq_len
        self._threshold = threshold
        self.num_texts = 0
        self._truncated = self._withheld = self._blank = self._with_unknown = self._without_label = 0

    def add(self, answers: Sequence[Answer]) -> None:
        """Count some answers."""
        self.num_texts += len(answers)
        for answer in answers:
            prediction = answer.prediction
            self._truncated += prediction.truncated
            self._with_unknown += prediction.unknown_words > 0
            self._blank += prediction.reason is not None
            self._withheld += answer.label is None and answer.labels is None and prediction.reason is None
            self._without_label += answer.labels == () and prediction.reason is None

    def line(self) -> str | None:
        """The counts that are not zero; nothing where all are."""
        counts = {
            f"truncated (longer than {self._max_seq_len:,} tokens)": self._truncated,
            f"withheld (--threshold {self._threshold:g})": self._withheld,
            "without a label": self._without_label,
            "blank": self._blank,
            "with unknown words": self._with_unknown,
        }
        told = ", ".join(f"{count:,} {what}" for what, count in counts.items() if count)
        return f"of {self.num_texts:,} text{'s' * (self.num_texts != 1)}: {told}" if told else None
