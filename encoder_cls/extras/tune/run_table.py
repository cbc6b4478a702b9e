"""TensorBoard's table of runs, with the score and the values of each trial."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from io import BytesIO
from pathlib import Path
from typing import Any

from tensorboard.compat.proto.event_pb2 import Event
from tensorboard.summary.writer.record_writer import RecordWriter
from torch.utils.tensorboard.summary import hparams

from encoder_cls.errors import EncoderClsError
from encoder_cls.system.files import write_file


def show_in_run_table(
    run: Path, columns: Mapping[str, Any], *, warn: Callable[[str], None]
) -> None:
    """Show a run by a file of its own beside that of the training, or call `warn`."""
    # Pass scores as settings, because TensorBoard would draw metrics as curves of one point. Leave
    # out the first summary, which declares the columns, because TensorBoard would use the columns
    # of the first run for all runs.
    _, *summaries = hparams(dict(columns), {})  # type: ignore[no-untyped-call]

    now = time.time()
    content = BytesIO()
    writer = RecordWriter(content)
    for summary in summaries:
        writer.write(Event(wall_time=now, summary=summary).SerializeToString())

    try:
        write_file(run / f"events.out.tfevents.{now:010.0f}.columns", content.getvalue())
    except EncoderClsError as error:
        warn(f"{error}; the search continues without TensorBoard's table")
