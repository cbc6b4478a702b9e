"""What a user has after how many seconds: test accuracy of encoder-cls and of other systems, as each of them goes on.

    python scripts/benchmarks/anytime.py FOLDER --results RESULTS.jsonl [--output docs/experiments/anytime.md]
        [--only DATASET]... [--system SYSTEM]... [--seeds N] [--seconds N] [--tables-only]

FOLDER is as that of `accuracy.py`. Each system has one thread, and the validation texts choose whatever is chosen. Each
curve appends a line to RESULTS.jsonl, so the same command goes on with what is missing. Lines of another commit or
processor count as missing: seconds are compared within one machine. Without --tables-only, run nothing else meanwhile.
"""

from __future__ import annotations

import argparse
import itertools
import json
import math
import os
import platform
import shlex
import statistics
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

from accuracy_benchmark.plan import SEEDS
from accuracy_benchmark.results import code_version
from accuracy_benchmark.splits import missing_file, split_files
from anytime_benchmark.systems import SYSTEMS, Curve
from reporting import NOT_MEASURED, cpu_name, note, table

from encoder_cls.system.files import write_file

HERE = Path(__file__).parent
MOMENTS = (1, 2, 4, 8, 16, 32, 64, 128)  # times of what TF-IDF and an SVM need for their first model
OURS, YARDSTICK = "encoder-cls", "tfidf-svm"
MEANT_TO_LEAD = 2  # times of the same, from when on ours is meant to be the highest
NOISE = 0.5  # points, by which another seed or another 500 test texts may differ


class Behind(NamedTuple):
    """A time in which ours is behind: the seconds, and by how many points at the most; inf: there is no model yet."""

    since: float
    until: float
    points: float


class Key(NamedTuple):
    """One curve: what it is of."""

    data: str
    system: str
    seed: int


Curves = Mapping[Key, Curve]


def main() -> None:
    """Measure what is missing, and print or write the page."""
    arguments = parse(sys.argv[1:])
    names, systems = arguments.only or list(SEEDS), arguments.system or list(SYSTEMS)
    keys = [
        Key(data, system, seed)
        for seed in range(arguments.seeds)
        for data in names
        for system in systems
        if seed == 0 or data != "imdb"
    ]
    machine = {"commit": code_version(), "cpu": cpu_name()}
    curves = read(arguments.results, machine, any_commit=arguments.tables_only)
    for key in [] if arguments.tables_only else keys:
        if key not in curves:
            curves[key] = measured(arguments.folder, key, seconds=arguments.seconds)
            line = {**key._asdict(), **vars(curves[key]), **machine, "python": platform.python_version()}
            with arguments.results.open("a", encoding="utf-8") as file:
                file.write(json.dumps(line) + "\n")
            note(f"{key}: {curves[key].points}")
    words = [word for word in sys.argv[1:] if word != "--tables-only"]
    lines = page(curves, names, systems, command=shlex.join(["python", "scripts/benchmarks/anytime.py", *words]))
    if arguments.output:
        write_file(arguments.output, "\n".join(lines).encode())
        draw(curves, names, systems, arguments.output.with_suffix(".png"))
    else:
        print("\n".join(lines))


