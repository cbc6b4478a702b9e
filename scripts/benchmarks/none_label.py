"""How well texts of no class are told from all others, with and without `data.none_label`.

    python scripts/benchmarks/none_label.py FOLDER [--rounds N] [--output docs/results.md]

FOLDER has the data sets banking77 and hwu64 as that of `accuracy.py`. Each round draws 4,000 texts
of train of banking77, and the texts of no class: those of five of its classes, or of hwu64, of
which 300 are for training, and 500 for the test. The model is the linear one. Where it does not
learn from the texts of no class, the probability of none is 1 less the highest probability.
"""

from __future__ import annotations

import argparse
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from statistics import mean
from typing import NamedTuple

import numpy as np
from shared.benchmark import Benchmark, Case, Found, Row, grouped, values
from shared.data import FOLDER_HELP, Texts, path_of, read, sample, write
from shared.page import table

from encoder_cls import config_of, train
from encoder_cls.evaluation.none_of_these import none_scores

FIVE_CLASSES = "five classes"
OTHER_DATA = "hwu64"
MAX_TEXTS = 4000
NUM_OTHER = {"train": 300, "test": 500}
NONE = "none"
# The seed of the first draw.
FIRST_DRAW = 4000


class Splits(NamedTuple):
    """Texts to train on and to test with; those of no class have the label `NONE`."""

    train: Texts
    test: Texts


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the folder of data sets."""
    parser.add_argument("folder", type=Path, help=FOLDER_HELP)


def cases(_arguments: argparse.Namespace) -> list[Case]:
    """Which texts are of no class, and whether the model learns from them."""
    return [
        {"none": none, "learned": learned}
        for none in (FIVE_CLASSES, OTHER_DATA)
        for learned in (False, True)
    ]


def measure(arguments: argparse.Namespace, case: Case) -> Found:
    """Train, and score the test texts.

    Returns:
        The recall of none where 95% of the others are answered, the AUROC, the accuracy of the
        others, and processor seconds.
    """
    seed = case["round"]
    splits = _splits(arguments.folder, case["none"], FIRST_DRAW + seed)
    train_texts = splits.train
    if not case["learned"]:
        train_texts = train_texts.take(np.flatnonzero(np.array(train_texts.labels) != NONE))

    began = time.process_time()
    with tempfile.TemporaryDirectory() as name:
        config = config_of(
            {
                "name": "none_label",
                "data.train": str(write(Path(name, "train.parquet"), train_texts)),
                "data.none_label": NONE if case["learned"] else None,
                "seed": seed,
                "data.split_seed": seed,
                "model.encoder": False,
            }
        )
        classifier = train(config, run_dir=Path(name, "run"), with_report=False)
    seconds = time.process_time() - began

    probabilities = classifier.predict_proba(splits.test.texts)
    probability_of_none = 1 - probabilities.max(axis=1)
    if case["learned"]:
        probability_of_none = probabilities[:, classifier.label_names.index(NONE)]
    predictions = classifier.predict(splits.test.texts)

    labels = np.array(splits.test.labels)
    is_none = labels == NONE
    scores = none_scores(
        NONE,
        is_none,
        probability_of_none,
        np.array([prediction.label == "" for prediction in predictions]),
        unfamiliar_auroc=None,
    )
    assert scores
    is_right = np.array([prediction.label for prediction in predictions]) == labels
    return {
        "recall": scores.recall_at_95_answered,
        "auroc": scores.auroc,
        "accuracy": float(is_right[~is_none].mean()),
        "seconds": seconds,
    }


def _splits(folder: Path, none: str, seed: int) -> Splits:
    train_texts = sample(read(path_of(folder, "banking77", "train")), MAX_TEXTS, seed=seed)
    test = read(path_of(folder, "banking77", "test"))
    if none == FIVE_CLASSES:
        random = np.random.default_rng(seed)
        names = set(random.choice(train_texts.classes, 5, replace=False).tolist())
        return Splits(_with_none(train_texts, names), _with_none(test, names))

    splits = []
    for split, texts in (("train", train_texts), ("test", test)):
        others = sample(read(path_of(folder, OTHER_DATA, split)), NUM_OTHER[split], seed=seed)
        labels = [*texts.labels, *[NONE] * len(others.texts)]
        splits.append(Texts([*texts.texts, *others.texts], labels))
    return Splits(*splits)


def _with_none(texts: Texts, names: set[str]) -> Texts:
    """The same texts, of which those of some classes are of none."""
    labels = [NONE if label in names else label for label in texts.labels]
    return Texts(texts.texts, labels)


def lines(rows: Sequence[Row]) -> list[str]:
    """A row for each kind of texts of no class, and each model: means over rounds."""
    cells = []
    for (none, learned), group in grouped(rows, "none", "learned").items():
        cells.append(
            [
                none,
                "yes" if learned else "no",
                f"{100 * mean(values(group, 'recall')):.1f}",
                f"{mean(values(group, 'auroc')):.3f}",
                f"{100 * mean(values(group, 'accuracy')):.1f}",
                f"{mean(values(group, 'seconds')):.0f}",
            ]
        )
    heads = ["texts of none", "learned", "recall of none", "AUROC", "accuracy of the others"]
    return table([*heads, "processor, s"], cells, left=2)


BENCHMARK = Benchmark("none_label", __doc__, add_arguments, cases, measure, lines)

if __name__ == "__main__":
    BENCHMARK.main()
