"""Weights of rows (`data.weight_column`): how they are read, and what is refused."""

from __future__ import annotations

import json

import numpy as np
import pytest
from support.data import load, write

from encoder_cls.config.loading import config_of
from encoder_cls.config.schema import DataConfig
from encoder_cls.data.continued_data import joined
from encoder_cls.data.dataset import Split, relative_weights
from encoder_cls.data.load_dataset import load_dataset
from encoder_cls.errors import ConfigError, DataError


def write_weighted(*weights: object) -> str:
    """Write a text for each weight, of two classes by turns, as a CSV file."""
    lines = ["text,label,importance"]
    for number, weight in enumerate(weights):
        lines.append(f"text {'abcdefghijkl'[number]},{'xy'[number % 2]},{weight}")
    return write("weighted.csv", "\n".join(lines))


def test_each_row_has_its_weight_in_every_split():
    """Also a row that is held out, which a later fit may learn from; an empty cell is 1."""
    weights = [0.5, 2, "", 1e3, "3e-2", 7, 8, 9]
    source = write_weighted(*weights)

    dataset = load(source, weight_column="importance", validation=None, validation_fraction=0.3)

    expected = {}
    for number, weight in enumerate(weights):
        expected[f"text {'abcdefghijkl'[number]}"] = 1.0 if weight == "" else float(weight)
    found = {}
    for split in (dataset.train, dataset.validation):
        assert len(split)
        found |= dict(zip(split.texts, split.weights.tolist(), strict=True))
    assert found == pytest.approx(expected)


def test_numbers_of_json_are_weights():
    rows = []
    for number, weight in enumerate([1, 2.5, None, 4]):
        rows.append({"text": f"t{number}", "label": "ab"[number % 2], "w": weight})
    source = write("weighted.jsonl", "\n".join(json.dumps(row) for row in rows))

    train = load(source, weight_column="w", validation="weighted.jsonl").train

    assert train.weights.tolist() == [1, 2.5, 1, 4]


def test_a_row_of_weight_0_is_left_out():
    source = write_weighted(1, 2, 0, 1, 0, 1)

    dataset = load(source, weight_column="importance", validation="weighted.csv")

    assert list(dataset.train.texts) == ["text a", "text b", "text d", "text f"]
    assert "weighted.csv: left out 2 rows of weight 0" in dataset.notes


def test_a_label_whose_rows_are_all_left_out_is_named():
    """They have no text or the weight 0, or there are none but the name of the class."""
    rows = "".join(f"text {letter},{letter},1\n" for letter in "abcabc")
    source = write("a.csv", f"text,label,w\n{rows}ghost,d,0\ntext e,a,0\n,f,1\n")
    config = DataConfig(
        train=source,
        validation=write("b.csv", "text,label\nnew text,a\n"),
        weight_column="w",
        empty_texts="drop",
        label_names=("a", "b", "c", "d", "f", "g"),
    )

    lost, no_rows = [note for note in load_dataset(config).notes if note.startswith("warning")]
    assert lost == (
        "warning: labels of a.csv whose rows are all left out, because they have no text or the "
        "weight 0: 2 ('d', 'f', the first at a.csv:8)"
    )
    assert no_rows.endswith("which the model cannot predict: 3 ('d', 'f', 'g')")


def test_only_train_needs_weights():
    """Scores count all texts alike."""
    source = write_weighted(1, 2, 3, 4)
    other = write("other.csv", "text,label\na,x\nb,y\n")

    dataset = load(source, weight_column="importance", validation=other, test=other)

    assert dataset.train.weights.tolist() == [1, 2, 3, 4]
    assert dataset.validation.weights is None


@pytest.mark.parametrize("weight", ["-1", "nan", "inf", "2000000", "much", "0;5", "1_0"])
def test_a_weight_that_is_no_number_from_0_to_a_million_is_refused(weight):
    source = write_weighted(1, 1, weight, 1)

    with pytest.raises(DataError, match=r"weighted.csv:4: the weight is str .*data.weight_column"):
        load(source, weight_column="importance", validation="weighted.csv")


def test_a_missing_column_is_named():
    source = write_weighted(1, 2)

    with pytest.raises(DataError, match=r"no column 'w'; .*data\.weight_column=NAME"):
        load(source, weight_column="w", validation="weighted.csv")


@pytest.mark.parametrize("column", ["text", "label", "customer"])
def test_a_column_has_one_use(column):
    values = {"data.train": "a.csv", "data.group_column": "customer", "data.weight_column": column}

    with pytest.raises(ConfigError, match="weight_column"):
        config_of({"name": "x", **values}, source="x")


def test_relative_weights_have_a_mean_of_1():
    """Equal weights, and none at all, are None; rows without weights count as 1."""

    def split(weights: list[float] | None, rows: int = 2) -> Split:
        array = None if weights is None else np.array(weights, dtype=np.float32)
        return Split(
            texts=["t"] * rows, labels=np.zeros(rows, dtype=int), where=["w"] * rows, weights=array
        )

    assert relative_weights(split([1, 3])).tolist() == [0.5, 1.5]
    assert relative_weights(split([2, 4]), split(None)).tolist() == [1, 2, 0.5, 0.5]
    assert relative_weights(split([7, 7])) is None
    assert relative_weights(split(None)) is None


@pytest.mark.parametrize("is_base_weighted", [True, False])
def test_a_continued_run_has_the_weights_that_the_data_gives(is_base_weighted):
    """Rows without weights count as 1, however often the run is continued."""
    weighted = load(write_weighted(2, 6, 2, 6), weight_column="importance", validation=None)
    write("plain.csv", "text,label\nred,x\ngreen,y\nblue,x\nblack,y\n")
    plain = load("plain.csv", validation=None)
    base, new = (weighted, plain) if is_base_weighted else (plain, weighted)

    once = joined(base, new, run="base")
    twice = joined(once, load("plain.csv", validation=None), run="again")

    for dataset in (once, twice):
        for split in (dataset.train, dataset.validation):
            weights = dict(zip(split.texts, split.weights.tolist(), strict=True))
            for text, weight in weights.items():
                expected = {"text a": 2, "text b": 6, "text c": 2, "text d": 6}.get(text, 1)
                assert weight == expected


def test_a_fingerprint_tells_weights_apart():
    """A run is not resumed with other weights."""
    source = write_weighted(1, 2, 3, 4)
    weighted = load(source, weight_column="importance", validation="weighted.csv").train
    plain = load(source, validation="weighted.csv").train

    assert weighted.fingerprint != plain.fingerprint
    assert plain.weights is None
