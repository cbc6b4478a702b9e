"""No labelled text: rows without a label, and a classifier that learns from the names of the classes alone."""

from __future__ import annotations

import csv
import random
from pathlib import Path

import numpy as np
import pytest

from encoder_cls.classifier.model_folder import load_classifier
from encoder_cls.config.loading import config_of
from encoder_cls.config.schema import DataConfig
from encoder_cls.data.load import load_dataset
from encoder_cls.errors import ConfigError, DataError
from encoder_cls.training.prepare import prepare

pytestmark = pytest.mark.usefixtures("blank_plots")

WORDS = {
    "food": ["food", "soup", "bread", "salt", "spoon", "oven"],
    "sport": ["sport", "ball", "goal", "team", "match", "coach"],
    "weather": ["weather", "rain", "snow", "wind", "cloud", "storm"],
}
FILLERS = ["the", "a", "of", "and", "with", "for", "on", "at"]
NAMES = ["sport", "food", "weather"]  # not in the order of the alphabet


def texts(number: int, *, seed: int) -> list[tuple[str, str]]:
    """Texts of three words of their class; one in six has the class's name among them."""
    draw = random.Random(seed)
    found = []
    for index in range(number):
        label = draw.choice(NAMES)
        found.append(
            (
                " ".join([*draw.sample(WORDS[label], 3), *draw.sample(FILLERS, 3), f"n{index}"]),
                label,
            )
        )
    return found


def write(name: str, rows: list[tuple[str, str]]) -> str:
    with Path(name).open("w", newline="") as file:
        csv.writer(file).writerows([("text", "label"), *rows])
    return name


def without_labels(rows: list[tuple[str, str]]) -> list[tuple[str, str]]:
    return [(text, "") for text, _ in rows]


def data(**values: object) -> DataConfig:
    return DataConfig.model_validate({"label_names": NAMES} | values)


def test_rows_without_a_label_are_unlabelled_texts():
    rows = texts(40, seed=0)
    mixed = [row if index % 4 else (row[0], " ") for index, row in enumerate(rows)]
    further = write("further.csv", without_labels(texts(5, seed=1)))
    dataset = load_dataset(data(train=write("train.csv", mixed), unlabelled=further))
    assert sorted([*dataset.train.texts, *dataset.validation.texts]) == sorted(
        text for text, label in mixed if label != " "
    )
    assert [*dataset.unlabelled.texts] == [text for text, _ in [*texts(5, seed=1), *mixed[::4]]]
    assert [*dataset.unlabelled.where][-2:] == ["train.csv:34", "train.csv:38"]
    assert not dataset.has_names_alone
    names = [dataset.label_names[label] for label in dataset.train.labels]
    assert dict(zip(dataset.train.texts, names, strict=True)).items() <= dict(rows).items()


@pytest.mark.parametrize(
    "line", ['{"text": "one two", "label": null}', '{"text": "one two", "label": ""}']
)
def test_null_is_no_label(line):
    lines = [f'{{"text": "{text}", "label": "{label}"}}' for text, label in texts(12, seed=0)]
    Path("a.jsonl").write_text("\n".join([*lines, line]))
    assert [*load_dataset(data(train="a.jsonl")).unlabelled.texts] == ["one two"]


@pytest.mark.parametrize("role", ["validation", "test"])
def test_what_is_scored_has_labels(role):
    scored = write("scored.csv", [*texts(6, seed=1), ("one two", "")])
    with pytest.raises(
        DataError, match=r"scored\.csv:8: the label is empty; only in train may it be"
    ):
        load_dataset(data(train=write("train.csv", texts(20, seed=0)), **{role: scored}))


@pytest.mark.parametrize(
    "values, error, message",
    [
        ({"label_names": None}, DataError, r"a\.csv:2: the label is empty"),
        (
            {"label_names": ["0", "1"]},
            ConfigError,
            "data.label_names: '0' has no words; no text has a label",
        ),
        (
            {"label_names": ["sport"]},
            ConfigError,
            "data.label_names: two classes are needed at least; no text",
        ),
        (
            {"label_separator": "|"},
            DataError,
            r"a\.csv: no row has a label, so there is nothing to learn$",
        ),
    ],
)
def test_nothing_to_learn_from_is_refused(values, error, message):
    with pytest.raises(error, match=message):
        load_dataset(data(train=write("a.csv", without_labels(texts(9, seed=0))), **values))


