"""A benchmark: its cases, each measured once and kept as a line of JSON, and a section of a page.

The same command goes on with the cases that are missing, so it can be interrupted at any time. A
line counts for the commit and the processor that it was measured with. A round measures every case
once more; the rounds go around the cases, so that a busy moment of the machine does not hit one
case alone.
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
from collections.abc import Callable, Hashable, Iterable, Sequence
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from functools import cache
from importlib import metadata
from pathlib import Path
from typing import Any, TypeVar

from shared.page import NOT_MEASURED, table, wrapped, write_section

ROOT = Path(__file__).parents[3]
# The libraries whose versions a measured case records.
LIBRARIES = (
    "torch",
    "tokenizers",
    "scikit-learn",
    "numpy",
    "fasttext-numpy2-wheel",
    "transformers",
    "spacy",
)
# The exit code of a benchmark that Ctrl-C has ended.
INTERRUPTED = 130

Case = dict[str, Any]
"""What is measured, as values of JSON by name, such as `{"data": "sst2", "round": 0}`."""

Found = dict[str, Any]
"""What was found of a case, as values of JSON by name, such as `{"accuracy": 0.9}`."""

Value = TypeVar("Value", bound=Hashable)


@dataclass(frozen=True)
class Row:
    """A measured case, and where and when it was measured: a line of the file of results.

    Attributes:
        case: the case.
        found: what was found.
        commit: the commit that was measured.
        cpu: the name of the processor.
        cores: the number of its cores.
        threads: the number of threads of each process.
        versions: the versions of Python and of the libraries.
        finished: the time, in ISO 8601.
    """

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
    """A script that measures cases and writes tables of them.

    Attributes:
        name: the name of the script, and of its section of a page.
        doc: the help of its command.
        add_arguments: adds its own arguments.
        cases: lists the cases, without their rounds.
        measure: measures a case. An error leaves the case out, and the others go on.
        lines: the Markdown of measured cases, which are in the order of `cases`.
        failures: the targets that measured cases miss.
        draw: draws a picture into a file beside the page; None if there is no picture.
        section: the name of the section; None if it is that of the script.
        rounds: how often each case is measured by default.
    """

    name: str
    doc: str | None
    add_arguments: Callable[[argparse.ArgumentParser], None]
    cases: Callable[[argparse.Namespace], Iterable[Case]]
    measure: Callable[[argparse.Namespace, Case], Found]
    lines: Callable[[Sequence[Row]], list[str]]
    failures: Callable[[Sequence[Row]], list[str]] = lambda _: []
    draw: Callable[[Sequence[Row], Path], None] | None = None
    section: Callable[[argparse.Namespace], str] | None = None
    rounds: int = 3

    def main(self, words: Sequence[str] | None = None) -> None:
        """Measure the missing cases; print the section, or write it to a page.

        Raises:
            SystemExit: a case failed, or a target is missed.
        """
        if words is None:
            words = sys.argv[1:]
        parser = self.parser()
        arguments = parser.parse_args(words)

        cases = self.cases_of_rounds(arguments)

        failed = []
        if not arguments.tables_only:
            try:
                failed = self._measure(arguments, cases)
            except KeyboardInterrupt:
                note(
                    f"interrupted; {arguments.results} has the finished cases, "
                    "and the same command goes on"
                )
                sys.exit(INTERRUPTED)

        rows = read(arguments.results, cases)
        if rows:
            self._write(rows, arguments, self._command(parser, words, arguments))
            failed += self.failures(rows)
        else:
            failed.append("nothing is measured")
        if failed:
            sys.exit("\n".join(failed))

    def missing(self, words: Sequence[str]) -> int:
        """How many cases of a command have no line of the newest commit in its file of results."""
        arguments = self.parser().parse_args(words)
        cases = self.cases_of_rounds(arguments)
        return len(cases) - len(of_newest_commit(read(arguments.results, cases)))

    def cases_of_rounds(self, arguments: argparse.Namespace) -> list[Case]:
        """The cases of all rounds, a number for each round."""
        cases = list(self.cases(arguments))
        return [{**case, "round": number} for number in range(arguments.rounds) for case in cases]

    def parser(self) -> argparse.ArgumentParser:
        """The parser of the script's own arguments and of those that all benchmarks have."""
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
        """Measure the cases that have no line of this commit and processor.

        Returns:
            The errors of the cases that failed.
        """
        os.environ["OMP_NUM_THREADS"] = str(arguments.threads)
        os.environ["OPENBLAS_NUM_THREADS"] = str(arguments.threads)

        here = (commit(), cpu_name())
        known = read(arguments.results, cases)
        done = [row.case for row in known if (row.commit, row.cpu) == here]

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

            row = Row(
                case=case,
                found=found,
                commit=commit(),
                cpu=cpu_name(),
                cores=os.cpu_count() or 1,
                threads=arguments.threads,
                versions=versions(),
                finished=datetime.now(UTC).isoformat(timespec="seconds"),
            )
            with arguments.results.open("a", encoding="utf-8") as file:
                # The line break comes first, since a line before may be cut off.
                file.write(f"\n{json.dumps(asdict(row))}")
            note(f"{name}: {found}")
        return failed

    def _write(self, rows: Sequence[Row], arguments: argparse.Namespace, command: str) -> None:
        """Print the section, or write it, with its picture, to the page that was named."""
        lines = [*origin(rows), "", "```sh", command, "```", "", *self.lines(rows)]
        if not arguments.output:
            print("\n".join(lines))
            return

        section = self.section(arguments) if self.section else self.name
        write_section(arguments.output, section, lines)
        if self.draw:
            self.draw(rows, arguments.output.with_name(f"{self.name}.png"))

    def _command(
        self, parser: argparse.ArgumentParser, words: Sequence[str], arguments: argparse.Namespace
    ) -> str:
        """The command that makes the section, without this machine's paths."""
        names = {}
        for action in parser._actions:
            if not action.option_strings:
                names[str(getattr(arguments, action.dest))] = action.dest.upper()

        kept = []
        remaining = iter(words)
        for word in remaining:
            if word == "--results":
                next(remaining)  # its value
            elif word != "--tables-only":
                kept.append(names.get(str(Path(word)), word))
        return shlex.join(["python", f"scripts/benchmarks/{self.name}.py", *kept])


