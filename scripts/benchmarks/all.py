"""Measure most tables of docs/results.md and docs/published.md at one commit, on one machine.

    python scripts/benchmarks/all.py RESULTS --data FOLDER [--only PART]...
    python scripts/benchmarks/all.py RESULTS --data FOLDER --write-docs

RESULTS receives a file of JSON lines for each part, a line for each measured case, with its commit,
processor and date. The same command goes on with the cases that are missing; a new commit measures
all anew. FOLDER is as that of `accuracy.py`; data sets of others are in its folder `textgcn` and
its file `sib200.parquet`. Parts without their data are left out, and systems that are not
installed, each with a line that says so.

`--write-docs` measures nothing: it replaces the table of each part that is complete, and README's
table once all parts of it are. Run it where the parts were measured.

All take some nine hours on two idle cores. The first five parts use both cores; of the others,
which use one, two commands with different parts may run beside each other. Run nothing else
meanwhile.
"""

from __future__ import annotations

import argparse
import contextlib
import importlib
import shutil
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from shared.benchmark import INTERRUPTED, ROOT, Benchmark, commit, note
from shared.commands import train
from shared.page import write_section
from shared.readme_table import PARTS_OF_TABLE, readme_lines

# Where a part reads what it measures: the data sets, or a run of the bundled example.
DATA = "{data}"
TEXTGCN = "{data}/textgcn"
SIB_200 = "{data}/sib200.parquet"
EXAMPLE_RUN = "{run}"
RESULTS_PAGE = Path("docs/results.md")
PUBLISHED_PAGE = Path("docs/published.md")


@dataclass(frozen=True)
class Part:
    """A script, the words of its command, and the page that has its section."""

    name: str
    words: tuple[str, ...]
    page: Path = RESULTS_PAGE

    @property
    def benchmark(self) -> Benchmark:
        """What the script measures."""
        found: Benchmark = importlib.import_module(self.name).BENCHMARK
        return found


LARGE = ("--texts", "50000", "--texts", "500000", "--texts", "5000000")
LIMITS = ("--budget", "30s", "--budget", "2m", "--seconds", "400")
FEW = ("--labels", "100", "--labels", "1000")

PARTS = (
    Part("size", (EXAMPLE_RUN,)),
    Part("cold", (EXAMPLE_RUN, "--rounds", "5")),
    Part("serve", (EXAMPLE_RUN,)),
    Part("bulk", (DATA, "--threads", "2", "--rounds", "3")),
    Part("large_data", (DATA, "--threads", "2", *LARGE, *LIMITS)),
    Part("accuracy", (DATA, "--rounds", "3")),
    Part("published", (TEXTGCN, "--rounds", "3"), PUBLISHED_PAGE),
    Part("many_classes", ()),
    Part("few_labels", (DATA, "--rounds", "3", *FEW)),
    Part("encoder_gain", (DATA, "--rounds", "2", "--size", "2000", "--size", "8000")),
    Part("labelling", (DATA, "--rounds", "3")),
    Part("sib200", (SIB_200, "--languages", "205"), PUBLISHED_PAGE),
)


def main() -> None:
    """Measure, or write the pages.

    Raises:
        SystemExit: a case failed or a target is missed; or Ctrl-C.
    """
    arguments = parser().parse_args()
    results = arguments.results.resolve()
    data = arguments.data.resolve()
    results.mkdir(parents=True, exist_ok=True)
    parts = chosen(arguments.only, data)

    with contextlib.chdir(ROOT):
        if arguments.write_docs:
            write_docs(parts, results, data)
        else:
            try:
                measure(parts, results, data)
            except KeyboardInterrupt:  # the script that ran has said what to do
                sys.exit(INTERRUPTED)


def parser() -> argparse.ArgumentParser:
    """The parser of the command."""
    found = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    names = [part.name for part in PARTS]
    found.add_argument("results", type=Path, help="the folder of what is measured")
    found.add_argument("--data", type=Path, required=True, help="the folder of data sets")
    found.add_argument("--only", choices=names, action="append", help="repeatable; default: all")
    found.add_argument("--write-docs", action="store_true", help="measure nothing")
    return found


def chosen(names: Sequence[str] | None, data: Path) -> list[Part]:
    """The parts with these names, or all, whose data are there."""
    found = []
    for part in PARTS:
        if names and part.name not in names:
            continue
        lacking = [path for path in map(Path, paths_of(part, data)) if not path.exists()]
        if lacking:
            note(f"{part.name} is left out: there is no {lacking[0]}")
        else:
            found.append(part)
    return found


def paths_of(part: Part, data: Path) -> list[str]:
    """The paths of data that a part reads."""
    return [word.format(data=data) for word in part.words if DATA in word]


def measure(parts: Sequence[Part], results: Path, data: Path) -> None:
    """Run each script in a process of its own."""
    run = example_run(results)
    if not (run / "eval").exists():
        shutil.rmtree(run, ignore_errors=True)  # it may have been interrupted
        note(f"a run of the bundled example: {run}")
        train([], run)

    failed = []
    for part in parts:
        words = words_of(part, results, data)
        note(f"{part.name}:")
        script = ROOT / "scripts" / "benchmarks" / f"{part.name}.py"
        ended = subprocess.run([sys.executable, str(script), *words], check=False)
        if ended.returncode:
            failed.append(f"{part.name}: see above")
    if failed:
        sys.exit("\n".join(failed))


def example_run(results: Path) -> Path:
    """The run of the bundled example at this commit."""
    return results / f"example-{commit().replace(' ', '-')}"


def words_of(part: Part, results: Path, data: Path) -> list[str]:
    """The words of a part's command, with the paths of this machine."""
    run = example_run(results)
    words = [word.format(data=data, run=run) for word in part.words]
    return [*words, "--results", str(results / f"{part.name}.jsonl")]


def write_docs(parts: Sequence[Part], results: Path, data: Path) -> None:
    """Replace the tables of complete parts; the others stay as they are."""
    complete = set()
    for part in parts:
        words = words_of(part, results, data)
        missing = part.benchmark.missing(words)
        if missing:
            note(f"{part.name}: {missing} cases are missing, so its table stays as it is")
            continue
        with contextlib.suppress(SystemExit):  # a missed target was reported when it was measured
            part.benchmark.main([*words, "--tables-only", "--output", str(part.page)])
        complete.add(part.name)

    if complete >= PARTS_OF_TABLE:
        write_section(Path("README.md"), "compared", readme_lines(results))
    else:
        note(f"README's table stays: it needs {', '.join(sorted(PARTS_OF_TABLE - complete))}")


if __name__ == "__main__":
    main()
