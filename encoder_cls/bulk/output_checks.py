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
from typing import TYPE_CHECKING, NamedTuple

from encoder_cls.bulk.request import STANDARD_INPUT
from encoder_cls.classifier.hub_models import HUB
from encoder_cls.data.reading.formats import FORMATS
from encoder_cls.data.reading.text_lines import TEXT
from encoder_cls.data.source_files import every_file, texts_of
from encoder_cls.errors import ConfigError, DataError
from encoder_cls.evaluation.files import REPORT_FILES
from encoder_cls.run.run_folder import LOCK_FILE, RunDir, run_of
from encoder_cls.system.encodings import ending_of
from encoder_cls.system.files import path_of, stream_named
from encoder_cls.system.terminal import warn_if_output_closed

if TYPE_CHECKING:
    from encoder_cls.config.schema import DataConfig

Identity = tuple[int, int]  # device and inode


def check_outputs(
    outputs: Sequence[Path],
    *,
    sources: Sequence[str] = (),
    model: Path | None = None,
    is_printing: bool = False,
) -> None:
    """Raise a `ConfigError` if an output would replace or extend an input, or if two outputs are one file.

    The model, and the data of its run, count as inputs. `is_printing` makes standard output one of the outputs, and
    warns if it is the only one and closed.
    """
    if is_printing and not outputs:
        warn_if_output_closed()
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
        if folder := next(
            (it for it in sources if Path(it).is_dir() and target.is_inside(Path(it))), None
        ):
            raise ConfigError(
                f"{target.name}: is among what is read ({folder}); write it elsewhere"
            )
        if source := next(
            (it for it in data if target.path and _would_be_data(target.path, it)), None
        ):
            raise ConfigError(
                f"{target.name}: would be read as data of the run ({source}); write it elsewhere"
            )
        # A pipe or a device, which takes several outputs, has neither.
        key = target.identity or target.path
        if key and (other := written.setdefault(key, target)) is not target:
            both = other.name if other.name == target.name else f"{other.name} and {target.name}"
            raise ConfigError(f"{both}: two outputs would be written into one file; name two files")


def check_run_folder(run: RunDir, data: DataConfig) -> None:
    """Raise a `ConfigError` for a run folder, or a cache, that later runs would read as data.

    Also for a name that is not Unicode, which TensorBoard needs.
    """
    folder = path_of(run.path)
    try:
        str(run.path).encode()
    except UnicodeEncodeError:
        raise ConfigError(f"{str(run.path)!r}: not UTF-8; choose another --run-dir") from None
    for source in filter(
        None, (data.train, data.validation, data.test, data.unlabelled, data.corrections)
    ):
        if _is_in_hub_folder(folder, source) or _would_be_class(folder, source):
            raise ConfigError(
                f"{run.path}: the files of the run would be read as data the next time ({source}); "
                "choose another --run-dir"
            )
        if data.cache is not None and _would_be_class(path_of(Path(data.cache)), source):
            raise ConfigError(
                f"data.cache: {data.cache}: would be read as a class the next time ({source})"
            )


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
        folders = [run.model, run.checkpoints, run.pretrained]
        files = [
            run.config_file,
            run.sources_file,
            run.metrics_file,
            run.path / LOCK_FILE,
            *run.event_files,
        ]
        files += [run.eval / name for name in REPORT_FILES]
    if folder := next((it for it in folders if target.is_inside(it)), None):
        return folder
    files += [file for it in folders if it.is_dir() for file in it.iterdir()]
    is_part = any(
        target.path == path_of(file) or (target.identity and target.identity == _identity(file))
        for file in files
    )
    return (run.path if run else model) if is_part else None


def _would_be_data(path: Path, source: str) -> bool:
    """Whether a new file would be read as a part of a source."""
    if source.startswith(HUB):
        return _is_in_hub_folder(path, source)
    data = path_of(Path(source))
    if path == data or not data.is_dir() or path.name.startswith("."):
        return path == data
    is_text_of_class = path.parent.parent == data and ending_of(path) == TEXT
    return is_text_of_class or (path.parent == data and ending_of(path) in FORMATS)


def _is_in_hub_folder(path: Path, source: str) -> bool:
    """Whether a path is inside a local folder that is laid out like a data set of the Hub."""
    local = source.removeprefix(HUB).partition("?")[0]
    is_local = source.startswith(HUB) and bool(local) and Path(local).is_dir()
    return is_local and path.is_relative_to(path_of(Path(local)))


def _would_be_class(folder: Path, source: str) -> bool:
    """Whether a folder would be one more among class folders."""
    classes = path_of(Path(source))
    if not (Path(source).is_dir() and folder != classes and folder.is_relative_to(classes)):
        return False
    entry = classes / folder.relative_to(classes).parts[0]
    is_class = [
        bool(texts_of(other)) for other in classes.iterdir() if other.is_dir() and other != entry
    ]
    return (
        any(is_class)
        and not entry.name.startswith(".")
        and not (entry.is_dir() and texts_of(entry))
    )
