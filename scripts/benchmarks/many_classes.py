"""Accuracy, processor time and memory with very many classes, beside usual linear models.

    python scripts/benchmarks/many_classes.py [--shape CLASSESxTEXTS]... [--system SYSTEM]...
        [--limit TIME]... [--output docs/results.md]

The texts are made up: some ten words each, of which some belong to their class alone, some to a
group of ten classes, and the others, most of them, to no class. The linear model of encoder-cls is
trained without an encoder; with a limit, also in so much time. The others learn from words and
pairs of words: scikit-learn's from TF-IDF values, fastText with a hierarchical softmax (`hs`) and
with a classifier for each class (`ova`).
"""

from __future__ import annotations

import argparse
import json
import random
import sys
from collections.abc import Sequence
from pathlib import Path

import numpy as np
from shared.benchmark import Benchmark, Case, Found, Row, distinct, grouped
from shared.commands import run, train, work_folder
from shared.data import Texts, read, write
from shared.many_class_scripts import SCRIPTS, top_accuracies
from shared.page import NOT_MEASURED, table
from shared.peers import installed

from encoder_cls import load_classifier

OURS = "encoder-cls"
# What stands between the system and its limit.
LIMIT = " in "
# Classes, and training texts of each.
SHAPES = ("77x130", "150x100", "800x20", "3000x5", "5000x2")
TEST_TEXTS = 4000

WORDS = 20_000
WORDS_OF_CLASS = 8
WORDS_OF_GROUP = 15
CLASSES_OF_GROUP = 10
# The shares of words that belong to the class and to its group.
OF_CLASS = 0.14
OF_GROUP = 0.1
# The exponent of the frequencies of the other words.
PARETO = 0.55


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add what to measure."""
    parser.add_argument("--shape", action="append", help=f"repeatable; default: {SHAPES}")
    parser.add_argument("--system", choices=(OURS, *SCRIPTS), action="append", help="repeatable")
    parser.add_argument(
        "--limit",
        action="append",
        default=[],
        help="a time, such as 10s, for encoder-cls; repeatable",
    )


def cases(arguments: argparse.Namespace) -> list[Case]:
    """Shapes by systems."""
    found = []
    systems = installed(arguments.system or (OURS, *SCRIPTS))
    systems += [f"{OURS}{LIMIT}{limit}" for limit in arguments.limit]
    for shape in arguments.shape or SHAPES:
        for system in systems:
            found.append({"shape": shape, "system": system})
    return found


def measure(_arguments: argparse.Namespace, case: Case) -> Found:
    """Train one system on the texts of one shape, and score it."""
    num_classes, num_texts = map(int, case["shape"].split("x"))
    train_file, test_file = files(num_classes, num_texts)

    system, _, limit = case["system"].partition(LIMIT)
    if system == OURS:
        run_dir = work_folder() / f"run-{case['shape']}-{limit}-{case['round']}"
        settings = [f"data.train={train_file}", f"data.test={test_file}", "model.encoder=false"]
        if limit:
            settings.append(f"train.time_budget={limit}")
        ended = train(settings, run_dir)
        classifier = load_classifier(run_dir)
        test = read(test_file)
        scores = classifier.predict_proba(test.texts)
        found = top_accuracies(scores, list(classifier.label_names), test.labels)
    else:
        words = ["-m", "shared.many_class_scripts", case["system"], train_file, test_file]
        shell = f'cd "{Path(__file__).parent}" && exec "$0" "$@"'
        ended = run(["sh", "-c", shell, sys.executable, *map(str, words)])
        found = json.loads(ended.output)
    return {**found, "seconds": ended.processor_seconds, "peak_bytes": ended.peak_bytes}


def files(num_classes: int, num_texts: int) -> tuple[Path, Path]:
    """The files of training texts and of test texts, which are made if they are missing."""
    train_file = work_folder() / f"train-{num_classes}-{num_texts}.parquet"
    test_file = work_folder() / f"test-{num_classes}-{num_texts}.parquet"
    if not test_file.exists():
        make = MadeUpTexts(num_classes)
        write(train_file, make.texts([*range(num_classes)] * num_texts))
        test_classes = [number % num_classes for number in range(TEST_TEXTS)]
        write(test_file, make.texts(test_classes))
    return train_file, test_file


class MadeUpTexts:
    """Makes texts of so many classes; equal calls in equal order give equal texts."""

    def __init__(self, num_classes: int) -> None:
        self._random = random.Random(0)
        self._words = [self._word(2, 4) for _ in range(WORDS)]
        self._of_class = [self._words_of(WORDS_OF_CLASS) for _ in range(num_classes)]

        num_groups = 1 + num_classes // CLASSES_OF_GROUP
        self._of_group = []
        for _ in range(num_groups):
            self._of_group.append(self._random.choices(self._words, k=WORDS_OF_GROUP))

    def texts(self, classes: Sequence[int]) -> Texts:
        """A text of each of these classes, in random order."""
        shuffled = list(classes)
        self._random.shuffle(shuffled)
        texts = [self._text(number) for number in shuffled]
        return Texts(texts, [f"class {number}" for number in shuffled])

    def _text(self, number: int) -> str:
        words = []
        for _ in range(self._random.randint(6, 14)):
            chance = self._random.random()
            if chance < OF_CLASS:
                words.append(self._random.choice(self._of_class[number]))
            elif chance < OF_CLASS + OF_GROUP:
                words.append(self._random.choice(self._of_group[number // CLASSES_OF_GROUP]))
            else:
                rank = int(self._random.paretovariate(PARETO))
                words.append(self._words[min(WORDS, rank) - 1])
        return " ".join(words)

    def _words_of(self, count: int) -> list[str]:
        return [self._word(3, 5) for _ in range(count)]

    def _word(self, shortest: int, longest: int) -> str:
        """A word of so many syllables."""
        syllables = []
        for _ in range(self._random.randint(shortest, longest)):
            consonant = self._random.choice("bcdfgklmnprstv")
            syllables.append(consonant + self._random.choice("aeiou"))
        return "".join(syllables)


def lines(rows: Sequence[Row]) -> list[str]:
    """Shapes by systems."""
    systems = distinct(row.case["system"] for row in rows)
    groups = grouped(rows, "shape", "system")

    found = []
    for shape in distinct(row.case["shape"] for row in rows):
        num_classes, num_texts = map(int, shape.split("x"))
        cells = [_cell(groups.get((shape, system))) for system in systems]
        found.append([f"{num_classes:,}", f"{num_texts:,}", *cells])
    return table(["classes", "texts of each", *systems], found, left=2)


def _cell(rows: Sequence[Row] | None) -> str:
    """Accuracy and top-5 in percent, the seconds and the memory."""
    if not rows:
        return NOT_MEASURED
    keys = ("accuracy", "top_5", "seconds", "peak_bytes")
    mean = {key: float(np.mean([row.found[key] for row in rows])) for key in keys}
    return (
        f"{100 * mean['accuracy']:.1f}, {100 * mean['top_5']:.1f} "
        f"({mean['seconds']:.0f} s, {mean['peak_bytes'] / 1e9:.1f} GB)"
    )


BENCHMARK = Benchmark(
    name="many_classes",
    doc=__doc__,
    add_arguments=add_arguments,
    cases=cases,
    measure=measure,
    lines=lines,
    section=lambda arguments: "limits" if arguments.limit else "many_classes",
    rounds=1,
)

if __name__ == "__main__":
    BENCHMARK.main()
