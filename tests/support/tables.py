"""Tables with a separator, as other programs write and read them."""

from __future__ import annotations

import csv
import io
from collections.abc import Iterable, Sequence
from pathlib import Path


def write_table(
    name: str, rows: Iterable[Sequence[object]], separator: str = ",", encoding: str = "utf-8"
) -> str:
    """Write a table; returns its name."""
    text = io.StringIO()
    csv.writer(text, delimiter=separator).writerows(rows)

    path = Path(name)
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(text.getvalue().encode(encoding))
    return name


def read_table(source: str | bytes, separator: str = ",") -> list[list[str]]:
    """The rows of a file or of its content, without a byte order mark."""
    if isinstance(source, str):
        source = Path(source).read_bytes()
    text = io.StringIO(source.decode("utf-8-sig"), newline="")
    return list(csv.reader(text, delimiter=separator, strict=True))
