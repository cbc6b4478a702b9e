"""From typing a command to its first result, and the most memory that a training takes."""

from __future__ import annotations

import json
import statistics
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context
from pathlib import Path
from tempfile import TemporaryDirectory
from threading import Thread
from typing import Any

from reporting import NOT_MEASURED, table

from encoder_cls.inference.serialization import save_classifier
from speed_benchmark.plan import Plan
from speed_benchmark.prediction import new_classifier
from speed_benchmark.sizes import Size
from speed_benchmark.systems import Entry, entries, running
from speed_benchmark.texts import KINDS, Kind, write_csv
from speed_benchmark.timing import peak_bytes

COMMAND = [str(Path(sys.executable).with_name("encoder-cls"))]
LONGEST = 600  # seconds until a first step; then something is wrong

# A line on standard error that begins so -> what has been done when it comes.
LINES = {"reading ": "imports", "data: ": "texts, tokenizer", "training in ": "run folder, first weights"}
PHASES = [*LINES.values(), "first step"]

NOTES = """\
`encoder-cls train` with the default recipe, in a process of its own, from starting it to the end of the first
optimizer step, which is one of pretraining (the first row of `metrics.jsonl` with `train.log_every=1`): the median of
{rounds} runs, in seconds. `predict` is one text given on the command line, to the end of the process, with an encoder
of 128/2 and a linear model."""
MEMORY_NOTES = """\
The most memory resident in a process that makes one system and lets it have one turn, libraries and texts
included, in MiB."""


TIME, MEMORY = ("time",), ("memory",)


def cells(_plan: Plan) -> list[tuple[str]]:
    """Time, then memory."""
    return [TIME, MEMORY]


def measure(plan: Plan, what: str) -> dict[str, Any]:
    """One of the cells."""
    return first_steps(plan) if what == "time" else memory(plan)


def first_steps(plan: Plan) -> dict[str, Any]:
    """Of several data sets, in turns: the seconds of each phase, in each run; and of `predict`."""
    with TemporaryDirectory() as folder:
        data = dict(_data(plan, Path(folder)))
        runs: dict[str, list[dict[str, float]]] = {name: [] for name in data}
        model = Path(folder) / "model"
        save_classifier(new_classifier(plan.corpus(plan.kinds[0]), Size(128, 2), tables=True, linear=True), model)
        predictions = []
        for _ in range(plan.rounds):
            for name, overrides in data.items():
                runs[name].append(first_step(overrides))
            began = time.perf_counter()
            subprocess.run(
                [*COMMAND, "predict", "--model", str(model), "a text"], check=True, capture_output=True, timeout=LONGEST
            )
            predictions.append(time.perf_counter() - began)
    return {"train": runs, "predict": predictions}


def _data(plan: Plan, folder: Path) -> Iterator[tuple[str, list[str]]]:
    """Names of data sets and the overrides that choose them."""
    if not plan.quick:
        yield "bundled example", []
    for kind in plan.kinds:
        path = folder / f"{kind.name}.csv"
        if plan.folder:
            path = plan.folder / kind.name / "train.parquet"
        else:
            dataset = plan.corpus(kind).dataset
            write_csv(path, dataset.train, dataset.label_names)
        yield kind.name, [f"data.train={json.dumps(str(path))}", "data.validation=null", "data.test=null"]


def first_step(overrides: Sequence[str]) -> dict[str, float]:
    """The seconds of each phase of a training until its first step is logged; then it is stopped.

    Raises:
        RuntimeError: it ended before; the last line that it wrote is the message.
    """
    with TemporaryDirectory() as folder:
        run = Path(folder) / "run"
        options = [word for override in [*overrides, "train.log_every=1"] for word in ("--set", override)]
        command = [*COMMAND, "train", "--device", "cpu", "--run-dir", str(run), *options]
        began, lines = time.time(), list[tuple[float, str]]()
        with subprocess.Popen(command, stderr=subprocess.PIPE, stdout=subprocess.DEVNULL, text=True) as process:
            assert process.stderr is not None
            reader = Thread(
                target=lambda stream: lines.extend((time.time(), line) for line in stream), args=[process.stderr]
            )
            reader.start()
            try:
                ended = _wait_for_step(process, run / "metrics.jsonl", began)
                peak = peak_bytes(process.pid) if ended else 0
            finally:
                process.terminate()
                process.wait()
                reader.join()
        if ended is None:
            raise RuntimeError(lines[-1][1].strip() if lines else f"exit code {process.returncode}")
    moments = [began, *(next(when for when, line in lines if line.startswith(start)) for start in LINES), ended]
    spent = {name: moments[i + 1] - moments[i] for i, name in enumerate(PHASES)}
    return {**spent, "in all": ended - began, "peak": float(peak)}


