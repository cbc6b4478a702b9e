"""`config.yaml` as training writes it, read without a library for YAML, which what only predicts has not.

Training writes each value of the section `data` on a line of its own, in PyYAML's block style; a long one goes on in
lines that are indented further. What a person has written in another style is not found.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path

SOURCES = ("train", "validation", "test", "unlabelled", "corrections")
SECTION = re.compile(r"^data:\n((?: .*\n|\n)+)", re.MULTILINE)
VALUE = re.compile(r"^  (\w+): +(.+(?:\n(?:   .*)?)*)$", re.MULTILINE)
ESCAPES = re.compile(r"\\(x[0-9A-F]{2}|u[0-9A-F]{4}|U[0-9A-F]{8}|.)")
NAMED: Mapping[str, str] = {
    **{"0": "\0", "a": "\a", "b": "\b", "t": "\t", "n": "\n", "v": "\v", "f": "\f", "r": "\r", "e": "\x1b"},
    **{"N": "\x85", "_": "\xa0", "L": "\u2028", "P": "\u2029"},
}


def written_sources(config_file: Path) -> list[str]:
    """The data that a run was started with, as far as it can be found."""
    try:
        text = config_file.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError):
        return []
    section = SECTION.search(text)
    values = VALUE.findall(section[1]) if section else []
    return [_text(value) for name, value in values if name in SOURCES and value.strip() != "null"]


def _text(scalar: str) -> str:
    """The text of a scalar in any of YAML's three styles."""
    if scalar[0] == '"':
        return ESCAPES.sub(_character, re.sub(r"\\\n +(?:\\(?= ))?", "", scalar.strip()[1:-1]))
    lines = re.sub(r"\n +", "\n", scalar.strip())
    # A line break inside a scalar is a space, and an empty line a line break.
    folded = re.sub(r"\n+", lambda found: "\n" * (len(found[0]) - 1) or " ", lines)
    return folded[1:-1].replace("''", "'") if folded[0] == "'" else folded


def _character(escape: re.Match[str]) -> str:
    code = escape[1]
    return chr(int(code[1:], 16)) if len(code) > 1 else NAMED.get(code, code)
