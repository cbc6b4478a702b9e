"""Predictions in an Excel file: the sheet that was read, with its types, widths and formats."""

from __future__ import annotations

import datetime
import json
import time
import zipfile
from decimal import Decimal
from pathlib import Path

import pyarrow
import pyarrow.parquet
import pytest
from support.programs import assert_failed, setting, succeed

openpyxl = pytest.importorskip("openpyxl")

DAY = datetime.datetime(2026, 3, 1)
MOMENT = datetime.datetime(2026, 3, 1, 12, 30)
LONG_NUMBER = 12345678901234567890


def sheet_of(name: str) -> openpyxl.worksheet.worksheet.Worksheet:
    """The sheet of an Excel file, as a spreadsheet would open it."""
    return openpyxl.load_workbook(name).active


def values_of(name: str) -> list[tuple]:
    """The values of a sheet, without those of predictions but for the label."""
    rows = [list(row) for row in sheet_of(name).values]
    end = rows[0].index("label") + 1
    return [tuple(row[:end]) for row in rows]


@pytest.fixture
def workbook() -> None:
    """An Excel file `in.xlsx` as an office has it, whose sheet is not the only one."""
    book = openpyxl.Workbook()
    sheet = book.active
    sheet.title = "Märzliste"
    sheet.append(["Nr", "day", "text", "price", "share", "code", "is new", "took"])
    sheet.append([1, DAY, "rain", 2.5, 0.25, "007", True, datetime.timedelta(hours=30)])
    sheet.append([2, MOMENT, "=1+1 soup", 1000, None, "=code", False, None])
    sheet["C3"].data_type = "s"
    sheet["F3"].data_type = "s"

    sheet.column_dimensions["A"].width = 5
    sheet.column_dimensions["C"].width = 44
    sheet.column_dimensions["D"].width = 0
    formats = {"B": "dd.mm.yyyy", "D": '#,##0.00 "€"', "E": "0%", "F": "@"}
    for column, number_format in formats.items():
        sheet[f"{column}2"].number_format = number_format
        sheet[f"{column}3"].number_format = number_format
    book.create_sheet("notes").append(["nothing"])
    book.save("in.xlsx")


@pytest.mark.usefixtures("workbook")
def test_a_sheet_comes_back_with_predictions_beside_its_columns(cli, trained_run):
    """Types, widths and formats are kept; a text that looks like a formula stays a text."""
    options = ["--input", "in.xlsx", "--output", "out.xlsx"]
    outcome = cli("predict", "--model", trained_run.path, *options)

    assert outcome.code == 0
    assert outcome.out == ""
    assert "warning" not in outcome.err
    assert values_of("out.xlsx") == [
        ("Nr", "day", "text", "price", "share", "code", "is new", "took", "label"),
        (1, DAY, "rain", 2.5, 0.25, "007", True, datetime.timedelta(hours=30), "weather"),
        (2, MOMENT, "=1+1 soup", 1000, None, "=code", False, None, "küche"),
    ]

    sheet = sheet_of("out.xlsx")
    assert sheet.title == "Märzliste"
    assert sheet.column_dimensions["A"].width == 5
    assert sheet.column_dimensions["C"].width == 44
    assert sheet.column_dimensions["D"].width >= 8
    formats = [cell.number_format for cell in sheet[2]][:10]
    assert formats[1] == "dd.mm.yyyy"
    assert formats[3:6] == ['#,##0.00 "€"', "0%", "@"]
    assert sheet["C3"].data_type == sheet["F3"].data_type == "s"
    assert sheet["C3"].quotePrefix


@pytest.mark.usefixtures("workbook")
def test_the_header_stays_in_view_and_each_column_has_a_filter(cli, trained_run):
    options = ["--input", "in.xlsx", "--output", "out.xlsx"]
    succeed(cli, "predict", "--model", trained_run.path, *options)

    sheet = sheet_of("out.xlsx")
    assert sheet.freeze_panes == "A2"
    assert sheet.auto_filter.ref == sheet.dimensions
    assert all(cell.font.bold for cell in sheet[1])
    probability = sheet["J2"]
    assert sheet["J1"].value == "probability"
    assert isinstance(probability.value, float)
    assert probability.number_format == "0.000"


@pytest.mark.usefixtures("workbook")
def test_predictions_are_read_again_as_they_were(cli, trained_run):
    """New columns get names that differ from those of the first predictions."""
    command = ["predict", "--model", trained_run.path, "--input"]
    succeed(cli, *command, "in.xlsx", "--output", "first.xlsx")
    succeed(cli, *command, "first.xlsx", "--output", "second.xlsx")

    first = [list(row) for row in sheet_of("first.xlsx").values]
    second = [list(row) for row in sheet_of("second.xlsx").values]
    width = len(first[0])
    assert [row[:width] for row in second] == first
    assert second[0][width : width + 2] == ["predicted_label", "predicted_probability"]


