"""Whether NumPy and small weights answer as PyTorch and exact weights do, on real data.

    python scripts/benchmarks/engines.py FOLDER [--only NAME]... [--set section.key=value]... [--output docs/engines.md]

FOLDER holds a subfolder for each data set (trec6, sst2, ...) with train.parquet and test.parquet, with the columns
`text` and `label`; `example` is the bundled data. On each a classifier is trained, shortly unless `--set` says
otherwise; then all test texts are classified by both engines, and by the weights before and after they were made small.
The command fails where a label differs between engines, or a logit by more than 1e-5 times the largest.
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
import torch
from reporting import cpu_name, note, table
from sklearn.metrics import f1_score

from encoder_cls.config import load_config
from encoder_cls.inference.logits import softmax
from encoder_cls.inference.serialization import load_classifier
from encoder_cls.tracking.run_dir import RunDir
from encoder_cls.training import final_report
from encoder_cls.training.compaction import compact
from encoder_cls.training.setup import prepare
from encoder_cls.training.trainer import train

DATA = ("example", "trec6", "sst2", "banking77", "ag_news", "imdb")
SHORT = ["pretrain.epochs=1", "train.epochs=2"]
TOLERANCE = 1e-5  # of a logit, in units of the largest
COLUMNS = [
    "data set", "test texts", "labels that differ", "largest difference of a logit", "size, MB", "exact, MB",
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
        row, differs = compare(name, arguments.folder, [*SHORT, *arguments.overrides])
        rows.append(row)
        failures += [name] * differs
        note(" | ".join(row))
    command = shlex.join(["python", "scripts/benchmarks/engines.py", "FOLDER", *sys.argv[2:]])
    text = "\n".join(
        [
            "# Engines and small weights",
            "",
            f"On {cpu_name()}, torch {torch.__version__}, NumPy {np.__version__}. Made by `{command}`.",
            "",
            "Labels and logits: all test texts by NumPy and by PyTorch in float32, from the same model folder. Size is",
            "that of `model.safetensors` as training leaves it, exact that of float32; accuracy and macro-F1 are of",
            f"both. Trainings are short ({', '.join(SHORT)}), unless the command says otherwise.",
            "",
            *table(COLUMNS, rows),
            "",
        ]
    )
    if arguments.output:
        arguments.output.write_text(text)
    else:
        print(text)
    if failures:
        sys.exit(f"NumPy and PyTorch differ on {', '.join(failures)}")


def compare(name: str, folder: Path, overrides: list[str]) -> tuple[list[str], bool]:
    """The row of a data set, and whether the engines differ on it."""
    with tempfile.TemporaryDirectory() as temporary:
        run, exact = RunDir(Path(temporary) / "run"), Path(temporary) / "exact"
        setup = prepare(load_config(None, [*sources(name, folder), *overrides]))
        _train(setup, run, exact)
        by_numpy, by_torch = (load_classifier(run.path, device="cpu", engine=it) for it in ("numpy", "torch"))
        split = setup.dataset.test
        assert split is not None
        tokenized = by_torch.tokenize(split.texts)
        found, expected = by_numpy.logits(tokenized), by_torch.logits(tokenized)
        before = load_classifier(exact, device="cpu", engine="torch").logits(tokenized)
        difference = float(np.abs(found - expected).max())
        num_different = int((found.argmax(axis=1) != expected.argmax(axis=1)).sum())
        small, large = ((it / "model.safetensors").stat().st_size for it in (run.model, exact))
        accuracies = [100 * (logits.argmax(axis=1) == split.labels).mean() for logits in (expected, before)]
        scores = [100 * f1_score(split.labels, logits.argmax(axis=1), average="macro") for logits in (expected, before)]
        note(
            f"largest change of a probability by small weights: {np.abs(softmax(expected) - softmax(before)).max():.4f}"
        )
    row = [name, f"{len(split):,}", str(num_different), f"{difference:.1e}", f"{small / 1e6:.1f}", f"{large / 1e6:.1f}"]
    row += [f"{value:.2f}" for pair in (accuracies, scores) for value in pair]
    return row, num_different > 0 or difference > TOLERANCE * float(np.abs(expected).max())


def sources(name: str, folder: Path) -> list[str]:
    """The overrides that name the data."""
    if name == "example":
        return []
    data = folder / name
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
