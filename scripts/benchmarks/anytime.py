"""The test accuracy of encoder-cls and of other systems after how many seconds.

    python scripts/benchmarks/anytime.py FOLDER [--only DATASET]... [--system SYSTEM]... [--rounds N] [--seconds N]
        [--output docs/results.md]

FOLDER is as that of `accuracy.py`. Each system has one thread, and the validation texts choose whatever is chosen. A
round's number is its seed. The picture is written beside the page. Run nothing else meanwhile.
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
from shared.benchmark import Benchmark, Case, Found, Row, grouped
from shared.commands import train_command, watch
from shared.data import DATA, add_data_arguments, overrides, read, splits, write
from shared.page import NOT_MEASURED, table
from shared.peers import classifier_accuracy, installed

OURS, YARDSTICK = "encoder-cls", "tfidf-svm"
SYSTEMS = {
    OURS: OURS,
    YARDSTICK: YARDSTICK,
    "fasttext": "fasttext-usual-first",
    "fasttext-autotune": "fasttext-autotune",
    "hf-trainer": "hf-trainer",
    "spacy": "spacy-ensemble",
}
MOMENTS = (2, 16)  # times what TF-IDF and a linear SVM need for their first model
SECONDS_BETWEEN_LOOKS = 0.1
UNFINISHED = shutil.ignore_patterns(".*")  # files that are being written


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
    there = installed(list(SYSTEMS.values()))
    systems = [it for it in arguments.system or SYSTEMS if SYSTEMS[it] in there]
    return [{"data": data, "system": it} for data in arguments.only or DATA for it in systems]


def measure(arguments: argparse.Namespace, case: Case) -> Found:
    """One curve."""
    folder, data, seed = arguments.folder, case["data"], case["round"]
    with tempfile.TemporaryDirectory() as temporary:
        work = Path(temporary)
        for name, texts in splits(folder, data, seed).items():
            write(work / f"{name}.parquet", texts)
        if case["system"] == OURS:
            return ours(overrides(folder, data, seed), work, arguments.seconds)
        found: Found = json.loads(search(SYSTEMS[case["system"]], seed, arguments.seconds, work))
        return found


def ours(settings: Sequence[str], work: Path, limit: float) -> Found:
    """Watch `encoder-cls train` from outside: copy each model in the run's folder, and score it later."""
    from encoder_cls import load_classifier

    weights, copies = work / "run" / "model" / "model.safetensors", list[tuple[float, Path]]()
    seen, start_up, seconds = 0, 0.0, 0.0
    with closing(
        watch(train_command(settings, work / "run"), every=SECONDS_BETWEEN_LOOKS)
    ) as looks:
        for _, seconds, said in looks:
            if not start_up and "reading" in said:
                start_up = seconds
            with suppress(FileNotFoundError):
                changed = weights.stat().st_mtime_ns
                if changed != seen:
                    copy = shutil.copytree(
                        weights.parent, work / f"{len(copies)}", ignore=UNFINISHED
                    )
                    copies.append((seconds, copy))
                    seen = changed
            if seconds > limit:
                break
    test, points = read(work / "test.parquet"), []
    for moment, copy in copies:
        classifier = load_classifier(copy, engine="torch")
        score = classifier_accuracy(classifier, test)
        points.append((moment - start_up, score))
    return {"points": points, "start_up": start_up, "seconds": seconds - start_up}


def accuracies(rows: Sequence[Row], seconds: float) -> list[float]:
    """The accuracy of each seed's model by then; none where a seed has no model yet."""
    had = [
        [accuracy for moment, accuracy in row.found["points"] if moment <= seconds] for row in rows
    ]
    return [points[-1] for points in had] if all(had) else []


def lines(rows: Sequence[Row]) -> list[str]:
    """Data sets and moments by systems."""
    cells = grouped(rows, "data", "system")
    systems = [it for it in SYSTEMS if any(row.case["system"] == it for row in rows)]
    found = []
    for data in dict.fromkeys(data for data, _ in cells):
        of_data = [cells.get((data, it), []) for it in systems]
        firsts = [row.found["points"][0][0] for row in cells.get((data, YARDSTICK), [])]
        unit = statistics.mean(firsts) if firsts else math.nan
        for times in MOMENTS if firsts else ():
            means = [_mean(accuracies(them, times * unit)) for them in of_data]
            found.append([data, f"{times * unit:.{1 if times * unit < 10 else 0}f} s", *means])
        ends = [_mean(accuracies(them, math.inf)) for them in of_data]
        spent = [
            f" ({statistics.mean(it.found['seconds'] for it in them):.0f} s)" if them else ""
            for them in of_data
        ]
        found.append(
            [data, "end", *(f"{end}{after}" for end, after in zip(ends, spent, strict=True))]
        )
    return table(["data set", "after", *systems], found, left=2)


def _mean(numbers: Sequence[float]) -> str:
    return f"{100 * statistics.mean(numbers):.1f}" if numbers else NOT_MEASURED


def draw(rows: Sequence[Row], path: Path) -> None:
    """A panel for each data set, a line for each system: the mean over seeds."""
    from matplotlib.figure import Figure

    names = list(dict.fromkeys(row.case["data"] for row in rows))
    height = -(-len(names) // 2)
    figure = Figure(figsize=(9, 3.2 * height), layout="constrained", dpi=110)
    panels = dict(zip(names, figure.subplots(height, 2, squeeze=False).flat, strict=False))
    for (data, system), them in grouped(rows, "data", "system").items():
        moments = sorted(
            {row.found["seconds"] for row in them}
            | {it for row in them for it, _ in row.found["points"]}
        )
        points = [
            (it, 100 * statistics.mean(found)) for it in moments if (found := accuracies(them, it))
        ]
        seconds, means = zip(*points, strict=True) if points else ((), ())
        panels[data].step(
            seconds, means, where="post", label=system, color=f"C{list(SYSTEMS).index(system)}"
        )
    for name, panel in panels.items():
        panel.set(
            title=name,
            xscale="log",
            xlabel="seconds after start-up, one thread",
            ylabel="test accuracy, %",
        )
        panel.grid(visible=True, alpha=0.3)
    for panel in figure.axes[len(names) :]:
        panel.remove()
    figure.legend(
        *panels[names[0]].get_legend_handles_labels(),
        loc="outside lower center",
        ncols=len(SYSTEMS),
    )
    figure.savefig(path, metadata={"Software": None})


BENCHMARK = Benchmark("anytime", __doc__, add_arguments, cases, measure, lines, draw=draw)

if __name__ == "__main__":
    BENCHMARK.main()
