"""What the benchmarks' pages have in common: tables, the processor's name, a hash of the code."""

from __future__ import annotations

import ast
import platform
import re
import sys
from collections.abc import Sequence
from pathlib import Path

from encoder_cls.system.files import sha256

NOT_MEASURED = "-"


def table(columns: Sequence[str], rows: Sequence[Sequence[str]], *, left: int = 1) -> list[str]:
    """A Markdown table whose first columns are aligned left."""
    ruler = ["---"] * left + ["---:"] * (len(columns) - left)
    return ["| " + " | ".join(cells) + " |" for cells in (columns, ruler, *rows)]


def put_table(lines: Sequence[str], page: Path, *, name: str) -> None:
    """Put a table in its place in a page, between `<!-- table: NAME -->` and `<!-- end -->`."""
    start = f"<!-- table: {name} -->\n"
    before, found, after = page.read_text(encoding="utf-8").partition(start)
    if not found:
        sys.exit(f"{page}: no {start}")
    end = after.index("<!-- end -->")
    content = "\n".join([*lines, ""])
    page.write_text(f"{before}{start}{content}{after[end:]}", encoding="utf-8")


def cpu_name() -> str:
    """What the processor calls itself."""
    try:
        found = re.search(r"^model name\s*: (.+)$", Path("/proc/cpuinfo").read_text(), re.MULTILINE)
    except OSError:
        found = None
    return found[1] if found else platform.processor() or "unknown processor"


def source_hash(paths: Sequence[Path]) -> str:
    """A hash of Python modules, in which comments and layout do not count."""
    return sha256("".join(f"{path.name}: {ast.dump(ast.parse(path.read_bytes()))}\n" for path in paths).encode())


def note(line: str) -> None:
    """A line on standard error, for the person who waits."""
    print(line, file=sys.stderr, flush=True)
