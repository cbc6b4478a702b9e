"""Rows without a label: texts to learn from in train, refused where labels are needed."""

from __future__ import annotations

from pathlib import Path

import pytest
from support.data import load, refusal, write, write_labelled

from encoder_cls.config.schema import DataConfig
from encoder_cls.data.load_dataset import load_dataset, load_split
from encoder_cls.errors import DataError

NAMES = ["sport", "food", "weather"]
LABELS = ["sport", "food", "weather", "food"] * 10
LABEL_SOME = "label about 20 texts first, some of each class"
SUGGEST = "from then on, encoder-cls suggest names the texts to label next"


def data(**values: object) -> DataConfig:
    """A config that names the classes."""
    return DataConfig.model_validate({"label_names": NAMES} | values)


def test_rows_of_train_without_a_label_are_unlabelled_texts():
    labels = list(LABELS)
    for row in range(0, len(labels), 5):
        labels[row] = " "
    train = write_labelled("train.csv", *labels)
    further = write_labelled("further.csv", *[""] * 5)

    dataset = load_dataset(data(train=train, unlabelled=further))

    unlabelled = dataset.unlabelled
    where = list(unlabelled.where)
    assert where[:5] == [f"further.csv:{line}" for line in range(2, 7)]
    assert where[5:] == [f"train.csv:{line}" for line in range(2, 42, 5)]

    learned = [*dataset.train.texts, *dataset.validation.texts]
    assert len(learned) == 32
    assert not set(learned) & set(unlabelled.texts)
    names = {dataset.label_names[label] for label in dataset.train.labels}
    assert names == set(NAMES)


@pytest.mark.parametrize(
    "line",
    [
        '{"text": "one two", "label": null}',
        '{"text": "one two", "label": ""}',
    ],
)
def test_null_is_no_label(line):
    labelled = Path(write_labelled("a.jsonl", *LABELS)).read_text()
    write("a.jsonl", labelled + line)

    assert list(load_dataset(data(train="a.jsonl")).unlabelled.texts) == ["one two"]


@pytest.mark.parametrize("role", ["validation", "test"])
def test_texts_that_are_scored_must_have_labels(role):
    train = write_labelled("train.csv", *LABELS)
    scored = write_labelled("scored.csv", *LABELS[:6], "")

    message = r"scored\.csv:8: the label is empty; a label may be empty in train only"
    with pytest.raises(DataError, match=message):
        load_dataset(data(train=train, **{role: scored}))


@pytest.mark.parametrize(
    ("name", "content"),
    [
        ("a.csv", "text,label\none,\ntwo, \n"),
        ("a.jsonl", '{"text": "one", "label": null}\n{"text": "two", "label": ""}\n'),
    ],
)
@pytest.mark.parametrize("names", [None, NAMES])
def test_data_without_any_label_is_refused(name, content, names):
    write(name, content)

    with pytest.raises(DataError) as caught:
        load_dataset(DataConfig(train=name, label_names=names))

    assert str(caught.value) == (
        f"{name}: no row has a label, so there is nothing to learn; {LABEL_SOME}; {SUGGEST}"
    )


def test_several_labels_a_text_without_any_are_refused():
    write("several.jsonl", '{"text": "one", "label": []}\n{"text": "two", "label": []}\n')
    assert refusal("several.jsonl") == (
        f"several.jsonl: no row has a label, so there is nothing to learn; {LABEL_SOME}; {SUGGEST}"
    )


def test_lines_without_any_label_are_refused_with_the_form_of_labelled_lines():
    message = refusal(write("a.txt", "one\ntwo\n"))
    assert message.startswith("a.txt: no row has a label, so there is nothing to learn; labelled")
    assert "each line begins with __label__" in message
    assert LABEL_SOME in message


@pytest.mark.parametrize("role", ["validation", "test"])
def test_a_scored_source_keeps_some_rows_when_bad_ones_are_skipped(role):
    """Lines of text without a label are bad rows."""
    train = write_labelled("train.csv", *LABELS)
    values = {role: write("scored.txt", "one\ntwo\n"), "bad_rows": "skip"}
    if role == "test":
        values["validation"] = train

    message = r"scored\.txt: no row has a label; labelled"
    with pytest.raises(DataError, match=message):
        load_dataset(data(train=train, **values))
    with pytest.raises(DataError, match=message):
        load_split("scored.txt", data(train=train, bad_rows="skip"), tuple(NAMES))


def test_data_without_labels_ends_the_command_in_one_line(cli):
    write("a.csv", "text,label\none,\ntwo,\n")

    outcome = cli("train", "--set", "data.train=a.csv")

    assert outcome.code == 3
    assert "error: a.csv: no row has a label" in outcome.err
    assert LABEL_SOME in outcome.err
    assert not Path("runs").exists()


def test_some_labels_are_enough(cli):
    """With the labels that the error asks for, the same pool trains a model."""
    write_labelled("a.csv", *LABELS[:20], *[""] * 20)
    names = f"data.label_names=[{', '.join(NAMES)}]"

    outcome = cli("train", "--set", "data.train=a.csv", "--set", names, "--dry-run")

    assert outcome.code == 0
    assert "20 unlabelled texts" in outcome.err
    assert load("a.csv", label_names=NAMES, validation=None).label_names == tuple(NAMES)
