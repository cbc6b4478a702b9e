"""Topics of sentences in many languages (SIB-200), beside GPT-4 and GPT-3.5 without training.

    python scripts/benchmarks/sib200.py FILE [--languages N] [--output docs/published.md]

FILE is the Parquet file that the page describes: `language`, `split`, `text`, `label`, and of test
texts the answers of the two models, `gpt_4` and `gpt_3_5`. The languages are drawn by lot: the
first twenty of 205, or as many as `--languages` says. encoder-cls learns with its default config;
the SVM from TF-IDF of words or of characters besides, the better one of validation.
"""

from __future__ import annotations

import argparse
import json
import re
import tempfile
from collections.abc import Sequence
from functools import cache
from pathlib import Path
from statistics import mean, median
from typing import Any

import numpy as np
import pyarrow.parquet
from accuracy import FOREVER, search
from shared.benchmark import Benchmark, Case, Found, Row, grouped, values
from shared.commands import report, train
from shared.data import Texts, write
from shared.page import NOT_MEASURED, table, wrapped

OURS = "encoder-cls"
SVM = "TF-IDF and SVM"
GPT_4 = "GPT-4, zero-shot"
GPT_3_5 = "GPT-3.5, zero-shot"
ANSWERS = {GPT_4: "gpt_4", GPT_3_5: "gpt_3_5"}
SYSTEMS = (OURS, SVM, *ANSWERS)
# How an answer may begin to name a class, such as "Science and technology" or "political".
CLASS_OF_STEM = {
    "science": "science/technology",
    "technolog": "science/technology",
    "travel": "travel",
    "politic": "politics",
    "sport": "sports",
    "health": "health",
    "entertain": "entertainment",
    "geograph": "geography",
}
SPLITS = ("train", "validation", "test")
NUM_LANGUAGES = 20


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the file, and how many languages."""
    parser.add_argument("file", type=Path)
    parser.add_argument(
        "--languages", type=int, default=NUM_LANGUAGES, help=f"default: {NUM_LANGUAGES}"
    )


def cases(arguments: argparse.Namespace) -> list[Case]:
    """Languages by systems; fewer languages are the first of more."""
    names = pyarrow.parquet.read_table(arguments.file, columns=["language"])["language"]
    languages = sorted(names.unique().to_pylist())
    drawn = np.random.default_rng(0).permutation(languages)[: arguments.languages]
    return [
        {"language": str(language), "system": system} for language in drawn for system in SYSTEMS
    ]


def measure(arguments: argparse.Namespace, case: Case) -> Found:
    """The accuracy on the test texts of a language."""
    rows = {split: read_rows(arguments.file, case["language"], split) for split in SPLITS}
    system = case["system"]
    if system in ANSWERS:
        answer = ANSWERS[system]
        right = [class_named(row[answer]) == row["label"] for row in rows["test"]]
        return {"accuracy": mean(right)}

    with tempfile.TemporaryDirectory() as name:
        work = Path(name)
        for split in SPLITS:
            texts = [row["text"] for row in rows[split]]
            labels = [row["label"] for row in rows[split]]
            write(work / f"{split}.parquet", Texts(texts, labels))

        if system == SVM:
            curve = json.loads(search("tfidf-svm", case["round"], FOREVER, work))
            return {"accuracy": curve["points"][-1][1]}

        settings = [f"data.{split}={work / split}.parquet" for split in SPLITS]
        ended = train([*settings, f"seed={case['round']}"], work / "run")
        return {
            "accuracy": report(work / "run")["accuracy"],
            "seconds": ended.processor_seconds,
        }


@cache
def read_rows(path: Path, language: str, split: str) -> list[dict[str, Any]]:
    """The rows of a split of a language."""
    table = pyarrow.parquet.read_table(
        path, filters=[("language", "=", language), ("split", "=", split)]
    )
    rows: list[dict[str, Any]] = table.to_pylist()
    return rows


def class_named(answer: str) -> str | None:
    """The class that a free answer names first; None if it names none."""
    found = re.search("|".join(CLASS_OF_STEM), answer.lower())
    return CLASS_OF_STEM[found[0]] if found else None


def lines(rows: Sequence[Row]) -> list[str]:
    """A row for each language, and the mean, the median and the languages above GPT-4 of all."""
    accuracies: dict[str, dict[str, float]] = {}
    for (language, system), group in grouped(rows, "language", "system").items():
        accuracies.setdefault(language, {})[system] = mean(values(group, "accuracy"))

    whole = [found for found in accuracies.values() if len(found) == len(SYSTEMS)]
    cells = []
    for language, found in sorted(accuracies.items()):
        cells.append([language, *(_percent(found.get(system)) for system in SYSTEMS)])
    for name, middle in (("mean", mean), ("median", median)):
        cells.append([name, *(_percent(middle(_column(whole, system))) for system in SYSTEMS)])

    above = []
    for system in (OURS, SVM):
        count = sum(found[system] > found[GPT_4] for found in whole)
        above.append(f"{system} in {count}")
    seconds = [row for row in rows if row.case["system"] == OURS]
    summary = (
        f"Above GPT-4, of {len(whole)} languages: {', '.join(above)}. A training of encoder-cls "
        f"takes {median(values(seconds, 'seconds')):.0f} seconds of processor time."
    )
    return [*table(["language", *SYSTEMS], cells), "", *wrapped(summary)]


def _column(languages: Sequence[dict[str, float]], system: str) -> list[float]:
    return [found[system] for found in languages]


def _percent(accuracy: float | None) -> str:
    return NOT_MEASURED if accuracy is None else f"{100 * accuracy:.1f}"


BENCHMARK = Benchmark("sib200", __doc__, add_arguments, cases, measure, lines, rounds=1)

if __name__ == "__main__":
    BENCHMARK.main()
