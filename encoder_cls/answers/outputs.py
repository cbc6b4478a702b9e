"""Check output paths before any work.

No command writes over what it reads, adds a file to what it reads, or writes two things into one file. Links are
followed: what counts is the file.
"""

from __future__ import annotations

import glob
import os
import stat
import sys
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from fnmatch import fnmatchcase
from itertools import combinations
from pathlib import Path
from typing import TYPE_CHECKING

from encoder_cls.data.sources import FASTTEXT, TABLES, TEXT, every_file, texts_of
from encoder_cls.errors import ConfigError, DataError
from encoder_cls.evaluation.files import REPORT_FILES
from encoder_cls.system.encodings import ending_of
from encoder_cls.system.files import path_of, pattern_parts, stream_named
from encoder_cls.tracking.run_dir import LOCK_FILE, RunDir, run_of

if TYPE_CHECKING:
    from encoder_cls.config import DataConfig

STANDARD_INPUT = "-"
HUB = "hub:"
# Of each kind of file that a run comes to hold, one.
RUN_FILES = (
    *("config.yaml", "sources.json", "metrics.jsonl"),
    *("model/config.json", "model/model.safetensors", "model/README.md"),
    *(f"eval/{name}" for name in REPORT_FILES),
    *(
        "tensorboard/texts/metadata.tsv",
        "checkpoints/step-1/state.json",
        "checkpoints/step-1/model.safetensors",
        "stages/pretraining/config.json",
    ),
)


def check_outputs(
    outputs: Sequence[Path], *, sources: Sequence[str] = (), model: Path | None = None, is_printing: bool = False
) -> None:
    """Refuse to write where something is read, and to write two things into one file.

    Args:
        outputs: the files that are to be written.
        sources: the texts that are read; `-` is standard input.
        model: the run or model folder that is read; with it goes the data that the run names.
        is_printing: whether results go to standard output.

    Raises:
        ConfigError: which of the outputs it is, and why it cannot be.
        DataError: a folder of texts cannot be read.
    """
    targets = [_target(path) for path in outputs]
    standard_output = _Target("standard output", None, _status_of(1))
    if is_printing and standard_output.is_file:
        targets.append(standard_output)
    if not targets:
        return
    run = run_of(model) if model else None
    data = _data_of(run)
    for target in targets:
        if model:
            _check_model(target, model, run)
        for source in sources:
            _check_not_read(target, source)
            _check_not_in_input(target, source)
        for source in data:
            with suppress(DataError):  # it need not be read
                _check_not_read(target, source)
            if target.path and _would_be_data(target.path, source):
                raise ConfigError(f"{target.name}: would be read as data of the run ({source}); write it elsewhere")
    for one, other in combinations(targets, 2):
        if one.is_same(other):
            both = one.name if one.name == other.name else f"{one.name} and {other.name}"
            raise ConfigError(f"{both}: two outputs would be written into one file; name two files")


def check_output_folder(folder: Path, files: Sequence[Path], *, sources: Sequence[str], model: Path) -> None:
    """Refuse to write files into a folder where something is read; what was written there before may be replaced.

    Args:
        folder: which need not be there.
        files: those that are to be written, in it or below.
        sources: the texts that are read.
        model: the run or model folder that is read; with it goes the data that the run names.

    Raises:
        ConfigError: which of the files it is, and why it cannot be.
        DataError: a folder of texts cannot be read.
    """
    if folder.exists() and not folder.is_dir():
        raise ConfigError(f"{folder}: is no folder; name another, which need not be there yet")
    run = run_of(model)
    data = _data_of(run)
    read = {identity for source in sources for identity in _identities(source)}
    for named in data:
        with suppress(DataError):  # it need not be read
            read.update(_identities(named))
    for path in files:
        if path.is_dir():
            raise ConfigError(f"{path}: is a folder where a file is to be written; move it")
        target = _target(path)
        _check_model(target, model, run)
        for source in sources:
            _check_not_in_input(target, source)
        if target.status and (target.status.st_dev, target.status.st_ino) in read:
            raise ConfigError(f"{target.name}: is a file that is read; name another folder to write to")
        for named in data:
            if target.path and _would_be_data(target.path, named):
                raise ConfigError(f"{target.name}: would be read as data of the run ({named}); write it elsewhere")


def check_run_folder(run: RunDir, data: DataConfig) -> None:
    """Refuse a run folder, or a cache, whose files would be read as data the next time.

    Inside a folder of data files a run is in nobody's way: of such a folder only the files directly in it are read.
    Beside class folders it is, where every folder is taken for a class.

    Raises:
        ConfigError: which data it is; or the folder's name is no Unicode, which TensorBoard needs.
    """
    folder = path_of(run.path)
    try:
        str(run.path).encode()
    except UnicodeEncodeError:
        raise ConfigError(f"{str(run.path)!r}: not UTF-8; choose another --run-dir") from None
    for source in _sources_of(data):
        if any(_would_be_data(folder / name, source) for name in RUN_FILES) or _would_be_class(folder, source):
            raise ConfigError(
                f"{run.path}: the files of the run would be read as data the next time ({source}); "
                "choose another --run-dir"
            )
        if data.cache is not None and _would_be_class(path_of(Path(data.cache)), source):
            raise ConfigError(f"data.cache: {data.cache}: would be read as a class the next time ({source})")


