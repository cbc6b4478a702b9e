"""Compare the accuracy of encoder-cls with that of other methods on the same splits; write Markdown tables.

    python scripts/benchmarks/accuracy.py FOLDER --cache CACHE [--only DATASET]... [--method METHOD]... [--seeds N]
        [--part main|curves|ablation]... [--threads N] [--tables-only] [--output docs/accuracy.md]

FOLDER holds a subfolder for each data set (trec6, sst2, ...) with train.parquet, test.parquet and, where the data set
has one, validation.parquet, each with the columns `text` and `label`; `example` is the bundled data. Each result is a
file in CACHE, named by all that determines it, so the benchmark can be stopped, started again, and run by two processes
at a time. fastText comes with `pip install -e '.[bench]'`; without it its methods are left out.
"""

from __future__ import annotations

import argparse
import importlib.util
import json
import math
import multiprocessing
import os
import platform
import shlex
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Hashable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from functools import cache
from importlib import metadata
from pathlib import Path
from typing import Any

import numpy as np
import peers
import pyarrow.parquet as pq
import torch
from numpy.typing import NDArray
from reporting import NOT_MEASURED, cpu_name, note, source_hash, table

import encoder_cls
from encoder_cls.config import load_config
from encoder_cls.data.dataset import Dataset, load_dataset
from encoder_cls.system.files import sha256, to_json, write_file

DEFAULT = "encoder-cls"
LABELS_ALONE = ("pretrain.epochs=0", "model.linear=false")
PLAIN = (*LABELS_ALONE, "model.char_ngram_buckets=0", "model.bigram_buckets=0", "train.rdrop_weight=0")
ABLATIONS = {
    "no pretraining": ("pretrain.epochs=0",),
    "no linear model": ("model.linear=false",),
    "labels alone": LABELS_ALONE,
    "no character n-grams": ("model.char_ngram_buckets=0",),
    "no pairs of words": ("model.bigram_buckets=0",),
    "no word dropout": ("train.word_dropout=0",),
    "one reading of a text": ("train.rdrop_weight=0",),
    "one layer": ("model.num_layers=1",),
    "float32": ("train.precision=float32",),
}
OURS: dict[str, tuple[str, ...]] = {DEFAULT: (), "plain": PLAIN, **ABLATIONS}  # and the overrides of each
METHODS = [DEFAULT, "plain", *peers.PEERS]
MODULES = ("torch", "tokenizers", "sklearn", "scipy", "numpy")  # whose versions our results depend on

PARTS = ("main", "curves", "ablation")
SEEDS = {"example": 5, "trec6": 5, "sst2": 5, "banking77": 5, "ag_news": 5, "imdb": 3}
TARGETS = {"sst2": 84.0, "trec6": 92.0, "banking77": 92.5, "ag_news": 92.6, "imdb": 92.0}
CURVES = {"sst2": 100, "trec6": 100, "banking77": 300, "ag_news": 100}  # and the fewest texts
SIZES = (100, 300, 1000, 3000, 10_000, 30_000)
DATA = {"main": list(SEEDS), "curves": list(CURVES), "ablation": ["trec6", "sst2", "banking77", "example"]}

NOTES = """\
Accuracy is that on the test split, mean ± standard deviation over the seeds 0, 1, ...; all methods see the same splits.
Validation is the official split or, drawn anew with each seed, a tenth of train. All choices of settings and epochs are
made on it; test labels chose nothing. Time is that of training with the chosen setting, for encoder-cls and plain from
typing the command to the end of the final report; search is the time of all settings. `-` is not measured yet.

- encoder-cls: the default config, nothing set but the data: a pretrained encoder and a linear model, their scores added
  up. plain: the same without pretraining, linear model, second readings (R-Drop), tables of character n-grams and of
  pairs of words, so a Transformer encoder that learns from the labels.
- fasttext: words and pairs of words, the best of 16 settings. fasttext-chars: with character 2- to 5-grams, too.
- tfidf-words: TF-IDF of words and pairs of words with logistic regression or a linear SVM, the best of 10 settings.
  tfidf-chars: with character 2- to 5-grams inside words, too.
- torch-tutorial: `nn.TransformerEncoder` of the size of encoder-cls's, with learned positions, trained with Adam, the
  best of 10 epochs."""
