"""Labelled texts: data sets in a folder, the bundled example, and files that a training reads."""

from __future__ import annotations

import argparse
import json
from collections.abc import Iterable, Sequence
from functools import cache
from pathlib import Path
from typing import NamedTuple

import numpy as np
import pyarrow
import pyarrow.csv
import pyarrow.parquet
from numpy.typing import NDArray

from shared.benchmark import ROOT

EXAMPLE = "example"  # the bundled data
DATA = ("trec6", "sst2", "banking77", EXAMPLE, "ag_news", "imdb")
VALIDATION_PART = 0.1  # of train, where a data set has no validation file
FOLDER_HELP = (
    "with a subfolder for each data set: train.parquet, test.parquet, perhaps validation.parquet"
)


class Texts(NamedTuple):
    """Texts with their labels."""

    texts: list[str]
    labels: list[str]

    def take(self, rows: NDArray[np.int64]) -> Texts:
        """The texts of some rows."""
        texts = [self.texts[row] for row in rows]
        labels = [self.labels[row] for row in rows]
        return Texts(texts, labels)

    @property
    def classes(self) -> list[str]:
        """The labels, each once."""
        return sorted(set(self.labels))


def add_data_arguments(parser: argparse.ArgumentParser, names: Sequence[str] = DATA) -> None:
    """Add the folder of data sets, and a choice of them."""
    parser.add_argument("folder", type=Path, help=FOLDER_HELP)
    parser.add_argument(
        "--only", choices=names, action="append", help="repeatable; default: all data sets"
    )


def path_of(folder: Path, name: str, split: str) -> Path:
    """The file of a split; some data sets have no validation file."""
    if name == EXAMPLE:
        return next((ROOT / "encoder_cls").rglob(f"{EXAMPLE}/{split}.csv"))
    return folder / name / f"{split}.parquet"


@cache
def read(path: Path) -> Texts:
    """The labelled texts of a CSV or Parquet file, without those that are blank."""
    if path.suffix == ".csv":
        table = pyarrow.csv.read_csv(path)
    else:
        table = pyarrow.parquet.read_table(path)
    columns = table.select(["text", "label"]).to_pydict()

    found = Texts([], [])
    for text, label in zip(columns["text"], columns["label"], strict=True):
        if text and text.strip():
            found.texts.append(text)
            found.labels.append(str(label))
    return found


def splits(folder: Path, name: str, seed: int) -> dict[str, Texts]:
    """Read train, validation and test for other systems.

    Without a validation file, a tenth of train is held out.
    """
    train = read(path_of(folder, name, "train"))
    test = read(path_of(folder, name, "test"))
    validation = path_of(folder, name, "validation")
    if validation.exists():
        return {"train": train, "validation": read(validation), "test": test}

    order = stratified_order(train.labels, seed)
    first = round(VALIDATION_PART * len(order))
    return {
        "train": train.take(order[first:]),
        "validation": train.take(order[:first]),
        "test": test,
    }


def stratified_order(labels: Sequence[str], seed: int) -> NDArray[np.int64]:
    """Order rows at random so that any first ones have about the same part of each class."""
    random = np.random.default_rng(seed)
    _, classes = np.unique(np.array(labels), return_inverse=True)
    order = random.permutation(len(labels))

    # The members of a class are spread evenly between 0 and 1, with a random shift of each class.
    ranks = np.empty(len(labels))
    for number in range(classes.max() + 1):
        members = order[classes[order] == number]
        shift = random.random()
        ranks[members] = (np.arange(len(members)) + shift) / len(members)

    return order[np.argsort(ranks[order], kind="stable")]


def json_lines(texts: Iterable[str]) -> str:
    """Texts without labels, as the content of a .jsonl file that encoder-cls reads."""
    return "".join(json.dumps({"text": text}) + "\n" for text in texts)


def overrides(folder: Path, name: str, seed: int = 0) -> list[str]:
    """The config values with which encoder-cls reads a data set.

    The held-out texts differ with each seed.
    """
    settings = []
    for split in ("train", "validation", "test"):
        path = path_of(folder, name, split)
        if split == "validation" and not path.exists():
            settings.append("data.validation=null")
        else:
            settings.append(f"data.{split}={json.dumps(str(path.resolve()))}")
    return [*settings, f"seed={seed}", f"data.split_seed={seed}"]


def write(path: Path, texts: Texts) -> Path:
    """Write a Parquet file that encoder-cls reads."""
    table = pyarrow.table({"text": texts.texts, "label": texts.labels})
    pyarrow.parquet.write_table(table, path)
    return path


def few_labels_settings(
    work: Path, labelled: Texts, unlabelled: Sequence[str], test: Texts | None
) -> list[str]:
    """Write the data of a training of a linear model with few labels; returns its settings."""
    test_path = "null"
    if test:
        test_path = str(write(work / "test.parquet", test))
    others = work / "unlabelled.jsonl"
    others.write_text(json_lines(unlabelled), encoding="utf-8")
    return [
        f"data.train={write(work / 'train.parquet', labelled)}",
        f"data.test={test_path}",
        f"data.unlabelled={others}",
        "data.validation=null",
        "model.encoder=false",
    ]


def sample(texts: Texts, most: int, seed: int = 0) -> Texts:
    """Draw so many texts at most, at random."""
    order = np.random.default_rng(seed).permutation(len(texts.texts))
    return texts.take(order[:most])
