"""README's table, made of what several benchmarks have measured."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from statistics import mean
from typing import Any

from encoder_cls.system.display import duration
from shared.benchmark import Row, median, of_newest_commit, origin, read_all, values
from shared.page import NOT_MEASURED, table, wrapped

# The benchmarks whose results the table needs.
PARTS_OF_TABLE = {"accuracy", "few_labels", "large_data", "bulk"}
HEADS = [
    "",
    "encoder-cls",
    "fastText",
    "TF-IDF and a linear model, your script",
    "a Transformer from scratch, HF `Trainer`",
]
# The methods of the columns in `accuracy.py`; of several, the better one counts.
METHODS = [
    ["encoder-cls"],
    ["fastText"],
    ["TF-IDF, words", "TF-IDF, characters too"],
    ["HF Trainer"],
]
DATA_SETS = {
    "trec6": "TREC-6 (4,906 texts)",
    "sst2": "SST-2 (6,920 texts)",
    "banking77": "BANKING77 (9,000 texts, 77 classes)",
    "ag_news": "AG News (33,486 texts)",
    "imdb": "IMDB (22,500 texts)",
}
# What is not measured.
PROPERTIES = [
    ["calibrated probabilities", "yes", "no", "yours to write", "yours to write"],
    [
        "after a crash",
        "`--resume` ends with the same weights",
        "train again",
        "train again",
        "from the last checkpoint",
    ],
    ["report, explanations, curves", "all three", "-", "yours to write", "curves"],
    ["needs PyTorch", "to train; not to predict", "no", "no", "yes"],
]
NOTES = (
    "Accuracy is in percent, on test texts. Training time leaves out the search for settings; of "
    "words and characters, the better one counts. HF (Hugging Face) trains a small BERT from "
    "random weights, for 200 seconds (a dash: not measured, or no epoch ended by then); the 5 "
    "million texts are changed copies of others, for which the script hashes words and learns by "
    "SGD. [Results](docs/results.md) has methods and commands."
)

Rows = list[Row]


def readme_lines(results: Path) -> list[str]:
    """The table, what its numbers are, and where they were measured."""
    rows = {name: of_newest_commit(read_all(results / f"{name}.jsonl")) for name in PARTS_OF_TABLE}
    lines = []
    for data, title in DATA_SETS.items():
        of_methods = [_best(rows["accuracy"], data, methods) for methods in METHODS]
        lines.append([f"accuracy, {title}", *_percents([_mean(group) for group in of_methods])])

    few = "accuracy, AG News, 100 labelled and 10,000 unlabelled texts"
    case = {"data": "ag_news", "labels": 100, "names": True}
    of_few = [_of(rows["few_labels"], {**case, "system": name}) for name in ("encoder-cls", "SVM")]
    ours, svm = [_mean(group) for group in of_few]
    lines.append([few, *_percents([ours, None, svm, None])])

    lines.append(["training on SST-2, one CPU thread", *_training_times(rows["accuracy"])])
    lines.append(
        ["accuracy, 5 million short texts in 2 minutes, 2 cores", *_large(rows["large_data"])]
    )
    lines.append(["predictions a second, sentences, file to file, 2 cores", *_speeds(rows["bulk"])])
    measured = [row for name in sorted(PARTS_OF_TABLE) for row in rows[name]]
    return [
        *table(HEADS, [*lines, *PROPERTIES], left=len(HEADS)),
        "",
        *wrapped(NOTES),
        "",
        *origin(measured),
    ]


def _of(rows: Rows, case: dict[str, Any]) -> Rows:
    """The rows whose cases have these values."""
    return [row for row in rows if case.items() <= row.case.items()]


def _mean(rows: Rows) -> float | None:
    """The mean accuracy; None if nothing was measured."""
    numbers = values(rows, "accuracy")
    return mean(numbers) if numbers else None


def _best(rows: Rows, data: str, methods: Sequence[str]) -> Rows:
    """The rows of the most accurate of some methods."""
    groups = [_of(rows, {"data": data, "method": method}) for method in methods]
    return max(groups, key=lambda group: _mean(group) or 0.0)


def _percents(accuracies: Sequence[float | None]) -> list[str]:
    """Cells of accuracies, the best in bold."""
    best = max(value for value in accuracies if value is not None)
    cells = []
    for value in accuracies:
        cell = NOT_MEASURED if value is None else f"{100 * value:.1f}"
        cells.append(f"**{cell}**" if value == best else cell)
    return cells


def _cells(groups: Sequence[Rows], cell: Callable[[Rows], str]) -> list[str]:
    return [cell(group) if group else NOT_MEASURED for group in groups]


def _training_times(rows: Rows) -> list[str]:
    """The median seconds of each method."""
    groups = [_best(rows, "sst2", methods) for methods in METHODS]
    return _cells(groups, lambda group: f"{median(group, 'seconds'):.2g} s")


def _large(rows: Rows) -> list[str]:
    """The accuracy on five million texts, with the time of fastText, which takes longer."""
    of_texts = _of(rows, {"texts": 5_000_000})
    ours = _mean(_of(of_texts, {"system": "encoder-cls", "budget": "2m"}))
    fasttext = _of(of_texts, {"system": "fasttext", "budget": "none"})
    hashing = _mean(_of(of_texts, {"system": "hashing-sgd", "budget": "2m"}))

    cells = _percents([ours, _mean(fasttext), hashing, None])
    if cells[1] != NOT_MEASURED:
        cells[1] += f" ({duration(median(fasttext, 'seconds'))})"
    return cells


def _speeds(rows: Rows) -> list[str]:
    """Texts a second from a CSV file."""
    systems = ("encoder-cls, default", "fastText", "TF-IDF, linear SVM", "HF pipeline, batched")
    groups = [_of(rows, {"system": system, "format": "csv"}) for system in systems]
    return _cells(groups, lambda group: f"{round(median(group, 'speed'), -2):,.0f}")
