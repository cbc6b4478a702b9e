"""Puts the code, which is beside this folder in the repository and in it in a source archive, into what is built."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface

PACKAGE = "encoder_cls"


class CodeOfTheRepository(BuildHookInterface[Any]):
    """What hatchling asks before it builds."""

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        """Name the code; an installation for development (`-e`) refers to it instead."""
        if version == "editable":
            return
        root = Path(self.root)
        code = next(folder for folder in (root / PACKAGE, root.parent / PACKAGE) if folder.is_dir())
        build_data["force_include"][str(code)] = PACKAGE
