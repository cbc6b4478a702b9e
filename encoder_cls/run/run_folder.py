"""The run folder and its files.

config.yaml     the resolved config, with the absolute paths of the data
model/          the classifier with the best validation score
checkpoints/    the states of the training, to resume it
held_out_predictions.safetensors   the linear model's predictions for validation (or out-of-fold)
                texts, saved before the final fit that includes these texts
reference.safetensors   figures of the held-out texts, to compare later texts with
metrics.jsonl   every logged number
eval/           the report: scores, predictions, mistakes and plots
sources.json    the paths of the data and of the base run, for programs without a YAML parser
events.out.tfevents.*   the files of TensorBoard
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
    """A run folder, which may not exist yet."""

    def __init__(self, path: Path) -> None:
        self.path = path

        # A folder with a config file is a run.
        self.config_file = path / "config.yaml"
        self.sources_file = path / SOURCES_FILE

        # Of the files of a classifier, the weights are written last, so a folder with weights has a
        # complete classifier. Of all files of a run, the model card is written last, so a folder
        # with a model card has a complete run.
        self.model = path / "model"
        self.weights = self.model / "model.safetensors"
        self.model_card = self.model / "README.md"

        # The best weights of pretraining. They are removed when the run is finished.
        self.pretrained = path / "pretrained"

        self.checkpoints = path / "checkpoints"
        self.held_out_predictions = path / "held_out_predictions.safetensors"
        self.reference = path / "reference.safetensors"
        self.metrics_file = path / "metrics.jsonl"
        self.eval = path / "eval"
        self._is_held = False

    @property
    def event_files(self) -> list[Path]:
        """The files of TensorBoard, in the run folder itself, after which it names the run."""
        return sorted(self.path.glob("events.out.tfevents.*"))

    def is_run(self) -> bool:
        """Whether a run has been started in the folder."""
        return self.config_file.is_file()

    def is_finished(self) -> bool:
        """Whether the run is complete, with its report."""
        return self.model_card.is_file()

    def load_config(self) -> Config:
        """Load the config of the run; a `ConfigError` if it cannot be read."""
        from encoder_cls.config.loading import load_config

        return load_config(self.config_file)

    def check_trainable(self, config: Config, *, resume: bool) -> None:
        """Raise a `ConfigError` if training here would overwrite other files.

        With `resume`, a run may be continued.
        """
        if self.is_run():
            self._check_resumable(config, resume=resume)
        elif self.path.is_dir():
            self._check_has_no_other_files()
        elif self.path.exists():
            raise ConfigError(f"{self.path}: is a file; choose another --run-dir")

    def _check_resumable(self, config: Config, *, resume: bool) -> None:
        if not resume:
            raise ConfigError(
                f"{self.path}: already holds a run; add --resume to continue it, or choose "
                "another --run-dir"
            )

        from encoder_cls.config.changed_keys import changed_keys

        changed = changed_keys(self.load_config(), config)
        if changed:
            command = f"train --run-dir {quote(str(self.path))} --resume"
            raise ConfigError(
                f"{self.config_file}: the run was started with another {', '.join(changed)}; "
                f"continue it without --config and --set ({command}), or choose another --run-dir"
            )
        self._check_keeps_its_model()

    def _check_keeps_its_model(self) -> None:
        """Raise a `ConfigError` if the model of this finished run has been moved away.

        Its newest checkpoint has a state, but no weights.
        """
        from encoder_cls.run.checkpoint_files import files_to_resume, newest_fingerprint

        if self.is_finished():
            return
        if newest_fingerprint(self.checkpoints) and not files_to_resume(self.checkpoints):
            raise ConfigError(
                f"{self.model}: the model of this finished run is missing: bring it back, or train "
                "in another --run-dir"
            )

    def _check_has_no_other_files(self) -> None:
        """Raise a `ConfigError` if the folder has files that no training has written.

        A process that was killed before it wrote the config may have left some of a run.
        """
        for path in self.path.iterdir():
            is_file_of_run = path.name in {LOCK_FILE, SOURCES_FILE}
            if not is_file_of_run and not path.name.startswith(TEMPORARY_PREFIX):
                raise ConfigError(f"{self.path}: holds other files; choose another --run-dir")

    def record_sources(self, config: Config) -> None:
        """Write the config, and the paths of the same data."""
        from encoder_cls.config.data_paths import absolute_sources

        absolute_config = absolute_sources(config)
        is_recorded = self.is_run() and self.sources_file.exists()
        if is_recorded and absolute_config == self.load_config():
            return

        sources = {"data": _sources(absolute_config), "from_run": absolute_config.from_run}
        write_file(self.sources_file, to_json(sources))
        # Write the config last, because it makes the folder a run.
        write_file(self.config_file, absolute_config.to_yaml().encode())

    def data_sources(self) -> list[str]:
        """The paths of the run's data; none if they cannot be read."""
        try:
            return [str(source) for source in read_json(self.sources_file)["data"]]
        except (EncoderClsError, ValueError, KeyError, TypeError):
            return []

    @contextmanager
    def lock(self) -> Iterator[None]:
        """Lock the folder for this process; the system releases it even if the process is killed.

        Locks of one `RunDir` may be nested. Folders that were made for the lock are removed at the
        end if nothing else was written into them.

        Raises:
            LockedError: another process is training in the folder.
            EncoderClsError: the folder cannot be written to.
        """
        if self._is_held:
            yield
            return

        folders = (self.path, *self.path.parents)
        new_folders = [folder for folder in folders if not folder.exists()]
        with reporting_os_errors(self.path):
            self.path.mkdir(parents=True, exist_ok=True)
        with locked(self.path / LOCK_FILE, wait=False, doing="training"):
            self._is_held = True
            try:
                yield
            finally:
                self._is_held = False
                self._remove_if_unused(new_folders)

    def _remove_if_unused(self, new_folders: list[Path]) -> None:
        with suppress(OSError):
            names = [path.name for path in self.path.iterdir()]
            if names == [LOCK_FILE]:
                (self.path / LOCK_FILE).unlink()
            # `rmdir` raises an error for the first folder that is not empty, which ends the loop.
            for folder in new_folders:
                folder.rmdir()

    @contextmanager
    def open_for_training(self, config: Config, *, resume: bool) -> Iterator[None]:
        """Lock the folder, and write the config into it if it has none; see `check_trainable`.

        Raises:
            LockedError: another process is training in the folder.
            EncoderClsError: the folder cannot be written to.
        """
        self.check_trainable(config, resume=resume)
        with self.lock():
            # Check again, because another process may have trained here before this process got the
            # lock.
            self.check_trainable(config, resume=resume)

            folders = (self.path, self.model, self.checkpoints, self.eval, self.pretrained)
            for folder in folders:
                remove_leftovers(folder)
            if not self.is_run():
                self.record_sources(config)
            yield


