"""Predictions beside rows of files as spreadsheets save them, and messages on texts without one."""

from __future__ import annotations

import csv
import json
import re
from pathlib import Path

import pyarrow
import pyarrow.parquet
import pytest
from support.excel import write_excel
from support.programs import assert_failed, setting
from support.tables import read_table, write_table

from encoder_cls.bulk.chunk_classifier import ChunkClassifier
from encoder_cls.bulk.prediction_options import PredictionOptions
from encoder_cls.classifier.classifier import TextFormat
from encoder_cls.classifier.model_folder import load_classifier, save_classifier
from encoder_cls.config.reading_options import ReadingOptions

ROWS = [
    ["id", "text", "note"],
    ["1", "rain and snow", "a;b"],
    ["2", "big\r\nsoup with salt", 'é "x"'],
]
LABELLED_ROWS = [
    ["id", "text", "note", "label"],
    ["1", "rain and snow", "a;b", "weather"],
    ["2", "big\r\nsoup with salt", 'é "x"', "küche"],
]
MARK = b"\xef\xbb\xbf"


def labelled_rows(table: str, separator: str = ",") -> list[list[str]]:
    """The rows of a table of predictions, without the probabilities in the last column."""
    return [row[:-1] for row in read_table(table, separator)]


@pytest.mark.parametrize("separator", [",", ";", "\t"])
@pytest.mark.parametrize("encoding", ["utf-8-sig", "utf-8"])
@pytest.mark.parametrize(
    ("source", "output"),
    [
        ("parts/in.csv", "out/in.csv"),
        ("parts", "out/"),
    ],
)
def test_the_separator_and_the_mark_are_kept(cli, trained_run, separator, encoding, source, output):
    """The program that saved the file opens the predictions, also those of a folder of parts."""
    write_table("parts/in.csv", ROWS, separator, encoding)

    options = ["--input", source, "--output", output, "--format", "csv"]
    outcome = cli("predict", "--model", trained_run.path, *options)

    assert outcome.code == 0
    assert outcome.out == ""
    note = f"read with {separator!r} between its fields, as its header has it (data.delimiter)"
    num_notes = 0 if separator == "," else 1
    assert outcome.err.count(f"parts/in.csv: {note}\n") == num_notes
    assert labelled_rows("out/in.csv", separator) == LABELLED_ROWS
    has_mark = Path("out/in.csv").read_bytes().startswith(MARK)
    assert has_mark == (encoding == "utf-8-sig")


@pytest.fixture
def western_model(trained_run) -> None:
    """A model folder `model`, trained on tables in Windows-1252 with semicolons."""
    classifier = load_classifier(trained_run.path)
    reading = ReadingOptions(delimiter=";", encoding="windows-1252", is_encoding_sure=False)
    classifier.text_format = TextFormat(reading=reading)
    save_classifier(classifier, Path("model"))


PREDICT_WESTERN = ["predict", "--model", "model", "--input", "in.csv", "--output", "out.csv"]


@pytest.mark.usefixtures("western_model")
def test_the_model_remembers_how_files_were_read(cli):
    write_table("in.csv", ROWS, ";", "windows-1252")

    outcome = cli(*PREDICT_WESTERN)

    assert outcome.code == 0
    assert outcome.err == ""
    assert labelled_rows("out.csv", ";") == LABELLED_ROWS
    # With its mark, no spreadsheet takes the file for Windows-1252.
    assert Path("out.csv").read_bytes().startswith(MARK)


@pytest.mark.usefixtures("western_model")
def test_utf_8_and_its_separator_are_recognized_by_themselves(cli):
    write_table("in.csv", ROWS)

    outcome = cli(*PREDICT_WESTERN)

    assert outcome.code == 0
    assert outcome.err.splitlines() == [
        "in.csv: read as UTF-8, which it seems to be, not as windows-1252 as in training",
        "in.csv: read with ',' between its fields, as its header has it (data.delimiter)",
    ]
    assert labelled_rows("out.csv") == LABELLED_ROWS


@pytest.mark.usefixtures("western_model")
def test_options_replace_what_the_model_remembers(cli):
    write_table("in.csv", ROWS, "\t", "utf-16")

    outcome = cli(*PREDICT_WESTERN, *setting("data.encoding=utf-16", "data.delimiter=tab"))

    assert outcome.code == 0
    assert outcome.err == ""
    assert labelled_rows("out.csv", "\t") == LABELLED_ROWS


