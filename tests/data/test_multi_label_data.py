"""Texts with several labels each: how every format has them, and what is held out."""

from __future__ import annotations

import io
import json
from collections.abc import Iterable, Sequence

import numpy as np
import pyarrow
import pyarrow.parquet
import pytest
from support.data import load, refusal, write

from encoder_cls.config.schema import DataConfig
from encoder_cls.data.data_warnings import data_warnings
from encoder_cls.data.dataset import Dataset
from encoder_cls.data.load_dataset import load_split
from encoder_cls.data.splitting import rows_to_hold_out
from encoder_cls.errors import DataError

TEXTS = ["one", "two", "three", "four"]
LABELS = [["a", "b"], ["b"], [], ["c", "a"]]
MATRIX = [[1, 1, 0], [0, 1, 0], [0, 0, 0], [1, 0, 1]]


def write_jsonl(name: str, rows: Iterable[tuple[str, object]]) -> str:
    lines = []
    for text, label in rows:
        record = {"text": text, "label": label}
        lines.append(f"{json.dumps(record)}\n")
    return write(name, "".join(lines))


def write_csv(name: str, *, separator: str) -> str:
    """Write `TEXTS` with `LABELS`, each in one cell."""
    lines = ["text,label\n"]
    for text, labels in zip(TEXTS, LABELS, strict=True):
        lines.append(f"{text},{separator.join(labels)}\n")
    return write(name, "".join(lines))


def write_fasttext(name: str) -> str:
    """Write `TEXTS` with `LABELS` in front of them."""
    lines = []
    for text, labels in zip(TEXTS, LABELS, strict=True):
        marked_labels = [f"__label__{label} " for label in labels]
        lines.append("".join(marked_labels) + text + "\n")
    return write(name, "".join(lines))


def write_parquet(name: str, labels: Sequence[object], features: object = None) -> str:
    """Write the first of `TEXTS` with these labels, and with features as `datasets` keeps them."""
    table = pyarrow.table({"text": TEXTS[: len(labels)], "label": labels})
    if features:
        metadata = {"huggingface": json.dumps({"info": {"features": features}})}
        table = table.replace_schema_metadata(metadata)

    buffer = io.BytesIO()
    pyarrow.parquet.write_table(table, buffer)
    return write(name, buffer.getvalue())


def assert_has_texts_and_labels(dataset: Dataset) -> None:
    """Check that train and validation have `TEXTS` with `LABELS`."""
    assert dataset.is_multi_label
    assert dataset.label_names == ("a", "b", "c")
    for split in (dataset.train, dataset.validation):
        assert list(split.texts) == TEXTS
        assert split.labels.tolist() == MATRIX

    label_texts = [dataset.train.label_text(row, dataset.label_names) for row in range(4)]
    assert label_texts == ["a, b", "b", "", "a, c"]


@pytest.mark.parametrize("name", ["a.jsonl", "a.parquet", "a.txt"])
def test_several_labels_are_read_from_lists_and_from_fasttext(name):
    """Lists, and `__label__` several times a line, mean the same."""
    if name == "a.jsonl":
        write_jsonl(name, zip(TEXTS, LABELS, strict=True))
    elif name == "a.parquet":
        write_parquet(name, LABELS)
    else:
        write_fasttext(name)

    dataset = load(name)

    assert_has_texts_and_labels(dataset)
    assert dataset.first_multi_label_row == f"{name}:1"


def test_several_labels_are_read_from_cells_with_a_separator():
    write_csv("a.csv", separator=" | ")

    dataset = load("a.csv", label_separator="|")

    assert_has_texts_and_labels(dataset)
    assert dataset.first_multi_label_row is None


def test_one_label_a_line_is_no_multi_label_data():
    source = write("a.ft", "__label__x one\n__label__y two\n")

    assert not load(source).is_multi_label
    assert load(source, label_separator=";").is_multi_label


