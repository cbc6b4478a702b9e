"""Texts with several labels each, in every format: how they are read, what makes data multi-label, what is held out."""

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
from encoder_cls.data.checks import data_warnings
from encoder_cls.data.load_dataset import load_split
from encoder_cls.data.splitting import rows_to_hold_out
from encoder_cls.errors import DataError

ROWS = [("one", ["a", "b"]), ("two", ["b"]), ("three", []), ("four", ["c", "a"])]
MATRIX = [[1, 1, 0], [0, 1, 0], [0, 0, 0], [1, 0, 1]]


def jsonl(rows: Iterable[tuple[str, object]]) -> str:
    return "".join(json.dumps({"text": text, "label": label}) + "\n" for text, label in rows)


def parquet(labels: Sequence[object], features: object = None) -> bytes:
    """A file with the texts of `ROWS` and the metadata of the `datasets` library."""
    metadata = {"huggingface": json.dumps({"info": {"features": features}})} if features else None
    table = pyarrow.table({"text": [text for text, _ in ROWS][: len(labels)], "label": labels})
    buffer = io.BytesIO()
    pyarrow.parquet.write_table(table.replace_schema_metadata(metadata), buffer)
    return buffer.getvalue()


FORMATS = {
    "a.jsonl": jsonl(ROWS),
    "a.parquet": parquet([labels for _, labels in ROWS]),
    "a.txt": "".join(
        " ".join([*(f"__label__{label}" for label in labels), text]) + "\n" for text, labels in ROWS
    ),
    "a.csv": "text,label\n" + "".join(f"{text},{' | '.join(labels)}\n" for text, labels in ROWS),
}


@pytest.mark.parametrize("name", FORMATS)
def test_several_labels_are_read_in_every_format(name):
    """Lists, several `__label__` a line, and cells with a separator are the same labels; a text may have none."""
    is_csv = name == "a.csv"
    dataset = load(write(name, FORMATS[name]), label_separator="|" if is_csv else None)
    assert dataset.is_multi_label
    assert dataset.label_names == ("a", "b", "c")
    assert dataset.several == (None if is_csv else f"{name}:1")
    for split in (dataset.train, dataset.validation):
        assert list(split.texts) == [text for text, _ in ROWS]
        assert split.labels.tolist() == MATRIX
    assert [dataset.train.label_text(row, dataset.label_names) for row in range(4)] == [
        "a, b",
        "b",
        "",
        "a, c",
    ]


def test_one_label_a_line_or_a_cell_is_no_multi_label_data():
    """A list, a second label in a line, or a separator makes it so, in whichever split; then a name is one label."""
    single = write("a.ft", "__label__x one\n__label__y two\n")
    assert not load(single).is_multi_label
    several = write("b.ft", "__label__x __label__y one\n__label__y two\n__label__x three\n")
    dataset = load(single, test=several)
    assert dataset.train.labels.tolist() == [[1, 0], [0, 1]]
    assert dataset.test is not None
    assert dataset.test.labels.tolist() == [[1, 1], [0, 1], [1, 0]]
    assert load(single, label_separator=";").is_multi_label
    lists = write("c.jsonl", jsonl([("one", ["x"]), ("two", "y")]))
    assert load(lists).train.labels.tolist() == [[1, 0], [0, 1]]


def test_labels_as_numbers_have_their_names_and_none_counts_twice():
    """As with one label a text; equal labels of a text are one."""
    dataset = load(
        write("a.jsonl", jsonl([("one", [0, 1, 0]), ("two", [])])), label_names=["no", "yes"]
    )
    assert (dataset.label_names, dataset.train.labels.tolist()) == (("no", "yes"), [[1, 1], [0, 0]])
    cell = write("a.csv", "text,label\none,x;;x; y ;\n")
    assert load(cell, label_separator=";").train.labels.tolist() == [[1, 1]]


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
    """A label in a list has the errors of a single label; if no row has a label, nothing can be learned."""
    assert refusal(write("a.jsonl", jsonl([("one", label)]))).startswith(message)


def test_a_single_class_is_enough():
    dataset = load(write("a.jsonl", jsonl([("one", ["x"]), ("two", [])])))
    assert (dataset.label_names, dataset.train.labels.tolist()) == (("x",), [[1], [0]])


