"""The test accuracy of encoder-cls and of other systems after how many seconds.

    python scripts/benchmarks/anytime.py FOLDER [--only DATASET]... [--system SYSTEM]...
        [--rounds N] [--seconds N] [--output docs/results.md]

FOLDER is as that of `accuracy.py`. Each system has one thread, and the validation texts choose
whatever is chosen. A round's number is its seed. The picture is written beside the page. Run
nothing else meanwhile.
"""

from __future__ import annotations

import argparse
import json
import math
import shutil
import statistics
import tempfile
from collections.abc import Sequence
from contextlib import closing, suppress
from pathlib import Path

from accuracy import search
from shared.benchmark import Benchmark, Case, Found, Row, distinct, grouped
from shared.commands import train_command, watch
from shared.data import DATA, add_data_arguments, overrides, read, splits, write
from shared.page import NOT_MEASURED, table
from shared.peers import classifier_accuracy, installed

OURS = "encoder-cls"
YARDSTICK = "tfidf-svm"
SYSTEMS = {
    OURS: OURS,
    YARDSTICK: YARDSTICK,
    "fasttext": "fasttext-usual-first",
    "fasttext-autotune": "fasttext-autotune",
    "hf-trainer": "hf-trainer",
    "spacy": "spacy-ensemble",
}
# The moments of the table, as multiples of the time that the yardstick needs for its first model.
MOMENTS = (2, 16)
SECONDS_BETWEEN_LOOKS = 0.1
# Files that are being written.
UNFINISHED = shutil.ignore_patterns(".*")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add what to measure, and for how long."""
    add_data_arguments(parser)
    parser.add_argument(
        "--system", choices=SYSTEMS, action="append", help="repeatable; default: all"
    )
    parser.add_argument(
        "--seconds", type=float, default=600, help="after which a system is stopped; default: 600"
    )


def cases(arguments: argparse.Namespace) -> list[Case]:
    """Data sets by systems."""
    available = installed(list(SYSTEMS.values()))
    found = []
    for data in arguments.only or DATA:
        for system in arguments.system or SYSTEMS:
            if SYSTEMS[system] in available:
                found.append({"data": data, "system": system})
    return found


def measure(arguments: argparse.Namespace, case: Case) -> Found:
    """Measure one curve."""
    folder = arguments.folder
    seed = case["round"]
    with tempfile.TemporaryDirectory() as temporary:
        work = Path(temporary)
        for name, texts in splits(folder, case["data"], seed).items():
            write(work / f"{name}.parquet", texts)

        if case["system"] == OURS:
            return ours(overrides(folder, case["data"], seed), work, arguments.seconds)
        found: Found = json.loads(search(SYSTEMS[case["system"]], seed, arguments.seconds, work))
        return found


def ours(settings: Sequence[str], work: Path, limit: float) -> Found:
    """Watch `encoder-cls train` from outside: copy each model of the run, and score it later."""
    from encoder_cls import load_classifier

    weights = work / "run" / "model" / "model.safetensors"
    command = train_command(settings, work / "run")
    copies: list[tuple[float, Path]] = []
    last_change = 0
    start_up = 0.0
    seconds = 0.0
    with closing(watch(command, every=SECONDS_BETWEEN_LOOKS)) as looks:
        for _, seconds, messages in looks:
            if not start_up and "reading" in messages:
                start_up = seconds

            # There may be no model yet, or it is being replaced.
            with suppress(FileNotFoundError):
                change = weights.stat().st_mtime_ns
                if change != last_change:
                    target = work / f"{len(copies)}"
                    copy = shutil.copytree(weights.parent, target, ignore=UNFINISHED)
                    copies.append((seconds, copy))
                    last_change = change

            if seconds > limit:
                break

    test = read(work / "test.parquet")
    points = []
    for moment, copy in copies:
        classifier = load_classifier(copy, engine="torch")
        points.append((moment - start_up, classifier_accuracy(classifier, test)))
    return {"points": points, "start_up": start_up, "seconds": seconds - start_up}


def accuracies(rows: Sequence[Row], seconds: float) -> list[float]:
    """The accuracy of each seed's model after so many seconds; none if a seed has no model yet."""
    found = []
    for row in rows:
        until_then = [accuracy for moment, accuracy in row.found["points"] if moment <= seconds]
        if not until_then:
            return []
        found.append(until_then[-1])
    return found


def lines(rows: Sequence[Row]) -> list[str]:
    """Data sets and moments by systems."""
    measured = {row.case["system"] for row in rows}
    systems = [system for system in SYSTEMS if system in measured]
    groups = grouped(rows, "data", "system")

    found = []
    for data in distinct(row.case["data"] for row in rows):
        by_system = [groups.get((data, system), []) for system in systems]

        yardstick = groups.get((data, YARDSTICK))
        if yardstick:
            unit = statistics.mean(row.found["points"][0][0] for row in yardstick)
            for times in MOMENTS:
                seconds = times * unit
                digits = 1 if seconds < 10 else 0
                means = [_mean(accuracies(group, seconds)) for group in by_system]
                found.append([data, f"{seconds:.{digits}f} s", *means])

        found.append([data, "end", *(_end(group) for group in by_system)])
    return table(["data set", "after", *systems], found, left=2)


def _mean(numbers: Sequence[float]) -> str:
    return f"{100 * statistics.mean(numbers):.1f}" if numbers else NOT_MEASURED


def _end(rows: Sequence[Row]) -> str:
    """The accuracy at the end of a search and, in brackets, its seconds."""
    accuracy = _mean(accuracies(rows, math.inf))
    if not rows:
        return accuracy
    seconds = statistics.mean(row.found["seconds"] for row in rows)
    return f"{accuracy} ({seconds:.0f} s)"


def draw(rows: Sequence[Row], path: Path) -> None:
    """Draw a panel for each data set, a line for each system: the mean over seeds."""
    from matplotlib.figure import Figure

    names = distinct(row.case["data"] for row in rows)
    height = math.ceil(len(names) / 2)
    figure = Figure(figsize=(9, 3.2 * height), layout="constrained", dpi=110)
    panels = dict(zip(names, figure.subplots(height, 2, squeeze=False).flat, strict=False))
    for (data, system), group in grouped(rows, "data", "system").items():
        seconds, means = _steps(group)
        color = f"C{list(SYSTEMS).index(system)}"
        panels[data].step(seconds, means, where="post", label=system, color=color)

    for name, panel in panels.items():
        panel.set(
            title=name,
            xscale="log",
            xlabel="seconds after start-up, one thread",
            ylabel="test accuracy, %",
        )
        panel.grid(visible=True, alpha=0.3)
    for unused_panel in figure.axes[len(names) :]:
        unused_panel.remove()

    handles, labels = panels[names[0]].get_legend_handles_labels()
    figure.legend(handles, labels, loc="outside lower center", ncols=len(SYSTEMS))
    figure.savefig(path, metadata={"Software": None})


def _steps(rows: Sequence[Row]) -> tuple[list[float], list[float]]:
    """The seconds at which the mean accuracy changes, and its percentage from then on."""
    moments = set()
    for row in rows:
        moments.add(row.found["seconds"])
        moments.update(moment for moment, _ in row.found["points"])

    seconds = []
    means = []
    for moment in sorted(moments):
        found = accuracies(rows, moment)
        if found:
            seconds.append(moment)
            means.append(100 * statistics.mean(found))
    return seconds, means


BENCHMARK = Benchmark("anytime", __doc__, add_arguments, cases, measure, lines, draw=draw)

if __name__ == "__main__":
    BENCHMARK.main()
