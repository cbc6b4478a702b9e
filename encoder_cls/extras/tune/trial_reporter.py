"""What the trainings of a search report, and which trials end early."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from math import ceil

from optuna.trial import Trial

from encoder_cls.system.reporter import Reporter

# The name of the encoder's training on labels in the events of a training.
ON_LABELS = "model"
# The number of reports of a trial to the study, in equal parts of its epochs. Trials are compared
# report by report.
NUM_REPORTS = 10


class PrunedTrialError(Exception):
    """A trial is worse than others, or the time is over."""


class TrainingReporter(Reporter):
    """Passes on the messages of one training, with its name.

    All trainings give much the same ones: each is passed on once, and then in `messages`.
    """

    def __init__(self, reporter: Reporter, name: str, messages: set[str]) -> None:
        self._reporter = reporter
        self._name = name
        self._messages = messages

    def note(self, message: str) -> None:
        """Pass a note on, once."""
        if self._is_new(message):
            self._reporter.note(message)

    def warning(self, message: str) -> None:
        """Pass a warning on, once."""
        if self._is_new(message):
            self._reporter.warning(message)

    def _is_new(self, message: str) -> bool:
        is_new = message not in self._messages
        self._messages.add(message)
        return is_new

    def working(self, what: str) -> None:
        """Pass work on, with the training's name."""
        if what:
            self._reporter.working(f"{self._name}: {what}")
        else:
            self._reporter.working(self._name)

    def progressed(self, share: float) -> None:
        """Pass on how far it is."""
        self._reporter.progressed(share)

    def encoder_started(
        self,
        name: str,
        *,
        step: int,  # noqa: ARG002
        total_steps: int,  # noqa: ARG002
        epochs: int,  # noqa: ARG002
    ) -> None:
        """Pass it on as work."""
        self.working(name)

    def steps_decided(self, name: str, *, steps: int, total_steps: int) -> None:
        """Pass it on."""
        self._reporter.steps_decided(f"{name} ({self._name})", steps=steps, total_steps=total_steps)


class TrialReporter(TrainingReporter):
    """Reports the scores of a trial, and prunes it if it is not worth its time.

    Args:
        best_score: so far; None before a validation.
        goes_on: whether the search does.
        last_report: of a resumed trial; 0 without any.
    """

    def __init__(
        self,
        reporter: Reporter,
        trial: Trial,
        messages: set[str],
        *,
        best_score: Callable[[], float | None],
        goes_on: Callable[[], bool],
        last_report: int,
    ) -> None:
        super().__init__(reporter, f"trial {trial.number}", messages)
        self._trial = trial
        self._best_score = best_score
        self._goes_on = goes_on
        # Never prune trial 0, which has the unchanged config.
        self._may_be_pruned = trial.number > 0
        self._last_report = last_report
        self._epochs = 1

    def encoder_started(self, name: str, *, step: int, total_steps: int, epochs: int) -> None:
        """Learn the number of epochs, whose tenths are reported."""
        super().encoder_started(name, step=step, total_steps=total_steps, epochs=epochs)
        self._epochs = epochs

    def step_done(
        self,
        *,
        step: int,  # noqa: ARG002
        epoch: float,  # noqa: ARG002
        loss: float,  # noqa: ARG002
        values: Mapping[str, float] | None,  # noqa: ARG002
    ) -> None:
        """Prune the trial if the time is over."""
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
        """Report the best score, once in each tenth of the epochs; a `PrunedTrialError` ends it."""
        self._check_time()

        # Number the reports by the tenth of the epochs, from 1 to 10.
        number = ceil(NUM_REPORTS * epoch / self._epochs)
        score = self._best_score()
        if name != ON_LABELS or score is None or number <= self._last_report:
            return

        self._last_report = number
        self._trial.report(score, number)
        if self._may_be_pruned and self._trial.should_prune():
            raise PrunedTrialError

    def _check_time(self) -> None:
        if self._may_be_pruned and not self._goes_on():
            raise PrunedTrialError