def test_labels_that_train_never_shows_count_and_choose_nothing():
    """They come after the classes; without them their texts still choose the weights."""
    train, new = (
        write("a.jsonl", jsonl([("one", ["a", "b"]), ("two", ["b"])] * 20)),
        ("new", ["a", "z"]),
    )
    dataset = load(train, validation=write("b.jsonl", jsonl([*[("one", ["a"])] * 30, new])))
    assert dataset.validation.unseen_names == ("z",)
    assert dataset.validation.labels[-1].tolist() == [1, 0, 1]
    assert dataset.selection.labels[-1].tolist() == [1, 0]
    assert len(dataset.selection) == 31
    assert any(
        "never occur in train: 'z'; their 1 of 31 rows" in warning
        for warning in data_warnings(dataset)
    )
    with pytest.raises(DataError, match="is this the right data"):
        load(train, validation=write("c.jsonl", jsonl([new])))


def test_other_labels_of_an_equal_text_are_warned_of():
    """Labels are compared as sets: in another order they are the same."""
    lines = [("one", ["a", "b"]), ("one", ["b", "a"]), ("two", ["a"]), ("two", [])]
    warnings = "\n".join(data_warnings(load(write("a.jsonl", jsonl(lines)))))
    assert "2 training texts occur with other labels, too, the first at a.jsonl:3" in warnings
    assert (
        "1 training texts repeat an earlier one with the same label, the first at a.jsonl:2"
        in warnings
    )


def test_a_model_with_one_label_a_text_is_not_scored_on_several():
    several = write("a.ft", "__label__x one\n__label__x __label__y two\n")
    config = DataConfig(train=several)
    with pytest.raises(DataError, match=r"^a\.ft:2: texts may have several labels"):
        load_split(several, config, ("x", "y"))
    assert load_split(several, config, ("x", "y"), is_multi_label=True).labels.tolist() == [
        [1, 0],
        [1, 1],
    ]


@pytest.mark.parametrize("seed", range(5))
def test_every_label_with_two_texts_keeps_one_and_has_about_its_part_held_out(seed):
    """Rows of equal texts are on one side, rows without a label are divided, too; the same seed holds out the same."""
    random = np.random.default_rng(seed)
    labels = (random.random((400, 6)) < [0.5, 0.3, 0.1, 0.02, 0.01, 0.0]).astype(np.int8)
    labels[[3, 200], 5] = 1  # just two
    labels[[5, 6, 7], 4] = 1
    groups = np.arange(400)
    groups[[10, 20, 30]] = 10
    held = rows_to_hold_out(labels, groups, fraction=0.2, seed=seed)
    assert 76 <= held.sum() <= 80
    assert len(set(held[[10, 20, 30]])) == 1
    of_each = labels[held].sum(axis=0)
    assert (of_each >= 1).all()
    assert (of_each < labels.sum(axis=0)).all()
    assert of_each[:3] / labels[:, :3].sum(axis=0) == pytest.approx([0.2] * 3, abs=0.05)
    assert (labels[held].sum(axis=1) == 0).mean() == pytest.approx(
        (labels.sum(axis=1) == 0).mean(), abs=0.05
    )
    assert (held == rows_to_hold_out(labels, groups, fraction=0.2, seed=seed)).all()


def test_nothing_is_held_out_where_a_label_would_have_no_text_left():
    with pytest.raises(DataError, match="no text can be held out to validate with"):
        load(write("a.jsonl", jsonl([("one", ["x"]), ("b", [])])), validation=None)


@pytest.mark.parametrize("kind", ["Sequence", "List"])
def test_a_list_of_class_labels_gives_numbers_their_names(kind):
    """As the `datasets` library keeps them in a Parquet file; a number without a name is refused."""
    names = {"feature": {"names": ["late", "refund"], "_type": "ClassLabel"}, "_type": kind}
    dataset = load(write("a.parquet", parquet([[0, 1], [], [1]], {"label": names})))
    assert (dataset.label_names, dataset.train.labels[0].tolist()) == (("late", "refund"), [1, 1])
    with pytest.raises(DataError, match="label 2 of column 'label' has no name"):
        load(write("a.parquet", parquet([[2], [], [1]], {"label": names})))
