"""How many labels `suggest` saves, simulated: its texts are labelled batch by batch, beside texts in random order.

    python scripts/benchmarks/suggestions.py FOLDER [--only NAME]... [--draws N] [--output docs/suggestions.md]

FOLDER holds a subfolder for each data set (trec6, ag_news, ...) with train.parquet and test.parquet, with the columns
`text` and `label`. A linear classifier is fitted on 100 labels drawn at random, 50 texts of the others get their label,
it is fitted again, and so on; both ways begin with the same 100. The table says how many labels suggestions need for
the accuracy on test texts that random order reaches with so many; the picture beside the page has the curves. The
command fails where that is more than two thirds of the labels of random order at its end, on fewer than three sets.
"""

from __future__ import annotations

import argparse
import shlex
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np
import pyarrow.parquet
import torch
from numpy.typing import NDArray
from reporting import cpu_name, note, table

from encoder_cls.config import TokenizerConfig
from encoder_cls.inference.classifier import Classifier
from encoder_cls.inference.suggestions import suggest
from encoder_cls.text.tokenizer import tokenize
from encoder_cls.text.tokenizer_trainer import train_and_tokenize
from encoder_cls.training.nbsvm import fit_linear

DATA = ("trec6", "ag_news", "sst2", "banking77")
FIRST, BATCH, MOST_RANDOM, MOST_SUGGESTED = 100, 50, 1000, 700  # labels
COMPARED = (300, 500, 700, 1000)  # labels in random order, whose accuracy is to be reached
MOST_TEXTS, MOST_TEST_TEXTS = 6000, 2000  # of a data set
MAX_SEQ_LEN, MAX_TOKENS = 256, 512
WANTED, WANTED_ON = 2 / 3, 3  # part of the labels, on so many data sets
RANDOM, SUGGESTED = "random order", "suggest"

Curve = dict[int, list[float]]
"""By the number of labels the accuracy of each draw."""


class Texts(NamedTuple):
    """Texts with their class numbers."""

    texts: list[str]
    labels: NDArray[np.int64]