COMPARISON_NOTE = """\
The best peer is the one with the highest mean on test, which favours it; the difference is over the seeds that both
have. It is set against two standard errors, in points: over seeds, that of the difference of the two means (splits and
random numbers vary, test texts do not); binomial, that of the difference of two fractions of so many test texts (as if
of two samples, which is cautious: both saw the same texts)."""
CURVES_NOTE = """\
So many labelled texts in all, drawn from train by seed, stratified, each set holding the smaller ones; a tenth of them
is the validation split. encoder-cls gets the other texts of train, too, without their labels; the peers have no use for
them. `all` is the result above, where an official validation split comes on top."""
ABLATION_NOTE = """\
Points of accuracy against the default, each technique off alone; ± is the standard error of the difference of means
over seeds. Labels alone: neither pretraining nor linear model. Character n-grams and pairs of words are those of the
encoder's tables; the linear model keeps its own. float32: in place of bfloat16, where that is fast."""


@dataclass(frozen=True, kw_only=True)
class Case:
    """A data set as one seed splits it; `size`: only so many of its labelled texts."""

    data: str
    seed: int
    size: int | None = None


@dataclass(frozen=True, kw_only=True)
class Result:
    """What one method reached on one case; accuracy and ece are fractions."""

    accuracy: float
    num_test: int
    seconds: float
    search_seconds: float | None = None
    ece: float | None = None
    chosen: str = ""


Results = dict[tuple[Case, str], Result]
Key = dict[str, Any]


@dataclass(frozen=True, kw_only=True)
class Settings:
    """What the command line asks for."""

    folder: Path
    cache: Path
    data: Sequence[str]
    methods: Sequence[str]
    parts: Sequence[str]
    seeds: int | None
    threads: int
    tables_only: bool

    def data_of(self, part: str) -> list[str]:
        """The data sets of a part."""
        return [data for data in self.data if data in DATA[part]]

    def methods_of(self, part: str) -> list[str]:
        """The methods of a part; those of the ablation belong to the default recipe."""
        if part == "ablation":
            return [DEFAULT, *ABLATIONS] if DEFAULT in self.methods else []
        return [method for method in self.methods if part == "main" or method != "plain"]

    def sizes_of(self, part: str, data: str) -> list[int | None]:
        """How many of the labelled texts of a data set a part uses; None: all."""
        if part != "curves":
            return [None]
        num_rows = pq.read_metadata(self.folder / data / "train.parquet").num_rows
        return [*(size for size in SIZES if CURVES[data] <= size < num_rows), None]

    def cases(self, data: str, size: int | None = None) -> list[Case]:
        """A data set as each seed splits it."""
        return [Case(data=data, seed=seed, size=size) for seed in range(self.seeds or SEEDS[data])]

    def work(self) -> Iterator[tuple[Case, list[str]]]:
        """Each case and the methods to run on it; those of an earlier part may come again."""
        for part in [part for part in PARTS if part in self.parts]:
            for data in self.data_of(part):
                for size in self.sizes_of(part, data):
                    yield from ((case, self.methods_of(part)) for case in self.cases(data, size))


def main() -> None:
    """Measure what is asked for and not yet in the cache, and print or write the tables."""
    words = [part for word in sys.argv[1:] for part in (word.split("=", 1) if word.startswith("--") else [word])]
    settings, output = parse(words)
    os.environ["OMP_NUM_THREADS"] = str(settings.threads)  # of the processes in which all methods run
    results, failures = measure_all(settings)
    places = {str(settings.folder): "FOLDER", str(settings.cache): "CACHE"}
    command = shlex.join(["python", "scripts/benchmarks/accuracy.py", *(places.get(word, word) for word in words)])
    text = document(settings, results, command)
    if output:
        output.write_text(text, encoding="utf-8")
    else:
        print(text)
    if failures:
        sys.exit(f"{failures} failed; the next run tries again")


