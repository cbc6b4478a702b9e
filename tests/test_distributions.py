"""The two distributions: the same code, and the runtime's answers where nothing but what it declares is installed."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import tarfile
import tomllib
import zipfile
from importlib import metadata
from pathlib import Path

import pytest
from packaging.requirements import Requirement

import encoder_cls

pytest.importorskip("hatchling")
ROOT = Path(__file__).parent.parent
WHOLE, RUNTIME = (
    tomllib.loads((ROOT / folder / "pyproject.toml").read_text())["project"] for folder in ("", "runtime")
)
BUILD = """
import os, sys
from hatchling.build import build_sdist, build_wheel
for folder in sys.argv[2:]:
    os.chdir(folder)
    build_wheel(sys.argv[1])
    build_sdist(sys.argv[1])
"""


def build(into: Path, *folders: Path) -> None:
    """Wheels and source archives of projects, by hatchling itself, which needs no network."""
    subprocess.run([sys.executable, "-c", BUILD, into, *folders], check=True, capture_output=True, text=True)


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with what is built of both."""
    folder = tmp_path_factory.mktemp("built")
    build(folder, ROOT, ROOT / "runtime")
    return folder


def code_in(wheel: Path) -> dict[str, int]:
    """The package in a wheel, each file with a checksum."""
    with zipfile.ZipFile(wheel) as archive:
        return {entry.filename: entry.CRC for entry in archive.infolist() if entry.filename.startswith("encoder_cls/")}


def declared(requirements: list[str], found: dict[str, metadata.Distribution]) -> None:
    """The distributions that requirements name, with all that these need, as they are installed here."""
    for requirement in map(Requirement, requirements):
        if requirement.name.lower() in found or (requirement.marker and not requirement.marker.evaluate({"extra": ""})):
            continue
        distribution = metadata.distribution(requirement.name)
        found[requirement.name.lower()] = distribution
        declared(distribution.requires or [], found)


def test_both_hold_the_same_code(built):
    """Every file of the package, also in a wheel that is built from the source archive."""
    whole, runtime = (next(built.glob(f"{name}-*.whl")) for name in ("encoder_cls", "encoder_cls_runtime"))
    assert code_in(whole) == code_in(runtime)
    files = {file.relative_to(ROOT).as_posix() for file in (ROOT / "encoder_cls").rglob("*") if file.is_file()}
    assert code_in(whole).keys() == {file for file in files if "__pycache__" not in file}
    with tarfile.open(next(built.glob("encoder_cls_runtime-*.tar.gz"))) as archive:
        archive.extractall(built / "source", filter="data")
    (source,) = (built / "source").iterdir()
    (built / "again").mkdir()
    build(built / "again", source)
    again = next((built / "again").glob("*.whl"))
    assert (again.name, code_in(again)) == (runtime.name, code_in(runtime))


def test_the_runtime_declares_a_part_of_what_the_whole_declares():
    """Four libraries, the same versions of them, the same extras, scripts, Pythons and license."""
    assert [Requirement(line).name for line in RUNTIME["dependencies"]] == [
        "numpy",
        "safetensors",
        "tokenizers",
        "typer",
    ]
    assert set(RUNTIME["dependencies"]) < set(WHOLE["dependencies"])
    for name, requirements in RUNTIME["optional-dependencies"].items():
        assert requirements == WHOLE["optional-dependencies"].get(name, requirements)
    for key in ("scripts", "requires-python", "license"):
        assert RUNTIME[key] == WHOLE[key]
    assert (ROOT / "runtime" / "LICENSE").read_text() == (ROOT / "LICENSE").read_text()


def test_the_runtime_predicts_with_nothing_but_what_it_declares(built, trained_run, cli, tmp_path):
    """Its wheel unpacked beside links to what it requires, in a Python that sees nothing else installed."""
    site = tmp_path / "site"
    with zipfile.ZipFile(next(built.glob("encoder_cls_runtime-*.whl"))) as wheel:
        wheel.extractall(site)
    found: dict[str, metadata.Distribution] = {}
    declared(RUNTIME["dependencies"], found)
    for distribution in found.values():
        for file in {path.parts[0] for path in distribution.files or () if path.parts[0] not in {"..", "__pycache__"}}:
            if not (site / file).exists():
                (site / file).symlink_to(distribution.locate_file(file))
    assert not (site / "torch").exists()

    def run(*arguments: object) -> subprocess.CompletedProcess[str]:
        command = [sys.executable, "-S", "-m", "encoder_cls", *map(str, arguments)]
        environment = {**os.environ, "PYTHONPATH": str(site)}
        return subprocess.run(command, capture_output=True, text=True, check=False, env=environment, cwd=tmp_path)

    commands = [
        ["predict", "--model", trained_run.path, "--explain", "--format", name, "rain and snow", "a big soup"]
        for name in ("jsonl", "html")
    ]
    for command in commands:
        answer = run(*command)
        assert (answer.returncode, answer.stderr) == (0, "")
        assert answer.stdout == cli(*command).out
    assert run("--version").stdout == f"encoder-cls {encoder_cls.__version__} (encoder-cls-runtime)\n"
    refused = run("train")
    assert (refused.returncode, refused.stdout) == (2, "")
    assert refused.stderr == "error: needs PyTorch: pip install encoder-cls\n"


def test_the_version_has_one_place(built):
    """Which both distributions read; `pyproject.toml` has none."""
    assert "version" in WHOLE["dynamic"]
    assert "version" in RUNTIME["dynamic"]
    names = sorted(file.name for file in built.iterdir() if file.is_file())
    assert len(names) == 4
    assert all(
        re.match(rf"encoder_cls(_runtime)?-{re.escape(encoder_cls.__version__)}(-py3|\.tar)", name) for name in names
    )
