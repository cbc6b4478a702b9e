"""Hyperparameter search with Optuna.

Trials are judged by validation alone. The study is kept in a journal in the search's folder, which several processes
may share; a trial whose process was killed is gone on with by the next one that looks for a trial.

Akiba et al., "Optuna: A Next-generation Hyperparameter Optimization Framework", 2019, https://arxiv.org/abs/1907.10902.
"""

from __future__ import annotations

import os
import shutil
import warnings
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, closing, contextmanager
from dataclasses import dataclass, replace
from math import ceil
from pathlib import Path
from typing import Any

import optuna
import torch
from optuna.storages.journal import JournalFileBackend, JournalFileSymlinkLock
from optuna.trial import FrozenTrial, Trial, TrialState

from encoder_cls.config import Config, SearchRange, config_of
from encoder_cls.errors import ConfigError, DivergedError
from encoder_cls.system.files import reporting_os_errors
from encoder_cls.system.locks import LockedError
from encoder_cls.tracking.metric_log import MetricLog
from encoder_cls.tracking.rows import read_metrics
from encoder_cls.tracking.run_dir import RunDir
from encoder_cls.training.encoder.batches import derive_seed
from encoder_cls.training.events import Validated
from encoder_cls.training.prepare import prepare
from encoder_cls.training.prepared import Prepared
from encoder_cls.training.run import train

Choices = SearchRange | tuple[Any, ...]
DEFAULT_SPACE: dict[str, Choices] = {
    "train.learning_rate": SearchRange(low=3e-4, high=3e-3, log=True),
    "train.batch_size": (32, 64, 128),
    "train.word_dropout": SearchRange(low=0.0, high=0.5),
    "train.rdrop_weight": (0.0, 1.0, 3.0),
    "model.dropout": SearchRange(low=0.0, high=0.3),
}
STUDY, JOURNAL, LOCK, TRIALS = "tune", "study.journal", "study.lock", "trials"
RANDOM_TRIALS = 5  # before the sampler models what is good
TRIALS_BEFORE_PRUNING = 4
REPORTS = 10  # validations of a trial that pruning compares: at each tenth of its steps
FIRST_REPORT_COMPARED = 3
ALL_STEPS = 1 << 62


@dataclass(frozen=True, kw_only=True)
class TrialResult:
    """A trial that has ended.

    Attributes:
        number: of the trial; 0 is the config as it is.
        values: what it was trained with, by config key.
        score: its best validation, by `train.monitor`; none: it has none.
        state: `complete`, `pruned`, or `fail` where it diverged.
        seconds: from its beginning to its end, of a trial that was gone on with the pause, too.
        is_best: whether it is the best complete trial so far.
    """

    number: int
    values: Mapping[str, Any]
    score: float | None
    state: str
    seconds: float
    is_best: bool = False


