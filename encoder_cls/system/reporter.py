"""The interface through which long work such as a training reports its progress.

Functions that take long have an argument `reporter`. The class `Reporter` does nothing. Subclasses
show the progress on a terminal (command line), end bad trials (hyperparameter search) or keep a
list of events (tests).
"""

from __future__ import annotations

import sys
import warnings
from collections.abc import Callable, Mapping


class Reporter:
    """A reporter that ignores all events. Subclasses override the methods of some events.

    The `name` of a training of the encoder is `pretraining`, or `model` for the training on labels.
    `step` is the number of steps of the run that are done; `total_steps` that of the whole run, as
    far as it is known; `epoch` the number of passes over the texts that are done, with a fraction.
    """

    def note(self, message: str) -> None:
        """Report something that is good to know."""

    def warning(self, message: str) -> None:
        """Report something that may be wrong, although the work continues."""

    def working(self, what: str) -> None:
        """Report that some work starts now and the work before has ended; "" if no work starts."""

    def progressed(self, share: float) -> None:
        """Report the share of the current work that is done, from 0 to 1."""

    def training_started(self, *, step: int, total_steps: int) -> None:
        """Report that a run starts, or continues after `step` of `total_steps`."""

    def encoder_started(self, name: str, *, step: int, total_steps: int, epochs: int) -> None:
        """Report that a training of the encoder, of at most `epochs`, starts or continues."""

    def steps_decided(self, name: str, *, steps: int, total_steps: int) -> None:
        """Report how many steps, maybe 0, a time budget allows for a training of the encoder."""

    def step_done(
        self, *, step: int, epoch: float, loss: float, values: Mapping[str, float] | None
    ) -> None:
        """Report an optimizer step and its training loss.

        `values` is the row of the metrics log; None if this step was not logged.
        """

    def validated(
        self, name: str, *, step: int, epoch: float, scores: Mapping[str, float], is_best: bool
    ) -> None:
        """Report the scores of a validation by name, and whether it is the best so far.

        In a training on labels, the best model must also be better than the linear model alone.
        """


SILENT = Reporter()


class WarningReporter(Reporter):
    """A reporter that reports only warnings.

    By default, a warning becomes a Python warning at the line of code that called this package.
    """

    def __init__(self, warn: Callable[[str], None] | None = None) -> None:
        self._warn = warn or warn_caller

    def warning(self, message: str) -> None:
        """Report a warning."""
        self._warn(message)


def warn_caller(message: str) -> None:
    """Issue a Python `UserWarning` for the line of code that called this package."""
    level = 1
    frame = sys._getframe()
    while frame.f_back is not None and _is_own(frame.f_globals["__name__"]):
        frame = frame.f_back
        level += 1
    warnings.warn(message, UserWarning, stacklevel=level)


def _is_own(module: str) -> bool:
    """Whether a module belongs to this package, or is `contextlib`, which calls its functions."""
    return module == "contextlib" or module.partition(".")[0] == "encoder_cls"
