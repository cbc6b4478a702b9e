"""Groups of rows, which are on one side of every split: those of a column, and texts alike."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from support.data import load, write

from encoder_cls.config.loading import load_config
from encoder_cls.config.schema import DataConfig
from encoder_cls.data.data_warnings import data_warnings
from encoder_cls.data.dataset import Dataset, Split
from encoder_cls.data.load_dataset import load_split
from encoder_cls.data.text_groups import NO_GROUP, texts_alike
from encoder_cls.errors import ConfigError, DataError
from encoder_cls.system.row_text import row_text


def test_texts_are_alike_that_differ_in_punctuation_and_digits():
    """Marks of letters count, and so do texts without letters."""
    near = ["Where is it", "where is it !!", "Where is it? 12 \U0001f642", "where... IS it"]
    others = ["where was it", "ที่", "ทา", "12", "13", "!!", ""]

    numbers = texts_alike([*near, *others]).tolist()

    numbers_of_near = set(numbers[: len(near)])
    numbers_of_others = set(numbers[len(near) :])
    assert len(numbers_of_near) == 1
    assert len(numbers_of_others) == len(others)
    assert not numbers_of_near & numbers_of_others


def test_rows_are_alike_by_their_texts_unless_a_text_is_frequent():
    channels = [chr(number) * 3 for number in range(ord("a"), ord("a") + 11)]
    rare = [row_text([("text", "Where is it?")], {"channel": name}) for name in channels[:3]]
    frequent = [row_text([("text", "n/a")], {"channel": name}) for name in channels]

    numbers = texts_alike([*rare, *frequent]).tolist()

    assert len(set(numbers[:3])) == 1
    assert len(set(numbers[3:])) == len(frequent)


def test_digits_count_where_many_texts_differ_in_nothing_else():
    texts = [f"code {number}" for number in range(11)]
    assert len(set(texts_alike(texts))) == len(texts)


def test_a_class_whose_texts_are_all_alike_is_divided():
    """Otherwise no part of it could be held out."""
    texts = ["Where is it", "where is it !!", "no", "a 1", "a 2"]
    labels = np.array([0, 0, 0, 1, 1])
    split = Split(texts=texts, labels=labels, where=["x"] * 5)

    numbers = split.split_groups.tolist()

    assert numbers[0] == numbers[1]
    assert numbers[3] != numbers[4]


def write_customers(name: str, customers: list[object]) -> str:
    """Write a text for each customer, of two classes by turns; many customers have equal texts."""
    lines = ["text,label,customer"]
    for number, customer in enumerate(customers):
        label = "xy"[number % 2]
        lines.append(f"text {number % 7},{label},{customer}")
    return write(name, "\n".join(lines))


def load_grouped(source: str, **values: object) -> Dataset:
    """A data set with groups, from which validation texts are held out by default."""
    defaults = {"validation": None, "group_column": "customer"}
    return load(source, **(defaults | values))


@pytest.mark.parametrize("seed", range(5))
def test_a_group_is_on_one_side(seed):
    """A text that many groups have, such as "thank you", does not make one group of them."""
    customers = np.random.default_rng(seed).integers(0, 40, size=400).tolist()
    dataset = load_grouped(write_customers("a.csv", customers), split_seed=seed)

    learned = set(dataset.train.groups.tolist())
    held_out = set(dataset.validation.groups.tolist())
    assert not learned & held_out
    assert len(learned | held_out) == len(set(customers))
    assert 30 <= len(dataset.validation) <= 50
    assert set(dataset.train.texts) & set(dataset.validation.texts)


def test_rows_without_a_group_are_on_both_sides():
    """They do not belong together, but equal texts among them do."""
    customers = [""] * 40 + [number // 4 for number in range(160)]
    dataset = load_grouped(write_customers("a.csv", customers), validation_fraction=0.5)

    learned = texts_without_group(dataset.train)
    held_out = texts_without_group(dataset.validation)
    assert learned
    assert held_out
    assert not learned & held_out


def texts_without_group(split: Split) -> set[str]:
    rows = np.flatnonzero(split.groups == NO_GROUP)
    return {split.texts[row] for row in rows}


def test_groups_are_equal_in_all_formats():
    """They are integers, texts, or numbers with a point where a column has empty cells."""
    write("a.csv", "text,label,customer\na,x,7\nb,y,12\nc,x,\nd,y,7\n")
    texts = ["a", "b", "c", "d"]
    labels = ["x", "y", "x", "y"]
    lines = []
    for text, label, customer in zip(texts, labels, [7, 12, None, 7], strict=True):
        lines.append(json.dumps({"text": text, "label": label, "customer": customer}))
    write("a.jsonl", "\n".join(lines))
    table = {"text": texts, "label": labels, "customer": [7.0, 12.0, None, 7.0]}
    pq.write_table(pa.table(table), "a.parquet")

    csv_split = load_grouped("a.csv", validation="a.csv").train
    first, second, none, again = csv_split.groups.tolist()
    assert first == again
    assert first != second
    assert none == NO_GROUP

    for name in ("a.jsonl", "a.parquet"):
        split = load_grouped(name, validation=name).train
        assert split.groups.tolist() == csv_split.groups.tolist()
        assert split.fingerprint == csv_split.fingerprint


def test_the_fingerprint_changes_with_a_group():
    """So a run does not go on with other folds."""
    source = write("a.csv", "text,label,customer\na,x,7\nb,y,12\nc,x,\nd,y,7\n")
    before = load_grouped(source, validation=source).train.fingerprint

    write("a.csv", "text,label,customer\na,x,7\nb,y,12\nc,x,\nd,y,8\n")

    assert load_grouped(source, validation=source).train.fingerprint != before


def test_without_group_column_nothing_is_different():
    """The groups of a file do not count, as if it had no such column."""
    source = write_customers("a.csv", list(range(50)))
    lines = [line.rpartition(",")[0] for line in Path(source).read_text().splitlines()]
    without_column = write("b.csv", "\n".join(lines))

    train = load_grouped(source, group_column=None).train
    same = load_grouped(without_column, group_column=None).train

    assert train.groups is None
    assert train.fingerprint == same.fingerprint


def test_texts_to_score_need_no_groups():
    source = write_customers("a.csv", list(range(50)))
    config = DataConfig(train=source, group_column="nobody has it")
    assert load_split(source, config, ("x", "y")).groups is None


def test_groups_of_several_files_that_are_in_two_splits_are_warned_of():
    train = write_customers("a.csv", [1, 1, 2, 2, 3, 3])
    test = write_customers("t.csv", [9, 8, 2, 9, "", 3])
    dataset = load_grouped(train, validation=train, test=test)

    (warning,) = [line for line in data_warnings(dataset) if "test texts are in a group" in line]

    assert warning.startswith(
        "2 of 6 test texts are in a group (data.group_column) that train has, too"
    )
    assert "the first at t.csv:4;" in warning


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (
            "text,label,Customer\na,x,1\nb,y,2\n",
            r"^a\.csv.*no column 'customer'.*did you mean 'Customer'",
        ),
        (
            "text,label,customer\na,x,1\nb,y,1\n",
            r"^a\.csv.*no group can be held out.*1 in all.*data\.validation",
        ),
    ],
)
def test_groups_that_cannot_be_kept_are_one_error(content, message):
    write("a.csv", content)
    with pytest.raises(DataError, match=message):
        load_grouped("a.csv")


def test_the_label_cannot_be_the_group():
    """Then each class would be on one side."""
    Path("a.yaml").write_text("data: {train: a.csv, group_column: label}")
    with pytest.raises(ConfigError, match="group_column and label_column are both"):
        load_config(Path("a.yaml"))