class Search:
    """A search in a folder, begun or gone on with.

    Args:
        config: where it begins; its section `tune` is the space, or else `DEFAULT_SPACE`.
        folder: of the search.
        device: where to train.

    Raises:
        ConfigError: a value of the space is none for the config; or the folder has a search of another config.
    """

    def __init__(self, config: Config, folder: Path, *, device: torch.device) -> None:
        self.folder = folder
        self._base = config.model_copy(update={"tune": {}})
        self._space = search_space(config)
        self._device = device
        self._monitor = config.train.monitor
        optuna.logging.set_verbosity(optuna.logging.WARNING)
        with reporting_os_errors(folder):
            folder.mkdir(parents=True, exist_ok=True)
        with self._alone(), warnings.catch_warnings():
            warnings.simplefilter("ignore", optuna.exceptions.ExperimentalWarning)
            self._study = optuna.create_study(
                storage=optuna.storages.JournalStorage(
                    JournalFileBackend(str(folder / JOURNAL), lock_obj=_JournalLock(folder / JOURNAL))
                ),
                study_name=STUDY,
                direction="minimize" if self._monitor == "loss" else "maximize",
                pruner=optuna.pruners.MedianPruner(
                    n_startup_trials=TRIALS_BEFORE_PRUNING, n_warmup_steps=FIRST_REPORT_COMPARED
                ),
                load_if_exists=True,
            )
            self._check_config(config)

    @property
    def best(self) -> TrialResult | None:
        """The best complete trial."""
        complete = self._study.get_trials(deepcopy=False, states=(TrialState.COMPLETE,))
        return _result(self._study.best_trial) if complete else None

    @property
    def results(self) -> list[TrialResult]:
        """The trials that have ended, in their order."""
        return [_result(trial) for trial in self._study.get_trials(deepcopy=False) if trial.state.is_finished()]

    def config_of(self, number: int, values: Mapping[str, Any]) -> Config:
        """The config of a trial with these values; that of the first is the one that the search begins with."""
        return config_of(values if number else {}, source=f"{self.folder}", base=self._base)

    def trained_again(self, number: int) -> RunDir:
        """Where the config of a trial is trained again, to its report."""
        return RunDir(self.folder / f"trained-{number:03}")

    def trials(self, has_time: Callable[[], bool]) -> Iterator[TrialResult]:
        """Make one trial after the other while there is time; one that it ends is pruned.

        The first trial, which all others are measured by, is always trained to its end.

        Raises:
            StoppedError: a signal asked to stop; the trial is gone on with when the search is.
            DataError: there is no data to train on.
            ConfigError: there is nothing to validate on.
        """
        while not self._study.get_trials(deepcopy=False, states=(TrialState.COMPLETE,)) or has_time():
            with ExitStack() as held:
                with self._alone():
                    trial, run = self._next_trial()
                    held.enter_context(run.lock())
                yield self._finished(trial, run, has_time)

    def _finished(self, trial: Trial, run: RunDir, has_time: Callable[[], bool]) -> TrialResult:
        """Train a trial to its end, or until it is pruned, and tell the study of it."""
        values = {key: _suggested(trial, key, choices) for key, choices in self._space.items()}
        prepared, state = prepare(self.config_of(trial.number, values)), TrialState.COMPLETE
        try:
            if not self._train(trial, run, prepared, has_time):
                state = TrialState.PRUNED
        except DivergedError:
            if trial.number == 0:
                raise
            state = TrialState.FAIL
        score = self._best_score(read_metrics(run.metrics_file))
        if state is TrialState.COMPLETE and score is None:
            raise ConfigError("nothing tells which values are best: no validation text has a label")
        self._show(run, prepared, values, score)
        self._study.tell(trial, score if state is TrialState.COMPLETE else None, state=state)
        for folder in (run.checkpoints, run.stages):  # which only a trial that is not told of yet would need
            shutil.rmtree(folder, ignore_errors=True)
        best = self.best
        is_best = best is not None and best.number == trial.number
        return replace(_result(self._stored(trial)), score=score, is_best=is_best)

    def _train(self, trial: Trial, run: RunDir, prepared: Prepared, has_time: Callable[[], bool]) -> bool:
        """Train; whether to the end."""
        training = prepared.plan.training
        epochs = training.epochs if training else 1
        reported = self._stored(trial).last_step or 0
        events = train(prepared, run, device=self._device, resume=True, with_report=False)
        with closing(events):  # type: ignore[type-var]  # a generator
            for event in events:
                if trial.number > 0 and not has_time():
                    return False
                if not isinstance(event, Validated) or event.stage != "model":
                    continue
                part = ceil(REPORTS * event.epoch / epochs)
                score = self._best_score(read_metrics(run.metrics_file))
                if score is None or part <= reported:
                    continue
                trial.report(score, part)
                reported = part
                if trial.number > 0 and trial.should_prune():
                    return False
        return True

    def _stored(self, trial: Trial) -> FrozenTrial:
        """What the study knows of a trial."""
        return self._study.get_trials(deepcopy=False)[trial.number]

    def _best_score(self, rows: list[dict[str, Any]]) -> float | None:
        """The best of the validations of the model."""
        scores = [row[self._monitor] for row in rows if row["split"] == "validation" and self._monitor in row]
        if not scores:
            return None
        return float(min(scores) if self._monitor == "loss" else max(scores))

    def _show(self, run: RunDir, prepared: Prepared, values: Mapping[str, Any], score: float | None) -> None:
        """Show a trial in TensorBoard, with its values in the table of hyperparameters."""
        log = MetricLog(
            metrics_file=run.metrics_file,
            tensorboard=run.tensorboard,
            resume_after=dict.fromkeys(("data", "train", "validation"), ALL_STEPS),
            config_text=prepared.config.to_yaml(),
            label_names=prepared.dataset.label_names,
            warn=lambda _: None,
        )
        with log:
            # The dashboard shows the first columns by name: what came of it is to be one of these.
            found = {} if score is None else {f"best validation {self._monitor}": score}
            log.hparams({**found, **values})

    def _next_trial(self) -> tuple[Trial, RunDir]:
        """A trial that nobody works on any more, or a new one."""
        for frozen in self._study.get_trials(deepcopy=False, states=(TrialState.RUNNING,)):
            run = self._run_of(frozen.number)
            try:
                with run.lock():
                    return Trial(self._study, frozen._trial_id), run
            except LockedError:
                continue  # another process trains it
        number = len(self._study.get_trials(deepcopy=False))
        if number == 0:
            self._study.enqueue_trial({key: value_of(self._base, key) for key in self._space})
        self._study.sampler = optuna.samplers.TPESampler(
            n_startup_trials=RANDOM_TRIALS, seed=derive_seed(self._base.seed, number)
        )
        trial = self._study.ask()
        return trial, self._run_of(trial.number)

    def _run_of(self, number: int) -> RunDir:
        return RunDir(self.folder / TRIALS / f"{number:03}")

    def _check_config(self, config: Config) -> None:
        """Make sure that the folder has no search of another config."""
        text, known = config.to_yaml(), self._study.user_attrs.get("config")
        if known is None:
            self._study.set_user_attr("config", text)
        elif known != text:
            raise ConfigError(f"{self.folder}: a search of another config is here; name another --run-dir")

    @contextmanager
    def _alone(self) -> Iterator[None]:
        """Wait until no other process looks for a trial."""
        import fcntl  # not on Windows, where nothing is trained either

        with reporting_os_errors(self.folder / LOCK), (self.folder / LOCK).open("w") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            yield


