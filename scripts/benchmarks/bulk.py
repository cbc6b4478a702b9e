"""Bulk prediction, from a CSV file to a CSV file, beside scikit-learn, fastText and Hugging Face.

    python scripts/benchmarks/bulk.py FOLDER [--device cpu|cuda] [--threads 2]
        [--output docs/results.md]

FOLDER is as that of `accuracy.py`; the models learn from SST-2, and classify its sentences,
repeated to 100,000 texts. `encoder-cls predict` runs as a user runs it, its start included. The
others are loaded already: they read the texts, classify all of them in one call and write the
labels; Hugging Face's pipeline classifies a twentieth of them. They come with
`pip install -e '.[bench]'`.

`--device cuda` measures `encoder-cls predict` alone, with each choice of `--device`, on more texts,
and also with a model whose encoder computes every text. Its section is `bulk-cuda`.
"""

from __future__ import annotations

import argparse
import csv
import os
import sys
import tempfile
import time
from collections.abc import Sequence
from dataclasses import replace
from functools import cache
from itertools import cycle, islice, product
from pathlib import Path

import pyarrow.parquet
from shared.benchmark import (
    Benchmark,
    Case,
    Found,
    Row,
    grouped,
    median,
    pivot,
)
from shared.commands import PROGRAM, run, train, work_folder
from shared.data import Texts, add_data_arguments, overrides, path_of, read
from shared.gpu import add_device_argument, check_device, gpu_lines, name_of_gpu
from shared.page import NOT_MEASURED, table
from shared.peers import (
    FASTTEXT,
    LIBRARIES,
    Predict,
    fasttext_file,
    fasttext_model,
    installed,
    tfidf,
)

DATA = "sst2"
TEXTS = 100_000
# The numbers of texts where there is a GPU, and the choices of `predict --device`.
GPU_TEXTS = (100_000, 500_000)
PREDICT_DEVICES = ("cpu", "cuda", "auto")
# The slow system classifies one of so many texts.
SLOW_PART = 20
# The config values of each classifier of encoder-cls.
DEFAULT = "encoder-cls, default"
NO_ENCODER = "encoder-cls, model.encoder=false"
NO_CASCADE = "encoder-cls, model.cascade=false"
OURS = {
    DEFAULT: [],
    NO_ENCODER: ["model.encoder=false"],
    NO_CASCADE: ["model.cascade=false"],
}
SLOW = "HF pipeline, batched"
# The system whose speed the others are compared with.
BASE = "TF-IDF, linear SVM"
OTHERS = {BASE: "tfidf-words", "fastText": "fasttext", SLOW: "hf-trainer"}


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the folder of data sets, and the device."""
    add_data_arguments(parser, names=[DATA])
    add_device_argument(parser)


def cases(arguments: argparse.Namespace) -> list[Case]:
    """Systems; of encoder-cls by the format of the files, or on a GPU by the devices.

    Raises:
        SystemExit: there is no GPU to measure.
    """
    check_device(arguments)
    found: list[Case] = []
    if arguments.device == "cuda":
        for name, number, device in product((DEFAULT, NO_CASCADE), GPU_TEXTS, PREDICT_DEVICES):
            found.append({"system": name, "format": "csv", "texts": number, "device": device})
        return found

    for name in (DEFAULT, NO_ENCODER):
        for form in ("csv", "parquet"):
            found.append({"system": name, "format": form, "texts": TEXTS})

    peers = installed(list(LIBRARIES))
    for name, peer in OTHERS.items():
        if peer in peers:
            texts = TEXTS // SLOW_PART if name == SLOW else TEXTS
            found.append({"system": name, "format": "csv", "texts": texts})
    return found


def measure(arguments: argparse.Namespace, case: Case) -> Found:
    """The texts a second of one system, and its peak of memory."""
    folder = arguments.folder
    source = input_file(folder, case["texts"], case["format"])
    if case["system"] in OURS:
        model = trained(folder, case["system"], arguments.device)
        command = [*PROGRAM, "predict", "--model", str(model)]
        command += ["--input", str(source), "--device", case.get("device", "cpu")]
        with tempfile.TemporaryDirectory() as predictions:
            ended = run([*command, "--output", f"{predictions}/predictions.{case['format']}"])
        seconds = ended.seconds
    else:
        model = trained(folder, DEFAULT, "cpu")
        words = [case["system"], str(folder), str(source), str(model / "model")]
        ended = run([sys.executable, __file__, "--child", *words])
        seconds = float(ended.output.split()[-1])
    speed = case["texts"] / seconds
    return {"speed": speed, "peak": ended.peak_bytes, **name_of_gpu(arguments.device)}


@cache
def input_file(folder: Path, number: int, form: str) -> Path:
    """A file of so many texts."""
    train_texts = read(path_of(folder, DATA, "train")).texts
    test_texts = read(path_of(folder, DATA, "test")).texts
    texts = list(islice(cycle(train_texts + test_texts), number))

    path = work_folder() / f"{number}.{form}"
    if form == "parquet":
        pyarrow.parquet.write_table(pyarrow.table({"text": texts}), path, use_dictionary=False)
    else:
        write_column(path, "text", texts)
    return path


@cache
def trained(folder: Path, system: str, device: str) -> Path:
    """Train encoder-cls on all labels of the data set; returns the run folder."""
    path = work_folder() / "-".join(["run", *OURS[system]])
    train([*overrides(folder, DATA), *OURS[system]], path, device=device)
    return path


def child(system: str, folder: str, source: str, model: str) -> None:
    """Train another system in this process, classify a file with it, and print the seconds."""
    texts = read(path_of(Path(folder), DATA, "train"))
    predict = predictor(system, texts, model)
    predict(texts.texts[:64])  # to warm up

    output = Path(tempfile.mkdtemp(dir=Path(source).parent), "predictions.csv")

    began = time.perf_counter()
    with Path(source).open(newline="", encoding="utf-8") as file:
        predictions = predict([row["text"] for row in csv.DictReader(file)])
    write_column(output, "label", predictions)
    print(time.perf_counter() - began)


def predictor(system: str, texts: Texts, model: str) -> Predict:
    """Train another system; the encoder's weights are random, which does not change its speed."""
    if system == "fastText":
        path = fasttext_file(Path(tempfile.mkdtemp(), "train.txt"), texts)
        options = {**FASTTEXT, "wordNgrams": 2, "dim": 20, "epoch": 1}
        return fasttext_model(path, texts.classes, options)
    if system == BASE:
        trials = tfidf(texts, texts, 0, settings=[("linear SVM", 1.0)])
        return next(trials).predict

    from shared.hugging_face import SMALL, load

    return load(f"{model}/tokenizer.json", texts.classes, max_length=128, size=SMALL).predict


