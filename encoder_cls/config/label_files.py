"""Read the files that keys of `data` may name: label_map, label_names, code_names and levels."""

from __future__ import annotations

import csv
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from os import PathLike
from pathlib import Path
from typing import Any

from encoder_cls.errors import ConfigError, DataError
from encoder_cls.system.csv_cells import cell
from encoder_cls.system.display import shown
from encoder_cls.system.encodings import UTF8, guessed_encoding, text_lines
from encoder_cls.system.sheet_tables import in_sight, opened_excel, sheet_tables
from encoder_cls.system.xlsx import NO_RESULT, ErrorCell

# The separators that a table may have. The first line shows which one it is.
SEPARATORS = "\t;,"
# The endings of files that are tables. All other files of class names have a name on each line.
TABLES = {".csv", ".tsv"}
EXCEL = ".xlsx"
# The endings of files of levels; other texts are separators of codes.
CODE_TABLES = {*TABLES, EXCEL, ".xls", ".ods"}
# The columns of a table of codes that are read.
CODE_COLUMNS = ("code", "parent", "name")
# The name of a column of labels by which the first row is a header, beside `data.label_column`.
LABEL = "label"


def with_label_files(
    values: Mapping[str, Any], *, folder: Path | None = None, label_column: str = LABEL
) -> dict[str, Any]:
    """Replace the files of labels and codes by what they hold, so that the run needs them no more.

    A path starts at `folder` if nothing is at the path itself. Names in the file of `data.levels`
    become `data.code_names`, unless this is set.

    Raises:
        ConfigError: a file cannot be read, or is no such table.
    """
    data = values.get("data")
    if not isinstance(data, Mapping):
        return dict(values)

    header = str(data.get("label_column", label_column))
    replaced: dict[str, Any] = {}
    for key, read in (
        ("label_map", _label_map),
        ("label_names", _label_names),
        ("code_names", _code_names),
    ):
        file = data.get(key)
        if file == "":
            raise ConfigError(f"data.{key}: names no file; leave the key out if there is none")
        if isinstance(file, str | PathLike):
            replaced[key] = read(_beside(file, folder), header)

    levels = data.get("levels")
    if isinstance(levels, str | PathLike) and Path(levels).suffix.lower() in CODE_TABLES:
        replaced["levels"], names = _levels(_beside(levels, folder))
        if names and data.get("code_names") is None:
            replaced["code_names"] = names
    return dict(values) | {"data": dict(data) | replaced}


def _beside(name: str | PathLike[str], folder: Path | None) -> Path:
    path = Path(name)
    if folder and not path.exists() and (folder / name).exists():
        return folder / name
    return path


def _label_map(path: Path, header: str) -> dict[str, str]:
    lines = _lines(path, "data.label_map")
    mapping: dict[str, str] = {}
    for where, fields in _rows(path, lines, _separator(lines), header):
        if len(fields) != 2 or not all(fields):
            raise ConfigError(
                f"{where}: data.label_map: two cells are needed, a label and its class"
            )

        label, name = fields
        known = mapping.setdefault(label, name)
        if known != name:
            raise ConfigError(
                f"{where}: data.label_map: {shown(label)} becomes {shown(known)} above, and "
                f"{shown(name)} here"
            )
    if not mapping:
        raise ConfigError(f"{path}: data.label_map: the file has no rows")
    return mapping


def _label_names(path: Path, header: str) -> list[str]:
    """Read one name on each line, or a table with numbers from 0 on before them."""
    lines = _lines(path, "data.label_names")
    separator = None
    if path.suffix.lower() in TABLES:
        separator = _separator(lines)

    names: list[str] = []
    for where, fields in _rows(path, lines, separator, header):
        name = fields[-1]
        is_numbered = len(fields) == 2 and fields[0] == str(len(names))
        if not name or (len(fields) != 1 and not is_numbered):
            raise ConfigError(
                f"{where}: data.label_names: a name is needed, or a number and a name; the numbers "
                "count from 0 on; names beside codes are data.code_names"
            )
        names.append(name)
    if not names:
        raise ConfigError(f"{path}: data.label_names: the file has no names")
    return names


def _code_names(path: Path, _header: str) -> dict[str, str]:
    """Read the columns `code` and `name`, without codes that have no name."""
    names: dict[str, str] = {}
    for where, record in _codes(path, "data.code_names", ("code", "name")):
        _add_name(names, record, f"{where}: data.code_names")
    if not names:
        raise ConfigError(f"{path}: data.code_names: the file has no names")
    return names


