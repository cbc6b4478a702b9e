"""Find the splits of a file or folder, and how it is written, before its columns are known."""

from __future__ import annotations

import glob
from dataclasses import dataclass, field, replace
from pathlib import Path

from encoder_cls.config.reading_options import ReadingOptions
from encoder_cls.data.reading.delimited import CSV, TSV, guessed_separator
from encoder_cls.data.reading.excel import EXCEL, visible_sheets
from encoder_cls.data.reading.formats import format_of
from encoder_cls.data.reading.parquet import PARQUET
from encoder_cls.data.reading.reading import Reading
from encoder_cls.data.reading.text_lines import FASTTEXT, TEXT
from encoder_cls.data.source_files import class_folders, data_files, files_named, split_in_name
from encoder_cls.errors import DataError
from encoder_cls.system.encodings import guessed_encoding

# The split of a config for each split that a file's name can name. `eval` is usual for both.
_ROLES = {
    "train": ("train",),
    "validation": ("validation",),
    "dev": ("validation", "test"),
    "eval": ("validation", "test"),
    "test": ("test",),
}


@dataclass(frozen=True, kw_only=True)
class SourceForm:
    """What a file or folder is, as far as can be seen without knowing its columns.

    Attributes:
        splits: the path or pattern of each split, `train` first.
        others: the data files that belong to no split.
        files: the data files of train; none if it is class folders.
        has_class_folders: whether train has a folder of texts for each class.
        has_columns: whether they have names.
        reading: with the encoding and separator of the first file.
        is_usual_delimiter: whether the separator is that of the format.
    """

    splits: dict[str, str]
    others: list[Path] = field(default_factory=list)
    files: list[Path] = field(default_factory=list)
    has_class_folders: bool = False
    has_columns: bool = False
    reading: ReadingOptions = field(default_factory=ReadingOptions)
    is_usual_delimiter: bool = True
    sheets: tuple[str, ...] = ()


def source_form(
    source: str, *, encoding: str | None = None, delimiter: str | None = None
) -> SourceForm:
    """Find the splits of a file or folder by the names of files, and guess what is None.

    Raises:
        DataError: the source does not exist, has no data, cannot be guessed, or is damaged.
    """
    splits, others = _splits(source)
    train = splits["train"]
    if Path(train).is_dir() and class_folders(Path(train), is_labelled=True):
        return SourceForm(splits=splits, others=others, has_class_folders=True)

    files = data_files(train, is_labelled=True)
    file = files[0]
    has_columns = format_of(file) not in (TEXT, FASTTEXT)
    form = SourceForm(splits=splits, others=others, files=files, has_columns=has_columns)
    if format_of(file) is EXCEL:
        return replace(form, sheets=_sheets(file))
    if format_of(file) is PARQUET:
        return form

    reading = ReadingOptions(encoding=encoding or _guessed_encoding(file), delimiter=delimiter)
    if format_of(file) not in (CSV, TSV):
        return replace(form, reading=reading)
    separator = guessed_separator(file, Reading(replace(reading, bad_rows="skip")))
    return replace(
        form,
        reading=replace(reading, delimiter=separator),
        is_usual_delimiter=separator == ("," if format_of(file) is CSV else "\t"),
    )


# Splits


def _splits(source: str) -> tuple[dict[str, str], list[Path]]:
    path = Path(source)
    if path.is_dir():
        entries = files_named(source)
        folders = [entry for entry in entries if entry.is_dir() and split_in_name(entry)]
        if folders:
            return _splits_of_entries(path, folders)
        if class_folders(path, is_labelled=True):
            return {"train": source}, []

        files = [entry for entry in entries if format_of(entry) and not entry.is_dir()]
        if any(split_in_name(file) for file in files):
            return _splits_of_entries(path, files)

    data_files(source, is_labelled=True)
    return {"train": source}, []


def _splits_of_entries(folder: Path, entries: list[Path]) -> tuple[dict[str, str], list[Path]]:
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

    splits: dict[str, str] = {}
    for role in ("train", "validation", "test"):
        if role in by_role:
            splits[role] = _path_or_pattern(by_role[role])
    return splits, others


def _path_or_pattern(paths: list[Path]) -> str:
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


# The first file


def _sheets(file: Path) -> tuple[str, ...]:
    sheets = visible_sheets(file)
    if not sheets:
        raise DataError(file, "all of its sheets are empty or hidden")
    return tuple(sheets)


def _guessed_encoding(file: Path) -> str:
    encoding = guessed_encoding(file)
    if encoding is None:
        what = "the encoding is unknown: neither UTF-8 nor Windows-1252"
        raise DataError(file, what, "save the file as UTF-8, or name it in data.encoding")
    return encoding
