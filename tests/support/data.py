"""Small data files in the current folder, and the data sets read from them."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from encoder_cls.config.schema import DataConfig
from encoder_cls.data.dataset import Dataset, Split
from encoder_cls.data.load import load_dataset
from encoder_cls.errors import DataError


def write(name: str, content: str | bytes) -> str:
    path = Path(name)
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(content if isinstance(content, bytes) else content.encode())
    return name


def write_labelled(name: str, *labels: object) -> str:
    """A file with these labels, those of JSON as they are; the texts are letters."""
    texts = [f"{name[0]} {chr(97 + row % 26) * (3 + row // 26)}" for row in range(len(labels))]
    if name.endswith(".jsonl"):
        rows = (
            json.dumps({"text": text, "label": label})
            for text, label in zip(texts, labels, strict=True)
        )
        return write(name, "\n".join(rows))
    return write(
        name,
        "text,label\n" + "".join(f"{text},{it}\n" for text, it in zip(texts, labels, strict=True)),
    )


def load(source: str, **values: object) -> Dataset:
    """The data set whose train and validation splits are the same source, so that nothing is held out."""
    return load_dataset(DataConfig.model_validate({"train": source, "validation": source} | values))


def refusal(source: str, **values: object) -> str:
    with pytest.raises(DataError) as caught:
        load(source, **values)
    return str(caught.value)


def classes_of(dataset: Dataset, split: Split) -> list[str]:
    names = (*dataset.label_names, *split.unseen_names)
    return [split.label_text(row, names) for row in range(len(split))]