def test_equal_predictions_are_equal_files(cli, trained_run, monkeypatch):
    """They are at any time of the day."""
    command = ["predict", "--model", trained_run.path, "rain", "soup", "--output"]
    succeed(cli, *command, "now.xlsx")
    later = time.time() + 86_400
    monkeypatch.setattr(time, "time", lambda: later)
    succeed(cli, *command, "later.xlsx")

    assert Path("now.xlsx").read_bytes() == Path("later.xlsx").read_bytes()
    with zipfile.ZipFile("now.xlsx") as archive:
        assert {part.date_time[0] for part in archive.infolist()} == {1980}
    assert sheet_of("now.xlsx").parent.properties.created.year == 1980


def test_texts_without_a_file_stand_beside_their_predictions(cli, trained_run):
    odd = "rain \x07 _x0041_ \r\n=1 \ufffe"
    succeed(cli, "predict", "--model", trained_run.path, odd, "#N/A", "--output", "out.xlsx")

    options = ["--input", "out.xlsx", "--format", "jsonl", "--keep-columns"]
    again = succeed(cli, "predict", "--model", trained_run.path, *options)
    texts = [json.loads(line)["text"] for line in again.out.splitlines()]
    # Spreadsheets have line feeds.
    assert texts == ["rain \x07 _x0041_ \n=1 \ufffe", "#N/A"]
    assert sheet_of("out.xlsx")["A3"].data_type == "s"


def test_one_of_several_sheets_is_named(cli, trained_run):
    """Its name is that of the sheet that comes back."""
    book = openpyxl.Workbook()
    for title, text in (("old", "rain"), ("new", "soup")):
        sheet = book.create_sheet(title)
        sheet.append(["text"])
        sheet.append([text])
    book.save("in.xlsx")
    command = ["predict", "--model", trained_run.path, "--input", "in.xlsx"]
    command += ["--output", "out.xlsx"]

    assert_failed(cli(*command), 3, "name one of them in data.sheet")
    succeed(cli, *command, *setting("data.sheet=new"))

    assert sheet_of("out.xlsx").title == "new"
    assert values_of("out.xlsx")[1] == ("soup", "küche")


def test_a_number_that_excel_would_round_is_a_text(cli, trained_run):
    rows = [
        {"text": "rain", "account": LONG_NUMBER, "tags": ["a", 1], "n": 1.5, "big": 10**20},
        {"text": "soup", "account": 7, "tags": None, "n": None, "big": -3},
    ]
    Path("in.jsonl").write_text("".join(f"{json.dumps(row)}\n" for row in rows))

    options = ["--input", "in.jsonl", "--output", "out.xlsx"]
    succeed(cli, "predict", "--model", trained_run.path, *options)

    assert values_of("out.xlsx")[1:] == [
        ("rain", str(LONG_NUMBER), '["a", 1]', 1.5, 10**20, "weather"),
        ("soup", 7, None, None, -3, "küche"),
    ]


def test_types_of_parquet_are_kept(cli, trained_run):
    zone = datetime.timezone(datetime.timedelta(hours=2))
    columns = {
        "text": ["rain"],
        "day": [datetime.date(2026, 3, 1)],
        "old": [datetime.date(1850, 3, 1)],
        "zoned": pyarrow.array([MOMENT.replace(tzinfo=zone)], pyarrow.timestamp("s", "+02:00")),
        "time": [datetime.time(8, 30)],
        "price": [Decimal("2.50")],
    }
    pyarrow.parquet.write_table(pyarrow.table(columns), "in.parquet")

    options = ["--input", "in.parquet", "--output", "out.xlsx"]
    succeed(cli, "predict", "--model", trained_run.path, *options)

    _, (text, day, old, zoned, time, price, _label) = values_of("out.xlsx")
    assert text == "rain"
    assert day == DAY
    assert old == "1850-03-01"
    assert zoned == "2026-03-01T12:30:00+02:00"
    assert time == datetime.time(8, 30)
    assert price == 2.5
    assert sheet_of("out.xlsx")["B2"].number_format == "yyyy-mm-dd"


