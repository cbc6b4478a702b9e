"""Compare the speed of encoder-cls with that of other tools and with the machine's limit; write a Markdown page.

    python scripts/benchmarks/speed.py [FOLDER] --cache CACHE [--part train|predict|start|breakdown|growth|all]...
        [--size 256/4]... [--texts sst2]... [--precision float32|bfloat16]... [--rounds N] [--output docs/speed.md]

FOLDER holds a subfolder for each of sst2, ag_news and imdb with train.parquet, which has the columns `text` and
`label`; without it texts of such lengths are made up. Each cell of a part (a size and a kind of texts) is one
interleaved run and a file in CACHE, so the benchmark can be stopped and started again; a cell is measured again when
the code, the versions or the machine change. The picture is written beside the page as cost.png. Peers come with
`pip install -e '.[bench]'`; those that are not installed are left out. All on the CPU; run nothing else meanwhile.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import shlex
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from importlib import metadata
from pathlib import Path
from typing import Any

import torch
from reporting import cpu_name, note, source_hash
from speed_benchmark import breakdown, growth, prediction, starting, training
from speed_benchmark.plan import Plan
from speed_benchmark.sizes import SIZES, Size
from speed_benchmark.texts import KINDS
from speed_benchmark.timing import PRECISIONS

import encoder_cls
from encoder_cls.system.device import resolve_precision
from encoder_cls.system.files import sha256, to_json, write_file

HERE = Path(__file__).parent
PICTURE = "cost.png"
PEERS = ("transformers", "accelerate", "fasttext-numpy2-wheel", "scikit-learn")


@dataclass(frozen=True)
class Part:
    """A part of the benchmark: which cells it has, how to measure one, and what to write of them."""

    cells: Callable[[Plan], Sequence[Any]]
    measure: Callable[..., dict[str, Any]]
    section: Callable[[Plan, dict[Any, dict[str, Any]]], list[str]]


PARTS = {
    "train": Part(training.cells, training.measure, training.section),
    "predict": Part(prediction.cells, prediction.measure, prediction.section),
    "start": Part(starting.cells, starting.measure, starting.section),
    "breakdown": Part(breakdown.cells, breakdown.measure, breakdown.section),
    "growth": Part(growth.cells, growth.measure, growth.section),
}

Results = dict[str, dict[Any, dict[str, Any]]]


def main() -> None:
    """Measure what is asked for and not yet in the cache, and print or write the page."""
    arguments = parse(sys.argv[1:])
    plan = planned(arguments)
    note(f"{machine()}; {abilities()}")
    for name in ("transformers", "fasttext"):
        if not getattr(plan, f"has_{name}"):
            note(f"{name} is not installed (pip install -e '.[bench]'); what needs it is left out")
    results, failures = measure_all(plan, arguments.part, arguments.cache, tables_only=arguments.tables_only)
    text = document(plan, results, command(arguments))
    if arguments.output:
        write_file(arguments.output, text.encode())
        if results.get("growth"):
            growth.picture(results["growth"], arguments.output.with_name(PICTURE))
    else:
        print(text)
    if failures:
        sys.exit(f"{failures} failed; the next run tries again")


def parse(words: Sequence[str]) -> argparse.Namespace:
    """The command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path, nargs="?", help="default: texts are made up")
    parser.add_argument("--cache", type=Path, required=True, help="the folder of single results")
    parser.add_argument("--part", choices=[*PARTS, "all"], action="append", help="repeatable; default: all")
    parser.add_argument("--size", choices=SIZES, action="append", help="d_model/layers; repeatable; default: all")
    parser.add_argument("--texts", choices=KINDS, action="append", help="repeatable; default: all")
    parser.add_argument(
        "--precision", choices=PRECISIONS, action="append", help="repeatable; default: those that this CPU is fast at"
    )
    parser.add_argument("--rounds", type=int, default=3, help="default: 3")
    parser.add_argument("--quick", action="store_true", help="tiny sizes, only to see that everything runs")
    parser.add_argument("--tables-only", action="store_true", help="run nothing: the tables of what is in the cache")
    parser.add_argument("--output", type=Path, help="a Markdown file to write; default: standard output")
    arguments = parser.parse_args(words)
    chosen = arguments.part or ["all"]
    arguments.part = [part for part in PARTS if part in chosen or "all" in chosen]
    for name in arguments.texts or KINDS:
        if arguments.folder and not (arguments.folder / name / "train.parquet").exists():
            parser.error(f"{arguments.folder / name / 'train.parquet'} is missing; choose texts with --texts")
    return arguments


def planned(arguments: argparse.Namespace) -> Plan:
    """What the command line asks for; tiny, where that is asked for."""
    default = ["sst2"] if arguments.quick else KINDS
    fast = ["float32", "bfloat16"] if fast_at_bfloat16() else ["float32"]
    return Plan(
        folder=arguments.folder,
        sizes=[Size(32, 1)] if arguments.quick else [SIZES[name] for name in arguments.size or SIZES],
        kinds=[KINDS[name] for name in arguments.texts or default],
        precisions=tuple(arguments.precision or fast),
        rounds=arguments.rounds,
        seconds=0.0 if arguments.quick else Plan.seconds,
        quick=arguments.quick,
    )


