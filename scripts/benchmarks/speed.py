"""The speed of training and of prediction beside Hugging Face, fastText and a linear model.

    python scripts/benchmarks/speed.py FOLDER [--only DATASET]... [--size 128/2]... [--rounds N]
        [--output docs/results.md]

FOLDER is as that of `accuracy.py`. A case is one system in a process of its own, on 2,048 texts at most: tokens a
second of `encoder-cls train` are the median of its own log, those of the Trainer are counted in the same way, without
padding. In prediction the models are loaded already; `cold.py` has the first answer. Weights of encoders that predict
are hardly trained, which does not change their speed. Others come with `pip install -e '.[bench]'`.
"""

from __future__ import annotations

import argparse
import os
import shutil
import statistics
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from shared.benchmark import Benchmark, Case, Found, Row, median, note, pivot
from shared.commands import metrics, run, train, work_folder
from shared.data import Texts, add_data_arguments, path_of, read, sample, write
from shared.hugging_face import Size
from shared.peers import FASTTEXT, LIBRARIES, Predict, fasttext_file, fasttext_model, installed, tfidf

DATA = ("sst2", "ag_news", "imdb", "example")
SIZES = {str(it): it for it in (Size(128, 2), Size(256, 4), Size(512, 6))}
MOST_TEXTS = 2048
LABELS_ALONE = ("pretrain.epochs=0", "model.linear=false", "train.rdrop_weight=0", "train.epochs=1")
PLAIN = ("model.char_ngram_buckets=0", "model.bigram_buckets=0")  # an encoder as the others have it
OURS = {"encoder-cls, plain encoder": PLAIN, "encoder-cls, default tables": ()}
OURS_WHOLE = "encoder-cls, default, with linear model"
HF_BEST, HF_DEFAULT = "HF Trainer, best effort", "HF Trainer, default"
PRECISIONS = ("float32", "bfloat16")
TRAINING = [
    *(f"{system}, {precision}" for precision in PRECISIONS for system in (*OURS, HF_BEST)),
    f"{HF_DEFAULT}, float32",
]
PEERS = {
    "HF pipeline, default": "hf-trainer",
    "HF pipeline, batched": "hf-trainer",
    "fastText": "fasttext",
    "TF-IDF, linear SVM": "tfidf-words",
}
PREDICTION = [*OURS, OURS_WHOLE, *PEERS]
LENGTHS = {"imdb": 512}  # tokens beyond which texts are cut; else 128
SECONDS = 1.0  # of a prediction, at least: else it is repeated


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add what to measure."""
    add_data_arguments(parser, DATA)
    parser.add_argument("--size", choices=SIZES, action="append", help="repeatable; default: 128/2 and 256/4")


def cases(arguments: argparse.Namespace) -> list[Case]:
    """Texts and sizes by systems, first of training, then of prediction."""
    there = installed(list(LIBRARIES))
    training = [it for it in TRAINING if not it.startswith("HF") or "hf-trainer" in there]
    prediction = [it for it in PREDICTION if it not in PEERS or PEERS[it] in there]
    return [
        {"part": part, "data": data, "size": size, "system": system}
        for part, systems in (("training", training), ("prediction", prediction))
        for size in arguments.size or ("128/2", "256/4")
        for data in arguments.only or ("sst2", "ag_news")
        for system in systems
    ]


def measure(arguments: argparse.Namespace, case: Case) -> Found:
    """Tokens or texts a second of one system."""
    os.environ.setdefault("HF_HUB_OFFLINE", "1")
    size, length = SIZES[case["size"]], LENGTHS.get(case["data"], 128)
    work = work_folder() / case["data"]
    if not work.exists():
        work.mkdir()
        write(work / "train.parquet", sample(read(path_of(arguments.folder, case["data"], "train")), MOST_TEXTS))
    if case["part"] == "training" and not case["system"].startswith("HF"):
        system, _, precision = case["system"].rpartition(", ")
        return {"speed": train_ours(work, size, length, [*OURS[system], f"train.precision={precision}"])}
    model = trained(work, size, length, case["system"])
    words = [case["part"], case["system"], case["size"], str(length), str(work / "train.parquet"), str(model)]
    return {"speed": float(run([sys.executable, __file__, "--child", *words]).output.split()[-1])}


def train_ours(work: Path, size: Size, length: int, overrides: Sequence[str]) -> float:
    """Tokens a second of a training on labels, the median over its steps but for the first ones."""
    with tempfile.TemporaryDirectory() as folder:
        train([*settings(work, size, length), *LABELS_ALONE, "train.log_every=1", *overrides], Path(folder, "run"))
        rows = metrics(Path(folder, "run"))
    speeds = [float(row["tokens_per_s"]) for row in rows if "tokens_per_s" in row]
    return statistics.median(speeds[2:] or speeds)


def settings(work: Path, size: Size, length: int) -> list[str]:
    """The config values of the data and of the shape."""
    data = [f"data.train={work / 'train.parquet'}", "data.validation=null", "data.test=null"]
    return [*data, *size.overrides, f"model.max_seq_len={length}"]


def trained(work: Path, size: Size, length: int, system: str) -> Path:
    """The model folder of a short training, made once; other systems take the tokenizer of the plain encoder's."""
    overrides = () if system == OURS_WHOLE else (*LABELS_ALONE, *OURS.get(system, PLAIN))
    kind = "whole" if system == OURS_WHOLE else "tables" if overrides == LABELS_ALONE else "plain"
    run_dir = work / f"{kind}-{size.d_model}"
    if not run_dir.exists():
        note(f"a model to predict with: {run_dir.name}")
        short = ("pretrain.epochs=0", "train.epochs=1")
        try:
            train([*settings(work, size, length), *short, *overrides], run_dir)
        except RuntimeError:
            shutil.rmtree(run_dir, ignore_errors=True)
            raise
    return run_dir / "model"


