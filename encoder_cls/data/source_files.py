"""List the files of a source: a file, a folder, a pattern, or a folder for each class."""

from __future__ import annotations

import codecs
import re
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from encoder_cls.data.reading.file_format import Format
from encoder_cls.data.reading.formats import KNOWN_ENDINGS, format_of
from encoder_cls.data.reading.json_files import JSON
from encoder_cls.data.reading.text_lines import LABEL_PREFIX, TEXT
from encoder_cls.errors import DataError
from encoder_cls.system.encodings import byte_lines, opened
from encoder_cls.system.files import fitting_paths

# The words in a file's name that name a split, with the split that each names.
_SPLITS = {
    "train": "train",
    "training": "train",
    "validation": "validation",
    "valid": "validation",
    "val": "validation",
    "dev": "dev",
    "eval": "eval",
    "test": "test",
    "testing": "test",
}
# Put longer words first: in a regular expression, `train` would also match the start of `training`.
_SPLIT_WORDS = "|".join(sorted(_SPLITS, key=len, reverse=True))
_SPLIT_IN_NAME = re.compile(rf"(?<![a-z])({_SPLIT_WORDS})(?:set|data)?(?![a-z])")


@contextmanager
def os_errors_as_data_errors(source: Path | str) -> Iterator[None]:
    """Turn an `OSError` into a `DataError` that names the file."""
    try:
        yield
    except OSError as error:
        reason = f"cannot be read: {error.strerror or error}"
        raise DataError(error.filename or source, reason) from None


def files_named(source: str) -> list[Path]:
    """List the files of a file, a folder or a pattern.

    Hidden files are left out unless a pattern names them, and so are names that start with `~$`,
    which Excel writes beside an open file.
    """
    path = Path(source)
    if path.is_dir():
        with os_errors_as_data_errors(source):
            return _visible(path)
    if path.exists():
        return [path]
    return sorted(map(Path, fitting_paths(source)))


def every_file(source: str) -> Iterator[Path]:
    """All files of a source, with the texts of class folders."""
    is_folder = Path(source).is_dir()
    for file in files_named(source):
        yield file
        if is_folder and file.is_dir():
            yield from texts_of(file)


def data_files(source: str, *, is_labelled: bool) -> list[Path]:
    """List the data files of a source.

    .txt files beside tables are left out if labels are needed, unless they look like data.

    Raises:
        DataError: there is no data file, one of an unknown format, or files of several splits.
    """
    files = files_named(source)
    if Path(source).is_dir():
        files = _data_files_of_folder(source, files, is_labelled=is_labelled)

    if not files:
        start = ""
        if not Path(source).is_absolute():
            start = f" (paths start at the current folder, {Path.cwd()})"
        raise DataError(source, f"no such file or folder{start}")
    for file in files:
        if format_of(file) is None:
            raise DataError(file, "unknown format", f"known: {KNOWN_ENDINGS}")
    return files


def _data_files_of_folder(source: str, files: list[Path], *, is_labelled: bool) -> list[Path]:
    known = [file for file in files if format_of(file)]
    known = _without_readmes(known, JSON, b"[")
    if is_labelled:
        known = _without_readmes(known, TEXT, LABEL_PREFIX.encode())

    splits = {split_in_name(file) for file in known} - {None}
    if len(splits) > 1:
        names = ", ".join(sorted(map(str, splits)))
        raise DataError(source, f"holds files of several splits ({names})", "name one of them")
    if not known:
        what = f"no {KNOWN_ENDINGS} file and no class folders with .txt files in it"
        raise DataError(source, what)
    return known


def split_in_name(file: Path) -> str | None:
    """The split that a word of a file's name names, as in `my_test.csv` and `TrainData2.csv`."""
    words = re.sub(r"(?<=[a-z])(?=[A-Z])", " ", file.stem).lower()
    match = _SPLIT_IN_NAME.search(words)
    if match is None:
        return None
    return _SPLITS[match[1]]


def _without_readmes(files: list[Path], file_format: Format, mark: bytes) -> list[Path]:
    """Leave out files of one format beside others, unless one starts with `mark`."""
    readmes = [file for file in files if format_of(file) is file_format]
    if len(readmes) == len(files):
        return files
    if any(_starts_with(file, mark) for file in readmes):
        return files
    return [file for file in files if file not in readmes]


# The bytes of white space that may come before a mark.
_BLANK_BYTES = b" \t\v\f\r\n\0"


def _starts_with(path: Path, mark: bytes) -> bool:
    with opened(path) as file:
        for line in byte_lines(file):
            content = line.removeprefix(codecs.BOM_UTF8)
            if content.strip():
                return content.lstrip(_BLANK_BYTES).startswith(mark)
    return False


# Folders of classes


def class_folders(path: Path, *, is_labelled: bool) -> list[Path]:
    """List the class folders of a folder: the .txt files in each are the texts of a class.

    Raises:
        DataError: other data lies beside them, or texts are missing or in deeper folders.
    """
    if not path.is_dir():
        return []

    entries = _visible(path)
    folders = [entry for entry in entries if entry.is_dir()]
    beside = _data_beside(entries, is_labelled=is_labelled)
    if not any(texts_of(folder) for folder in folders):
        has_texts = any(_is_text(entry) for entry in entries)
        if beside is None and not has_texts:
            _check_not_deeper(folders)
        return []

    if beside:
        what = f"holds class folders with .txt files and {beside.name}"
        raise DataError(path, what, "name only one of them")
    _check_not_deeper(folders)
    for folder in folders:
        if not texts_of(folder):
            hint = "move it, or start its name with a dot"
            raise DataError(folder, "a folder without .txt files beside class folders", hint)
    return folders


def texts_of(folder: Path) -> list[Path]:
    """List .txt files."""
    return [entry for entry in _visible(folder) if _is_text(entry) and not entry.is_dir()]


def _is_text(path: Path) -> bool:
    return format_of(path) is TEXT


def _data_beside(entries: Sequence[Path], *, is_labelled: bool) -> Path | None:
    """The first data file; .json, and with labels .txt, may be a readme."""
    formats_of_readmes = [JSON]
    if is_labelled:
        formats_of_readmes.append(TEXT)

    for entry in entries:
        file_format = format_of(entry)
        is_data = file_format is not None and file_format not in formats_of_readmes
        if is_data and not entry.is_dir():
            return entry
    return None


def _check_not_deeper(folders: Sequence[Path]) -> None:
    for folder in folders:
        for inner in _visible(folder):
            if not inner.is_dir():
                continue
            for file in inner.rglob("*"):
                is_hidden = any(_is_hidden(part) for part in file.relative_to(folder).parts)
                if _is_text(file) and not file.is_dir() and not is_hidden:
                    what = f"has texts in deeper folders ({file})"
                    raise DataError(folder, what, "put them directly into the class folder")


def _visible(folder: Path) -> list[Path]:
    return sorted(entry for entry in folder.iterdir() if not _is_hidden(entry.name))


def _is_hidden(name: str) -> bool:
    return name.startswith((".", "~$"))