def parse(words: Sequence[str]) -> tuple[Settings, Path | None]:
    """The command line: what to measure and where to write; methods that are not installed are left out."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--cache", type=Path, required=True, help="the folder of single results")
    parser.add_argument("--only", choices=SEEDS, action="append", help="repeatable; default: all data sets")
    parser.add_argument("--method", choices=METHODS, action="append", help="repeatable; default: all")
    parser.add_argument("--part", choices=PARTS, action="append", help="repeatable; default: all")
    parser.add_argument("--seeds", type=int, help="default: 5, imdb 3")
    parser.add_argument("--threads", type=int, default=1, help="fastText always has one; default: 1")
    parser.add_argument("--tables-only", action="store_true", help="run nothing: the tables of what is in the cache")
    parser.add_argument("--output", type=Path, help="a Markdown file to write; default: standard output")
    arguments = parser.parse_args(words)
    data = arguments.only or list(SEEDS)
    for name in data:
        if name != "example" and not (arguments.folder / name / "train.parquet").exists():
            parser.error(f"{arguments.folder / name / 'train.parquet'} is missing; choose data sets with --only")
    settings = Settings(
        folder=arguments.folder,
        cache=arguments.cache,
        data=data,
        methods=installed(arguments.method or METHODS),
        parts=arguments.part or PARTS,
        seeds=arguments.seeds,
        threads=arguments.threads,
        tables_only=arguments.tables_only,
    )
    return settings, arguments.output


def installed(methods: Sequence[str]) -> list[str]:
    """The methods whose libraries are there; one line tells of the others."""
    missing = [name for name in methods if name.startswith("fasttext") and not importlib.util.find_spec("fasttext")]
    if missing:
        note(f"fastText is not installed (pip install -e '.[bench]'); left out: {', '.join(missing)}")
    return [name for name in methods if name not in missing]


# Data


@contextmanager
def split_files(folder: Path, case: Case) -> Iterator[tuple[str, ...]]:
    """The config overrides that name the files of a case; those of a part of the texts exist inside the block only."""
    if case.data == "example":
        yield ()
        return
    files = {name: folder / case.data / f"{name}.parquet" for name in ("train", "validation", "test")}
    with tempfile.TemporaryDirectory() as temporary:
        if case.size is not None:
            rows = pq.read_table(files["train"])
            order = nested_order(rows["label"].to_pylist(), case.seed)
            files["validation"] = Path(temporary) / "none"
            for name, places in (("train", order[: case.size]), ("unlabelled", order[case.size :])):
                files[name] = Path(temporary) / f"{name}.parquet"
                pq.write_table(rows.take(np.sort(places)), files[name])
        named = {name: json.dumps(str(path)) if path.exists() else "null" for name, path in files.items()}
        yield (f"name={case.data}", *(f"data.{name}={path}" for name, path in named.items()))


def nested_order(labels: Sequence[Hashable], seed: int) -> NDArray[np.int64]:
    """An order of texts of which every beginning is stratified, and that starts with two texts of each class.

    Two, since one of them has to validate.
    """
    random = np.random.default_rng(seed)
    _, numbers = np.unique(np.array([str(label) for label in labels]), return_inverse=True)
    order = random.permutation(len(labels))
    turns = np.empty(len(labels))
    for number in range(numbers.max() + 1):
        members = order[numbers[order] == number]
        turns[members] = (np.arange(len(members)) + 0.5) / len(members)
        turns[members[:2]] = -1
    return order[np.argsort(turns[order], kind="stable")]


def fingerprint(dataset: Dataset) -> str:
    """Equal splits, equal fingerprint."""
    parts = (dataset.train, dataset.validation, dataset.test, dataset.unlabelled)
    splits = [part.fingerprint() for part in parts if part]
    return sha256(json.dumps([dataset.label_names, splits]).encode())


# Measuring


def measure_all(settings: Settings) -> tuple[Results, int]:
    """The results of all work, from the cache or new, and how many failed."""
    results: Results = {}
    failures = 0
    for case, methods in settings.work():
        new = [method for method in methods if (case, method) not in results]
        if not new:
            continue
        with ready(settings, case) as job:
            for method in new:
                try:
                    result = job.result(method, settings.cache, tables_only=settings.tables_only)
                except Exception as error:  # whatever it is, the other methods go on
                    failures += 1
                    note(f"{job.name(method)}: FAILED: {type(error).__name__}: {error}")
                    continue
                if result:
                    results[case, method] = result
                    note(f"{job.name(method)}: {100 * result.accuracy:.2f} %, {result.seconds:.1f} s {result.chosen}")
    return results, failures


@contextmanager
def ready(settings: Settings, case: Case) -> Iterator[Job]:
    """A case with its splits; its files exist inside the block only."""
    with split_files(settings.folder, case) as overrides:
        config = load_config(None, [*overrides, f"seed={case.seed}"])
        dataset = load_dataset(config.data, seed=config.seed)
        yield Job(case=case, overrides=overrides, dataset=dataset, threads=settings.threads)


@dataclass(frozen=True, kw_only=True)
class Job:
    """A case made ready: the overrides that name its files, and the splits that encoder-cls makes of them."""

    case: Case
    overrides: tuple[str, ...]
    dataset: Dataset
    threads: int

    def name(self, method: str) -> str:
        """What is measured, for people."""
        size = "all" if self.case.size is None else str(self.case.size)
        return f"{self.case.data}, {size} texts, seed {self.case.seed}, {method}"

    def result(self, method: str, cache: Path, *, tables_only: bool) -> Result | None:
        """The result of a method from the cache, or else a new one, unless nothing may be run."""
        name = "-".join([self.case.data, str(self.case.size or "all"), method.replace(" ", "-"), str(self.case.seed)])
        if tables_only:
            key = self.key(method)
            return load_result(result_file(cache, name, key), key)
        return cached(cache, name, lambda: self.key(method), lambda: self.run(method))

    def run(self, method: str) -> Result:
        """Train and score."""
        if method in OURS:
            return train_ours([*self.overrides, *OURS[method]], self.case.seed)
        # A process of its own: a library's crash ends no more than that, and its memory is given back.
        with ProcessPoolExecutor(1, mp_context=multiprocessing.get_context("spawn")) as pool:
            outcome = pool.submit(peers.train_peer, method, self.overrides, self.case.seed, self.threads).result()
        return Result(num_test=num_test(self.dataset), **asdict(outcome))

    def key(self, method: str) -> Key:
        """All that determines the result of a method."""
        is_ours = method in OURS
        sources = sorted(Path(encoder_cls.__file__).parent.rglob("*.py")) if is_ours else [Path(peers.__file__)]
        modules = MODULES if is_ours else peers.PEERS[method].modules
        return {
            **asdict(self.case),
            "method": method,
            "overrides": list(OURS.get(method, ())),
            "splits": fingerprint(self.dataset),
            "source": source_hash(sources),
            "versions": {module: version(module) for module in modules},
            "threads": self.threads,
        }


def train_ours(overrides: Sequence[str], seed: int) -> Result:
    """Train as a user would, with the command line.

    Raises:
        RuntimeError: the command failed; the last line that it wrote is the message.
    """
    with tempfile.TemporaryDirectory() as folder:
        command = [str(Path(sys.executable).with_name("encoder-cls")), "train", "--device", "cpu"]
        command += ["--run-dir", f"{folder}/run"]
        command += [word for override in [*overrides, f"seed={seed}"] for word in ("--set", override)]
        began = time.monotonic()
        ended = subprocess.run(command, capture_output=True, text=True, check=False)
        seconds = time.monotonic() - began
        if ended.returncode:
            raise RuntimeError((ended.stderr.strip() or f"exit code {ended.returncode}").splitlines()[-1])
        report = json.loads(Path(folder, "run", "eval", "report.json").read_text(encoding="utf-8"))
    return Result(accuracy=report["accuracy"], num_test=report["num_examples"], seconds=seconds, ece=report["ece"])


def num_test(dataset: Dataset) -> int:
    """How many texts are scored."""
    return len(dataset.reported[1])


# The cache


def cached(folder: Path, name: str, make_key: Callable[[], Key], compute: Callable[[], Result]) -> Result:
    """The result under this name and key, computed and saved if it is not there.

    Raises:
        RuntimeError: the key changed while the result was computed, so nobody knows what it is of.
    """
    key = make_key()
    path = result_file(folder, name, key)
    if result := load_result(path, key):
        return result
    result = compute()
    if make_key() != key:
        raise RuntimeError("the source changed meanwhile")
    write_file(path, to_json({"key": key, "result": asdict(result)}))
    return result


def result_file(folder: Path, name: str, key: Key) -> Path:
    """Where a result belongs."""
    return folder / f"{name}-{sha256(json.dumps(key, sort_keys=True).encode())[:16]}.json"


def load_result(path: Path, key: Key) -> Result | None:
    """A result from the cache; none where the file is missing, damaged or of something else."""
    try:
        content = json.loads(path.read_text(encoding="utf-8"))
        return Result(**content["result"]) if content["key"] == key else None
    except (OSError, ValueError, KeyError, TypeError):
        return None


@cache
def version(module: str) -> str:
    """The version of the distribution that a module comes from."""
    return metadata.version(metadata.packages_distributions()[module][0])


# Numbers


@dataclass(frozen=True)
class Difference:
    """How far our mean accuracy is from another, in points, with two standard errors of that difference.

    Attributes:
        points: ours minus theirs.
        over_seeds: the standard error from the spread over seeds; none of a single seed.
        binomial: the standard error from the size of the test split.
    """

    points: float
    over_seeds: float | None
    binomial: float


def difference(ours: Sequence[Result], theirs: Sequence[Result]) -> Difference:
    """Compare two methods on the same test split."""
    means = [statistics.mean(result.accuracy for result in results) for results in (ours, theirs)]
    over_seeds = None
    if len(ours) > 1 and len(theirs) > 1:
        variances = [statistics.variance([r.accuracy for r in results]) / len(results) for results in (ours, theirs)]
        over_seeds = 100 * math.sqrt(sum(variances))
    binomial = 100 * math.sqrt(sum(mean * (1 - mean) for mean in means) / ours[0].num_test)
    return Difference(100 * (means[0] - means[1]), over_seeds, binomial)


def beyond(points: float, standard_error: float | None) -> str:
    """Two standard errors, and whether a difference exceeds them."""
    if standard_error is None:
        return NOT_MEASURED
    return f"{2 * standard_error:.1f}: {'exceeded' if abs(points) > 2 * standard_error else 'not exceeded'}"


def percent(results: Sequence[Result]) -> str:
    """The mean accuracy and, of several, the standard deviation, in percent."""
    if not results:
        return NOT_MEASURED
    accuracies = [100 * result.accuracy for result in results]
    spread = f" ± {statistics.stdev(accuracies):.1f}" if len(accuracies) > 1 else ""
    return f"{statistics.mean(accuracies):.1f}{spread}"


def found(results: Results, cases: Sequence[Case], method: str) -> list[Result]:
    """The results of a method that there are."""
    return [results[case, method] for case in cases if (case, method) in results]


# Tables


def document(settings: Settings, results: Results, command: str) -> str:
    """The Markdown page."""
    machine = f"{cpu_name()}, {os.cpu_count()} cores ({platform.machine()}, {torch.backends.cpu.get_cpu_capability()})"
    versions = f"Python {platform.python_version()}, torch {torch.__version__}, scikit-learn {version('sklearn')}"
    lines = ["# Accuracy", "", f"On {machine}, {settings.threads} thread(s) a method, {versions}. Made by:"]
    lines += ["", "```sh", command, "```", "", NOTES]
    if "main" in settings.parts:
        lines += ["", *main_table(settings, results), "", "## Against the best peer", "", COMPARISON_NOTE]
        lines += ["", *comparison_table(settings, results)]
    if "curves" in settings.parts:
        lines += ["", "## Learning curves", "", CURVES_NOTE]
        for data in settings.data_of("curves"):
            lines += ["", *curve_table(settings, results, data)]
    if "ablation" in settings.parts:
        lines += ["", "## Ablation", "", ABLATION_NOTE, "", *ablation_table(settings, results)]
    return "\n".join(lines) + "\n"


def main_table(settings: Settings, results: Results) -> list[str]:
    """Every data set and method."""
    rows = []
    for data in settings.data:
        cases = settings.cases(data)
        for method in settings.methods_of("main"):
            there = found(results, cases, method)
            searches = [result.search_seconds for result in there if result.search_seconds is not None]
            errors = [result.ece for result in there if result.ece is not None]
            rows.append([
                data,
                method,
                f"{len(there)}" if len(there) == len(cases) else f"{len(there)} of {len(cases)}",
                percent(there),
                f"{statistics.median(result.seconds for result in there):.1f}" if there else NOT_MEASURED,
                f"{statistics.median(searches):.0f}" if searches else NOT_MEASURED,
                f"{statistics.mean(errors):.3f}" if errors else NOT_MEASURED,
            ])  # fmt: skip
    columns = ["data set", "method", "seeds", "accuracy %", "train, s", "search, s", "calibration error"]
    return table(columns, rows, left=2)


def comparison_table(settings: Settings, results: Results) -> list[str]:
    """Each data set's target and best peer."""
    rows = [comparison_row(settings, results, data) for data in settings.data]
    columns = [
        "data set", DEFAULT, "target", "reached", "best peer", "accuracy %", "difference",
        "2 standard errors over seeds", "2 standard errors, binomial",
    ]  # fmt: skip
    return table(columns, rows)


