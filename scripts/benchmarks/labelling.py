"""Simulate sessions of `encoder-cls label`, beside other ways to choose the texts to label.

    python scripts/benchmarks/labelling.py FOLDER [--only DATASET]... [--rounds N] [--output PAGE]

FOLDER is as that of `accuracy.py`. A round draws a pool of 1,500 texts without labels. The labels
come from the data set. In the way `label`, the queue of the page asks one text after the other,
and each fit is ready at once. In the way `suggest`, 50 texts are labelled in random order, and then
50 that `encoder-cls suggest` names. With 50 and with 100 labels, `encoder-cls train` learns from
them and from the pool, or an SVM of n-grams and of a truncated SVD of the pool; the accuracy is
that on 1,000 test texts.

The page estimates the accuracy on texts like those of the pool, which the test texts of trec6 are
not. So its interval is compared with the accuracy on 1,000 other texts of train: in how many
sessions the interval has it, the estimate less it in points, and the width of the interval.

Two of these commands with different data sets may run beside each other with one file of results.
"""

from __future__ import annotations

import argparse
import tempfile
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from statistics import mean

import numpy as np
from few_labels import svm_predictions
from numpy.typing import NDArray
from shared.benchmark import Benchmark, Case, Found, Row, distinct, grouped
from shared.commands import train
from shared.data import (
    Texts,
    add_data_arguments,
    few_labels_settings,
    json_lines,
    path_of,
    read,
    sample,
)
from shared.page import NOT_MEASURED, table
from suggestions import suggested

from encoder_cls.classifier.model_folder import load_classifier
from encoder_cls.extras.label.model_loop import ModelLoop
from encoder_cls.extras.label.open_session import open_session
from encoder_cls.extras.label.pool import PoolOptions

DATA = ("trec6", "ag_news", "sst2", "banking77")
LABEL = "label"
SUGGEST = "suggest"
RANDOM = "random order"
SVM = "random order, SVM"
WAYS = (LABEL, SUGGEST, RANDOM, SVM)
# The numbers of labels with which accuracy is measured.
SIZES = (50, 100)
POOL = 1500
MAX_TEST_TEXTS = 1000
# The number of texts of train, outside the pool, by which the interval of the page is judged.
LIKE_POOL = 1000
# The seed of the first draw.
FIRST_DRAW = 500


def cases(arguments: argparse.Namespace) -> list[Case]:
    """Data sets by ways."""
    found: list[Case] = []
    for data in arguments.only or DATA:
        found += [{"data": data, "way": way} for way in WAYS]
    return found


def measure(arguments: argparse.Namespace, case: Case) -> Found:
    """The accuracy with each number of labels; of `label`, also what the page shows of it."""
    folder = arguments.folder
    texts = read(path_of(folder, case["data"], "train"))
    test = sample(read(path_of(folder, case["data"], "test")), MAX_TEST_TEXTS)
    order = np.random.default_rng(FIRST_DRAW + case["round"]).permutation(len(texts.texts))
    pool = _different(texts.take(order[:POOL]))
    like_pool = texts.take(order[POOL : POOL + LIKE_POOL])

    with tempfile.TemporaryDirectory() as name:
        work = Path(name)
        found: Found = {}
        if case["way"] == LABEL:
            asked, shown = simulated_session(pool, work)
            found["shown"] = shown
        else:
            asked = np.arange(len(pool.texts))

        for size in SIZES:
            labelled = asked[:size]
            if case["way"] == SVM:
                others = np.setdiff1d(np.arange(len(pool.texts)), labelled)
                predictions = svm_predictions(pool.take(labelled), pool.take(others), test)
                found[str(size)] = float(np.mean(np.array(predictions) == test.labels))
                continue

            run = _trained(pool, labelled, work)
            found[str(size)] = _accuracy(run, test)
            if case["way"] == LABEL:
                found[f"{size} like pool"] = _accuracy(run, like_pool)
            if case["way"] == SUGGEST and size == SIZES[0]:
                named = suggested(run, pool, np.arange(size, len(pool.texts)), work)
                asked = np.concatenate([labelled, named])
    return found


