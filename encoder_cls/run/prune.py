"""`encoder-cls prune`: remove the files of finished runs that nothing needs any more.

Only these files are removed, and only from finished runs:

    checkpoints/step-N/   the weights, moments and states from which the training could be resumed
    pretrained/           the best weights of pretraining, with which the training on labels began
    .tmp-*                in these two folders, what a killed process has not finished

Nothing is removed from a folder that is a link, since other runs may need what it points to. All
other files stay, and every file of an unfinished run.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from encoder_cls.classifier.model_folder import CONFIG_FILE, TOKENIZER_FILE, WEIGHTS_FILE
from encoder_cls.errors import ConfigError
from encoder_cls.run.checkpoint_files import files_to_resume
from encoder_cls.run.run_folder import RunDir
from encoder_cls.system.files import TEMPORARY_PREFIX, reporting_os_errors


@dataclass(frozen=True, kw_only=True)
class UnneededFiles:
    """The files of a run that may be removed; none unless it is finished."""

    run: RunDir
    files: Sequence[Path]

    @property
    def num_bytes(self) -> int:
        """The size of the files."""
        return sum(file.lstat().st_size for file in self.files)

    @property
    def folders(self) -> list[str]:
        """The folders that have these files."""
        return sorted({file.relative_to(self.run.path).parts[0] for file in self.files})


def find_runs(path: Path) -> list[RunDir]:
    """All runs in and below a folder; a `ConfigError` without any."""
    runs = []
    for config_file in sorted(path.rglob(RunDir(path).config_file.name)):
        run = RunDir(config_file.parent)
        # Other programs may have a config.yaml, but a run also has metrics.
        if run.is_run() and run.metrics_file.is_file():
            runs.append(run)
    if not runs:
        raise ConfigError(f"{path}: no run in it; name a run folder, or a folder of runs")
    return runs


def unneeded_files(run: RunDir) -> UnneededFiles:
    """The files of a run that nothing needs any more."""
    if not run.is_finished():
        return UnneededFiles(run=run, files=())

    files: list[Path] = []
    if not run.checkpoints.is_symlink():
        files += files_to_resume(run.checkpoints)
        files += _leftovers(run.checkpoints)
    if not run.pretrained.is_symlink():
        files += [run.pretrained / name for name in (CONFIG_FILE, TOKENIZER_FILE, WEIGHTS_FILE)]
        files += _leftovers(run.pretrained)
    return UnneededFiles(run=run, files=[file for file in files if _is_file(file)])


def _leftovers(folder: Path) -> Iterator[Path]:
    for path in sorted(folder.glob(f"{TEMPORARY_PREFIX}*")):
        if path.is_dir() and not path.is_symlink():
            yield from sorted(path.iterdir())
        else:
            yield path


def _is_file(path: Path) -> bool:
    return path.is_symlink() or path.is_file()


def remove_files(unneeded: UnneededFiles) -> None:
    """Remove files, and folders that become empty."""
    for file in unneeded.files:
        with reporting_os_errors(file, "remove"):
            file.unlink(missing_ok=True)

    folders = {file.parent for file in unneeded.files}
    for folder in sorted(folders | {unneeded.run.pretrained}, reverse=True):
        # `rmdir` raises an error for a folder that is not empty.
        with suppress(OSError):
            folder.rmdir()