def main() -> None:
    """Simulate, and print or write the table and the picture."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--only", choices=DATA, action="append", help="repeatable; default: all")
    parser.add_argument("--draws", type=int, default=2, help="of the first labels and the random order")
    parser.add_argument("--output", type=Path, help="a Markdown file to write, the picture beside it")
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    curves: dict[str, dict[str, Curve]] = {}
    for name in arguments.only or DATA:
        curves[name] = {RANDOM: {}, SUGGESTED: {}}
        for draw in range(arguments.draws):
            for way in (RANDOM, SUGGESTED):
                note(f"{name}, {way}, draw {draw} ...")
                for size, accuracy in simulate(name, arguments.folder, way, draw):
                    curves[name][way].setdefault(size, []).append(accuracy)
        text = document(curves, arguments.draws)
        if arguments.output:
            arguments.output.write_text(text)
            draw_curves(curves, arguments.output.with_suffix(".png"))
    if not arguments.output:
        print(text)
    shares = [needed(of_data, MOST_RANDOM) for of_data in curves.values()]
    reached = sum(share is not None and share <= WANTED * MOST_RANDOM for share in shares)
    if reached < min(WANTED_ON, len(curves)):
        sys.exit(f"two thirds of the labels are enough on {reached} data sets only")


def simulate(name: str, folder: Path, way: str, draw: int) -> list[tuple[int, float]]:
    """Numbers of labels and the accuracy with them."""
    (pool, test), names = read(name, folder)
    tokenizer, tokenized = train_and_tokenize(pool.texts, TokenizerConfig(), max_seq_len=MAX_SEQ_LEN)
    test_tokens = tokenize(tokenizer, test.texts, max_seq_len=MAX_SEQ_LEN)
    random = np.random.default_rng(draw)
    order = random.permutation(len(pool.texts))
    labelled, curve = order[:FIRST], []
    while True:
        linear = fit_linear(
            tokenized.take(labelled),
            pool.labels[labelled],
            class_weights=np.ones(len(names), dtype=np.float32),
            max_tokens=MAX_TOKENS,
            use_char_ngrams=True,
        )
        curve.append((len(labelled), float((linear.logits(test_tokens).argmax(axis=1) == test.labels).mean())))
        if len(labelled) >= (MOST_RANDOM if way == RANDOM else MOST_SUGGESTED):
            return curve
        if way == RANDOM:
            labelled = order[: len(labelled) + BATCH]
            continue
        classifier = Classifier(None, tokenizer, names, max_seq_len=MAX_SEQ_LEN, linear=linear)
        others = np.setdiff1d(np.arange(len(pool.texts)), labelled)
        found = suggest(classifier, [[("", int(row), pool.texts[row]) for row in others]], BATCH)
        labelled = np.concatenate([labelled, [it.line for it in found]])


def read(name: str, folder: Path) -> tuple[tuple[Texts, Texts], list[str]]:
    """Training and test texts, some of them, and the names of the classes."""
    tables = [pyarrow.parquet.read_table(folder / name / f"{split}.parquet") for split in ("train", "test")]
    names = sorted(set(tables[0].column("label").to_pylist()))
    numbers = {label: number for number, label in enumerate(names)}
    splits = []
    for rows, most in zip(tables, (MOST_TEXTS, MOST_TEST_TEXTS), strict=True):
        chosen = rows.take(np.random.default_rng(0).permutation(len(rows))[:most])
        labels = np.array([numbers[label] for label in chosen.column("label").to_pylist()], dtype=np.int64)
        splits.append(Texts(chosen.column("text").to_pylist(), labels))
    return (splits[0], splits[1]), names


def means(curve: Curve) -> tuple[list[int], NDArray[np.float64]]:
    """Numbers of labels and mean accuracies, the highest so far."""
    sizes = sorted(curve)
    return sizes, np.maximum.accumulate([float(np.mean(curve[size])) for size in sizes])


def needed(curves: dict[str, Curve], size: int) -> float | None:
    """With how many labels suggestions get to what random order does with `size`; none: not with those simulated."""
    sizes, accuracies = means(curves[RANDOM])
    wanted = accuracies[sizes.index(size)]
    sizes, accuracies = means(curves[SUGGESTED])
    if accuracies[-1] < wanted:
        return None
    first = int((accuracies >= wanted).argmax())
    if first == 0:
        return float(sizes[0])
    return float(np.interp(wanted, accuracies[first - 1 : first + 1], sizes[first - 1 : first + 1]))


def document(curves: dict[str, dict[str, Curve]], draws: int) -> str:
    """The Markdown page."""
    command = shlex.join(["python", "scripts/benchmarks/suggestions.py", "FOLDER", *sys.argv[2:]])
    lines = [
        "# What `suggest` saves, simulated",
        "",
        f"Linear model alone, {draws} draws of the first {FIRST} labels, batches of {BATCH}, on {cpu_name()}; "
        f"pools of {MOST_TEXTS:,} training texts at most, {MOST_TEST_TEXTS:,} test texts. Made by",
        "",
        "```sh",
        command,
        "```",
        "",
        "How many labels it takes for the accuracy of random order with so many: of the texts that are suggested,",
        "and as a part of the number in random order. Means over the draws; a dash where the last suggested batch, of",
        f"{MOST_SUGGESTED} labels, is not enough.",
        "",
        "Two thirds are the aim; how much is saved depends on the data. What was tried is in the",
        "[log](experiments/accuracy.md#suggestions).",
        "",
        *table(["data set", *(f"{size:,} in random order" for size in COMPARED)], [_row(*it) for it in curves.items()]),
        "",
        "![Accuracy by the number of labels, of suggested texts and in random order](suggestions.png)",
        "",
    ]
    return "\n".join(lines)


def _row(name: str, curves: dict[str, Curve]) -> Sequence[str]:
    cells = [name]
    for size in COMPARED:
        labels = needed(curves, size)
        wanted = dict(zip(*means(curves[RANDOM]), strict=True))[size]
        cells.append(f"{100 * wanted:.1f}%: " + (f"{labels:.0f} ({labels / size:.2f})" if labels else "-"))
    return cells


def draw_curves(curves: dict[str, dict[str, Curve]], path: Path) -> None:
    """A panel for each data set."""
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    figure = Figure(figsize=(3.6 * len(curves), 3.2), layout="constrained", dpi=110)
    FigureCanvasAgg(figure)
    for axes, (name, of_data) in zip(figure.subplots(1, len(curves), squeeze=False)[0], curves.items(), strict=True):
        for number, (way, curve) in enumerate(of_data.items()):
            sizes = sorted(curve)
            accuracies = 100 * np.array([[np.mean(curve[it]), np.min(curve[it]), np.max(curve[it])] for it in sizes]).T
            axes.plot(sizes, accuracies[0], label=way, color=f"C{number}")
            axes.fill_between(sizes, accuracies[1], accuracies[2], color=f"C{number}", alpha=0.2, linewidth=0)
        axes.set(title=name, xlabel="labelled texts", ylabel="accuracy, %")
        axes.grid(visible=True, alpha=0.3)
        axes.legend(loc="lower right")
    figure.savefig(path, metadata={"Software": None})


if __name__ == "__main__":
    main()
