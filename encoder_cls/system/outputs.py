"""Check the paths of outputs before any work.

None may be in use for something else, nor be another output. Files are compared by device and
inode, so that links do not matter.
"""

from __future__ import annotations

import os
import stat
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import NamedTuple

from encoder_cls.errors import ConfigError
from encoder_cls.system.files import path_of, stream_named
from encoder_cls.system.terminal import warn_if_output_closed

Identity = tuple[int, int]
"""The device and the inode of a file."""

STANDARD_OUTPUT = 1


class Taken(NamedTuple):
    """Files that no output may be.

    Attributes:
        why: for messages.
        files: paths, maybe of no files, or file descriptors.
        holds: whether a path is taken, too.
    """

    why: str
    files: Iterable[Path | int] = ()
    holds: Callable[[Path], bool] | None = None


def everything_in(folder: Path, why: str) -> Taken:
    """All files in a folder, also new ones."""
    resolved = path_of(folder)
    return Taken(why, holds=lambda path: path.is_relative_to(resolved))


def check_output_paths(
    outputs: Sequence[Path], taken: Iterable[Taken], *, is_printing: bool
) -> None:
    """Check that each output can be written, is not taken, and is not another one, too.

    With `is_printing`, standard output is an output, too; a warning says if it is the only one and
    closed. `taken` is looked at only if an output is a file.

    Raises:
        ConfigError: an output is not allowed.
    """
    if is_printing and not outputs:
        warn_if_output_closed()
    targets = [_target(path) for path in outputs]
    if is_printing:
        targets.append(_Target("standard output", None, _identity(STANDARD_OUTPUT)))
    targets = [target for target in targets if target.keys]
    if not targets:
        return

    for files in taken:
        # There may be thousands of outputs, so look at the files once.
        keys = _keys_of(files.files)
        for target in targets:
            is_held = files.holds and target.path and files.holds(target.path)
            if is_held or target.keys & keys:
                raise ConfigError(f"{target.name}: {files.why}")

    written: dict[Path | Identity, _Target] = {}
    for target in targets:
        _check_other_outputs(target, written)


class _Target(NamedTuple):
    """A stream, a pipe or a device has no path."""

    name: str
    path: Path | None
    identity: Identity | None

    @property
    def keys(self) -> set[Path | Identity]:
        return {key for key in (self.path, self.identity) if key}


def _target(path: Path) -> _Target:
    stream = stream_named(path)
    if stream is not None:
        return _Target(str(path), None, _identity(stream))
    if path.is_dir():
        raise ConfigError(f"{path}: is a folder; name a file in it")
    is_pipe_or_device = path.exists() and not path.is_file()
    if is_pipe_or_device:
        return _Target(str(path), None, _identity(path))

    target = path_of(path)
    above = next(folder for folder in target.parents if folder.exists())
    if not above.is_dir():
        raise ConfigError(f"{path}: {above} is not a folder; name another output")
    return _Target(str(path), target, _identity(path))


def _identity(file: Path | int) -> Identity | None:
    try:
        status = os.stat(file)  # noqa: PTH116 - `Path.stat` takes no file descriptor
    except OSError:
        return None
    if not stat.S_ISREG(status.st_mode):
        return None
    return status.st_dev, status.st_ino


def _keys_of(files: Iterable[Path | int]) -> set[Path | Identity]:
    keys: set[Path | Identity] = set()
    for file in files:
        identity = _identity(file)
        if identity:
            keys.add(identity)
        elif isinstance(file, Path):
            keys.add(path_of(file))
    return keys


def _check_other_outputs(target: _Target, written: dict[Path | Identity, _Target]) -> None:
    for key in target.keys:
        other = written.setdefault(key, target)
        if other is target:
            continue
        names = other.name
        if other.name != target.name:
            names = f"{other.name} and {target.name}"
        raise ConfigError(f"{names}: two outputs would be written to one file; name two files")
