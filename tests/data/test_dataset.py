"""Data sets: rows with their places, empty texts, fingerprints; and the bundled example."""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Sequence

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from support.data import load, refusal, write

from encoder_cls.config.schema import DataConfig
from encoder_cls.data.dataset import Dataset, Split, renumbered
from encoder_cls.data.load_dataset import load_dataset
from encoder_cls.system import disk_arrays, lazy_sequences


def empty_counts(dataset: Dataset) -> dict[str, int]:
    """How many rows of each source had no text, of those that had such rows."""
    counts = {}
    for name, notes in dataset.sources:
        if notes.empty.count:
            counts[name] = notes.empty.count
    return counts


def test_empty_texts_can_be_dropped():
    """With `empty_texts: drop` the rows are left out, also if they have no label."""
    source = write("a.csv", 'text,label\none,x\n" ",\n\ntwo,y\n')
    dataset = load(source, empty_texts="drop")

    assert list(dataset.train.texts) == ["one", "two"]
    assert empty_counts(dataset) == {"train": 1, "validation": 1}


def write_null_text(name: str) -> str:
    """Write a file of three rows, of which the second has no text."""
    texts = ["one", None, "two"]
    labels = ["x", "y", "y"]
    if name.endswith(".parquet"):
        pq.write_table(pa.table({"text": texts, "label": labels}), name)
        return name

    lines = []
    for text, label in zip(texts, labels, strict=True):
        lines.append(json.dumps({"text": text, "label": label}))
    return write(name, "\n".join(lines))


@pytest.mark.parametrize("name", ["a.jsonl", "a.parquet"])
def test_a_null_text_is_an_empty_text(name):
    source = write_null_text(name)
    dataset = load(source)

    assert list(dataset.train.texts) == ["one", "two"]
    assert empty_counts(dataset) == {"train": 1, "validation": 1}
    assert "the text is empty" in refusal(source, empty_texts="error")


def test_a_file_without_a_text_is_refused():
    source = write("b.csv", "text,label\n ,x\n")
    assert "no rows with a text" in refusal(source, empty_texts="drop")


TRAIN = "text,label\none,0\ntwo,1\n"


def write_rows(*, num_rows: int, num_empty: int) -> str:
    """Write a file whose first rows have no text."""
    lines = ["text,label"]
    for number in range(num_rows):
        text = " " if number < num_empty else f"t{number}"
        lines.append(f"{text},{number % 2}")
    return write("a.csv", "\n".join(lines) + "\n")


# Numbers of rows, each with the most of them that may be empty.
MAX_EMPTY = [
    (2, 1),
    (100, 1),
    (101, 2),
    (450, 5),
]


@pytest.mark.parametrize(("num_rows", "max_empty"), MAX_EMPTY)
def test_few_empty_texts_are_left_out(num_rows, max_empty):
    """They are up to 1% of a split, rounded up."""
    test = write_rows(num_rows=num_rows, num_empty=max_empty)
    dataset = load(write("b.csv", TRAIN), test=test)

    assert len(dataset.test) == num_rows - max_empty
    assert empty_counts(dataset) == {"test": max_empty}
    locations = dict(dataset.sources)["test"].empty.first
    assert locations == ["a.csv:2", "a.csv:3", "a.csv:4"][:max_empty]


@pytest.mark.parametrize(("num_rows", "max_empty"), MAX_EMPTY)
def test_more_empty_texts_are_refused_with_their_number(num_rows, max_empty):
    test = write_rows(num_rows=num_rows, num_empty=max_empty + 1)

    message = refusal(write("b.csv", TRAIN), test=test)

    expected = rf"a\.csv:2: the text is empty, as in {max_empty + 1} of {num_rows} rows .*=drop"
    assert re.match(expected, message)


def test_a_single_empty_text_can_be_an_error():
    test = write_rows(num_rows=450, num_empty=1)
    message = refusal(write("b.csv", TRAIN), test=test, empty_texts="error")
    assert message.startswith("a.csv:2: the text is empty; correct the file")


def test_a_label_that_has_no_column_in_another_order_is_refused():
    labels = np.array([[1, 0], [0, 1]])
    assert renumbered(labels, ["a", "b"], ["b", "c", "a"]).tolist() == [[0, 0, 1], [1, 0, 0]]
    with pytest.raises(ValueError, match="'b' has no column"):
        renumbered(labels, ["a", "b"], ["a", "c"])


def fingerprint(*texts: str, labels: Sequence[int] = (0, 0), where: str = "a") -> str:
    places = [where] * len(texts)
    return Split(texts=texts, labels=np.array(labels), where=places).fingerprint


def test_the_fingerprint_is_that_of_texts_and_labels():
    """It changes with a text, a label, the order and the boundaries of texts, and no other way."""
    one = fingerprint("some text", "another")
    others = [
        fingerprint("some text", "Another"),
        fingerprint("some text", "another "),
        fingerprint("some text", "another", labels=[0, 1]),
        fingerprint("another", "some text"),
        fingerprint("some", " textanother"),
    ]

    assert fingerprint("some text", "another", where="b") == one
    assert len({one, *others}) == 1 + len(others)
    assert fingerprint("a", "b\0c") != fingerprint("a\0b", "c")


