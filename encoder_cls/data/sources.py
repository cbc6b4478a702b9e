"""Find the files of a source: a file, a folder, a pattern."""

from __future__ import annotations

import codecs
import re
from collections.abc import Iterator, Sequence
from pathlib import Path

from encoder_cls.errors import DataError
from encoder_cls.system.encodings import ending_of, opened
from encoder_cls.system.files import fitting_paths

JSON = ".json"  # an array of objects, or an object a line
TABLES = (".csv", ".tsv", ".jsonl", JSON, ".parquet", ".xlsx")
FASTTEXT = ".ft"  # a label and a text a line
TEXT = ".txt"  # a text a line; where labels are wanted, fastText's lines
LABEL_PREFIX = "__label__"  # of the labels of fastText's lines

# Words of a file's name that name its split.
_SPLIT_WORDS = {"training": "train", "valid": "validation", "val": "validation", "testing": "test"}
_SPLITS = ("train", "validation", "dev", "eval", "test")
_SPLIT_WORD = re.compile(rf"(?<![a-z])({'|'.join((*_SPLITS, *_SPLIT_WORDS))})(?:set|data)?(?![a-z])")


def files_named(source: str) -> list[Path]:
    """The files of a source: itself, those of a folder, those that fit a pattern; perhaps none.

    Left out are hidden names, unless the pattern names them: other programs' notes; and, of a folder, names with the
    prefix `~$`, which Excel writes beside an open file.
    """
    path = Path(source)
    if path.is_dir():
        try:
            return _visible(path)
        except OSError as error:
            raise DataError(source, f"cannot be read: {error.strerror or error}") from None
    return [path] if path.exists() else sorted(map(Path, fitting_paths(source)))


def every_file(source: str) -> Iterator[Path]:
    """The files of a source, and those of its class folders."""
    is_folder = Path(source).is_dir()
    for file in files_named(source):
        yield file
        if is_folder and file.is_dir():
            yield from texts_of(file)


def _visible(folder: Path) -> list[Path]:
    return sorted(entry for entry in folder.iterdir() if not entry.name.startswith((".", "~$")))


def data_files(source: str, *, is_labelled: bool) -> list[Path]:
    """The data files of a source; a DataError if it has none, or files of unknown formats or of several splits."""
    known = (*TABLES, FASTTEXT, TEXT)
    files = files_named(source)
    if Path(source).is_dir():
        files = _without_notes([file for file in files if ending_of(file) in known], JSON, b"[")
        if is_labelled:
            files = _without_notes(files, TEXT, LABEL_PREFIX.encode())
        splits = {split for file in files if (split := _split_of(file))}
        if len(splits) > 1:
            raise DataError(source, f"holds files of several splits ({', '.join(sorted(splits))})", "name one of them")
        if not files:
            raise DataError(source, f"no {', '.join(known)} file and no class folders with .txt files in it")
    if not files:
        start = "" if Path(source).is_absolute() else f" (paths start at the current folder, {Path.cwd()})"
        raise DataError(source, f"no such file or folder{start}")
    unknown = next((file for file in files if ending_of(file) not in known), None)
    if unknown:
        raise DataError(unknown, "cannot tell the format from the name", f"known: {', '.join(known)}")
    return files


def _split_of(file: Path) -> str | None:
    """The split in a file's name, as a whole word: `my_test.csv`, `TrainData2.csv`, not `values.csv`."""
    words = re.sub(r"(?<=[a-z])(?=[A-Z])", " ", file.stem).lower()
    match = _SPLIT_WORD.search(words)
    return _SPLIT_WORDS.get(match[1], match[1]) if match else None


def _without_notes(files: list[Path], ending: str, mark: bytes) -> list[Path]:
    """Leave out files of this ending beside tables, such as a README.txt, if none of them starts like data."""
    notes = [file for file in files if ending_of(file) == ending]
    if len(notes) == len(files) or any(_begins_with(file, mark) for file in notes):
        return files
    return [file for file in files if file not in notes]


def _begins_with(path: Path, mark: bytes) -> bool:
    with opened(path) as file:
        first = next((line for line in file if line.removeprefix(codecs.BOM_UTF8).strip()), b"")
    return first.removeprefix(codecs.BOM_UTF8).lstrip(b" \t\v\f\r\n\0").startswith(mark)


def class_folders(path: Path, *, is_labelled: bool) -> list[Path]:
    """The subfolders, if they hold .txt files: each is a class and each file one text.

    A DataError if other data is beside them, or files would be left out: in deeper folders, or of another format.
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
        raise DataError(path, f"holds class folders with .txt files and {beside.name}", "name the one or the other")
    _check_not_deeper(folders)
    without = next((folder for folder in folders if not texts_of(folder)), None)
    if without:
        hint = "move it, or let its name begin with a dot"
        raise DataError(without, "a folder without .txt files beside class folders", hint)
    return folders


def texts_of(folder: Path) -> list[Path]:
    """The .txt files of a folder."""
    return [entry for entry in _visible(folder) if entry.suffix.lower() == TEXT and not entry.is_dir()]


def _check_not_deeper(folders: Sequence[Path]) -> None:
    for folder in folders:
        text = _deeper_text(folder)
        if text:
            raise DataError(folder, f"has texts in deeper folders ({text})", "a class folder holds them itself")


def _deeper_text(folder: Path) -> Path | None:
    """The first text in the folders of a folder, however deep; links are not followed further."""
    for deeper in filter(Path.is_dir, _visible(folder)):
        text = next(iter(texts_of(deeper)), None) or (None if deeper.is_symlink() else _deeper_text(deeper))
        if text:
            return text
    return None