def test_a_second_label_in_any_split_makes_data_multi_label():
    """Then each name of the other splits is one label."""
    train = write("a.ft", "__label__x one\n__label__y two\n")
    test = write("b.ft", "__label__x __label__y one\n__label__y two\n__label__x three\n")

    dataset = load(train, test=test)

    assert dataset.train.labels.tolist() == [[1, 0], [0, 1]]
    assert dataset.test.labels.tolist() == [[1, 1], [0, 1], [1, 0]]
    assert dataset.first_multi_label_row == "b.ft:1"

    swapped = load(test, validation=train, test=train)
    assert swapped.test.labels.tolist() == [[1, 0], [0, 1]]
    assert swapped.first_multi_label_row == "b.ft:1"


def test_a_list_of_one_label_makes_data_multi_label():
    source = write_jsonl("c.jsonl", [("one", ["x"]), ("two", "y")])
    assert load(source).train.labels.tolist() == [[1, 0], [0, 1]]


def test_labels_as_numbers_have_their_names():
    """It is the same as with one label a text."""
    source = write_jsonl("a.jsonl", [("one", [0, 1]), ("two", [])])

    dataset = load(source, label_names=["no", "yes"])

    assert dataset.label_names == ("no", "yes")
    assert dataset.train.labels.tolist() == [[1, 1], [0, 0]]


def test_equal_labels_in_a_list_are_one():
    source = write_jsonl("a.jsonl", [("one", [0, 1, 0]), ("two", [])])
    dataset = load(source, label_names=["no", "yes"])
    assert dataset.train.labels.tolist() == [[1, 1], [0, 0]]


def test_equal_labels_in_a_cell_are_one():
    source = write("a.csv", "text,label\none,x;;x; y ;\n")
    dataset = load(source, label_separator=";")
    assert dataset.train.labels.tolist() == [[1, 1]]


@pytest.mark.parametrize(
    ("label", "message"),
    [
        ([["x"]], "a.jsonl:1: the label is list"),
        (["x", None], "a.jsonl:1: the label is empty"),
        (["x", " "], "a.jsonl:1: the label is empty"),
        (["\ud800"], "a.jsonl:1: the label holds half of a surrogate pair"),
        ([], "a.jsonl: no row has a label"),
    ],
)
def test_labels_that_are_none_are_refused_with_their_line(label, message):
    """A label in a list has the errors of a single label.

    If no row has a label, nothing can be learned.
    """
    source = write_jsonl("a.jsonl", [("one", label)])
    assert refusal(source).startswith(message)


def test_a_single_class_is_enough():
    source = write_jsonl("a.jsonl", [("one", ["x"]), ("two", [])])

    dataset = load(source)

    assert dataset.label_names == ("x",)
    assert dataset.train.labels.tolist() == [[1], [0]]


def test_labels_that_train_never_shows_count_and_choose_nothing():
    """They come after the classes; without them their texts still choose the weights."""
    train = write_jsonl("a.jsonl", [("one", ["a", "b"]), ("two", ["b"])] * 20)
    validation = write_jsonl("b.jsonl", [("three", ["a"])] * 30 + [("new", ["a", "z"])])

    dataset = load(train, validation=validation)

    assert dataset.validation.unseen_names == ("z",)
    assert dataset.validation.labels[-1].tolist() == [1, 0, 1]
    assert dataset.known_validation.labels[-1].tolist() == [1, 0]
    assert len(dataset.known_validation) == 31
    warnings = "\n".join(data_warnings(dataset))
    assert "never occur in train: 'z'; 1 of 31 rows has such labels" in warnings


def test_many_labels_that_train_never_shows_are_refused():
    train = write_jsonl("a.jsonl", [("one", ["a", "b"]), ("two", ["b"])] * 20)
    validation = write_jsonl("c.jsonl", [("new", ["a", "z"])])
    with pytest.raises(DataError, match="is this the right data"):
        load(train, validation=validation)


def test_other_labels_of_an_equal_text_are_warned_of():
    """Labels are compared as sets: in another order they are the same."""
    rows = [("one", ["a", "b"]), ("one", ["b", "a"]), ("two", ["a"]), ("two", [])]
    dataset = load(write_jsonl("a.jsonl", rows))

    warnings = "\n".join(data_warnings(dataset))

    assert "2 training texts occur with other labels, too, the first at a.jsonl:3" in warnings
    assert (
        "1 training text repeats an earlier text with the same label, the first at a.jsonl:2"
        in warnings
    )


