"""What only predicts needs no library of training: each of its modules loads where these cannot be imported."""

from __future__ import annotations

import subprocess
import sys
import tomllib
from pathlib import Path

ROOT = Path(__file__).parent.parent
CONTRACTS = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["importlinter"]["contracts"]
(CONTRACT,) = (contract for contract in CONTRACTS if contract["type"] == "forbidden")
EXCEPTIONS = {line.split(" -> ")[0] for line in CONTRACT["ignore_imports"]}

BLOCKED = """
import importlib, sys
class Blocked:
    def find_spec(self, name, path=None, target=None):
        if name.split(".")[0] in FORBIDDEN or name in FORBIDDEN:
            raise ImportError(f"{name} is not to be imported")
sys.meta_path.insert(0, Blocked())
for module in MODULES:
    importlib.import_module(module)
"""


def modules() -> list[str]:
    """All that the contract speaks of, but for its exceptions."""
    found = []
    for name in CONTRACT["source_modules"]:
        path = ROOT / name.replace(".", "/")
        names = [f"{name}.{file.stem}" for file in path.glob("*.py") if file.stem != "__init__"]
        found += names if path.is_dir() else [name]
    return sorted(set(found) - EXCEPTIONS)


def load(*names: str) -> subprocess.CompletedProcess[str]:
    """Import modules in a process in which the forbidden ones cannot be."""
    code = f"FORBIDDEN = {CONTRACT['forbidden_modules']!r}\nMODULES = {names!r}\n{BLOCKED}"
    return subprocess.run([sys.executable, "-c", code], check=False, capture_output=True, text=True)


def test_what_only_predicts_loads_without_the_libraries_of_training():
    """Every module of the contract, so that it says what is so."""
    outcome = load(*modules())
    assert outcome.returncode == 0, outcome.stderr
    assert len(modules()) > 12


def test_what_trains_does_not():
    """So the libraries are blocked, and the exceptions are some."""
    for name in sorted(EXCEPTIONS):
        outcome = load(name)
        assert outcome.returncode == 1
        assert "is not to be imported" in outcome.stderr
