"""Answers in bulk, from a CSV file to a CSV file, beside scikit-learn, fastText and Hugging Face.

    python scripts/benchmarks/bulk.py FOLDER [--threads 2] [--output docs/results.md]

FOLDER is as that of `accuracy.py`; the models learn from SST-2, and answer its sentences, repeated to 100,000
texts. `encoder-cls predict` runs as a user runs it, its start included. The others are loaded already: they read the
texts, answer all of them in one call and write the labels; Hugging Face's pipeline answers a twentieth of them. Others
come with `pip install -e '.[bench]'`.
"""

from __future__ import annotations

import argparse
import csv
import os
import sys
import tempfile
import time
from collections.abc import Sequence
from functools import cache, partial
from itertools import cycle, islice
from pathlib import Path

import pyarrow.parquet
from shared.benchmark import Benchmark, Case, Found, Row, grouped, median
from shared.commands import PROGRAM, run, train, work_folder
from shared.data import Texts, add_data_arguments, overrides, path_of, read
from shared.page import table
from shared.peers import (
    FASTTEXT,
    LIBRARIES,
    Predict,
    fasttext_file,
    fasttext_model,
    installed,
    tfidf,
)

DATA, TEXTS = "sst2", 100_000
OURS = {"encoder-cls, default": [], "encoder-cls, model.encoder=false": ["model.encoder=false"]}
SLOW = "HF pipeline, batched"
BASE = "TF-IDF, linear SVM"  # to which ratios are
OTHERS = {BASE: "tfidf-words", "fastText": "fasttext", SLOW: "hf-trainer"}


def cases(_arguments: argparse.Namespace) -> list[Case]:
    """Systems; of encoder-cls by the format of the files."""
    ours = [{"system": name, "format": form} for name in OURS for form in ("csv", "parquet")]
    peers = installed(list(LIBRARIES))
    others = [{"system": name, "format": "csv"} for name, peer in OTHERS.items() if peer in peers]
    return [
        {**case, "texts": TEXTS // (20 if case["system"] == SLOW else 1)} for case in ours + others
    ]


def measure(arguments: argparse.Namespace, case: Case) -> Found:
    """The texts a second of one system, and its peak of memory."""
    folder, form = arguments.folder, case["format"]
    source = input_file(folder, case["texts"], form)
    if case["system"] in OURS:
        with tempfile.TemporaryDirectory() as answers:
            words = [
                "--input",
                str(source),
                "--output",
                f"{answers}/answers.{form}",
                "--device",
                "cpu",
            ]
            ended = run(
                [*PROGRAM, "predict", "--model", str(trained(folder, case["system"])), *words]
            )
        return {"speed": case["texts"] / ended.seconds, "peak": ended.peak_bytes}
    model = trained(folder, "encoder-cls, default") / "model"
    ended = run(
        [sys.executable, __file__, "--child", case["system"], str(folder), str(source), str(model)]
    )
    return {"speed": case["texts"] / float(ended.output.split()[-1]), "peak": ended.peak_bytes}


@cache
def input_file(folder: Path, number: int, form: str) -> Path:
    """A file of so many texts."""
    sentences = [
        text for split in ("train", "test") for text in read(path_of(folder, DATA, split)).texts
    ]
    texts, path = list(islice(cycle(sentences), number)), work_folder() / f"{number}.{form}"
    if form == "parquet":
        pyarrow.parquet.write_table(pyarrow.table({"text": texts}), path, use_dictionary=False)
    else:
        write_column(path, "text", texts)
    return path


@cache
def trained(folder: Path, system: str) -> Path:
    """A run of all labels of the data set."""
    path = work_folder() / f"run-{len(OURS[system])}"
    train([*overrides(folder, DATA), *OURS[system]], path)
    return path


def child(system: str, folder: str, source: str, model: str) -> None:
    """Train another system in this process, answer a file with it, and print the seconds of the latter."""
    texts = read(path_of(Path(folder), DATA, "train"))
    predict = predictor(system, texts, model)
    predict(texts.texts[:64])  # to warm up
    began = time.perf_counter()
    with Path(source).open(newline="", encoding="utf-8") as file:
        found = predict([row["text"] for row in csv.DictReader(file)])
    write_column(Path(tempfile.mkdtemp(dir=Path(source).parent), "answers.csv"), "label", found)
    print(time.perf_counter() - began)


def predictor(system: str, texts: Texts, model: str) -> Predict:
    """Train another system; the encoder's weights are random, which does not change its speed."""
    if system == "fastText":
        path = fasttext_file(Path(tempfile.mkdtemp(), "train.txt"), texts)
        return fasttext_model(
            path, texts.classes, {**FASTTEXT, "wordNgrams": 2, "dim": 20, "epoch": 1}
        )
    if system == BASE:
        return next(tfidf(texts, texts, 0, settings=[("linear SVM", 1.0)])).predict
    from shared.hugging_face import SMALL, load

    return load(f"{model}/tokenizer.json", texts.classes, max_length=128, size=SMALL).predict


def write_column(path: Path, name: str, values: Sequence[str]) -> None:
    """Write a CSV file of one column."""
    with path.open("w", newline="", encoding="utf-8") as file:
        csv.writer(file).writerows([[name], *([value] for value in values)])


def lines(rows: Sequence[Row]) -> list[str]:
    """A row for each system and format, medians over the rounds, with the ratio to TF-IDF."""
    base = [row for row in rows if row.case["system"] == BASE]
    cells = []
    for (system, form, texts), them in grouped(rows, "system", "format", "texts").items():
        speed, memory = median(them, "speed"), f"{median(them, 'peak') / 2**20:,.0f}"
        name = f"{system}, {'Parquet' if form == 'parquet' else 'CSV'}"
        ratio = f"{speed / median(base, 'speed'):.2f}" if base else "-"
        cells.append([name, f"{texts:,}", f"{speed:,.0f}", ratio, memory])
    return table(["", "texts", "texts a second", "times TF-IDF's", "memory, MiB"], cells)


BENCHMARK = Benchmark(
    "bulk", __doc__, partial(add_data_arguments, names=[DATA]), cases, measure, lines
)

if __name__ == "__main__":
    os.environ.setdefault("HF_HUB_OFFLINE", "1")
    if sys.argv[1:2] == ["--child"]:
        child(*sys.argv[2:])
    else:
        BENCHMARK.main()
