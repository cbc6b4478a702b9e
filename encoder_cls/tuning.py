"""Hyperparameter search with Optuna.

Trials are compared by validation alone. Several processes may share a search through a journal in its folder; the trial
of a killed process is resumed by the next one that needs a trial.

Akiba et al., "Optuna: A Next-generation Hyperparameter Optimization Framework", 2019, https://arxiv.org/abs/1907.10902.
"""

from __future__ import annotations

import os
import shutil
import warnings
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, suppress
from dataclasses import dataclass, replace
from math import ceil
from pathlib import Path
from typing import Any

import optuna
import torch
from filelock import FileLock
from optuna.storages.journal import JournalFileBackend, JournalFileSymlinkLock
from optuna.trial import FrozenTrial, Trial, TrialState

from encoder_cls.config.loading import config_of
from encoder_cls.config.schema import Config, SearchRange
from encoder_cls.encoder.batches import derive_seed
from encoder_cls.errors import ConfigError, DivergedError
from encoder_cls.run.metrics_log import MetricsLog
from encoder_cls.run.run_folder import RunDir, dotted_values, read_metrics
from encoder_cls.system.files import LockedError, reporting_os_errors
from encoder_cls.system.reporter import SILENT, Reporter
from encoder_cls.training.encoder import ON_LABELS
from encoder_cls.training.prepare import prepare
from encoder_cls.training.train import train

Choices = SearchRange | tuple[Any, ...]
DEFAULT_SPACE: dict[str, Choices] = {
    "train.learning_rate": SearchRange(low=3e-4, high=3e-3, log=True),
    "train.batch_size": (32, 64, 128),
    "train.word_dropout": SearchRange(low=0.0, high=0.5),
    "train.rdrop_weight": (0.0, 1.0, 3.0),
    "model.dropout": SearchRange(low=0.0, high=0.3),
}
STUDY, JOURNAL, LOCK = "tune", "study.journal", "study.lock"
RANDOM_TRIALS = 5  # before the sampler models what is good
TRIALS_BEFORE_PRUNING = 4
REPORTS = 10  # validations of a trial that pruning compares: at each tenth of its steps
FIRST_REPORT_COMPARED = 3
ALL_STEPS = 1 << 62


@dataclass(frozen=True, kw_only=True)
class TrialResult:
    """A trial that has ended; number 0 is the config as it is."""

    number: int
    values: Mapping[str, Any]  # by config key
    # The best validation, by `train.monitor`; None unless the trial is complete.
    score: float | None
    state: str  # `complete`, `pruned`, or `fail` where it diverged
    seconds: float  # from start to end, pauses included
    is_best: bool = False  # of the complete trials so far


