"""Texts with columns beside them (`data.features`) are labelled, reviewed and suggested."""

from __future__ import annotations

import csv
import json
import shlex
import time
from pathlib import Path
from random import Random

import pytest
from support.labelling import read_table
from support.programs import assert_failed, succeed
from support.small_runs import NO_TECHNIQUES, make_config, run_all

from encoder_cls.config.loading import load_config
from encoder_cls.data.load_dataset import load_dataset
from encoder_cls.extras.label.label_command import _command_from, _train_command
from encoder_cls.extras.label.open_session import open_session
from encoder_cls.extras.label.pool import PoolOptions, read_pool
from encoder_cls.extras.label.pool_model import Labels, PoolModel
from encoder_cls.extras.label.review_session import open_review

WORDS = ["ba", "be", "bi", "bo", "bu", "da", "de", "di", "do", "du"]
COLUMNS = ["title", "body", "channel", "owner", "label"]


def write_rows(path: Path, number: int, *, has_labels: bool) -> None:
    """Rows whose class is the channel; one of twenty labels is wrong."""
    draw = Random(number)
    with path.open("w", newline="") as file:
        table = csv.writer(file)
        table.writerow(COLUMNS)
        for row in range(number):
            channel = draw.choice(["email", "phone"])
            is_right = bool(row % 20)
            label = "mail" if (channel == "email") == is_right else "call"
            body = " ".join(draw.sample(WORDS, 4))
            table.writerow([f"no {row}", body, channel, "ann", label if has_labels else ""])


@pytest.fixture(scope="module")
def folder(tmp_path_factory) -> Path:
    """A run of the linear model, whose data are moved nowhere."""
    folder = tmp_path_factory.mktemp("columns")
    write_rows(folder / "rows.csv", 200, has_labels=True)
    write_rows(folder / "pool.csv", 40, has_labels=False)
    columns = {"text_column": ["title", "body"], "features": ["channel"]}
    config = make_config(
        folder,
        linear=True,
        data={"train": str(folder / "rows.csv")} | columns,
        model={"encoder": False, "max_seq_len": 32},
        **NO_TECHNIQUES,
    )
    run_all(config, folder / "run")
    return folder


def test_rows_are_labelled_with_all_their_columns_and_predicted_by_the_channel(folder, tmp_path):
    options = PoolOptions(str(folder / "pool.csv"), ("title", "body"), ("channel",))
    opened = open_session(options, tmp_path / "labels.csv", ["mail", "call"], is_multi_label=False)
    fit = PoolModel([text.text for text in opened.texts], len(opened.texts))(folder / "run")

    for text, top in zip(opened.texts, fit.top_classes[:, 0].tolist(), strict=True):
        shown = opened.session.state()["text"]
        cells = text.cells
        assert shown["text"] == f"{cells['title']} {cells['body']} [channel={cells['channel']}]"
        assert shown["columns"] == [["owner", "ann"]]
        predicted = ["call", "mail"][top]
        assert predicted == {"email": "mail", "phone": "call"}[cells["channel"]]
        opened.session.label(text.key, [predicted])

    written = read_table(tmp_path / "labels.csv")
    assert [[row[name] for name in COLUMNS[:4]] for row in written] == [
        [text.cells[name] for name in COLUMNS[:4]] for text in opened.texts
    ]
    reopened = open_session(options, tmp_path / "labels.csv", [], is_multi_label=False)
    assert reopened.session.state()["text"] is None
    command = _train_command(opened.session, options, ["mail", "call"])
    assert "--set 'data.features=[\"channel\"]'" in command

    command = _command_from(folder / "run", opened.session, options)
    settings = [word for word in shlex.split(command)[4:] if word != "--set"]
    config = load_config(None, settings, from_run=folder / "run")
    assert config.data.features == ("channel",)
    assert set(load_dataset(config.data).label_names) == {"call", "mail"}


def test_a_model_of_the_labels_alone_learns_from_the_columns(folder):
    options = PoolOptions(str(folder / "pool.csv"), ("body",), ("channel",))
    texts = read_pool(options).texts
    channels = [text.cells["channel"] for text in texts]
    chosen = range(24)
    given = [[channels[text]] for text in chosen]
    labels = Labels(chosen, given, ["email", "phone"], [0, 1], is_multi_label=False)

    fit = PoolModel([text.text for text in texts], len(texts))(labels)

    guesses = [["email", "phone"][top] for top in fit.top_classes[24:, 0].tolist()]
    assert guesses == channels[24:]


