"""Search for good settings with Optuna: hyperparameter search.

Trials are compared by their validation scores alone. Several processes can work on one search: they
share a journal in its folder. If a process is killed, the next process that needs a trial resumes
the unfinished trial.

Akiba et al., "Optuna: A Next-generation Hyperparameter Optimization Framework", 2019,
https://arxiv.org/abs/1907.10902.
"""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import optuna
import torch
from filelock import FileLock
from optuna.trial import FrozenTrial, Trial, TrialState

from encoder_cls.config.changed_keys import dotted_values
from encoder_cls.config.loading import config_of
from encoder_cls.config.schema import Config
from encoder_cls.encoder_training.random_numbers import derive_seed
from encoder_cls.errors import ConfigError, DivergedError
from encoder_cls.metrics.scores import SCORES
from encoder_cls.run.metrics_log import MetricsLog
from encoder_cls.run.run_folder import RunDir, read_metrics
from encoder_cls.system.files import LockedError, reporting_os_errors
from encoder_cls.system.reporter import SILENT, Reporter
from encoder_cls.training.prepare import prepare
from encoder_cls.training.prepared import Prepared
from encoder_cls.training.reading_time import affordable_train_fraction, with_train_fraction
from encoder_cls.training.time_budget import TimeBudget
from encoder_cls.training.train import train
from encoder_cls.tuning.search_space import search_space, suggested_values
from encoder_cls.tuning.study import open_study
from encoder_cls.tuning.trial_reporter import (
    PrunedTrialError,
    SearchReporter,
    TrainingReporter,
    TrialReporter,
)

# The name of the file that a process locks while it chooses a trial.
LOCK_FILE = "study.lock"
# The number of trials with random values. After them, Optuna's sampler models which values are
# good.
NUM_RANDOM_TRIALS = 5
# A step number that is larger than the last step of any run.
AFTER_ALL_STEPS = 1 << 62


@dataclass(frozen=True, kw_only=True)
class TrialResult:
    """The result of a trial that has ended; trial 0 has the unchanged config.

    Attributes:
        values: the values of the searched settings, by config key.
        score: the best validation score of the trial (`train.monitor`); None if the trial had no
            validation. In `Search.results`, None unless the trial is complete.
        state: `complete`; `pruned` if the trial was ended early; `fail` if its training diverged.
        seconds: the time from the start to the end of the trial, pauses included.
        is_best: whether the trial was the best complete trial when it ended.
    """

    number: int
    values: Mapping[str, Any]
    score: float | None
    state: str
    seconds: float
    is_best: bool = False


