"""Texts in, the installed fonts with which matplotlib can write them out, and the scripts for which there is none."""

from __future__ import annotations

import unicodedata
from collections.abc import Iterable, Sequence
from functools import cache
from typing import NamedTuple

USUAL = "DejaVu Sans"  # comes with matplotlib
NO_LETTERS = ("Last Resort", "STIXSize", "DejaVu Sans Display", "cm")  # of matplotlib: boxes, and pieces of formulas
PREFERRED = "Noto Sans"


class Fonts(NamedTuple):
    """Font families, each for what those before it lack; and the scripts that none of them has."""

    families: tuple[str, ...]
    missing: tuple[str, ...]

    @property
    def note(self) -> str:
        """What is to be done that all letters can be written; empty where they can."""
        return f"no font for {', '.join(self.missing)} (try {PREFERRED})" if self.missing else ""


def fonts_for(texts: Iterable[str], *, installed: Sequence[tuple[str, str]] | None = None) -> Fonts:
    """The fonts that texts need.

    Args:
        texts: to be written.
        installed: name and path of each font that may be used beside the usual one; none: those of the system.
    """
    wanted = {character for text in texts for character in text if not character.isspace()}
    lacking = wanted - _characters(_usual_path())
    families = [USUAL]
    if lacking:
        for name, path in _installed() if installed is None else installed:
            if found := lacking & _characters(path):
                families.append(name)
                lacking -= found
            if not lacking:
                break
    scripts = {unicodedata.name(character, "unknown letters").split()[0].title() for character in lacking}
    return Fonts(tuple(families), tuple(sorted("CJK" if script == "Cjk" else script for script in scripts)))


def _usual_path() -> str:
    from matplotlib import font_manager

    return str(font_manager.findfont(USUAL))


@cache
def _installed() -> tuple[tuple[str, str], ...]:
    """The fonts of the system that have letters, first those that are made to have all scripts."""
    from matplotlib import font_manager

    found = {font.name: font.fname for font in font_manager.fontManager.ttflist if not font.name.startswith(NO_LETTERS)}
    return tuple(sorted(found.items(), key=lambda font: (not font[0].startswith(PREFERRED), font[0])))


@cache
def _characters(path: str) -> frozenset[str]:
    """The characters that a font has; of one that cannot be read, such as pictures alone, none."""
    from matplotlib.ft2font import FT2Font

    try:
        return frozenset(map(chr, FT2Font(path).get_charmap()))
    except (RuntimeError, OSError, TypeError):
        return frozenset()
