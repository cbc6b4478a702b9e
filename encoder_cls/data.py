"""Files, folders, globs and Hub data sets in; `Dataset` (texts, labels, class names) out.

Every reader is strict: a text is passed on exactly as it stands in the file, or the row is refused with
its place (file:line). Nothing is guessed, coerced or skipped in silence.
"""

from __future__ import annotations

import csv
import glob
import hashlib
import json
import re
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple
from urllib.parse import parse_qs

import numpy as np
from numpy.typing import NDArray

from encoder_cls.config import DataConfig
from encoder_cls.errors import DataError

SUFFIXES = (".csv", ".tsv", ".jsonl", ".parquet")
SHOWN_NAMES = 8


class Row(NamedTuple):
    """One row of a source, unchanged."""

    text: str
    label: str | int | None
    id: str | int | None
    where: str


@dataclass(frozen=True, kw_only=True)
class Split:
    """Labelled examples: `texts[i]` belongs to class number `labels[i]` and was read at `where[i]`."""

    texts: Sequence[str]
    labels: NDArray[np.int64]
    where: Sequence[str]

    def __len__(self) -> int:
        return len(self.texts)

    def subset(self, indices: NDArray[np.int64]) -> Split:
        """The examples at these places, in this order."""
        return Split(
            texts=[self.texts[i] for i in indices],
            labels=self.labels[indices],
            where=[self.where[i] for i in indices],
        )

    def fingerprint(self) -> str:
        """A SHA-256 of all texts and labels in order: equal data, equal fingerprint."""
        digest = hashlib.sha256(self.labels.tobytes())
        for text in self.texts:
            digest.update(text.encode())
            digest.update(b"\0")
        return digest.hexdigest()


@dataclass(frozen=True, kw_only=True)
class Dataset:
    """The splits of one classification task; class number `c` is called `label_names[c]`."""

    label_names: tuple[str, ...]
    train: Split
    validation: Split
    test: Split | None


def load_dataset(config: DataConfig, *, seed: int) -> Dataset:
    """Read all splits that the config names, and hold out a validation split where none is named.

    Raises:
        DataError: a source is missing or malformed, has fewer than two classes, or a validation or
            test label never occurs in train.
    """
    train_rows = _labelled_rows(config.train, "train", config)
    label_names = _class_names(train_rows, config)
    train = _to_split(train_rows, label_names)
    if config.validation is None:
        train, validation = hold_out(train, label_names, fraction=config.validation_fraction, seed=seed)
    else:
        validation = _to_split(_labelled_rows(config.validation, "validation", config), label_names)
    test = None
    if config.test is not None:
        test = _to_split(_labelled_rows(config.test, "test", config), label_names)
    return Dataset(label_names=label_names, train=train, validation=validation, test=test)


def load_split(source: str, config: DataConfig, label_names: tuple[str, ...]) -> Split:
    """Read one labelled source whose classes are known.

    Raises:
        DataError: as `load_dataset`.
    """
    return _to_split(_labelled_rows(source, "test", config), label_names)


def hold_out(split: Split, label_names: Sequence[str], *, fraction: float, seed: int) -> tuple[Split, Split]:
    """Divide a split in two, the second part holding about `fraction` of each class and one at least.

    Raises:
        DataError: a class has a single example, which cannot be on both sides.
    """
    random = np.random.default_rng(seed)
    held_out = np.zeros(len(split), dtype=bool)
    for label, name in enumerate(label_names):
        members = random.permutation(np.flatnonzero(split.labels == label))
        if len(members) == 1:
            raise DataError(
                f"{split.where[members[0]]}: class {shown(name)} has only this example, so none is left to validate "
                "with; add examples, or name a file in data.validation"
            )
        held_out[members[: max(1, round(fraction * len(members)))]] = True
    return split.subset(np.flatnonzero(~held_out)), split.subset(np.flatnonzero(held_out))