# Measuring


def measure_all(plan: Plan, parts: Sequence[str], cache: Path, *, tables_only: bool) -> tuple[Results, int]:
    """The results of all cells, from the cache or new, and how many failed."""
    results: Results = {}
    failures = 0
    for part in parts:
        results[part] = {}
        for cell in PARTS[part].cells(plan):
            name = cell_name(part, cell)
            path = cache / f"{name}-{sha256(json.dumps(key(plan, part, cell), sort_keys=True).encode())[:16]}.json"
            found = load(path)
            if found is None and not tables_only:
                began = time.monotonic()
                note(f"{name} ...")
                try:
                    found = PARTS[part].measure(plan, *cell)
                except Exception as error:  # whatever it is, the other cells go on
                    failures += 1
                    note(f"{name}: FAILED: {type(error).__name__}: {error}")
                    continue
                write_file(path, to_json(found))
                note(f"{name}: {time.monotonic() - began:.0f} s")
            if found is not None:
                results[part][cell] = found
    return results, failures


def cell_name(part: str, cell: Sequence[Any]) -> str:
    """For files and people."""
    words = [str(getattr(value, "name", value)).replace("/", "x").replace(" ", "-") for value in cell]
    return "-".join([part, *words])


def key(plan: Plan, part: str, cell: Sequence[Any]) -> dict[str, Any]:
    """All that a result depends on."""
    folder = plan.folder
    sources = [
        *Path(encoder_cls.__file__).parent.rglob("*.py"),
        *(HERE / "speed_benchmark").glob("*.py"),
        HERE / "peers.py",
    ]
    return {
        "cell": cell_name(part, cell),
        "plan": [plan.rounds, plan.seconds, plan.quick, plan.precisions],
        "data": {kind.name: (folder / kind.name / "train.parquet").stat().st_size for kind in plan.kinds}
        if folder
        else None,
        "peers": [plan.has_transformers, plan.has_fasttext],
        "source": source_hash(sorted(sources)),
        "versions": versions(),
        "machine": machine(),
    }


def load(path: Path) -> dict[str, Any] | None:
    """A result from the cache; none where the file is missing or damaged."""
    try:
        content: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return None
    return content


# The page


def document(plan: Plan, results: Results, command: str) -> str:
    """The Markdown page."""
    named = ", ".join(f"{name} {version}" for name, version in versions().items())
    lines = ["# Speed", "", f"On {machine()}; {abilities()}. {named}. Made by:", "", "```sh", command, "```", ""]
    lines += ["All on the CPU. Rows of one kind of texts and one size are of one run, in turns."]
    for part, found in results.items():
        if found:
            lines += ["", *PARTS[part].section(plan, found)]
    if results.get("growth"):
        lines += ["", f"![Seconds of setup, of an epoch and of a step as the work grows]({PICTURE})"]
    return "\n".join(lines) + "\n"


def command(arguments: argparse.Namespace) -> str:
    """The command that made the page, without this machine's paths."""
    words = ["python", "scripts/benchmarks/speed.py", *(["FOLDER"] if arguments.folder else []), "--cache", "CACHE"]
    if len(arguments.part) < len(PARTS):
        words += [word for part in arguments.part for word in ("--part", part)]
    for option in ("size", "texts", "precision"):
        words += [word for value in getattr(arguments, option) or () for word in (f"--{option}", value)]
    words += ["--rounds", str(arguments.rounds)] if arguments.rounds != 3 else []
    words += ["--quick"] if arguments.quick else []
    return shlex.join([*words, *(["--output", "docs/speed.md"] if arguments.output else [])])


def machine() -> str:
    """Processor, cores and threads."""
    return f"{cpu_name()}, {os.cpu_count()} cores, {torch.get_num_threads()} threads used"


def abilities() -> str:
    """What the processor's matrix units can do, as far as torch tells."""
    probes = {"AVX-512 bfloat16": "_is_avx512_bf16_supported", "AMX tiles": "_is_amx_tile_supported"}
    known = {name: getattr(torch.cpu, probe, None) for name, probe in probes.items()}
    told = [f"{name}: {'yes' if probe() else 'no'}" for name, probe in known.items() if probe]
    return ", ".join([f"{platform.machine()}, {torch.backends.cpu.get_cpu_capability()}", *told])


def fast_at_bfloat16() -> bool:
    """Whether encoder-cls itself would choose bfloat16 here."""
    return resolve_precision("auto", torch.device("cpu")) == torch.bfloat16


def versions() -> dict[str, str]:
    """Of Python, torch and the peers that are installed."""
    found = {"Python": platform.python_version(), "torch": torch.__version__}
    for name in PEERS:
        try:
            found[name] = metadata.version(name)
        except metadata.PackageNotFoundError:
            continue
    return found


if __name__ == "__main__":
    main()
