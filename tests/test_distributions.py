"""The two distributions: the same code, and the runtime's answers where only what it declares is installed."""

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
WHOLE, RUNTIME = (
    tomllib.loads((ROOT / folder / "pyproject.toml").read_text())["project"]
    for folder in ("", "runtime")
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
    subprocess.run(
        [sys.executable, "-c", BUILD, into, *folders], check=True, capture_output=True, text=True
    )


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with what is built of both."""
    folder = tmp_path_factory.mktemp("built")
    build(folder, ROOT, ROOT / "runtime")
    return folder


def code_in(wheel: Path) -> dict[str, int]:
    """The package in a wheel, each file with a checksum."""
    with zipfile.ZipFile(wheel) as archive:
        return {
            entry.filename: entry.CRC
            for entry in archive.infolist()
            if entry.filename.startswith("encoder_cls/")
        }


def declared(requirements: list[str], found: dict[str, metadata.Distribution]) -> None:
    """Collect the distributions that requirements name, with all that these need, as they are installed here."""
    for it in map(Requirement, requirements):
        if it.name.lower() not in found and (
            it.marker is None or it.marker.evaluate({"extra": ""})
        ):
            found[it.name.lower()] = distribution = metadata.distribution(it.name)
            declared(distribution.requires or [], found)


def test_both_hold_the_same_code(built):
    """Every file of the package, also in a wheel that is built from the source archive; both have its version."""
    names = [file.name for file in built.iterdir() if file.is_file()]
    assert len(names) == 4
    assert all(
        re.match(rf"encoder_cls(_runtime)?-{re.escape(encoder_cls.__version__)}[-.]", name)
        for name in names
    )
    whole, runtime = (
        next(built.glob(f"{name}-*.whl")) for name in ("encoder_cls", "encoder_cls_runtime")
    )
    assert code_in(whole) == code_in(runtime)
    files = {
        file.relative_to(ROOT).as_posix()
        for file in (ROOT / "encoder_cls").rglob("*")
        if file.is_file()
    }
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
    names = [Requirement(line).name for line in RUNTIME["dependencies"]]
    assert names == ["numpy", "safetensors", "tokenizers", "typer"]
    assert set(RUNTIME["dependencies"]) < set(WHOLE["dependencies"])
    for name, requirements in RUNTIME["optional-dependencies"].items():
        assert requirements == WHOLE["optional-dependencies"].get(name, requirements)
    for key in ("scripts", "requires-python", "license"):
        assert RUNTIME[key] == WHOLE[key]
    assert (ROOT / "runtime" / "LICENSE").read_text() == (ROOT / "LICENSE").read_text()


@pytest.fixture
def installed(built, tmp_path) -> Callable[..., Callable[..., dict[str, Any]]]:
    """Unpacks the runtime's wheel beside links to what it requires, with its extras; pip would need the network.

    It returns a function that makes arguments of `subprocess` for a program that sees nothing else.
    """

    def install(*extras: str) -> Callable[..., dict[str, Any]]:
        site = tmp_path / "-".join(("site", *extras))
        with zipfile.ZipFile(next(built.glob("encoder_cls_runtime-*.whl"))) as wheel:
            wheel.extractall(site)
        found: dict[str, metadata.Distribution] = {}
        for requirements in (
            RUNTIME["dependencies"],
            *(RUNTIME["optional-dependencies"][extra] for extra in extras),
        ):
            declared(requirements, found)
        for distribution in found.values():
            for file in {path.parts[0] for path in distribution.files or ()} - {
                "..",
                "__pycache__",
            }:
                if not (site / file).exists():
                    (site / file).symlink_to(distribution.locate_file(file))
        assert not (site / "torch").exists()
        shared = {"env": {**os.environ, "PYTHONPATH": str(site)}, "cwd": tmp_path, "text": True}
        return lambda *words: {
            "args": [sys.executable, "-S", "-m", "encoder_cls", *map(str, words)],
            **shared,
        }

    return install


def test_the_runtime_predicts_with_nothing_but_what_it_declares(installed, trained_run, cli):
    start = installed()

    def run(*words) -> subprocess.CompletedProcess[str]:
        return subprocess.run(**start(*words), capture_output=True, check=False)

    for name in ("jsonl", "html"):
        command = [
            "predict",
            "--model",
            trained_run.path,
            "--explain",
            "--format",
            name,
            "rain and snow",
            "a big soup",
        ]
        answer = run(*command)
        assert (answer.returncode, answer.stderr) == (0, "")
        assert answer.stdout == cli(*command).out
    assert (
        run("--version").stdout == f"encoder-cls {encoder_cls.__version__} (encoder-cls-runtime)\n"
    )
    for command, message in (
        (
            ["train"],
            "needs PyTorch: pip uninstall encoder-cls-runtime, then pip install encoder-cls",
        ),
        (
            ["serve", trained_run.path],
            "serve: needs starlette: pip install 'encoder-cls-runtime[serve]'",
        ),
    ):
        refused = run(*command)
        assert (refused.returncode, refused.stdout) == (2, "")
        assert refused.stderr == f"error: {message}\n"


def test_the_runtime_serves_with_its_extra(installed, trained_run, classifier):
    command = installed("serve")("serve", trained_run.path, "--port", 0)
    with subprocess.Popen(**command, stderr=subprocess.PIPE) as server:
        patience = Timer(TIME_LIMIT, server.kill)
        patience.start()
        try:
            address = re.search(r"http://[0-9.:]+", server.stderr.readline())[0]
            body = json.dumps({"texts": ["rain and snow"], "explain": True}).encode()
            request = Request(f"{address}/predict", body, {"Content-Type": "application/json"})
            with urlopen(request) as reply:
                found = json.loads(reply.read())
            for path, part in (
                ("metrics", b"encoder_cls_texts_total 1.0"),
                ("", b"<title>"),
                ("health", b'"ok"'),
            ):
                with urlopen(f"{address}/{path}") as reply:
                    assert part in reply.read()
            server.terminate()
            assert server.wait() == 0
        finally:
            patience.cancel()
            server.kill()
    (expected,), (answer,) = classifier.predict(["rain and snow"]), found["predictions"]
    assert (found["model"], answer["label"]) == (classifier.sha256, expected.label)
    assert answer["probability"] == pytest.approx(expected.probability, abs=1e-5)
    assert [word["word"] for word in answer["explanation"]] == ["rain", "and", "snow"]
