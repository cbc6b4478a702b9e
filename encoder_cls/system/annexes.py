"""Find annexes, the folders of `encoder_cls/extras`: the core knows none by name."""

from __future__ import annotations

from importlib import import_module
from pathlib import Path
from types import ModuleType

EXTRAS = "extras"


def annexes_with(module: str) -> dict[str, ModuleType]:
    """Import a module of each annex that has it, sorted by name."""
    package, _, _ = __name__.partition(".")
    files = (Path(__file__).parents[1] / EXTRAS).glob(f"*/{module}.py")
    names = sorted(file.parent.name for file in files)
    return {name: import_module(f"{package}.{EXTRAS}.{name}.{module}") for name in names}