def test_the_features_of_a_pool_are_named_in_the_command(cli, folder, tmp_path):
    command = ("label", folder / "pool.csv", "--text-column", "body")
    command = (*command, "--output", tmp_path / "labels.csv", "--set")

    assert_failed(cli(*command, "data.features=[channel, size]"), 3, "no column 'size'")
    assert_failed(cli(*command, "data.features=body"), 2, "'body' is also the column of the text")
    with_model = (*command, "data.features=channel", "--model", folder / "run")
    assert_failed(cli(*with_model), 2, "--model has the features")


def test_a_feature_inside_an_object_is_a_column_of_the_labels(tmp_path):
    row = {"body": "some text", "meta": {"channel": "email"}}
    (tmp_path / "pool.jsonl").write_text(json.dumps(row))
    options = PoolOptions(str(tmp_path / "pool.jsonl"), ("body",), ("meta.channel",))
    opened = open_session(options, tmp_path / "labels.csv", ["a", "b"], is_multi_label=False)
    opened.session.label(opened.texts[0].key, ["a"])

    [written] = read_table(tmp_path / "labels.csv")
    assert (written["body"], written["meta.channel"]) == ("some text", "email")


def test_suggestions_have_all_columns(cli, folder, tmp_path):
    path = tmp_path / "next.csv"
    command = ("suggest", folder / "run", "--input", folder / "pool.csv", "--n", 3)
    succeed(cli, *command, "--output", path)

    for row in read_table(path):
        assert row["owner"] == "ann"
        assert row["suggested"] == {"email": "mail", "phone": "call"}[row["channel"]]


def test_columns_inside_objects_are_columns_of_suggestions(cli, folder, tmp_path):
    """So that a table that is filled in can be trained on."""
    columns = {"text_column": "ticket.body", "features": ["meta.channel"]}
    config = make_config(
        tmp_path,
        linear=True,
        data={"train": nested_copy(folder / "rows.csv", tmp_path / "rows.jsonl")} | columns,
        model={"encoder": False, "max_seq_len": 32},
        **NO_TECHNIQUES,
    )
    run_all(config, tmp_path / "run")
    pool = nested_copy(folder / "pool.csv", tmp_path / "pool.jsonl")
    command = ("suggest", tmp_path / "run", "--input", pool, "--n", 3)
    succeed(cli, *command, "--output", tmp_path / "next.csv")
    succeed(cli, "review", tmp_path / "run", "--output", tmp_path / "review.csv")

    for table in ("next.csv", "review.csv"):
        written = read_table(tmp_path / table)
        assert len(written) >= 3
        for row in written:
            assert row["ticket.body"] == json.loads(row["ticket"])["body"]
            assert row["meta.channel"] == json.loads(row["meta"])["channel"]


def nested_copy(table: Path, path: Path) -> str:
    """The rows of a table as JSON, with objects around the body and the channel."""
    lines = []
    for row in read_table(table):
        nested = {"ticket": {"body": row["body"]}, "meta": {"channel": row["channel"]}}
        lines.append(json.dumps(nested | {"label": row["label"]}))
    path.write_text("\n".join(lines))
    return str(path)


def test_a_review_names_the_features_and_explains_by_them(cli, folder, tmp_path):
    path = tmp_path / "review.csv"
    found = json.loads(succeed(cli, "review", folder / "run", "--output", path, "--json").out)
    first = found["rows"][0]
    opened = open_review(folder / "run", tmp_path / "page.csv", {})
    with opened.model:
        text = opened.session.state()["text"]
        while not opened.model.words(text["key"]):
            time.sleep(0.01)
        words = opened.model.words(text["key"])

    assert len(found["rows"]) >= 9
    assert "row" not in first
    assert first["text"].endswith("]")
    assert text["text"] == first["text"]
    written = read_table(path)
    assert [f"{row['title']} {row['body']} [channel={row['channel']}]" for row in written] == [
        row["text"] for row in found["rows"]
    ]
    channel = first["text"].partition("[")[2].removesuffix("]")
    assert any(channel in of_class["words_for"] for of_class in words)
