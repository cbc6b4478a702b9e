"""Hyperparameter search with Optuna.

Trials are compared by validation alone. Several processes may share a search through a journal in
its folder; the trial of a killed process is resumed by the next one that needs a trial.

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

from encoder_cls.config.loading import config_of
from encoder_cls.config.schema import Config
from encoder_cls.encoder.batches import derive_seed
from encoder_cls.errors import ConfigError, DivergedError
from encoder_cls.metrics.scores import SCORES
from encoder_cls.run.metrics_log import MetricsLog
from encoder_cls.run.run_folder import RunDir, dotted_values, read_metrics
from encoder_cls.system.files import LockedError, reporting_os_errors
from encoder_cls.system.reporter import SILENT, Reporter
from encoder_cls.training.prepare import prepare
from encoder_cls.training.prepared import Prepared
from encoder_cls.training.train import train
from encoder_cls.tuning.search_space import search_space, suggested_values
from encoder_cls.tuning.study import open_study
from encoder_cls.tuning.trial_reporter import (
    PrunedTrialError,
    SearchReporter,
    TrainingReporter,
    TrialReporter,
)

# A file that a process locks while it chooses a trial.
LOCK = "study.lock"
# Trials before Optuna's sampler models which values are good.
RANDOM_TRIALS = 5
# A step beyond the last one of any run.
AFTER_ALL_STEPS = 1 << 62


@dataclass(frozen=True, kw_only=True)
class TrialResult:
    """A trial that has ended.

    Attributes:
        number: 0 is the config as it is.
        values: by config key.
        score: the best validation, by `train.monitor`; in `Search.results`, None unless the trial
            is complete.
        state: `complete`, `pruned`, or `fail` where it diverged.
        seconds: from start to end, pauses included.
        is_best: whether it was the best complete trial when it ended.
    """

    number: int
    values: Mapping[str, Any]
    score: float | None
    state: str
    seconds: float
    is_best: bool = False


class Search:
    """A new or resumed search in a folder, over the config's section `tune` or `DEFAULT_SPACE`.

    Raises:
        ConfigError: the space does not fit the config, or the folder has a search of another one.
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
            self._lock = FileLock(folder / LOCK)
        with self._locked():
            self._study = open_study(folder, minimizes=not self._monitor.higher_is_better)
            self._check_config(config)

    @contextmanager
    def _locked(self) -> Iterator[None]:
        """Let no other process of the search choose a trial while the block runs."""
        with reporting_os_errors(self.folder / LOCK), self._lock:
            yield

    def _check_config(self, config: Config) -> None:
        """Record the config of a new search; refuse another one."""
        text = config.to_yaml()
        known_text = self._study.user_attrs.get("config")
        if known_text is None:
            self._study.set_user_attr("config", text)
        elif known_text != text:
            raise ConfigError(
                f"{self.folder}: already holds a search of another config; choose another --run-dir"
            )

    @property
    def best(self) -> TrialResult | None:
        """The best complete trial."""
        if not self._trials(TrialState.COMPLETE):
            return None
        return _result(self._study.best_trial)

    @property
    def results(self) -> list[TrialResult]:
        """The trials that have ended, in their order."""
        return [_result(trial) for trial in self._trials() if trial.state.is_finished()]

    def config_of(self, number: int, values: Mapping[str, Any]) -> Config:
        """The config of a trial with these values; the first trial has the config of the search."""
        if number == 0:
            return self._base
        return config_of(values, source=f"{self.folder}", base=self._base)

    # Trials

    def trials(self, has_time: Callable[[], bool]) -> Iterator[TrialResult]:
        """Run trials while there is time; one that runs out of it is pruned, except the first.

        Raises:
            StoppedError: a signal asked to stop; the next search resumes the trial.
        """
        while not self._trials(TrialState.COMPLETE) or has_time():
            with ExitStack() as held:
                with self._locked():
                    trial, run = self._next_trial()
                    held.enter_context(run.lock())
                yield self._run_trial(trial, run, has_time)

    def _next_trial(self) -> tuple[Trial, RunDir]:
        """An unfinished trial that no process trains, or a new one."""
        for unfinished in self._trials(TrialState.RUNNING):
            run = self._run_of(unfinished.number)
            # Where it is locked, another process trains it.
            with suppress(LockedError), run.lock():
                return Trial(self._study, unfinished._trial_id), run

        number = len(self._trials())
        if number == 0:
            own_values = dotted_values(self._base)
            self._study.enqueue_trial({key: own_values[key] for key in self._space})

        # What is chosen is a function of the seed, the number and the results so far.
        self._study.sampler = optuna.samplers.TPESampler(
            n_startup_trials=RANDOM_TRIALS, seed=derive_seed(self._base.seed, number)
        )
        trial = self._study.ask()
        return trial, self._run_of(trial.number)

    def _run_trial(self, trial: Trial, run: RunDir, has_time: Callable[[], bool]) -> TrialResult:
        """Train a trial to its end, or until it is pruned, and record it in the study."""
        values = suggested_values(trial, self._space)
        reporter = TrialReporter(
            self._reporter,
            trial,
            best_score=lambda: self._best_score(run),
            has_time=has_time,
            last_report=self._trials()[trial.number].last_step or 0,
        )
        prepared = prepare(self.config_of(trial.number, values), reporter=reporter)
        prepared.report_warnings(reporter)
        if prepared.plan.training:
            reporter.epochs = prepared.plan.training.epochs

        state = self._train_trial(trial, run, prepared, reporter)
        score = self._best_score(run)
        self._show_in_tensorboard(run, prepared, values, score)

        value = score if state is TrialState.COMPLETE else None
        self._study.tell(trial, value, state=state)

        # These are needed to resume a trial until it is recorded.
        shutil.rmtree(run.checkpoints, ignore_errors=True)
        shutil.rmtree(run.pretrained, ignore_errors=True)

        result = _result(self._trials()[trial.number])
        is_best = self.best is not None and self.best.number == trial.number
        return replace(result, score=score, is_best=is_best)

    def _train_trial(
        self, trial: Trial, run: RunDir, prepared: Prepared, reporter: Reporter
    ) -> TrialState:
        """Train a trial.

        Returns:
            How it ended.

        Raises:
            DivergedError: the first trial, which is the config as it is, has diverged.
        """
        try:
            train(
                prepared,
                run,
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

    def _best_score(self, run: RunDir) -> float | None:
        """The best validation of a run's model, None before the first one."""
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
        """Add the values and the score of a trial to its metrics for TensorBoard."""
        # The score comes first: TensorBoard shows the first columns.
        shown_values = dict(values)
        if score is not None:
            shown_values = {f"best validation {self._monitor.key}": score} | shown_values

        all_rows = {
            "data": AFTER_ALL_STEPS,
            "train": AFTER_ALL_STEPS,
            "validation": AFTER_ALL_STEPS,
        }
        with MetricsLog(
            run,
            prepared.config,
            prepared.dataset.label_names,
            resume_after=all_rows,
            warn=self._reporter.warning,
        ) as log:
            assert log.tensorboard
            log.tensorboard.show_hparams(shown_values)

    def _trials(self, *states: TrialState) -> list[FrozenTrial]:
        """All trials, or those in some states, in their order."""
        return self._study.get_trials(deepcopy=False, states=states or None)

    def _run_of(self, number: int) -> RunDir:
        return RunDir(self.folder / "trials" / f"{number:03}")

    # The trainings at the end

    def trained_again(self, number: int) -> RunDir:
        """The run folder in which a trial is trained again, with a report."""
        return RunDir(self.folder / f"trained-{number:03}")

    def train_again(self, best: TrialResult) -> bool:
        """Train a trial and the unchanged config again, with reports.

        Returns:
            False if another process of the search does so.
        """
        for number in sorted({best.number, 0}, reverse=True):
            run = self.trained_again(number)
            if run.is_finished():
                continue

            self._reporter.note(f"training {run.path}, to its report")
            reporter = TrainingReporter(self._reporter, run.path.name)
            try:
                with run.lock():
                    prepared = prepare(self.config_of(number, best.values), reporter=reporter)
                    train(prepared, run, device=self._device, resume=True, reporter=reporter)
            except LockedError:
                self._reporter.note(
                    f"{run.path}: another process of this search trains here, and will report"
                )
                return False
        return True


def _result(trial: FrozenTrial) -> TrialResult:
    """The result of a trial of Optuna, with its score if it is complete."""
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