class Search:
    """A new or resumed search in a folder, over the config's section `tune`, or else `DEFAULT_SPACE`.

    Raises a `ConfigError` where the space does not fit the config, or the folder has a search of another config.
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
        self._reporter = reporter
        self._base, self._space = config.model_copy(update={"tune": {}}), search_space(config)
        self._monitor = config.train.monitor
        optuna.logging.set_verbosity(optuna.logging.WARNING)
        with reporting_os_errors(folder):
            folder.mkdir(parents=True, exist_ok=True)
            self._alone = FileLock(folder / LOCK)  # held while a process chooses a trial
        with reporting_os_errors(folder / LOCK), self._alone, warnings.catch_warnings():
            warnings.simplefilter("ignore", optuna.exceptions.ExperimentalWarning)
            journal = JournalFileBackend(
                str(folder / JOURNAL), lock_obj=_JournalLock(folder / JOURNAL)
            )
            self._study = optuna.create_study(
                storage=optuna.storages.JournalStorage(journal),
                study_name=STUDY,
                direction="minimize" if self._monitor == "loss" else "maximize",
                pruner=optuna.pruners.MedianPruner(
                    n_startup_trials=TRIALS_BEFORE_PRUNING, n_warmup_steps=FIRST_REPORT_COMPARED
                ),
                load_if_exists=True,
            )
            known, text = self._study.user_attrs.get("config"), config.to_yaml()
            if known is None:
                self._study.set_user_attr("config", text)
            elif known != text:
                raise ConfigError(
                    f"{folder}: a search of another config is here; name another --run-dir"
                )

    @property
    def best(self) -> TrialResult | None:
        """The best complete trial."""
        return _result(self._study.best_trial) if self._trials(TrialState.COMPLETE) else None

    @property
    def results(self) -> list[TrialResult]:
        """The trials that have ended, in their order."""
        return [_result(trial) for trial in self._trials() if trial.state.is_finished()]

    def config_of(self, number: int, values: Mapping[str, Any]) -> Config:
        """The config of a trial with these values; the first trial has the config of the search."""
        return config_of(values if number else {}, source=f"{self.folder}", base=self._base)

    def trained_again(self, number: int) -> RunDir:
        """The run folder in which a trial is trained again, with a report."""
        return RunDir(self.folder / f"trained-{number:03}")

    def train_again(self, best: TrialResult) -> bool:
        """Train a trial and the unchanged config again, with reports; False if another process does."""
        for number in sorted({best.number, 0}, reverse=True):
            run = self.trained_again(number)
            if run.is_finished():
                continue
            self._reporter.note(f"training {run.path}, to its report")
            reporter = _PartReporter(self._reporter, run.path.name)
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

    def trials(self, has_time: Callable[[], bool]) -> Iterator[TrialResult]:
        """Run trials while there is time; one that runs out of it is pruned, except the first.

        Raises:
            StoppedError: a signal asked to stop; the next search resumes the trial.
        """
        while not self._trials(TrialState.COMPLETE) or has_time():
            with ExitStack() as held:
                with reporting_os_errors(self.folder / LOCK), self._alone:
                    trial, run = self._next_trial()
                    held.enter_context(run.lock())
                yield self._run_trial(trial, run, has_time)

    def _run_trial(self, trial: Trial, run: RunDir, has_time: Callable[[], bool]) -> TrialResult:
        """Train a trial to its end, or until it is pruned, and record it in the study."""
        values = {key: _suggested(trial, key, choices) for key, choices in self._space.items()}
        reporter = _TrialReporter(self, trial, run, has_time)
        prepared = prepare(self.config_of(trial.number, values), reporter=reporter)
        if prepared.plan.training:
            reporter.epochs = prepared.plan.training.epochs

        state = TrialState.COMPLETE
        try:
            train(
                prepared,
                run,
                device=self._device,
                resume=True,
                with_report=False,
                reporter=reporter,
            )
        except _Pruned:
            state = TrialState.PRUNED
        except DivergedError:
            if trial.number == 0:
                raise
            state = TrialState.FAIL
        score = self.best_score(run)
        all_rows, names = (
            dict.fromkeys(("data", "train", "validation"), ALL_STEPS),
            prepared.dataset.label_names,
        )
        with MetricsLog(
            run, prepared.config, names, resume_after=all_rows, warn=lambda _: None
        ) as log:
            # TensorBoard shows the first columns by name, which is to include the score.
            assert log.tensorboard
            log.tensorboard.show_hparams(
                {**({} if score is None else {f"best validation {self._monitor}": score}), **values}
            )
        self._study.tell(trial, score if state is TrialState.COMPLETE else None, state=state)
        for folder in (
            run.checkpoints,
            run.pretrained,
        ):  # needed to resume a trial until it is recorded
            shutil.rmtree(folder, ignore_errors=True)
        best, stored = self.best, self._trials()[trial.number]
        return replace(
            _result(stored), score=score, is_best=best is not None and best.number == trial.number
        )

    def best_score(self, run: RunDir) -> float | None:
        """The best validation of a run's model."""
        rows = read_metrics(run.metrics_file)
        scores = [
            float(it[self._monitor])
            for it in rows
            if it["split"] == "validation" and self._monitor in it
        ]
        return (min if self._monitor == "loss" else max)(scores, default=None)

    def _next_trial(self) -> tuple[Trial, RunDir]:
        """An unfinished trial that no process trains, or a new one."""
        for frozen in self._trials(TrialState.RUNNING):
            run = self._run_of(frozen.number)
            with suppress(LockedError), run.lock():  # another process trains it
                return Trial(self._study, frozen._trial_id), run
        number = len(self._trials())
        if number == 0:
            own_values = dotted_values(self._base)
            self._study.enqueue_trial({key: own_values[key] for key in self._space})
        self._study.sampler = optuna.samplers.TPESampler(
            n_startup_trials=RANDOM_TRIALS, seed=derive_seed(self._base.seed, number)
        )
        trial = self._study.ask()
        return trial, self._run_of(trial.number)

    def _trials(self, *states: TrialState) -> list[FrozenTrial]:
        """All trials, or those in some states, in their order."""
        return self._study.get_trials(deepcopy=False, states=states or None)

    def _run_of(self, number: int) -> RunDir:
        return RunDir(self.folder / "trials" / f"{number:03}")


