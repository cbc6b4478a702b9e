"""Test accuracy at each amount of text and each time limit, beside the scripts that people write.

    python scripts/benchmarks/large_data.py FOLDER [--texts N]... [--budget TIME]...
        [--system SYSTEM]... [--seconds N] [--output docs/results.md]

FOLDER is as that of `accuracy.py`. The texts of four of its data sets are the classes of one: the
topics of ag_news, the sentiments of sst2, the kinds of questions of trec6, and banking77 in seven
groups. A training text is a copy of one of them in which words are missing, added or exchanged.
Test texts are unchanged texts of the test splits. The settings of encoder-cls are its defaults.

A script that cannot stop at any time is measured once, and is shown for the time limits that it has
kept. A system is stopped after so many --seconds. Run nothing else meanwhile.
"""

from __future__ import annotations

import argparse
import json
import math
import sys
from collections.abc import Sequence
from pathlib import Path

import numpy as np
from numpy.random import Generator
from shared.benchmark import Benchmark, Case, Found, Row, distinct, grouped
from shared.commands import PROGRAM, memory_of, report, run, train_command, watch, work_folder
from shared.data import FOLDER_HELP, Texts, read, write
from shared.page import NOT_MEASURED, table
from shared.peers import installed
from shared.usual_scripts import SCRIPTS

from encoder_cls.system.display import duration, seconds_named

OURS = "encoder-cls"
# The script that can stop at any time.
ANY_TIME = "hashing-sgd"
SIZES = (5_000, 50_000, 500_000, 5_000_000)
NO_LIMIT = "none"
BUDGETS = ("30s", "2m", "5m", NO_LIMIT)
MAX_TEST_TEXTS = 20_000
SECONDS_BETWEEN_LOOKS = 0.1

