"""Put the code into the distribution that is built.

It is beside this folder in the repository, and inside it in a source archive.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface

PACKAGE = "encoder_cls"


class CodeOfTheRepository(BuildHookInterface[Any]):
    """The hook that hatchling calls before it builds."""

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        """Name the code; an installation for development (`-e`) refers to it instead."""
        if version == "editable":
            return

        code = Path(self.root) / PACKAGE
        if not code.is_dir():
            code = Path(self.root).parent / PACKAGE
        build_data["force_include"][str(code)] = PACKAGE
