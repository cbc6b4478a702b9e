"""The interface through which long work, such as a training, reports its progress.

`Reporter` does nothing; subclasses show the progress, end bad trials or keep a list of events.
"""

from __future__ import annotations

import sys
import warnings
from collections.abc import Callable, Mapping


class Reporter:
    """A reporter that ignores all events; subclasses override the methods of some.

    `name` is that of a training of the encoder: `pretraining`, or `model` for that on labels.
    `step` counts the steps of the run, `total_steps` those of the whole run, as far as it is known,
    and `epoch` the passes over the texts, with a fraction.
    """

    def note(self, message: str) -> None:
        """Something that is good to know."""

    def warning(self, message: str) -> None:
        """Something that may be wrong, although the work continues."""

    def working(self, what: str) -> None:
        """Some work starts and that before has ended; "" if none starts."""

    def progressed(self, share: float) -> None:
        """The share of the current work that is done, from 0 to 1."""

    def training_started(self, *, step: int, total_steps: int) -> None:
        """A run starts, or continues after `step`."""

    def encoder_started(self, name: str, *, step: int, total_steps: int, epochs: int) -> None:
        """A training of the encoder, of at most `epochs`, starts or continues."""

    def steps_decided(self, name: str, *, steps: int, total_steps: int) -> None:
        """How many steps, maybe 0, a time budget allows."""

    def step_done(
        self, *, step: int, epoch: float, loss: float, values: Mapping[str, float] | None
    ) -> None:
        """An optimizer step; `values` is the row of the metrics log, None if it was not logged."""

    def validated(
        self, name: str, *, step: int, epoch: float, scores: Mapping[str, float], is_best: bool
    ) -> None:
        """The scores of a validation, and whether it is the best so far.

        On labels, the best must also be better than the linear model alone.
        """


SILENT = Reporter()


class WarningReporter(Reporter):
    """Reports only warnings: by default Python warnings at the line that called this package."""

    def __init__(self, warn: Callable[[str], None] | None = None) -> None:
        self._warn = warn or warn_caller

    def warning(self, message: str) -> None:
        """Issue a warning."""
        self._warn(message)


def warn_caller(message: str) -> None:
    """Issue a `UserWarning` for the line that called this package."""
    level = 1
    frame = sys._getframe()
    while frame.f_back is not None and _is_own(frame.f_globals["__name__"]):
        frame = frame.f_back
        level += 1
    warnings.warn(message, UserWarning, stacklevel=level)


def _is_own(module: str) -> bool:
    """Whether a module is of this package, or `contextlib`, which calls its functions."""
    return module == "contextlib" or module.partition(".")[0] == "encoder_cls"
