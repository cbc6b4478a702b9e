"""The command `init`, and how `train` explains data of another form."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from support.data import write
from support.tables import write_table
from support.topics import labelled_texts

from encoder_cls.config.loading import load_config

ROWS = [["Nachricht", "Thema"], *labelled_texts(20, seed=0)]


@pytest.fixture
def office_table() -> str:
    return write_table("Mai 24.csv", ROWS, ";", encoding="windows-1252")


def test_a_config_is_written_that_train_reads(cli, office_table):
    outcome = cli("init", office_table)

    assert outcome.code == 0
    assert outcome.out.splitlines()[0] == (
        "Mai 24.csv: 60 rows, fields separated by ';', encoding windows-1252"
    )
    assert re.search(r"^time: about \d+ (s|min) on this machine \(linear", outcome.out, re.M)
    assert "wrote Mai-24.yaml; read it, then run: encoder-cls train Mai-24.yaml\n" in outcome.err

    config = load_config(Path("Mai-24.yaml"))
    assert config.name == "Mai-24"
    assert config.data.text_column == ("Nachricht",)
    dry_run = cli("train", "Mai-24.yaml", "--dry-run")
    assert dry_run.code == 0
    assert "54 training, 6 validation texts, 3 classes" in dry_run.err


def test_what_is_known_can_be_set(cli):
    rows = [["a", "b", "c"]]
    for text, label in ROWS[1:]:
        rows.append([text, label, label.upper()])
    outcome = cli(
        "init", write_table("a.csv", rows), "--set", "data.label_column=c", "--output", "my b.yml"
    )
    assert outcome.code == 0
    assert outcome.err.endswith("then run: encoder-cls train 'my b.yml'\n")
    assert load_config(Path("my b.yml")).data.label_column == "c"


@pytest.mark.parametrize("delimiter", ["tab", "\t"])
def test_a_separator_is_named_or_given(cli, delimiter):
    source = write_table("a.csv", ROWS, "\t")
    outcome = cli("init", source, "--set", f"data.delimiter={delimiter}")

    assert outcome.code == 0
    assert load_config(Path("a.yaml")).data.delimiter == "\t"


@pytest.mark.parametrize(
    ("arguments", "code", "message"),
    [
        (["missing.csv"], 3, "missing.csv: no such file or folder"),
        (["a.csv", "--output", "a.txt"], 2, "--output a.txt: the name must end with .yaml or .yml"),
        (["a.csv", "--set", "train.epochs=1"], 2, "only data.text_column, data.label_column, "),
        (["a.csv", "--set", "data.delimiter=;;"], 2, "data.delimiter: ';;' is not a field sepa"),
        (["a.csv"], 3, "a.csv: no column looks like labels; there are 'text'"),
    ],
)
def test_without_a_config_nothing_is_written(cli, arguments, code, message):
    write("a.csv", "text\nonly a text\nand another one\n")
    outcome = cli("init", *arguments)

    assert outcome.code == code
    assert message in outcome.err
    assert [path.name for path in Path.cwd().iterdir()] == ["a.csv"]


def test_a_config_is_never_replaced(cli, office_table):
    write("Mai-24.yaml", "mine")
    outcome = cli("init", office_table)

    assert outcome.code == 2
    assert outcome.err == "error: Mai-24.yaml: exists already; name another file with --output\n"
    assert Path("Mai-24.yaml").read_text(encoding="utf-8") == "mine"


def test_train_says_all_that_it_found_in_data_without_its_columns(cli, office_table):
    outcome = cli("train", "--set", f"data.train={office_table}")

    assert outcome.code == 3
    lines = outcome.err.splitlines()
    assert lines[1].startswith("error: Mai 24.csv: no column 'text'")
    assert lines[2] == "Mai 24.csv: 60 rows, fields separated by ';', encoding windows-1252"
    assert any(line.startswith("label: column 'Thema'") for line in lines)
    assert "3 classes: küche 20, sport 20, weather 20" in lines
    assert lines[-1] == "to write a config for this data: encoder-cls init 'Mai 24.csv'"
    assert not Path("runs").exists()


def test_train_says_all_that_it_found_in_data_of_another_encoding(cli):
    rows = [["text", "label"], *ROWS[1:]]
    source = write_table("a.csv", rows, encoding="windows-1252")
    outcome = cli("train", "--set", f"data.train={source}")

    assert outcome.code == 3
    assert "error: a.csv:2: not UTF-8 text" in outcome.err
    assert outcome.err.endswith("to write a config for this data: encoder-cls init a.csv\n")


def test_a_missing_column_of_other_data_than_train_is_a_plain_error(cli):
    train = write_table("a.csv", [["text", "label"], *ROWS[1:]])
    test = write_table("b.csv", ROWS)
    outcome = cli("train", "--set", f"data.train={train}", "--set", f"data.test={test}")

    assert outcome.code == 3
    assert outcome.err.splitlines()[-1].startswith("error: b.csv: no column 'text'")
