"""How work that takes long reports what happens.

A `Reporter` is passed down to it. The one here is silent; the command line has one for terminals
and log files, the hyperparameter search one that ends bad trials, and tests one that keeps a list.
"""

from __future__ import annotations

import sys
import warnings
from collections.abc import Callable, Mapping


class Reporter:
    """Hears what happens, and says nothing."""

    def note(self, message: str) -> None:
        """Hear of something that is good to know."""

    def warning(self, message: str) -> None:
        """Hear of something that may be wrong; the work goes on."""

    def working(self, what: str) -> None:
        """Hear which work starts now, in place of the work before; an empty name ends it."""

    def training_started(self, *, step: int, total_steps: int) -> None:
        """Hear that a run starts, or goes on after `step` of `total_steps`."""

    def encoder_started(self, name: str, *, step: int, total_steps: int) -> None:
        """Hear that a training of the encoder starts or goes on: `pretraining` or `model`.

        `total_steps` are those of the whole run, as far as they are known.
        """

    def steps_decided(self, name: str, *, steps: int, total_steps: int) -> None:
        """Hear how many steps a time budget allows a training of the encoder, possibly none."""

    def step_done(
        self, *, step: int, epoch: float, loss: float, values: Mapping[str, float] | None
    ) -> None:
        """Hear of an optimizer step; `values` is the row that was logged, if any."""

    def validated(
        self, name: str, *, step: int, epoch: float, scores: Mapping[str, float], is_best: bool
    ) -> None:
        """Hear of a validation.

        `is_best` says that it is the best of its training; of a training on labels, that it is also
        better than the linear model alone.
        """


SILENT = Reporter()


class WarningReporter(Reporter):
    """Passes warnings on, by default as Python's warnings of the code that called this package."""

    def __init__(self, warn: Callable[[str], None] | None = None) -> None:
        self._warn = warn or warn_caller

    def warning(self, message: str) -> None:
        """Pass the warning on."""
        self._warn(message)


def warn_caller(message: str) -> None:
    """Give a `UserWarning`, in the line of code that called this package."""
    level = 1
    frame = sys._getframe()
    while frame.f_back is not None and _is_own(frame.f_globals["__name__"]):
        frame = frame.f_back
        level += 1
    warnings.warn(message, UserWarning, stacklevel=level)


def _is_own(module: str) -> bool:
    """Whether a module is of this package, or called between two of its functions."""
    return module == "contextlib" or module.partition(".")[0] == "encoder_cls"
