"""The speed of training beside Hugging Face.

    python scripts/benchmarks/speed.py FOLDER [--only DATASET]... [--size SIZE]... [--rounds N]
        [--device cpu|cuda] [--output docs/results.md]

FOLDER is as that of `accuracy.py`. Each system trains in a process of its own, on texts of at most
128 tokens: 2,048 of them on a CPU, 32,768 on a GPU. Tokens a second exclude padding: of
`encoder-cls train` they are the median of its log, of the Trainer the mean after its first step, or
on a GPU of the 150 steps after its first 20. The speed of prediction is measured by `bulk.py` and
`cold.py`.
The Trainer comes with `pip install -e '.[bench]'`.

`--device cuda` compares in bfloat16, with one more size, and fails where encoder-cls is less than
three times as fast as the Trainer's best effort (twice for 512/6). Its section is `speed-cuda`.
"""

from __future__ import annotations

import argparse
import os
import statistics
import sys
import tempfile
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple

from shared.benchmark import (
    Benchmark,
    Case,
    Found,
    Row,
    grouped,
    median,
    note,
    pivot,
)
from shared.commands import metrics, run, train, work_folder
from shared.data import add_data_arguments, path_of, read, sample, write
from shared.gpu import add_device_argument, check_device, gpu_lines, name_of_gpu
from shared.hugging_face import Size
from shared.peers import installed

DATA = ("sst2", "ag_news")
SIZES = {str(size): size for size in (Size(128, 2), Size(256, 4), Size(512, 6))}
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
OURS_PLAIN = "encoder-cls, plain encoder"
OURS_DEFAULT = "encoder-cls, default tables"
OURS = {OURS_PLAIN: PLAIN, OURS_DEFAULT: ()}
HF_BEST = "HF Trainer, best effort"
HF_DEFAULT = "HF Trainer, default"
# Steps of the Trainer with its defaults, which is slow, and on a GPU, where its speed is even.
DEFAULT_STEPS = 8
GPU_STEPS = 170
# On a GPU, how many times as fast as the Trainer's best effort encoder-cls has to be.
TARGETS = {"128/2": 3.0, "256/4": 3.0, "512/6": 2.0}


class Plan(NamedTuple):
    """What is measured on a kind of device.

    Attributes:
        sizes: the names of the sizes.
        systems: the systems that train, each with its precision.
        max_texts: the number of texts of a training.
        log_every: the number of steps between two rows of our log, of which the speed is read. A
            GPU is waited for at each row.
        warm_up: the number of the Trainer's first steps that are not timed.
    """

    sizes: Sequence[str]
    systems: Sequence[str]
    max_texts: int
    log_every: int
    warm_up: int


