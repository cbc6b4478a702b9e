"""The score of a validation, by which the best weights of a run are chosen."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, kw_only=True)
class ValidationScore:
    """How good a validation was, compared with others of the same run.

    Attributes:
        is_sure: whether the encoder surely lowers the loss of the linear model alone; True where
            there is only one of them.
        monitored: the value of `train.monitor`.
        loss: the mean loss, in nats.
        lower_is_better: whether a lower `monitored` is better, as of a loss.
    """

    is_sure: bool
    monitored: float
    loss: float
    lower_is_better: bool

    def is_better_than(self, other: ValidationScore | None) -> bool:
        """Whether this score is better than another one; any is better than none."""
        return other is None or self._rank > other._rank

    @property
    def _rank(self) -> tuple[bool, float, float]:
        """A tuple that is greater for a better score.

        On few texts many validations have an equal accuracy: the loss then decides.
        """
        monitored = self.monitored
        if self.lower_is_better:
            monitored = -monitored
        return self.is_sure, monitored, -self.loss
