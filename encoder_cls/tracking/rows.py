"""The rows of `metrics.jsonl`."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from encoder_cls.system.files import reporting_os_errors


def read_metrics(metrics_file: Path) -> list[dict[str, Any]]:
    """All rows; anything else, such as a last line that a crash cut short, is left out.

    Raises:
        EncoderClsError: the disk refuses.
    """
    with reporting_os_errors(metrics_file, "read"):
        content = metrics_file.read_text(encoding="utf-8") if metrics_file.exists() else ""
    rows = []
    for line in content.split("\n"):  # `splitlines` would cut at characters that a class name may hold, too
        try:
            row = json.loads(line)
        except ValueError:
            continue
        if isinstance(row, dict):
            rows.append(row)
    return rows