def read(path: Path, cases: Sequence[Case]) -> list[Row]:
    """Read the newest line of each case, in the order of the cases.

    Lines of another processor than that of the newest line are left out.
    """
    newest_of_case = {_key(row.case): row for row in read_all(path)}
    found = [newest_of_case[_key(case)] for case in cases if _key(case) in newest_of_case]
    if not found:
        return []
    newest = max(found, key=lambda row: row.finished)
    return [row for row in found if row.cpu == newest.cpu]


def read_all(path: Path) -> list[Row]:
    """Read all lines of a file of results, of which the last one may be cut off."""
    lines = path.read_text(encoding="utf-8").splitlines() if path.exists() else []
    return [Row(**json.loads(line)) for line in lines if line.endswith("}")]


def of_newest_commit(rows: Sequence[Row]) -> list[Row]:
    """The rows of the commit that was measured last."""
    if not rows:
        return []
    newest = max(rows, key=lambda row: row.finished)
    return [row for row in rows if row.commit == newest.commit]


def _key(case: Case) -> str:
    """A case as text; empty values count as absent, so that older files of results still fit."""
    given = {name: value for name, value in case.items() if value not in (None, [])}
    return json.dumps(given, sort_keys=True)


# Tables and numbers


def grouped(rows: Sequence[Row], *keys: str) -> dict[tuple[Any, ...], list[Row]]:
    """Rows by the values of their cases."""
    groups: dict[tuple[Any, ...], list[Row]] = {}
    for row in rows:
        key = tuple(row.case[name] for name in keys)
        groups.setdefault(key, []).append(row)
    return groups


def distinct(values: Iterable[Value]) -> list[Value]:
    """Each value once, in the order of their first appearance."""
    return list(dict.fromkeys(values))


def values(rows: Sequence[Row], key: str) -> list[float]:
    """The numbers that rows have under a key; rows without it are left out."""
    return [float(row.found[key]) for row in rows if row.found.get(key) is not None]


def median(rows: Sequence[Row], key: str) -> float:
    """The median over rows."""
    return statistics.median(values(rows, key))


def mean_and_spread(numbers: Sequence[float]) -> str:
    """The mean in percent and, of several, the standard deviation."""
    mean = f"{100 * statistics.mean(numbers):.1f}"
    if len(numbers) == 1:
        return mean
    return f"{mean} ± {100 * statistics.stdev(numbers):.1f}"


def pivot(
    rows: Sequence[Row], row_key: str, column_key: str, cell: Callable[[list[Row]], str]
) -> list[str]:
    """A table of cells by the values of two keys; a dash marks a missing row."""
    groups = grouped(rows, row_key, column_key)
    columns = distinct(column for _, column in groups)

    lines = []
    for head in distinct(head for head, _ in groups):
        line = [str(head)]
        for column in columns:
            group = groups.get((head, column))
            line.append(cell(group) if group else NOT_MEASURED)
        lines.append(line)
    return table(["", *map(str, columns)], lines)


# Where and with what a case was measured


def origin(rows: Sequence[Row]) -> list[str]:
    """Where rows were measured and with what."""
    threads = _listed(row.threads for row in rows)
    commits = _listed(row.commit for row in rows)
    libraries = _listed(row.versions for row in rows)
    return wrapped(
        f"{rows[-1].cpu}, {rows[-1].cores} cores, threads of a process: {threads}; "
        f"commit {commits}; {libraries}."
    )


def _listed(facts: Iterable[object]) -> str:
    return "; ".join(distinct(str(fact) for fact in facts))


def cpu_name() -> str:
    """The processor's own name."""
    info = Path("/proc/cpuinfo")
    if info.exists():
        found = re.search(r"^model name\s*: (.+)$", info.read_text(), re.MULTILINE)
        if found:
            return found[1]
    return platform.processor() or "unknown processor"


@cache
def versions() -> str:
    """Versions of Python and of the libraries that are installed."""
    installed = {}
    for distribution in metadata.distributions():
        installed[distribution.metadata["Name"]] = distribution.version

    found = [f"Python {platform.python_version()}"]
    found += [f"{name} {installed[name]}" for name in LIBRARIES if name in installed]
    return ", ".join(found)


@cache
def commit() -> str:
    """The last commit of the package or the benchmarks; "with changes" if files differ."""
    last = _git("log", "-1", "--format=%h") or "unknown"
    if _git("status", "--porcelain"):
        return f"{last} with changes"
    return last


def _git(*command: str) -> str:
    """The output of a command of git about the package and the benchmarks."""
    paths = ["--", "encoder_cls", "scripts/benchmarks"]
    done = subprocess.run(
        ["git", *command, *paths], cwd=ROOT, capture_output=True, text=True, check=False
    )
    return done.stdout.strip()


def note(line: str) -> None:
    """Write a line to standard error, for the person who waits."""
    print(line, file=sys.stderr, flush=True)
