"""Data sets: rows with their places, empty texts, fingerprints; and the bundled example."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Sequence

import numpy as np
import pytest
from support.data import load, refusal, write

from encoder_cls.config.schema import DataConfig
from encoder_cls.data.dataset import Dataset, Split
from encoder_cls.data.load_dataset import load_dataset
from encoder_cls.errors import DataError
from encoder_cls.system import columns, disk_arrays


def left_out(dataset: Dataset) -> dict[str, int]:
    """How many rows of each source had no text."""
    return {name: notes.empty.count for name, notes in dataset.sources if notes.empty.count}


def test_empty_texts_can_be_dropped():
    """With `empty_texts: drop` the rows are left out, also without a label; a file of nothing else is refused."""
    dataset = load(write("a.csv", 'text,label\none,x\n" ",\n\ntwo,y\n'), empty_texts="drop")
    assert (list(dataset.train.texts), left_out(dataset)) == (
        ["one", "two"],
        {"train": 1, "validation": 1},
    )
    assert "no rows with a text" in refusal(write("b.csv", "text,label\n ,x\n"), empty_texts="drop")


@pytest.mark.parametrize(("rows", "empty"), [(2, 1), (100, 1), (101, 2), (450, 5)])
def test_few_empty_texts_are_left_out(rows, empty):
    """Up to 1% of a split, rounded up; one more is refused, with their number and locations."""

    def source(count: int) -> str:
        lines = [f"{' ' if i < count else f't{i}'},{i % 2}\n" for i in range(rows)]
        return write("a.csv", "text,label\n" + "".join(lines))

    dataset = load(write("b.csv", "text,label\none,0\ntwo,1\n"), test=source(empty))
    assert (len(dataset.test), left_out(dataset)) == (rows - empty, {"test": empty})
    assert dict(dataset.sources)["test"].empty.first == ["a.csv:2", "a.csv:3", "a.csv:4"][:empty]
    with pytest.raises(
        DataError, match=rf"^a\.csv:2: the text is empty, as in {empty + 1} of {rows} rows .*=drop"
    ):
        load("b.csv", test=source(empty + 1))
    with pytest.raises(DataError, match=r"^a\.csv:2: the text is empty; correct the file"):
        load("b.csv", test=source(1), empty_texts="error")


def fingerprint(*texts: str, labels: Sequence[int] = (0, 0), where: str = "a") -> str:
    return Split(texts=texts, labels=np.array(labels), where=[where] * len(texts)).fingerprint


def test_the_fingerprint_is_that_of_texts_and_labels():
    """It changes with a text, a label, the order and the boundaries of texts, and with nothing else."""
    others = [
        fingerprint("some text", "Another"),
        fingerprint("some text", "another "),
        fingerprint("some text", "another", labels=[0, 1]),
        fingerprint("another", "some text"),
        fingerprint("some", " textanother"),
    ]
    assert fingerprint("some text", "another") == fingerprint("some text", "another", where="b")
    assert len({fingerprint("some text", "another"), *others}) == 1 + len(others)
    assert fingerprint("a", "b\0c") != fingerprint("a\0b", "c")


@pytest.mark.parametrize("most_pending", [1 << 20, 1], ids=["memory", "files"])
def test_rows_keep_their_class_and_their_place(monkeypatch, most_pending):
    """Read a few at a time, of several files, in memory and not, and also of the part that is held out."""
    monkeypatch.setattr(columns, "CHUNK", 3)
    monkeypatch.setattr(disk_arrays, "MOST_IN_MEMORY", most_pending)
    write("d/a.csv", "text,label\n" + "".join(f"a{i},{i % 3}\n" for i in range(20)))
    write("d/b.jsonl", "".join(f'\n{{"text": "b{i}", "label": {i % 3}}}\n' for i in range(20)))
    write("d/c.csv", "text,label\nc,2\n")
    expected = [(f"a{i}", i % 3, f"d/a.csv:{i + 2}") for i in range(20)]
    expected += [(f"b{i}", i % 3, f"d/b.jsonl:{2 * i + 2}") for i in range(20)]
    expected += [("c", 2, "d/c.csv:2")]
    texts, labels, where = map(list, zip(*expected, strict=True))
    whole = load("d").train
    assert list(zip(whole.texts, whole.labels.tolist(), whole.where, strict=True)) == expected
    assert whole.fingerprint == Split(texts=texts, labels=np.array(labels), where=where).fingerprint
    dataset = load("d", validation=None, validation_fraction=0.5)
    splits = (dataset.train, dataset.validation)
    parts = [
        row for it in splits for row in zip(it.texts, it.labels.tolist(), it.where, strict=True)
    ]
    assert sorted(parts) == sorted(expected)
    assert parts != expected


def test_the_bundled_example_is_large_enough_and_has_no_text_twice():
    """At least 8 classes, each in each split, and 1,500 texts, all different in more than case and punctuation."""
    bundled = load_dataset(
        DataConfig(train="example:train", validation="example:validation", test="example:test")
    )
    splits = [bundled.train, bundled.validation, bundled.test]
    assert len(bundled.label_names) >= 8
    assert all(len(np.unique(split.labels)) == len(bundled.label_names) for split in splits)
    texts = Counter(re.sub(r"[\W_]+", "", text.lower()) for split in splits for text in split.texts)
    assert texts.total() >= 1500
    assert [text for text, count in texts.items() if count > 1] == []


def test_labelled_texts_are_left_out_of_those_without_labels():
    """Of train, validation and test, and those that differ in case, space, punctuation and digits; they are counted."""
    train = write("a.csv", "text,label\nhello there 1,x\ngood bye,y\nwhat now,x\nwho else,y\n")
    validation = write("v.csv", "text,label\nsee you,x\n")
    test = write("t.csv", "text,label\nso long,y\n")
    pool = write("pool.txt", "Hello  there 2!\nsee you\nSO LONG\nanything else\ngood bye\n")
    dataset = load(train, validation=validation, test=test, unlabelled=pool)
    assert [*dataset.unlabelled.texts] == ["anything else"]
    assert [str(where) for where in dataset.unlabelled.where] == ["pool.txt:4"]
    assert (
        "4 of 5 texts without labels are left out, which are labelled, validation or test texts, too, or like them"
        in dataset.notes
    )
    others = write("others.txt", "anything else\nand more\n")
    whole = load(train, validation=validation, test=test, unlabelled=others)
    assert len(whole.unlabelled.texts) == 2
    assert not whole.notes
