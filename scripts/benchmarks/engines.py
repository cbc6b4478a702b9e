"""Whether NumPy and small weights answer as PyTorch and exact weights do, on real data.

    python scripts/benchmarks/engines.py FOLDER [--only NAME]... [--set section.key=value]... [--output docs/engines.md]

FOLDER holds a subfolder for each data set (trec6, sst2, ...) with train.parquet and test.parquet, with the columns
`text` and `label`; `example` is the bundled data. On each a classifier is trained, shortly unless `--set` says
otherwise; then all test texts are classified by both engines, and by the weights before and after they were made small.
Of the longest texts, imdb, every fifth is taken. The page is written anew after each data set. The command fails where
a label differs between engines, or a logit by more than 1e-5 times the largest, or where small weights change macro-F1
by more than 0.1 points.
"""

from __future__ import annotations

import argparse
import shlex
import shutil
import sys
import tempfile
from pathlib import Path
from typing import Any
from unittest.mock import patch

import numpy as np
import pyarrow.parquet
import torch
from reporting import cpu_name, note, table
from sklearn.metrics import f1_score

from encoder_cls.config import load_config
from encoder_cls.inference.classifier import Classifier
from encoder_cls.inference.logits import Logits, combine_logits, softmax
from encoder_cls.inference.serialization import load_classifier
from encoder_cls.text.token_arrays import TokenizedTexts
from encoder_cls.tracking.run_dir import RunDir
from encoder_cls.training import final_report
from encoder_cls.training.compaction import compact
from encoder_cls.training.prepare import prepare
from encoder_cls.training.trainer import train

DATA = ("example", "trec6", "sst2", "banking77", "sst2_glue", "ag_news", "imdb")
EVERY = {"imdb": 5}  # of a data set one text in so many: NumPy alone would take half an hour for all of them
SHORT = ["pretrain.epochs=1", "train.epochs=2"]
TOLERANCE = 1e-5  # of a logit, in units of the largest
MOST_CHANGE = 0.1  # of macro-F1 by small weights, in points
COLUMNS = [
    "data set", "test texts", "labels that differ", "of the encoder", "largest difference of a logit", "of the encoder",
    "size, MB", "exact, MB",
    "accuracy %", "exact", "macro-F1 %", "exact",
]  # fmt: skip


