"""Tables with a separator, as a program writes and reads them that knows nothing of this one."""

from __future__ import annotations

import csv
import io
from collections.abc import Iterable, Sequence
from pathlib import Path


def write_table(
    name: str, rows: Iterable[Sequence[object]], separator: str = ",", encoding: str = "utf-8"
) -> str:
    text = io.StringIO()
    csv.writer(text, delimiter=separator).writerows(rows)
    Path(name).parent.mkdir(parents=True, exist_ok=True)
    Path(name).write_bytes(text.getvalue().encode(encoding))
    return name


def read_table(source: str | bytes, separator: str = ",") -> list[list[str]]:
    """The rows of a file, or of its content, whose mark is left out."""
    content = source if isinstance(source, bytes) else Path(source).read_bytes()
    text = io.StringIO(content.decode("utf-8-sig"), newline="")
    return list(csv.reader(text, delimiter=separator, strict=True))
