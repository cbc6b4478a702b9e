"""Check the paths of outputs before any work.

An output must not replace a file that is read, must not become a part of an input, and must not be
the same file as another output. Files are compared by device and inode, so that links do not
matter. An output that fits the pattern of an input is refused if it exists, and by `predict` in any
case.
"""

from __future__ import annotations

import os
import stat
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from encoder_cls.classifier.hub_models import HUB
from encoder_cls.data.reading.formats import format_of
from encoder_cls.data.reading.text_lines import TEXT
from encoder_cls.data.source_files import every_file, texts_of
from encoder_cls.errors import ConfigError, DataError
from encoder_cls.evaluation.file_names import REPORT_FILES
from encoder_cls.run.run_folder import LOCK_FILE, RunDir, run_of
from encoder_cls.system.files import STANDARD_INPUT, fits_pattern, path_of, stream_named
from encoder_cls.system.terminal import warn_if_output_closed

if TYPE_CHECKING:
    from encoder_cls.config.schema import DataConfig

Identity = tuple[int, int]
"""The device and the inode of a file."""

# The file descriptor of standard output.
STANDARD_OUTPUT = 1


def check_outputs(
    outputs: Sequence[Path],
    *,
    sources: Sequence[str] = (),
    model: Path | None = None,
    is_printing: bool = False,
) -> None:
    """Check that no output would replace or become a part of an input, or replace another output.

    It warns if standard output is the only output and is closed. The data of the run of `model`
    must not be replaced, either. `is_printing` says that standard output is an output, too.

    Raises:
        ConfigError: an output is not allowed.
    """
    if is_printing and not outputs:
        warn_if_output_closed()
    targets = [_target(path) for path in outputs]
    if is_printing:
        identity = _identity(STANDARD_OUTPUT)
        if identity:
            targets.append(_Target("standard output", None, identity))
    if not targets:
        return

    run = run_of(model) if model else None
    run_data = run.data_sources() if run else []
    read_identities: set[Identity] = set()
    for source in (*sources, *run_data):
        read_identities.update(_identities(source))

    # There may be thousands of outputs, so look at the files of the model and at the inputs once.
    model_files = _files_of(model, run) if model else None
    read_folders = {path_of(Path(source)): source for source in sources if Path(source).is_dir()}

    written: dict[Path | Identity, _Target] = {}
    for target in targets:
        if model_files:
            _check_not_of_model(target, model_files)
        _check_not_among(target, read_folders)
        if target.identity in read_identities:
            raise ConfigError(f"{target.name}: is a file that is read; name another output")
        _check_not_data(target, run_data)
        _check_other_outputs(target, written)


def check_fit_no_pattern(outputs: Sequence[Path], source: str) -> None:
    """Raise a `ConfigError` if the next run would read an output, because a pattern matches it."""
    if Path(source).exists():
        return
    for path in outputs:
        if fits_pattern(path_of(path), source):
            raise ConfigError(
                f"{path}: fits the pattern that is read ({source}); name another output"
            )


def check_run_folder(run: RunDir, data: DataConfig) -> None:
    """Check that later trainings would not read the run folder or the cache as data.

    Raises:
        ConfigError: they would, or the path of the run folder is not valid Unicode.
    """
    folder = path_of(run.path)
    # TensorBoard needs a path in Unicode.
    try:
        str(run.path).encode()
    except UnicodeEncodeError:
        raise ConfigError(f"{str(run.path)!r}: not UTF-8; choose another --run-dir") from None

    for source in (data.train, data.validation, data.test, data.unlabelled, data.corrections):
        if not source:
            continue
        if _is_in_hub_folder(folder, source) or _would_be_class(folder, source):
            raise ConfigError(
                f"{run.path}: the files of the run would be read as data the next time "
                f"({source}); choose another --run-dir"
            )
        if data.cache is not None and _would_be_class(path_of(Path(data.cache)), source):
            raise ConfigError(
                f"data.cache: {data.cache}: would be read as a class the next time ({source})"
            )


class _Target(NamedTuple):
    """An output to check.

    Attributes:
        path: the path without links; None for a stream, a pipe or a device.
        identity: the device and the inode; None if the output is not an existing file.
    """

    name: str
    path: Path | None
    identity: Identity | None

    def is_inside(self, folder: Path) -> bool:
        return self.path is not None and self.path.is_relative_to(folder)


def _target(path: Path) -> _Target:
    """Describe the output at a path; a `ConfigError` if no file can be written there."""
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
    """The identity of the file at a path or behind a file descriptor; None if there is no file."""
    try:
        status = os.stat(file)  # noqa: PTH116 - `Path.stat` takes no file descriptor
    except OSError:
        return None
    if not stat.S_ISREG(status.st_mode):
        return None
    return status.st_dev, status.st_ino


