"""The structure that ARCHITECTURE.md promises."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
MODULES = sorted(path for path in (ROOT / "encoder_cls").glob("*.py"))


def test_imports_only_go_down(capsys):
    """import-linter's layers hold, with every module in one of them."""
    cli = pytest.importorskip("importlinter.cli")
    assert cli.lint_imports(config_filename=str(ROOT / "pyproject.toml"), no_cache=True) == 0, capsys.readouterr().out


@pytest.mark.parametrize("module", MODULES, ids=lambda path: path.stem)
def test_every_module_is_described(module):
    """A module opens with its purpose and has its line in ARCHITECTURE.md."""
    assert module.read_text().startswith('"""')
    if module.stem != "__init__":
        assert module.name in (ROOT / "ARCHITECTURE.md").read_text()


@pytest.mark.parametrize("module", MODULES, ids=lambda path: path.stem)
def test_nothing_unpickles_or_borrows_a_transformer(module):
    """The encoder is written here, and no file is read by running it."""
    text = module.read_text()
    assert not re.search(
        r"pickle\.|import pickle|(?<!safetensors\.)torch\.(load|save)\(|nn\.Transformer|MultiheadA", text
    )
