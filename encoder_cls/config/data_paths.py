"""Find the data that a config names, and check that it exists."""

from __future__ import annotations

from contextlib import suppress
from pathlib import Path
from typing import Any

from encoder_cls.config.schema import Config, DataConfig
from encoder_cls.errors import DataError
from encoder_cls.system.files import fitting_paths

SOURCES = ("train", "validation", "test", "unlabelled", "corrections")
# The starts of sources that are not paths: data of the Hub, and the bundled example.
SCHEMES = ("hub:", "example:")


def data_beside_config(values: dict[str, Any], folder: Path) -> dict[str, Any]:
    """Put the folder of the config file before each path that exists only there."""
    data = values.get("data")
    if not isinstance(data, dict):
        return values

    beside = {}
    for key in SOURCES:
        source = data.get(key)
        if isinstance(source, str) and not source_exists(source):
            path = str(folder / source)
            if source_exists(path):
                beside[key] = path
    return values | {"data": data | beside}


def absolute_sources(config: Config) -> Config:
    """Make the paths of data, cache and base run absolute.

    A link to a base run is resolved: it may point to another run tomorrow, even to this one.
    """
    absolute = {}
    for key in (*SOURCES, "cache"):
        source = getattr(config.data, key)
        if source and not source.startswith(SCHEMES):
            absolute[key] = str(Path(source).absolute())

    from_run = config.from_run
    if from_run:
        from_run = str(Path(from_run).resolve())
    data = config.data.model_copy(update=absolute)
    return config.model_copy(update={"data": data, "from_run": from_run})


def missing_sources(data: DataConfig) -> list[tuple[str, str]]:
    """The key and path of each source that does not exist."""
    missing = []
    for key in SOURCES:
        source = getattr(data, key)
        if source and not source_exists(source):
            missing.append((f"data.{key}", source))
    return missing


def check_sources_of_run(data: DataConfig, run: Path | str, hint: str) -> None:
    """Raise a `DataError` if data of a run is missing.

    `KEY` in the hint becomes the key that names it.
    """
    for key, source in missing_sources(data):
        what = f"{key}: {source}: no such file or folder; the run's data was here"
        raise DataError(run, what, hint.replace("KEY", key))


def check_sources(data: DataConfig, *, config_file: Path | None, of_run: Path | None) -> None:
    """Raise a `DataError`, which names the config file or the run, if data does not exist."""
    if of_run:
        check_sources_of_run(data, of_run, "if it has been moved, add --set KEY=PATH")

    for key, source in missing_sources(data):
        places = ""
        if not Path(source).is_absolute():
            places = f"the current folder, {Path.cwd()}"
            if config_file:
                places += f", and beside {config_file}"
            places = f" (looked for in {places})"
        raise DataError(f"{source}: no such file or folder{places}; {key} names it")


def source_exists(source: str) -> bool:
    """Whether a path or pattern names something; other sources are assumed to exist."""
    if source.startswith(SCHEMES):
        return True
    # An error here means that no file can have this name.
    with suppress(OSError, ValueError):
        return Path(source).exists() or next(fitting_paths(source), None) is not None
    return False
