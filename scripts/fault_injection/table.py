"""Results of the cases in, the table of the last full run in docs/reliability.md out.

    python scripts/fault_injection --output results.json
    python scripts/fault_injection/table.py results.json [MORE.json ...]

Cases may be run in several calls, each with its own file; of a case that is in several files the last one counts, and
of one that is in none the row that is there stays, with the commit that it is of.
"""

from __future__ import annotations

import json
import re
import sys
from pathlib import Path
from typing import Any

PAGE = Path(__file__).parents[2] / "docs/reliability.md"
BEGIN, END = "<!-- table: scripts/fault_injection/table.py -->\n", "<!-- end of table -->\n"


def table(results: dict[str, dict[str, Any]], former: str = "") -> str:
    """The cases as Markdown, a line for each; those of a former table first."""
    lines = {name: line for line in former.splitlines() for name in re.findall(r"^\| `([a-z-]+)` \|", line)}
    for name, it in results.items():
        tries = f"{it['tries']:,}" if not it.get("skipped") else f"skipped: {it['skipped']}"
        if it.get("of", it["tries"]) != it["tries"]:
            tries += f" of {it['of']:,}"
        lines[name] = f"| `{name}` | {tries} | {it['failed']} | {it['seconds']:.0f} | {it['commit']} |"
    head = ["| case | tries | failed | seconds | commit |", "| --- | ---: | ---: | ---: | --- |"]
    return "\n".join([*head, *lines.values()]) + "\n"


def main(files: list[str]) -> None:
    """Replace the table in the page."""
    results: dict[str, dict[str, Any]] = {}
    for file in files:
        results |= json.loads(Path(file).read_text())
    before, begin, rest = PAGE.read_text(encoding="utf-8").partition(BEGIN)
    former, end, after = rest.partition(END)
    if not (results and begin and end):
        sys.exit(f"nothing to write, or no {BEGIN.strip()} and {END.strip()} in {PAGE}")
    PAGE.write_text(f"{before}{begin}\n{table(results, former)}\n{end}{after}", encoding="utf-8")


if __name__ == "__main__":
    main(sys.argv[1:])
