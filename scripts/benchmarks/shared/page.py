"""Markdown: tables, and sections of a page that a script replaces."""

from __future__ import annotations

import re
import sys
from collections.abc import Sequence
from pathlib import Path
from textwrap import fill

NOT_MEASURED = "-"
# Characters of a line of a page.
WIDTH = 120


def wrapped(text: str) -> list[str]:
    """The lines of a paragraph."""
    return fill(text, WIDTH, break_on_hyphens=False).splitlines()


def table(columns: Sequence[str], rows: Sequence[Sequence[str]], *, left: int = 1) -> list[str]:
    """Lay out a table whose first columns are aligned left."""
    num_right = len(columns) - left
    ruler = ["---"] * left + ["---:"] * num_right

    lines = []
    for cells in (columns, ruler, *rows):
        lines.append(f"| {' | '.join(cells)} |")
    return lines


def write_section(page: Path, name: str, lines: Sequence[str]) -> None:
    """Replace the lines between `<!-- NAME -->` and the next `<!-- end -->` of a page.

    Raises:
        SystemExit: the page has no such section.
    """
    before = f"<!-- {name} -->\n"
    section = re.compile(rf"{re.escape(before)}.*?<!-- end -->", re.DOTALL)
    content = "\n".join([before, *lines, "", "<!-- end -->"])

    text = page.read_text(encoding="utf-8") if page.exists() else ""
    changed, count = section.subn(lambda _: content, text)
    if not count:
        sys.exit(f"{page} has no section between {before.strip()} and <!-- end -->")
    page.write_text(changed, encoding="utf-8")
