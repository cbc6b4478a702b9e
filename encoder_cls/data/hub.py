"""Read data sets of the Hugging Face Hub, of the revision that is asked for."""

from __future__ import annotations

import gc
import sys
import time
from collections.abc import Iterator
from contextlib import closing, contextmanager
from itertools import count
from pathlib import Path
from typing import Any, NamedTuple
from urllib.parse import unquote

from encoder_cls.data.rows import Columns, Record, SourceLocation, with_class_names
from encoder_cls.errors import DataError
from encoder_cls.system.display import shown
from encoder_cls.system.machine import check_installed

HUB_TIMEOUT = 10.0  # seconds
SECONDS_TO_LET_GO = 0.05  # of threads that have nothing to do any more but to drop what they hold


class _HubSource(NamedTuple):
    """What follows `hub:`: the name of a data set, or of a local folder laid out like one, and options."""

    name: str
    config: str | None = None
    split: str | None = None
    revision: str | None = None
    streaming: bool = False


def hub_records(rest: str, role: str, columns: Columns) -> Iterator[Record]:
    """The rows of a data set, or of a local folder laid out like one; `role` is the split if none is named."""
    check_installed("datasets", needed_by=f"hub:{rest}")
    source = _parsed(rest)
    try:
        yield from _records(source, role, columns)
    finally:
        # A process that ends while a thread of Arrow is about to drop a file of Python's is aborted:
        # https://github.com/apache/arrow/issues/45214. No event shows when it has.
        gc.collect()
        time.sleep(SECONDS_TO_LET_GO)


def _records(source: _HubSource, role: str, columns: Columns) -> Iterator[Record]:
    import datasets

    if not sys.stderr.isatty():
        datasets.disable_progress_bars()
    split = source.split or role
    with _naming(source, split):
        table = _loaded(source, split)
    columns.check_present(f"hub:{source.name}", table.column_names)
    # Only what is asked for: a test split whose labels are all -1 can still be predicted.
    if not columns.every:
        table = table.select_columns(list(dict.fromkeys([*columns.named, *({"id"} & set(table.column_names))])))
    of_items = {column: _of_items(feature) for column, feature in table.features.items()}
    names = {column: it.names for column, it in of_items.items() if isinstance(it, datasets.ClassLabel)}
    with closing(iter(table)) as records:
        for number in count():
            with _naming(source, split):
                record = next(records, None)
            if record is None:
                return
            where = SourceLocation(f"hub:{source.name}/{split}", number)
            yield where, with_class_names(record, names, where)


def hub_folder_or_commit(rest: str) -> Path | str | None:
    """What identifies the content: a local folder, or the commit of a data set of the Hub, None if it is unknown."""
    source = _parsed(rest)
    if Path(source.name).is_dir():
        return Path(source.name)
    check_installed("datasets", needed_by=f"hub:{rest}")
    with _naming(source, source.split):
        return _hub_commit(source.name, source.revision)


def _parsed(rest: str) -> _HubSource:
    name, _, query = rest.partition("?")
    # Not parse_qs, which would change a plus sign (split=train+test) and drop empty options (split=).
    pairs = (option.partition("=") for option in query.split("&") if option)
    options = {key: unquote(value) for key, _, value in pairs}
    streaming = options.pop("streaming", "false")
    known = {"config", "split", "revision"}
    if not name or options.keys() - known or not all(options.values()) or streaming not in {"true", "false"}:
        raise DataError(f"hub:{rest}", "write it as hub:owner/name[?config=...&split=...&revision=...&streaming=true]")
    return _HubSource(name, **options, streaming=streaming == "true")


@contextmanager
def _naming(source: _HubSource, split: str | None) -> Iterator[None]:
    """Turn any failure inside into one DataError that names the data set."""
    try:
        yield
    except Exception as error:
        what = f"cannot load {f'split {shown(split)}' if split else 'it'}: {_reason(error)} "
        what += "(check the name and the network, or download the files and name them instead)"
        raise DataError(f"hub:{source.name}", what) from None


def _loaded(source: _HubSource, split: str) -> Any:
    """The table of a split; a streamed one is downloaded while it is read, and not kept."""
    import datasets

    commit = None if Path(source.name).is_dir() else _hub_commit(source.name, source.revision)
    if source.streaming:
        revision = commit or source.revision
        table = datasets.load_dataset(source.name, source.config, split=split, revision=revision, streaming=True)
        # Without features on its card, the first rows show them.
        return table if table.features else table._resolve_features()
    table = datasets.load_dataset(source.name, source.config, split=split, revision=source.revision)
    files = [Path(file["filename"]) for file in table.cache_files]
    # Where it cannot reach the repository, `datasets` takes the last cached copy of any revision.
    if commit and not all(commit in file.parts for file in files):
        raise DataError("the Hub cannot be reached, and the copy that was loaded last is of another revision")
    return table


def _of_items(feature: Any) -> Any:
    """The feature of the items, where a feature is that of a list, however `datasets` writes it."""
    return feature[0] if isinstance(feature, list) else getattr(feature, "feature", feature)


def _hub_commit(name: str, revision: str | None) -> str | None:
    """The commit of a revision; offline, of its last download, or None if unknown.

    Asks once and with a time limit: `datasets` itself tries for minutes where a firewall swallows its requests.
    """
    import datasets
    import huggingface_hub

    if not datasets.config.HF_HUB_OFFLINE:
        hub = huggingface_hub.HfApi(endpoint=datasets.config.HF_ENDPOINT)
        return hub.dataset_info(name, revision=revision, timeout=HUB_TIMEOUT).sha
    folder = huggingface_hub.file_download.repo_folder_name(repo_id=name, repo_type="dataset")
    reference = Path(huggingface_hub.constants.HF_HUB_CACHE, folder, "refs", revision or "main")
    return reference.read_text() if reference.is_file() else revision


def _reason(error: Exception) -> str:
    import datasets

    if isinstance(error, datasets.exceptions.DatasetGenerationError) and error.__cause__:
        error = error.__cause__  # which has the reason
    lines = [line for line in str(error).splitlines() if line.strip() and " Client Error." not in line]
    return lines[0] if lines else type(error).__name__
