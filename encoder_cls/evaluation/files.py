"""Write the files of a report: page, JSON, predictions, picture and tables for spreadsheets."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from datetime import date
from itertools import chain
from pathlib import Path
from typing import Any

from encoder_cls import evaluation
from encoder_cls.config import DataConfig
from encoder_cls.data.corrections import ADDED, added_name
from encoder_cls.data.formats.csv import CsvForm, form_of
from encoder_cls.data.readers import read_again
from encoder_cls.data.rows import Reading, Row
from encoder_cls.data.sources import files_named
from encoder_cls.evaluation import tensorboard_images as plots
from encoder_cls.evaluation.answers import Answered, LabelRow
from encoder_cls.evaluation.page import render_report
from encoder_cls.evaluation.report import Report
from encoder_cls.evaluation.scores import ChangedAnswer
from encoder_cls.system.display import cell, csv_row, guarded, json_text
from encoder_cls.system.files import reporting_os_errors, to_json, write_file

SPREADSHEET = CsvForm()
BYTE_ORDER_MARK = "\ufeff"  # by which spreadsheets know UTF-8
CHANGED_COLUMNS = ("file", "line", "text", "label", "before", "now")


def write_report(
    folder: Path, report: Report, answered: Answered, *, data: DataConfig, run_name: str, config_yaml: str = ""
) -> list[str]:
    """Write the files of a report, and remove those of an earlier one that it does not have; return their names.

    `answered` are the answers that the report is made from, to texts that were read as `data` has it; a run is named,
    not its folder, so that equal runs have equal reports.

    Raises:
        EncoderClsError: the disk refuses.
    """
    title = f"{run_name}: report on {report.split}"
    page = render_report(title, report, answered, config_yaml=config_yaml, written=date.today())
    matrix, base = getattr(report.metrics, "confusion_matrix", None), report.base_answers
    doubtful, mistakes = label_tables(
        *(answered.label_rows(rows, data.label_separator) for rows in (report.doubtful_labels, answered.mistakes)),
        data=data,
    )
    contents: dict[str, bytes | Iterable[bytes] | None] = {
        evaluation.PREDICTIONS: (f"{json_text(record)}\n".encode() for record in answered.records()),
        evaluation.CONFUSION_MATRIX: plots.to_png(plots.confusion(matrix, report.label_names)) if matrix else None,
        evaluation.DOUBTFUL_LABELS: doubtful,
        evaluation.CHANGED_ANSWERS: _changed_table(base.changed) if base else None,
        evaluation.MISTAKES: mistakes,
        evaluation.REPORT_HTML: page.encode(),
        evaluation.REPORT_JSON: to_json(report.to_dict()),
    }
    for name, content in contents.items():
        if content is not None:
            write_file(folder / name, content)
        else:
            with reporting_os_errors(folder / name, "remove"):
                (folder / name).unlink(missing_ok=True)
    return [name for name in evaluation.REPORT_FILES if contents[name] is not None]


def label_tables(*tables: Sequence[LabelRow], data: DataConfig) -> list[Iterator[bytes]]:
    """CSV with all columns of the data and in its form, the most doubtful rows first.

    With its label corrected, a row is data, or one of `data.corrections`. Columns of the data with the names of
    `ADDED` that nothing is read from are replaced: an earlier review.
    """
    reading = Reading(delimiter=data.delimiter, encoding=data.encoding)
    places = (row.where for rows in tables for row in rows)
    again = read_again(places, text_columns=data.text_column, label_column=data.label_column, reading=reading)
    files = [file for file in files_named(data.train or "") if file.is_file()]
    form = form_of(files[0], data.text_column, reading) if files else SPREADSHEET
    form = form._replace(has_mark=form.has_mark or form.is_guarded)
    return [_label_table(rows, again, data, form) for rows in tables]


def _label_table(
    rows: Iterable[LabelRow], again: Mapping[str, tuple[Row, dict[str, Any]]], data: DataConfig, form: CsvForm
) -> Iterator[bytes]:
    added = {name: added_name(name, data) for name in ADDED}
    records, has_numbers = [], False
    for row in sorted(rows, key=lambda it: -it.score):
        read, record = again.get(row.where, (None, {}))
        file, line = _file_and_line(row.where)
        number = ""
        if read is None or read.text != row.text:  # it has changed, or is in no file
            record = dict.fromkeys(data.text_column, "") | {data.text_column[0]: row.text}
        elif read.where.row >= 0:
            number = str(read.where.row)
        has_numbers = has_numbers or number not in {"", line}
        kept = {name: cell(value) for name, value in record.items() if name not in added.values()}
        values = (row.suggested, f"{row.score:.4f}", row.split, file, line, number)
        ours = {name: guarded(value) for name, value in zip(added.values(), values, strict=True)}
        records.append(kept | {data.label_column: row.label} | ours)
    kept_columns = dict.fromkeys(name for record in records for name in record if name not in added.values())
    if not has_numbers:
        added.pop("row")
    columns = [*(kept_columns or (*data.text_column, data.label_column)), *added.values()]
    return _csv_table(columns, ([record.get(name, "") for name in columns] for record in records), form)


def _changed_table(answers: Iterable[ChangedAnswer]) -> Iterator[bytes]:
    return _csv_table(CHANGED_COLUMNS, ((*_file_and_line(where), *rest) for where, *rest in answers))


def _csv_table(columns: Sequence[str], rows: Iterable[Sequence[str]], form: CsvForm = SPREADSHEET) -> Iterator[bytes]:
    """CSV for spreadsheets, line by line."""
    yield BYTE_ORDER_MARK.encode() if form.has_mark else b""
    for row in chain([columns], rows):
        line = csv_row(row, separator=form.separator, is_guarded=form.is_guarded)
        yield f"{line}\r\n".encode("utf-8", "backslashreplace")


def _file_and_line(where: str) -> tuple[str, str]:
    """A location as `data/rows` writes it; the line is empty where the file is one row."""
    file, _, line = where.rpartition(":")
    return (file, line) if file and line.isascii() and line.isdigit() else (where, "")
