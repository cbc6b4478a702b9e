"""The run folder.

config.yaml     the resolved config, with absolute paths of the data
model/          the portable classifier with the best validation score
checkpoints/    training state to resume from
held_out_predictions.safetensors   see `evaluation.held_out_predictions`
metrics.jsonl   every logged number
eval/           report, predictions, mistakes, plot of the confusion matrix
sources.json    the paths of the data and of the base run, for programs without a YAML parser
events.out.tfevents.*   what TensorBoard shows
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from shlex import quote
from typing import TYPE_CHECKING, Any

from encoder_cls.errors import ConfigError, EncoderClsError
from encoder_cls.system.files import (
    TEMPORARY_PREFIX,
    locked,
    read_json,
    remove_leftovers,
    reporting_os_errors,
    to_json,
    write_file,
)

if TYPE_CHECKING:
    from encoder_cls.config.schema import Config

LOCK_FILE = ".lock"
SOURCES_FILE = "sources.json"


class RunDir:
    """A run folder, which need not exist yet."""

    def __init__(self, path: Path) -> None:
        self.path = path

        # A folder with a config is a run.
        self.config_file = path / "config.yaml"
        self.sources_file = path / SOURCES_FILE

        # The weights are written last of the classifier, the card last of all: the run is complete.
        self.model = path / "model"
        self.weights = self.model / "model.safetensors"
        self.model_card = self.model / "README.md"

        # The best weights of pretraining, until the run ends.
        self.pretrained = path / "pretrained"

        self.checkpoints = path / "checkpoints"
        self.held_out_predictions = path / "held_out_predictions.safetensors"
        self.metrics_file = path / "metrics.jsonl"
        self.eval = path / "eval"
        self._is_held = False

    @property
    def event_files(self) -> list[Path]:
        """The files that TensorBoard reads; it names the run after their folder."""
        return sorted(self.path.glob("events.out.tfevents.*"))

    def is_run(self) -> bool:
        """Whether a run was started here."""
        return self.config_file.is_file()

    def is_finished(self) -> bool:
        """Whether the run is complete."""
        return self.model_card.is_file()

    def load_config(self) -> Config:
        """Load the config that the run was started with.

        Raises:
            ConfigError: it cannot be read.
        """
        from encoder_cls.config.loading import load_config

        return load_config(self.config_file)

    def check_trainable(self, config: Config, *, resume: bool) -> None:
        """Raise a `ConfigError` if training in this folder would overwrite something."""
        if self.is_run():
            self._check_resumable(config, resume=resume)
        elif self.path.is_dir():
            self._check_has_no_other_files()
        elif self.path.exists():
            raise ConfigError(f"{self.path}: is a file; choose another --run-dir")

    def _check_resumable(self, config: Config, *, resume: bool) -> None:
        """Raise a `ConfigError` if this run is not to be resumed with this config."""
        if not resume:
            raise ConfigError(
                f"{self.path}: already holds a run; add --resume to go on with it, or choose "
                "another --run-dir"
            )

        changed = changed_keys(self.load_config(), config)
        if changed:
            again = f"train --run-dir {quote(str(self.path))} --resume"
            raise ConfigError(
                f"{self.config_file}: the run was started with another {', '.join(changed)}; "
                f"without --config and --set it goes on as it was ({again}), or choose another "
                "--run-dir"
            )

    def _check_has_no_other_files(self) -> None:
        """Raise a `ConfigError` if the folder holds more than a killed process may have left."""
        for path in self.path.iterdir():
            is_own = path.name in {LOCK_FILE, SOURCES_FILE}
            if not is_own and not path.name.startswith(TEMPORARY_PREFIX):
                raise ConfigError(f"{self.path}: holds other files; choose another --run-dir")

    def record_sources(self, config: Config) -> None:
        """Write the config and the paths of the data, which must be the data of the run."""
        from encoder_cls.config.data_paths import absolute_sources

        located = absolute_sources(config)
        is_recorded = self.is_run() and self.sources_file.exists()
        if is_recorded and located == self.load_config():
            return

        sources = {"data": _sources(located), "from_run": located.from_run}
        write_file(self.sources_file, to_json(sources))
        # The config comes last: a folder with it is a run.
        write_file(self.config_file, located.to_yaml().encode())

    def data_sources(self) -> list[str]:
        """The paths of the run's data; none if they cannot be read."""
        try:
            return [str(source) for source in read_json(self.sources_file)["data"]]
        except (EncoderClsError, ValueError, KeyError, TypeError):
            return []

    @contextmanager
    def lock(self) -> Iterator[None]:
        """Lock the folder for this process; the system releases the lock however the process ends.

        Locks may be nested. Folders made for the lock are removed if nothing else was written into
        them.

        Raises:
            LockedError: another process trains here.
            EncoderClsError: the disk refuses.
        """
        if self._is_held:
            yield
            return

        made = [folder for folder in (self.path, *self.path.parents) if not folder.exists()]
        with reporting_os_errors(self.path):
            self.path.mkdir(parents=True, exist_ok=True)
        with locked(self.path / LOCK_FILE, wait=False, doing="training"):
            self._is_held = True
            try:
                yield
            finally:
                self._is_held = False
                self._remove_if_unused(made)

    def _remove_if_unused(self, made: list[Path]) -> None:
        """Remove the lock and the folders made for it if nothing else is there.

        `made` has the innermost folder first.
        """
        with suppress(OSError):
            names = [path.name for path in self.path.iterdir()]
            if names == [LOCK_FILE]:
                (self.path / LOCK_FILE).unlink()
            # A folder that is not empty is refused, which ends this.
            for folder in made:
                folder.rmdir()

    @contextmanager
    def open_for_training(self, config: Config, *, resume: bool) -> Iterator[None]:
        """Lock the folder, and write the config into it.

        Files that a killed process left unfinished are removed. Errors are those of
        `check_trainable` and `lock`.
        """
        self.check_trainable(config, resume=resume)
        with self.lock():
            # Another process may have trained here meanwhile.
            self.check_trainable(config, resume=resume)

            folders = (self.path, self.model, self.checkpoints, self.eval, self.pretrained)
            for folder in folders:
                remove_leftovers(folder)
            if not self.is_run():
                self.record_sources(config)
            yield


