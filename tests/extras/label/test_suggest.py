"""Which texts to label next: uncertain ones, unlike each other, each once, always the same."""

from __future__ import annotations

import csv
import io
import json
import sys
from datetime import date
from pathlib import Path

import pytest
from support.excel import read_excel, write_excel
from support.programs import assert_failed
from support.tables import read_table, write_table

from encoder_cls.classifier.classifier import TextFormat
from encoder_cls.classifier.model_folder import load_classifier, save_classifier
from encoder_cls.config.loading import load_config
from encoder_cls.data.key_of_text import key_of_text
from encoder_cls.data.load_dataset import load_data
from encoder_cls.data.reading.columns import Columns
from encoder_cls.data.reading.reading import Reading
from encoder_cls.data.reading.rows import Row
from encoder_cls.data.sources import read_rows
from encoder_cls.extras.label import suggestions
from encoder_cls.extras.label.suggestions import suggest
from encoder_cls.run.run_folder import RunDir

SURE = [
    "rain and snow today",
    "cloud and storm today",
    "the team and the ball",
    "a big soup with salt",
]
UNSURE = [
    "soup ball",
    "rain ball of the day",
    "the coach and the bread",
    "zzz",
]
COLUMNS = ["text", "label", "suggested", "probability", "file", "line", "key"]


def write_texts(name: str, texts: list[str]) -> None:
    """Write a table with a column of texts."""
    rows = [["text"]]
    rows += [[text] for text in texts]
    write_table(name, rows)


@pytest.fixture
def pool() -> Path:
    """Rows of which some are equal but for case and white space, and one is blank."""
    write_texts("pool.csv", [*SURE, *UNSURE, "Soup  BALL", "", *SURE])
    return Path("pool.csv")


def suggested_texts(classifier, texts: list[str], number: int) -> list[str]:
    rows = [Row(text) for text in texts]
    predicted = zip(rows, classifier.predict(texts), strict=True)
    return [suggestion.row.text for suggestion in suggest(predicted, classifier, number)]


def table_rows(printed: str) -> list[dict]:
    return list(csv.DictReader(io.StringIO(printed)))


def json_records(printed: str) -> list[dict]:
    return [json.loads(line) for line in printed.splitlines()]


def test_no_near_copies_are_suggested(classifier):
    near_copies = ["qwert zuiop asdfg hjkly yxcvb", "Qwert, zuiop asdfg: hjkly yxcvb 7"]

    suggested = suggested_texts(classifier, [*SURE, *near_copies], 5)

    assert len(set(near_copies) & set(suggested)) == 1


def test_uncertain_texts_are_suggested(classifier):
    suggested = suggested_texts(classifier, [*SURE, *UNSURE, *SURE, ""], 3)
    assert set(suggested) <= set(UNSURE)
    assert len(set(suggested)) == 3


def test_only_the_most_uncertain_texts_are_kept(classifier, monkeypatch):
    """However long the input is."""
    monkeypatch.setattr(suggestions, "CANDIDATES", 1)
    assert set(suggested_texts(classifier, [*SURE, *UNSURE, *SURE], 4)) == set(UNSURE)


def test_no_texts_have_no_suggestions(classifier):
    assert suggested_texts(classifier, [], 3) == []


def test_a_table_is_printed_to_be_filled_in(cli, trained_run, pool):
    """File and line lead back to the data; beside the empty label is the predicted one."""
    outcome = cli("suggest", trained_run.path, "--input", pool, "--n", 3)
    assert outcome.code == 0
    assert outcome.err == ""

    rows = table_rows(outcome.out)
    assert list(rows[0]) == COLUMNS
    assert len(rows) == 3

    lines = pool.read_text().splitlines()
    for row in rows:
        assert row["file"] == "pool.csv"
        assert row["text"] == lines[int(row["line"]) - 1]
        assert row["key"] == key_of_text(row["text"])
        assert row["label"] == ""
        assert row["text"] in UNSURE

        printed = cli("predict", "--model", trained_run.path, "--format", "jsonl", row["text"])
        prediction = json.loads(printed.out)
        assert row["suggested"] == prediction["label"]
        assert row["probability"] == f"{prediction['probability']:.6f}"