PLANS = {
    "cpu": Plan(
        sizes=["128/2", "256/4"],
        systems=[
            *(f"{system}, float32" for system in (*OURS, HF_BEST)),
            *(f"{system}, bfloat16" for system in (*OURS, HF_BEST)),
            f"{HF_DEFAULT}, float32",
        ],
        max_texts=2048,
        log_every=1,
        warm_up=1,
    ),
    "cuda": Plan(
        sizes=list(SIZES),
        systems=[f"{system}, bfloat16" for system in (*OURS, HF_BEST)],
        max_texts=32_768,
        log_every=10,
        warm_up=20,
    ),
}


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the folder of data sets, and the device."""
    add_data_arguments(parser, names=DATA)
    add_device_argument(parser)
    parser.add_argument("--size", action="append", choices=SIZES, help="default: all")


def cases(arguments: argparse.Namespace) -> list[Case]:
    """Texts and sizes by systems; a case without a device is of a CPU.

    Raises:
        SystemExit: there is no GPU to measure.
    """
    check_device(arguments)
    plan = PLANS[arguments.device]
    has_trainer = arguments.tables_only or "hf-trainer" in installed(["hf-trainer"])
    systems = [name for name in plan.systems if has_trainer or not name.startswith("HF")]
    device = {} if arguments.device == "cpu" else {"device": arguments.device}
    found = []
    for size in arguments.size or plan.sizes:
        for data in arguments.only or DATA:
            found += [{"data": data, "size": size, "system": name, **device} for name in systems]
    return found


def measure(arguments: argparse.Namespace, case: Case) -> Found:
    """Tokens a second of one system, and the name of the GPU if it is one that computes."""
    os.environ.setdefault("HF_HUB_OFFLINE", "1")
    device = arguments.device
    plan = PLANS[device]
    size = SIZES[case["size"]]
    system = case["system"]
    work = work_folder() / case["data"]
    if not work.exists():
        work.mkdir()
        whole = read(path_of(arguments.folder, case["data"], "train"))
        write(work / "train.parquet", sample(whole, plan.max_texts))

    gpu = name_of_gpu(device)
    if system.startswith("HF"):
        model = model_of(work)
        words = [system, case["size"], str(work / "train.parquet"), str(model), device]
        ended = run([sys.executable, __file__, "--child", *words])
        return {"speed": float(ended.output.split()[-1]), **gpu}

    ours, _, precision = system.rpartition(", ")
    overrides = [*OURS[ours], f"train.precision={precision}", f"train.log_every={plan.log_every}"]
    return {"speed": train_ours(work, size, overrides, device), **gpu}


def train_ours(work: Path, size: Size, overrides: Sequence[str], device: str) -> float:
    """Train on labels; returns tokens a second, the median over the log but for its first rows."""
    with tempfile.TemporaryDirectory() as folder:
        values = [*settings(work, size), *LABELS_ALONE, *overrides]
        train(values, Path(folder, "run"), device=device)
        rows = metrics(Path(folder, "run"))
    speeds = [float(row["tokens_per_s"]) for row in rows if "tokens_per_s" in row]
    return statistics.median(speeds[2:] or speeds)


def settings(work: Path, size: Size) -> list[str]:
    """The config values of the data and of the shape."""
    data = [f"data.train={work / 'train.parquet'}", "data.validation=null", "data.test=null"]
    return [*data, *size.overrides, f"model.max_seq_len={MAX_TOKENS}"]


def model_of(work: Path) -> Path:
    """The model folder of a short training, whose tokenizer the Trainer takes for all sizes."""
    run_dir = work / "plain"
    if not run_dir.exists():
        note("a tokenizer for the Trainer")
        smallest = SIZES["128/2"]
        train([*settings(work, smallest), *LABELS_ALONE, *PLAIN], run_dir)
    return run_dir / "model"


def child(system: str, size: str, data: str, model: str, device: str) -> None:
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
    if device == "cuda":
        # Let the Trainer neither wait at each step to look for losses that are not finite, nor make
        # batches in the process that trains.
        options["logging_nan_inf_filter"] = False
        options["dataloader_num_workers"] = 2
        options["max_steps"] = GPU_STEPS
    warm_up = PLANS[device].warm_up
    print(fit(bert, texts, padding=not is_best, device=device, warm_up=warm_up, **options))


def lines(rows: Sequence[Row]) -> list[str]:
    """Tokens a second of systems by texts and sizes, medians over the rounds."""
    with_columns = []
    for row in rows:
        column = f"{row.case['data']} {row.case['size']}"
        with_columns.append(replace(row, case={**row.case, "column": column}))

    def cell(group: list[Row]) -> str:
        return f"{median(group, 'speed'):,.0f}"

    return [*gpu_lines(rows), *pivot(with_columns, "system", "column", cell)]


def failures(rows: Sequence[Row]) -> list[str]:
    """The data sets and sizes at which encoder-cls misses its target on a GPU."""
    on_gpu = [row for row in rows if row.case.get("device") == "cuda"]

    found = []
    for (data, size), group in grouped(on_gpu, "data", "size").items():
        ours = [row for row in group if row.case["system"].startswith(OURS_DEFAULT)]
        theirs = [row for row in group if row.case["system"].startswith(HF_BEST)]
        if not ours or not theirs:
            continue
        ratio = median(ours, "speed") / median(theirs, "speed")
        if ratio < TARGETS[size]:
            found.append(f"{data} {size}: {ratio:.2f} times the Trainer, not {TARGETS[size]:.0f}")
    return found


BENCHMARK = Benchmark(
    "speed",
    __doc__,
    add_arguments,
    cases,
    measure,
    lines,
    failures=failures,
    section=lambda arguments: "speed" if arguments.device == "cpu" else "speed-cuda",
)

if __name__ == "__main__":
    if sys.argv[1:2] == ["--child"]:
        child(*sys.argv[2:])
    else:
        BENCHMARK.main()