@pytest.mark.parametrize("missing", ["unlabelled", "label_names"])
def test_train_may_be_missing_where_the_rest_is_there(missing):
    values = {"unlabelled": write("a.csv", texts(9, seed=0)), "label_names": NAMES}
    assert load_dataset(data(**values)).has_names_alone
    with pytest.raises(ConfigError, match="data: train is missing; to learn from names"):
        config_of(
            {"name": "a"}
            | {f"data.{key}": value for key, value in values.items() if key != missing},
            source="a",
        )


def test_names_that_no_text_has_are_warned_of():
    names = [*NAMES, "zebra_crossing"]
    values = {
        "data.unlabelled": write("a.csv", texts(60, seed=0)),
        "data.label_names": names,
        "name": "a",
    }
    warnings = [*prepare(config_of(values, source="test")).warnings()]
    assert len(warnings) == 1
    assert (
        "no text has a word of these names, so answers of their classes are chance: 'zebra_crossing'"
        in warnings[0]
    )
    with pytest.raises(ConfigError, match=r"model\.linear=false: no text has a label"):
        prepare(config_of(values | {"model.linear": False}, source="test"))


@pytest.fixture(scope="module")
def pile() -> list[tuple[str, str]]:
    return texts(400, seed=0)


def test_names_alone_make_a_classifier_and_no_measure_of_it(cli, pile):
    """The label column of the pile is not looked at; words that no name has are known from their company."""
    held_out = texts(100, seed=1)
    names = f"data.label_names=[{', '.join(NAMES)}]"
    Path("a.yaml").write_text(f"data: {{unlabelled: {write('pile.csv', pile)}}}\n")
    trained = cli("train", "a.yaml", "--set", names)
    assert trained.code == 0
    assert (
        "no labelled text to learn from, 400 unlabelled texts, 3 classes by their names"
        in trained.err
    )
    assert "no text has a label, so accuracy and calibration are unknown" in trained.err
    assert "encoder-cls suggest runs/a --input TEXTS.csv --n 50" in trained.err
    assert trained.out == ""
    classifier = load_classifier(Path("runs/a"))
    assert [*classifier.label_names] == NAMES
    unseen = [(text, label) for text, label in held_out if label not in text.split()]
    answers = [prediction.label for prediction in classifier.predict([text for text, _ in unseen])]
    assert (
        np.mean([answer == label for answer, (_, label) in zip(answers, unseen, strict=True)]) > 0.9
    )
    assert "the accuracy is unknown" in Path("runs/a/model/README.md").read_text()
    refused = {
        (
            "eval",
            "runs/a",
        ): "no text of its data has a label to score; name labelled texts with --data",
        ("review", "runs/a", "--output", "r.csv"): "learned from the names of the classes alone",
        (
            "predict",
            "--min-precision",
            "0.9",
            "text",
        ): "train it again with this version, on texts with labels",
    }
    for command, message in refused.items():
        outcome = cli(*command)
        assert (outcome.code, message in outcome.err) == (2, True), outcome.err
    assert "this run is finished" in cli("train", "a.yaml", "--set", names, "--resume").err
    scored = cli("eval", "runs/a", "--data", write("held_out.csv", held_out))
    assert "100 examples" in scored.out


@pytest.mark.parametrize("role", ["validation", "test"])
def test_labelled_texts_beside_names_are_scored(cli, pile, role):
    """Labels may be indices into the names; those of validation also say how sure the answers are."""
    held_out = [(text, str(NAMES.index(label))) for text, label in texts(60, seed=1)]
    Path("a.yaml").write_text(
        f"data: {{train: {write('pile.csv', without_labels(pile))}, {role}: {write('scored.csv', held_out)}, "
        f"label_names: [{', '.join(NAMES)}]}}\n"
    )
    trained = cli("train", "a.yaml")
    assert trained.code == 0, trained.err
    assert f"no labelled text to learn from, 60 {role}, 400 unlabelled texts" in trained.err
    assert f"{role}: 60 examples" in trained.out
    assert load_classifier(Path("runs/a")).mixture_weights[0] != 1 or role == "test"
    assert cli("eval", "runs/a").out.startswith(f"{role}: 60 examples")
