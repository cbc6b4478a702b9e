"""The command line: one command, one function call; results on standard output, all else on standard error."""

from __future__ import annotations

from encoder_cls.cli.app import main

__all__ = ["main"]