class Search:
    """A search in a folder, new or resumed.

    The settings to search are those of the section `tune` of the config, by default those of
    `DEFAULT_SPACE`.

    Args:
        config: the config to start from.
        folder: the folder of the search; an existing search of the same config is resumed.
        device: the device that trains the encoders.

    Raises:
        ConfigError: the settings to search do not fit the config, or the folder has a search of
            another config.
    """

    def __init__(
        self,
        config: Config,
        folder: Path,
        *,
        device: torch.device,
        reporter: Reporter = SILENT,
    ) -> None:
        self.folder = folder
        self._device = device
        self._reporter = SearchReporter(reporter)
        self._base = config.model_copy(update={"tune": {}})
        self._space = search_space(config)
        self._monitor = SCORES[config.train.monitor]

        with reporting_os_errors(folder):
            folder.mkdir(parents=True, exist_ok=True)
            self._lock = FileLock(folder / LOCK_FILE)
        with self._locked():
            self._study = open_study(folder, minimizes=not self._monitor.higher_is_better)
            self._check_config(config)
            self._base = with_train_fraction(self._base, self._train_fraction())

    @contextmanager
    def _locked(self) -> Iterator[None]:
        """Keep other processes of the search from choosing a trial."""
        with reporting_os_errors(self.folder / LOCK_FILE), self._lock:
            yield

    def _check_config(self, config: Config) -> None:
        """Record the config of a new search.

        It is a `ConfigError` if a resumed search has another config.
        """
        config_yaml = config.to_yaml()
        recorded_yaml = self._study.user_attrs.get("config")
        if recorded_yaml is None:
            self._study.set_user_attr("config", config_yaml)
        elif recorded_yaml != config_yaml:
            raise ConfigError(
                f"{self.folder}: already holds a search of another config; choose another --run-dir"
            )

    def _train_fraction(self) -> float | None:
        """The share of the training rows that all trials read, so that their scores compare.

        It is decided when the search begins.
        """
        if "train_fraction" not in self._study.user_attrs:
            run = self._run_of(0)
            fraction = affordable_train_fraction(self._base, run, budget=TimeBudget(self._base))
            self._study.set_user_attr("train_fraction", fraction)
        fraction_of_search: float | None = self._study.user_attrs["train_fraction"]
        return fraction_of_search

    @property
    def best(self) -> TrialResult | None:
        """The best complete trial; None before the first one."""
        if not self._trials(TrialState.COMPLETE):
            return None
        return _result(self._study.best_trial)

    @property
    def results(self) -> list[TrialResult]:
        """The results of the trials that have ended, in the order of their numbers."""
        return [_result(trial) for trial in self._trials() if trial.state.is_finished()]

    def config_of(self, number: int, values: Mapping[str, Any]) -> Config:
        """Make the config of a trial by its values; that of trial 0 is unchanged."""
        if number == 0:
            return self._base
        return config_of(values, source=f"{self.folder}", base=self._base)

    # Trials

    def run_trials(self, has_time: Callable[[], bool]) -> Iterator[TrialResult]:
        """Run trials until the search has no time left, and yield their results.

        There is at least one complete trial, even if the time is over before. Once there is one, a
        trial that is in training when the time is over is pruned, unless it is trial 0.

        Raises:
            StoppedError: a signal arrived. A resumed search resumes the trial.
        """

        def goes_on() -> bool:
            return not self._trials(TrialState.COMPLETE) or has_time()

        while goes_on():
            with ExitStack() as open_locks:
                # Lock the run before the next process may choose a trial.
                with self._locked():
                    trial, run = self._next_trial()
                    open_locks.enter_context(run.lock())
                yield self._run_trial(trial, run, goes_on)

    def _next_trial(self) -> tuple[Trial, RunDir]:
        """Choose an unfinished trial that no process is training, or start a new trial."""
        for unfinished in self._trials(TrialState.RUNNING):
            run = self._run_of(unfinished.number)
            # If the run is locked, another process is training it: try the next one.
            with suppress(LockedError), run.lock():
                return Trial(self._study, unfinished._trial_id), run

        number = len(self._trials())
        if number == 0:
            own_values = dotted_values(self._base)
            self._study.enqueue_trial({key: own_values[key] for key in self._space})

        # Seed the sampler by the number of the trial, so that the values depend only on the seed of
        # the config, this number and the results so far.
        self._study.sampler = optuna.samplers.TPESampler(
            n_startup_trials=NUM_RANDOM_TRIALS, seed=derive_seed(self._base.seed, number)
        )
        trial = self._study.ask()
        return trial, self._run_of(trial.number)

    def _run_trial(self, trial: Trial, run: RunDir, goes_on: Callable[[], bool]) -> TrialResult:
        """Train a trial to its end, or until it is pruned, and record its result in the study.

        The trial is pruned once `goes_on` is False.
        """
        values = suggested_values(trial, self._space)
        reporter = TrialReporter(
            self._reporter,
            trial,
            best_score=lambda: self._best_score(run),
            goes_on=goes_on,
            last_report=self._trials()[trial.number].last_step or 0,
        )
        prepared = prepare(self.config_of(trial.number, values), reporter=reporter)
        prepared.report_warnings(reporter)
        if prepared.plan.training:
            reporter.epochs = prepared.plan.training.epochs

        state = self._train_trial(trial, run, prepared, reporter)
        score = self._best_score(run)
        self._show_in_tensorboard(run, prepared, values, score)

        # Optuna expects a score of complete trials only.
        value = score if state is TrialState.COMPLETE else None
        self._study.tell(trial, value, state=state)

        # Now that the trial is recorded, remove the files that were kept to resume it.
        shutil.rmtree(run.checkpoints, ignore_errors=True)
        shutil.rmtree(run.pretrained, ignore_errors=True)

        result = _result(self._trials()[trial.number])
        is_best = self.best is not None and self.best.number == trial.number
        return replace(result, score=score, is_best=is_best)

    def _train_trial(
        self, trial: Trial, run: RunDir, prepared: Prepared, reporter: Reporter
    ) -> TrialState:
        """Train a trial, and return the state in which it has ended.

        Only trial 0, which has the unchanged config, raises a `DivergedError`.
        """
        try:
            train(
                prepared,
                run,
                device=self._device,
                resume=True,
                with_report=False,
                with_tensorboard=False,
                reporter=reporter,
            )
        except PrunedTrialError:
            return TrialState.PRUNED
        except DivergedError:
            if trial.number == 0:
                raise
            return TrialState.FAIL

        return TrialState.COMPLETE

    def _best_score(self, run: RunDir) -> float | None:
        """The best validation score of a run's model; None before its first validation."""
        scores = []
        for row in read_metrics(run.metrics_file):
            if row["split"] == "validation" and self._monitor.key in row:
                scores.append(float(row[self._monitor.key]))

        if not scores:
            return None
        if self._monitor.higher_is_better:
            return max(scores)
        return min(scores)

    def _show_in_tensorboard(
        self, run: RunDir, prepared: Prepared, values: Mapping[str, Any], score: float | None
    ) -> None:
        """Write the values, the score (None without a validation) and the metrics of a trial."""
        # Put the score first, because TensorBoard shows only the first columns.
        shown_values = dict(values)
        if score is not None:
            shown_values = {f"best validation {self._monitor.key}": score} | shown_values

        # Keep all rows of the metrics.
        resume_after = {
            "data": AFTER_ALL_STEPS,
            "train": AFTER_ALL_STEPS,
            "validation": AFTER_ALL_STEPS,
        }
        with MetricsLog(
            run,
            prepared.config,
            prepared.dataset.label_names,
            resume_after=resume_after,
            warn=self._reporter.warning,
        ) as log:
            assert log.tensorboard
            log.tensorboard.show_hparams(shown_values)

    def _trials(self, *states: TrialState) -> list[FrozenTrial]:
        """List the trials in these states, by default all, in the order of their numbers."""
        return self._study.get_trials(deepcopy=False, states=states or None)

    def _run_of(self, number: int) -> RunDir:
        return RunDir(self.folder / "trials" / f"{number:03}")

    # The trainings after the search

    def trained_again(self, number: int) -> RunDir:
        """Return the run folder in which a trial is trained again, with a report."""
        return RunDir(self.folder / f"trained-{number:03}")

    def train_again(self, best: TrialResult) -> bool:
        """Train the best trial and the unchanged config again, with reports.

        It is False if another process of the search is training them.
        """
        for number in sorted({best.number, 0}, reverse=True):
            run = self.trained_again(number)
            if run.is_finished():
                continue

            self._reporter.note(f"training {run.path}, with a report")
            reporter = TrainingReporter(self._reporter, run.path.name)
            try:
                with run.lock():
                    prepared = prepare(self.config_of(number, best.values), reporter=reporter)
                    train(prepared, run, device=self._device, resume=True, reporter=reporter)
            except LockedError:
                self._reporter.note(
                    f"{run.path}: another process of this search is training here, and will "
                    "write the report"
                )
                return False
        return True


def _result(trial: FrozenTrial) -> TrialResult:
    score = None
    if trial.state is TrialState.COMPLETE:
        score = trial.value

    seconds = 0.0
    if trial.duration:
        seconds = trial.duration.total_seconds()

    return TrialResult(
        number=trial.number,
        values=trial.params,
        score=score,
        state=trial.state.name.lower(),
        seconds=seconds,
    )
