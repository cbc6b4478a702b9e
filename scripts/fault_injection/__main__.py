"""Fault injection: try to break every promise about reliability; each promise has one or more cases.

    python scripts/fault_injection                          # every case at its full count: three hours
    python scripts/fault_injection signals bit-flips-model  # some cases
    python scripts/fault_injection --fraction 0.05 --jobs 2  # a twentieth of every case, two cases at a time, as in CI
    python scripts/fault_injection signals --only 17        # one try again, as it was
    python scripts/fault_injection mutants                  # mutation testing: do the cases notice a broken package?

Needs Linux; a case that needs what this machine does not have (strace, user namespaces) says so and counts as skipped.
Exit code: 0 if every promise held, 1 if not.
"""

from __future__ import annotations

import os

os.environ["OMP_NUM_THREADS"] = "1"  # before torch: many small processes, each on one core
os.environ.setdefault("HF_HUB_OFFLINE", "1")

import argparse
import importlib
import json
import random
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor, as_completed
from functools import cache
from multiprocessing import get_context
from pathlib import Path
from typing import Any

import answer_folders
import caches
import crashes
import damage
import disks
import folders
import fuzz_config
import fuzz_data
import fuzz_texts
import hostile
import mutants
import outputs
import ranks
import searches
import serving
import sizes
from cases import Case, Skipped
from samples import Workspace

USED_BY_COMMANDS = (
    *(
        "encoder_cls.evaluation.evaluate",
        "encoder_cls.data.store",
        "encoder_cls.inference.linear",
        "encoder_cls.answers.formats",
        "encoder_cls.serving.server",
        "encoder_cls.training.run",
        "matplotlib.figure",
    ),
    *("pyarrow.parquet", "scipy.optimize", "sklearn.feature_extraction.text", "sklearn.metrics", "sklearn.pipeline"),
    *("sklearn.svm", "tqdm"),
)
MODULES = (
    *(
        crashes,
        ranks,
        searches,
        caches,
        disks,
        damage,
        hostile,
        fuzz_config,
        fuzz_data,
        fuzz_texts,
        folders,
        outputs,
        sizes,
    ),
    *(answer_folders, serving, mutants),
)
CASES: dict[str, Case] = {name: case for module in MODULES for name, case in module.CASES.items()}


def main() -> int:
    """Run the cases, print a line for each and all failures."""
    parser = argparse.ArgumentParser(prog="fault_injection", description="Try to break the promises about reliability.")
    parser.add_argument("cases", nargs="*", metavar="CASE", help=f"of {', '.join(CASES)}; default: all")
    parser.add_argument("--fraction", type=float, default=1.0, help="the part of each case's tries to make")
    parser.add_argument("--seed", type=int, default=0, help="of everything that is left to chance")
    parser.add_argument("--only", type=int, metavar="N", help="make this one try")
    parser.add_argument("--until-failure", action="store_true", help="end a case at its first failure")
    parser.add_argument("--jobs", type=int, default=1, help="cases that are tried at the same time, each on one core")
    parser.add_argument("--output", type=Path, help="write the results to this JSON file, case by case")
    options = parser.parse_args()
    unknown = [name for name in options.cases if name not in CASES]
    if unknown:
        parser.error(f"no case is called {unknown[0]}; there are {', '.join(CASES)}")
    _load_everything()
    results: dict[str, dict[str, Any]] = {}
    with tempfile.TemporaryDirectory(prefix="fault-injection-") as folder:
        tempfile.tempdir = folder
        for name, result in _run_all(options.cases or list(CASES), options):
            results[name] = result
            if options.output:
                options.output.write_text(json.dumps(results, indent=2) + "\n")
    return int(any(result["failed"] for result in results.values()))


def _run_all(names: list[str], options: argparse.Namespace) -> Iterator[tuple[str, dict[str, Any]]]:
    """The cases with their results, in the order in which they end.

    Several at a time run in copies of this process, which has all libraries loaded; a pool of `multiprocessing` would
    not do, since its processes may not have children.
    """
    if options.jobs == 1:
        yield from ((name, run(name, options)) for name in names)
        return
    with ProcessPoolExecutor(options.jobs, mp_context=get_context("fork"), initializer=_read_descriptor_zero) as pool:
        running = {pool.submit(run, name, options): name for name in names}
        for done in as_completed(running):
            yield running[done], done.result()


def _read_descriptor_zero() -> None:
    """Let standard input be descriptor 0 again, which tries redirect; `multiprocessing` puts another in its place."""
    sys.stdin = open(0, closefd=False)  # noqa: SIM115 - as long as the process


def run(name: str, options: argparse.Namespace) -> dict[str, Any]:
    """Make the tries of a case in a folder of its own."""
    case, space = CASES[name], Workspace(Path(tempfile.mkdtemp(prefix=f"{name}-")))
    began, failures = time.monotonic(), []
    tries: list[int] = []
    try:
        count = case.count if isinstance(case.count, int) else case.count(space)
        wanted = max(1, round(count * options.fraction))
        order = random.Random(f"{name} {options.seed}")
        tries = [options.only] if options.only is not None else sorted(order.sample(range(count), wanted))
        for number in tries:
            try:
                case.attempt(space, random.Random(f"{name} {options.seed} {number}"), number)
            except Skipped:
                raise
            except Exception as error:  # whatever a promise is broken by
                kind = "" if isinstance(error, AssertionError) else f"{type(error).__name__}: "
                failures.append(f"{name} --seed {options.seed} --only {number}: {kind}{error}")
                print(f"FAILED {failures[-1]}", file=sys.stderr, flush=True)
                if options.until_failure:
                    break
    except Skipped as reason:
        print(f"{name:22} skipped: {reason}", flush=True)
        return {
            "promise": case.promise,
            "tries": 0,
            "failed": 0,
            "skipped": str(reason),
            "seconds": 0.0,
            "commit": _commit(),
        }
    seconds = time.monotonic() - began
    result = f"{len(failures)} FAILED" if failures else "ok"
    print(f"{name:22} {len(tries):5} of {count:5} tries  {seconds:7.1f} s  {result:10} {case.promise}", flush=True)
    return {
        "promise": case.promise,
        "tries": len(tries),
        "of": count,
        "failed": len(failures),
        "failures": failures,
        "seconds": round(seconds, 1),
        "commit": _commit(),
    }


@cache
def _commit() -> str:
    """The commit that is tried, and whether anything was changed since; nothing outside a checkout."""
    here = Path(__file__).parent
    done = subprocess.run(
        ["git", "describe", "--always", "--dirty"], cwd=here, capture_output=True, text=True, check=False
    )
    return done.stdout.strip()


def _load_everything() -> None:
    """Import all that commands import, so that forks have it."""
    for name in USED_BY_COMMANDS:
        importlib.import_module(name)
    import torch

    torch.set_num_threads(1)


if __name__ == "__main__":
    sys.exit(main())
