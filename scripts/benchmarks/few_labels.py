"""Compare the linear model with an SVM, for few labels beside many texts without.

    python scripts/benchmarks/few_labels.py FOLDER [--only DATASET]... [--labels N]... [--rounds N]

FOLDER is as that of `accuracy.py`. A round is a draw: two texts a class, the others at random; up
to 10,000 texts of train are without labels. Names of classes are as they are, or numbers, which
have no meaning. The SVM is of n-grams of words and characters and a truncated SVD of all texts,
with names as further texts. `PYTHONPATH` with another checkout measures that one.
"""

from __future__ import annotations

import argparse
import tempfile
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from statistics import mean

import numpy as np
from shared.benchmark import Benchmark, Case, Found, Row, grouped, values
from shared.commands import report, train
from shared.data import Texts, add_data_arguments, few_labels_settings, path_of, read, sample
from shared.page import NOT_MEASURED, table
from shared.peers import tfidf_features

DATA = ("banking77", "ag_news", "sst2", "trec6", "imdb")  # the slow ones first
LABELS = (50, 100, 300, 1000)
SVM = "SVM"
TRAINING = "encoder-cls"
# Training texts of a data set, with a label or without.
MAX_TEXTS = 10_000
MAX_TEXTS_OF = {"imdb": 2000}
MAX_TEST_TEXTS = 2000
# The seed of the first draw; draws before it have chosen settings.
FIRST_DRAW = 200
# Labels that each class has at least.
OF_EACH_CLASS = 2
# The width of the truncated SVD.
DIMENSIONS = 200


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the data sets and the numbers of labels."""
    add_data_arguments(parser, DATA)
    parser.add_argument(
        "--labels", type=int, action="append", help="repeatable; default: 50, 100, 300, 1000"
    )


def cases(arguments: argparse.Namespace) -> list[Case]:
    """Data sets by labels, kinds of names and systems; each class has two labels at least."""
    found: list[Case] = []
    for names in (True, False):
        for data in arguments.only or DATA:
            for labels in sorted(arguments.labels or LABELS):
                if data == "banking77" and labels < OF_EACH_CLASS * 77:
                    continue
                common = {"data": data, "labels": labels, "names": names}
                found += [{**common, "system": TRAINING}, {**common, "system": SVM}]
    return found


def measure(arguments: argparse.Namespace, case: Case) -> Found:
    """The accuracy, and the seconds of processor time."""
    labelled, others, test = drawn(arguments.folder, case)
    if case["system"] == SVM:
        began = time.process_time()
        predictions = np.array(svm_predictions(labelled, others, test))
        accuracy = float(np.mean(predictions == test.labels))
        return {"accuracy": accuracy, "seconds": time.process_time() - began}

    with tempfile.TemporaryDirectory() as name:
        work = Path(name)
        settings = few_labels_settings(work, labelled, others.texts, test)
        ended = train(settings, work / "run")
        return {"accuracy": report(work / "run")["accuracy"], "seconds": ended.processor_seconds}


def drawn(folder: Path, case: Case) -> tuple[Texts, Texts, Texts]:
    """Draw texts with a label, texts without, and test texts."""
    data = case["data"]
    most_texts = MAX_TEXTS_OF.get(data, MAX_TEXTS)
    pool = sample(read(path_of(folder, data, "train")), most_texts)
    test = sample(read(path_of(folder, data, "test")), MAX_TEST_TEXTS)
    if not case["names"]:
        numbers = {name: str(number) for number, name in enumerate(pool.classes)}
        pool = _renamed(pool, numbers)
        test = _renamed(test, numbers)

    random = np.random.default_rng(FIRST_DRAW + case["round"])
    order = random.permutation(len(pool.texts))

    # Some texts of each class come first.
    labels = np.array(pool.labels)
    first_rows = []
    for name in pool.classes:
        members = order[labels[order] == name]
        first_rows.append(members[:OF_EACH_CLASS])
    first = np.concatenate(first_rows)
    rows = np.concatenate([first, order[~np.isin(order, first)]])

    labelled = pool.take(rows[: case["labels"]])
    others = pool.take(rows[case["labels"] :])
    return labelled, others, test


def _renamed(texts: Texts, new_names: Mapping[str, str]) -> Texts:
    labels = [new_names.get(label, label) for label in texts.labels]
    return Texts(texts.texts, labels)


def svm_predictions(labelled: Texts, others: Texts, test: Texts) -> list[str]:
    """The predictions of a plain SVM."""
    from sklearn.decomposition import TruncatedSVD
    from sklearn.pipeline import make_pipeline, make_union
    from sklearn.preprocessing import FunctionTransformer, normalize
    from sklearn.svm import LinearSVC

    from encoder_cls.data.label_names import names_as_texts

    # The features are n-grams, and a truncated SVD of these.
    ngrams = tfidf_features(chars=True)
    svd = TruncatedSVD(DIMENSIONS, random_state=0)
    latent = make_pipeline(svd, FunctionTransformer(normalize))
    both = make_union(FunctionTransformer(), latent)
    both.fit(ngrams.fit_transform([*labelled.texts, *others.texts]))

    # The names of the classes are further texts of these.
    known = Texts(list(labelled.texts), list(labelled.labels))
    for name, text in zip(labelled.classes, names_as_texts(labelled.classes), strict=True):
        if text:
            known.texts.append(text)
            known.labels.append(name)

    features = both.transform(ngrams.transform(known.texts))
    model = LinearSVC(random_state=0).fit(features, known.labels)

    test_features = both.transform(ngrams.transform(test.texts))
    return list(model.predict(test_features))


def lines(rows: Sequence[Row]) -> list[str]:
    """A row for each data set and number of labels: means over draws."""
    cells = []
    for (data, labels), group in grouped(rows, "data", "labels").items():
        columns = grouped(group, "names", "system")
        line = [data, f"{labels:,}"]
        for names in (True, False):
            for system in (SVM, TRAINING):
                accuracies = values(columns.get((names, system), []), "accuracy")
                line.append(f"{100 * mean(accuracies):.1f}" if accuracies else NOT_MEASURED)

        seconds = values(columns.get((True, TRAINING), []), "seconds")
        line.append(f"{mean(seconds):.0f}" if seconds else NOT_MEASURED)
        cells.append(line)

    systems = [SVM, TRAINING, f"{SVM}, numbers", f"{TRAINING}, numbers"]
    return table(["data set", "labels", *systems, "processor seconds"], cells)


BENCHMARK = Benchmark("few_labels", __doc__, add_arguments, cases, measure, lines, rounds=5)

if __name__ == "__main__":
    BENCHMARK.main()
