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
        min_precision: the precision for which that is; none: it was named itself.
    """

    def __init__(self, *, max_seq_len: int, threshold: float, min_precision: float | None = None) -> None:
        self._max_seq_len = max_seq_len
        self._why_withheld = f"--threshold {threshold:g}"
        if min_precision is not None:
            self._why_withheld = f"--min-precision {min_precision:g}: probability below {threshold:.3f}"
        self.num_texts = 0
        self._truncated = self._withheld = self._blank = self._with_unknown = self._unfamiliar = 0
        self._without_label = 0

    def add(self, answers: Sequence[Answer]) -> None:
        """Count some answers."""
        self.num_texts += len(answers)
        for answer in answers:
            prediction = answer.prediction
            self._truncated += prediction.truncated
            self._with_unknown += prediction.unknown_words > 0
            self._blank += prediction.reason is not None
            self._unfamiliar += bool(prediction.unfamiliar)
            self._withheld += answer.label is None and answer.labels is None and prediction.reason is None
            self._without_label += answer.labels == () and prediction.reason is None

    def line(self) -> str | None:
        """The counts that are not zero; nothing where all are."""
        counts = {
            f"truncated (longer than {self._max_seq_len:,} tokens)": self._truncated,
            f"withheld ({self._why_withheld})": self._withheld,
            "without a label": self._without_label,
            "blank": self._blank,
            "unfamiliar (unlike the training texts)": self._unfamiliar,
            "with unknown words": self._with_unknown,
        }
        told = ", ".join(f"{count:,} {what}" for what, count in counts.items() if count)
        return f"of {self.num_texts:,} text{'s' * (self.num_texts != 1)}: {told}" if told else None
