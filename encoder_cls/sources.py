"""Files, folders, globs and Hub data sets in, rows out, each with its place.

Every reader is strict: a text is passed on exactly as it stands in the file, or the row is refused with
its place (file:line). Nothing is guessed, coerced or skipped in silence.
"""

from __future__ import annotations

import csv
import glob
import json
import re
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple
from urllib.parse import unquote

from encoder_cls.errors import DataError

SUFFIXES = (".csv", ".tsv", ".jsonl", ".parquet")
TEXT_SUFFIX = ".txt"  # of files that have no labels: a text a line
HUB_TIMEOUT = 10.0  # seconds


class Place(NamedTuple):
    """Where a row was read: a file and the line, or the number, of the row in it; -1 where the file is one row."""

    file: str
    line: int = -1

    def __str__(self) -> str:
        return self.file if self.line < 0 else f"{self.file}:{self.line}"


class Row(NamedTuple):
    """One row of a source, unchanged."""

    text: str
    label: str | int | None
    id: str | int | None
    where: Place


def read_rows(source: str, *, role: str, text_columns: Sequence[str], label_column: str | None) -> Iterator[Row]:
    """Read a source row by row.

    Args:
        source: what `DataConfig.train` describes.
        role: train, validation or test: the split taken from a Hub data set that is named without one.
        text_columns: the columns whose texts, joined by a space, are the text.
        label_column: the column with the class; none where the rows have no labels: then files may be `.txt`, too.

    Raises:
        DataError: with file and line.
    """
    for where, record in _records(source, role, text_columns, label_column):
        texts = [record[column] for column in text_columns if column in record]  # text files have but the first
        for column, text in zip(text_columns, texts, strict=False):
            if not isinstance(text, str):
                raise DataError(f"{where}: column {shown(column)} holds {kind(text)} where a text is expected")
        label = record[label_column] if label_column else None
        number = record.get("id")
        yield Row(" ".join(texts), label, number if isinstance(number, str | int | None) else str(number), where)


def shown(text: str, *, limit: int = 80) -> str:
    """A text from outside in quotes for a message: short, on one line, control characters escaped."""
    return repr(text if len(text) <= limit else text[: limit - 1] + "…")


def kind(value: Any) -> str:
    """What a value is, for a message."""
    return "nothing" if value is None else f"{type(value).__name__} {shown(str(value), limit=40)}"


Record = tuple[Place, dict[str, Any]]  # where it was read, and its columns


def _records(source: str, role: str, text_columns: Sequence[str], label_column: str | None) -> Iterator[Record]:
    columns = [*text_columns, *([label_column] if label_column else [])]
    scheme, colon, rest = source.partition(":")
    if colon and scheme == "hub":
        yield from _hub_records(rest, role, columns)
        return
    if colon and scheme == "example":
        source = str(Path(__file__).parent / "example" / f"{rest}.csv")
    place: Path | str = source
    reader = {".csv": _csv_records, ".tsv": _tsv_records, ".jsonl": _jsonl_records, ".parquet": _parquet_records}
    if label_column is None:
        reader[TEXT_SUFFIX] = _line_records
    try:
        class_folders = _class_folders(Path(source))
        if class_folders:
            yield from _text_file_records(class_folders, text_columns, label_column)
            return
        for file in _data_files(source, tuple(reader)):
            place = file
            yield from reader[file.suffix.lower()](file, columns)
    except OSError as error:
        raise DataError(f"{error.filename or place}: cannot be read: {error.strerror or error}") from None


def files_named(source: str) -> list[Path]:
    """What a source names on this machine: a file, what a folder holds, what fits a pattern; perhaps nothing.

    Raises:
        DataError: the folder cannot be read.
    """
    path = Path(source)
    if path.is_dir():
        try:
            return sorted(path.iterdir())
        except OSError as error:
            raise DataError(f"{source}: cannot be read: {error.strerror or error}") from None
    if path.exists():
        return [path]
    return sorted(Path(name) for name in glob.glob(source, recursive=True))  # noqa: PTH207 - absolute patterns, too