def test_training_keeps_how_files_were_read_with_the_model(cli, trained_run, blank_plots):
    """A file in Windows-1252 is trained on, and then predicted and evaluated without a note."""
    folder = trained_run.path.parent
    rows = list(csv.reader((folder / "train.csv").read_text("utf-8").splitlines()))
    write_table("data.csv", rows, ";", "windows-1252")
    options = setting(
        "data.train=data.csv",
        "data.validation=null",
        "data.test=null",
        "data.encoding=windows-1252",
        "data.delimiter=;",
        "train.epochs=1",
    )
    config = folder / "tiny.yaml"
    assert cli("train", "--config", config, *options, "--run-dir", "run").code == 0

    outcome = cli("predict", "--model", "run", "--input", "data.csv", "--output", "out.csv")
    assert outcome.err == ""
    predicted_rows = read_table("out.csv", ";")
    assert [row[1] for row in predicted_rows] == [row[1] for row in rows]

    [warning] = cli("eval", "run", "--data", "data.csv").err.splitlines()
    assert "are among the training texts" in warning


def test_a_model_of_other_files_needs_the_encoding(cli, trained_run):
    rows = [["text", "label"], ["rain", "weather"], ["die Küche", "küche"]]
    write_table("data.csv", rows, ";", "windows-1252")
    command = ["eval", trained_run.path, "--data", "data.csv"]

    assert_failed(cli(*command), 3, "data.csv:3: not UTF-8")
    assert cli(*command, *setting("data.encoding=windows-1252")).code == 0


def test_predictions_for_excel_files_are_csv_that_excel_opens(cli, trained_run):
    write_excel("in.xlsx", ["id", "text", "n"], [1, "rain", 2.5], [2, "soup", None])

    options = ["--input", "in.xlsx", "--output", "out.csv"]
    outcome = cli("predict", "--model", trained_run.path, *options)

    assert outcome.code == 0
    assert outcome.err.startswith("out.csv: has commas between fields and decimal points; ")
    assert "--decimal comma, or an output that ends with .xlsx" in outcome.err
    assert labelled_rows("out.csv") == [
        ["id", "text", "n", "label"],
        ["1", "rain", "2.5", "weather"],
        ["2", "soup", "", "küche"],
    ]
    assert Path("out.csv").read_bytes().startswith(MARK)


def test_decimal_commas_come_with_semicolons(cli, trained_run):
    """Numbers of an Excel file get them, too, but not texts such as versions."""
    write_excel("in.xlsx", ["text", "price", "version"], ["rain", 2.5, "1.5"])
    command = ["predict", "--model", trained_run.path, "--input", "in.xlsx", "--top-k", 2]

    plain = cli(*command, "--output", "point.csv")
    outcome = cli(*command, "--output", "comma.csv", "--decimal", "comma")

    assert plain.code == outcome.code == 0
    assert outcome.err == ""
    by_point = read_table("point.csv", ",")
    by_comma = read_table("comma.csv", ";")
    assert by_comma[0] == by_point[0]
    text, price, version, label, *others = by_comma[1]
    assert (text, price, version, label) == ("rain", "2,5", "1.5", "weather")
    assert [cell.replace(",", ".") for cell in others] == by_point[1][4:]
    assert others[0].startswith("0,")


def test_decimal_commas_leave_tabs_and_texts_as_they_are(cli, trained_run):
    write_table("in.csv", [["text", "price"], ["rain 1.5", "2.5"]], "\t")
    command = ["predict", "--model", trained_run.path, "--input", "in.csv", "--decimal", "comma"]

    assert cli(*command, "--output", "out.csv").code == 0

    _, (text, price, _label, probability) = read_table("out.csv", "\t")
    assert (text, price) == ("rain 1.5", "2.5")
    assert re.fullmatch(r"0,\d{6}", probability)


@pytest.mark.parametrize("output_format", ["jsonl", "text", "html", "xlsx", "parquet"])
def test_only_csv_and_tsv_have_decimal_commas(cli, trained_run, output_format):
    options = ["--format", output_format, "--output", "out", "--decimal", "comma"]
    outcome = cli("predict", "--model", trained_run.path, "rain", *options)

    assert_failed(
        outcome, 2, f"--decimal comma: is for CSV and TSV, and the format is {output_format}"
    )
    assert not Path("out").exists()


