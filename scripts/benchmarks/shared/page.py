"""Markdown: tables, and sections of a page that a script replaces."""

from __future__ import annotations

import re
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

NOT_MEASURED = "-"


def table(columns: Sequence[str], rows: Sequence[Sequence[str]], *, left: int = 1) -> list[str]:
    """Lay out a table whose first columns are aligned left."""
    ruler = ["---"] * left + ["---:"] * (len(columns) - left)
    return ["| " + " | ".join(cells) + " |" for cells in (columns, ruler, *rows)]


def write_section(page: Path, name: str, lines: Sequence[str]) -> None:
    """Replace what is between `<!-- NAME -->` and the next `<!-- end -->` of a page.

    Raises:
        SystemExit: the page has no such section.
    """
    before = f"<!-- {name} -->\n"
    content = "\n".join([before, *lines, "", "<!-- end -->"])
    text = page.read_text(encoding="utf-8") if page.exists() else ""
    changed, count = re.subn(rf"{re.escape(before)}.*?<!-- end -->", lambda _: content, text, flags=re.DOTALL)
    if not count:
        sys.exit(f"{page} has no section between {before.strip()} and <!-- end -->")
    page.write_text(changed, encoding="utf-8")


class Panels:
    """A picture with one panel for each title, by title; written at the end of the `with` block."""

    def __init__(self, titles: Sequence[str], path: Path, *, x: str, y: str) -> None:
        from matplotlib.backends.backend_agg import FigureCanvasAgg
        from matplotlib.figure import Figure

        rows, self._path = -(-len(titles) // 2), path
        self._figure = Figure(figsize=(9, 3.2 * rows), layout="constrained", dpi=110)
        FigureCanvasAgg(self._figure)
        axes = list(self._figure.subplots(rows, 2, squeeze=False).flat)
        self._axes = dict(zip(titles, axes, strict=False))
        for title, panel in self._axes.items():
            panel.set(title=title, xlabel=x, ylabel=y)
            panel.grid(visible=True, alpha=0.3)
        for panel in axes[len(titles) :]:
            panel.set_axis_off()

    def __enter__(self) -> dict[str, Any]:
        return self._axes

    def __exit__(self, *_: object) -> None:
        first = next(iter(self._axes.values()))
        handles, labels = first.get_legend_handles_labels()
        self._figure.legend(handles, labels, loc="outside lower center", ncols=max(1, len(labels)))
        self._figure.savefig(self._path, metadata={"Software": None})
