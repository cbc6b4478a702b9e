"""Read data sets of the Hugging Face Hub, at the given revision."""

from __future__ import annotations

import gc
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any, NamedTuple
from urllib.parse import unquote

from encoder_cls.data.reading.class_labels import class_names_of, with_class_names
from encoder_cls.data.reading.columns import Columns
from encoder_cls.data.reading.locations import SourceLocation
from encoder_cls.data.reading.rows import Record
from encoder_cls.errors import DataError
from encoder_cls.system.display import shown
from encoder_cls.system.libraries import check_installed

# Seconds that the Hub has to respond.
HUB_TIMEOUT = 10.0
# Seconds that finished threads have to release their files.
SECONDS_TO_RELEASE = 0.05
# The options of a source.
OPTIONS = ("config", "split", "revision", "streaming")


class _HubSource(NamedTuple):
    """What comes after `hub:`: the name of a data set or of a local folder, and its options."""

    name: str
    config: str | None = None
    split: str | None = None
    revision: str | None = None
    streaming: bool = False


def hub_records(source: str, role: str, columns: Columns) -> Iterator[Record]:
    """Read a data set, or a local folder laid out like one.

    `role` is the name of the split where the source has no option `split`.
    """
    check_installed("datasets", needed_by=source)
    import datasets

    hub = _parsed(source)
    split = hub.split or role
    if not sys.stderr.isatty():
        datasets.disable_progress_bars()

    try:
        with _errors_named(hub, split):
            table = _loaded(hub, split)
            columns.check_present(f"hub:{hub.name}", table.column_names)
            if not columns.every:
                # A test split whose labels are all -1 can still be predicted.
                table = table.select_columns(_wanted(columns, table.column_names))

            class_names = class_names_of(table.features.to_dict())
            with closing(iter(table)) as records:
                for number, record in enumerate(records):
                    where = SourceLocation(f"hub:{hub.name}/{split}", number)
                    yield where, with_class_names(record, class_names, where)
    finally:
        # Python aborts at its end if a thread of Arrow has yet to release one of its files. No
        # event shows that: https://github.com/apache/arrow/issues/45214.
        gc.collect()
        time.sleep(SECONDS_TO_RELEASE)


def _wanted(columns: Columns, names: Sequence[str]) -> list[str]:
    """The columns to read of those with these names: the named ones, and `id` if there is one."""
    wanted = columns.named
    if "id" in names and "id" not in wanted:
        wanted.append("id")
    return wanted


def hub_folder_or_commit(source: str) -> Path | str | None:
    """Identify the content: a local folder, or the commit of a data set; None if it is unknown."""
    hub = _parsed(source)
    if Path(hub.name).is_dir():
        return Path(hub.name)
    check_installed("datasets", needed_by=source)
    with _errors_named(hub, hub.split):
        return _hub_commit(hub.name, hub.revision)


def _parsed(source: str) -> _HubSource:
    name, _, query = source.removeprefix("hub:").partition("?")

    # `parse_qs` would change a plus sign (split=train+test) and drop empty options (split=).
    options: dict[str, str] = {}
    for option in query.split("&"):
        if option:
            key, _, value = option.partition("=")
            options[key] = unquote(value)

    streaming = options.pop("streaming", "false")
    is_known = all(key in OPTIONS for key in options)
    has_values = all(options.values())
    if not name or not is_known or not has_values or streaming not in {"true", "false"}:
        form = "hub:owner/name[?config=...&split=...&revision=...&streaming=true]"
        raise DataError(source, f"write it as {form}")
    return _HubSource(
        name=name,
        config=options.get("config"),
        split=options.get("split"),
        revision=options.get("revision"),
        streaming=streaming == "true",
    )


@contextmanager
def _errors_named(source: _HubSource, split: str | None) -> Iterator[None]:
    """Turn any failure of `datasets` into one DataError that names the data set."""
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
    """Load the table of a split; a streamed one is downloaded while it is read, and not kept."""
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
            # The card of the data set does not list them: the first rows show them.
            table = table._resolve_features()
        return table

    table = datasets.load_dataset(source.name, source.config, split=split, revision=source.revision)

    # If the Hub cannot be reached, `datasets` loads the last cached copy, of any revision.
    files = [Path(file["filename"]) for file in table.cache_files]
    if commit and not all(commit in file.parts for file in files):
        raise ConnectionError(
            "the Hub cannot be reached, and the copy that was loaded last is of another revision"
        )
    return table


def _hub_commit(name: str, revision: str | None) -> str | None:
    """Look up the commit of a revision; offline, that of its last download, or None if unknown.

    Asks once and with a time limit: `datasets` itself tries for minutes where a firewall swallows
    its requests.
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
    """The first line of an error that says what is wrong."""
    import datasets

    if isinstance(error, datasets.exceptions.DatasetGenerationError) and error.__cause__:
        # The cause has the reason.
        error = error.__cause__
    for line in str(error).splitlines():
        if line.strip() and " Client Error." not in line:
            return line
    return type(error).__name__