@pytest.mark.parametrize("name", ["a.json", "a.predictions", "A.XLS"])
def test_an_output_of_an_unknown_ending_needs_a_format(cli, trained_run, name):
    """Without one, it is refused before any work, and the known endings are named."""
    command = ["predict", "--model", trained_run.path, "rain", "--output", name]

    outcome = cli(*command)
    assert outcome.code == 2
    assert f"--output {name}: no format has the ending ." in outcome.err
    assert ".jsonl, .tsv, .csv, .xlsx, .html, .parquet" in outcome.err
    assert ".txt" in outcome.err
    assert not Path(name).exists()

    assert cli(*command, "--format", "jsonl").code == 0
    assert json.loads(Path(name).read_text())["label"] == "weather"


@pytest.fixture
def bad_rows() -> None:
    """A table whose second row has too many fields, and whose third one is not UTF-8."""
    Path("in.csv").write_bytes(b"id,text\n1,rain\n2,soup,x\n3,caf\xe9\n4,ball\n")


# Options that choose where predictions go: to standard output, a file or a folder.
OUTPUTS = [
    [],
    ["--output", "out.csv"],
    ["--output", "out.jsonl"],
    ["--output", "out.html"],
    ["--output", "out.xlsx"],
    ["--output", "out.parquet"],
    ["--output", "out/"],
]


@pytest.mark.parametrize("output", OUTPUTS)
@pytest.mark.usefixtures("bad_rows")
def test_a_bad_row_ends_the_work(cli, trained_run, output):
    outcome = cli("predict", "--model", trained_run.path, "--input", "in.csv", *output)

    assert_failed(outcome, 3, "in.csv:3: 3 fields where the header has 2; ", "--bad-rows skip")


@pytest.mark.parametrize("output", OUTPUTS)
@pytest.mark.usefixtures("bad_rows")
def test_bad_rows_can_be_left_out(cli, trained_run, output):
    """They are counted once, and the first places are named."""
    options = ["--input", "in.csv", "--bad-rows", "skip", *output]
    outcome = cli("predict", "--model", trained_run.path, *options)

    assert outcome.code == 0
    warnings = [line for line in outcome.err.splitlines() if line.startswith("warning: ")]
    assert warnings == [
        "warning: rows of in.csv that cannot be read, which are left out: 2 (in.csv:3, in.csv:4); "
        "the first: 3 fields where the header has 2"
    ]


@pytest.mark.usefixtures("bad_rows")
def test_rows_that_are_left_out_have_no_prediction(cli, trained_run):
    command = ["predict", "--model", trained_run.path, "--input", "in.csv", "--bad-rows", "skip"]

    cli(*command, "--output", "out.csv")
    assert [row[0] for row in read_table("out.csv")] == ["id", "1", "4"]

    cli(*command, "--output", "out/")
    record = json.loads(Path("out/_parts/in.json").read_text())
    assert record["rows"] == 2


@pytest.mark.parametrize("bad_rows", ["error", "skip"])
def test_a_null_text_in_parquet_is_blank_beside_its_columns(cli, trained_run, bad_rows):
    table = pyarrow.table({"text": ["rain", None, "soup"], "n": [1, 2, 3]})
    pyarrow.parquet.write_table(table, "in.parquet")
    command = ["predict", "--model", trained_run.path, "--keep-columns", "--bad-rows", bad_rows]
    command += ["--input", "in.parquet", "--output", "out.parquet"]

    assert cli(*command).code == 0

    columns = pyarrow.parquet.read_table("out.parquet").to_pydict()
    assert columns["text"] == ["rain", None, "soup"]
    assert columns["n"] == [1, 2, 3]
    assert columns["label"] == ["weather", None, "küche"]


@pytest.fixture
def predict_blank(cli, trained_run):
    """Predicts a text and a blank one with options; returns the lines that are printed."""
    Path("in.csv").write_text("id,text\n1,rain\n2, \n")

    def predict(*options: str) -> list[str]:
        command = ["predict", "--model", trained_run.path, "--input", "in.csv"]
        outcome = cli(*command, "--top-k", 2, "--explain", *options)
        assert outcome.code == 0
        return outcome.out.splitlines()

    return predict


def test_a_blank_text_has_no_label_in_lines(predict_blank):
    _, blank = predict_blank("--format", "text")

    assert blank == "?  ' '  (blank)"


def test_a_blank_text_has_no_label_in_json(predict_blank):
    known, blank = map(json.loads, predict_blank("--format", "jsonl"))

    assert "reason" not in known
    assert list(blank)[1:4] == ["label", "probability", "top"]
    assert blank["label"] is None
    assert blank["probability"] is None
    assert blank["top"] == []
    assert blank["reason"] == "blank"