def test_a_file_has_the_suggestions_that_are_printed(cli, trained_run, pool):
    options = ["--input", pool, "--n", 3]
    printed = cli("suggest", trained_run.path, *options).out

    outcome = cli("suggest", trained_run.model, *options, "--output", "next.csv")

    assert outcome.out == ""
    assert outcome.err.startswith("wrote next.csv: 3 texts to label")
    assert Path("next.csv").read_text() == printed


def test_an_excel_file_has_the_suggestions_of_the_table(cli, trained_run):
    """Values of an Excel sheet keep their types, and the probability is a number."""
    day = date(2026, 11, 27)
    write_excel("pool.xlsx", ["text", "day", "amount"], ["soup ball", day, 3], ["+zzz", day, 4.5])
    options = ["--input", "pool.xlsx", "--output"]
    assert cli("suggest", trained_run.path, *options, "next.csv").code == 0

    assert cli("suggest", trained_run.path, *options, "next.xlsx").code == 0

    header, *rows = read_excel("next.xlsx")
    assert header == read_table("next.csv")[0]
    values = {row[0]: row[1:] for row in rows}
    assert values["soup ball"][:3] == [day, 3, None]
    assert values["+zzz"][:3] == [day, 4.5, None]
    assert isinstance(values["+zzz"][header.index("probability") - 1], float)


def test_a_tsv_file_has_the_suggestions_of_the_table(cli, trained_run):
    """Texts with tabs, quotes and line feeds are read from it as they are in the input."""
    texts = ["soup\tball", 'the "coach"\nand the bread', "=zzz"]
    write_texts("pool.csv", texts)
    options = ["--input", "pool.csv", "--output"]
    assert cli("suggest", trained_run.path, *options, "next.csv").code == 0
    assert cli("suggest", trained_run.path, *options, "next.tsv").code == 0

    lines = Path("next.tsv").read_text().splitlines()
    assert lines[0] == "\t".join([*COLUMNS, "row"])

    columns = Columns(("text",), None, every=True)
    rows_of_table = [row.record for row in read_rows("next.csv", columns, Reading())]
    rows_of_tsv = [row.record for row in read_rows("next.tsv", columns, Reading())]
    assert rows_of_tsv == rows_of_table
    assert {row["text"] for row in rows_of_tsv} == set(texts)


def test_json_has_the_suggestions_of_the_table(cli, trained_run, pool):
    command = ["suggest", trained_run.path, "--input", pool]
    table = cli(*command)
    lines = cli(*command, "--json")

    records = json_records(lines.out)
    assert list(records[0]) == COLUMNS
    assert records[0]["label"] is None

    texts = [record["text"] for record in records]
    assert texts == [row["text"] for row in table_rows(table.out)]
    different_texts = {" ".join(text.lower().split()) for text in texts}
    assert len(different_texts) == len(texts) <= 8


def test_json_is_printed_beside_a_file_in_the_format_of_its_name(cli, trained_run, pool):
    command = ["suggest", trained_run.path, "--input", pool]
    assert cli(*command, "--output", "alone.csv").code == 0

    outcome = cli(*command, "--output", "next.csv", "--json")

    assert read_table("next.csv") == read_table("alone.csv")
    assert json_records(outcome.out) == json_records(cli(*command, "--json").out)


FORMULA = '=HYPERLINK("a")'
ODD_TEXTS = ["rain\x1b[2J\x9b\n soup", "-1"]


def test_texts_stay_as_they_are(cli, trained_run):
    """Those like formulas, too: the table is trained on."""
    texts = [FORMULA, *ODD_TEXTS]
    write_texts("pool.csv", texts)
    with Path("pool.jsonl").open("w") as file:
        for text in texts:
            file.write(f"{json.dumps({'text': text})}\n")

    for source in ("pool.csv", "pool.jsonl"):
        output = f"next-{source}.csv"
        cli("suggest", trained_run.path, "--input", source, "--output", output)
        _, *rows = read_table(output)
        assert {row[0] for row in rows} == {FORMULA, *ODD_TEXTS}


def test_a_table_is_safe_to_show(cli, trained_run, monkeypatch):
    """A terminal gets no control characters, and a line for each row."""
    write_texts("pool.csv", [FORMULA, *ODD_TEXTS])
    monkeypatch.setattr(sys.stdout, "isatty", lambda: True, raising=False)

    shown = cli("suggest", trained_run.path, "--input", "pool.csv").out

    assert len(shown.splitlines()) == 4
    assert shown.replace("\n", "").isprintable()