def parse(words: Sequence[str]) -> argparse.Namespace:
    """The command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--results", type=Path, required=True, help="the file of curves, made if missing")
    parser.add_argument("--output", type=Path, help="a Markdown file to write, a picture beside it")
    parser.add_argument("--only", choices=SEEDS, action="append", help="repeatable; default: all data sets")
    parser.add_argument("--system", choices=SYSTEMS, action="append", help="repeatable; default: all")
    parser.add_argument("--seeds", type=int, default=3, help="default: 3; imdb has one")
    parser.add_argument("--seconds", type=float, default=600, help="after which a system is stopped; default: 600")
    parser.add_argument("--tables-only", action="store_true", help="train nothing: the page of the curves that exist")
    arguments = parser.parse_args(words)
    missing = missing_file(arguments.folder, arguments.only or SEEDS)
    if missing and not arguments.tables_only:
        parser.error(f"{missing} is missing; choose data sets with --only")
    return arguments


def read(path: Path, machine: Mapping[str, str], *, any_commit: bool = False) -> dict[Key, Curve]:
    """The curves of a file that were measured with this code on such a machine."""
    curves = {}
    for line in path.read_text(encoding="utf-8").splitlines() if path.exists() else []:
        row = json.loads(line)
        if row["cpu"] == machine["cpu"] and (any_commit or row["commit"] == machine["commit"]):
            points = [(seconds, accuracy) for seconds, accuracy in row["points"]]
            key = Key(row["data"], row["system"], row["seed"])
            curves[key] = Curve(row["start_up"], points, row["seconds"])
    return curves


def measured(folder: Path, key: Key, *, seconds: float) -> Curve:
    """One curve, in a process of its own.

    Raises:
        SystemExit: it failed.
    """
    paths = os.pathsep.join([str(HERE), str(HERE.parents[1])])
    environment = {**os.environ, "PYTHONPATH": paths, **{f"{it}_NUM_THREADS": "1" for it in ("OMP", "OPENBLAS")}}
    with split_files(folder, key.data, seed=key.seed, size=None) as overrides:
        command = [
            sys.executable,
            "-m",
            "anytime_benchmark.systems",
            key.system,
            str(key.seed),
            str(seconds),
            *overrides,
        ]
        ended = subprocess.run(command, capture_output=True, text=True, check=False, env=environment)
    if ended.returncode:
        sys.exit(f"{key}: {(ended.stderr.strip() or 'failed').splitlines()[-1]}")
    return Curve(**json.loads(ended.stdout.splitlines()[-1]))


def accuracy_at(curve: Curve, seconds: float) -> float | None:
    """What a user has by then; none: nothing yet."""
    had = [accuracy for moment, accuracy in curve.points if moment <= seconds]
    return had[-1] if had else None


def page(curves: Curves, names: Sequence[str], systems: Sequence[str], *, command: str) -> list[str]:
    """The Markdown page: of each data set a table, at multiples of the time of TF-IDF and an SVM."""
    lines = ["# What there is after how many seconds", "", f"    {command}", ""]
    lines += [
        "Test accuracy in percent of the model that each system has by then: mean over seeds, at the end with the",
        "standard deviation. One thread each. A moment is a multiple of the seconds that TF-IDF and a linear SVM take",
        "for their first model, from loading the texts; the start-up of a program comes before. Encoder-cls imports",
        "scikit-learn after it, for about a second in which its curve has no model yet. Processor:",
        f"{cpu_name()}.",
        "",
        "![Accuracy over seconds, one panel a data set](anytime.png)",
        "",
    ]
    for data in names:
        unit = _mean([curve.points[0][0] for curve in of_seeds(curves, data, YARDSTICK) if curve.points])
        if unit is None:
            continue
        moments = [f"{times}x ({times * unit:.0f} s)" for times in MOMENTS]
        rows = [_row(curves, data, system, unit) for system in systems if of_seeds(curves, data, system)]
        lines += [f"## {data}", "", _verdict(curves, data, systems, unit), ""]
        lines += [*table(["system", "seeds", "start-up, s", *moments, "at its end", "ends, s"], rows), ""]
    return lines


def where_behind(curves: Curves, data: str, systems: Sequence[str], unit: float) -> list[Behind]:
    """When, from `MEANT_TO_LEAD` times `unit` seconds on, another system is ahead of ours by more than `NOISE`."""
    others = [of_seeds(curves, data, system) for system in systems if system != OURS]
    own, everyone = of_seeds(curves, data, OURS), [it for key, it in curves.items() if key.data == data]
    start, end = MEANT_TO_LEAD * unit, max(curve.seconds for curve in everyone)
    changes = sorted({start, *(moment for it in everyone for moment, _ in it.points if start < moment < end), end})
    spans = [Behind(since, until, _points_behind(own, others, since)) for since, until in itertools.pairwise(changes)]
    alike = itertools.groupby(spans, key=lambda it: (it.points > NOISE, it.points == math.inf))
    runs = [list(together) for (is_behind, _), together in alike if is_behind]
    return [Behind(run[0].since, run[-1].until, max(it.points for it in run)) for run in runs]


def _points_behind(own: Sequence[Curve], others: Sequence[Sequence[Curve]], seconds: float) -> float:
    """By how much ours is below the best other system; inf: there is no model of ours yet, 0: of nobody."""
    best = max((it for curves in others if (it := _mean_at(curves, seconds)) is not None), default=None)
    ours = _mean_at(own, seconds)
    if best is None:
        return 0.0
    return math.inf if ours is None else best - ours


def _verdict(curves: Curves, data: str, systems: Sequence[str], unit: float) -> str:
    """A sentence about `where_behind`."""
    if not of_seeds(curves, data, OURS):
        return f"{OURS} is not measured."
    parts = []
    for it in where_behind(curves, data, systems, unit):
        by = "no model yet" if it.points == math.inf else f"by {it.points:.1f} at most"
        parts.append(f"{it.since:.1f} to {it.until:.1f} s ({by})")
    begin = f"From {MEANT_TO_LEAD}x on {OURS} is behind another system by more than {NOISE} points"
    return f"{begin}: {', '.join(parts)}." if parts else f"{begin} at no moment."


def _mean_at(curves: Sequence[Curve], seconds: float) -> float | None:
    """The mean accuracy in percent, where each seed has a model by then."""
    had = [accuracy_at(curve, seconds) for curve in curves]
    known = [100 * it for it in had if it is not None]
    return statistics.mean(known) if known and len(known) == len(had) else None


def _row(curves: Curves, data: str, system: str, unit: float) -> list[str]:
    of_system = of_seeds(curves, data, system)
    cells = [_percent(_mean_at(of_system, times * unit)) for times in MOMENTS]
    end = _percent(_mean_at(of_system, math.inf))
    if end != NOT_MEASURED and len(of_system) > 1:
        end += f" ± {statistics.stdev(100 * curve.points[-1][1] for curve in of_system):.1f}"
    start_up, seconds = (statistics.mean(it) for it in zip(*((c.start_up, c.seconds) for c in of_system), strict=True))
    return [system, str(len(of_system)), f"{start_up:.1f}", *cells, end, f"{seconds:.0f}"]


def of_seeds(curves: Curves, data: str, system: str) -> list[Curve]:
    """The curves of one data set and system."""
    return [curve for key, curve in sorted(curves.items()) if key[:2] == (data, system)]


def _mean(values: Sequence[float]) -> float | None:
    return statistics.mean(values) if values else None


def _percent(value: float | None) -> str:
    return NOT_MEASURED if value is None else f"{value:.1f}"


def draw(curves: Curves, names: Sequence[str], systems: Sequence[str], path: Path) -> None:
    """A panel for each data set, a line for each system: the mean over seeds."""
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    rows = -(-len(names) // 2)
    figure = Figure(figsize=(9, 3.2 * rows), layout="constrained", dpi=110)
    FigureCanvasAgg(figure)
    panels = list(figure.subplots(rows, 2, squeeze=False).flat)
    for data, axes in zip(names, panels, strict=False):
        for number, system in enumerate(systems):
            seconds, accuracies = [*zip(*_means(of_seeds(curves, data, system)), strict=True)] or [(), ()]
            axes.step(seconds, accuracies, where="post", label=system, color=f"C{number}")
        axes.set(title=data, xscale="log", xlabel="seconds after start-up, one thread", ylabel="test accuracy, %")
        axes.grid(visible=True, alpha=0.3)
    for axes in panels[len(names) :]:
        axes.set_axis_off()
    figure.legend(*panels[0].get_legend_handles_labels(), loc="outside lower center", ncols=len(systems))
    figure.savefig(path, metadata={"Software": None})


def _means(curves: Sequence[Curve]) -> Iterator[tuple[float, float]]:
    """At each moment at which one of them changes, from when on all of them have a model, until the last one ends."""
    moments = sorted({moment for curve in curves for moment, _ in curve.points} | {curve.seconds for curve in curves})
    for moment in moments:
        if (mean := _mean_at(curves, moment)) is not None:
            yield moment, mean


if __name__ == "__main__":
    main()