def _identities(source: str) -> Iterator[Identity]:
    """The identities of the files of a source; none if the source cannot be read."""
    with suppress(DataError):
        files = [sys.stdin.fileno()] if source == STANDARD_INPUT else every_file(source)
        for file in files:
            identity = _identity(file)
            if identity:
                yield identity


class _ModelFiles(NamedTuple):
    """The files of a model and of its run, none of which may be replaced; no path has links.

    Attributes:
        owner: the folder of the run; that of the model if it has no run.
        folders: the folders in which no output may be written.
        identities: the devices and inodes of the files that exist.
    """

    owner: Path
    folders: dict[Path, Path]
    paths: set[Path]
    identities: set[Identity | None]


def _files_of(model: Path, run: RunDir | None) -> _ModelFiles:
    owner = model
    folders = [model]
    files = []
    if run:
        owner = run.path
        folders = [run.model, run.checkpoints, run.pretrained]
        files = [run.config_file, run.sources_file, run.metrics_file, run.held_out_predictions]
        files += [run.path / LOCK_FILE, *run.event_files]
        files += [run.eval / name for name in REPORT_FILES]

    # An output outside of the folders may be a link to a file in them.
    for folder in folders:
        if folder.is_dir():
            files += folder.iterdir()

    return _ModelFiles(
        owner=owner,
        folders={path_of(folder): folder for folder in folders},
        paths={path_of(file) for file in files},
        identities={_identity(file) for file in files} - {None},
    )


def _check_not_of_model(target: _Target, model_files: _ModelFiles) -> None:
    for path, folder in model_files.folders.items():
        if target.is_inside(path):
            raise _is_part_of(folder, target)
    if target.path in model_files.paths or target.identity in model_files.identities:
        raise _is_part_of(model_files.owner, target)


def _is_part_of(owner: Path, target: _Target) -> ConfigError:
    return ConfigError(f"{target.name}: is a part of {owner}; name another output")


def _check_not_among(target: _Target, read_folders: Mapping[Path, str]) -> None:
    """Raise a `ConfigError` if an output is in a folder that is read.

    `read_folders` has the source of each folder, by its path without links.
    """
    for folder, source in read_folders.items():
        if target.is_inside(folder):
            raise ConfigError(
                f"{target.name}: is in a folder that is read ({source}); name an output in another "
                "folder"
            )


def _check_not_data(target: _Target, run_data: Sequence[str]) -> None:
    for source in run_data:
        if target.path and _would_be_data(target.path, source):
            raise ConfigError(
                f"{target.name}: would be read as data of the run ({source}); name another output"
            )


def _check_other_outputs(target: _Target, written: dict[Path | Identity, _Target]) -> None:
    """Add an output to `written`; a `ConfigError` if one with the same file is there already."""
    # Several outputs may be written to one pipe or device, which has neither identity nor path.
    key = target.identity or target.path
    if not key:
        return
    if key not in written:
        written[key] = target
        return

    other = written[key]
    names = other.name
    if other.name != target.name:
        names = f"{other.name} and {target.name}"
    raise ConfigError(f"{names}: two outputs would be written to one file; name two files")


def _would_be_data(path: Path, source: str) -> bool:
    if source.startswith(HUB):
        return _is_in_hub_folder(path, source)

    data = path_of(Path(source))
    if path == data:
        return True
    if not data.is_dir() or path.name.startswith("."):
        return False

    file_format = format_of(path)
    is_file_of_folder = path.parent == data and file_format is not None
    is_text_of_class = path.parent.parent == data and file_format is TEXT
    return is_file_of_folder or is_text_of_class


def _is_in_hub_folder(path: Path, source: str) -> bool:
    """Whether a path is inside a local folder that is read like a data set of the Hub."""
    if not source.startswith(HUB):
        return False
    local, _, _ = source.removeprefix(HUB).partition("?")
    return bool(local) and Path(local).is_dir() and path.is_relative_to(path_of(Path(local)))


def _would_be_class(folder: Path, source: str) -> bool:
    """Whether a folder would be read as another class of a source that has a folder per class."""
    classes = path_of(Path(source))
    is_inside = folder != classes and folder.is_relative_to(classes)
    if not Path(source).is_dir() or not is_inside:
        return False

    entry = classes / folder.relative_to(classes).parts[0]
    others = [other for other in classes.iterdir() if other.is_dir() and other != entry]
    if not any(texts_of(other) for other in others):
        return False

    is_class_already = entry.is_dir() and bool(texts_of(entry))
    return not entry.name.startswith(".") and not is_class_already