def test_a_model_with_one_label_a_text_is_not_scored_on_several():
    source = write("a.ft", "__label__x one\n__label__x __label__y two\n")
    config = DataConfig(train=source)
    with pytest.raises(DataError, match=r"^a\.ft:2: texts may have several labels"):
        load_split(source, config, ("x", "y"))

    split = load_split(source, config, ("x", "y"), is_multi_label=True)
    assert split.labels.tolist() == [[1, 0], [1, 1]]


@pytest.mark.parametrize("seed", range(5))
def test_every_label_with_two_texts_keeps_one_and_has_about_its_part_held_out(seed):
    """Rows of equal texts are on one side, and rows without a label are divided, too."""
    shares = [0.5, 0.3, 0.1, 0.02, 0.01, 0.0]
    has_label = np.random.default_rng(seed).random((400, 6)) < shares
    labels = has_label.astype(np.int8)
    # The rarest label has two rows.
    labels[[3, 200], 5] = 1
    labels[[5, 6, 7], 4] = 1
    equal_texts = [10, 20, 30]
    groups = np.arange(400)
    groups[equal_texts] = 10

    is_held_out = rows_to_hold_out(labels, groups, fraction=0.2, seed=seed)

    assert 76 <= is_held_out.sum() <= 80
    assert len(set(is_held_out[equal_texts])) == 1

    # Each label is on both sides, and the frequent ones in their proportion.
    sizes = labels.sum(axis=0)
    held_out_sizes = labels[is_held_out].sum(axis=0)
    assert (held_out_sizes >= 1).all()
    assert (held_out_sizes < sizes).all()
    assert held_out_sizes[:3] / sizes[:3] == pytest.approx([0.2] * 3, abs=0.05)

    has_no_label = labels.sum(axis=1) == 0
    assert has_no_label[is_held_out].mean() == pytest.approx(has_no_label.mean(), abs=0.05)


@pytest.mark.parametrize("seed", range(20))
def test_a_label_that_occurs_only_beside_rarer_ones_is_held_out_too(seed):
    """For it, more rows of a rarer label may be held out than are wanted."""
    # Seven labels of six rows each; the last label is in a row of each of them.
    labels = np.zeros((82, 8), dtype=np.int8)
    labels[np.arange(42), np.arange(42) % 7] = 1
    labels[:7, 7] = 1

    is_held_out = rows_to_hold_out(labels, np.arange(82), fraction=0.1, seed=seed)

    assert (labels[is_held_out].sum(axis=0) >= 1).all()


def test_the_wanted_number_of_rows_is_held_out_where_the_share_of_each_label_is_rounded_down():
    labels = np.eye(3, dtype=np.int8)[np.arange(42) % 3]
    is_held_out = rows_to_hold_out(labels, np.arange(42), fraction=0.1, seed=0)
    assert is_held_out.sum() == 4


def test_the_same_seed_holds_out_the_same_rows_of_several_labels():
    shares = [0.5, 0.3, 0.1]
    has_label = np.random.default_rng(0).random((400, 3)) < shares
    labels = has_label.astype(np.int8)
    groups = np.arange(400)

    is_held_out = rows_to_hold_out(labels, groups, fraction=0.2, seed=3)

    again = rows_to_hold_out(labels, groups, fraction=0.2, seed=3)
    assert np.array_equal(again, is_held_out)


def test_nothing_is_held_out_where_a_label_would_have_no_text_left():
    source = write_jsonl("a.jsonl", [("one", ["x"]), ("b", [])])
    with pytest.raises(DataError, match="no text can be held out to validate with"):
        load(source, validation=None)


@pytest.mark.parametrize("kind", ["Sequence", "List"])
def test_a_list_of_class_labels_gives_numbers_their_names(kind):
    """The `datasets` library keeps them in a Parquet file; a number without a name is refused."""
    names = {"names": ["late", "refund"], "_type": "ClassLabel"}
    features = {"label": {"feature": names, "_type": kind}}

    named = write_parquet("a.parquet", [[0, 1], [], [1]], features)
    dataset = load(named)
    assert dataset.label_names == ("late", "refund")
    assert dataset.train.labels[0].tolist() == [1, 1]

    unnamed = write_parquet("a.parquet", [[2], [], [1]], features)
    with pytest.raises(DataError, match="label 2 of column 'label' has no name"):
        load(unnamed)