def test_columns_of_the_input_keep_their_names_and_values(cli, trained_run):
    """Those of an earlier table of suggestions are replaced."""
    rows = [["key", "file", "text"], *(["SHOP-1", "by mail", text] for text in [*SURE, *UNSURE])]
    write_table("pool.csv", rows)
    cli("suggest", trained_run.path, "--input", "pool.csv", "--n", 3, "--output", "next.csv")

    header, *suggested = read_table("next.csv")
    assert header == [
        *rows[0],
        *("label", "suggested", "probability", "suggest_file", "line", "suggest_key"),
    ]
    assert [row[:2] for row in suggested] == [["SHOP-1", "by mail"]] * 3
    assert [row[-1] for row in suggested] == [key_of_text(row[2]) for row in suggested]

    cli("suggest", trained_run.path, "--input", "next.csv", "--output", "again.csv")
    header_again, *again = read_table("again.csv")
    assert header_again == header
    assert [row[:2] for row in again] == [["SHOP-1", "by mail"]] * 3

    cli("suggest", trained_run.path, "--input", "pool.csv", "--n", 3, "--output", "next.jsonl")
    (record, *_) = json_records(Path("next.jsonl").read_text())
    assert (record["key"], record["file"]) == ("SHOP-1", "by mail")

    write_texts("pool.csv", [*SURE, *UNSURE])
    cli("suggest", trained_run.path, "--input", "pool.csv", "--output", "first.csv")
    cli("suggest", trained_run.path, "--input", "first.csv", "--output", "second.csv")
    assert read_table("second.csv")[0] == COLUMNS


def test_texts_that_have_labels_in_the_data_of_the_run_are_left_out(cli, trained_run):
    dataset = load_data(load_config(trained_run.config_file))
    known = [dataset.train.texts[0], dataset.validation.texts[0].upper()]
    write_texts("pool.csv", [*known, *UNSURE])

    outcome = cli("suggest", trained_run.path, "--input", "pool.csv")

    assert "2 rows left out whose text has a label in the data of the run" in outcome.err
    assert {row["text"] for row in table_rows(outcome.out)} <= set(UNSURE)


def test_a_file_that_a_person_may_have_filled_in_is_not_replaced(cli, trained_run, pool):
    command = ["suggest", trained_run.path, "--input", pool, "--output", "next.csv"]
    assert cli(*command).code == 0
    filled_in = Path("next.csv").read_text().replace(",,", ",mine,")
    Path("next.csv").write_text(filled_in)

    assert_failed(cli(*command), 2, "next.csv: exists already")
    assert Path("next.csv").read_text() == filled_in


def test_a_table_that_is_filled_in_is_data_like_the_input(cli, trained_run):
    """Separator, mark and columns are those of the input, so both are read together."""
    rows = []
    for number, text in enumerate([*SURE, *UNSURE]):
        rows.append([f"0{number}", "", text, "x; y"])
    write_table("pool.csv", [["id", "label", "text", "topic"], *rows], ";", "utf-8-sig")

    options = ["--input", "pool.csv", "--n", 9, "--output", "next.csv"]
    assert cli("suggest", trained_run.path, *options).code == 0

    assert Path("next.csv").read_bytes().startswith(b"\xef\xbb\xbf")
    header, *suggested = read_table("next.csv", ";")
    assert header == ["id", "text", "topic", *COLUMNS[1:]]
    for id_, text, topic, *_ in suggested:
        assert [id_, "", text, topic] in rows

    # Each suggested label becomes the label.
    label = header.index("label")
    for row in suggested:
        row[label] = row[label + 1]
    write_table("next.csv", [header, *suggested], ";", "utf-8-sig")

    config = trained_run.path.parent / "tiny.yaml"
    outcome = cli("train", "--config", config, "--set", "data.train=next.csv", "--dry-run")
    assert f"data: {len(suggested)} training" in outcome.err


def model_with_format(run: RunDir, folder: str, **text_format: str) -> Path:
    """A copy of a run's model, whose training data was stored in another way."""
    model = load_classifier(run.path)
    model.text_format = TextFormat(**text_format)
    save_classifier(model, Path(folder))
    return Path(folder)