# The shares of words that a copy of a text lacks, of copies in which two words are exchanged, and
# the most words that are added to a copy.
MISSING = 0.15
EXCHANGED = 0.3
MAX_ADDED = 2


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add what to measure."""
    parser.add_argument("folder", type=Path, help=FOLDER_HELP)
    parser.add_argument("--texts", type=int, action="append", help=f"repeatable; default: {SIZES}")
    parser.add_argument("--budget", action="append", help=f"repeatable; default: {BUDGETS}")
    parser.add_argument("--system", choices=(OURS, *SCRIPTS), action="append", help="repeatable")
    parser.add_argument("--seconds", type=float, default=1200, help="default: 1200")


def cases(arguments: argparse.Namespace) -> list[Case]:
    """Amounts of text by systems by budgets."""
    systems = arguments.system or (OURS, *SCRIPTS)
    available = [system for system in systems if system == OURS or installed([system])]

    found = []
    for size in arguments.texts or SIZES:
        for system in available:
            budgets = [NO_LIMIT]
            if system in (OURS, ANY_TIME):
                budgets = arguments.budget or list(BUDGETS)
            for budget in budgets:
                found.append({"texts": size, "system": system, "budget": budget})
    return found


def measure(arguments: argparse.Namespace, case: Case) -> Found:
    """Train one system on so many texts within a time limit."""
    train, test = files(arguments.folder, case["texts"])
    run_dir = work_folder() / "-".join(str(value) for value in case.values())

    if case["system"] == OURS:
        settings = [f"data.train={train}", f"data.test={test}", "data.validation=null"]
        if case["budget"] != NO_LIMIT:
            settings.append(f"train.time_budget={case['budget']}")
        command = train_command(settings, run_dir)
    else:
        limit = 0.0
        if case["budget"] != NO_LIMIT:
            limit = seconds_named(case["budget"])
        module = "shared.usual_scripts"
        output = run_dir.with_suffix(".json")
        script = [sys.executable, "-m", module, case["system"], str(train), str(test), str(limit)]
        shell = f'cd "$0" && exec "$@" > {output}'
        command = ["sh", "-c", shell, str(Path(__file__).parent), *script]

    seconds = 0.0
    peak = 0
    for pid, now, _ in watch(command, every=SECONDS_BETWEEN_LOOKS):
        seconds = now
        peak = max(peak, memory_of(pid, "VmHWM"))
        if seconds > arguments.seconds:
            return {"accuracy": None, "seconds": seconds, "peak_bytes": peak}

    if case["system"] == OURS:
        # A report within a time limit may score a sample of the test texts, as the others do not.
        if report(run_dir)["unscored_texts"]:
            run([*PROGRAM, "eval", str(run_dir)])
        scores = report(run_dir)
        found = {"accuracy": scores["accuracy"], "unread": scores["unread_texts"]}
    else:
        found = json.loads(output.read_text(encoding="utf-8"))
    return {**found, "seconds": seconds, "peak_bytes": peak}


def files(folder: Path, size: int) -> tuple[Path, Path]:
    """The files of training texts and of test texts, which are made if they are missing."""
    train = work_folder() / f"train-{size}.parquet"
    test = work_folder() / "test.parquet"
    random = np.random.default_rng(0)
    if not test.exists():
        texts = joined(folder, "test")
        write(test, texts.take(random.permutation(len(texts.texts))[:MAX_TEST_TEXTS]))
    if not train.exists():
        write(train, copies(joined(folder, "train"), size, random))
    return train, test


def joined(folder: Path, split: str) -> Texts:
    """The texts of four data sets, with the name of the data set in their labels."""
    found = Texts([], [])
    for name in ("ag_news", "sst2", "trec6", "banking77"):
        texts = read(folder / name / f"{split}.parquet")
        for text, label in zip(texts.texts, texts.labels, strict=True):
            group = label
            if name == "banking77":
                group = str(sum(map(ord, label)) % 7)
            found.texts.append(text)
            found.labels.append(f"{name} {group}")
    return found


def copies(texts: Texts, size: int, random: Generator) -> Texts:
    """So many changed copies of texts that are drawn at random."""
    words = " ".join(texts.texts[::7]).split()
    found = Texts([], [])
    for row in random.integers(0, len(texts.texts), size).tolist():
        found.texts.append(changed(texts.texts[row], words, random))
        found.labels.append(texts.labels[row])
    return found


def changed(text: str, words: Sequence[str], random: Generator) -> str:
    """A copy of a text without some of its words, with other words, in another order."""
    all_words = text.split()
    kept = []
    for word, chance in zip(all_words, random.random(len(all_words)), strict=True):
        if chance >= MISSING:
            kept.append(word)
    kept = kept or all_words

    for _ in range(int(random.integers(0, MAX_ADDED + 1))):
        place = int(random.integers(0, len(kept) + 1))
        kept.insert(place, words[int(random.integers(0, len(words)))])

    if len(kept) > 1 and random.random() < EXCHANGED:
        place = int(random.integers(0, len(kept) - 1))
        kept[place], kept[place + 1] = kept[place + 1], kept[place]
    return " ".join(kept)


def lines(rows: Sequence[Row]) -> list[str]:
    """Amounts of text and time limits by systems."""
    systems = distinct(row.case["system"] for row in rows)
    groups = grouped(rows, "texts", "system", "budget")

    found = []
    for size in distinct(row.case["texts"] for row in rows):
        for budget in distinct(row.case["budget"] for row in rows):
            cells = []
            for system in systems:
                exact = groups.get((size, system, budget))
                whole = groups.get((size, system, NO_LIMIT))
                cells.append(_cell(exact, whole, budget))
            found.append([f"{size:,}", budget, *cells])
    return table(["texts", "time limit", *systems], found, left=2)


def _cell(exact: Sequence[Row] | None, whole: Sequence[Row] | None, budget: str) -> str:
    """The accuracy of a system within a time limit, with its seconds, memory and unread texts."""
    limit = math.inf
    if budget != NO_LIMIT:
        limit = seconds_named(budget)

    rows = exact
    if not exact and whole and whole[0].found["seconds"] <= limit:
        rows = whole
    if not rows:
        return NOT_MEASURED
    found = rows[0].found
    if found["accuracy"] is None:
        return f"not within {duration(found['seconds'])}"

    cell = f"{100 * found['accuracy']:.1f} ({duration(found['seconds'])}, "
    cell += f"{found['peak_bytes'] / 1e9:.1f} GB"
    if found.get("unread"):
        cell += f", {found['unread']:,} unread"
    return f"{cell})"


BENCHMARK = Benchmark(
    name="large_data",
    doc=__doc__,
    add_arguments=add_arguments,
    cases=cases,
    measure=measure,
    lines=lines,
    rounds=1,
)

if __name__ == "__main__":
    BENCHMARK.main()