def _levels(path: Path) -> tuple[dict[str, str], dict[str, str]]:
    """Read the parent of each code, "" at the top, and perhaps the names of codes."""
    parents: dict[str, str] = {}
    names: dict[str, str] = {}
    for where, record in _codes(path, "data.levels", ("code", "parent")):
        code = record["code"]
        parent = parents.setdefault(code, record["parent"])
        if parent != record["parent"]:
            raise ConfigError(f"{where}: data.levels: {shown(code)} has another parent above")
        _add_name(names, record, f"{where}: data.levels")
    return parents, names


def _add_name(names: dict[str, str], record: Mapping[str, str], where: str) -> None:
    code, name = record["code"], record["name"]
    if name and names.setdefault(code, name) != name:
        raise ConfigError(f"{where}: {shown(code)} has another name above")


def _codes(path: Path, key: str, needed: Sequence[str]) -> Iterator[tuple[str, dict[str, str]]]:
    rows = _sheet(path, key, needed) if path.suffix.lower() == EXCEL else _delimited(path, key)
    _, header = next(rows, ("", []))
    columns = [_column_name(name) for name in header]
    for name in needed:
        if name not in columns:
            raise ConfigError(
                f"{path}: {key}: no column {name!r}; the first row must name the columns "
                f"{' and '.join(needed)}"
            )

    for where, fields in rows:
        # A row may have fewer cells than there are columns.
        values = dict(zip(columns, fields, strict=False))
        record = {}
        for name in CODE_COLUMNS:
            value = values.get(name)
            if value is NO_RESULT or isinstance(value, ErrorCell):
                raise ConfigError(
                    f"{where}: {key}: column {name!r} has a formula without a result; write the "
                    "value itself"
                )
            record[name] = cell(value).strip()
        if record["code"]:
            yield where, record
        elif any(record.values()):
            raise ConfigError(f"{where}: {key}: the row has no code")


def _column_name(cell_of_header: str) -> str:
    return cell_of_header.strip().casefold()


def _delimited(path: Path, key: str) -> Iterator[tuple[str, list[Any]]]:
    """Iterate over the rows of a CSV or TSV file, from the names of columns on, with places."""
    lines = _lines(path, key)
    rows = csv.reader(lines, delimiter=_separator(lines))
    for fields in rows:
        yield f"{path}:{rows.line_num}", fields


def _sheet(path: Path, key: str, needed: Sequence[str]) -> Iterator[tuple[str, list[Any]]]:
    """Iterate over the rows of the sheet with the columns, from the row that names them on."""
    with _as_config_errors(path, key), opened_excel(path) as workbook:
        tables = in_sight(sheet_tables(workbook, needed))
        fitting = []
        for table in tables:
            if set(needed) <= {_column_name(name) for name in table.header}:
                fitting.append(table)
        if len(fitting) > 1:
            titles = ", ".join(shown(table.sheet.title) for table in fitting)
            raise DataError(path, f"several sheets have these columns ({titles})")

        for table in fitting or tables[:1]:
            yield str(path), table.header
            for row in workbook.rows(table.sheet):
                if row.number > table.header_row:
                    fields = [row.cells.get(column) for column in range(1, len(table.header) + 1)]
                    yield f"{path}:{row.number}", fields


def _rows(
    path: Path, lines: Sequence[str], separator: str | None, header: str
) -> Iterator[tuple[str, list[str]]]:
    """Yield rows that are not empty, without a header, with their locations.

    Without a separator, a line is a field. A header is a first row with a cell `header`.
    """
    for number, line in enumerate(lines, start=1):
        fields = [line]
        if separator:
            fields = next(csv.reader([line], delimiter=separator), [])
        fields = [field.strip() for field in fields]
        cells = {field.casefold() for field in fields}
        names_labels = not cells.isdisjoint({LABEL, header.casefold()})
        is_header = separator is not None and number == 1 and names_labels
        if any(fields) and not is_header:
            yield f"{path}:{number}", fields


def _lines(path: Path, key: str) -> list[str]:
    with _as_config_errors(path, key):
        encoding = guessed_encoding(path) or UTF8
        return [line.rstrip("\r\n") for line in text_lines(path, encoding)]


@contextmanager
def _as_config_errors(path: Path, key: str) -> Iterator[None]:
    """Turn errors of reading a file into those of the key that names it."""
    try:
        yield
    except OSError as error:
        raise ConfigError(f"{path}: {key}: cannot be read: {error.strerror}") from None
    except DataError as error:
        raise ConfigError(f"{key}: {error}; save the table to read as CSV") from None


def _separator(lines: Sequence[str]) -> str:
    for separator in SEPARATORS:
        if lines and separator in lines[0]:
            return separator
    return ","
