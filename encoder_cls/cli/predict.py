"""The command `encoder-cls predict`: classify texts with a trained model."""

from __future__ import annotations

import os
from inspect import signature
from typing import Any

from encoder_cls.bulk.request import Request
from encoder_cls.system.command_options import RUNS


def predict_command(**options: Any) -> None:
    """Classify texts in the command, in files or on standard input.

    Files with one text per line: .txt and .ft.
    Files with a column of texts: .csv, .tsv, .xlsx, .json, .jsonl and .parquet.

    If --output is a folder, it gets one file per input file, by default of JSON lines.
    To continue a stopped command, run it again.
    """
    # Let NumPy use one thread. It would create a pool of threads on import, which wait in busy
    # loops: on a busy machine, a file took twenty times as long. Large files are shared among
    # processes instead.
    os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")

    from encoder_cls.bulk.predict import predict

    predict(Request(**options), runs=RUNS)


# Typer finds the options of a command in its signature: here they are the fields of `Request`.
predict_command.__signature__ = signature(Request, eval_str=True)  # type: ignore[attr-defined]