def read_rows(source: str, *, role: str, text_columns: Sequence[str], label_column: str | None) -> Iterator[Row]:
    """Read a source row by row.

    Args:
        source: what `DataConfig.train` describes.
        role: train, validation or test: the split taken from a Hub data set that is named without one.
        text_columns: the columns whose texts, joined by a space, are the text.
        label_column: the column with the class; none where the rows have no labels.

    Raises:
        DataError: with file and line.
    """
    for where, record in _records(source, role, columns=[*text_columns, *([label_column] if label_column else [])]):
        texts = [record[column] for column in text_columns]
        for column, text in zip(text_columns, texts, strict=True):
            if not isinstance(text, str):
                raise DataError(f"{where}: column {shown(column)} holds {_kind(text)} where a text is expected")
        label = record[label_column] if label_column else None
        yield Row(" ".join(texts), label, record.get("id"), where)


def shown(text: str, *, limit: int = 80) -> str:
    """A text from outside in quotes for a message: short, on one line, control characters escaped."""
    return repr(text if len(text) <= limit else text[: limit - 1] + "…")


# ---------------------------------------------------------------- rows -> split


def _labelled_rows(source: str, role: str, config: DataConfig) -> list[Row]:
    rows, dropped = [], 0
    first_empty = None
    reader = read_rows(source, role=role, text_columns=config.text_column, label_column=config.label_column)
    for row in reader:
        if not row.text.strip():
            first_empty, dropped = first_empty or row.where, dropped + 1
            continue
        _check_unicode(row)
        rows.append(row._replace(label=_named(row, config.label_names)))
    if first_empty and config.empty_texts == "error":
        more = f" (and {dropped - 1} rows after it)" if dropped > 1 else ""
        raise DataError(f"{first_empty}: the text is empty{more}; mend the file or set data.empty_texts=drop")
    if not rows:
        raise DataError(f"{source}: no rows with a text")
    return rows


def _check_unicode(row: Row) -> None:
    try:
        row.text.encode()
    except UnicodeEncodeError as error:
        raise DataError(f"{row.where}: the text holds half of a surrogate pair at character {error.start}") from None


def _named(row: Row, names: Sequence[str] | None) -> str:
    """The class name of a row's label."""
    label = row.label
    if isinstance(label, bool) or not isinstance(label, str | int):
        raise DataError(f"{row.where}: the label is {_kind(label)}; a name or an integer is expected")
    if names is not None and (isinstance(label, int) or re.fullmatch(r"\d+", label)) and str(label) not in names:
        if not 0 <= int(label) < len(names):
            raise DataError(f"{row.where}: label {label} has no name; data.label_names holds {len(names)} names")
        return names[int(label)]
    name = str(label)
    if not name.strip():
        raise DataError(f"{row.where}: the label is empty")
    if names is not None and name not in names:
        raise DataError(f"{row.where}: label {shown(name)} is not in data.label_names")
    return name


def _class_names(rows: Sequence[Row], config: DataConfig) -> tuple[str, ...]:
    """The classes that occur, in the order of `data.label_names`, of their numbers, or of the alphabet."""
    found = {str(row.label) for row in rows}
    if len(found) < 2:
        raise DataError(
            f"{config.train}: every row has the label {shown(found.pop())}; at least two classes are needed"
        )
    if config.label_names is not None:
        return tuple(name for name in config.label_names if name in found)
    if all(re.fullmatch(r"-?\d+", name) for name in found):
        return tuple(sorted(found, key=int))
    return tuple(sorted(found))


def _to_split(rows: Sequence[Row], label_names: tuple[str, ...]) -> Split:
    numbers = {name: number for number, name in enumerate(label_names)}
    for row in rows:
        if row.label not in numbers:
            known = ", ".join(shown(name) for name in label_names[:SHOWN_NAMES])
            more = ", …" if len(label_names) > SHOWN_NAMES else ""
            raise DataError(f"{row.where}: label {shown(str(row.label))} never occurs in train ({known}{more})")
    return Split(
        texts=[row.text for row in rows],
        labels=np.array([numbers[str(row.label)] for row in rows], dtype=np.int64),
        where=[row.where for row in rows],
    )


def _kind(value: Any) -> str:
    return "nothing" if value is None else f"{type(value).__name__} {shown(str(value), limit=40)}"


# ---------------------------------------------------------------- sources -> records

Record = tuple[str, dict[str, Any]]  # where it was read, and its columns