def _data_files(source: str, suffixes: Sequence[str]) -> list[Path]:
    files = files_named(source)
    if Path(source).is_dir():
        files = [file for file in files if file.suffix.lower() in suffixes]
        splits = {match[0] for file in files if (match := re.match("train|val|dev|eval|test", file.name.lower()))}
        if len(splits) > 1:
            raise DataError(f"{source}: holds files of several splits ({', '.join(sorted(splits))}); name one of them")
        if not files:
            raise DataError(f"{source}: no {', '.join(suffixes)} file and no class folders with .txt files in it")
    if not files:
        raise DataError(f"{source}: no such file or folder (paths start at the current folder, {Path.cwd()})")
    for file in files:
        if file.suffix.lower() not in suffixes:
            raise DataError(f"{file}: cannot tell the format from the name; known: {', '.join(suffixes)}")
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


def _check_columns(path: Path | Place | str, found: Sequence[str], wanted: Sequence[str]) -> None:
    missing = [column for column in wanted if column not in found]
    if missing:
        alike = [name for name in found if name.strip().lower() == missing[0].lower()]
        hint = "name the right one: data.text_column and data.label_column in the config, --text-column in predict"
        if alike:
            hint = f"did you mean {shown(alike[0])}? {hint}"
        elif len(found) == 1 and (separator := next((it for it in ";|\t" if it in found[0]), None)):
            hint = f"its fields seem to be separated by {shown(separator)}: save it with commas, or with tabs as .tsv"
        raise DataError(
            f"{path}: no column {shown(missing[0])}; it has {', '.join(shown(name) for name in found[:20])} ({hint})"
        )


def _check_undoubled(where: Path | str, found: Sequence[str], wanted: Sequence[str]) -> None:
    doubled = next((name for name in wanted if found.count(name) > 1), None)
    if doubled is not None:
        raise DataError(f"{where}: two columns are called {shown(doubled)}")


def _table_records(path: Path, rows: Iterator[tuple[int, list[str]]], columns: Sequence[str]) -> Iterator[Record]:
    """Rows of strings, the first being the header, as records; each must have as many fields."""
    _, header = next(rows, (1, []))
    if not header:
        raise DataError(f"{path}: the file is empty")
    _check_columns(path, header, columns)
    _check_undoubled(f"{path}:1", header, columns)
    name = str(path)
    for line, fields in rows:
        if not fields and len(header) > 1:
            continue  # an empty line
        values = fields or [""]
        if len(values) != len(header):
            raise DataError(f"{path}:{line}: {len(values)} fields where the header has {len(header)}")
        yield Place(name, line), dict(zip(header, values, strict=True))


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
                hint = "a carriage return without a line feed" if "new-line" in str(error) else f"{error}"
                raise DataError(f"{path}:{first_line}: not valid CSV: {hint} (is a quote left open?)") from None
            yield first_line, fields

    yield from _table_records(path, rows(), columns)


def _tsv_records(path: Path, columns: Sequence[str]) -> Iterator[Record]:
    """Tab-separated values have no quoting: a quote is a character like any other."""
    lines = (line.removesuffix("\n").removesuffix("\r") for line in _text_lines(path))
    rows = ((number, line.split("\t") if line else []) for number, line in enumerate(lines, start=1))
    yield from _table_records(path, rows, columns)


def _line_records(path: Path, columns: Sequence[str]) -> Iterator[Record]:
    name = str(path)
    for number, line in enumerate(_text_lines(path), start=1):
        if line.strip():
            yield Place(name, number), {columns[0]: line.rstrip("\r\n")}


