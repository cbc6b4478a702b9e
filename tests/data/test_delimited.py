"""Tables as they come: other separators, quotes of spreadsheets in TSV, headers between rows."""

from __future__ import annotations

import csv
import io
import os
import re
from pathlib import Path
from threading import Thread

import pytest
from support.data import refusal, write
from support.tables import write_table

from encoder_cls.config.reading_options import ReadingOptions
from encoder_cls.data.reading.columns import Columns
from encoder_cls.data.reading.delimited import guessed_separator
from encoder_cls.data.reading.reading import Reading
from encoder_cls.data.sources import column_names, read_rows
from encoder_cls.errors import DataError

COLUMNS = Columns(["text"], "label")


def read(source: str, reading: Reading | None = None) -> list[tuple[str, object]]:
    """The text and the label of each row."""
    rows = read_rows(source, COLUMNS, reading or Reading())
    return [(row.text, row.label) for row in rows]


# Separators


@pytest.mark.parametrize(
    ("name", "separator"),
    [
        ("a.csv", ";"),
        ("a.csv", "\t"),
        ("a.csv", "|"),
        ("a.tsv", ";"),
    ],
)
@pytest.mark.parametrize("mark", ["", "\ufeff"])
def test_a_header_that_leaves_no_doubt_shows_the_separator(name, separator, mark):
    """A note says so; fields may hold commas, quotes and line breaks."""
    table = io.StringIO()
    writer = csv.writer(table, delimiter=separator)
    writer.writerow(["text", "label"])
    writer.writerow(['a, "b"\nc', "x"])
    writer.writerow([f"d{separator}e", "y"])
    write(name, mark + table.getvalue())

    reading = Reading()
    assert read(name, reading) == [('a, "b"\nc', "x"), (f"d{separator}e", "y")]
    assert reading.notes.messages == [
        f"{name}: read with {separator!r} between its fields, as its header has it (data.delimiter)"
    ]
    assert column_names(Path(name), ["text"], Reading()) == ["text", "label"]


@pytest.mark.parametrize(
    ("content", "message"),
    [
        # No separator gives both columns.
        ("text;class\na;b\n", "no column 'label'; it has 'text', 'class'"),
        # A separator is within quotes.
        ('"text;x",label;text\n', "no column 'text'; it has 'text;x', 'label;text'"),
    ],
)
def test_where_there_is_doubt_the_usual_separator_stays(content, message):
    with pytest.raises(DataError, match=re.escape(message)):
        read(write("a.csv", content))


@pytest.mark.parametrize("name", ["a.csv", "a.tsv"])
@pytest.mark.parametrize("separator", [";", "\t", ","])
@pytest.mark.parametrize(
    "options",
    [
        {},
        {"delimiter": ";"},
        {"delimiter": "|", "bad_rows": "skip"},
    ],
)
def test_the_line_that_excel_writes_first_names_the_separator(name, separator, options):
    """It does so whatever is set."""
    lines = [f"\ufeffsep={separator}", f"text{separator}label", f"a{separator}x"]
    write(name, "\r\n".join(lines) + "\r\n")

    assert read(name, Reading(ReadingOptions(**options))) == [("a", "x")]
    assert column_names(Path(name), ["text"], Reading()) == ["text", "label"]


def test_lines_are_counted_from_the_one_with_the_separator_on():
    write("a.csv", "sep=;\r\ntext;label\r\na;x\r\nb\r\n")
    with pytest.raises(DataError, match=r"a\.csv:4: 1 field where the header has 2"):
        read("a.csv")


def test_the_usual_separator_is_not_noted():
    reading = Reading()
    assert read(write("a.csv", "text,label\na,x\n"), reading) == [("a", "x")]
    assert reading.notes.messages == []


