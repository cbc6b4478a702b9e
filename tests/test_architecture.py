"""The structure of the project: imports only go down, and the drawing shows what is enforced."""

from __future__ import annotations

import re
import tomllib
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
MODULES = sorted((ROOT / "encoder_cls").rglob("*.py"))


def test_imports_only_go_down(capsys):
    """import-linter's layers hold, with every module in one of them."""
    cli = pytest.importorskip("importlinter.cli")
    exit_code = cli.lint_imports(config_filename=str(ROOT / "pyproject.toml"), no_cache=True)
    assert exit_code == 0, capsys.readouterr().out


def test_the_drawing_has_the_layers_that_are_enforced():
    drawing = (ROOT / "ARCHITECTURE.md").read_text().split("```")[1]
    drawn = ["__main__"]
    for line in drawing.strip().splitlines():
        layer, _, _ = line.partition("  ")
        drawn.append(layer)

    project = tomllib.loads((ROOT / "pyproject.toml").read_text())
    layers, *_ = project["tool"]["importlinter"]["contracts"]
    assert drawn == layers["layers"]


def test_the_files_to_look_into_exist():
    """A file may be named after its folder, as in `evaluation/report`, `report_page`."""
    page = (ROOT / "ARCHITECTURE.md").read_text()
    table = page.split("## Where to look")[1].split("\n## ")[0]
    names = re.findall(r"`([a-z_]+(?:/[a-z_]+)?)`", table)
    assert len(names) > 50

    known = set()
    for path in MODULES:
        known.add(path.with_suffix("").relative_to(ROOT / "encoder_cls").as_posix())
        known.add(path.stem)
    assert [name for name in names if name not in known] == []


def test_nothing_unpickles_or_borrows_a_transformer():
    """The encoder is written here, and no file is read by running it."""
    unwanted = re.compile(
        r"pickle\.|import pickle|(?<!safetensors\.)torch\.(load|save)\(|nn\.Transformer|MultiheadA"
    )
    for path in MODULES:
        assert not unwanted.search(path.read_text(encoding="utf-8")), path
