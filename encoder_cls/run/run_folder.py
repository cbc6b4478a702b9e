"""The run folder.

config.yaml     the resolved config, with absolute paths of the data
model/          the portable classifier with the best validation score
checkpoints/    training state to resume from
held_out_answers.safetensors   see `evaluation.held_out_answers`
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
DATA_KEYS = ("data.train", "data.validation", "data.test", "data.unlabelled")
CACHE_KEY = "data.cache"  # its place changes nothing


class RunDir:
    """A run folder, which need not exist yet."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.config_file = path / "config.yaml"  # a folder with it is a run
        self.sources_file = path / SOURCES_FILE
        self.model = path / "model"
        self.weights = self.model / "model.safetensors"  # written last of the classifier
        self.model_card = self.model / "README.md"  # written last of all: the run is complete
        self.pretrained = path / "pretrained"  # the best weights of pretraining, until the run ends
        self.checkpoints = path / "checkpoints"
        self.held_out_answers = path / "held_out_answers.safetensors"
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
        """Load the config that the run was started with; `ConfigError` if it cannot be read."""
        from encoder_cls.config.loading import load_config

        return load_config(self.config_file)

    def check_trainable(self, config: Config, *, resume: bool) -> None:
        """Raise a `ConfigError` if training in this folder would overwrite something."""
        if self.is_run():
            if not resume:
                raise ConfigError(
                    f"{self.path}: already holds a run; add --resume to go on with it, or choose another --run-dir"
                )
            if changed := self._changed(config):
                again = f"train --run-dir {quote(str(self.path))} --resume"
                raise ConfigError(
                    f"{self.config_file}: the run was started with another {', '.join(changed)}; without --config and "
                    f"--set it goes on as it was ({again}), or choose another --run-dir"
                )
        elif self.path.exists() and not self.path.is_dir():
            raise ConfigError(f"{self.path}: is a file; choose another --run-dir")
        elif self.path.is_dir():
            names = {path.name for path in self.path.iterdir()} - {LOCK_FILE, SOURCES_FILE}
            if not all(
                name.startswith(TEMPORARY_PREFIX) for name in names
            ):  # left by a killed process
                raise ConfigError(f"{self.path}: holds other files; choose another --run-dir")

    def _changed(self, config: Config) -> list[str]:
        """The keys whose values differ from those of the run; data that is gone may have another path now."""
        from encoder_cls.config.data_paths import absolute_sources, source_exists

        started = absolute_sources(self.load_config())
        values, others = dotted_values(started), dotted_values(absolute_sources(config))
        changed = sorted(
            name for name in values.keys() | others.keys() if values.get(name) != others.get(name)
        )
        moved = {
            f"data.{key}"
            for key, source in started.data
            if isinstance(source, str) and not source_exists(source)
        }
        return [
            name
            for name in changed
            if name != CACHE_KEY and not (name in DATA_KEYS and name in moved)
        ]

    def record_sources(self, config: Config) -> None:
        """Write the config and the paths of the data, which the caller has compared with the data of the run."""
        from encoder_cls.config.data_paths import absolute_sources

        located = absolute_sources(config)
        if not (self.is_run() and self.sources_file.exists()) or located != self.load_config():
            sources = {"data": self._sources(located), "from_run": located.from_run}
            write_file(self.sources_file, to_json(sources))
            # The last: a folder with it is a run.
            write_file(self.config_file, located.to_yaml().encode())

    def data_sources(self) -> list[str]:
        """The paths of the run's data; none if they cannot be read."""
        with suppress(EncoderClsError, ValueError, KeyError, TypeError):
            if self.is_run() and not self.sources_file.exists():  # a run of an earlier version
                with suppress(ConfigError, ImportError):
                    return self._sources(self.load_config())
            return [str(source) for source in read_json(self.sources_file)["data"]]
        return []

    @staticmethod
    def _sources(config: Config) -> list[str]:
        from encoder_cls.config.data_paths import SOURCES

        data = config.data.model_dump()
        return [data[key] for key in SOURCES if data[key]]

    @contextmanager
    def lock(self) -> Iterator[None]:
        """Lock the folder for this process; the system releases the lock however the process ends.

        May be nested. Folders made for the lock are removed if nothing else was written into them.

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
                with suppress(OSError):
                    if [path.name for path in self.path.iterdir()] == [LOCK_FILE]:
                        (self.path / LOCK_FILE).unlink()
                    for folder in made:
                        folder.rmdir()

    @contextmanager
    def open_for_training(self, config: Config, *, resume: bool) -> Iterator[None]:
        """Lock the folder, write the config into it, and remove files that a killed process left unfinished.

        Raises the errors of `check_trainable` and `lock`.
        """
        self.check_trainable(config, resume=resume)
        with self.lock():
            # Another process may have trained here meanwhile.
            self.check_trainable(config, resume=resume)
            for folder in (
                self.path,
                self.model,
                self.checkpoints,
                self.eval,
                self.pretrained,
            ):
                remove_leftovers(folder)
            if not self.is_run():
                self.record_sources(config)
            yield


def run_of(path: Path) -> RunDir | None:
    """The run of a run folder or of its model folder; None for other model folders.

    A run has metrics, too: other programs may have a config.yaml beside a model.
    """
    run, parent = RunDir(path), RunDir(path.resolve().parent)
    if run.is_run() and run.metrics_file.is_file():
        return run
    is_model = parent.model.resolve() == path.resolve()
    return parent if is_model and parent.is_run() and parent.metrics_file.is_file() else None


def newest_with_model(runs: Path) -> RunDir:
    """The run with the newest model in a folder of runs, finished or not; `ConfigError` if none has a model."""
    with_model = [run for path in runs.glob("*") if (run := RunDir(path)).weights.is_file()]
    if not with_model:
        raise ConfigError(
            f"no run with a model in {runs.resolve()}; train one, or name a model with --model"
        )
    return max(with_model, key=lambda run: run.weights.stat().st_mtime_ns)


def read_metrics(metrics_file: Path) -> list[dict[str, Any]]:
    """Read the rows of `metrics.jsonl`, except lines that are not rows, such as a last one cut by a crash."""
    with reporting_os_errors(metrics_file, "read"):
        content = metrics_file.read_bytes() if metrics_file.exists() else b""
    rows = []
    # `splitlines` would cut at characters that a class name may hold, too.
    for line in content.split(b"\n"):
        with suppress(ValueError, RecursionError):
            rows.append(json.loads(line.decode()))
    return [row for row in rows if _is_row(row)]


def _is_row(value: Any) -> bool:
    """Whether a JSON value is a row of metrics: an object with a step and a split."""
    if not isinstance(value, dict):
        return False
    return isinstance(value.get("step"), int) and isinstance(value.get("split"), str)


def dotted_values(config: Config) -> dict[str, Any]:
    """All values of a config by dotted key."""

    def dotted(values: dict[str, Any], prefix: str) -> dict[str, Any]:
        flat: dict[str, Any] = {}
        for key, value in values.items():
            flat |= (
                dotted(value, f"{prefix}{key}.")
                if isinstance(value, dict)
                else {prefix + key: value}
            )
        return flat

    return dotted(config.model_dump(mode="json"), "")