def _wait_for_step(process: subprocess.Popen[str], metrics: Path, began: float) -> float | None:
    """When the first step was logged; none if the process ended, or took too long."""
    while process.poll() is None and time.time() < began + LONGEST:
        for line in metrics.read_text(encoding="utf-8").splitlines() if metrics.exists() else []:
            if line.endswith("}") and (row := json.loads(line))["step"] >= 1:
                return float(row["time"])
        time.sleep(0.02)
    return None


# Memory


def memory(plan: Plan) -> dict[str, Any]:
    """Peak bytes of each system, each in a process of its own."""
    size = Size(256, 4) if not plan.quick else plan.sizes[0]
    found = {}
    for kind in plan.kinds[-1:]:  # the longest texts
        for number, entry in enumerate(entries(plan.precisions)):
            if entry.needs_transformers and not plan.has_transformers:
                continue
            with ProcessPoolExecutor(1, mp_context=get_context("spawn")) as pool:
                peak = pool.submit(peak_of, plan, size, kind, number).result()
            found[f"{kind.name}|{entry.name}|{entry.precision}"] = peak
    return {"size": str(size), "peaks": found}


def peak_of(plan: Plan, size: Size, kind: Kind, number: int) -> int:
    """The peak of this process after one turn of a system."""
    entry: Entry = entries(plan.precisions)[number]
    with running(entry, plan.sample(kind, size), size, budget=0.0) as system:
        system()
    return peak_bytes()


def section(plan: Plan, results: dict[tuple[str], dict[str, Any]]) -> list[str]:
    """Markdown."""
    lines = ["## From the command to the first step", "", NOTES.format(rounds=plan.rounds), ""]
    if TIME in results:
        lines += table(["data", *PHASES, "in all", "lowest to highest", "memory, MiB"], _time_rows(results[TIME]))
    if MEMORY in results:
        lines += ["", f"### Memory of training, {results[MEMORY]['size']}", "", MEMORY_NOTES, ""]
        lines += table(["system", "precision", *_kinds(results)], _memory_rows(results), left=2)
    return lines


def _time_rows(found: dict[str, Any]) -> list[list[str]]:
    rows = []
    for name, runs in found["train"].items():
        whole = [run["in all"] for run in runs]
        rows.append([
            name,
            *(f"{statistics.median(run[phase] for run in runs):.2f}" for phase in [*PHASES, "in all"]),
            f"{min(whole):.2f} to {max(whole):.2f}",
            f"{statistics.median(run['peak'] for run in runs) / 2**20:,.0f}",
        ])  # fmt: skip
    whole = found["predict"]
    spread = [f"{statistics.median(whole):.2f}", f"{min(whole):.2f} to {max(whole):.2f}"]
    return [*rows, ["predict, one text", *[NOT_MEASURED] * len(PHASES), *spread, NOT_MEASURED]]


def _kinds(results: dict[tuple[str], dict[str, Any]]) -> list[str]:
    return [name for name in KINDS if any(key.startswith(f"{name}|") for key in results[MEMORY]["peaks"])]


def _memory_rows(results: dict[tuple[str], dict[str, Any]]) -> list[list[str]]:
    peaks = results[MEMORY]["peaks"]
    systems = dict.fromkeys(key.partition("|")[2] for key in peaks)
    return [
        [*system.split("|"), *(f"{peaks[f'{kind}|{system}'] / 2**20:,.0f}" for kind in _kinds(results))]
        for system in systems
    ]