def _records(source: str, role: str, columns: Sequence[str]) -> Iterator[Record]:
    scheme, colon, rest = source.partition(":")
    if colon and scheme == "hub":
        yield from _hub_records(rest, role, columns)
        return
    if colon and scheme == "example":
        source = str(Path(__file__).parent / "example" / f"{rest}.csv")
    path = Path(source)
    class_folders = _class_folders(path)
    if class_folders:
        yield from _text_file_records(class_folders, columns)
        return
    for file in _data_files(source):
        reader = {".csv": _csv_records, ".tsv": _tsv_records, ".jsonl": _jsonl_records, ".parquet": _parquet_records}
        try:
            yield from reader[file.suffix](file, columns)
        except OSError as error:
            raise DataError(f"{file}: cannot be read: {error.strerror or error}") from None


def _data_files(source: str) -> list[Path]:
    path = Path(source)
    if path.is_dir():
        files = sorted(file for file in path.iterdir() if file.suffix in SUFFIXES)
        splits = {match[0] for file in files if (match := re.match("train|valid|dev|test", file.name))}
        if len(splits) > 1:
            raise DataError(f"{source}: holds files of several splits ({', '.join(sorted(splits))}); name one of them")
        if not files:
            raise DataError(f"{source}: no {', '.join(SUFFIXES)} file and no class folders with .txt files in it")
    elif path.exists():
        files = [path]
    else:
        files = sorted(Path(name) for name in glob.glob(source, recursive=True))  # noqa: PTH207 - absolute globs too
        if not files:
            raise DataError(f"{source}: no such file or folder (paths start at the current folder, {Path.cwd()})")
    for file in files:
        if file.suffix not in SUFFIXES:
            raise DataError(f"{file}: cannot tell the format from the name; known: {', '.join(SUFFIXES)}")
    return files


def _text_lines(path: Path) -> Iterator[str]:
    """The lines of a UTF-8 file, with or without the mark that Excel puts first; ends are kept."""
    with path.open("rb") as file:
        for number, line in enumerate(file, start=1):
            try:
                text = line.decode("utf-8-sig" if number == 1 else "utf-8")
            except UnicodeDecodeError as error:
                raise DataError(
                    f"{path}:{number}: not UTF-8 text (byte {error.start} of the line); save the file as UTF-8"
                ) from None
            yield text


def _check_columns(path: Path | str, found: Sequence[str], wanted: Sequence[str]) -> None:
    missing = [column for column in wanted if column not in found]
    if missing:
        raise DataError(
            f"{path}: no column {shown(missing[0])}; it has {', '.join(shown(name) for name in found[:20])} "
            "(name the right one: data.text_column and data.label_column in the config, --text-column in predict)"
        )


def _table_records(path: Path, rows: Iterator[tuple[int, list[str]]], columns: Sequence[str]) -> Iterator[Record]:
    """Rows of strings, the first being the header, as records; each must have as many fields."""
    _, header = next(rows, (1, []))
    if not header:
        raise DataError(f"{path}: the file is empty")
    _check_columns(path, header, columns)
    doubled = next((name for name in columns if header.count(name) > 1), None)
    if doubled is not None:
        raise DataError(f"{path}:1: two columns are called {shown(doubled)}")
    for line, fields in rows:
        if not fields and len(header) > 1:
            continue  # an empty line
        values = fields or [""]
        if len(values) != len(header):
            raise DataError(f"{path}:{line}: {len(values)} fields where the header has {len(header)}")
        yield f"{path}:{line}", dict(zip(header, values, strict=True))


def _csv_records(path: Path, columns: Sequence[str]) -> Iterator[Record]:
    csv.field_size_limit(sys.maxsize)

    def rows() -> Iterator[tuple[int, list[str]]]:
        reader = csv.reader(_text_lines(path), strict=True)
        while True:
            first_line = reader.line_num + 1
            try:
                fields = next(reader)
            except StopIteration:
                return
            except csv.Error as error:
                raise DataError(f"{path}:{first_line}: not valid CSV: {error} (is a quote left open?)") from None
            yield first_line, fields

    yield from _table_records(path, rows(), columns)


def _tsv_records(path: Path, columns: Sequence[str]) -> Iterator[Record]:
    """Tab-separated values have no quoting: a quote is a character like any other."""
    lines = (line.removesuffix("\n").removesuffix("\r") for line in _text_lines(path))
    rows = ((number, line.split("\t") if line else []) for number, line in enumerate(lines, start=1))
    yield from _table_records(path, rows, columns)


