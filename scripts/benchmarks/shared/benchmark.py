"""A benchmark: cases, each measured once and kept as one line of JSON; and a section of a page, made of these lines.

The same command goes on with the cases that are missing, so it can be interrupted at any time. A line counts for the
commit and the processor that it was measured with. A round measures every case once more; the rounds go around the
cases, so that a busy moment of the machine does not hit one case alone.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import re
import shlex
import statistics
import subprocess
import sys
from collections.abc import Callable, Iterable, Sequence
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from functools import cache
from importlib import metadata
from pathlib import Path
from textwrap import fill
from typing import Any

from shared.page import table, write_section

ROOT = Path(__file__).parents[3]
LIBRARIES = (
    "torch", "tokenizers", "scikit-learn", "numpy", "fasttext-numpy2-wheel", "transformers", "spacy"
)  # fmt: skip
INTERRUPTED = 130  # the exit code
WIDTH = 120

Case = dict[str, Any]
Found = dict[str, Any]


@dataclass(frozen=True)
class Row:
    """A measured case, and where and when it was measured."""

    case: Case
    found: Found
    commit: str
    cpu: str
    cores: int
    threads: int
    versions: str
    finished: str


@dataclass(frozen=True)
class Benchmark:
    """A script: the help of its command, its own arguments, its cases and its tables."""

    name: str  # of the script and of the section
    doc: str | None
    add_arguments: Callable[[argparse.ArgumentParser], None]
    cases: Callable[[argparse.Namespace], Iterable[Case]]  # of values that JSON has
    # An error leaves the case out, and the others go on.
    measure: Callable[[argparse.Namespace, Case], Found]
    # The Markdown of measured cases, in the order of `cases`.
    lines: Callable[[Sequence[Row]], list[str]]
    # The targets that measured cases miss.
    failures: Callable[[Sequence[Row]], list[str]] = lambda _: []
    draw: Callable[[Sequence[Row], Path], None] | None = None  # draws a picture beside the page
    rounds: int = 3  # how often each case is measured

    def main(self, words: Sequence[str] | None = None) -> None:
        """Measure the missing cases; print the section, or write it to a page.

        Raises:
            SystemExit: a case failed, or a target is missed.
        """
        words = sys.argv[1:] if words is None else words
        parser = self._parser()
        arguments = parser.parse_args(words)
        cases = [
            {**case, "round": number}
            for number in range(arguments.rounds)
            for case in self.cases(arguments)
        ]
        failed = []
        try:
            if not arguments.tables_only:
                failed = self._measure(arguments, cases)
        except KeyboardInterrupt:
            note(
                f"interrupted; {arguments.results} has the finished cases, and the same command goes on"
            )
            sys.exit(INTERRUPTED)
        rows = read(arguments.results, cases)
        if rows:
            self._write(rows, arguments, self._command(parser, words, arguments))
        if failed := [*failed, *(self.failures(rows) if rows else ["nothing is measured"])]:
            sys.exit("\n".join(failed))

    def _parser(self) -> argparse.ArgumentParser:
        parser = argparse.ArgumentParser(
            description=self.doc, formatter_class=argparse.RawDescriptionHelpFormatter
        )
        self.add_arguments(parser)
        results = Path(f"{self.name}.jsonl")
        parser.add_argument(
            "--results", type=Path, default=results, help=f"the measured cases; default: {results}"
        )
        parser.add_argument(
            "--output", type=Path, help=f"a page with a section `<!-- {self.name} -->`"
        )
        parser.add_argument(
            "--rounds", type=int, default=self.rounds, help=f"default: {self.rounds}"
        )
        parser.add_argument("--threads", type=int, default=1, help="of each process; default: 1")
        parser.add_argument("--tables-only", action="store_true", help="measure nothing")
        return parser

    def _measure(self, arguments: argparse.Namespace, cases: Sequence[Case]) -> list[str]:
        """Measure the cases that have no line of this commit and processor; the errors of those that failed."""
        os.environ["OMP_NUM_THREADS"] = os.environ["OPENBLAS_NUM_THREADS"] = str(arguments.threads)
        here = {
            "commit": commit(),
            "cpu": cpu_name(),
            "cores": os.cpu_count() or 1,
            "threads": arguments.threads,
        }
        known = read(arguments.results, cases)
        done = [row.case for row in known if (row.commit, row.cpu) == (here["commit"], here["cpu"])]
        failed = []
        for case in cases:
            if case in done:
                continue
            name = ", ".join(f"{key} {value}" for key, value in case.items())
            try:
                found = self.measure(arguments, case)
            except Exception as error:  # whatever it is, the other cases go on
                failed.append(f"{name}: {type(error).__name__}: {error}")
                note(failed[-1])
                continue
            when = datetime.now(UTC).isoformat(timespec="seconds")
            row = Row(case, found, **here, versions=versions(), finished=when)
            with arguments.results.open("a", encoding="utf-8") as file:
                # First the end of a line that may be cut off.
                file.write(f"\n{json.dumps(asdict(row))}")
            note(f"{name}: {found}")
        return failed

    def _write(self, rows: Sequence[Row], arguments: argparse.Namespace, command: str) -> None:
        lines = [*origin(rows), "", "```sh", command, "```", "", *self.lines(rows)]
        if not arguments.output:
            print("\n".join(lines))
            return
        write_section(arguments.output, self.name, lines)
        if self.draw:
            self.draw(rows, arguments.output.with_name(f"{self.name}.png"))

    def _command(
        self, parser: argparse.ArgumentParser, words: Sequence[str], arguments: argparse.Namespace
    ) -> str:
        """The command that makes the section, without this machine's paths."""
        positional = [action.dest for action in parser._actions if not action.option_strings]
        names = {str(getattr(arguments, name)): name.upper() for name in positional}
        kept = [names.get(str(Path(word)), word) for word in words if word != "--tables-only"]
        if "--results" in kept:
            place = kept.index("--results")
            del kept[place : place + 2]
        return shlex.join(["python", f"scripts/benchmarks/{self.name}.py", *kept])