@pytest.mark.parametrize("separator", ["^", ";"])
def test_a_named_separator_is_not_noted(separator):
    reading = Reading(ReadingOptions(delimiter=separator))
    source = write("a.csv", f"text{separator}label\na{separator}x\n")
    assert read(source, reading) == [("a", "x")]
    assert reading.notes.messages == []


def test_a_named_separator_gives_way_to_a_header_without_doubt():
    """A model that was trained on semicolons reads commas."""
    reading = Reading(ReadingOptions(delimiter=";"))
    assert read(write("a.csv", "text,label\na,x\n"), reading) == [("a", "x")]
    assert "read with ','" in reading.notes.messages[0]


def test_quotes_after_backslashes_are_refused_as_what_they_are():
    """To skip such rows would leave out every text with a quotation."""
    source = write("a.csv", 'text,label\n"she said \\"no\\" twice",x\nb,y\n')
    message = refusal(source)
    assert message.startswith("a.csv:2: not valid CSV: a backslash before a quote, as MySQL")
    assert "bad_rows" not in message


def test_a_part_of_no_bytes_has_no_rows():
    write("d/a.csv", "")
    write("d/b.csv", "text,label\na,x\n")
    assert read("d") == [("a", "x")]
    assert column_names(Path("d/a.csv"), ["text"], Reading()) == []


# Quotes in TSV


@pytest.mark.parametrize(
    ("content", "expected"),
    [
        (
            'text\tlabel\n"say ""hi"""\tx\nplain\ty\n',
            [('say "hi"', "x"), ("plain", "y")],
        ),
        (
            'text\tlabel\r\n"two\nlines"\tx\r\n"a, b"\ty\r\n',
            [("two\nlines", "x"), ("a, b", "y")],
        ),
        (
            'text\tlabel\n"a\tb"\tx\n',
            [("a\tb", "x")],
        ),
        # All fields are in quotes, the names, too.
        (
            '"text"\t"label"\n"a"\t"x"\n',
            [("a", "x")],
        ),
    ],
)
def test_quotes_of_a_spreadsheet_in_tsv(content, expected):
    """All rows can be read so, and one shows that a spreadsheet wrote them."""
    reading = Reading()
    assert read(write("a.tsv", content), reading) == expected
    assert reading.notes.messages == [
        "a.tsv: fields in quotes are read as a spreadsheet writes them"
    ]


@pytest.mark.parametrize(
    ("content", "expected"),
    [
        # Nothing needs quotes.
        (
            'text\tlabel\n"hello"\tx\nb\ty\n',
            [('"hello"', "x"), ("b", "y")],
        ),
        # No spreadsheet would write the last row, so none has written the file.
        (
            'text\tlabel\n"say ""hi"""\tx\nb" c\ty\n',
            [('"say ""hi"""', "x"), ('b" c', "y")],
        ),
        (
            'text\tlabel\n"say ""hi"""\tx\n"b\ty\n',
            [('"say ""hi"""', "x"), ('"b', "y")],
        ),
    ],
)
def test_other_quotes_in_tsv_are_characters(content, expected):
    reading = Reading()
    assert read(write("a.tsv", content), reading) == expected
    assert reading.notes.messages == []


def test_with_a_named_separator_quotes_are_read_as_in_csv():
    source = write("a.tsv", 'text\tlabel\n"hello"\tx\n')
    assert read(source, Reading(ReadingOptions(delimiter="\t"))) == [("hello", "x")]


@pytest.mark.parametrize(
    ("name", "content", "expected"),
    [
        ("p.csv", "text;label\na;x\n", ("a", "x")),
        ("p.tsv", 'text\tlabel\n"a ""b"""\tx\n', ('"a ""b"""', "x")),
        ("p.json", '{"text": "a", "label": "x"}\n', ("a", "x")),
    ],
)
def test_what_can_be_read_only_once_is_read_once(name, content, expected):
    """The separator of a pipe is detected, too; its quotes in TSV are characters.

    JSON in a pipe has an object on each line.
    """
    os.mkfifo(name)
    writer = Thread(target=Path(name).write_text, args=[content])
    writer.start()
    assert read(name) == [expected]
    writer.join()