def _jsonl_records(path: Path, columns: Sequence[str]) -> Iterator[Record]:
    for number, line in enumerate(_text_lines(path), start=1):
        if not line.strip():
            continue
        where = f"{path}:{number}"
        try:
            record = json.loads(line, object_pairs_hook=_without_doubles)
        except (ValueError, RecursionError) as error:
            raise DataError(f"{where}: not valid JSON: {error}") from None
        if not isinstance(record, dict):
            raise DataError(f"{where}: a JSON object is expected, not {_kind(record)}")
        _check_columns(where, list(record), columns)
        yield where, record


def _without_doubles(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    record = dict(pairs)
    if len(record) != len(pairs):
        raise ValueError("a key occurs twice")
    return record


def _parquet_records(path: Path, columns: Sequence[str]) -> Iterator[Record]:
    import pyarrow
    import pyarrow.parquet

    try:
        with pyarrow.parquet.ParquetFile(path) as file:
            schema = file.schema_arrow
            _check_columns(path, schema.names, columns)
            wanted = [*columns, *({"id"} & set(schema.names) - set(columns))]
            names = _class_label_names(schema.metadata)
            number = 0
            for batch in file.iter_batches(batch_size=4096, columns=wanted):
                for record in batch.to_pylist():
                    number += 1
                    where = f"{path}:{number}"
                    yield where, _with_class_names(record, names, where)
    except pyarrow.ArrowException as error:
        raise DataError(f"{path}: not a readable Parquet file: {str(error).splitlines()[0]}") from None


def _class_label_names(metadata: dict[bytes, bytes] | None) -> dict[str, list[str]]:
    """The class names that the `datasets` library keeps in a Parquet file beside integer labels."""
    try:
        features = json.loads((metadata or {})[b"huggingface"])["info"]["features"]
        return {column: feature["names"] for column, feature in features.items() if "names" in feature}
    except (KeyError, TypeError, ValueError):
        return {}


def _with_class_names(record: dict[str, Any], names: dict[str, list[str]], where: str) -> dict[str, Any]:
    for column in names.keys() & record.keys():
        label = record[column]
        if not isinstance(label, int) or not 0 <= label < len(names[column]):
            raise DataError(f"{where}: label {label} of column {shown(column)} has no name: is this split unlabelled?")
        record[column] = names[column][label]
    return record


def _class_folders(path: Path) -> list[Path]:
    """The subfolders that hold .txt files: each is a class and each file one text."""
    if not path.is_dir():
        return []
    return sorted(folder for folder in path.iterdir() if folder.is_dir() and next(folder.glob("*.txt"), None))


def _text_file_records(folders: Sequence[Path], columns: Sequence[str]) -> Iterator[Record]:
    text_column, *label_column = columns
    for folder in folders:
        for file in sorted(folder.glob("*.txt")):
            record: dict[str, Any] = {text_column: "".join(_text_lines(file)), "id": file.name}
            yield str(file), record | dict.fromkeys(label_column, folder.name)


def _hub_records(rest: str, role: str, columns: Sequence[str]) -> Iterator[Record]:
    """A data set of the Hugging Face Hub, or a local folder laid out like one."""
    import datasets

    name, _, query = rest.partition("?")
    options = {key: values[-1] for key, values in parse_qs(query).items()}
    unknown = options.keys() - {"config", "split", "revision"}
    if not name or unknown:
        raise DataError(f"hub:{rest}: write it as hub:owner/name[?config=...&split=...&revision=...]")
    if not sys.stderr.isatty():
        datasets.disable_progress_bars()
    split = options.get("split", role)
    try:
        table = datasets.load_dataset(name, options.get("config"), split=split, revision=options.get("revision"))
    except Exception as error:
        reason = next(iter(str(error).splitlines()), type(error).__name__)
        raise DataError(
            f"hub:{name}: cannot load split {shown(split)}: {reason} "
            "(check the name and the network, or download the files and name them instead)"
        ) from None
    _check_columns(f"hub:{name}", table.column_names, columns)
    names = {
        column: feature.names for column, feature in table.features.items() if isinstance(feature, datasets.ClassLabel)
    }
    for number, record in enumerate(table):
        where = f"hub:{name}/{split}:{number}"
        yield where, _with_class_names(record, names, where)
