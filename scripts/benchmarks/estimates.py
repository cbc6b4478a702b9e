"""Compare the accuracy that a training with few labels estimates with the true one.

    python scripts/benchmarks/estimates.py FOLDER [--only DATASET]... [--rounds N] [--output PAGE]

FOLDER is as that of `accuracy.py`. A round is a draw: a linear model is trained on 120 labels
drawn at random beside 1,840 texts, 40 of these get a label, at random or by `suggest`, and it is
trained again. The truth is its accuracy on 2,000 other texts of train.
"""

from __future__ import annotations

import argparse
import tempfile
from collections.abc import Sequence
from functools import partial
from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from shared.benchmark import Benchmark, Case, Found, Row, grouped, values
from shared.data import Texts, add_data_arguments, json_lines, path_of, read, sample, write
from shared.page import table

from encoder_cls.classifier.classifier import Classifier
from encoder_cls.config.loading import config_of
from encoder_cls.data.reading.locations import SourceLocation
from encoder_cls.data.reading.rows import Row as TextRow
from encoder_cls.extras.label.suggestions import suggest
from encoder_cls.metrics.classification import CalibrationBins
from encoder_cls.training.linear_stage import FittedLinear, fit_linear_classifier
from encoder_cls.training.prepare import prepare

DATA = ("trec6", "ag_news", "sst2")
WAYS = ("random", "suggest")
FIRST = 120  # labels
ADDED = 40  # labels
POOL = 1840  # texts without a label at first
MAX_TEST_TEXTS = 2000


def cases(arguments: argparse.Namespace) -> list[Case]:
    """Data sets by ways to choose the labels that are added."""
    found: list[Case] = []
    for data in arguments.only or DATA:
        found += [{"data": data, "way": way} for way in WAYS]
    return found


def measure(arguments: argparse.Namespace, case: Case) -> Found:
    """Compare the estimate and its interval with the accuracy on other texts.

    The calibration error is that on the other texts.
    """
    texts = read(path_of(arguments.folder, case["data"], "train"))
    drawn = sample(texts, FIRST + POOL + MAX_TEST_TEXTS, seed=case["round"])
    pool = drawn.take(np.arange(FIRST + POOL))
    test = drawn.take(np.arange(FIRST + POOL, len(drawn.texts)))

    labelled = np.arange(FIRST + ADDED)
    if case["way"] == "suggest":
        first = fitted(pool, np.arange(FIRST)).classifier
        labelled = np.concatenate([np.arange(FIRST), suggested(first, pool)])

    result = fitted(pool, labelled)
    assert result.fit.few_labels

    # The truth is what the classifier predicts for other texts.
    probabilities = result.classifier.predict_proba(test.texts)
    label_names = np.array(result.classifier.label_names)
    predictions = label_names[probabilities.argmax(axis=1)]
    is_right = predictions == np.array(test.labels)
    accuracy = float(is_right.mean())

    low, high = result.fit.few_labels.interval
    return {
        "estimate": result.fit.few_labels.accuracy,
        "accuracy": accuracy,
        "is_inside": low <= accuracy <= high,
        "ece": CalibrationBins.of(probabilities.max(axis=1), is_right).expected_error,
    }


def fitted(pool: Texts, labelled: NDArray[np.int64]) -> FittedLinear:
    """Fit the linear model to these rows of the pool with labels, to the others without."""
    others = np.setdiff1d(np.arange(len(pool.texts)), labelled)
    with tempfile.TemporaryDirectory() as name:
        unlabelled = Path(name, "others.jsonl")
        unlabelled.write_text(json_lines(pool.texts[row] for row in others), encoding="utf-8")
        settings = {
            "name": "estimates",
            "data.train": str(write(Path(name, "train.parquet"), pool.take(labelled))),
            "data.unlabelled": str(unlabelled),
            "model.encoder": False,
        }
        return fit_linear_classifier(prepare(config_of(settings, source="estimates")))


def suggested(classifier: Classifier, pool: Texts) -> NDArray[np.int64]:
    """The rows that `encoder-cls suggest` names among those without a label."""
    # The name of a row's file is its number.
    rows = []
    for number in range(FIRST, len(pool.texts)):
        rows.append(TextRow(pool.texts[number], where=SourceLocation(str(number))))

    predictions = classifier.predict([row.text for row in rows])
    suggestions = suggest(zip(rows, predictions, strict=True), classifier, ADDED)
    return np.array([int(suggestion.row.where.file) for suggestion in suggestions])


def lines(rows: Sequence[Row]) -> list[str]:
    """A row for each data set and way, and for each way over all data sets."""
    cells = []
    for (data, way), some in grouped(rows, "data", "way").items():
        cells.append([data, way, *summary(some)])
    for (way,), some in grouped(rows, "way").items():
        cells.append(["all", way, *summary(some)])
    heads = ["data set", "40 added labels", "accuracy", "estimate", "within its interval"]
    return table([*heads, "calibration error"], cells)


def summary(rows: Sequence[Row]) -> list[str]:
    """The means of some rows, and how often the accuracy is within the interval of its estimate."""
    accuracy = np.mean(values(rows, "accuracy"))
    estimate = np.mean(values(rows, "estimate"))
    calibration_error = np.mean(values(rows, "ece"))
    num_inside = int(sum(values(rows, "is_inside")))
    return [
        f"{100 * accuracy:.1f}",
        f"{100 * estimate:.1f}",
        f"{num_inside} of {len(rows)}",
        f"{calibration_error:.3f}",
    ]


ADD_ARGUMENTS = partial(add_data_arguments, names=DATA)
BENCHMARK = Benchmark("estimates", __doc__, ADD_ARGUMENTS, cases, measure, lines, rounds=5)

if __name__ == "__main__":
    BENCHMARK.main()