ExpectedRows = list[tuple[str, int, str]]
"""The text, the class and the place of each row."""


def write_folder() -> ExpectedRows:
    """Write a folder `d` with three files, and return the rows that it has."""
    expected = []
    csv_lines = ["text,label"]
    for number in range(20):
        csv_lines.append(f"a{number},{number % 3}")
        expected.append((f"a{number}", number % 3, f"d/a.csv:{number + 2}"))

    # There is a blank line before each line of JSON.
    json_lines = []
    for number in range(20):
        json_lines.append(f'\n{{"text": "b{number}", "label": {number % 3}}}\n')
        expected.append((f"b{number}", number % 3, f"d/b.jsonl:{2 * number + 2}"))

    expected.append(("c", 2, "d/c.csv:2"))
    write("d/a.csv", "\n".join(csv_lines) + "\n")
    write("d/b.jsonl", "".join(json_lines))
    write("d/c.csv", "text,label\nc,2\n")
    return expected


def rows_of(split: Split) -> ExpectedRows:
    return list(zip(split.texts, split.labels.tolist(), split.where, strict=True))


@pytest.mark.parametrize("most_in_memory", [1 << 20, 1], ids=["memory", "files"])
def test_rows_keep_their_class_and_their_place(monkeypatch, most_in_memory):
    """They are read a few at a time, of several files, in memory or on the disk."""
    monkeypatch.setattr(lazy_sequences, "CHUNK", 3)
    monkeypatch.setattr(disk_arrays, "MAX_IN_MEMORY", most_in_memory)
    expected = write_folder()

    train = load("d").train

    assert rows_of(train) == expected
    in_memory = Split(
        texts=[text for text, _, _ in expected],
        labels=np.array([label for _, label, _ in expected]),
        where=[place for _, _, place in expected],
    )
    assert train.fingerprint == in_memory.fingerprint


@pytest.mark.parametrize("most_in_memory", [1 << 20, 1], ids=["memory", "files"])
def test_rows_that_are_held_out_keep_their_class_and_their_place(monkeypatch, most_in_memory):
    monkeypatch.setattr(lazy_sequences, "CHUNK", 3)
    monkeypatch.setattr(disk_arrays, "MAX_IN_MEMORY", most_in_memory)
    expected = write_folder()

    dataset = load("d", validation=None, validation_fraction=0.5)

    rows = rows_of(dataset.train) + rows_of(dataset.validation)
    assert sorted(rows) == sorted(expected)
    assert rows != expected


@pytest.fixture(scope="module")
def example_splits() -> dict[str, Split]:
    """The splits of the bundled example."""
    config = DataConfig(train="example:train", validation="example:validation", test="example:test")
    return load_dataset(config).splits


def test_the_bundled_example_has_at_least_8_classes_in_each_split(example_splits):
    num_classes = len(np.unique(example_splits["train"].labels))
    assert num_classes >= 8
    for split in example_splits.values():
        assert len(np.unique(split.labels)) == num_classes


def test_the_bundled_example_is_large_enough_and_has_no_text_twice(example_splits):
    """All texts differ in more than case and punctuation."""
    counts: Counter[str] = Counter()
    for split in example_splits.values():
        counts.update(re.sub(r"[\W_]+", "", text.lower()) for text in split.texts)

    assert counts.total() >= 1500
    assert [text for text, count in counts.items() if count > 1] == []


def load_with_unlabelled(*texts: str) -> Dataset:
    """A data set with labelled texts in all splits, and these texts without labels."""
    train = write("a.csv", "text,label\nhello there 1,x\ngood bye,y\nwhat now,x\nwho else,y\n")
    validation = write("v.csv", "text,label\nsee you,x\n")
    test = write("t.csv", "text,label\nso long,y\n")
    unlabelled = write("pool.txt", "\n".join(texts) + "\n")
    return load(train, validation=validation, test=test, unlabelled=unlabelled)


def test_unlabelled_texts_that_equal_or_resemble_labelled_texts_are_left_out():
    """Texts that differ only in case, space, punctuation and digits resemble each other."""
    dataset = load_with_unlabelled(
        "Hello  there 2!", "see you", "SO LONG", "anything else", "good bye"
    )

    assert list(dataset.unlabelled.texts) == ["anything else"]
    assert list(dataset.unlabelled.where) == ["pool.txt:4"]
    assert (
        "left out 4 of 5 texts without labels, equal or similar to a training, validation or test "
        "text"
    ) in dataset.notes


def test_other_texts_without_labels_stay():
    dataset = load_with_unlabelled("anything else", "and more")
    assert len(dataset.unlabelled.texts) == 2
    assert not dataset.notes
