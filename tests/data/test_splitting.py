"""Which rows are held out: of each class about the fraction, for a seed the same, and groups of rows as a whole."""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from support.data import load, refusal, write

from encoder_cls.config.loading import load_config
from encoder_cls.config.schema import DataConfig
from encoder_cls.data import splitting as holdout
from encoder_cls.data.checks import data_warnings
from encoder_cls.data.dataset import Dataset, Split
from encoder_cls.data.load_dataset import load_dataset, load_split
from encoder_cls.data.splitting import hold_out, rows_to_hold_out
from encoder_cls.data.text_groups import NO_GROUP, texts_alike
from encoder_cls.errors import ConfigError, DataError


def mixed(sizes: Sequence[int]) -> np.ndarray:
    return np.random.default_rng(7).permutation(np.repeat(np.arange(len(sizes)), sizes))


def held_out(sizes: Sequence[int], fraction: float, seed: int = 0) -> np.ndarray:
    """How many rows of each class are held out."""
    labels = mixed(sizes)
    chosen = rows_to_hold_out(labels, np.arange(len(labels)), fraction=fraction, seed=seed)
    return np.bincount(labels[chosen], minlength=len(sizes))


@pytest.mark.parametrize(
    ("sizes", "fraction", "expected"),
    [
        ([2] * 1000, 0.1, 200),
        ([2] * 1000, 0.01, 20),
        ([2] * 1000, 0.5, 1000),
        ([3] * 100, 0.1, 30),
        ([1] * 1000 + [1000], 0.1, 200),
        ([2, 2], 0.1, 1),
        ([1, 2], 0.1, 1),
        ([15] * 100, 0.1, 150),
        ([4, 4], 0.1, 2),  # a quarter of little data: then each class is validated
        ([4] * 12, 0.1, 12),
        ([4] * 100, 0.1, 40),
        ([1] * 10, 0.5, 0),
    ],
)
def test_of_many_small_classes_no_more_is_held_out(sizes, fraction, expected):
    """The fraction of all rows, one at least, where a class has a row to spare."""
    assert held_out(sizes, fraction).sum() == expected


def test_texts_are_alike_that_differ_in_punctuation_and_digits():
    """Marks of letters count, and texts without letters; so do digits where many texts have but these."""
    near = ["Where is it", "where is it !!", "Where is it? 12 \U0001f642", "where... IS it"]
    others = [
        "where was it",
        "ที่",
        "ทา",
        "12",
        "13",
        "!!",
        "",
        *(f"code {number}" for number in range(11)),
    ]
    first, *numbers = texts_alike([*near, *others]).tolist()
    assert numbers[:3] == [first] * 3
    assert len({first, *numbers[3:]}) == 1 + len(others)
    texts, labels = [*near, "no", "a 1", "a 2"], np.array([0, 0, 0, 0, 0, 1, 1])
    *together, one, other = Split(texts=texts, labels=labels, where=["x"] * 7).together.tolist()
    assert together[:4] == [first] * 4
    assert one != other  # else the class could not be held out


@settings(max_examples=150, deadline=None, derandomize=True)
@given(
    rows=st.lists(st.tuples(st.integers(0, 4), st.integers(0, 30)), min_size=2, max_size=120),
    fraction=st.sampled_from([0.1, 0.3]),
    seed=st.integers(0, 3),
)
def test_a_group_is_on_one_side_and_a_row_of_each_class_stays(rows, fraction, seed):
    """However large the groups are, and however many classes they have rows of."""
    names, labels = np.unique([label for label, _ in rows], return_inverse=True)
    groups = np.array([group for _, group in rows])
    is_held_out = rows_to_hold_out(labels, groups, fraction=fraction, seed=seed)
    assert not set(groups[is_held_out]) & set(groups[~is_held_out])
    assert set(labels[~is_held_out]) == set(range(len(names)))
    found = rows_to_hold_out(labels, groups, fraction=fraction, seed=seed)
    assert np.array_equal(found, is_held_out)
    can_go = [set(labels[groups != group]) == set(labels) for group in set(groups)]
    assert is_held_out.any() == any(can_go)


def test_the_smallest_group_is_held_out_where_each_is_more_than_is_wanted():
    labels, groups = (
        np.repeat([0, 0, 1, 1], [50, 40, 30, 60]),
        np.repeat(np.arange(4), [50, 40, 30, 60]),
    )
    assert set(groups[rows_to_hold_out(labels, groups, fraction=0.05, seed=0)]) == {2}


def table(name: str, groups: list[object]) -> str:
    """A CSV file with a text a group, of two classes by turns; equal texts are in many groups."""
    lines = [f"text {number % 7},{'xy'[number % 2]},{group}" for number, group in enumerate(groups)]
    Path(name).write_text("\n".join(["text,label,customer", *lines]), encoding="utf-8")
    return name


