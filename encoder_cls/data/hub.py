"""The name of a data set of the Hugging Face Hub in, its rows out, of the revision that was asked for."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any
from urllib.parse import unquote

from encoder_cls.data.records import Record, SourceLocation, check_columns, with_class_names
from encoder_cls.errors import DataError
from encoder_cls.system.display import shown
from encoder_cls.system.installed import check_installed

HUB_TIMEOUT = 10.0  # seconds


def hub_records(rest: str, role: str, columns: Sequence[str], *, all_columns: bool = False) -> Iterator[Record]:
    """A data set of the Hugging Face Hub, or a local folder laid out like one.

    Raises:
        ConfigError: the library `datasets` is not installed.
        DataError: it cannot be loaded, or has not these columns.
    """
    check_installed("datasets", needed_by=f"hub:{rest}")
    import datasets

    name, _, query = rest.partition("?")
    # Not parse_qs: a plus sign stays one (split=train+test), and nothing is left out in silence (split=).
    pairs = (option.partition("=") for option in query.split("&") if option)
    options = {key: unquote(value) for key, _, value in pairs}
    if not name or options.keys() - {"config", "split", "revision"} or not all(options.values()):
        raise DataError(f"hub:{rest}: write it as hub:owner/name[?config=...&split=...&revision=...]")
    if not sys.stderr.isatty():
        datasets.disable_progress_bars()
    split = options.get("split", role)
    try:
        commit = None if Path(name).is_dir() else _hub_commit(name, options.get("revision"))
        table = datasets.load_dataset(name, options.get("config"), split=split, revision=options.get("revision"))
        _check_commit(table, commit)
    except Exception as error:
        raise DataError(
            f"hub:{name}: cannot load split {shown(split)}: {_reason(error)} "
            "(check the name and the network, or download the files and name them instead)"
        ) from None
    check_columns(f"hub:{name}", table.column_names, columns)
    # Only what is asked for: a test split whose labels are all -1 can still be predicted.
    if not all_columns:
        table = table.select_columns(list(dict.fromkeys([*columns, *({"id"} & set(table.column_names))])))
    of_items = {column: _of_items(feature) for column, feature in table.features.items()}
    names = {column: it.names for column, it in of_items.items() if isinstance(it, datasets.ClassLabel)}
    for number, record in enumerate(table):
        where = SourceLocation(f"hub:{name}/{split}", number)
        yield where, with_class_names(record, names, where)


def _of_items(feature: Any) -> Any:
    """What the items of a list are, where a feature is one, however `datasets` writes it; else the feature."""
    return feature[0] if isinstance(feature, list) else getattr(feature, "feature", feature)


def _hub_commit(name: str, revision: str | None) -> str | None:
    """The commit that a revision is; offline, what it was when it was last downloaded, or none if unknown.

    Asked once and with a time limit: `datasets` itself tries for minutes where a firewall swallows its requests.
    """
    import datasets
    import huggingface_hub

    if not datasets.config.HF_HUB_OFFLINE:
        hub = huggingface_hub.HfApi(endpoint=datasets.config.HF_ENDPOINT)
        return hub.dataset_info(name, revision=revision, timeout=HUB_TIMEOUT).sha
    folder = huggingface_hub.file_download.repo_folder_name(repo_id=name, repo_type="dataset")
    reference = Path(huggingface_hub.constants.HF_HUB_CACHE, folder, "refs", revision or "main")
    return reference.read_text() if reference.is_file() else revision


def _check_commit(table: Any, commit: str | None) -> None:
    """Where `datasets` cannot reach a repository it takes what it cached last, of whatever revision: refuse that."""
    files = [Path(file["filename"]) for file in table.cache_files]
    if commit and not all(commit in file.parts for file in files):
        raise DataError("the Hub cannot be reached, and the copy that was loaded last is of another revision")


def _reason(error: Exception) -> str:
    """The line of an error that says most."""
    import datasets

    if isinstance(error, datasets.exceptions.DatasetGenerationError) and error.__cause__:
        error = error.__cause__  # the error itself says only that there was one
    lines = [line for line in str(error).splitlines() if line.strip() and " Client Error." not in line]
    return lines[0] if lines else type(error).__name__
