"""What no output of a command may be: an input, a file of a model and its run, or its data."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Sequence
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from encoder_cls.data.reading.formats import format_of
from encoder_cls.data.reading.text_lines import TEXT
from encoder_cls.data.source_files import every_file, texts_of
from encoder_cls.errors import ConfigError, DataError
from encoder_cls.evaluation.file_names import REPORT_FILES
from encoder_cls.run.run_folder import LOCK_FILE, RunDir, run_of
from encoder_cls.system.files import STANDARD_INPUT, fits_pattern, path_of
from encoder_cls.system.hub import HUB
from encoder_cls.system.outputs import Taken, check_output_paths, everything_in

if TYPE_CHECKING:
    from encoder_cls.config.schema import DataConfig


def check_outputs(
    outputs: Sequence[Path],
    *,
    sources: Sequence[str] = (),
    model: Path | None = None,
    is_printing: bool = False,
) -> None:
    """Check that no output would replace an input, become a part of it, or replace another one.

    Files of `model`, of its run, and its data must not be replaced, either. One that fits the
    pattern of an input is refused if it exists. With `is_printing`, standard output is an output,
    too; a warning says if it is the only one and closed.

    Raises:
        ConfigError: an output is not allowed.
    """
    check_output_paths(outputs, _taken(sources, model), is_printing=is_printing)


def _taken(sources: Sequence[str], model: Path | None) -> Iterator[Taken]:
    run = run_of(model) if model else None
    run_data = run.data_sources() if run else []

    if run:
        yield from _files_of_run(run)
    elif model:
        yield from _files_of_folders(model, [model])

    for source in sources:
        if Path(source).is_dir():
            why = f"is in a folder that is read ({source}); name an output in another folder"
            yield everything_in(Path(source), why)

    read: list[Path | int] = []
    for source in (*sources, *run_data):
        read += _files_of_source(source)
    yield Taken("is a file that is read; name another output", read)

    for source in run_data:
        why = f"would be read as data of the run ({source}); name another output"
        yield Taken(why, holds=partial(_would_be_data, source=source))


def _files_of_run(run: RunDir) -> Iterator[Taken]:
    files = [
        run.config_file,
        run.sources_file,
        run.metrics_file,
        run.held_out_predictions,
        run.reference,
    ]
    files += [run.path / LOCK_FILE, *run.event_files]
    files += [run.eval / name for name in REPORT_FILES]
    return _files_of_folders(run.path, [run.model, run.checkpoints, run.pretrained], files)


def _files_of_folders(
    owner: Path, folders: Sequence[Path], files: Sequence[Path] = ()
) -> Iterator[Taken]:
    # An output outside of the folders may be a link to a file in them.
    linked: list[Path] = []
    for folder in folders:
        yield everything_in(folder, f"is a part of {folder}; name another output")
        if folder.is_dir():
            linked += folder.iterdir()
    yield Taken(f"is a part of {owner}; name another output", [*files, *linked])


def _files_of_source(source: str) -> list[Path | int]:
    if source == STANDARD_INPUT:
        return [sys.stdin.fileno()]
    files: list[Path | int] = []
    with suppress(DataError):
        files.extend(every_file(source))
    return files


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
        ConfigError: they would, or the path is not valid Unicode.
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
