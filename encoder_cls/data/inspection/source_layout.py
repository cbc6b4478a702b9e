"""Find out which files of a source are training, validation and test data."""

from __future__ import annotations

import glob
from pathlib import Path
from typing import NamedTuple

from encoder_cls.data.reading.formats import format_of
from encoder_cls.data.source_files import class_folders, data_files, files_named, split_in_name
from encoder_cls.errors import DataError

# The split of a config for each split that a file's name can name. `eval` is usual for both.
_ROLES = {
    "train": ("train",),
    "validation": ("validation",),
    "dev": ("validation", "test"),
    "eval": ("validation", "test"),
    "test": ("test",),
}


class SourceLayout(NamedTuple):
    """The sources of a config.

    Attributes:
        sources: the path or the pattern of each split, `train` first.
        others: the data files that belong to no split.
    """

    sources: dict[str, str]
    has_class_folders: bool
    others: list[Path]


def layout_of(source: str) -> SourceLayout:
    """Find the splits of a file or folder by the names of its files and folders.

    Raises:
        DataError: the source does not exist or has no data.
    """
    path = Path(source)
    if not path.is_dir():
        data_files(source, is_labelled=True)
        return SourceLayout({"train": source}, has_class_folders=False, others=[])

    entries = files_named(source)
    folders = [entry for entry in entries if entry.is_dir() and split_in_name(entry)]
    if folders:
        return _layout_of_entries(path, folders)
    if class_folders(path, is_labelled=True):
        return SourceLayout({"train": source}, has_class_folders=True, others=[])

    files = [entry for entry in entries if format_of(entry) and not entry.is_dir()]
    if any(split_in_name(file) for file in files):
        return _layout_of_entries(path, files)
    data_files(source, is_labelled=True)
    return SourceLayout({"train": source}, has_class_folders=False, others=[])


def _layout_of_entries(folder: Path, entries: list[Path]) -> SourceLayout:
    """Assign the files or folders of a folder to splits by their names."""
    names = {entry: split_in_name(entry) for entry in entries}
    # Take the names that may mean two splits last: they mean the first one that is still free.
    in_order = sorted(entries, key=lambda entry: names[entry] in ("dev", "eval"))

    by_role: dict[str, list[Path]] = {}
    others = []
    for entry in in_order:
        name = names[entry]
        # A split that has files of another name is taken.
        taken = {role for role, paths in by_role.items() if names[paths[0]] != name}
        free = [role for role in _ROLES.get(name or "", ()) if role not in taken]
        if free:
            by_role.setdefault(free[0], []).append(entry)
        else:
            others.append(entry)

    if "train" not in by_role:
        found = ", ".join(entry.name for entry in entries)
        what = f"no file or folder is named as training data ({found})"
        raise DataError(folder, what, "give the file to train on, or name it train")

    sources: dict[str, str] = {}
    for role in ("train", "validation", "test"):
        if role in by_role:
            sources[role] = _path_or_pattern(by_role[role])
    train = by_role["train"][0]
    has_class_folders = train.is_dir() and bool(class_folders(train, is_labelled=True))
    return SourceLayout(sources, has_class_folders, others)


def _path_or_pattern(paths: list[Path]) -> str:
    """The path of a single file, or a pattern that several files fit, and no other file."""
    if len(paths) == 1:
        return str(paths[0])

    names = [path.name for path in paths]
    start = _common_start(names)
    # What the names have after it, from the last character to the first.
    reversed_rests = [name.removeprefix(start)[::-1] for name in names]
    end = _common_start(reversed_rests)[::-1]
    pattern = str(paths[0].parent / f"{glob.escape(start)}*{glob.escape(end)}")
    if files_named(pattern) == sorted(paths):
        return pattern
    hint = "give them a folder of their own"
    raise DataError(paths[0].parent, f"several files of one split ({', '.join(names)})", hint)


def _common_start(names: list[str]) -> str:
    first = min(names)
    last = max(names)
    length = 0
    while length < len(first) and first[length] == last[length]:
        length += 1
    return first[:length]
