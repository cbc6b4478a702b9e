"""`data.cache`: a data set that is mapped from files is the one that is read."""

from __future__ import annotations

import json
import os
from dataclasses import fields
from pathlib import Path

import numpy as np
import pytest
from support.data import write, write_labelled

from encoder_cls.config.schema import DataConfig
from encoder_cls.data import dataset_rows
from encoder_cls.data.dataset import Dataset, Split, Unlabelled
from encoder_cls.data.key_of_text import key_of_text
from encoder_cls.data.load_dataset import load_dataset
from encoder_cls.data.sources import content_hash
from encoder_cls.errors import DataError


@pytest.fixture(autouse=True)
def files() -> None:
    """Files of all kinds in the current folder."""
    write_tables()
    write("more.txt", "one\ntwo\n\nthree\n")
    write_labelled("some_labels.csv", *["one thing", "another", ""] * 10)
    write_labelled("mixed.jsonl", *[1, "1", "b"] * 10)
    for name in ("spam", "ham"):
        for number in range(12):
            write(f"classes/{name}/{number}.txt", f"{name} {number}")

    key = key_of_text("text 0 né 0")
    write("corrections.csv", f"key,label\n{key},y\n")


def write_tables() -> None:
    """Write labelled texts with groups: a label each, or up to two equal ones."""
    csv_lines = ["text,label,group"]
    json_lines = []
    for number in range(60):
        text = f"text {number % 17} né {number}"
        label = "xyz"[number % 3]
        group = number // 3
        csv_lines.append(f"{text},{label},{group}")
        json_lines.append(json.dumps({"text": text, "label": [label] * (group % 3)}))

    # A row without a text, and one with too few fields.
    csv_lines += [",x,1", "bad"]
    write("train.csv", "\n".join(csv_lines))
    write("several.jsonl", "\n".join(json_lines))
    write("test.csv", "text,label,group\na,x,1\nb,never,2\n" + "c,y,3\n" * 30)


SOURCES = {
    "all splits": {
        "train": "train.csv",
        "test": "test.csv",
        "unlabelled": "more.txt",
        "bad_rows": "skip",
    },
    "groups": {
        "train": "train.csv",
        "group_column": "group",
        "bad_rows": "skip",
        "empty_texts": "drop",
    },
    "weights": {
        "train": "train.csv",
        "weight_column": "group",
        "bad_rows": "skip",
        "empty_texts": "drop",
    },
    "several labels": {"train": "several.jsonl"},
    "types": {"train": "mixed.jsonl"},
    "class folders": {"train": "classes"},
    "example": {"train": "example:train", "validation": "example:validation"},
    "rows without labels": {
        "train": "some_labels.csv",
        "unlabelled": "more.txt",
        "label_names": ["one thing", "another"],
    },
    "corrections": {"train": "train.csv", "bad_rows": "skip", "corrections": "corrections.csv"},
}


def config(name: str, **values: object) -> DataConfig:
    """The config of one of `SOURCES`, with a cache."""
    defaults = {"empty_texts": "drop", "cache": "cache"}
    return DataConfig.model_validate(defaults | SOURCES[name] | values)


def read(config: DataConfig) -> Dataset:
    """The data set without a cache."""
    return load_dataset(config.model_copy(update={"cache": None}))


def assert_equal(found: object, expected: object) -> None:
    """Equal in all fields, in columns of any type."""
    if isinstance(expected, Dataset | Split | Unlabelled):
        for field in fields(expected):
            assert_equal(getattr(found, field.name), getattr(expected, field.name))
    elif isinstance(expected, np.ndarray):
        assert isinstance(found, np.ndarray)
        assert found.dtype == expected.dtype
        assert np.array_equal(found, expected)
    elif hasattr(expected, "select") or isinstance(expected, list | tuple):
        assert list(found) == list(expected)
    else:
        assert found == expected


@pytest.mark.parametrize("name", SOURCES)
def test_a_mapped_data_set_is_that_which_is_read(name, monkeypatch):
    expected = read(config(name))
    first = load_dataset(config(name))

    # The second time nothing is read.
    monkeypatch.setattr(dataset_rows, "read_rows", None)
    monkeypatch.setattr(dataset_rows, "read_labelled", None)
    again = load_dataset(config(name))

    for found in (first, again):
        assert_equal(found, expected)
        assert found.train.fingerprint == expected.train.fingerprint
        assert found.notes == expected.notes
        assert found.train.labels.flags.writeable


def test_a_pipe_has_no_hash():
    """It can be read only once, so nothing says whether its rows are those of another time."""
    Path("folder").mkdir()
    os.mkfifo("folder/pipe.csv")
    assert content_hash("folder/pipe.csv") is None
    assert content_hash("folder") is None


@pytest.mark.parametrize("file", ["train.csv", "test.csv"])
def test_another_row_is_read(file):
    load_dataset(config("all splits"))
    with Path(file).open("a") as content:
        content.write("\nnew,x,1\n")
    assert_equal(load_dataset(config("all splits")), read(config("all splits")))


def test_another_byte_is_read():
    load_dataset(config("all splits"))
    path = Path("more.txt")
    path.write_text(path.read_text().replace("t", "T", 1))
    assert_equal(load_dataset(config("all splits")), read(config("all splits")))


@pytest.mark.parametrize(
    "setting",
    [
        {"split_seed": 1},
        {"validation_fraction": 0.3},
        {"text_column": ("text", "group")},
    ],
)
def test_another_setting_is_read(setting):
    load_dataset(config("all splits"))
    changed = config("all splits", **setting)
    assert_equal(load_dataset(changed), read(changed))


def test_what_is_refused_is_refused_each_time():
    for _ in range(2):
        with pytest.raises(DataError, match=r"train\.csv:63: "):
            load_dataset(config("all splits", bad_rows="error"))
        with pytest.raises(DataError, match=r"nowhere\.csv: no such file"):
            load_dataset(config("all splits", train="nowhere.csv"))
    assert not list(Path("cache").glob("rows-*"))


def test_data_that_changes_while_it_is_read_is_not_kept(monkeypatch):
    read_labelled = dataset_rows.read_labelled

    def change_and_read(*arguments):
        Path("more.txt").write_text("another\n")
        return read_labelled(*arguments)

    monkeypatch.setattr(dataset_rows, "read_labelled", change_and_read)
    with pytest.raises(DataError, match=r"train\.csv: the data changed while it was read"):
        load_dataset(config("all splits"))
    assert not list(Path("cache").glob("rows-*"))


def test_a_cache_is_no_class(cli):
    """A folder of the cache within the data would be read as one."""
    train = ["--set", "data.train=classes"]
    cache = ["--set", "data.cache=classes/cache"]
    ended = cli("train", *train, *cache, "--dry-run")
    assert ended.code == 2
    assert "data.cache: classes/cache: would be read as a class" in ended.err