class _JournalLock(JournalFileSymlinkLock):
    """Optuna's lock of a journal to append to, which cuts off a line that a power cut or a full disk has torn."""

    def __init__(self, journal: Path) -> None:
        super().__init__(str(journal))
        self._journal = journal

    def acquire(self) -> bool:
        """Wait for the lock, then look at the last line."""
        is_acquired = super().acquire()
        content = self._journal.read_bytes()
        if not content.endswith(b"\n"):
            os.truncate(self._journal, content.rfind(b"\n") + 1)
        return is_acquired


def search_space(config: Config) -> dict[str, Choices]:
    """What is searched, each with the config's own value in it, since that is where the search begins.

    Raises:
        ConfigError: a key is none of the config, or a value none for it.
    """
    space: dict[str, Choices] = {}
    for key, choices in (config.tune or DEFAULT_SPACE).items():
        own = value_of(config, key)
        if not isinstance(choices, SearchRange):
            space[key] = values = choices if own in choices else (own, *choices)
        elif isinstance(own, int | float):
            low, high = min(choices.low, own), max(choices.high, own)
            space[key], values = choices.model_copy(update={"low": low, "high": high}), (low, high)
        else:
            raise ConfigError(f"tune.{key}: a range is for numbers, and the config's own value is {own!r}; list values")
        for value in values:
            config_of({key: value}, source=f"tune.{key}", base=config)
    return space


def value_of(config: Config, key: str) -> Any:
    """The config's own value of a dotted key.

    Raises:
        ConfigError: there is none.
    """
    found: Any = config.model_dump(mode="json")
    for part in key.split("."):
        if not isinstance(found, dict) or part not in found or part in ("data", "tune"):
            raise ConfigError(f"tune.{key}: no value that can be searched for; write it as section.key")
        found = found[part]
    return found


def _suggested(trial: Trial, key: str, choices: Choices) -> Any:
    """A value of a key, as the sampler has it."""
    if not isinstance(choices, SearchRange):
        return trial.suggest_categorical(key, choices)
    if isinstance(choices.low, int) and isinstance(choices.high, int):
        return trial.suggest_int(key, choices.low, choices.high, log=choices.log)
    return trial.suggest_float(key, choices.low, choices.high, log=choices.log)


def _result(trial: FrozenTrial) -> TrialResult:
    seconds = trial.duration.total_seconds() if trial.duration else 0.0
    score = trial.value if trial.state is TrialState.COMPLETE else None
    return TrialResult(
        number=trial.number, values=trial.params, score=score, state=trial.state.name.lower(), seconds=seconds
    )