def test_a_blank_text_has_no_label_in_tables(predict_blank):
    _, _, blank_of_tsv = predict_blank("--format", "tsv")
    assert blank_of_tsv == "2\t\t\t\t\tfalse\t0\t\tblank\t"

    # Beside all its columns, everybody sees why.
    _, _, blank_of_csv = predict_blank("--format", "csv")
    assert blank_of_csv == "2, ,,,,,"


def test_a_blank_text_has_no_label_on_pages(predict_blank, cli, trained_run):
    page = "".join(predict_blank("--format", "html"))
    assert "<td><bdi>?</bdi></td><td>blank</td>" in page

    assert cli("predict", "--model", trained_run.path, " ", "--attention", "maps.html").code == 0
    assert "blank: " in Path("maps.html").read_text()


@pytest.mark.parametrize(("ending", "start"), [(".svg", b"<?xml"), (".png", b"\x89PNG")])
def test_attention_can_be_a_picture_of_the_first_text(cli, trained_run, ending, start):
    command = ["predict", "--model", trained_run.path, "rain $x and ", " ", "--attention"]

    assert cli(*command, f"maps{ending}").code == 0
    first = Path(f"maps{ending}").read_bytes()
    assert first.startswith(start)
    assert cli(*command, f"maps{ending}").code == 0
    assert Path(f"maps{ending}").read_bytes() == first


def test_a_blank_text_has_no_label_in_parquet(predict_blank):
    predict_blank("--output", "out.parquet")

    _, blank = pyarrow.parquet.read_table("out.parquet").to_pylist()
    assert blank["label"] is None
    assert blank["probability"] is None
    assert blank["probability_2"] is None
    assert blank["reason"] == "blank"


@pytest.fixture
def unexpected_texts() -> None:
    """A folder of two files: texts with unknown words, a blank one and one that is truncated."""
    Path("parts").mkdir()
    Path("parts/a.txt").write_text("rain snow wind\n\nzzz the rain qqq\n")
    Path("parts/b.txt").write_text(f"{'rain ' * 40}\nof\n")


@pytest.mark.parametrize("output", OUTPUTS)
@pytest.mark.usefixtures("unexpected_texts")
def test_predict_ends_with_counts(cli, trained_run, output):
    """Unexpected predictions are counted by kind, of several files together."""
    options = ["--input", "parts", "--threshold", 0.9, *output]
    outcome = cli("predict", "--model", trained_run.path, *options)

    assert outcome.code == 0
    counts = re.search(
        r"^of 5 texts: 1 truncated \(longer than 16 tokens\), (\d) withheld "
        r"\(--threshold 0.9\), 1 blank, 1 with unknown words$",
        outcome.err,
        re.MULTILINE,
    )
    assert counts
    if not output:
        assert outcome.out.count("? 0.") == int(counts[1])


@pytest.mark.parametrize(
    ("texts", "summary"),
    [
        (["rain and snow", "rain"], ""),
        (["zzz"], ""),
        (["zzz", "rain"], "of 2 texts: 1 with unknown words\n"),
    ],
)
def test_without_unexpected_predictions_no_counts_are_printed(cli, trained_run, texts, summary):
    """The prediction for a single text shows what the line would say."""
    assert cli("predict", "--model", trained_run.path, *texts).err == summary


def test_without_texts_there_is_no_summary(classifier):
    assert ChunkClassifier(classifier, PredictionOptions()).summary() is None


@pytest.mark.parametrize(
    ("num_words", "note"),
    [
        (6000, "(16 of 6,001 tokens)"),
        # Not all tokens of a very long text are counted.
        (300_000, "(16 of more than 200,001 tokens)"),
    ],
)
def test_a_truncated_text_has_its_length(cli, trained_run, num_words, note):
    outcome = cli("predict", "--model", trained_run.path, "rain " * num_words)

    assert outcome.out.endswith(f"{note}\n")


def test_many_truncated_training_texts_are_warned_of(cli, trained_run):
    command = ["train", "--config", trained_run.path.parent / "tiny.yaml", "--dry-run"]

    truncating = cli(*command, *setting("model.max_seq_len=2"))
    warning = "warning: 100.0% of the training texts are longer than the 2 tokens "
    assert truncating.err.count(warning) == 1
    assert truncating.err.count("model.max_seq_len") == 1

    assert "model.max_seq_len" not in cli(*command, *setting("model.max_seq_len=16")).err