def comparison_row(settings: Settings, results: Results, data: str) -> list[str]:
    """One data set's."""
    cases = settings.cases(data)
    ours = found(results, cases, DEFAULT)
    target = TARGETS.get(data)
    reached = NOT_MEASURED
    if target is not None and len(ours) == len(cases):
        reached = "met" if 100 * statistics.mean(result.accuracy for result in ours) >= target else "missed"
    row = [data, percent(ours), NOT_MEASURED if target is None else f"{target:.1f}", reached]
    measured = {peer: found(results, cases, peer) for peer in settings.methods if peer in peers.PEERS}
    measured = {peer: there for peer, there in measured.items() if there}
    if not measured:
        return [*row, *[NOT_MEASURED] * 5]
    best = max(measured, key=lambda peer: statistics.mean(result.accuracy for result in measured[peer]))
    is_complete = len(measured) == len(peers.PEERS) and all(len(there) == len(cases) for there in measured.values())
    row += [best if is_complete else f"{best} (not all are measured)", percent(measured[best])]
    both = [case for case in cases if (case, DEFAULT) in results and (case, best) in results]
    if not both:
        return [*row, *[NOT_MEASURED] * 3]
    gap = difference(found(results, both, DEFAULT), found(results, both, best))
    return [*row, f"{gap.points:+.1f}", beyond(gap.points, gap.over_seeds), beyond(gap.points, gap.binomial)]


