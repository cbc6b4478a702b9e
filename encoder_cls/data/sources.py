"""Sources of rows: files, folders, patterns, the bundled example and data sets of the Hub.

A text is passed on exactly as it is in the file, or its row is refused with the location.
"""

from __future__ import annotations

import codecs
import hashlib
import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from encoder_cls.data.hub import hub_folder_or_commit, hub_records
from encoder_cls.data.rows import (
    Columns,
    Reading,
    Record,
    Row,
    SourceLocation,
    group_name,
    numbered,
)
from encoder_cls.data.tables import (
    EXCEL,
    excel_header,
    excel_records,
    parquet_header,
    parquet_records,
)
from encoder_cls.data.text_files import (
    FASTTEXT,
    JSON,
    LABEL_PREFIX,
    TEXT,
    USUAL,
    csv_header,
    csv_records,
    json_records,
    jsonl_records,
    line_records,
    text_records,
)
from encoder_cls.errors import DataError
from encoder_cls.system.display import kind, shown
from encoder_cls.system.encodings import byte_lines, ending_of, opened
from encoder_cls.system.files import fitting_paths

EXAMPLE = Path(__file__).parent / "example"  # the bundled data

FORMATS: dict[str, Callable[[Path, Columns, Reading], Iterator[Record]]] = {
    **dict.fromkeys(USUAL, csv_records),
    ".jsonl": jsonl_records,
    JSON: json_records,
    ".parquet": parquet_records,
    EXCEL: excel_records,
    **dict.fromkeys((FASTTEXT, TEXT), line_records),
}

# Words of a file's name that name its split.
_SPLIT_WORDS = {"training": "train", "valid": "validation", "val": "validation", "testing": "test"}
_SPLITS = ("train", "validation", "dev", "eval", "test")
_SPLIT_WORD = re.compile(
    rf"(?<![a-z])({'|'.join((*_SPLITS, *_SPLIT_WORDS))})(?:set|data)?(?![a-z])"
)


# ---------------------------------------------------------------- rows


def read_rows(
    source: str, columns: Columns, reading: Reading, *, role: str = "test"
) -> Iterator[Row]:
    """Read a source, as `DataConfig.train` describes it; `role` is the split of a Hub data set named without one."""
    return _rows(_records(source, role, columns, reading), columns, reading)


def read_again(places: Iterable[str], columns: Columns, reading: Reading) -> dict[str, Row]:
    """Read rows once more, by location, as far as their files still exist."""
    lines_of: dict[str, set[int]] = {}
    for place in places:
        if (
            isinstance(place, SourceLocation)
            and place.line >= 0
            and ending_of(Path(place.file)) in FORMATS
        ):
            lines_of.setdefault(place.file, set()).add(place.line)
    rows = {}
    for file, lines in lines_of.items():
        path, last = Path(file), max(lines)
        if not path.is_file():  # such as a pipe, which can be read only once
            continue
        with suppress(DataError, OSError):
            for row in _rows(FORMATS[ending_of(path)](path, columns, reading), columns, reading):
                if row.where.line in lines:
                    rows[str(row.where)] = row
                if row.where.line >= last:
                    break
    return rows


def column_names(path: Path, text_columns: Sequence[str], reading: Reading) -> list[str]:
    """The names of all columns of a file, in order; none if its format has no header."""
    ending = ending_of(path)
    with _data_errors(path):
        if ending == ".parquet":
            return parquet_header(path)
        if ending in USUAL:
            return numbered(csv_header(path, text_columns, reading))
        return numbered(excel_header(path, text_columns)) if ending == EXCEL else []


def content_hash(source: str) -> str | None:
    """A hash of the files of a source; None if its content is unknown."""
    folder = hub_folder_or_commit(source) if source.startswith("hub:") else source
    if source.startswith("hub:") and not isinstance(folder, Path):
        return folder
    digest = hashlib.sha256()
    with _data_errors(source):
        files = (
            sorted(folder.rglob("*"))
            if isinstance(folder, Path)
            else every_file(_bundled(source) or source)
        )
        for file in filter(Path.is_file, files):
            with file.open("rb") as content:
                of_file = hashlib.file_digest(content, "sha256").hexdigest()
            digest.update(f"{file}\n{of_file}\n".encode("utf-8", "replace"))
    return digest.hexdigest()


def _rows(records: Iterable[Record], columns: Columns, reading: Reading) -> Iterator[Row]:
    for where, record in records:
        try:
            yield _row(where, record, columns)
        except DataError as error:
            reading.bad_row(error)


def _row(where: SourceLocation, record: dict[str, Any], columns: Columns) -> Row:
    # Text files have only the first.
    texts = [record[column] for column in columns.text if column in record]
    for column, text in zip(columns.text, texts, strict=False):
        if not isinstance(text, str):
            raise DataError(
                where, f"column {shown(column)} holds {kind(text)} where a text is expected"
            )
    number = record.get("id")
    return Row(
        text=" ".join(texts),
        label=record[columns.label] if columns.label else None,
        id=number if isinstance(number, str | int | None) else str(number),
        where=where,
        group=group_name(where, record[columns.group]) if columns.group else None,
        record=record if columns.every else None,
    )


def _records(source: str, role: str, columns: Columns, reading: Reading) -> Iterator[Record]:
    if source.startswith("hub:"):
        yield from hub_records(source, role, columns)
        return
    bundled = _bundled(source)
    if bundled:
        source, reading = bundled, Reading()
    is_labelled = columns.label is not None
    with _data_errors(source):
        if folders := class_folders(Path(source), is_labelled=is_labelled):
            texts = ((folder.name, file) for folder in folders for file in texts_of(folder))
            yield from text_records(Path(source), texts, columns, reading)
            return
        files = data_files(source, is_labelled=is_labelled)
    for file in files:
        with _data_errors(file):
            yield from FORMATS[ending_of(file)](file, columns, reading)


