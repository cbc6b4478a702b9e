"""Compare the accuracy of encoder-cls with that of other methods on the same splits; write a Markdown page.

    python scripts/benchmarks/accuracy.py FOLDER --results RESULTS.jsonl [--output docs/accuracy.md]
        [--only DATASET]... [--method METHOD]... [--part main|curves|ablation]... [--seeds N] [--threads N]
        [--any-commit] [--tables-only]

FOLDER holds a subfolder for each data set (trec6, sst2, ...) with train.parquet, test.parquet and, where the data set
has one, validation.parquet, each with the columns `text` and `label`; `example` is the bundled data.

Each training appends a line to RESULTS.jsonl: its scores, and the commit, data, machine and versions they depend on. So
the benchmark can be interrupted at any time, and the same command goes on with what is missing; several calls at a time
share the work. Results of another commit are left out, unless --any-commit is given; the commit is the last one that
changed encoder_cls or what trains and scores here. The most telling results come first: one seed of every method and
data set, then more seeds, the learning curves, the ablation. The picture of the learning curves is written beside the
page. fastText comes with `pip install -e '.[bench]'`.
"""

from __future__ import annotations

import argparse
import shlex
import signal
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from accuracy_benchmark.curves import write_curves
from accuracy_benchmark.document import document
from accuracy_benchmark.measure import measure
from accuracy_benchmark.plan import COMPARED, METHODS, PARTS, SEEDS, Plan, Training, installed
from accuracy_benchmark.results import ResultFile, Results, code_version, finished
from accuracy_benchmark.splits import data_hash, missing_file
from reporting import note

from encoder_cls.system.files import write_file

INTERRUPTED = 130  # the exit code


@dataclass(frozen=True, kw_only=True)
class Benchmark:
    """A plan, and where and of what its results are."""

    plan: Plan
    file: ResultFile
    commit: str
    data_hashes: Mapping[str, str]
    threads: int

    def run(self) -> tuple[Results, int]:
        """Make all trainings that have no result yet; the results of all, and how many failed.

        Raises:
            SystemExit: the code changed meanwhile, so nobody knows what a result would be of.
        """
        results, failures = self.file.read(), 0
        trainings = self.plan.trainings()
        missing = [training for training in trainings if training not in results]
        note(f"commit {self.commit}: {len(trainings) - len(missing)} of {len(trainings)} results are there")
        for training in missing:
            with self.file.claim(training) as is_ours:
                failures += is_ours and not self._measure(training)
        return self.file.read(quietly=True), failures

    def _measure(self, training: Training) -> bool:
        try:
            scores = measure(self.plan.folder, training, threads=self.threads)
        except Exception as error:  # whatever it is, the other trainings go on
            note(f"{training}: FAILED: {type(error).__name__}: {error}")
            return False
        if code_version() != self.commit:
            sys.exit(f"the code changed meanwhile: {self.commit} is {code_version()} now; start again")
        result = finished(training, scores, commit=self.commit, data_hashes=self.data_hashes, threads=self.threads)
        self.file.append(result)
        note(f"{training}: {100 * scores.accuracy:.2f} %, {scores.seconds:.1f} s {scores.settings}")
        return True


def main() -> None:
    """Measure what is asked for and missing, and print or write the page."""
    arguments = parse(sys.argv[1:])
    benchmark = prepared(arguments)
    signal.signal(signal.SIGTERM, signal.default_int_handler)  # an interrupt ends the training, too
    failures = 0
    try:
        results, failures = (benchmark.file.read(), 0) if arguments.tables_only else benchmark.run()
    except KeyboardInterrupt:
        note(f"interrupted; the finished results are in {arguments.results}, the same command goes on")
        sys.exit(INTERRUPTED)
    write(benchmark.plan, results, output=arguments.output, command=command(arguments))
    if failures:
        sys.exit(f"{failures} failed; the next run tries again")


def parse(words: Sequence[str]) -> argparse.Namespace:
    """The command line; data sets whose files are missing are refused."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--results", type=Path, required=True, help="the file of single results, made if missing")
    parser.add_argument("--output", type=Path, help="a Markdown file to write; default: standard output")
    parser.add_argument("--only", choices=SEEDS, action="append", help="repeatable; default: all data sets")
    parser.add_argument(
        "--method", choices=METHODS, action="append", help=f"repeatable; default: {', '.join(COMPARED)}"
    )
    parser.add_argument("--part", choices=PARTS, action="append", help="repeatable; default: all")
    parser.add_argument("--seeds", type=int, help="of every part; default: main 5 (imdb 3), curves and ablation 3")
    parser.add_argument("--threads", type=int, default=1, help="of a training; fastText always has one; default: 1")
    parser.add_argument("--any-commit", action="store_true", help="take results of other commits, too")
    parser.add_argument("--tables-only", action="store_true", help="train nothing: the page of the results that exist")
    arguments = parser.parse_args(words)
    if missing := missing_file(arguments.folder, arguments.only or SEEDS):
        parser.error(f"{missing} is missing; choose data sets with --only")
    return arguments


def prepared(arguments: argparse.Namespace) -> Benchmark:
    """What the command line asks for; methods that are not installed are left out."""
    plan = Plan(
        folder=arguments.folder,
        data=[name for name in SEEDS if name in (arguments.only or SEEDS)],
        methods=installed([name for name in METHODS if name in (arguments.method or COMPARED)]),
        parts=arguments.part or PARTS,
        seeds=arguments.seeds,
    )
    commit, data_hashes = code_version(), {name: data_hash(plan.folder, name) for name in plan.data}
    file = ResultFile(arguments.results, commit=commit, any_commit=arguments.any_commit, data_hashes=data_hashes)
    return Benchmark(plan=plan, file=file, commit=commit, data_hashes=data_hashes, threads=arguments.threads)


def write(plan: Plan, results: Results, *, output: Path | None, command: str) -> None:
    """The page, to a file with the picture beside it, or to standard output."""
    picture = output.with_name(f"{output.stem}_curves.png") if output else None
    is_drawn = picture is not None and write_curves(plan, results, picture)
    text = document(plan, results, command=command, picture=picture.name if picture and is_drawn else None)
    if output:
        write_file(output, text.encode())
    else:
        print(text)


def command(arguments: argparse.Namespace) -> str:
    """The command that makes the page, without this machine's paths."""
    words = ["python", "scripts/benchmarks/accuracy.py", "FOLDER", "--results", "RESULTS.jsonl"]
    for option in ("only", "method", "part"):
        words += [word for value in getattr(arguments, option) or () for word in (f"--{option}", value)]
    words += ["--seeds", str(arguments.seeds)] if arguments.seeds else []
    words += ["--threads", str(arguments.threads)] if arguments.threads != 1 else []
    words += ["--any-commit"] if arguments.any_commit else []
    return shlex.join([*words, *(["--output", "docs/accuracy.md"] if arguments.output else [])])


if __name__ == "__main__":
    main()