def run_of(path: Path) -> RunDir | None:
    """The run of a run folder or of its model folder; None without one."""
    # Other programs may have a config.yaml beside a model, but a run also has metrics.
    run = RunDir(path)
    if run.is_run() and run.metrics_file.is_file():
        return run

    parent = RunDir(path.resolve().parent)
    is_model = parent.model.resolve() == path.resolve()
    if is_model and parent.is_run() and parent.metrics_file.is_file():
        return parent
    return None


def newest_with_model(runs: Path) -> RunDir:
    """The run with the newest model, finished or not; a `ConfigError` if there is none."""
    all_runs = [RunDir(path) for path in runs.glob("*")]
    with_model = [run for run in all_runs if run.weights.is_file()]
    if not with_model:
        raise ConfigError(
            f"no run with a model in {runs.resolve()}; train one, or name a model with --model"
        )
    return max(with_model, key=lambda run: run.weights.stat().st_mtime_ns)


def read_metrics(metrics_file: str | Path) -> list[dict[str, Any]]:
    """Read the rows of a `metrics.jsonl`, if there is one, without a line that a crash has cut."""
    metrics_file = Path(metrics_file)
    if not metrics_file.exists():
        return []
    with reporting_os_errors(metrics_file, "read"):
        content = metrics_file.read_bytes()

    # Split at line feeds only: `splitlines` also splits at characters that a class name may have.
    rows = []
    for line in content.split(b"\n"):
        with suppress(ValueError, RecursionError):
            value = json.loads(line.decode())
            if _is_row(value):
                rows.append(value)
    return rows


def _is_row(value: Any) -> bool:
    if not isinstance(value, dict):
        return False
    return isinstance(value.get("step"), int) and isinstance(value.get("split"), str)


def _sources(config: Config) -> list[str]:
    from encoder_cls.config.data_paths import SOURCES

    data = config.data.model_dump()
    return [data[key] for key in SOURCES if data[key]]