class _JournalLock(JournalFileSymlinkLock):
    """Cuts off a line that a power cut or a full disk has torn, before another is appended."""

    def __init__(self, journal: Path) -> None:
        super().__init__(str(journal))
        self._journal = journal

    def acquire(self) -> bool:
        is_acquired = super().acquire()
        content = self._journal.read_bytes()
        if not content.endswith(b"\n"):
            os.truncate(self._journal, content.rfind(b"\n") + 1)
        return is_acquired


def search_space(config: Config) -> dict[str, Choices]:
    """The values to search, which include the config's own; a `ConfigError` if they do not fit the config."""
    space: dict[str, Choices] = {}
    own_values = dotted_values(config)
    for key, choices in (config.tune or DEFAULT_SPACE).items():
        if key not in own_values or key.startswith(("data.", "tune.")):
            raise ConfigError(
                f"tune.{key}: no value that can be searched for; write it as section.key"
            )
        own = own_values[key]
        if not isinstance(choices, SearchRange):
            space[key] = values = choices if own in choices else (own, *choices)
        elif isinstance(own, int | float):
            low, high = min(choices.low, own), max(choices.high, own)
            space[key], values = choices.model_copy(update={"low": low, "high": high}), (low, high)
        else:
            raise ConfigError(
                f"tune.{key}: a range is for numbers, and the config's own value is {own!r}; list values"
            )
        for value in values:
            config_of({key: value}, source=f"tune.{key}", base=config)
    return space


def _suggested(trial: Trial, key: str, choices: Choices) -> Any:
    if not isinstance(choices, SearchRange):
        return trial.suggest_categorical(key, choices)
    if isinstance(choices.low, int) and isinstance(choices.high, int):
        return trial.suggest_int(key, choices.low, choices.high, log=choices.log)
    return trial.suggest_float(key, choices.low, choices.high, log=choices.log)


def _result(trial: FrozenTrial) -> TrialResult:
    return TrialResult(
        number=trial.number,
        values=trial.params,
        score=trial.value if trial.state is TrialState.COMPLETE else None,
        state=trial.state.name.lower(),
        seconds=trial.duration.total_seconds() if trial.duration else 0.0,
    )


class _Pruned(Exception):  # noqa: N818 - no error
    """A trial ends early."""


class _PartReporter(Reporter):
    """Names the work of one training in a search."""

    def __init__(self, reporter: Reporter, name: str) -> None:
        self._reporter = reporter
        self._name = name

    def working(self, what: str) -> None:
        """Name the training, too."""
        self._reporter.working(f"{self._name}: {what}" if what else self._name)

    def encoder_started(self, name: str, *, step: int, total_steps: int) -> None:  # noqa: ARG002
        """Name what the encoder learns."""
        self.working(name)


class _TrialReporter(_PartReporter):
    """Reports the best score of each part of a trial to the study, and ends the trial where it is not worth its time."""

    def __init__(
        self, search: Search, trial: Trial, run: RunDir, has_time: Callable[[], bool]
    ) -> None:
        super().__init__(search._reporter, f"trial {trial.number}")
        self.epochs = 1
        self._search = search
        self._trial = trial
        self._run = run
        self._has_time = has_time
        self._may_end = trial.number > 0
        self._reported = search._trials()[trial.number].last_step or 0

    def step_done(
        self,
        *,
        step: int,  # noqa: ARG002
        epoch: float,  # noqa: ARG002
        loss: float,  # noqa: ARG002
        values: Mapping[str, float] | None,  # noqa: ARG002
    ) -> None:
        """End the trial where the time of the search is over."""
        if self._may_end and not self._has_time():
            raise _Pruned

    def validated(
        self,
        name: str,
        *,
        step: int,  # noqa: ARG002
        epoch: float,
        scores: Mapping[str, float],  # noqa: ARG002
        is_best: bool,  # noqa: ARG002
    ) -> None:
        """Report the best score so far, once for each part of the training."""
        if self._may_end and not self._has_time():
            raise _Pruned
        part = ceil(REPORTS * epoch / self.epochs)
        score = self._search.best_score(self._run)
        if name != ON_LABELS or score is None or part <= self._reported:
            return
        self._reported = part
        self._trial.report(score, part)
        if self._may_end and self._trial.should_prune():
            raise _Pruned
