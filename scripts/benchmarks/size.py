"""The size of a model, as a folder and exported, and of an installation.

    python scripts/benchmarks/size.py RUN [--output docs/results.md]

RUN is a finished run of the bundled example. fastText's and scikit-learn's models of the same texts
are those of `cold.py`. An installation is this code and all packages that it requires, in the
versions that are installed here, without compiled files of Python.
"""

from __future__ import annotations

import argparse
import tempfile
import tomllib
from collections.abc import Iterable, Sequence
from importlib import metadata
from importlib.util import find_spec
from pathlib import Path

from cold import peers
from packaging.requirements import Requirement
from shared.benchmark import ROOT, Benchmark, Case, Found, Row
from shared.commands import PROGRAM, run
from shared.page import NOT_MEASURED, table

MODEL = "model of the example, a folder"
EXPORTED = {"as a web page": ".html", "as a JavaScript module": ".mjs"}
# The files of other systems' models, and the libraries that write them.
OTHERS = {
    "fastText's model": ("fasttext.bin", "fasttext"),
    "scikit-learn's pipeline": ("sklearn.joblib", "sklearn"),
}
# The folders of the projects.
INSTALLED = {"pip install encoder-cls": "", "pip install encoder-cls-runtime": "runtime"}


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the run."""
    parser.add_argument("run", type=Path)


def cases(_arguments: argparse.Namespace) -> list[Case]:
    """Models, then installations."""
    others = [name for name, (_, library) in OTHERS.items() if find_spec(library)]
    return [{"what": what} for what in (MODEL, *EXPORTED, *others, *INSTALLED)]


def measure(arguments: argparse.Namespace, case: Case) -> Found:
    """Bytes; of an installation, also the number of its packages."""
    what = case["what"]
    if what in INSTALLED:
        return installation(ROOT / INSTALLED[what])
    if what in OTHERS:
        file, _ = OTHERS[what]
        return {"bytes": (peers() / file).stat().st_size}
    if what == MODEL:
        return {"bytes": size_of((arguments.run / "model").rglob("*"))}

    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, f"model{EXPORTED[what]}")
        run([*PROGRAM, "export", str(arguments.run), "--output", str(path)])
        return {"bytes": path.stat().st_size}


def installation(project: Path) -> Found:
    """The bytes of a project's code and of all distributions that it requires, and their number."""
    content = tomllib.loads((project / "pyproject.toml").read_text(encoding="utf-8"))
    found: dict[str, metadata.Distribution] = {}
    _add_required(content["project"]["dependencies"], found)

    size = size_of((ROOT / "encoder_cls").rglob("*"))
    for distribution in found.values():
        size += size_of(Path(str(file.locate())) for file in distribution.files or [])
    return {"bytes": size, "packages": 1 + len(found)}


def _add_required(requirements: Iterable[str], found: dict[str, metadata.Distribution]) -> None:
    for line in requirements:
        requirement = Requirement(line)
        name = requirement.name.lower()
        is_wanted = requirement.marker is None or requirement.marker.evaluate({"extra": ""})
        if is_wanted and name not in found:
            found[name] = metadata.distribution(requirement.name)
            _add_required(found[name].requires or [], found)


def size_of(files: Iterable[Path]) -> int:
    """The bytes of files, without those that Python compiles."""
    kept = [file for file in files if file.is_file() and "__pycache__" not in file.parts]
    return sum(file.stat().st_size for file in kept)


def lines(rows: Sequence[Row]) -> list[str]:
    """A row for each."""
    cells = []
    for row in rows:
        packages = str(row.found.get("packages", NOT_MEASURED))
        cells.append([row.case["what"], f"{row.found['bytes'] / 1e6:,.1f}", packages])
    return table(["", "MB", "packages"], cells)


BENCHMARK = Benchmark("size", __doc__, add_arguments, cases, measure, lines, rounds=1)

if __name__ == "__main__":
    BENCHMARK.main()
