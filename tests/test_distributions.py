"""The two distributions hold the same code, and the runtime needs only what it declares."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import tarfile
import tomllib
import zipfile
from collections.abc import Callable
from importlib import metadata
from pathlib import Path
from threading import Timer
from typing import Any
from urllib.request import Request, urlopen

import pytest
from packaging.requirements import Requirement
from support.programs import TIME_LIMIT

import encoder_cls

pytest.importorskip("hatchling")
ROOT = Path(__file__).parent.parent


def project(folder: str) -> dict[str, Any]:
    """The table `project` of a distribution's pyproject.toml."""
    return tomllib.loads((ROOT / folder / "pyproject.toml").read_text())["project"]


WHOLE = project("")
RUNTIME = project("runtime")
BUILD = """
import os, sys
from hatchling.build import build_sdist, build_wheel

for folder in sys.argv[2:]:
    os.chdir(folder)
    build_wheel(sys.argv[1])
    build_sdist(sys.argv[1])
"""


def build(into: Path, *folders: Path) -> None:
    """Build wheels and source archives of projects by hatchling alone, which needs no network."""
    command = [sys.executable, "-c", BUILD, into, *folders]
    subprocess.run(command, check=True, capture_output=True, text=True)


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with the wheels and source archives of both."""
    folder = tmp_path_factory.mktemp("built")
    build(folder, ROOT, ROOT / "runtime")
    return folder


def code_in(wheel: Path) -> dict[str, int]:
    """The checksum of each file of the package in a wheel."""
    with zipfile.ZipFile(wheel) as archive:
        entries = archive.infolist()
    package = [entry for entry in entries if entry.filename.startswith("encoder_cls/")]
    return {entry.filename: entry.CRC for entry in package}


def add_installed(requirements: list[str], found: dict[str, metadata.Distribution]) -> None:
    """Add the installed distributions that requirements name, and all that these need."""
    for line in requirements:
        requirement = Requirement(line)
        name = requirement.name.lower()
        is_wanted = requirement.marker is None or requirement.marker.evaluate({"extra": ""})
        if is_wanted and name not in found:
            found[name] = metadata.distribution(requirement.name)
            add_installed(found[name].requires or [], found)


@pytest.mark.slow
def test_all_are_of_the_version_of_the_package(built):
    names = [file.name for file in built.iterdir() if file.is_file()]
    assert len(names) == 4
    version = re.escape(encoder_cls.__version__)
    for name in names:
        assert re.match(rf"encoder_cls(_runtime)?-{version}[-.]", name)


@pytest.mark.slow
def test_both_hold_the_same_code(built):
    """Both have every file of the package, also if built from the source archive."""
    whole = next(built.glob("encoder_cls-*.whl"))
    runtime = next(built.glob("encoder_cls_runtime-*.whl"))
    assert code_in(whole) == code_in(runtime)

    files = set()
    for file in (ROOT / "encoder_cls").rglob("*"):
        if file.is_file() and "__pycache__" not in file.parts:
            files.add(file.relative_to(ROOT).as_posix())
    assert code_in(whole).keys() == files

    with tarfile.open(next(built.glob("encoder_cls_runtime-*.tar.gz"))) as archive:
        archive.extractall(built / "source", filter="data")
    (source,) = (built / "source").iterdir()
    (built / "again").mkdir()
    build(built / "again", source)
    again = next((built / "again").glob("*.whl"))
    assert again.name == runtime.name
    assert code_in(again) == code_in(runtime)


def test_the_runtime_declares_a_part_of_what_the_whole_declares():
    """Its libraries are of the same versions; extras, scripts and license are the same."""
    names = {Requirement(line).name for line in RUNTIME["dependencies"]}
    assert names.isdisjoint({"torch", "scipy", "scikit-learn", "pyarrow", "datasets"})
    assert set(RUNTIME["dependencies"]) < set(WHOLE["dependencies"])
    for name, requirements in RUNTIME["optional-dependencies"].items():
        assert requirements == WHOLE["optional-dependencies"].get(name, requirements)
    for key in ("scripts", "requires-python", "license"):
        assert RUNTIME[key] == WHOLE[key]
    assert (ROOT / "runtime" / "LICENSE").read_text() == (ROOT / "LICENSE").read_text()


Start = Callable[..., dict[str, Any]]


@pytest.fixture
def install(built, tmp_path) -> Callable[..., Start]:
    """A function that installs the runtime with some extras, beside links to what it requires.

    pip would need the network. The function returns another one, which makes arguments of
    `subprocess` for a program that can import nothing else.
    """

    def installed(*extras: str) -> Start:
        site = tmp_path / "-".join(("site", *extras))
        with zipfile.ZipFile(next(built.glob("encoder_cls_runtime-*.whl"))) as wheel:
            wheel.extractall(site)

        found: dict[str, metadata.Distribution] = {}
        add_installed(RUNTIME["dependencies"], found)
        for extra in extras:
            add_installed(RUNTIME["optional-dependencies"][extra], found)
        for distribution in found.values():
            link_files(distribution, site)
        assert not (site / "torch").exists()

        environment = {**os.environ, "PYTHONPATH": str(site)}
        return lambda *words: {
            "args": [sys.executable, "-S", "-m", "encoder_cls", *map(str, words)],
            "env": environment,
            "cwd": tmp_path,
            "text": True,
        }

    return installed


def link_files(distribution: metadata.Distribution, site: Path) -> None:
    """Link the modules and packages of an installed distribution into a folder."""
    tops = {path.parts[0] for path in distribution.files or ()}
    for name in tops - {"..", "__pycache__"}:
        link = site / name
        if not link.exists():
            link.symlink_to(distribution.locate_file(name))


@pytest.fixture
def run_runtime(install) -> Callable[..., subprocess.CompletedProcess[str]]:
    """A function that runs the runtime without extras."""
    start = install()

    def run(*words: object) -> subprocess.CompletedProcess[str]:
        return subprocess.run(**start(*words), capture_output=True, check=False)

    return run


@pytest.mark.slow
def test_the_runtime_predicts_with_nothing_but_what_it_declares(run_runtime, trained_run, cli):
    texts = ["rain and snow", "a big soup"]
    for output_format in ("jsonl", "html"):
        options = ["--model", trained_run.path, "--explain", "--format", output_format]
        command = ["predict", *options, *texts]
        ended = run_runtime(*command)
        assert ended.returncode == 0
        assert ended.stderr == ""
        assert ended.stdout == cli(*command).out

    version = f"encoder-cls {encoder_cls.__version__} (encoder-cls-runtime)\n"
    assert run_runtime("--version").stdout == version


@pytest.mark.slow
@pytest.mark.parametrize(
    ("command", "message"),
    [
        (
            ["train"],
            "needs PyTorch: pip uninstall encoder-cls-runtime, then pip install encoder-cls",
        ),
        (
            ["serve", "{run}"],
            "serve: needs starlette: pip install 'encoder-cls-runtime[serve]'",
        ),
    ],
    ids=["train", "serve"],
)
def test_the_runtime_says_what_a_command_needs(run_runtime, trained_run, command, message):
    refused = run_runtime(*(word.format(run=trained_run.path) for word in command))
    assert refused.returncode == 2
    assert refused.stdout == ""
    assert refused.stderr == f"error: {message}\n"


def read(address: str) -> bytes:
    with urlopen(address) as reply:
        return reply.read()


@pytest.mark.slow
def test_the_runtime_serves_with_its_extra(install, trained_run, classifier):
    start = install("serve")
    command = start("serve", trained_run.path, "--port", 0)
    with subprocess.Popen(**command, stderr=subprocess.PIPE) as server:
        patience = Timer(TIME_LIMIT, server.kill)
        patience.start()
        try:
            address = re.search(r"http://[0-9.:]+", server.stderr.readline())[0]
            body = json.dumps({"texts": ["rain and snow"], "explain": True}).encode()
            request = Request(f"{address}/predict", body, {"Content-Type": "application/json"})
            with urlopen(request) as reply:
                found = json.loads(reply.read())
            assert b"encoder_cls_texts_total 1.0" in read(f"{address}/metrics")
            assert b"<title>" in read(f"{address}/")
            assert b'"ok"' in read(f"{address}/health")
            server.terminate()
            assert server.wait() == 0
        finally:
            patience.cancel()
            server.kill()

    (expected,) = classifier.predict(["rain and snow"])
    (prediction,) = found["predictions"]
    assert found["model"] == classifier.sha256
    assert prediction["label"] == expected.label
    assert prediction["probability"] == pytest.approx(expected.probability, abs=1e-5)
    words = [word["word"] for word in prediction["explanation"]]
    assert words == ["rain", "and", "snow"]
