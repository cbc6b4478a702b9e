"""Predictions in an Excel file: the sheet that was read, with its types, widths and formats."""

from __future__ import annotations

import datetime
import json
import re
import time
import zipfile
from decimal import Decimal
from pathlib import Path

import pyarrow
import pyarrow.parquet
import pytest
import xlsxwriter
from support.excel import read_excel, write_sheets, xml_of
from support.programs import assert_failed, setting, succeed

from encoder_cls.data.reading.excel import SheetLayout, sheet_layout
from encoder_cls.data.reading.reading import Reading
from encoder_cls.system.excel_sheet import kept_cell

DAY = datetime.datetime(2026, 3, 1)
MOMENT = datetime.datetime(2026, 3, 1, 12, 30)
LONG_NUMBER = 12345678901234567890


def values_of(name: str) -> list[tuple]:
    """The values of a sheet, without those of predictions but for the label."""
    rows = read_excel(name)
    end = rows[0].index("label") + 1
    return [tuple(row[:end]) for row in rows]


def layout_of(name: str) -> SheetLayout:
    """How the sheet is shown."""
    return sheet_layout(Path(name), (), Reading())


# The formats of columns in the workbook.
FORMATS = {
    "day": "dd.mm.yyyy",
    "price": '#,##0.00 "€"',
    "share": "0%",
    "code": "@",
    "shelf": "0000",
    "took": "[h]:mm:ss",
}


@pytest.fixture
def workbook() -> None:
    """An Excel file `in.xlsx` as an office has it, whose sheet is not the only one."""
    names = ["Nr", "day", "text", "price", "share", "code", "shelf", "is new", "took"]
    rows = [
        [1, DAY, "rain", 2.5, 0.25, "007", 42, True, datetime.timedelta(hours=30)],
        [2, MOMENT, "=1+1 soup", 1000, None, "=code", 123456, False, None],
    ]
    with xlsxwriter.Workbook("in.xlsx", {"strings_to_formulas": False}) as book:
        sheet = book.add_worksheet("Märzliste")
        sheet.write_row(0, 0, names)
        for column, name in enumerate(names):
            style = book.add_format({"num_format": FORMATS.get(name, "General")})
            for number, row in enumerate(rows, start=1):
                sheet.write(number, column, row[column], style)

        # Of the width of a column, a part is space beside its characters.
        sheet.set_column_pixels(0, 0, 5 * 7)
        sheet.set_column_pixels(2, 2, 44 * 7)
        sheet.set_column(3, 3, 9, None, {"hidden": True})
        book.add_worksheet("notes").write_row(0, 0, ["nothing"])


@pytest.mark.usefixtures("workbook")
def test_a_sheet_comes_back_with_predictions_beside_its_columns(cli, trained_run):
    """Types, widths and formats are kept; a text that looks like a formula stays a text."""
    options = ["--input", "in.xlsx", "--output", "out.xlsx"]
    outcome = cli("predict", "--model", trained_run.path, *options)

    assert outcome.code == 0
    assert outcome.out == ""
    assert "warning" not in outcome.err
    names, *rows = values_of("out.xlsx")
    assert names[-3:] == ("is new", "took", "label")
    duration = datetime.timedelta(hours=30)
    assert rows == [
        (1, DAY.date(), "rain", 2.5, 0.25, "007", "0042", True, duration, "weather"),
        (2, MOMENT, "=1+1 soup", 1000, None, "=code", 123456, False, None, "küche"),
    ]

    layout = layout_of("out.xlsx")
    assert layout.title == "Märzliste"
    assert layout.columns["Nr"].width == 5
    assert layout.columns["text"].width == 44
    assert layout.columns["price"].width >= 8
    for name, number_format in FORMATS.items():
        assert layout.columns[name].number_format == number_format
    assert layout.columns["probability"].number_format == "0.000"
    # A number stays one, also where zeros are shown before it.
    assert re.search(r'<c r="G2" s="\d+"><v>42</v>', xml_of("out.xlsx"))
    assert "<f>" not in xml_of("out.xlsx")
    assert 'quotePrefix="1"' in xml_of("out.xlsx", "xl/styles.xml")


@pytest.mark.usefixtures("workbook")
def test_the_header_stays_in_view_and_each_column_has_a_filter(cli, trained_run):
    options = ["--input", "in.xlsx", "--output", "out.xlsx"]
    succeed(cli, "predict", "--model", trained_run.path, *options)

    sheet = xml_of("out.xlsx")
    last_column = chr(ord("A") + len(read_excel("out.xlsx")[0]) - 1)
    assert '<pane ySplit="1" topLeftCell="A2"' in sheet
    assert f'<autoFilter ref="A1:{last_column}3"/>' in sheet
    assert "<b/>" in xml_of("out.xlsx", "xl/styles.xml")


@pytest.mark.usefixtures("workbook")
def test_predictions_are_read_again_as_they_were(cli, trained_run):
    """New columns get names that differ from those of the first predictions."""
    command = ["predict", "--model", trained_run.path, "--input"]
    succeed(cli, *command, "in.xlsx", "--output", "first.xlsx")
    succeed(cli, *command, "first.xlsx", "--output", "second.xlsx")

    first = read_excel("first.xlsx")
    second = read_excel("second.xlsx")
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
    assert ">1980-01-01T00:00:00Z</dcterms:created>" in xml_of("now.xlsx", "docProps/core.xml")


def test_texts_without_a_file_stand_beside_their_predictions(cli, trained_run):
    odd = "rain \x07 _x0041_ \r\n=1 \ufffe"
    succeed(cli, "predict", "--model", trained_run.path, odd, "#N/A", "--output", "out.xlsx")

    options = ["--input", "out.xlsx", "--format", "jsonl", "--keep-columns"]
    again = succeed(cli, "predict", "--model", trained_run.path, *options)
    texts = [json.loads(line)["text"] for line in again.out.splitlines()]
    # Spreadsheets have line feeds, and XML no U+FFFE.
    assert texts == ["rain \x07 _x0041_ \n=1 \ufffd", "#N/A"]


def test_one_of_several_sheets_is_named(cli, trained_run):
    """Its name is that of the sheet that comes back."""
    write_sheets("in.xlsx", {"old": [["text"], ["rain"]], "new": [["text"], ["soup"]]})
    command = ["predict", "--model", trained_run.path, "--input", "in.xlsx"]
    command += ["--output", "out.xlsx"]

    assert_failed(cli(*command), 3, "name one of them in data.sheet")
    succeed(cli, *command, *setting("data.sheet=new"))

    assert layout_of("out.xlsx").title == "new"
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


@pytest.mark.parametrize("number", [10**400, Decimal("-1E+400")], ids=["int", "decimal"])
def test_a_number_that_is_too_large_for_excel_is_a_text(number):
    digits = "1" + 400 * "0"
    assert kept_cell(number) in {digits, f"-{digits}"}


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
    assert day == DAY.date()
    assert old == "1850-03-01"
    assert zoned == "2026-03-01T12:30:00+02:00"
    assert time == datetime.time(8, 30)
    assert price == 2.5
    assert layout_of("out.xlsx").columns["day"].number_format == "yyyy-mm-dd"


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