def test_the_label_has_the_column_of_the_training_data(cli, trained_run):
    """A column `label` of the input is then a column like others."""
    model = model_with_format(trained_run, "odd", label_column="Intent (desk)")
    write_table("pool.csv", [["text", "label"], ["soup ball", "of a machine"]])

    outcome = cli("suggest", model, "--input", "pool.csv", "--output", "next.csv")

    assert "fill in the column 'Intent (desk)', then add the file to the training data" in (
        outcome.err
    )
    header, row = read_table("next.csv")
    assert header == ["text", "label", "Intent (desk)", *COLUMNS[2:]]
    assert row[:3] == ["soup ball", "of a machine", ""]

    printed = cli("suggest", model, "--input", "pool.csv", "--json")
    (record,) = json_records(printed.out)
    assert record["Intent (desk)"] is None


def test_rows_with_a_label_are_left_out(cli, trained_run):
    """A table of which a part is labelled may be asked for the next texts."""
    rows = [["text", "label"], ["soup ball", "food"], ["zzz", " "], ["rain ball", ""]]
    write_table("pool.csv", rows)

    outcome = cli("suggest", trained_run.path, "--input", "pool.csv")

    assert {row["text"] for row in table_rows(outcome.out)} == {"zzz", "rain ball"}
    assert "pool.csv: 1 row with a label in column 'label' left out" in outcome.err


def test_a_label_is_looked_for_inside_objects_of_json(cli, trained_run):
    """An empty list says that a text has no label, which is an answer."""
    model = model_with_format(trained_run, "nested", label_column="ticket.label")
    with Path("pool.jsonl").open("w") as file:
        for text, label in (("soup ball", "food"), ("zzz", []), ("rain ball", None)):
            file.write(f"{json.dumps({'text': text, 'ticket': {'label': label}})}\n")

    outcome = cli("suggest", model, "--input", "pool.jsonl", "--json")

    assert [record["text"] for record in json_records(outcome.out)] == ["rain ball"]


def test_the_command_that_trains_with_the_labels_is_named(cli, trained_run, pool):
    outcome = cli("suggest", trained_run.path, "--input", pool, "--output", "next.csv")

    assert f"train with --from {trained_run.path} --set data.train=next.csv" in outcome.err


def test_rows_of_a_spreadsheet_are_named_beside_lines(cli, trained_run):
    """JSON names a row only where it differs from the line: after a text with a line feed."""
    Path("pool.csv").write_text('text\n"soup\nball"\nzzz\n')
    command = ["suggest", trained_run.path, "--input", "pool.csv"]

    assert cli(*command, "--output", "next.csv").code == 0
    header, *rows = read_table("next.csv")
    assert header[-3:] == ["line", "key", "row"]
    places = {row[0]: [row[-3], row[-1]] for row in rows}
    assert places == {"soup\nball": ["2", "2"], "zzz": ["4", "3"]}

    records = json_records(cli(*command, "--json").out)
    row_numbers = {record["text"]: record.get("row") for record in records}
    assert row_numbers == {"soup\nball": None, "zzz": 3}


def test_a_warning_comes_where_there_are_fewer_texts_than_wanted(cli, trained_run, pool):
    outcome = cli("suggest", trained_run.path, "--input", pool, "--n", 100)

    assert outcome.code == 0
    assert outcome.err.startswith("warning: pool.csv: has only ")


@pytest.mark.parametrize(
    ("options", "code", "message"),
    [
        (["--input", "gone.csv"], 3, "no such file"),
        (["--input", "-"], 2, "--input: names no file"),
        (["--input", "pool.csv", "--output", "pool.csv"], 2, "is a file that is read"),
        (
            ["--input", "pool.csv", "--output", "next.ods"],
            2,
            "must end with .csv, .tsv, .xlsx or .jsonl",
        ),
        (["--input", "pool.csv", "--text-column", "body"], 3, "no column 'body'"),
    ],
)
@pytest.mark.usefixtures("pool")
def test_impossible_requests_are_refused(cli, trained_run, options, code, message):
    assert_failed(cli("suggest", trained_run.path, *options), code, message)