def main() -> None:
    """Train, compare, and print or write the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--only", choices=DATA, action="append", help="repeatable; default: all")
    parser.add_argument("--set", action="append", default=[], dest="overrides", help="of the training; repeatable")
    parser.add_argument("--output", type=Path, help="a Markdown file to write; default: standard output")
    arguments = parser.parse_args()
    rows, failures = [], []
    for name in arguments.only or DATA:
        note(f"{name} ...")
        row, failed = compare(name, arguments.folder, [*SHORT, *arguments.overrides])
        rows.append(row)
        failures += [f"{name}: {reason}" for reason in failed]
        note(" | ".join(row))
        if arguments.output:
            arguments.output.write_text(document(rows))
    if not arguments.output:
        print(document(rows))
    if failures:
        sys.exit("\n".join(failures))


def document(rows: list[list[str]]) -> str:
    """The Markdown page."""
    command = shlex.join(["python", "scripts/benchmarks/engines.py", "FOLDER", *sys.argv[2:]])
    names = [row[0] for row in rows]
    parts = [f"Of {name} one text in {EVERY[name]} is taken, in training and test." for name in names if name in EVERY]
    lines = [
        "# Engines and small weights",
        "",
        f"On {cpu_name()}, torch {torch.__version__}, NumPy {np.__version__}; made by",
        "",
        "```sh",
        command,
        "```",
        "",
        "Labels and logits: all test texts by NumPy and by PyTorch in float32, from the same model folder; what",
        "differs between the two, of the whole answer and of the encoder alone, whose part in the answer is small",
        "after so short a training. Size is that of `model.safetensors` as training leaves it, in the smallest types",
        "that keep its answers on the validation texts, without the rows that training never touched; exact is that of",
        "all weights in float32. Accuracy and macro-F1 on the test texts are of both, too. Trainings are short",
        f"({', '.join(SHORT)}), unless the command says otherwise: it is differences that count.",
        "",
        *parts,
        "go_emotions, with several labels a text, is not among them.",
        "",
        *table(COLUMNS, rows),
        "",
    ]
    return "\n".join(lines)


def compare(name: str, folder: Path, overrides: list[str]) -> tuple[list[str], list[str]]:
    """The row of a data set, and what does not hold on it."""
    with tempfile.TemporaryDirectory() as temporary:
        run, exact = RunDir(Path(temporary) / "run"), Path(temporary) / "exact"
        setup = prepare(load_config(None, [*sources(name, folder, Path(temporary)), *overrides]))
        _train(setup, run, exact)
        by_numpy, by_torch = (load_classifier(run.path, device="cpu", engine=it) for it in ("numpy", "torch"))
        split = setup.dataset.test
        assert split is not None
        tokenized = by_torch.tokenize(split.texts)
        (found_encoder, found), (encoder, expected) = logits(by_numpy, tokenized), logits(by_torch, tokenized)
        before = load_classifier(exact, device="cpu", engine="torch").logits(tokenized)
        sizes = [(it / "model.safetensors").stat().st_size for it in (run.model, exact)]
    pairs = ((found, expected), (found_encoder, encoder))
    num_different = [int((one.argmax(axis=1) != other.argmax(axis=1)).sum()) for one, other in pairs]
    differences = [float(np.abs(one - other).max()) for one, other in pairs]
    answers = [it.argmax(axis=1) for it in (expected, before)]
    accuracies = [100 * (labels == split.labels).mean() for labels in answers]
    scores = [100 * f1_score(split.labels, labels, average="macro") for labels in answers]
    note(f"largest change of a probability by small weights: {np.abs(softmax(expected) - softmax(before)).max():.4f}")
    row = [name, f"{len(split):,}", *map(str, num_different), *(f"{difference:.1e}" for difference in differences)]
    row += [f"{size / 1e6:.1f}" for size in sizes]
    row += [f"{value:.2f}" for pair in (accuracies, scores) for value in pair]
    failed = []
    largest = [float(np.abs(other).max()) for _, other in pairs]
    if any(num_different) or any(it > TOLERANCE * most for it, most in zip(differences, largest, strict=True)):
        failed.append("NumPy and PyTorch differ")
    if abs(scores[0] - scores[1]) > MOST_CHANGE:
        failed.append(f"small weights change macro-F1 by {scores[0] - scores[1]:+.2f} points")
    return row, failed


def logits(classifier: Classifier, texts: TokenizedTexts) -> tuple[Logits, Logits]:
    """Those of the encoder, and those of the whole classifier."""
    assert classifier.encoder is not None
    encoder = classifier.encoder.logits(texts)
    parts = [encoder] + ([classifier.linear.logits(texts)] if classifier.linear else [])
    return encoder, combine_logits(parts, classifier.mixture_weights).astype(np.float32)


def sources(name: str, folder: Path, temporary: Path) -> list[str]:
    """The overrides that name the data; a part of it is put into a temporary folder."""
    if name == "example":
        return []
    data = folder / name
    if name in EVERY:
        for split in ("train", "test"):
            rows = pyarrow.parquet.read_table(data / f"{split}.parquet")
            part = rows.take(list(range(0, len(rows), EVERY[name])))
            pyarrow.parquet.write_table(part, temporary / f"{split}.parquet")
        data = temporary
    return [f"data.train={data / 'train.parquet'}", "data.validation=null", f"data.test={data / 'test.parquet'}"]


def _train(setup: Any, run: RunDir, exact: Path) -> None:
    """Train into a run; the model before its weights are made small goes to another folder."""

    def keep_and_compact(folder: Path, *arguments: Any, **options: Any) -> dict[str, str]:
        shutil.copytree(folder, exact)
        return compact(folder, *arguments, **options)

    with patch.object(final_report, "compact", keep_and_compact):
        for _ in train(setup, run, device=torch.device("cpu")):
            pass


if __name__ == "__main__":
    main()
