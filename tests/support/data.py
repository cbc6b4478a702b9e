"""Small data files in the current folder, and the data sets read from them."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from encoder_cls.config.schema import DataConfig
from encoder_cls.data.dataset import Dataset, Split
from encoder_cls.data.load_dataset import load_dataset
from encoder_cls.errors import DataError


def write(name: str, content: str | bytes) -> str:
    """Write a file; returns its name."""
    path = Path(name)
    path.parent.mkdir(parents=True, exist_ok=True)
    if isinstance(content, str):
        content = content.encode()
    path.write_bytes(content)
    return name


def write_labelled(name: str, *labels: object) -> str:
    """Write a CSV or JSON Lines file with these labels; the texts are letters."""
    rows = []
    for number, label in enumerate(labels):
        letter = chr(ord("a") + number % 26)
        text = f"{name[0]} {letter * (3 + number // 26)}"
        rows.append((text, label))

    if name.endswith(".jsonl"):
        lines = [json.dumps({"text": text, "label": label}) for text, label in rows]
    else:
        lines = ["text,label"]
        lines += [f"{text},{label}" for text, label in rows]
    return write(name, "\n".join(lines) + "\n")


def load(source: str, **values: object) -> Dataset:
    """A data set from which nothing is held out: train and validation are the same source."""
    config = DataConfig.model_validate({"train": source, "validation": source} | values)
    return load_dataset(config)


def refusal(source: str, **values: object) -> str:
    """The message of the error when a source is loaded."""
    with pytest.raises(DataError) as caught:
        load(source, **values)
    return str(caught.value)


def classes_of(dataset: Dataset, split: Split) -> list[str]:
    """The label of each text of a split."""
    names = (*dataset.label_names, *split.unseen_names)
    return [split.label_text(row, names) for row in range(len(split))]
