"""Few labels beside many texts without: the linear classifier of a training, and an SVM of the labels alone.

    python scripts/benchmarks/few_labels.py FOLDER [--only DATASET]... [--labels N]... [--rounds N]

FOLDER is as that of `accuracy.py`. A round is a draw: two texts a class, the others at random; up to 10,000 texts of
train are without labels. Names of classes are as they are, or numbers, which have no meaning. The SVM is of n-grams of
words and characters and a truncated SVD of all texts, with names as further texts. `PYTHONPATH` with another checkout
measures that one.
"""

from __future__ import annotations

import argparse
import json
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from statistics import mean

import numpy as np
from shared.benchmark import Benchmark, Case, Found, Row, grouped, values
from shared.commands import report, train
from shared.data import Texts, add_data_arguments, path_of, read, sample, write
from shared.page import NOT_MEASURED, table
from shared.peers import tfidf_features

DATA = ("banking77", "ag_news", "sst2", "trec6", "imdb")  # the slow ones first
LABELS = (50, 100, 300, 1000)
SVM, TRAINING = "SVM", "encoder-cls"
MOST_TEXTS, MOST_TEST_TEXTS = {"imdb": 2000}, 2000  # of a data set
DIMENSIONS, OF_EACH_CLASS = 200, 2
FIRST_DRAW = 200  # those before it have chosen settings


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the data sets and the numbers of labels."""
    add_data_arguments(parser, DATA)
    parser.add_argument(
        "--labels", type=int, action="append", help="repeatable; default: 50, 100, 300, 1000"
    )


def cases(arguments: argparse.Namespace) -> list[Case]:
    """Data sets by labels, kinds of names and systems; each class has two labels at least."""
    return [
        {"data": data, "labels": labels, "names": names, "system": system}
        for names in (True, False)
        for data in arguments.only or DATA
        for labels in sorted(arguments.labels or LABELS)
        for system in (TRAINING, SVM)
        if data != "banking77" or labels >= OF_EACH_CLASS * 77
    ]


def measure(arguments: argparse.Namespace, case: Case) -> Found:
    """The accuracy, and the seconds of processor time."""
    labelled, others, test = drawn(arguments.folder, case)
    if case["system"] == SVM:
        began = time.process_time()
        accuracy = np.mean(np.array(svm_answers(labelled, others, test)) == test.labels)
        return {"accuracy": float(accuracy), "seconds": time.process_time() - began}
    with tempfile.TemporaryDirectory() as name:
        work = Path(name)
        lines = (json.dumps({"text": text}) + "\n" for text in others.texts)
        (work / "others.jsonl").write_text("".join(lines), encoding="utf-8")
        data = {
            "train": write(work / "train.parquet", labelled),
            "test": write(work / "test.parquet", test),
            "unlabelled": work / "others.jsonl",
            "validation": "null",
        }
        overrides = [*(f"data.{key}={value}" for key, value in data.items()), "model.encoder=false"]
        ended = train(overrides, work / "run")
        return {"accuracy": report(work / "run")["accuracy"], "seconds": ended.processor_seconds}


def drawn(folder: Path, case: Case) -> tuple[Texts, Texts, Texts]:
    """Texts with a label, texts without, test texts."""
    pool = sample(
        read(path_of(folder, case["data"], "train")), MOST_TEXTS.get(case["data"], 10_000)
    )
    test = sample(read(path_of(folder, case["data"], "test")), MOST_TEST_TEXTS)
    if not case["names"]:
        numbers = {name: str(number) for number, name in enumerate(pool.classes)}
        pool, test = (
            Texts(it.texts, [numbers.get(name, name) for name in it.labels]) for it in (pool, test)
        )
    random, labels = np.random.default_rng(FIRST_DRAW + case["round"]), np.array(pool.labels)
    order = random.permutation(len(pool.texts))
    first = np.concatenate([order[labels[order] == name][:OF_EACH_CLASS] for name in pool.classes])
    rows = np.concatenate([first, order[~np.isin(order, first)]])
    return pool.take(rows[: case["labels"]]), pool.take(rows[case["labels"] :]), test


def svm_answers(labelled: Texts, others: Texts, test: Texts) -> list[str]:
    """The answers of a plain SVM."""
    from sklearn.decomposition import TruncatedSVD
    from sklearn.pipeline import make_pipeline, make_union
    from sklearn.preprocessing import FunctionTransformer, normalize
    from sklearn.svm import LinearSVC

    from encoder_cls.data.dataset import names_as_texts

    grams = tfidf_features(chars=True)
    texts = [*labelled.texts, *others.texts]
    latent = make_pipeline(TruncatedSVD(DIMENSIONS, random_state=0), FunctionTransformer(normalize))
    both = make_union(FunctionTransformer(), latent).fit(grams.fit_transform(texts))
    named = {
        name: text
        for name, text in zip(labelled.classes, names_as_texts(labelled.classes), strict=True)
        if text
    }
    known = Texts([*labelled.texts, *named.values()], [*labelled.labels, *named])
    model = LinearSVC(random_state=0).fit(
        both.transform(grams.transform(known.texts)), known.labels
    )
    return list(model.predict(both.transform(grams.transform(test.texts))))


def lines(rows: Sequence[Row]) -> list[str]:
    """A row for each data set and number of labels: means over draws."""
    cells, of = [], grouped(rows, "data", "labels", "names", "system")
    for data, labels in dict.fromkeys(key[:2] for key in of):
        groups = [
            of.get((data, labels, names, it), [])
            for names in (True, False)
            for it in (SVM, TRAINING)
        ]
        accuracies = [
            f"{100 * mean(values(it, 'accuracy')):.1f}" if it else NOT_MEASURED for it in groups
        ]
        seconds = f"{mean(values(groups[1], 'seconds')):.0f}" if groups[1] else NOT_MEASURED
        cells.append([data, f"{labels:,}", *accuracies, seconds])
    systems = [f"{system}{names}" for names in ("", ", numbers") for system in (SVM, TRAINING)]
    return table(["data set", "labels", *systems, "processor seconds"], cells)


BENCHMARK = Benchmark("few_labels", __doc__, add_arguments, cases, measure, lines, rounds=5)

if __name__ == "__main__":
    BENCHMARK.main()