def _jsonl_records(path: Path, columns: Sequence[str]) -> Iterator[Record]:
    name = str(path)
    for number, line in enumerate(_text_lines(path), start=1):
        if not line.strip():
            continue
        where = Place(name, number)
        try:
            record = json.loads(line, object_pairs_hook=_without_doubles)
        except (ValueError, RecursionError) as error:
            raise DataError(f"{where}: not valid JSON: {error}") from None
        if not isinstance(record, dict):
            raise DataError(f"{where}: a JSON object is expected, not {kind(record)}")
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
            _check_undoubled(path, schema.names, columns)
            wanted = [*columns, *({"id"} & set(schema.names) - set(columns))]
            names = _class_label_names(schema.metadata)
            number, name = 0, str(path)
            for batch in file.iter_batches(batch_size=4096, columns=wanted):
                for record in batch.to_pylist():
                    number += 1
                    where = Place(name, number)
                    yield where, _with_class_names(record, names, where)
    except (pyarrow.ArrowException, ValueError, OverflowError, OSError) as error:
        if isinstance(error, OSError) and error.errno:
            raise  # the disk's; all others are about the content, the middle two about values Python cannot hold
        reason = next(iter(str(error).splitlines()), type(error).__name__)
        raise DataError(f"{path}: not a readable Parquet file: {shown(reason, limit=200)[1:-1]}") from None


def _class_label_names(metadata: dict[bytes, bytes] | None) -> dict[str, list[str]]:
    """The class names that the `datasets` library keeps in a Parquet file beside integer labels."""
    try:
        features = json.loads((metadata or {})[b"huggingface"])["info"]["features"]
        return {column: list(feature["names"]) for column, feature in features.items() if "names" in feature}
    except (AttributeError, KeyError, TypeError, ValueError):
        return {}


def _with_class_names(record: dict[str, Any], names: dict[str, list[str]], where: Place) -> dict[str, Any]:
    for column in names.keys() & record.keys():
        label = record[column]
        if not isinstance(label, int) or not 0 <= label < len(names[column]):
            raise DataError(f"{where}: label {label} of column {shown(column)} has no name: is this split unlabelled?")
        record[column] = names[column][label]
    return record


def _class_folders(path: Path) -> list[Path]:
    """The subfolders that hold .txt files: each is a class and each file one text; no tables may be beside them."""
    if not path.is_dir():
        return []
    folders = sorted(folder for folder in path.iterdir() if folder.is_dir() and next(folder.glob("*.txt"), None))
    table = (
        next((file for file in sorted(path.iterdir()) if file.suffix.lower() in SUFFIXES), None) if folders else None
    )
    if table:
        raise DataError(f"{path}: holds class folders with .txt files and {table.name}; name the one or the other")
    return folders


def _text_file_records(
    folders: Sequence[Path], text_columns: Sequence[str], label_column: str | None
) -> Iterator[Record]:
    if len(text_columns) > 1 and label_column:
        raise DataError(f"{folders[0].parent}: text files have no columns; name a single one in data.text_column")
    for folder in folders:
        for file in sorted(folder.glob("*.txt")):
            record: dict[str, Any] = {text_columns[0]: "".join(_text_lines(file)), "id": file.name}
            yield Place(str(file)), record | ({label_column: folder.name} if label_column else {})


def _hub_records(rest: str, role: str, columns: Sequence[str]) -> Iterator[Record]:
    """A data set of the Hugging Face Hub, or a local folder laid out like one."""
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
    _check_columns(f"hub:{name}", table.column_names, columns)
    # Only what is asked for: a test split whose labels are all -1 can still be predicted.
    table = table.select_columns(list(dict.fromkeys([*columns, *({"id"} & set(table.column_names))])))
    names = {
        column: feature.names for column, feature in table.features.items() if isinstance(feature, datasets.ClassLabel)
    }
    for number, record in enumerate(table):
        where = Place(f"hub:{name}/{split}", number)
        yield where, _with_class_names(record, names, where)


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