def load_grouped(source: str, **values: object) -> Dataset:
    return load(source, **{"validation": None, "group_column": "customer"} | values)


@pytest.mark.parametrize("seed", range(5))
def test_a_group_is_on_one_side(seed):
    """Of about the wanted part; a text that many groups have, such as "thank you", does not make one group of them."""
    draws = np.random.default_rng(seed).integers(0, 40, size=400)
    dataset = load_grouped(table("a.csv", draws.tolist()), split_seed=seed)
    sides = [set(split.groups.tolist()) for split in (dataset.train, dataset.validation)]
    assert not sides[0] & sides[1]
    assert len(sides[0] | sides[1]) == len(set(draws.tolist()))
    assert 30 <= len(dataset.validation) <= 50
    assert set(dataset.train.texts) & set(dataset.validation.texts)


def test_rows_without_a_group_stand_alone():
    """They are no group of their own, which would be on one side; but equal texts among them are."""
    dataset = load_grouped(
        table("a.csv", [""] * 40 + [number // 4 for number in range(160)]), validation_fraction=0.5
    )
    alone = [
        it.subset(np.flatnonzero(it.groups == NO_GROUP))
        for it in (dataset.train, dataset.validation)
    ]
    texts, held_out = ({*split.texts} for split in alone)
    assert texts and held_out
    assert not texts & held_out


def test_formats_have_groups_of_their_types():
    """Integers, texts, and the numbers with a point that tables make of whole ones beside empty cells."""
    write("a.csv", "text,label,customer\na,x,7\nb,y,12\nc,x,\nd,y,7\n")
    columns = {"text": list("abcd"), "label": list("xyxy"), "customer": [7, 12, None, 7]}
    rows = (dict(zip(columns, row, strict=True)) for row in zip(*columns.values(), strict=True))
    write("a.jsonl", "".join(json.dumps(row) + "\n" for row in rows))
    pq.write_table(pa.table(columns | {"customer": [7.0, 12.0, None, 7.0]}), "a.parquet")
    found = [
        load_grouped(f"a.{ending}", validation=f"a.{ending}").train
        for ending in ("csv", "jsonl", "parquet")
    ]
    assert [split.groups.tolist() for split in found[1:]] == [found[0].groups.tolist()] * 2
    first, second, none, again = found[0].groups.tolist()
    assert first == again != second
    assert none == NO_GROUP
    assert len({split.fingerprint for split in found}) == 1
    write("a.csv", "text,label,customer\na,x,7\nb,y,12\nc,x,\nd,y,8\n")
    changed = load_grouped("a.csv", validation="a.csv").train
    # So that a run does not go on with other folds.
    assert changed.fingerprint != found[0].fingerprint


def test_without_the_column_nothing_is_different():
    source = table("a.csv", list(range(50)))
    plain = load_grouped(source, group_column=None)
    assert plain.train.groups is None
    assert (
        load_split(
            source, DataConfig(train=source, group_column="nobody has it"), ("x", "y")
        ).groups
        is None
    )
    Path("b.csv").write_text(
        "\n".join(line.rpartition(",")[0] for line in Path(source).read_text().splitlines())
    )
    assert load_grouped("b.csv", group_column=None).train.fingerprint == plain.train.fingerprint


def test_groups_of_several_files_that_are_in_two_splits_are_warned_of():
    train, test = table("a.csv", [1, 1, 2, 2, 3, 3]), table("t.csv", [9, 8, 2, 9, "", 3])
    (warning,) = (
        it
        for it in data_warnings(load_grouped(train, validation=train, test=test))
        if "test texts are of" in it
    )
    assert warning.startswith(
        "2 of 6 test texts are of groups (data.group_column) that train has, too"
    )
    assert "the first at t.csv:4;" in warning


@pytest.mark.parametrize(
    ("content", "named"),
    [
        ("text,label,Customer\na,x,1\nb,y,2\n", "no column 'customer'.*did you mean 'Customer'"),
        (
            "text,label,customer\na,x,1\nb,y,1\n",
            "no group can be held out.*1 in all.*data.validation",
        ),
    ],
)
def test_groups_that_cannot_be_kept_are_one_error(content, named):
    Path("a.csv").write_text(content)
    with pytest.raises(DataError, match=f"^a.csv.*{named}"):
        load_grouped("a.csv")


def test_files_without_columns_have_no_groups():
    """Nor can the label be the group: then each class would be on one side."""
    Path("a.txt").write_text("__label__x a\n__label__y b\n")
    with pytest.raises(
        DataError, match=r"a\.txt: text files have no columns, so none is called 'customer'"
    ):
        load_grouped("a.txt")
    Path("a.yaml").write_text("data: {train: a.csv, group_column: label}")
    with pytest.raises(ConfigError, match="group_column is label_column"):
        load_config(Path("a.yaml"))


def numbered(counts: Sequence[int]) -> Split:
    """So many examples of each class, mixed."""
    labels = mixed(counts)
    texts = [f"{label} {i}" for i, label in enumerate(labels)]
    return Split(texts=texts, labels=labels, where=[f"a.csv:{i + 2}" for i in range(len(texts))])


@pytest.mark.parametrize("fraction", [0.1, 0.5])
def test_the_held_out_part_is_stratified(fraction):
    """Every class is on both sides, in its proportion, and each text on one of them, in the order of the file."""
    split, counts = numbered([2, 3, 10, 200]), np.array([2, 3, 10, 200])
    train, validation = hold_out(split, fraction=fraction, seed=0)
    held_out = np.bincount(validation.labels, minlength=4)
    assert np.all(held_out >= 1)
    assert np.all(counts - held_out >= 1)
    assert np.all(np.abs(held_out - fraction * counts) <= 1)
    assert sorted([*train.texts, *validation.texts]) == sorted(split.texts)
    for part in (train, validation):
        assert [split.where[split.texts.index(text)] for text in part.texts] == part.where
        assert [int(text.split()[0]) for text in part.texts] == part.labels.tolist()
        assert part.where == sorted(part.where, key=split.where.index)


def test_of_many_texts_a_limited_number_is_held_out(monkeypatch):
    monkeypatch.setattr(holdout, "MOST_HELD_OUT", 20)
    train, validation = hold_out(numbered([100, 300]), fraction=0.2, seed=0)
    assert len(train) == 380
    assert np.bincount(validation.labels).tolist() == [5, 15]


def test_the_seed_decides_what_is_held_out():
    config = DataConfig(
        train=write("a.csv", "text,label\n" + "".join(f"t{i},{i % 2}\n" for i in range(40)))
    )
    dataset, same = (load_dataset(config) for _ in range(2))
    another = load_dataset(config.model_copy(update={"split_seed": 1}))
    assert (len(dataset.train), len(dataset.validation)) == (36, 4)
    assert (
        list(dataset.validation.texts)
        == list(same.validation.texts)
        != list(another.validation.texts)
    )
    assert dataset.test is None


def test_equal_texts_are_on_one_side():
    """Also where they differ in case, spaces and marks, and in their labels: no validated text was trained on."""
    words = [f"{one}{other}" for one in "abcdef" for other in "abcdefghij"]
    lines = [
        f"Text  {word},{i % 2}\ntext {word} !! 4,{1 - i % 2}\n" for i, word in enumerate(words)
    ]
    for seed in range(3):
        dataset = load(
            write("a.csv", "text,label\n" + "".join(lines)), validation=None, split_seed=seed
        )
        sides = [
            {text.casefold().split()[1] for text in split.texts}
            for split in (dataset.train, dataset.validation)
        ]
        assert not sides[0] & sides[1]
        assert len(dataset.validation) == 2 * len(sides[1]) == 12


def test_a_class_of_one_example_stays_in_train():
    """It can be learned, if not validated; where no class has two, the error has a hint."""
    dataset = load(write("a.csv", "text,label\n1,x\n2,rare\n3,x\n"), validation=None)
    assert sorted(dataset.train.labels) == [0, 1]
    assert dataset.validation.labels.tolist() == [1]
    message = refusal(write("a.csv", "text,label\n1,x\n2,y\n"), validation=None)
    assert re.match(r"a\.csv:2: no text can be held out .* data\.validation", message)


@pytest.mark.parametrize("separator", [None, "|"])
def test_the_order_of_names_does_not_change_what_is_held_out(separator):
    """Of one label a text, and of several."""
    draw = np.random.default_rng(0)
    names = ["red", "green", "blue", "black"]
    rows = ["text,label"]
    for number in range(80):
        labels = draw.choice(names, 1 if separator is None else 2, replace=False)
        rows.append(f"{number} text {chr(97 + number % 26)}{number},{'|'.join(labels)}")
    source = write("a.csv", "\n".join(rows) + "\n")
    of_orders = []
    for order in (names, names[::-1], sorted(names), None):
        config = DataConfig(train=source, label_names=order, label_separator=separator)
        dataset = load_dataset(config)
        assert dataset.label_names == tuple(order or sorted(names))
        of_orders.append([*dataset.validation.where])
    assert 5 < len(of_orders[0]) < 20
    assert of_orders.count(of_orders[0]) == 4


def test_texts_that_must_stay_are_not_held_out():
    split = numbered([10, 30])
    must_stay = np.arange(40) % 2 == 0
    train, validation = hold_out(split, fraction=0.2, seed=0, must_stay=must_stay)
    staying = [text for text, stays in zip(split.texts, must_stay, strict=True) if stays]
    assert {*staying} <= {*train.texts}
    assert len(validation) == 4
    _, none = hold_out(split, fraction=0.2, seed=0, must_stay=must_stay | True, is_needed=False)
    assert not len(none)
