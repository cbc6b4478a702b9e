"""Read data sets of the Hugging Face Hub."""

from __future__ import annotations

import gc
import time
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any, NamedTuple

from encoder_cls.data.reading.class_labels import class_names_of, with_class_names
from encoder_cls.data.reading.columns import Columns
from encoder_cls.data.reading.locations import SourceLocation
from encoder_cls.data.reading.reading import Reading
from encoder_cls.data.reading.rows import Record
from encoder_cls.errors import DataError
from encoder_cls.system.display import shown
from encoder_cls.system.hub import HUB_TIMEOUT, parsed_address
from encoder_cls.system.libraries import check_installed
from encoder_cls.system.terminal import has_terminal

# The seconds in which threads that have finished release their files.
SECONDS_TO_RELEASE = 0.05


class _HubSource(NamedTuple):
    """A parsed source `hub:NAME?OPTIONS`.

    Attributes:
        name: may be a local folder.
        streaming: rows are downloaded while they are read, without a copy on disk.
    """

    name: str
    config: str | None = None
    split: str | None = None
    revision: str | None = None
    streaming: bool = False


def hub_records(source: str, role: str, columns: Columns, reading: Reading) -> Iterator[Record]:
    """Read the rows of a data set, or of a local folder with the layout of one.

    The split is `role` if the source names none.

    Raises:
        DataError: the data set cannot be loaded, or lacks a column.
    """
    check_installed("datasets", needed_by=source)
    import datasets

    hub = _parsed(source)
    split = hub.split or role
    if not has_terminal():
        datasets.disable_progress_bars()

    try:
        with _errors_named(hub, split):
            table = _loaded(hub, split)
            columns.check_present(f"hub:{hub.name}", table.column_names)
            # Leave out the label column unless it is wanted, since the labels of a test split may
            # all be -1, which have no class name.
            table = table.select_columns(columns.to_read(table.column_names))

            class_names = class_names_of(table.features.to_dict())
            with closing(iter(table)) as records:
                for number, record in enumerate(records, start=1):
                    if reading.leaves_out_row():
                        continue
                    where = SourceLocation(f"hub:{hub.name}/{split}", number)
                    yield where, with_class_names(record, class_names, where)
    finally:
        # Give Arrow's threads time to release their files: otherwise Python may abort at its end.
        # There is no event to wait for, see https://github.com/apache/arrow/issues/45214.
        gc.collect()
        time.sleep(SECONDS_TO_RELEASE)


def hub_folder_or_commit(source: str) -> Path | str | None:
    """The local folder of a source, or the commit of its data set, if known."""
    hub = _parsed(source)
    if Path(hub.name).is_dir():
        return Path(hub.name)
    check_installed("datasets", needed_by=source)
    with _errors_named(hub, hub.split):
        return _hub_commit(hub.name, hub.revision)


OPTIONS = ("config", "split", "revision", "streaming")
_STREAMING = {"true": True, "false": False}


def _parsed(source: str) -> _HubSource:
    try:
        name, options = parsed_address(source, options=OPTIONS)
        streaming = options.pop("streaming", "false")
        return _HubSource(name, **options, streaming=_STREAMING[streaming])
    except (ValueError, KeyError):
        form = "hub:owner/name[?config=...&split=...&revision=...&streaming=true]"
        raise DataError(source, f"write it as {form}") from None


@contextmanager
def _errors_named(source: _HubSource, split: str | None) -> Iterator[None]:
    try:
        yield
    except DataError:
        raise
    except Exception as error:
        what = f"split {shown(split)}" if split else "it"
        hint = "check the name and the network, or download the files and name them instead"
        message = f"cannot load {what}: {_reason(error)} ({hint})"
        raise DataError(f"hub:{source.name}", message) from None


def _loaded(source: _HubSource, split: str) -> Any:
    import datasets

    commit = None
    if not Path(source.name).is_dir():
        commit = _hub_commit(source.name, source.revision)

    if source.streaming:
        revision = commit or source.revision
        table = datasets.load_dataset(
            source.name, source.config, split=split, revision=revision, streaming=True
        )
        if not table.features:
            # The card of the data set does not list the columns: find them from the first rows.
            table = table._resolve_features()
        return table

    table = datasets.load_dataset(source.name, source.config, split=split, revision=source.revision)

    # Check the revision: if the Hub cannot be reached, `datasets` loads the copy that was cached
    # last, which may be of another revision.
    files = [Path(file["filename"]) for file in table.cache_files]
    if commit and not all(commit in file.parts for file in files):
        raise ConnectionError(
            "the Hub cannot be reached, and the copy that was loaded last is of another revision"
        )
    return table


def _hub_commit(name: str, revision: str | None) -> str | None:
    """Look up the commit of a revision on the Hub.

    The Hub is asked once, with a time limit: `datasets` would try for minutes behind a firewall.
    Offline, it is the commit of the last download, else the revision.
    """
    import datasets
    import huggingface_hub

    if not datasets.config.HF_HUB_OFFLINE:
        hub = huggingface_hub.HfApi(endpoint=datasets.config.HF_ENDPOINT)
        return hub.dataset_info(name, revision=revision, timeout=HUB_TIMEOUT).sha

    # The cache of downloads has a file for each revision, which holds its commit.
    folder = huggingface_hub.file_download.repo_folder_name(repo_id=name, repo_type="dataset")
    reference = Path(huggingface_hub.constants.HF_HUB_CACHE, folder, "refs", revision or "main")
    if reference.is_file():
        return reference.read_text()
    return revision


def _reason(error: BaseException) -> str:
    import datasets

    if isinstance(error, datasets.exceptions.DatasetGenerationError) and error.__cause__:
        # The message of this error says only that it failed: use the error that caused it.
        error = error.__cause__
    for line in str(error).splitlines():
        if line.strip() and " Client Error." not in line:
            return line
    return type(error).__name__
