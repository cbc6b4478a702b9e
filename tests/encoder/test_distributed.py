"""Trainings of several processes: equal but for rounding, and one end for all of them."""

from __future__ import annotations

import json
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file
from support.programs import TIME_LIMIT
from support.small_runs import PRETRAINED, make_config, make_training

from encoder_cls.config.schema import Config
from encoder_cls.run.run_folder import read_metrics
from encoder_cls.training.prepare import prepare

SHARDS = 3
MOST_ROUNDING = 0.05  # of a loss: at this learning rate it grows to a hundredth within forty steps

pytestmark = pytest.mark.xdist_group("processes")  # jobs are run once for all tests, on one worker


def sharded_config(folder: Path) -> Config:
    """Pretraining, then labels and what a linear classifier says of texts without; batches that 3 does not divide."""
    (folder / "more.txt").write_text(
        "\n".join(f"w{i % 7} more {'red' if i % 2 else 'green'}" for i in range(30)) + "\n"
    )
    # Else labels are not few, and no linear classifier teaches.
    values = PRETRAINED | {"naive_bayes_em": True}
    data = {"unlabelled": str(folder / "more.txt")}
    return make_config(
        folder, **values, data=data, gradient_shards=SHARDS, epochs=2, checkpoint_every=5
    )


@dataclass
class Jobs:
    """What became of each job, by its name, and the folder of its run."""

    folder: Path
    ended: dict[str, dict[str, Any]]

    def run(self, name: str) -> Path:
        return self.folder / name


def ended_jobs(folder: Path, *wanted: dict[str, Any]) -> Jobs:
    """Run jobs, all from one process, which has to load torch once; each by its name and its number."""
    (folder / "c.yaml").write_text(sharded_config(folder).to_yaml())
    for job in wanted:
        where = ["--config", str(folder / "c.yaml"), "--run-dir", str(folder / job["name"])]
        job["arguments"] = ["train", *where, *job.get("more", ())]
        if "signal" in job:
            job["after"] = str(folder / job["name"] / "checkpoints" / "step-25")
    (folder / "jobs.json").write_text(json.dumps(wanted))
    script = Path(__file__).parents[1] / "support" / "process_jobs.py"
    done = subprocess.run(
        [sys.executable, script, folder / "jobs.json"],
        check=True,
        capture_output=True,
        text=True,
        timeout=TIME_LIMIT,
    )
    names = [f"{it['name']} {number}" for number, it in enumerate(wanted)]
    return Jobs(folder, dict(zip(names, json.loads(done.stdout), strict=True)))


@pytest.fixture(scope="module")
def jobs(tmp_path_factory) -> Jobs:
    """Those of every run of the tests."""
    folder = tmp_path_factory.mktemp("processes")
    return ended_jobs(
        folder,
        {"name": "one", "size": 1},
        {"name": "three", "size": 3},
        {"name": "killed", "size": 3, "signal": "SIGKILL", "to": 2},
        {"name": "four", "size": 4},
        {
            "name": "missing",
            "size": 2,
            "arguments_of": {"1": ["--set", f"data.train={folder}/nowhere.csv"]},
        },
        {"name": "one", "size": 2},
    )


@pytest.fixture(scope="module")
def slow_jobs(tmp_path_factory) -> Jobs:
    """Those of the slow tests."""
    return ended_jobs(
        tmp_path_factory.mktemp("more-processes"),
        {"name": "one", "size": 1},
        {"name": "two", "size": 2},
        {"name": "killed", "size": 3, "signal": "SIGKILL", "to": 2},
        {"name": "killed", "size": 2, "restarts": 1},
        {"name": "stopped", "size": 2, "signal": "SIGTERM", "to": 1},
        {"name": "stopped", "size": 3, "more": ["--resume"]},
        {"name": "unequal", "size": 2, "arguments_of": {"1": ["--set", "seed=7"]}},
        {"name": "diverged", "size": 2, "more": ["--set", "train.learning_rate=1e37"]},
    )


def assert_close(jobs: Jobs, *names: str) -> None:
    """Runs have the same losses but for rounding.

    Weights say less: Adam turns the rounding of a gradient that is zero, as of the keys' bias, into whole steps.
    """
    first, *others = (
        [row["loss"] for row in read_metrics(jobs.run(name) / "metrics.jsonl") if "loss" in row]
        for name in names
    )
    assert first
    for other in others:
        assert other == pytest.approx(first, rel=MOST_ROUNDING)