# Headers


@pytest.mark.parametrize(
    "header",
    [
        "text,label\n",
        "\ufefftext,label\n",
        '\ufeff"text",label\n',
        '"text","label"\r\n',
    ],
)
def test_the_header_of_a_joined_csv_file_is_left_out(header):
    """There may be the byte order mark of the file that it began."""
    reading = Reading()
    source = write("a.csv", f"text,label\na,x\n{header}b,y\n")

    assert read(source, reading) == [("a", "x"), ("b", "y")]
    assert list(reading.notes.warnings("train")) == [
        "rows of train that repeat the header, which are left out: 1 (a.csv:3)"
    ]


@pytest.mark.parametrize(
    ("first_row", "header"),
    [
        ("a\tx\n", "text\tlabel\n"),
        ("a\tx\n", "\ufefftext\tlabel\n"),
        ("a\tx\n", '\ufeff"text"\tlabel\n'),
        # The first row shows the quotes of a spreadsheet.
        ('"a\t"\tx\n', '"text"\t"label"\r\n'),
    ],
)
def test_the_header_of_a_joined_tsv_file_is_left_out(first_row, header):
    reading = Reading()
    source = write("a.tsv", f"text\tlabel\n{first_row}{header}b\ty\n")

    assert [label for _, label in read(source, reading)] == ["x", "y"]
    assert list(reading.notes.warnings("train")) == [
        "rows of train that repeat the header, which are left out: 1 (a.tsv:3)"
    ]


def test_a_joined_file_with_its_columns_in_another_order_is_refused():
    source = write("a.csv", "text,label\na,x\nlabel,text\ny,b\n")
    message = r"^a\.csv:3: a second header, with its columns in another order"
    with pytest.raises(DataError, match=message):
        read(source, Reading(ReadingOptions(bad_rows="skip")))


def test_a_text_may_be_the_word_that_names_the_only_column():
    """Each prediction has the line of its text; only a byte order mark shows a second header."""
    write("a.csv", "text\ntext\n\ufefftext\nb\n")
    rows = read_rows("a.csv", Columns(["text"]), Reading())
    assert [row.text for row in rows] == ["text", "b"]


def test_thousands_of_columns_without_names_are_numbered_at_once():
    """A spreadsheet may write them; the names must not be compared pair by pair."""
    num_columns = 50_000
    commas = "," * num_columns
    write("a.csv", f"{commas}text,.1\n{commas}a,b\n")

    (row,) = read_rows("a.csv", Columns(["text"], every=True), Reading())

    assert len(row.record) == num_columns + 2
    assert list(row.record)[:3] == ["", ".2", ".3"]
    assert row.record[".1"] == "b"


@pytest.mark.parametrize("separator", [",", ";", "\t", "|"])
def test_a_separator_is_guessed_by_the_rows_if_the_columns_are_not_known(separator: str):
    """Other separators occur in texts, also in the header."""
    other = ";" if separator == "," else ","
    rows = [["nr", f"text{other} long", "kind"], ["1", f"well{other} yes{other} no", "x"]]
    rows += [[str(number), "a | b", "y"] for number in range(10)]
    source = Path(write_table("a.csv", rows, separator))

    assert guessed_separator(source, Reading()) == separator


@pytest.mark.parametrize(
    ("name", "content", "separator"),
    [
        ("a.csv", "text\none, two\nthree\n", ","),
        ("a.tsv", "text\none\n", "\t"),
        ("a.csv", "sep=;\na;b\n1;2,3\n", ";"),
        ("a.csv", "", ","),
    ],
)
def test_without_a_guess_the_separator_is_the_usual_or_named_one(name, content, separator):
    assert guessed_separator(Path(write(name, content)), Reading()) == separator
