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