def test_csv_stays_text_since_csv_has_no_types(cli, trained_run):
    Path("in.csv").write_text("text,code,price\nrain,007,2.50\n")

    succeed(cli, "predict", "--model", trained_run.path, "--input", "in.csv", "--output", "o.xlsx")

    assert values_of("o.xlsx")[1] == ("rain", "007", "2.50", "weather")


def test_a_text_that_is_too_long_for_a_cell_is_cut_with_a_warning(cli, trained_run):
    """Excel counts an emoji as two; the prediction is for the whole text."""
    texts = ["rain " * 7000, "rain " + "\U0001f600" * 17_000, "rain"]
    Path("in.txt").write_text("".join(f"{text}\n" for text in texts), "utf-8")

    options = ["--input", "in.txt", "--output", "out.xlsx"]
    outcome = succeed(cli, "predict", "--model", trained_run.path, *options)

    warning = "warning: 2 cells cut, since a cell of Excel has at most 32,767 characters"
    assert warning in outcome.err
    cut = [row[0] for row in values_of("out.xlsx")[1:]]
    assert cut[0] == texts[0][:32_766] + "…"
    assert cut[1] == texts[1][: 5 + 16_380] + "…"
    assert cut[2] == "rain"


@pytest.fixture
def small_sheets(monkeypatch) -> None:
    """Sheets of Excel have only two rows, and chunks one."""
    monkeypatch.setattr("encoder_cls.bulk.excel_format.MAX_ROWS", 2)
    monkeypatch.setattr("encoder_cls.bulk.input_texts.CHUNK", 1)


@pytest.mark.usefixtures("small_sheets")
def test_too_many_rows_are_refused_before_any_work(cli, trained_run, monkeypatch):
    """Rows count, not lines; each file of a folder has a sheet of its own."""
    Path("parts").mkdir()
    Path("parts/a.csv").write_text('text\n"rain\nand snow"\nsoup\n')
    command = ["predict", "--model", trained_run.path, "--input", "parts", "--format", "xlsx"]
    assert cli(*command, "--output", "one.xlsx").code == 0

    Path("parts/b.csv").write_text("text\nrain\n")
    assert_failed(
        cli(*command, "--output", "two.xlsx"),
        2,
        "--format xlsx: parts has more than 2 rows, which is all that a sheet of Excel holds; ",
    )
    assert not Path("two.xlsx").exists()
    assert cli(*command, "--output", "out/").code == 0
    assert sorted(path.name for path in Path("out").glob("*.xlsx")) == ["a.xlsx", "b.xlsx"]

    Path("parts/c.csv").write_text("text\nrain\nsoup\nball\n")
    Path("parts/b.csv").write_text("text\nsnow\n")
    before = Path("out/b.xlsx").read_bytes()
    assert_failed(cli(*command, "--output", "out/"), 2, "--format xlsx: parts/c.csv has more than")
    assert Path("out/b.xlsx").read_bytes() == before


@pytest.mark.usefixtures("small_sheets")
def test_a_stream_that_is_too_long_ends_the_work(cli, trained_run):
    texts = ["rain", "soup", "ball"]
    outcome = cli("predict", "--model", trained_run.path, *texts, "--output", "out.xlsx")

    assert_failed(outcome, 3, "the input has more than 2 rows")
    assert not Path("out.xlsx").exists()


def test_without_texts_there_is_a_sheet_with_a_header(cli, trained_run):
    Path("in.csv").write_text("text,n\n")

    succeed(cli, "predict", "--model", trained_run.path, "--input", "in.csv", "--output", "o.xlsx")

    assert values_of("o.xlsx") == [("text", "n", "label")]


def test_a_sheet_cannot_be_printed(cli, trained_run):
    outcome = cli("predict", "--model", trained_run.path, "rain", "--format", "xlsx")

    assert_failed(outcome, 2, "--format xlsx: cannot be printed; name a file with --output")


def test_a_folder_of_sheets_goes_on_file_by_file(cli, trained_run):
    """A sheet that is complete is not written again."""
    Path("parts").mkdir()
    Path("parts/a.csv").write_text("text\nrain\n")
    Path("parts/b.csv").write_text("text\nsoup\n")
    command = ["predict", "--model", trained_run.path, "--input", "parts", "--format", "xlsx"]
    succeed(cli, *command, "--output", "out/")
    Path("out/b.xlsx").unlink()
    before = Path("out/a.xlsx").stat()

    outcome = succeed(cli, *command, "--output", "out/")

    assert "out: 1 of 2 files written by this process (1 text), 1 already there" in outcome.err
    after = Path("out/a.xlsx").stat()
    assert (after.st_ino, after.st_mtime_ns) == (before.st_ino, before.st_mtime_ns)