def run_of(path: Path) -> RunDir | None:
    """The run of a run folder or of its model folder; None for other model folders.

    A run has metrics, too: other programs may have a config.yaml beside a model.
    """
    run = RunDir(path)
    if run.is_run() and run.metrics_file.is_file():
        return run

    parent = RunDir(path.resolve().parent)
    is_model = parent.model.resolve() == path.resolve()
    if is_model and parent.is_run() and parent.metrics_file.is_file():
        return parent
    return None


def newest_with_model(runs: Path) -> RunDir:
    """The run with the newest model in a folder of runs, finished or not.

    Raises:
        ConfigError: none has a model.
    """
    all_runs = [RunDir(path) for path in runs.glob("*")]
    with_model = [run for run in all_runs if run.weights.is_file()]
    if not with_model:
        raise ConfigError(
            f"no run with a model in {runs.resolve()}; train one, or name a model with --model"
        )
    return max(with_model, key=lambda run: run.weights.stat().st_mtime_ns)


def read_metrics(metrics_file: Path) -> list[dict[str, Any]]:
    """Read the rows of `metrics.jsonl`; none if there is no such file.

    Lines that are not rows are left out, such as a last one cut by a crash.
    """
    if not metrics_file.exists():
        return []
    with reporting_os_errors(metrics_file, "read"):
        content = metrics_file.read_bytes()

    rows = []
    # `splitlines` would cut at characters that a class name may hold, too.
    for line in content.split(b"\n"):
        with suppress(ValueError, RecursionError):
            value = json.loads(line.decode())
            if _is_row(value):
                rows.append(value)
    return rows


def _is_row(value: Any) -> bool:
    """Whether a JSON value is a row of metrics: an object with a step and a split."""
    if not isinstance(value, dict):
        return False
    return isinstance(value.get("step"), int) and isinstance(value.get("split"), str)


def _sources(config: Config) -> list[str]:
    """The paths of the data of a config."""
    from encoder_cls.config.data_paths import SOURCES

    data = config.data.model_dump()
    return [data[key] for key in SOURCES if data[key]]


def dotted_values(config: Config) -> dict[str, Any]:
    """All values of a config by dotted key."""
    flat: dict[str, Any] = {}

    def add(values: dict[str, Any], prefix: str) -> None:
        for key, value in values.items():
            if isinstance(value, dict):
                add(value, f"{prefix}{key}.")
            else:
                flat[prefix + key] = value

    add(config.model_dump(mode="json"), "")
    return flat


# The data may be moved while a run is not in training.
DATA_KEYS = ("data.train", "data.validation", "data.test", "data.unlabelled")
# The place of the cache changes nothing.
CACHE_KEY = "data.cache"


def changed_keys(started: Config, config: Config) -> list[str]:
    """The dotted keys with another value than the run was started with, sorted.

    Data that is gone from its place may have another one now.
    """
    from encoder_cls.config.data_paths import absolute_sources, source_exists

    located = absolute_sources(started)
    values = dotted_values(located)
    new_values = dotted_values(absolute_sources(config))

    moved = set()
    for key, source in located.data:
        if isinstance(source, str) and not source_exists(source):
            moved.add(f"data.{key}")

    changed = []
    for key in sorted(values.keys() | new_values.keys()):
        may_differ = key == CACHE_KEY or (key in DATA_KEYS and key in moved)
        if values.get(key) != new_values.get(key) and not may_differ:
            changed.append(key)
    return changed