@dataclass(frozen=True)
class _Target:
    """What is written to: its name for messages, its path without links, and what the system knows of it.

    A stream has no path, and what is not there yet no status.
    """

    name: str
    path: Path | None
    status: os.stat_result | None

    @property
    def is_file(self) -> bool:
        """Whether it is a file that is there already."""
        return self.status is not None and stat.S_ISREG(self.status.st_mode)

    def is_inside(self, folder: Path) -> bool:
        return self.path is not None and self.path.is_relative_to(path_of(folder))

    def is_status(self, status: os.stat_result | None) -> bool:
        """Whether it is the file, and one at all, of this status."""
        return self.is_file and self.status is not None and status is not None and os.path.samestat(self.status, status)

    def is_path(self, path: Path) -> bool:
        return (self.path is not None and self.path == path_of(path)) or self.is_status(_status_of(path))

    def is_same(self, other: _Target) -> bool:
        if self.status is None or other.status is None:
            return self.path is not None and self.path == other.path
        return self.is_status(other.status)


def _target(path: Path) -> _Target:
    stream = stream_named(path)
    if stream is not None:
        return _Target(str(path), None, _status_of(stream))
    status = _status_of(path)
    if status and stat.S_ISDIR(status.st_mode):
        raise ConfigError(f"{path}: is a folder; name a file in it")
    target = path_of(path)
    above = next(folder for folder in target.parents if _status_of(folder))
    if not above.is_dir():
        raise ConfigError(f"{path}: {above} is no folder; write it elsewhere")
    return _Target(str(path), target, status)


def _status_of(what: Path | int) -> os.stat_result | None:
    try:
        return os.stat(what)  # noqa: PTH116 - of a stream, too
    except OSError:
        return None


def _check_model(target: _Target, model: Path, run: RunDir | None) -> None:
    """Refuse what is, or would be, a part of the model or of its run."""
    folders = [model / "model"]
    if not RunDir(model).is_run():
        folders.append(model)
    files: list[Path] = []
    if run:
        folders += [run.model, run.checkpoints, run.stages, run.tensorboard]
        files += [run.config_file, run.sources_file, run.metrics_file, run.path / LOCK_FILE, *run.event_files]
        files += [run.eval / name for name in REPORT_FILES]
    inside = next((folder for folder in folders if target.is_inside(folder)), None)
    if inside or any(target.is_path(file) for file in files):
        raise ConfigError(f"{target.name}: is a part of {inside or (run and run.path)}; write it elsewhere")
    if target.is_file and any(target.is_path(file) for folder in folders for file in _files_in(folder)):
        raise ConfigError(f"{target.name}: is a part of {model}; write it elsewhere")


def _files_in(folder: Path) -> Iterator[Path]:
    with suppress(OSError):
        yield from folder.iterdir()


def _check_not_read(target: _Target, source: str) -> None:
    if not target.is_file:
        return
    if source == STANDARD_INPUT:
        is_read = target.is_status(_status_of(sys.stdin.fileno()))
    else:
        is_read = any(target.is_status(_status_of(file)) for file in every_file(source))
    if is_read:
        raise ConfigError(f"{target.name}: is a file that is read; name another to write to")


def _check_not_in_input(target: _Target, source: str) -> None:
    if Path(source).is_dir():
        is_read = target.is_inside(Path(source))
    else:
        is_read = target.path is not None and _is_found(target.path, source)
    if is_read:
        raise ConfigError(
            f"{target.name}: is among what is read ({source}), and would be read, too; write it elsewhere"
        )


def _identities(source: str) -> Iterator[tuple[int, int]]:
    """By which the system knows the files that a source names."""
    for file in every_file(source):
        if status := _status_of(file):
            yield status.st_dev, status.st_ino


def _data_of(run: RunDir | None) -> list[str]:
    return run.data_sources() if run else []


def _sources_of(data: DataConfig) -> list[str]:
    named = (data.train, data.validation, data.test, data.unlabelled, data.corrections)
    return [source for source in named if source]


def _would_be_data(path: Path, source: str) -> bool:
    """Whether a file of this path would be read as a part of a data set."""
    if source.startswith(HUB):  # a folder here can be laid out like a data set of the Hub
        local = source.removeprefix(HUB).partition("?")[0]
        return bool(local) and Path(local).is_dir() and path.is_relative_to(path_of(Path(local)))
    if not Path(source).is_dir():
        return _is_found(path, source)
    folder, ending = path_of(Path(source)), ending_of(path)
    if path.name.startswith("."):
        return False
    is_text = ending == TEXT and path.parent.parent == folder
    return is_text or (path.parent == folder and ending in (*TABLES, FASTTEXT, TEXT))


def _would_be_class(folder: Path, source: str) -> bool:
    """Whether a folder would be one more among class folders."""
    classes = path_of(Path(source))
    if not (Path(source).is_dir() and folder != classes and folder.is_relative_to(classes)):
        return False
    entry = classes / folder.relative_to(classes).parts[0]
    is_class = [bool(texts_of(other)) for other in classes.iterdir() if other.is_dir() and other != entry]
    return any(is_class) and not entry.name.startswith(".") and not (entry.is_dir() and texts_of(entry))


def _is_found(path: Path, pattern: str) -> bool:
    """Whether a pattern would find a file of this path."""
    folder, below = pattern_parts(pattern)
    base = path_of(folder)
    if not glob.has_magic(below) or Path(pattern).exists() or not path.is_relative_to(base):
        return False
    return _fits(path.relative_to(base).parts, Path(below).parts)


def _fits(names: Sequence[str], patterns: Sequence[str]) -> bool:
    """Whether names of folders and a file fit the parts of a pattern; names that begin with a dot, as `glob` has it."""
    if not patterns:
        return not names
    pattern, *further = patterns
    fits_first = bool(names) and (
        (pattern[0] == "." or names[0][0] != ".") and (pattern == "**" or fnmatchcase(names[0], pattern))
    )
    if pattern == "**":
        return _fits(names, further) or (fits_first and _fits(names[1:], patterns))
    return fits_first and _fits(names[1:], further)
