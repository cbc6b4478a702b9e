"""Of a table of `label`, only the random sample is held out, since the other texts are chosen."""

from __future__ import annotations

import pytest
from support.tables import write_table

from encoder_cls.config.schema import DataConfig
from encoder_cls.data.key_of_text import key_of_text
from encoder_cls.data.load_dataset import load_dataset
from encoder_cls.data.random_sample import drawn_rank
from encoder_cls.system.row_text import plain_text, row_parts, row_text

HEADER = ["text", "label", "labelled_at", "how", "guess", "key"]
TEXTS = sorted(
    (f"text {number}" for number in range(120)), key=lambda text: drawn_rank(key_of_text(text))
)


def write_labels(num_drawn: int, key_column: str = "key", texts: list[str] = TEXTS) -> None:
    """Write labels of all texts, of which the first in the order of drawing are drawn."""
    rows = [["channel", *HEADER[:-1], key_column]]
    for number, text in enumerate(texts):
        how = "random" if number < num_drawn else "suggested"
        channel = row_parts(text).features.get("channel", "email")
        rows.append([channel, plain_text(text), "ab"[number % 2], "", how, "", key_of_text(text)])
    write_table("labels.csv", rows)


@pytest.mark.parametrize("key_column", ["key", "label_key", "label_label_key"])
def test_only_texts_of_the_random_sample_are_held_out(key_column):
    """Also if the pool has columns of such names, before which the table's own get prefixes."""
    write_labels(40, key_column)
    dataset = load_dataset(DataConfig(train="labels.csv"))
    assert {*dataset.validation.texts} <= {*TEXTS[:40]}
    assert len(dataset.validation) == 12
    assert "40 labels that are a random sample" in dataset.sample_note
    assert dataset.sample_note in dataset.notes


def test_the_sample_of_rows_with_features_is_that_of_the_keys_of_the_table():
    """They are keys of rows or, if the features were named later, of texts."""
    config = DataConfig(train="labels.csv", features=["channel"])
    rows = [row_text([("text", text)], {"channel": "email"}) for text in TEXTS]
    drawn = sorted(rows, key=lambda row: drawn_rank(key_of_text(row)))

    write_labels(40)
    assert {*load_dataset(config).validation.texts} <= {*rows[:40]}
    write_labels(40, texts=drawn)
    assert {*load_dataset(config).validation.texts} <= {*drawn[:40]}


def test_without_a_large_sample_any_text_is_held_out():
    write_labels(num_drawn=4)
    dataset = load_dataset(DataConfig(train="labels.csv"))
    assert not {*dataset.validation.texts} <= {*TEXTS[:40]}
    assert dataset.sample_note == ""
