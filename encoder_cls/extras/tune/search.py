"""Hyperparameter search with Optuna.

Trials are compared by validation scores alone. Several processes can work on one search, by a
journal in its folder; a trial of a killed process is resumed by the next one.

Akiba et al., "Optuna: A Next-generation Hyperparameter Optimization Framework", 2019,
https://arxiv.org/abs/1907.10902.
"""

from __future__ import annotations

import shutil
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, ExitStack, suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import optuna
from optuna.trial import FrozenTrial, Trial, TrialState

from encoder_cls import Config, Report, config_of, evaluate, load_config, read_metrics, train
from encoder_cls.errors import ConfigError, DivergedError
from encoder_cls.extras.tune.run_table import show_in_run_table
from encoder_cls.extras.tune.search_space import own_values, search_space, suggested_values
from encoder_cls.extras.tune.study import open_study
from encoder_cls.extras.tune.trial_reporter import (
    PrunedTrialError,
    TrainingReporter,
    TrialReporter,
)
from encoder_cls.system.files import LockedError, locked, reporting_os_errors
from encoder_cls.system.reporter import SILENT, Reporter
from encoder_cls.system.stop import check_stop

# The number of trials with random values. After them, Optuna's sampler models which values are
# good.
NUM_RANDOM_TRIALS = 5
# The time between two looks whether trial 0 has decided how many rows are read.
SECONDS_BETWEEN_LOOKS = 0.2


@dataclass(frozen=True, kw_only=True)
class TrialResult:
    """A trial that has ended; trial 0 has the unchanged config.

    Attributes:
        values: of the searched settings, by key.
        score: the best of `train.monitor`; None without a validation. In `Search.results`, None
            unless the trial is complete.
        state: `complete`; `pruned` if it was ended early; `fail` if it diverged.
        seconds: pauses included.
        is_best: when it ended.
    """

    number: int
    values: Mapping[str, Any]
    score: float | None
    state: str
    seconds: float
    is_best: bool = False


