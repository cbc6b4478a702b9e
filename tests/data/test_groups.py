"""Groups of rows (`data.group_column`): on one side of a split, whatever the format has for them."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from encoder_cls.config import DataConfig, load_config
from encoder_cls.data.checks import data_warnings
from encoder_cls.data.dataset import NO_GROUP, Dataset
from encoder_cls.data.load import load_dataset, load_split
from encoder_cls.errors import ConfigError, DataError


def table(name: str, groups: list[object]) -> str:
    """A CSV file with a text a group, of two classes by turns; equal texts are in many groups."""
    lines = [f"text {number % 7},{'xy'[number % 2]},{group}" for number, group in enumerate(groups)]
    Path(name).write_text("\n".join(["text,label,customer", *lines]), encoding="utf-8")
    return name


def load(source: str, **values: object) -> Dataset:
    return load_dataset(DataConfig.model_validate({"train": source, "group_column": "customer"} | values))


@pytest.mark.parametrize("seed", range(5))
def test_a_group_is_on_one_side(seed):
    """Of about the part that is wanted; what many groups say, such as "thank you", does not make one group of them."""
    draws = np.random.default_rng(seed).integers(0, 40, size=400)
    dataset = load(table("a.csv", draws.tolist()), split_seed=seed)
    sides = [set(split.groups.tolist()) for split in (dataset.train, dataset.validation)]
    assert not sides[0] & sides[1]
    assert len(sides[0] | sides[1]) == len(set(draws.tolist()))
    assert 30 <= len(dataset.validation) <= 50
    assert set(dataset.train.texts) & set(dataset.validation.texts)


def test_rows_without_a_group_stand_alone():
    """They are no group of their own, which would be on one side; but equal texts among them are."""
    dataset = load(table("a.csv", [""] * 40 + [number // 4 for number in range(160)]), validation_fraction=0.5)
    alone = [split.groups == NO_GROUP for split in (dataset.train, dataset.validation)]
    texts = [
        {split.texts[row] for row in np.flatnonzero(it)}
        for split, it in zip((dataset.train, dataset.validation), alone, strict=True)
    ]
    assert texts[0]
    assert texts[1]
    assert not texts[0] & texts[1]


def test_formats_have_groups_of_their_types():
    """Integers, texts, and the numbers with a point that tables make of whole ones beside empty cells."""
    rows = [("a", "x", 7), ("b", "y", 12), ("c", "x", None), ("d", "y", 7)]
    Path("a.csv").write_text("text,label,customer\na,x,7\nb,y,12\nc,x,\nd,y,7\n")
    Path("a.jsonl").write_text(
        "".join(json.dumps(dict(zip(("text", "label", "customer"), row, strict=True))) + "\n" for row in rows)
    )
    columns = dict(zip(("text", "label", "customer"), zip(*rows, strict=True), strict=True))
    pq.write_table(pa.table(columns | {"customer": [7.0, 12.0, None, 7.0]}), "a.parquet")
    found = [load(f"a.{ending}", validation=f"a.{ending}").train for ending in ("csv", "jsonl", "parquet")]
    assert [split.groups.tolist() for split in found[1:]] == [found[0].groups.tolist()] * 2
    first, second, none, again = found[0].groups.tolist()
    assert first == again != second
    assert none == NO_GROUP
    assert len({split.fingerprint for split in found}) == 1


def test_a_changed_group_changes_the_fingerprint():
    """Which folds there are depends on it, so a run cannot go on."""
    one, other = (load(table("a.csv", groups), validation="a.csv").train for groups in ([1, 2, 3, 4], [1, 2, 3, 3]))
    assert one.fingerprint != other.fingerprint


def test_without_the_column_nothing_is_different():
    """Texts, labels and what is held out, and the fingerprint of it."""
    source = table("a.csv", list(range(50)))
    plain = load(source, group_column=None)
    assert plain.train.groups is None
    assert load_split(source, DataConfig(train=source, group_column="nobody has it"), ("x", "y")).groups is None
    Path("b.csv").write_text("\n".join(line.rpartition(",")[0] for line in Path(source).read_text().splitlines()))
    assert load("b.csv", group_column=None).train.fingerprint == plain.train.fingerprint


def test_groups_of_several_files_that_are_in_two_splits_are_warned_of():
    """With how many texts, and where the first is; groups that train does not have are not counted."""
    train, test = table("a.csv", [1, 1, 2, 2, 3, 3]), table("t.csv", [9, 8, 2, 9, "", 3])
    (warning,) = (it for it in data_warnings(load(train, validation=train, test=test)) if "test texts are of" in it)
    assert warning.startswith("2 of 6 test texts are of groups (data.group_column) that train has, too")
    assert "the first at t.csv:4;" in warning


@pytest.mark.parametrize(
    ("content", "named"),
    [
        ("text,label,Customer\na,x,1\nb,y,2\n", "no column 'customer'.*did you mean 'Customer'"),
        ("text,label,customer\na,x,1\nb,y,1\n", "no group can be held out.*1 group in all.*data.validation"),
    ],
)
def test_groups_that_cannot_be_kept_are_one_error(content, named):
    """With the file, and how to mend it."""
    Path("a.csv").write_text(content)
    with pytest.raises(DataError, match=f"^a.csv.*{named}"):
        load("a.csv")


def test_files_without_columns_have_no_groups():
    """Nor can the label be the group: then each class would be on one side."""
    Path("a.txt").write_text("__label__x a\n__label__y b\n")
    with pytest.raises(DataError, match=r"a\.txt: text files have no columns, so none is called 'customer'"):
        load("a.txt")
    Path("a.yaml").write_text("data: {train: a.csv, group_column: label}")
    with pytest.raises(ConfigError, match="group_column is label_column"):
        load_config(Path("a.yaml"))
