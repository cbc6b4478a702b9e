"""The log of a run's metrics, in `metrics.jsonl` and in TensorBoard."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Self

from encoder_cls.config.schema import Config
from encoder_cls.run.run_folder import RunDir, read_metrics
from encoder_cls.run.tensorboard import TensorBoard
from encoder_cls.system.files import reporting_os_errors, write_file
from encoder_cls.system.json_values import json_text


class MetricsLog:
    """Appends rows to `metrics.jsonl`, and shows them in TensorBoard.

    TensorBoard's files are rebuilt from it when training is resumed, so that curves have neither
    gaps nor overlaps. If they cannot be written, `warn` is called once, and the training continues.

    `resume_after` is the step, by split, after which rows are removed, those of `train` also from
    `pretraining/train`; other splits lose all rows.

    Raises:
        EncoderClsError: `metrics.jsonl` cannot be written. `log` and `flush` also raise it.
    """

    def __init__(
        self,
        run: RunDir,
        config: Config,
        label_names: Sequence[str],
        *,
        resume_after: Mapping[str, int],
        warn: Callable[[str], None],
        with_tensorboard: bool = True,
    ) -> None:
        self._file = run.metrics_file
        self._label_names = label_names
        self.tensorboard: TensorBoard | None = None

        rows = [row for row in read_metrics(self._file) if _is_kept(row, resume_after)]
        content = "".join(_line(row) for row in rows)
        write_file(self._file, content.encode())

        if with_tensorboard:
            self.tensorboard = TensorBoard(run, warn=warn)
            self.tensorboard.show_config(config)
            for row in rows:
                self.tensorboard.show_row(row, label_names)

    def log(self, step: int, split: str, values: Mapping[str, Any]) -> None:
        """Log values of a split, such as `train`, after `step` steps of the run.

        A final result may have `label_names`, if some are not classes of the run.
        """
        row = {"step": step, "split": split, "time": round(time.time(), 3), **values}
        with reporting_os_errors(self._file), self._file.open("ab") as file:
            file.write(_line(row).encode())

        if self.tensorboard:
            self.tensorboard.show_row(row, self._label_names)

    def flush(self) -> None:
        """Flush all rows to the disk, so that they survive a power failure."""
        with reporting_os_errors(self._file), self._file.open("ab") as file:
            os.fsync(file.fileno())

        if self.tensorboard:
            self.tensorboard.flush()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        if self.tensorboard:
            self.tensorboard.close()


def _is_kept(row: Mapping[str, Any], resume_after: Mapping[str, int]) -> bool:
    split = row["split"].removeprefix("pretraining/")
    return split in resume_after and row["step"] <= resume_after[split]


def _line(row: Mapping[str, Any]) -> str:
    return json_text(row) + "\n"