def child(part: str, system: str, size: str, length: str, data: str, model: str) -> None:
    """Measure another system's training, or a prediction, in this process; print amounts a second."""
    texts = read(Path(data))
    if part == "training":
        print(train_hugging_face(system, SIZES[size], int(length), texts, model))
        return
    predict = predictor(system, SIZES[size], int(length), texts, model)
    predict(texts.texts[:64])  # to warm up
    number, began = 0, time.perf_counter()
    while not number or time.perf_counter() - began < SECONDS:
        number += len(predict(texts.texts))
    print(number / (time.perf_counter() - began))


def train_hugging_face(system: str, size: Size, length: int, texts: Texts, model: str) -> float:
    """Tokens a second of Hugging Face's Trainer.

    By default it pads all texts to the same length; at its best to the longest of a batch, and texts of similar
    length come together.
    """
    from shared.hugging_face import fit, load

    bert = load(f"{model}/tokenizer.json", texts.classes, max_length=length, size=size)
    batch, is_bfloat16 = 64 if length == 128 else 8, system.endswith("bfloat16")
    options: dict[str, Any] = {"per_device_train_batch_size": batch, "bf16": is_bfloat16, "num_train_epochs": 1}
    if system.startswith(HF_BEST):
        speed = fit(bert, texts, train_sampling_strategy="group_by_length", **options)
    else:
        speed = fit(bert, texts, padding=True, max_steps=8, **options)
    return speed.tokens / speed.seconds


def predictor(system: str, size: Size, length: int, texts: Texts, model: str) -> Predict:
    """What answers texts by a loaded model."""
    if system not in PEERS:
        from encoder_cls import load_classifier

        classifier = load_classifier(model, device="cpu", engine="torch")
        return lambda them: [it.label or "" for it in classifier.predict(them)]
    if system == "fastText":
        path = fasttext_file(Path(tempfile.mkdtemp(dir=Path(model).parent), "train.txt"), texts)
        return fasttext_model(path, texts.classes, {**FASTTEXT, "wordNgrams": 2, "dim": 20, "epoch": 1})
    if system == "TF-IDF, linear SVM":
        return next(tfidf(texts, texts, 0, settings=[("linear SVM", 1.0)])).predict
    from shared.hugging_face import load

    bert = load(f"{model}/tokenizer.json", texts.classes, max_length=length, size=size)
    if system == "HF pipeline, batched":
        return bert.predict
    answer = bert.pipeline()
    return lambda them: [it["label"] for it in answer(list(them), truncation=True)]


def lines(rows: Sequence[Row]) -> list[str]:
    """Systems by texts and sizes, medians over the rounds."""
    found: list[str] = []
    for part, unit in (("training", "Training: tokens a second"), ("prediction", "Prediction: texts a second")):
        chosen = [_in_column(row) for row in rows if row.case["part"] == part]
        if chosen:
            found += ["", f"{unit}", ""] if found else [unit, ""]
            found += pivot(chosen, "system", "column", lambda them: f"{median(them, 'speed'):,.0f}")
    return found


def _in_column(row: Row) -> Row:
    case = {**row.case, "column": f"{row.case['data']} {row.case['size']}"}
    return Row(**{**vars(row), "case": case})


BENCHMARK = Benchmark("speed", __doc__, add_arguments, cases, measure, lines)

if __name__ == "__main__":
    if sys.argv[1:2] == ["--child"]:
        child(*sys.argv[2:])
    else:
        BENCHMARK.main()