def _bundled(source: str) -> str | None:
    """The file of `example:NAME`, None for any other source."""
    return (
        str(EXAMPLE / f"{source.removeprefix('example:')}.csv")
        if source.startswith("example:")
        else None
    )


@contextmanager
def _data_errors(source: Path | str) -> Iterator[None]:
    """Turn an `OSError` inside the block into a `DataError` that names the file."""
    try:
        yield
    except OSError as error:
        raise DataError(
            error.filename or source, f"cannot be read: {error.strerror or error}"
        ) from None


# ---------------------------------------------------------------- files


def files_named(source: str) -> list[Path]:
    """List the files of a source: itself, those of a folder, or those that fit a pattern, perhaps none.

    Left out are hidden names, unless a pattern names them, and in folders names with the prefix `~$`, which Excel
    writes beside an open file.
    """
    path = Path(source)
    if path.is_dir():
        with _data_errors(source):
            return _visible(path)
    return [path] if path.exists() else sorted(map(Path, fitting_paths(source)))


def every_file(source: str) -> Iterator[Path]:
    """List the files of a source, and those of its class folders."""
    is_folder = Path(source).is_dir()
    for file in files_named(source):
        yield file
        if is_folder and file.is_dir():
            yield from texts_of(file)


def data_files(source: str, *, is_labelled: bool) -> list[Path]:
    """List the data files of a source; a DataError if it has none, or files of unknown formats or several splits."""
    files = files_named(source)
    if Path(source).is_dir():
        files = _without_readmes([file for file in files if ending_of(file) in FORMATS], JSON, b"[")
        if is_labelled:
            files = _without_readmes(files, TEXT, LABEL_PREFIX.encode())
        splits = {split for file in files if (split := _split_of(file))}
        if len(splits) > 1:
            raise DataError(
                source,
                f"holds files of several splits ({', '.join(sorted(splits))})",
                "name one of them",
            )
        if not files:
            raise DataError(
                source, f"no {', '.join(FORMATS)} file and no class folders with .txt files in it"
            )
    if not files:
        start = (
            ""
            if Path(source).is_absolute()
            else f" (paths start at the current folder, {Path.cwd()})"
        )
        raise DataError(source, f"no such file or folder{start}")
    unknown = next((file for file in files if ending_of(file) not in FORMATS), None)
    if unknown:
        raise DataError(unknown, "unknown format", f"known: {', '.join(FORMATS)}")
    return files


def class_folders(path: Path, *, is_labelled: bool) -> list[Path]:
    """List the subfolders, if they hold .txt files: each is a class and each file one text.

    A DataError if other data is beside them, or files would be left out: in deeper folders, or of another format.
    """
    if not path.is_dir():
        return []
    entries = _visible(path)
    folders = [entry for entry in entries if entry.is_dir()]
    data = FORMATS.keys() - {JSON, *({TEXT} if is_labelled else ())}
    beside = next(
        (entry for entry in entries if ending_of(entry) in data and entry not in folders), None
    )
    if not any(map(texts_of, folders)):
        if beside is None and not any(entry.suffix.lower() == TEXT for entry in entries):
            _check_not_deeper(folders)
        return []
    if beside:
        raise DataError(
            path,
            f"holds class folders with .txt files and {beside.name}",
            "name the one or the other",
        )
    _check_not_deeper(folders)
    without = next((folder for folder in folders if not texts_of(folder)), None)
    if without:
        hint = "move it, or start its name with a dot"
        raise DataError(without, "a folder without .txt files beside class folders", hint)
    return folders


def texts_of(folder: Path) -> list[Path]:
    """The .txt files of a folder."""
    return [
        entry for entry in _visible(folder) if entry.suffix.lower() == TEXT and not entry.is_dir()
    ]


def _check_not_deeper(folders: Sequence[Path]) -> None:
    for folder in folders:
        deeper = (file for inner in _visible(folder) if inner.is_dir() for file in inner.rglob("*"))
        texts = (file for file in deeper if file.suffix.lower() == TEXT and not file.is_dir())
        text = next(
            (it for it in texts if not any(map(_is_hidden, it.relative_to(folder).parts))), None
        )
        if text:
            raise DataError(
                folder, f"has texts in deeper folders ({text})", "a class folder holds them itself"
            )


def _visible(folder: Path) -> list[Path]:
    return sorted(entry for entry in folder.iterdir() if not _is_hidden(entry.name))


def _is_hidden(name: str) -> bool:
    return name.startswith((".", "~$"))


def _split_of(file: Path) -> str | None:
    """The split in a file's name, as a whole word: `my_test.csv`, `TrainData2.csv`, not `values.csv`."""
    words = re.sub(r"(?<=[a-z])(?=[A-Z])", " ", file.stem).lower()
    match = _SPLIT_WORD.search(words)
    return _SPLIT_WORDS.get(match[1], match[1]) if match else None


def _without_readmes(files: list[Path], ending: str, mark: bytes) -> list[Path]:
    """Leave out files with this ending beside tables, such as a README.txt, unless one of them starts like data."""
    readmes = [file for file in files if ending_of(file) == ending]
    if len(readmes) == len(files) or any(_starts_with(file, mark) for file in readmes):
        return files
    return [file for file in files if file not in readmes]


def _starts_with(path: Path, mark: bytes) -> bool:
    with opened(path) as file:
        lines = byte_lines(file)
        first = next((line for line in lines if line.removeprefix(codecs.BOM_UTF8).strip()), b"")
    return first.removeprefix(codecs.BOM_UTF8).lstrip(b" \t\v\f\r\n\0").startswith(mark)
