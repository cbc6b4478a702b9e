"""Check output paths before any work: no output replaces or extends an input, and no two outputs are one file.

Files are compared by device and inode, so links do not matter. A file that fits a pattern is refused once it exists.
"""

from __future__ import annotations

import os
import stat
import sys
from collections.abc import Iterator, Sequence
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple

from encoder_cls.answers.request import STANDARD_INPUT
from encoder_cls.data.sources import FORMATS, every_file
from encoder_cls.data.text_files import TEXT
from encoder_cls.errors import ConfigError, DataError
from encoder_cls.evaluation import REPORT_FILES
from encoder_cls.system.encodings import ending_of
from encoder_cls.system.files import path_of, stream_named
from encoder_cls.tracking.run_dir import LOCK_FILE, RunDir, run_of

Identity = tuple[int, int]  # device and inode


def check_outputs(
    outputs: Sequence[Path], *, sources: Sequence[str] = (), model: Path | None = None, is_printing: bool = False
) -> None:
    """Raise a `ConfigError` if an output would replace or extend an input, or if two outputs are one file.

    The model, and the data of its run, count as inputs. `is_printing` makes standard output one of the outputs.
    """
    targets = [_target(path) for path in outputs]
    if is_printing and (identity := _identity(1)):
        targets.append(_Target("standard output", None, identity))
    if not targets:
        return
    run = run_of(model) if model else None
    data = run.data_sources() if run else []
    read = {identity for source in (*sources, *data) for identity in _identities(source)}
    written: dict[Path | Identity, _Target] = {}
    for target in targets:
        if model and (part := _part_of(target, model, run)):
            raise ConfigError(f"{target.name}: is a part of {part}; write it elsewhere")
        if target.identity in read:
            raise ConfigError(f"{target.name}: is a file that is read; name another to write to")
        if folder := next((it for it in sources if Path(it).is_dir() and target.is_inside(Path(it))), None):
            raise ConfigError(f"{target.name}: is among what is read ({folder}); write it elsewhere")
        if source := next((it for it in data if target.path and _would_be_data(target.path, it)), None):
            raise ConfigError(f"{target.name}: would be read as data of the run ({source}); write it elsewhere")
        key = target.identity or target.path  # none of a pipe or a device, which takes several outputs
        if key and (other := written.setdefault(key, target)) is not target:
            both = other.name if other.name == target.name else f"{other.name} and {target.name}"
            raise ConfigError(f"{both}: two outputs would be written into one file; name two files")


class _Target(NamedTuple):
    """An output: its name for messages, its path without links (None: a stream), and its identity if it is a file."""

    name: str
    path: Path | None
    identity: Identity | None

    def is_inside(self, folder: Path) -> bool:
        return self.path is not None and self.path.is_relative_to(path_of(folder))


def _target(path: Path) -> _Target:
    stream = stream_named(path)
    if stream is None and path.is_dir():
        raise ConfigError(f"{path}: is a folder; name a file in it")
    if stream is not None or (path.exists() and not path.is_file()):  # a stream, a pipe or a device
        return _Target(str(path), None, _identity(path if stream is None else stream))
    target = path_of(path)
    above = next(folder for folder in target.parents if folder.exists())
    if not above.is_dir():
        raise ConfigError(f"{path}: {above} is not a folder; write it elsewhere")
    return _Target(str(path), target, _identity(path))


def _identity(file: Path | int) -> Identity | None:
    """The identity of a file, or of the file that a stream leads to; None if it is anything else."""
    with suppress(OSError):
        status = os.stat(file)  # noqa: PTH116 - of a stream, too
        return (status.st_dev, status.st_ino) if stat.S_ISREG(status.st_mode) else None
    return None


def _identities(source: str) -> Iterator[Identity]:
    """The identities of the readable files of a source."""
    with suppress(DataError):
        files = [sys.stdin.fileno()] if source == STANDARD_INPUT else every_file(source)
        yield from filter(None, map(_identity, files))


def _part_of(target: _Target, model: Path, run: RunDir | None) -> Path | None:
    """The model folder, or the run, that a target is or would be a part of, if any."""
    folders, files = [model], list[Path]()
    if run:
        folders = [run.model, run.checkpoints, run.stages, run.tensorboard]
        files = [run.config_file, run.sources_file, run.metrics_file, run.path / LOCK_FILE, *run.event_files]
        files += [run.eval / name for name in REPORT_FILES]
    of_run = run.path if run and target.path in [path_of(file) for file in files] else None
    return next((folder for folder in folders if target.is_inside(folder)), of_run)


def _would_be_data(path: Path, source: str) -> bool:
    """Whether a new file would be read as a part of a source."""
    data = path_of(Path(source))
    if path == data or not data.is_dir() or path.name.startswith("."):
        return path == data
    is_text_of_class = path.parent.parent == data and ending_of(path) == TEXT
    return is_text_of_class or (path.parent == data and ending_of(path) in FORMATS)