def test_weights_are_close_however_many_processes_there_are(jobs):
    """Also where 3 divides no batch, and the encoder learns from a linear classifier; only the first one prints."""
    assert jobs.ended["one 0"]["codes"] == [0], jobs.ended["one 0"]["outputs"]
    first, *others = jobs.ended["three 1"]["outputs"]
    assert (jobs.ended["three 1"]["codes"], others) == ([0, 0, 0], ["", ""]), first
    assert "with 3 processes" in first
    assert "accuracy" in first
    assert_close(jobs, "one", "three")
    # A shard a process: sums are in the same order, so weights and moments, too, differ by rounding alone.
    one, three = (
        sorted(jobs.run(name).glob("checkpoints/*/*.safetensors")) for name in ("one", "three")
    )
    assert one
    for expected, found in zip(one, three, strict=True):
        torch.testing.assert_close(load_file(found), load_file(expected), atol=2e-3, rtol=2e-3)


def test_a_process_that_is_killed_ends_all(jobs):
    """With one message; there is a checkpoint of the last step that all have taken."""
    killed = jobs.ended["killed 2"]
    assert killed["codes"] == [1, 1, -9], killed["outputs"]
    assert (
        killed["outputs"][0].count("another process of this training has ended; --resume goes on")
        == 1
    )
    assert killed["outputs"][1:] == ["", ""]
    assert list(jobs.run("killed").glob("checkpoints/step-*"))


def check_printed_once(jobs: Jobs, name: str, *, code: int, message: str) -> None:
    """The first process has printed the error and has the exit code; the others have printed nothing."""
    ended = jobs.ended[name]
    assert ended["codes"] == [code] + [0] * (len(ended["codes"]) - 1), ended["outputs"]
    assert ended["outputs"][0].count(message) == 1
    assert "Traceback" not in ended["outputs"][0]
    assert not any(ended["outputs"][1:])


def test_what_is_wrong_in_any_process_is_printed_once(jobs):
    """Too many processes, data that one does not find, a run that is there already."""
    check_printed_once(jobs, "four 3", code=2, message="train.gradient_shards: 3, for 4 processes")
    check_printed_once(
        jobs, "missing 4", code=3, message=f"process 1: {jobs.folder}/nowhere.csv: no such file"
    )
    check_printed_once(jobs, "one 5", code=2, message="already holds a run")


@pytest.mark.slow
def test_other_configs_and_numbers_that_are_not_finite_end_all(slow_jobs):
    check_printed_once(
        slow_jobs, "unequal 6", code=2, message="process 1 has another config than process 0"
    )
    check_printed_once(slow_jobs, "diverged 7", code=4, message="diverged at step")


@pytest.mark.slow
def test_a_restart_and_a_resume_of_other_numbers_of_processes_end_the_same(slow_jobs):
    """After a kill torchrun restarts all; after a signal, sent to the second process here, a person does."""
    assert slow_jobs.ended["killed 3"]["codes"] == [0, 0], slow_jobs.ended["killed 3"]["outputs"]
    assert "going on after step" in slow_jobs.ended["killed 3"]["outputs"][0]
    check_printed_once(slow_jobs, "stopped 4", code=143, message="stopped at step")
    assert slow_jobs.ended["stopped 5"]["codes"] == [0, 0, 0], slow_jobs.ended["stopped 5"][
        "outputs"
    ]
    assert_close(slow_jobs, "one", "two", "killed", "stopped")


@pytest.mark.parametrize(
    ("name", "objective"),
    [("pretraining", "masked_lm"), ("pretraining", "denoising"), ("model", "masked_lm")],
)
def test_shards_change_no_objective(tmp_path, name, objective):
    """Without dropout and masking by chance, steps in five shards go where whole ones do."""
    pretrain = {"epochs": 1, "objective": objective, "mask_probability": 0.999999}
    values = PRETRAINED | {"pretrain": pretrain, "word_dropout": 0.0}
    values |= {
        "model": {"dropout": 0.0, "head_dropout": 0.0},
        "batch_size": 7,
        "precision": "float32",
    }
    moved = []
    for num_shards in (1, 5):
        training = make_training(
            prepare(make_config(tmp_path, **values, gradient_shards=num_shards)), name
        )
        moved.append([training.step(step, 0.01) for step in range(3)])
    for whole, cut in zip(*moved, strict=True):
        assert whole.tokens == cut.tokens
        assert (whole.loss, whole.grad_norm) == pytest.approx((cut.loss, cut.grad_norm), rel=1e-3)
