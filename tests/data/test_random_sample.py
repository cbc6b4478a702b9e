"""Of a table of `label`, only the random sample is held out, since the other texts are chosen."""

from __future__ import annotations

import pytest
from support.tables import write_table

from encoder_cls.config.schema import DataConfig
from encoder_cls.data.key_of_text import key_of_text
from encoder_cls.data.load_dataset import load_dataset
from encoder_cls.data.random_sample import drawn_rank

HEADER = ["text", "label", "labelled_at", "how", "guess", "key"]
TEXTS = sorted(
    (f"text {number}" for number in range(120)), key=lambda text: drawn_rank(key_of_text(text))
)


def write_labels(num_drawn: int, key_column: str = "key") -> None:
    """Write labels of all texts, of which the first in the order of drawing are drawn."""
    rows = [[*HEADER[:-1], key_column]]
    for number, text in enumerate(TEXTS):
        how = "random" if number < num_drawn else "suggested"
        rows.append([text, "ab"[number % 2], "", how, "", key_of_text(text)])
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


def test_without_a_large_sample_any_text_is_held_out():
    write_labels(num_drawn=4)
    dataset = load_dataset(DataConfig(train="labels.csv"))
    assert not {*dataset.validation.texts} <= {*TEXTS[:40]}
    assert dataset.sample_note == ""
