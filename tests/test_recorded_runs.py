"""Two short runs on the bundled example have the numbers that were recorded.

Last digits differ between kinds of CPU, so numbers are compared, not bits. Other random draws,
another order of batches or another default change the first digits. After an intended change,
`python tests/test_recorded_runs.py` records the numbers of today.
"""

from __future__ import annotations

import json
import tempfile
from pathlib import Path
from typing import Any
from unittest.mock import patch

import pytest
import safetensors.torch
import torch
from support.joining import encoders_joining
from support.small_runs import newest_checkpoint

from encoder_cls.config.loading import load_config
from encoder_cls.run.run_folder import RunDir, read_metrics
from encoder_cls.training import train as training
from encoder_cls.training.prepare import prepare
from encoder_cls.training.train import train

pytestmark = pytest.mark.usefixtures("blank_plots")
RECORD = Path(__file__).parent / "recorded_runs.json"
# All other values are the defaults.
SHORT = [
    "model.d_model=16",
    "model.d_ff=32",
    "model.num_layers=1",
    "model.char_ngram_buckets=512",
    "model.bigram_buckets=512",
    "train.batch_size=400",
    "train.batch_tokens=100000",
    "train.log_every=1",
    "train.precision=float32",
    "train.epochs=1",
]
RUNS = {
    "default": ["pretrain.epochs=1", "model.linear=true", "model.cascade=false"],
    "encoder": [
        "pretrain.epochs=0",
        "model.linear=false",
        "train.rdrop_weight=0",
        "train.class_weights=balanced",
    ],
}


def numbers(name: str, folder: Path) -> dict[str, Any]:
    """The loss of each step and validation of a run, and the norm of each tensor of its encoder."""
    torch.set_num_threads(1)
    run = RunDir(folder / name)
    prepared = prepare(load_config(None, [*SHORT, *RUNS[name]]))
    # Keep the last checkpoint of the finished run, whose weights are recorded.
    with encoders_joining(), patch.object(training, "remove_files_to_resume"):
        train(prepared, run, device=torch.device("cpu"))

    losses = []
    for row in read_metrics(run.metrics_file):
        if "loss" in row:
            losses.append([row["split"], row["step"], row["loss"]])

    tensors = safetensors.torch.load_file(newest_checkpoint(run.path) / "model.safetensors")
    norms = {key: float(value.double().norm()) for key, value in sorted(tensors.items())}
    return {"losses": losses, "norms": norms}


@pytest.mark.parametrize("name", [pytest.param("default", marks=pytest.mark.slow), "encoder"])
def test_a_short_run_has_the_numbers_that_were_recorded(name, tmp_path):
    """The batches, the random draws and the defaults are those of the recording."""
    found = numbers(name, tmp_path)
    expected = json.loads(RECORD.read_text())[name]

    assert [row[:2] for row in found["losses"]] == [row[:2] for row in expected["losses"]]
    for (split, step, loss), recorded in zip(found["losses"], expected["losses"], strict=True):
        assert loss == pytest.approx(recorded[2], rel=1e-3), f"{split}, step {step}"
    assert found["norms"] == pytest.approx(expected["norms"], rel=1e-3)


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as folder:
        recorded = {name: numbers(name, Path(folder)) for name in RUNS}
    RECORD.write_text(json.dumps(recorded, indent=1) + "\n")
