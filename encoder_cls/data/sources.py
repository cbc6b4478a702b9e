"""Resolve a source to data files: files, folders, patterns."""

from __future__ import annotations

import codecs
import re
from collections.abc import Iterator, Sequence
from pathlib import Path

from encoder_cls.data.formats import fasttext as fasttext_format
from encoder_cls.errors import DataError
from encoder_cls.system.encodings import ending_of, opened
from encoder_cls.system.files import fitting_paths

JSON = ".json"  # an array of objects, or an object a line
TABLES = (".csv", ".tsv", ".jsonl", JSON, ".parquet", ".xlsx")
FASTTEXT = ".ft"  # a label and a text a line
TEXT = ".txt"  # a text a line; where labels are wanted, fastText's lines

# Words of a file's name that tell its split.
_SPLIT_WORDS = {"training": "train", "valid": "validation", "val": "validation", "testing": "test"}
_SPLITS = ("train", "validation", "dev", "eval", "test")
_SPLIT_WORD = re.compile(rf"(?<![a-z])({'|'.join((*_SPLITS, *_SPLIT_WORDS))})(?:set|data)?(?![a-z])")


def files_named(source: str) -> list[Path]:
    """What a source names on this machine: a file, what a folder holds, what fits a pattern; perhaps nothing.

    Of a folder, and by a pattern that does not say so, nothing is named that begins with a dot: other programs' notes;
    nor what begins with `~$`, which Excel writes beside a file that is open.

    Raises:
        DataError: the folder cannot be read.
    """
    path = Path(source)
    if path.is_dir():
        try:
            return _visible(path)
        except OSError as error:
            raise DataError(f"{source}: cannot be read: {error.strerror or error}") from None
    if path.exists():
        return [path]
    return sorted(map(Path, fitting_paths(source)))


def every_file(source: str) -> Iterator[Path]:
    """All that a source names, and what is in its class folders, too.

    Raises:
        DataError: a folder cannot be read.
    """
    is_folder = Path(source).is_dir()
    for file in files_named(source):
        yield file
        if is_folder and file.is_dir():
            yield from texts_of(file)


def _visible(folder: Path) -> list[Path]:
    return sorted(entry for entry in folder.iterdir() if not entry.name.startswith((".", "~$")))


def data_files(source: str, *, is_labelled: bool) -> list[Path]:
    """The files that a source names, each of a known format.

    Raises:
        DataError: there is none, one is of no known format, or a folder holds several splits.
    """
    known = (*TABLES, FASTTEXT, TEXT)
    files = files_named(source)
    if Path(source).is_dir():
        files = [file for file in files if ending_of(file) in known]
        files = _without_notes(files, JSON, b"[")
        if is_labelled:
            files = _without_notes(files, TEXT, fasttext_format.PREFIX.encode())
        splits = {split for file in files if (split := _split_of(file))}
        if len(splits) > 1:
            raise DataError(f"{source}: holds files of several splits ({', '.join(sorted(splits))}); name one of them")
        if not files:
            raise DataError(f"{source}: no {', '.join(known)} file and no class folders with .txt files in it")
    if not files:
        start = "" if Path(source).is_absolute() else f" (paths start at the current folder, {Path.cwd()})"
        raise DataError(f"{source}: no such file or folder{start}")
    for file in files:
        if ending_of(file) not in known:
            raise DataError(f"{file}: cannot tell the format from the name; known: {', '.join(known)}")
    return files


def _split_of(file: Path) -> str | None:
    """The split that a file's name tells, as a whole word in it: `my_test.csv`, `TrainData2.csv`, not `values.csv`."""
    words = re.sub(r"(?<=[a-z])(?=[A-Z])", " ", file.stem).lower()
    match = _SPLIT_WORD.search(words)
    return _SPLIT_WORDS.get(match[1], match[1]) if match else None


def _without_notes(files: list[Path], ending: str, mark: bytes) -> list[Path]:
    """The files of a folder, less those beside tables of which none begins as data does, such as a README.txt."""
    notes = [file for file in files if ending_of(file) == ending]
    if len(notes) == len(files) or any(_begins_with(file, mark) for file in notes):
        return files
    return [file for file in files if file not in notes]


def _begins_with(path: Path, mark: bytes) -> bool:
    """Whether a file does, but for blanks and the mark of UTF-8."""
    with opened(path) as file:
        first = next((line for line in file if line.removeprefix(codecs.BOM_UTF8).strip()), b"")
    return first.removeprefix(codecs.BOM_UTF8).lstrip(b" \t\v\f\r\n\0").startswith(mark)


def class_folders(path: Path, *, is_labelled: bool) -> list[Path]:
    """The subfolders, if they hold .txt files: each is a class and each file one text.

    Raises:
        DataError: other data is beside them, or files would be left out: those in deeper folders, or of another format.
    """
    if not path.is_dir():
        return []
    entries = _visible(path)
    folders = [entry for entry in entries if entry.is_dir()]
    data = {*TABLES, FASTTEXT, TEXT} - {JSON, *({TEXT} if is_labelled else ())}
    beside = next((entry for entry in entries if ending_of(entry) in data and entry not in folders), None)
    if not any(map(texts_of, folders)):
        if beside is None and not any(entry.suffix.lower() == TEXT for entry in entries):
            _check_not_deeper(folders)
        return []
    if beside:
        raise DataError(f"{path}: holds class folders with .txt files and {beside.name}; name the one or the other")
    _check_not_deeper(folders)
    without = next((folder for folder in folders if not texts_of(folder)), None)
    if without:
        raise DataError(
            f"{without}: a folder without .txt files beside class folders; move it, or let its name begin with a dot"
        )
    return folders


def texts_of(folder: Path) -> list[Path]:
    """The .txt files of a folder."""
    return [entry for entry in _visible(folder) if entry.suffix.lower() == TEXT and not entry.is_dir()]


def _check_not_deeper(folders: Sequence[Path]) -> None:
    """Make sure that no text is in a folder of a class folder, where nobody would read it."""
    for folder in folders:
        for deeper in (entry for entry in _visible(folder) if entry.is_dir()):
            text = _first_text(deeper)
            if text:
                raise DataError(f"{folder}: has texts in deeper folders ({text}); a class folder holds them itself")


def _first_text(folder: Path) -> Path | None:
    texts = texts_of(folder)
    if texts:
        return texts[0]
    deeper = (_first_text(entry) for entry in _visible(folder) if entry.is_dir() and not entry.is_symlink())
    return next((text for text in deeper if text), None)
