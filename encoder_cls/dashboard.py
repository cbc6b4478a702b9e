"""Rows of numbers in; `metrics.jsonl`, which is the truth, and TensorBoard, which mirrors it, out."""

from __future__ import annotations

import io
import json
import os
import shutil
from collections.abc import Mapping
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import numpy as np
from torch.utils.tensorboard import SummaryWriter

from encoder_cls.storage import naming, write_file

# Loss, accuracy and so on of all splits share one chart; these are of the training itself.
LAYOUT = {
    "overview": {
        "loss": ["Multiline", ["train/loss", "validation/loss"]],
        "validation scores": ["Multiline", ["validation/accuracy", "validation/macro_f1"]],
    }
}


class Dashboard:
    """Appends rows to `metrics.jsonl` and shows them in TensorBoard.

    Args:
        metrics_file: where the rows go.
        tensorboard: the folder for TensorBoard's event files.
        resume_after: the steps after which training and validation go on; what was logged later is removed,
            so that a resumed run has neither gaps nor overlaps. None: a new run.
        config_text: the resolved config, shown as text.
    """

    def __init__(
        self, *, metrics_file: Path, tensorboard: Path, resume_after: dict[str, int] | None, config_text: str
    ) -> None:
        if resume_after is None:
            metrics_file.unlink(missing_ok=True)
            shutil.rmtree(tensorboard, ignore_errors=True)
        else:
            _cut(metrics_file, resume_after)
        with naming(metrics_file):
            self._file = metrics_file.open("a", encoding="utf-8")
            # purge_step makes TensorBoard forget what a killed run logged after its last checkpoint.
            purge_step = None if resume_after is None else min(resume_after.values()) + 1
            self._writer = SummaryWriter(str(tensorboard), purge_step=purge_step)
        if resume_after is None:
            self._writer.add_custom_scalars(LAYOUT)
            self._writer.add_text("config", f"```yaml\n{config_text}```")

    def log(self, step: int, split: str, values: Mapping[str, Any]) -> None:
        """Log numbers of a split at a step; what is no number goes to `metrics.jsonl` alone."""
        row = {"step": step, "split": split, **values}
        with naming(Path(self._file.name)):
            self._file.write(json.dumps(row, ensure_ascii=False, allow_nan=False) + "\n")
            self._file.flush()
        for name, value in values.items():
            if isinstance(value, int | float):
                self._writer.add_scalar(f"{split}/{name}", value, step)

    def picture(self, name: str, png: bytes, step: int) -> None:
        """Show a PNG at a step."""
        from PIL import Image

        self._writer.add_image(name, np.array(Image.open(io.BytesIO(png)).convert("RGB")), step, dataformats="HWC")

    def flush(self) -> None:
        """Make all rows so far durable."""
        os.fsync(self._file.fileno())
        self._writer.flush()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._file.close()
        self._writer.close()


def read_metrics(metrics_file: Path) -> list[dict[str, Any]]:
    """All rows of a `metrics.jsonl`; a last line that a crash cut short is left out."""
    rows = []
    for line in metrics_file.read_text(encoding="utf-8").splitlines() if metrics_file.exists() else []:
        try:
            rows.append(json.loads(line))
        except ValueError:
            break
    return rows


def _cut(metrics_file: Path, resume_after: dict[str, int]) -> None:
    """Keep only the rows up to a split's step, so that each is logged once however often training restarts."""
    kept = [row for row in read_metrics(metrics_file) if row["step"] <= resume_after.get(row["split"], -1)]
    write_file(metrics_file, "".join(json.dumps(row, ensure_ascii=False) + "\n" for row in kept).encode())
