"""What a search hears of its trainings: it passes messages on, and ends trials that are bad."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from math import ceil

from optuna.trial import Trial

from encoder_cls.system.reporter import Reporter
from encoder_cls.training.encoder_stage import ON_LABELS

# Validations of a trial that are compared: at each tenth of its epochs.
REPORTS = 10


class PrunedTrialError(Exception):
    """A trial ends early: it is worse than others, or the time of the search is over."""


class SearchReporter(Reporter):
    """Passes each note and each warning on once, however many trainings give it.

    It also passes on the names of the work, and the steps that time budgets allow.
    """

    def __init__(self, reporter: Reporter) -> None:
        self._reporter = reporter
        self._messages: set[str] = set()

    def note(self, message: str) -> None:
        """Pass a note on."""
        if self._is_new(message):
            self._reporter.note(message)

    def warning(self, message: str) -> None:
        """Pass a warning on."""
        if self._is_new(message):
            self._reporter.warning(message)

    def working(self, what: str) -> None:
        """Pass the name of the work on."""
        self._reporter.working(what)

    def steps_decided(self, name: str, *, steps: int, total_steps: int) -> None:
        """Pass the number of steps on."""
        self._reporter.steps_decided(name, steps=steps, total_steps=total_steps)

    def _is_new(self, message: str) -> bool:
        is_new = message not in self._messages
        self._messages.add(message)
        return is_new


class TrainingReporter(Reporter):
    """Passes on what one training of a search does, with the name of the training."""

    def __init__(self, reporter: Reporter, name: str) -> None:
        self._reporter = reporter
        self._name = name

    def note(self, message: str) -> None:
        """Pass a note on."""
        self._reporter.note(message)

    def warning(self, message: str) -> None:
        """Pass a warning on."""
        self._reporter.warning(message)

    def working(self, what: str) -> None:
        """Name the training, too."""
        if what:
            self._reporter.working(f"{self._name}: {what}")
        else:
            self._reporter.working(self._name)

    def encoder_started(self, name: str, *, step: int, total_steps: int) -> None:  # noqa: ARG002
        """Name what the encoder learns."""
        self.working(name)

    def steps_decided(self, name: str, *, steps: int, total_steps: int) -> None:
        """Pass the number of steps on, with the name of the training."""
        self._reporter.steps_decided(f"{name} ({self._name})", steps=steps, total_steps=total_steps)


class TrialReporter(TrainingReporter):
    """Reports the best scores of a trial to the study, and ends it where it is not worth its time.

    Args:
        reporter: gets the names of the work, and notes and warnings.
        trial: of Optuna.
        best_score: gives the best validation of the trial so far, None before the first one.
        has_time: whether the search has time left.
        last_report: the number of the last report of an earlier process; 0 without one.

    Attributes:
        epochs: the epochs of the whole trial.
    """

    def __init__(
        self,
        reporter: Reporter,
        trial: Trial,
        *,
        best_score: Callable[[], float | None],
        has_time: Callable[[], bool],
        last_report: int,
    ) -> None:
        super().__init__(reporter, f"trial {trial.number}")
        self.epochs = 1
        self._trial = trial
        self._best_score = best_score
        self._has_time = has_time
        # The first trial, which is the config as it is, goes on to its end.
        self._may_end = trial.number > 0
        self._last_report = last_report

    def step_done(
        self,
        *,
        step: int,  # noqa: ARG002
        epoch: float,  # noqa: ARG002
        loss: float,  # noqa: ARG002
        values: Mapping[str, float] | None,  # noqa: ARG002
    ) -> None:
        """End the trial where the time of the search is over."""
        self._check_time()

    def validated(
        self,
        name: str,
        *,
        step: int,  # noqa: ARG002
        epoch: float,
        scores: Mapping[str, float],  # noqa: ARG002
        is_best: bool,  # noqa: ARG002
    ) -> None:
        """Report the best score so far, once for each tenth of the trial."""
        self._check_time()

        # Each tenth of the epochs has a number.
        number = ceil(REPORTS * epoch / self.epochs)
        score = self._best_score()
        if name != ON_LABELS or score is None or number <= self._last_report:
            return

        self._last_report = number
        self._trial.report(score, number)
        if self._may_end and self._trial.should_prune():
            raise PrunedTrialError

    def _check_time(self) -> None:
        if self._may_end and not self._has_time():
            raise PrunedTrialError