class Search:
    """A search in a folder, new or resumed.

    The section `tune`, or else `DEFAULT_SPACE`, names the settings.

    Raises:
        ConfigError: they do not fit the config, or the folder has a search of another config.
    """

    def __init__(
        self,
        config: Config,
        folder: Path,
        *,
        device: str = "auto",
        reporter: Reporter = SILENT,
    ) -> None:
        self.folder = folder
        self._device = device
        self._reporter = reporter
        # The notes and warnings of trainings that have been passed on.
        self._messages: set[str] = set()
        self._base = config.model_copy(update={"tune": {}})
        self._space = search_space(config)
        self._monitor = config.train.monitor
        self._minimizes = self._monitor == "loss"

        with reporting_os_errors(folder):
            self._locks.mkdir(parents=True, exist_ok=True)
        with self._choosing_a_trial():
            self._study = open_study(folder, minimizes=self._minimizes)
            self._check_config(config)

    def _check_config(self, config: Config) -> None:
        config_yaml = config.to_yaml()
        recorded_yaml = self._study.user_attrs.get("config")
        if recorded_yaml is None:
            self._study.set_user_attr("config", config_yaml)
        elif recorded_yaml != config_yaml:
            raise ConfigError(
                f"{self.folder}: already holds a search of another config; choose another --run-dir"
            )

    # The locks are outside of the run folders, which hold nothing but the files of a training.

    @property
    def _locks(self) -> Path:
        return self.folder / "locks"

    def _choosing_a_trial(self) -> AbstractContextManager[None]:
        """Let no other process choose a trial."""
        return locked(self.folder / "study.lock")

    def _lock(self, run: Path) -> AbstractContextManager[None]:
        """Lock a run; a `LockedError` if another process trains it."""
        return locked(self._locks / f"{run.name}.lock", wait=False)

    @property
    def best(self) -> TrialResult | None:
        """The best complete trial, if any."""
        if not self._trials(TrialState.COMPLETE):
            return None
        return _result(self._study.best_trial)

    @property
    def results(self) -> list[TrialResult]:
        """Trials that have ended, in order."""
        return [_result(trial) for trial in self._trials() if trial.state.is_finished()]

    def _trials(self, *states: TrialState) -> list[FrozenTrial]:
        return self._study.get_trials(deepcopy=False, states=states or None)

    def trial_folder(self, number: int) -> Path:
        """The run folder of a trial."""
        return self.folder / "trials" / f"{number:03}"

    def config_of(self, number: int, values: Mapping[str, Any]) -> Config:
        """The config of a trial; trial 0 has that of the search."""
        changed = {} if number == 0 else dict(values)

        # A trial reads as many rows as trial 0 had time for, so that their scores compare.
        if self._knows_rows_to_read():
            first = load_config(self._config_of_first_trial)
            changed["data.train_fraction"] = first.data.train_fraction
        return config_of(changed, base=self._base, source=f"{self.folder}")

    @property
    def _config_of_first_trial(self) -> Path:
        return self.trial_folder(0) / "config.yaml"

    def _knows_rows_to_read(self) -> bool:
        return self._config_of_first_trial.is_file()

    # Trials

    def run_trials(self, has_time: Callable[[], bool]) -> Iterator[TrialResult]:
        """Run trials until there is no time left, and yield their results.

        At least one is complete. Then a trial in training when time is over is pruned, unless it is
        trial 0.
        """

        def goes_on() -> bool:
            return not self._trials(TrialState.COMPLETE) or has_time()

        while goes_on():
            with ExitStack() as locks:
                with self._choosing_a_trial():
                    trial = self._next_trial(locks)
                if trial:
                    yield self._run_trial(trial, goes_on)
                else:
                    check_stop()
                    time.sleep(SECONDS_BETWEEN_LOOKS)

    def _next_trial(self, locks: ExitStack) -> Trial | None:
        """Choose and lock an unfinished trial that no process is training, or a new one.

        None while another process finds out, in trial 0, how many rows there is time to read.
        """
        for unfinished in self._trials(TrialState.RUNNING):
            # If the trial is locked, another process is training it: try the next one.
            with suppress(LockedError):
                locks.enter_context(self._lock(self.trial_folder(unfinished.number)))
                return Trial(self._study, unfinished._trial_id)

        is_limited = self._base.train.time_budget is not None
        if is_limited and not self._knows_rows_to_read() and self._trials(TrialState.RUNNING):
            return None

        number = len(self._trials())
        if number == 0:
            self._study.enqueue_trial(own_values(self._base, self._space))

        # Seed the sampler by the number of the trial, so that the values depend only on the seed of
        # the config, this number and the results so far.
        seeds = np.random.SeedSequence((self._base.seed, number))
        self._study.sampler = optuna.samplers.TPESampler(
            n_startup_trials=NUM_RANDOM_TRIALS, seed=int(seeds.generate_state(1)[0])
        )
        trial = self._study.ask()
        locks.enter_context(self._lock(self.trial_folder(trial.number)))
        return trial

    def _run_trial(self, trial: Trial, goes_on: Callable[[], bool]) -> TrialResult:
        run = self.trial_folder(trial.number)
        values = suggested_values(trial, self._space)
        reporter = TrialReporter(
            self._reporter,
            trial,
            self._messages,
            best_score=lambda: self._best_score(run),
            goes_on=goes_on,
            last_report=self._trials()[trial.number].last_step or 0,
        )
        state = self._train_trial(trial, self.config_of(trial.number, values), reporter)
        score = self._best_score(run)

        # Put the score first, because TensorBoard shows only the first columns.
        columns = dict(values)
        if score is not None:
            columns = {f"best validation {self._monitor}": score} | columns
        show_in_run_table(run, columns, warn=self._reporter.warning)

        # Optuna expects a score of complete trials only.
        value = score if state is TrialState.COMPLETE else None
        # A process that has seen this trial unfinished must not find it unlocked after its end.
        with self._choosing_a_trial():
            self._study.tell(trial, value, state=state)

        # Now that the trial is recorded, remove the files that were kept to resume it.
        shutil.rmtree(run / "checkpoints", ignore_errors=True)
        shutil.rmtree(run / "pretrained", ignore_errors=True)

        result = _result(self._trials()[trial.number])
        is_best = self.best is not None and self.best.number == trial.number
        return replace(result, score=score, is_best=is_best)

    def _train_trial(self, trial: Trial, config: Config, reporter: Reporter) -> TrialState:
        """Train a trial; a `DivergedError` is raised only of trial 0, the unchanged config."""
        try:
            train(
                config,
                run_dir=self.trial_folder(trial.number),
                device=self._device,
                resume=True,
                with_report=False,
                reporter=reporter,
            )
        except PrunedTrialError:
            return TrialState.PRUNED
        except DivergedError:
            if trial.number == 0:
                raise
            return TrialState.FAIL

        return TrialState.COMPLETE

    def _best_score(self, run: Path) -> float | None:
        scores = []
        for row in read_metrics(run / "metrics.jsonl"):
            if row["split"] == "validation" and self._monitor in row:
                scores.append(float(row[self._monitor]))

        if not scores:
            return None
        return min(scores) if self._minimizes else max(scores)

    # The trainings after the search

    def trained_again(self, number: int) -> Path:
        """The run folder in which a trial is trained again, with a report."""
        return self.folder / f"trained-{number:03}"

    def train_again(self, best: TrialResult) -> bool:
        """Train the best trial and the unchanged config again, unless another process does."""
        for number in sorted({best.number, 0}, reverse=True):
            run = self.trained_again(number)
            # A training writes the model card last.
            if (run / "model" / "README.md").is_file():
                continue

            reporter = TrainingReporter(self._reporter, run.name, self._messages)
            try:
                with self._lock(run):
                    self._reporter.note(f"training {run}, with a report")
                    train(
                        self.config_of(number, best.values),
                        run_dir=run,
                        device=self._device,
                        resume=True,
                        reporter=reporter,
                    )
            except LockedError:
                self._reporter.note(
                    f"{run}: another process of this search is training here, and will write the "
                    "report"
                )
                return False
        return True

    def report_on(self, best: TrialResult) -> Report:
        """Score the best trial, trained again, and compare it with the unchanged config."""
        against = None
        if best.number > 0:
            against = self.trained_again(0)
        return evaluate(self.trained_again(best.number), against=against)


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
