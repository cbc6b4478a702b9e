"""The GPU of a benchmark that has `--device`.

PyTorch is imported by those functions alone that ask for a GPU: other measurements are of processes
whose memory counts.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence

from shared.benchmark import Found, Row, distinct

DEVICES = ("cpu", "cuda")


def add_device_argument(parser: argparse.ArgumentParser) -> None:
    """Add the device that is measured."""
    parser.add_argument("--device", choices=DEVICES, default="cpu", help="default: cpu")


def check_device(arguments: argparse.Namespace) -> None:
    """Check that there is a GPU to measure; tables can be made anywhere.

    Raises:
        SystemExit: there is none.
    """
    if arguments.device != "cuda" or arguments.tables_only:
        return

    import torch

    if not torch.cuda.is_available():
        sys.exit("--device cuda: this machine has no GPU that PyTorch can use")


def name_of_gpu(device: str) -> Found:
    """What a row measured on a device says of the GPU: its name; nothing on a CPU."""
    if device != "cuda":
        return {}

    import torch

    return {"gpu": torch.cuda.get_device_name()}


def gpu_lines(rows: Sequence[Row]) -> list[str]:
    """The line of a page that names the GPUs of rows; empty if they were measured on a CPU."""
    gpus = distinct(row.found["gpu"] for row in rows if "gpu" in row.found)
    if not gpus:
        return []
    return [f"On one {'; '.join(gpus)}.", ""]