def simulated_session(pool: Texts, work: Path) -> tuple[NDArray[np.int64], Found]:
    """Label with the queue and the model of the page.

    Returns:
        The rows of the pool in the order in which they were asked; and for each number of labels
        the estimated accuracy and its interval, None if the page shows none.
    """
    row_of = {text: row for row, text in enumerate(pool.texts)}
    path = work / "pool.jsonl"
    path.write_text(json_lines(pool.texts), encoding="utf-8")
    options = PoolOptions(str(path))
    opened = open_session(options, work / "labels.csv", pool.classes, is_multi_label=False)
    session = opened.session

    # The model works in this process, and is waited for.
    loop = ModelLoop(
        session, opened.queue, opened.texts, print, apply=lambda model, task: model(task)
    )
    loop.work(None)
    rows: list[int] = []
    shown: Found = {}
    while len(rows) < SIZES[-1]:
        text = session.state()["text"]
        row = row_of[text["text"]]
        rows.append(row)
        session.label(text["key"], [pool.labels[row]])
        due = loop.due()
        if due:
            loop.work(due)
        if len(rows) in SIZES:
            shown[str(len(rows))] = None
            if loop.estimate:
                shown[str(len(rows))] = loop.estimate._asdict()
    return np.array(rows), shown


def _different(texts: Texts) -> Texts:
    """Leave out texts that occur before."""
    _, first = np.unique(np.array(texts.texts, dtype=object), return_index=True)
    return texts.take(np.sort(first))


def _trained(pool: Texts, labelled: NDArray[np.int64], work: Path) -> Path:
    """Train on labels and on the pool; returns the run."""
    others = pool.take(np.setdiff1d(np.arange(len(pool.texts)), labelled))
    settings = few_labels_settings(work, pool.take(labelled), others.texts, None)
    run = work / f"run-{len(labelled)}-{len(list(work.glob('run-*')))}"
    train(settings, run)
    return run


def _accuracy(run: Path, test: Texts) -> float:
    """The accuracy of a run on test texts, of which most may have a class without labels."""
    predictions = load_classifier(run, engine="numpy").predict(test.texts)
    is_right = []
    for prediction, label in zip(predictions, test.labels, strict=True):
        is_right.append(prediction.label == label)
    return mean(is_right)


def lines(rows: Sequence[Row]) -> list[str]:
    """A row for each data set and number of labels, and one for the mean over data sets."""
    groups = grouped(rows, "data", "way")
    names = distinct(row.case["data"] for row in rows)
    cells = []
    for data in names:
        for size in SIZES:
            means = [_mean(groups.get((data, way), []), size) for way in WAYS]
            of_label = groups.get((data, LABEL), [])
            cells.append([data, str(size), *map(_percent, means), *_interval_cells(of_label, size)])

    for size in SIZES:
        line = ["mean", str(size)]
        for way in WAYS:
            means = [_mean(groups.get((data, way), []), size) for data in names]
            known = [value for value in means if value is not None]
            # The means of two ways can be compared only if they are of the same data sets.
            line.append(_percent(mean(known) if len(known) == len(names) else None))
        of_label = [row for row in rows if row.case["way"] == LABEL]
        cells.append([*line, *_interval_cells(of_label, size)])

    heads = ["data set", "labels", *WAYS, "accuracy in the interval", "estimate less it", "width"]
    return table(heads, cells)


def _mean(rows: Sequence[Row], size: int) -> float | None:
    """The mean accuracy over draws; None without draws."""
    accuracies = [row.found[str(size)] for row in rows]
    return mean(accuracies) if accuracies else None


def _percent(value: float | None) -> str:
    return NOT_MEASURED if value is None else f"{100 * value:.1f}"


def _interval_cells(rows: Sequence[Row], size: int) -> list[str]:
    """Compare what the page shows with the accuracy on other texts like those of the pool.

    Returns:
        In how many sessions the interval has the accuracy; the mean of the estimate less the
        accuracy, and the mean width of the interval, both in points.
    """
    num_covered = 0
    errors = []
    widths = []
    for row in rows:
        shown = row.found["shown"][str(size)]
        if shown is None:
            continue
        accuracy = row.found[f"{size} like pool"]
        num_covered += shown["low"] <= accuracy <= shown["high"]
        errors.append(shown["accuracy"] - accuracy)
        widths.append(shown["high"] - shown["low"])

    if not errors:
        return [NOT_MEASURED] * 3
    return [
        f"{num_covered} of {len(errors)}",
        f"{100 * mean(errors):+.1f}",
        f"{100 * mean(widths):.0f}",
    ]


ADD_ARGUMENTS = partial(add_data_arguments, names=DATA)
BENCHMARK = Benchmark("labelling", __doc__, ADD_ARGUMENTS, cases, measure, lines, rounds=5)

if __name__ == "__main__":
    BENCHMARK.main()
