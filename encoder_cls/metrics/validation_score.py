"""The score of a validation, by which the best weights of a run are chosen."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, kw_only=True)
class ValidationScore:
    """The result of a validation, to be compared with other validations of the same run.

    Attributes:
        is_sure: whether the encoder surely lowers the loss, compared with the linear model alone;
            True if there is only one of them.
        monitored: the value of `train.monitor`.
    """

    is_sure: bool
    monitored: float
    loss: float
    lower_is_better: bool

    def is_better_than(self, other: ValidationScore | None) -> bool:
        """Whether this score is better; None counts as the worst."""
        return other is None or self._rank > other._rank

    @property
    def _rank(self) -> tuple[bool, float, float]:
        """A greater tuple for a better score; of equal values, the loss decides."""
        monitored = self.monitored
        if self.lower_is_better:
            monitored = -monitored
        return self.is_sure, monitored, -self.loss
