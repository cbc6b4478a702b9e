"""The speed of training beside Hugging Face.

    python scripts/benchmarks/speed.py FOLDER [--only DATASET]... [--rounds N]
        [--output docs/results.md]

FOLDER is as that of `accuracy.py`. Each system trains in a process of its own, on 2,048 texts of at
most 128 tokens. Tokens a second exclude padding: of `encoder-cls train` they are the median of its
log, of the Trainer the mean after the first step. The speed of prediction is measured by `bulk.py`
and `cold.py`. The Trainer comes with `pip install -e '.[bench]'`.
"""

from __future__ import annotations

import argparse
import os
import statistics
import sys
import tempfile
from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

from shared.benchmark import Benchmark, Case, Found, Row, median, note, pivot
from shared.commands import metrics, run, train, work_folder
from shared.data import add_data_arguments, path_of, read, sample, write
from shared.hugging_face import Size
from shared.peers import installed

DATA = ("sst2", "ag_news")
SIZES = {str(size): size for size in (Size(128, 2), Size(256, 4))}
# The texts of a training.
MAX_TEXTS = 2048
# The tokens of a text.
MAX_TOKENS = 128
# An epoch on labels, without a linear model.
LABELS_ALONE = (
    "pretrain.epochs=0",
    "model.linear=false",
    "train.rdrop_weight=0",
    "train.epochs=1",
)
# An encoder as the others have it.
PLAIN = ("model.char_ngram_buckets=0", "model.bigram_buckets=0")
OURS = {
    "encoder-cls, plain encoder": PLAIN,
    "encoder-cls, default tables": (),
}
HF_BEST = "HF Trainer, best effort"
HF_DEFAULT = "HF Trainer, default"
# The systems that train, each with its precision.
TRAINING = [
    *(f"{system}, float32" for system in (*OURS, HF_BEST)),
    *(f"{system}, bfloat16" for system in (*OURS, HF_BEST)),
    f"{HF_DEFAULT}, float32",
]
# Steps of the Trainer with its defaults, which is slow.
DEFAULT_STEPS = 8


def cases(arguments: argparse.Namespace) -> list[Case]:
    """Texts and sizes by systems."""
    has_trainer = "hf-trainer" in installed(["hf-trainer"])
    systems = [name for name in TRAINING if has_trainer or not name.startswith("HF")]
    found = []
    for size in SIZES:
        for data in arguments.only or DATA:
            found += [{"data": data, "size": size, "system": system} for system in systems]
    return found


def measure(arguments: argparse.Namespace, case: Case) -> Found:
    """Tokens a second of one system."""
    os.environ.setdefault("HF_HUB_OFFLINE", "1")
    size = SIZES[case["size"]]
    system = case["system"]
    work = work_folder() / case["data"]
    if not work.exists():
        work.mkdir()
        whole = read(path_of(arguments.folder, case["data"], "train"))
        write(work / "train.parquet", sample(whole, MAX_TEXTS))

    if system.startswith("HF"):
        model = model_of(work, size)
        words = [system, case["size"], str(work / "train.parquet"), str(model)]
        ended = run([sys.executable, __file__, "--child", *words])
        return {"speed": float(ended.output.split()[-1])}

    ours, _, precision = system.rpartition(", ")
    return {"speed": train_ours(work, size, [*OURS[ours], f"train.precision={precision}"])}


def train_ours(work: Path, size: Size, overrides: Sequence[str]) -> float:
    """Train on labels; returns tokens a second, the median over the steps but for the first two."""
    with tempfile.TemporaryDirectory() as folder:
        values = [*settings(work, size), *LABELS_ALONE, "train.log_every=1", *overrides]
        train(values, Path(folder, "run"))
        rows = metrics(Path(folder, "run"))
    speeds = [float(row["tokens_per_s"]) for row in rows if "tokens_per_s" in row]
    return statistics.median(speeds[2:] or speeds)


def settings(work: Path, size: Size) -> list[str]:
    """The config values of the data and of the shape."""
    data = [f"data.train={work / 'train.parquet'}", "data.validation=null", "data.test=null"]
    return [*data, *size.overrides, f"model.max_seq_len={MAX_TOKENS}"]


def model_of(work: Path, size: Size) -> Path:
    """The model folder of a short training, whose tokenizer the Trainer takes."""
    run_dir = work / f"plain-{size.d_model}"
    if not run_dir.exists():
        note("a tokenizer for the Trainer")
        train([*settings(work, size), *LABELS_ALONE, *PLAIN], run_dir)
    return run_dir / "model"


def child(system: str, size: str, data: str, model: str) -> None:
    """Train by Hugging Face's Trainer in this process, and print tokens a second.

    By default it pads all texts to the same length; at its best to the longest of a batch, in
    which texts have similar lengths.
    """
    from shared.hugging_face import fit, load

    texts = read(Path(data))
    tokenizer = f"{model}/tokenizer.json"
    bert = load(tokenizer, texts.classes, max_length=MAX_TOKENS, size=SIZES[size])
    options: dict[str, Any] = {
        "per_device_train_batch_size": 64,
        "num_train_epochs": 1,
        "bf16": system.endswith("bfloat16"),
    }
    is_best = system.startswith(HF_BEST)
    if is_best:
        options["train_sampling_strategy"] = "group_by_length"
    else:
        options["max_steps"] = DEFAULT_STEPS
    print(fit(bert, texts, padding=not is_best, **options))


def lines(rows: Sequence[Row]) -> list[str]:
    """Tokens a second of systems by texts and sizes, medians over the rounds."""
    with_columns = []
    for row in rows:
        column = f"{row.case['data']} {row.case['size']}"
        with_columns.append(replace(row, case={**row.case, "column": column}))

    def cell(group: list[Row]) -> str:
        return f"{median(group, 'speed'):,.0f}"

    return pivot(with_columns, "system", "column", cell)


BENCHMARK = Benchmark(
    "speed", __doc__, partial(add_data_arguments, names=DATA), cases, measure, lines
)

if __name__ == "__main__":
    if sys.argv[1:2] == ["--child"]:
        child(*sys.argv[2:])
    else:
        BENCHMARK.main()
