"""Check output paths before any work: no command writes over or into what it reads, or two things into one file.

Links are followed: a file is known by its device and number. A new file that fits a pattern is refused once it exists.
"""

from __future__ import annotations

import os
import stat
import sys
from collections.abc import Iterator, Sequence
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from encoder_cls.answers.request import STANDARD_INPUT
from encoder_cls.data.sources import TABLES, every_file, texts_of
from encoder_cls.data.text_files import FASTTEXT, TEXT
from encoder_cls.errors import ConfigError, DataError
from encoder_cls.evaluation import REPORT_FILES
from encoder_cls.system.encodings import ending_of
from encoder_cls.system.files import path_of, stream_named
from encoder_cls.tracking.run_dir import LOCK_FILE, RunDir, run_of

if TYPE_CHECKING:
    from encoder_cls.config import DataConfig

HUB = "hub:"
Identity = tuple[int, int]  # device and number, by which the system knows a file


def check_outputs(
    outputs: Sequence[Path], *, sources: Sequence[str] = (), model: Path | None = None, is_printing: bool = False
) -> None:
    """Refuse to write where something is read, and to write two things into one file.

    With the model goes the data that its run names; `is_printing` makes standard output one of the outputs. A
    `ConfigError` refuses.
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
            what = f"is among what is read ({folder}), and would be read, too"
            raise ConfigError(f"{target.name}: {what}; write it elsewhere")
        if source := next((it for it in data if target.path and _would_be_data(target.path, it)), None):
            raise ConfigError(f"{target.name}: would be read as data of the run ({source}); write it elsewhere")
        key = target.identity or target.path  # none of a pipe or a device, which takes several outputs
        if key and (other := written.setdefault(key, target)) is not target:
            both = other.name if other.name == target.name else f"{other.name} and {target.name}"
            raise ConfigError(f"{both}: two outputs would be written into one file; name two files")


def check_output_folder(folder: Path, files: Sequence[Path], *, sources: Sequence[str], model: Path | None) -> None:
    """Refuse to write files, in a folder or below, where something is read; see `check_outputs`."""
    if folder.exists() and not folder.is_dir():
        raise ConfigError(f"{folder}: is not a folder; choose another path (it will be created)")
    for path in files:
        if path.is_dir():
            raise ConfigError(f"{path}: is a folder where a file is to be written; move it")
    check_outputs(files, sources=sources, model=model)


def check_run_folder(run: RunDir, data: DataConfig) -> None:
    """Refuse a run folder, or a cache, that would be read as data the next time, such as one beside class folders.

    A `ConfigError` refuses; also a name that is not Unicode, which TensorBoard needs.
    """
    folder = path_of(run.path)
    try:
        str(run.path).encode()
    except UnicodeEncodeError:
        raise ConfigError(f"{str(run.path)!r}: not UTF-8; choose another --run-dir") from None
    for source in filter(None, (data.train, data.validation, data.test, data.unlabelled, data.corrections)):
        if _is_in_hub_folder(folder, source) or _would_be_class(folder, source):
            raise ConfigError(
                f"{run.path}: the files of the run would be read as data the next time ({source}); "
                "choose another --run-dir"
            )
        if data.cache is not None and _would_be_class(path_of(Path(data.cache)), source):
            raise ConfigError(f"data.cache: {data.cache}: would be read as a class the next time ({source})")


class _Target(NamedTuple):
    """An output: its name for messages, its path without links (of a stream none), its identity if it is a file."""

    name: str
    path: Path | None
    identity: Identity | None

    def is_inside(self, folder: Path) -> bool:
        return self.path is not None and self.path.is_relative_to(path_of(folder))


def _target(path: Path) -> _Target:
    stream = stream_named(path)
    if stream is not None:
        return _Target(str(path), None, _identity(stream))
    if path.is_dir():
        raise ConfigError(f"{path}: is a folder; name a file in it")
    if path.exists() and not path.is_file():
        return _Target(str(path), None, None)
    target = path_of(path)
    above = next(folder for folder in target.parents if folder.exists())
    if not above.is_dir():
        raise ConfigError(f"{path}: {above} is not a folder; write it elsewhere")
    return _Target(str(path), target, _identity(path))


def _identity(file: Path | int) -> Identity | None:
    """By which the system knows a file or what a stream leads to; none of anything else than an existing file."""
    with suppress(OSError):
        status = os.stat(file)  # noqa: PTH116 - of a stream, too
        return (status.st_dev, status.st_ino) if stat.S_ISREG(status.st_mode) else None
    return None


def _identities(source: str) -> Iterator[Identity]:
    """The identities of the files that a source names, as far as it can be read."""
    with suppress(DataError):
        files = [sys.stdin.fileno()] if source == STANDARD_INPUT else every_file(source)
        yield from filter(None, map(_identity, files))


def _part_of(target: _Target, model: Path, run: RunDir | None) -> Path | None:
    """The folder of a model, or of its run, of which a target is, or would be, a part, under whatever name."""
    folders = [model / "model", *([] if RunDir(model).is_run() else [model])]
    files: list[Path] = []
    if run:
        folders += [run.model, run.checkpoints, run.stages, run.tensorboard]
        files += [run.config_file, run.sources_file, run.metrics_file, run.path / LOCK_FILE, *run.event_files]
        files += [run.eval / name for name in REPORT_FILES]
    for folder in folders:
        if target.is_inside(folder):
            return folder
        with suppress(OSError):
            files += folder.iterdir()
    is_part = any(
        target.path == path_of(file) or (target.identity and target.identity == _identity(file)) for file in files
    )
    return (run.path if run else model) if is_part else None


def _would_be_data(path: Path, source: str) -> bool:
    """Whether a new file of this path would be read as a part of a data set."""
    if source.startswith(HUB):
        return _is_in_hub_folder(path, source)
    data = path_of(Path(source))
    if path == data or not data.is_dir() or path.name.startswith("."):
        return path == data
    is_text_of_class = path.parent.parent == data and ending_of(path) == TEXT
    return is_text_of_class or (path.parent == data and ending_of(path) in (*TABLES, FASTTEXT, TEXT))


def _is_in_hub_folder(path: Path, source: str) -> bool:
    """Whether a path is inside a folder of this machine that is laid out like a data set of the Hub."""
    local = source.removeprefix(HUB).partition("?")[0]
    is_local = source.startswith(HUB) and bool(local) and Path(local).is_dir()
    return is_local and path.is_relative_to(path_of(Path(local)))


def _would_be_class(folder: Path, source: str) -> bool:
    """Whether a folder would be one more among class folders."""
    classes = path_of(Path(source))
    if not (Path(source).is_dir() and folder != classes and folder.is_relative_to(classes)):
        return False
    entry = classes / folder.relative_to(classes).parts[0]
    is_class = [bool(texts_of(other)) for other in classes.iterdir() if other.is_dir() and other != entry]
    return any(is_class) and not entry.name.startswith(".") and not (entry.is_dir() and texts_of(entry))
