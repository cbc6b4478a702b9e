"""An exported model in Node beside the NumPy engine: texts a second of one core.

    python scripts/benchmarks/javascript.py RUN [--texts FILE] [--rounds N]
        [--output docs/results.md]

RUN is a finished run; FILE, by default the test texts of the bundled example, has a column of texts
and of labels. Both engines predict all texts several times, each in a process of its own. The speed
is that of the median pass, by processor time; the first pass is not counted.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Sequence
from functools import cache
from pathlib import Path

from shared.benchmark import Benchmark, Case, Found, Row, grouped, median
from shared.commands import run, work_folder
from shared.data import EXAMPLE, path_of, read
from shared.page import table

# How often a process predicts the texts.
PASSES = 9

IN_NODE = """
import fs from "node:fs";
const [module, file, passes] = process.argv.slice(1);
const texts = JSON.parse(fs.readFileSync(file, "utf8"));
const classifier = await (await import(module)).load();
const seconds = [];
for (let pass = 0; pass <= Number(passes); pass++) {
  const start = process.cpuUsage();
  classifier.predict(texts);
  const { user, system } = process.cpuUsage(start);
  seconds.push((user + system) / 1e6);
}
console.log(JSON.stringify(seconds.slice(1)));
"""
IN_PYTHON = """
import json, sys, time
from pathlib import Path
from encoder_cls import load_classifier

model, file, passes = sys.argv[1:]
texts = json.loads(Path(file).read_bytes())
classifier = load_classifier(model, engine="numpy")
seconds = []
for _ in range(int(passes) + 1):
    start = time.process_time()
    classifier.predict(texts)
    seconds.append(time.process_time() - start)
print(json.dumps(seconds[1:]))
"""
ENGINES = ("NumPy", "Node")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of this script."""
    parser.add_argument("run", type=Path)
    parser.add_argument("--texts", type=Path, default=path_of(Path(), EXAMPLE, "test"))


def cases(arguments: argparse.Namespace) -> list[Case]:
    """Both engines."""
    return [
        {"run": arguments.run.name, "texts": arguments.texts.stem, "engine": engine}
        for engine in ENGINES
    ]


@cache
def exported(model: Path, texts: Path) -> tuple[Path, Path]:
    """The model as a module, and the texts as JSON."""
    module = work_folder() / "model.mjs"
    run([sys.executable, "-m", "encoder_cls", "export", str(model), "--output", str(module)])
    file = work_folder() / "texts.json"
    file.write_text(json.dumps(list(read(texts).texts)), encoding="utf-8")
    return module, file


def measure(arguments: argparse.Namespace, case: Case) -> Found:
    """Texts a second of the median pass."""
    module, file = exported(arguments.run, arguments.texts)
    if case["engine"] == "Node":
        command = ["node", "--input-type=module", "--eval", IN_NODE, "--", module.as_uri()]
    else:
        command = [sys.executable, "-c", IN_PYTHON, str(arguments.run)]
    ended = run([*command, str(file), str(PASSES)])

    seconds = sorted(json.loads(ended.output.splitlines()[-1]))
    num_texts = len(json.loads(file.read_bytes()))
    return {"speed": num_texts / seconds[len(seconds) // 2]}


def lines(rows: Sequence[Row]) -> list[str]:
    """A row for each engine, medians over the rounds."""
    cells = []
    for (name, texts, engine), group in grouped(rows, "run", "texts", "engine").items():
        cells.append([name, texts, engine, f"{median(group, 'speed'):,.0f}"])
    return table(["model", "texts", "engine", "texts a second"], cells, left=3)


BENCHMARK = Benchmark("javascript", __doc__, add_arguments, cases, measure, lines)

if __name__ == "__main__":
    BENCHMARK.main()
