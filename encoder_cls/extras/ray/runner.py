"""Classify the rows of Parquet files in the processes of Ray, at any place that fsspec opens.

The columns of the predictions are those of `encoder_cls.Predictor`.
"""

from __future__ import annotations

import logging
import os
from pathlib import Path, PurePosixPath
from posixpath import normpath
from typing import TYPE_CHECKING, NamedTuple

from encoder_cls import Predictor, load_classifier
from encoder_cls.errors import ConfigError, DataError, EncoderClsError
from encoder_cls.system.libraries import check_installed
from encoder_cls.system.terminal import note

if TYPE_CHECKING:
    from fsspec import AbstractFileSystem


def run(source: str, output: str, *, model: Path, engine: str, num_workers: int) -> None:
    """Classify Parquet files.

    Raises:
        ConfigError: Ray is not installed, or the output is not allowed.
        DataError: the input has no Parquet file, or lacks a column that the model reads.
        EncoderClsError: Ray failed.
    """
    check_installed("ray", needed_by="predict --runner ray", install="'encoder-cls[ray]'")
    read, written = check_places(source, output, model=model)
    classifier = load_classifier(model, engine=engine)

    import ray

    logging.getLogger("ray.data").setLevel(logging.ERROR)
    ray.init(include_dashboard=False, log_to_driver=False, logging_level="ERROR")
    ray.data.DataContext.get_current().enable_progress_bars = False
    try:
        rows = ray.data.read_parquet(read.path, filesystem=read.system)
        # Try an empty table first, so that a missing column is reported before workers start.
        Predictor(classifier)(rows.schema().base_schema.empty_table())

        predicted = rows.map_batches(
            Predictor,
            fn_constructor_args=[classifier],
            batch_format="pyarrow",
            compute=ray.data.ActorPoolStrategy(size=num_workers),
        )
        predicted.write_parquet(written.path, filesystem=written.system)
        note(f"{output}: the predictions for {rows.count():,} rows")
    except ray.exceptions.RayError as error:
        raise EncoderClsError(f"Ray failed: {error!r}") from error
    finally:
        ray.shutdown()


class Place(NamedTuple):
    """A path without links in a file system, perhaps of another machine."""

    system: AbstractFileSystem
    path: str

    def is_inside(self, other: Place) -> bool:
        """Whether this is the same place, or inside of it."""
        path = PurePosixPath(self.path)
        return self.system == other.system and path.is_relative_to(other.path)


def check_places(source: str, output: str, *, model: Path) -> tuple[Place, Place]:
    """Find and check the places of the input and the output.

    Raises:
        ConfigError: a file system is unknown, or the output exists or is inside the input or the
            model.
        DataError: the input has no Parquet file.
    """
    read = _place("--input", source)
    written = _place("--output", output)
    is_file = read.system.isfile(read.path)
    if not is_file and not read.system.glob(f"{read.path}/**/*.parquet"):
        raise DataError(f"{source}: no Parquet file there")
    for place in (read, _place("--model", str(model))):
        if written.is_inside(place):
            raise ConfigError(f"--output {output}: is inside what is read; name another folder")
    if written.system.exists(written.path):
        raise ConfigError(f"--output {output}: exists already; name a new folder")
    return read, written


def _place(option: str, uri: str) -> Place:
    import fsspec
    from fsspec.implementations.local import LocalFileSystem

    try:
        system, path = fsspec.core.url_to_fs(uri)
    except (ValueError, ImportError) as error:
        raise ConfigError(f"{option} {uri}: {error}") from None
    if isinstance(system, LocalFileSystem):
        return Place(system, os.path.realpath(path))
    return Place(system, normpath(path))