def write_column(path: Path, name: str, values: Sequence[str]) -> None:
    """Write a CSV file of one column."""
    with path.open("w", newline="", encoding="utf-8") as file:
        writer = csv.writer(file)
        writer.writerow([name])
        writer.writerows([value] for value in values)


def lines(rows: Sequence[Row]) -> list[str]:
    """A row for each system and format, medians over the rounds, with the ratio to TF-IDF.

    Of rows measured with a GPU, a row for each system and number of texts.
    """
    on_gpu = gpu_lines(rows)
    if on_gpu:
        return [*on_gpu, *lines_of_devices(rows)]

    base = [row for row in rows if row.case["system"] == BASE]
    cells = []
    for (system, form, texts), group in grouped(rows, "system", "format", "texts").items():
        name = f"{system}, Parquet" if form == "parquet" else f"{system}, CSV"
        speed = median(group, "speed")
        ratio = NOT_MEASURED
        if base:
            ratio = f"{speed / median(base, 'speed'):.2f}"
        memory = median(group, "peak") / 2**20
        cells.append([name, f"{texts:,}", f"{speed:,.0f}", ratio, f"{memory:,.0f}"])
    return table(["", "texts", "texts a second", "times TF-IDF's", "memory, MiB"], cells)


def lines_of_devices(rows: Sequence[Row]) -> list[str]:
    """Texts a second by the choice of `--device`, medians over the rounds."""
    with_names = []
    for row in rows:
        name = f"{row.case['system']}, {row.case['texts']:,} texts"
        column = f"--device {row.case['device']}"
        with_names.append(replace(row, case={**row.case, "name": name, "column": column}))

    def cell(group: list[Row]) -> str:
        return f"{median(group, 'speed'):,.0f}"

    return pivot(with_names, "name", "column", cell)


BENCHMARK = Benchmark(
    "bulk",
    __doc__,
    add_arguments,
    cases,
    measure,
    lines,
    section=lambda arguments: "bulk" if arguments.device == "cpu" else "bulk-cuda",
)

if __name__ == "__main__":
    os.environ.setdefault("HF_HUB_OFFLINE", "1")
    if sys.argv[1:2] == ["--child"]:
        child(*sys.argv[2:])
    else:
        BENCHMARK.main()