def read(path: Path, cases: Sequence[Case]) -> list[Row]:
    """The newest line of each of these cases, in their order, as far as it is of the processor of the newest line."""
    lines = path.read_text(encoding="utf-8").splitlines() if path.exists() else []
    rows = [Row(**json.loads(line)) for line in lines if line.endswith("}")]  # else it was cut off
    of_case = {_key(row.case): row for row in rows}
    found = [of_case[_key(case)] for case in cases if _key(case) in of_case]
    newest = max(found, key=lambda row: row.finished, default=None)
    return [row for row in found if newest and row.cpu == newest.cpu]


def _key(case: Case) -> str:
    """A case as text; values that are empty count as absent, so that older files of results still fit."""
    return json.dumps(
        {name: value for name, value in case.items() if value not in (None, [])}, sort_keys=True
    )


def grouped(rows: Sequence[Row], *keys: str) -> dict[tuple[Any, ...], list[Row]]:
    """Rows by the values of their cases."""
    groups: dict[tuple[Any, ...], list[Row]] = {}
    for row in rows:
        groups.setdefault(tuple(row.case[key] for key in keys), []).append(row)
    return groups


def values(rows: Sequence[Row], key: str) -> list[float]:
    """What rows have under a key, as far as they have it."""
    return [float(row.found[key]) for row in rows if row.found.get(key) is not None]


def median(rows: Sequence[Row], key: str) -> float:
    """The median over rows."""
    return statistics.median(values(rows, key))


def mean_and_spread(numbers: Sequence[float]) -> str:
    """The mean in percent and, of several, the standard deviation."""
    spread = f" ± {100 * statistics.stdev(numbers):.1f}" if len(numbers) > 1 else ""
    return f"{100 * statistics.mean(numbers):.1f}{spread}"


def pivot(
    rows: Sequence[Row], row_key: str, column_key: str, cell: Callable[[list[Row]], str]
) -> list[str]:
    """A table of cells by the values of two keys; a dash marks a missing row."""
    cells = grouped(rows, row_key, column_key)
    heads, columns = (
        dict.fromkeys(row for row, _ in cells),
        list(dict.fromkeys(column for _, column in cells)),
    )
    lines = [
        [str(head), *(cell(cells[head, it]) if (head, it) in cells else "-" for it in columns)]
        for head in heads
    ]
    return table(["", *map(str, columns)], lines)


def origin(rows: Sequence[Row]) -> list[str]:
    """Where rows were measured and with what."""
    commits, versions, threads = (
        "; ".join(dict.fromkeys(str(getattr(row, name)) for row in rows))
        for name in ("commit", "versions", "threads")
    )
    text = f"{rows[-1].cpu}, {rows[-1].cores} cores, threads of a process: {threads}; commit {commits}; {versions}."
    return fill(text, WIDTH, break_on_hyphens=False).splitlines()


def cpu_name() -> str:
    """What the processor calls itself."""
    info = Path("/proc/cpuinfo")
    found = (
        re.search(r"^model name\s*: (.+)$", info.read_text(), re.MULTILINE)
        if info.exists()
        else None
    )
    return found[1] if found else platform.processor() or "unknown processor"


@cache
def versions() -> str:
    """Versions of Python and of the libraries that are installed."""
    installed = {it.metadata["Name"]: it.version for it in metadata.distributions()}
    found = [f"{name} {installed[name]}" for name in LIBRARIES if name in installed]
    return ", ".join([f"Python {platform.python_version()}", *found])


@cache
def commit() -> str:
    """The last commit that changed the package or the benchmarks, and whether files have changed since."""
    paths = ["--", "encoder_cls", "scripts/benchmarks"]
    last, changes = (
        subprocess.run(
            ["git", *command, *paths], cwd=ROOT, capture_output=True, text=True, check=False
        ).stdout.strip()
        for command in (("log", "-1", "--format=%h"), ("status", "--porcelain"))
    )
    return f"{last or 'unknown'}{' with changes' * bool(changes)}"


def note(line: str) -> None:
    """Write a line to standard error, for the person who waits."""
    print(line, file=sys.stderr, flush=True)
