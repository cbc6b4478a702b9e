"""The structure of the project: imports only go down, and the drawing shows what is enforced."""

from __future__ import annotations

import re
import tomllib
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
MODULES = sorted((ROOT / "encoder_cls").rglob("*.py"))


def module_name(path: Path) -> str:
    return path.relative_to(ROOT).with_suffix("").as_posix()


def test_imports_only_go_down(capsys):
    """import-linter's layers hold, with every module in one of them."""
    cli = pytest.importorskip("importlinter.cli")
    assert cli.lint_imports(config_filename=str(ROOT / "pyproject.toml"), no_cache=True) == 0, (
        capsys.readouterr().out
    )


def test_the_drawing_has_the_layers_that_are_enforced():
    drawing = (ROOT / "ARCHITECTURE.md").read_text().split("```")[1]
    drawn = [line.split("  ")[0] for line in drawing.strip().splitlines() if line[0] != " "]
    contract = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["importlinter"][
        "contracts"
    ][0]
    assert ["__main__", *(name.removesuffix(".py") for name in drawn)] == contract["layers"]


def test_the_files_to_look_into_exist():
    """A file may be named after its folder, as in `evaluation/report`, `report_text`."""
    page = (ROOT / "ARCHITECTURE.md").read_text()
    table = page.split("## Where to look")[1].split("\n## ")[0]
    names = re.findall(r"`([a-z_]+(?:/[a-z_]+)?)`", table)
    known = {path.with_suffix("").relative_to(ROOT / "encoder_cls").as_posix() for path in MODULES}
    known_in_a_folder = {name.rpartition("/")[2] for name in known}
    assert len(names) > 50
    assert [name for name in names if name not in known | known_in_a_folder] == []


def test_nothing_unpickles_or_borrows_a_transformer():
    """The encoder is written here, and no file is read by running it."""
    borrowed = (
        r"pickle\.|import pickle|(?<!safetensors\.)torch\.(load|save)\(|nn\.Transformer|MultiheadA"
    )
    assert [
        module_name(path)
        for path in MODULES
        if re.search(borrowed, path.read_text(encoding="utf-8"))
    ] == []