def curve_table(settings: Settings, results: Results, data: str) -> list[str]:
    """Methods by number of texts."""
    sizes = settings.sizes_of("curves", data)
    rows = [
        [method, *(percent(found(results, settings.cases(data, size), method)) for size in sizes)]
        for method in settings.methods_of("curves")
    ]
    return table([data, *("all" if size is None else f"{size:,}" for size in sizes)], rows)


def ablation_table(settings: Settings, results: Results) -> list[str]:
    """The default, and how far from it each technique's absence is."""
    names = settings.data_of("ablation")
    rows = [[DEFAULT, *(percent(found(results, settings.cases(data), DEFAULT)) for data in names)]]
    for variant in ABLATIONS:
        rows.append([variant, *(ablation_cell(settings.cases(data), results, variant) for data in names)])
    return table(["", *names], rows)


def ablation_cell(cases: Sequence[Case], results: Results, variant: str) -> str:
    """The variant's difference to the default, over the seeds that both have."""
    both = [case for case in cases if (case, DEFAULT) in results and (case, variant) in results]
    if not both:
        return NOT_MEASURED
    gap = difference(found(results, both, variant), found(results, both, DEFAULT))
    return f"{gap.points:+.1f}" + (f" ± {gap.over_seeds:.1f}" if gap.over_seeds is not None else "")


if __name__ == "__main__":
    main()
