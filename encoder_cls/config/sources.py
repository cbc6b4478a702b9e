"""Where the data of a config is: paths are found beside the config file, too, and a run records absolute ones."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

from encoder_cls.config.schema import Config, DataConfig
from encoder_cls.system.files import fitting_paths

SOURCES = ("train", "validation", "test", "unlabelled", "corrections")
SCHEMES = ("hub:", "example:")


def found_beside(values: Mapping[str, Any], folder: Path) -> dict[str, Any]:
    """The values of a config file in this folder, its data found there where the current folder does not have it."""
    data = values.get("data")
    if not isinstance(data, dict):
        return dict(values)
    found = {
        key: str(folder / source)
        for key in SOURCES
        if isinstance(source := data.get(key), str)
        and not (source.startswith(SCHEMES) or is_there(source))
        and is_there(str(folder / source))
    }
    return {**values, "data": data | found}


def with_absolute_sources(config: Config) -> Config:
    """A config that names the same data, cache and former run from any folder."""
    named = {key: _absolute(source) for key, source in _sources(config.data)}
    cache, run = (path and str(Path(path).absolute()) for path in (config.data.cache, config.from_run))
    data = config.data.model_copy(update={**named, "cache": cache})
    return config.model_copy(update={"data": data, "from_run": run})


def missing_sources(data: DataConfig) -> list[tuple[str, str]]:
    """The key and the source of all files and folders that are not there."""
    return [
        (f"data.{key}", source)
        for key, source in _sources(data)
        if not source.startswith(SCHEMES) and not is_there(source)
    ]


def is_there(source: str) -> bool:
    """Whether a path or a pattern names a file or a folder."""
    with suppress(OSError, ValueError):  # a name that no file can have
        return Path(source).exists() or next(fitting_paths(source), None) is not None
    return False


def _sources(data: DataConfig) -> Iterator[tuple[str, str]]:
    found = ((key, getattr(data, key)) for key in SOURCES)
    return ((key, source) for key, source in found if source is not None)


def _absolute(source: str) -> str:
    if source.startswith(SCHEMES) or Path(source).is_absolute() or not source:
        return source
    return str(Path.cwd() / source)
