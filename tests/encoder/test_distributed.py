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
from support.small_runs import NO_TECHNIQUES, PRETRAINED, make_config, make_training

from encoder_cls.config.schema import Config
from encoder_cls.encoder.training_state import StepMetrics
from encoder_cls.run.run_folder import read_metrics
from encoder_cls.training.prepare import prepare

SHARDS = 3

# The largest relative difference of two losses by rounding: at this learning rate, it grows to a
# hundredth within forty steps.
MOST_ROUNDING = 0.05

# Jobs are run once for all tests, on one worker.
pytestmark = pytest.mark.xdist_group("processes")


def sharded_config(folder: Path) -> Config:
    """A run with pretraining, and with a linear model that teaches the encoder.

    Three shards do not divide its batches.
    """
    lines = []
    for number in range(30):
        colour = "red" if number % 2 else "green"
        lines.append(f"w{number % 7} more {colour}\n")
    (folder / "more.txt").write_text("".join(lines))

    # Without expectation maximization labels are not few, and no linear model teaches.
    values = PRETRAINED | {"naive_bayes": True}
    return make_config(
        folder,
        **values,
        data={"unlabelled": str(folder / "more.txt")},
        gradient_shards=SHARDS,
        epochs=2,
        checkpoint_every=5,
    )


@dataclass
class Jobs:
    """How each job ended, by its name and number, and the folder of all runs."""

    folder: Path
    ended: dict[str, dict[str, Any]]

    def run(self, name: str) -> Path:
        return self.folder / name


def ended_jobs(folder: Path, *wanted: dict[str, Any]) -> Jobs:
    """Run jobs, all from one process, which has to load torch once."""
    (folder / "c.yaml").write_text(sharded_config(folder).to_yaml())
    for job in wanted:
        config = str(folder / "c.yaml")
        run = str(folder / job["name"])
        more = job.get("more", ())
        job["arguments"] = ["train", "--config", config, "--run-dir", run, *more]
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
    names = [f"{job['name']} {number}" for number, job in enumerate(wanted)]
    return Jobs(folder, dict(zip(names, json.loads(done.stdout), strict=True)))


@pytest.fixture(scope="module")
def jobs(tmp_path_factory) -> Jobs:
    """The jobs of every run of the tests."""
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
    """The jobs of the slow tests."""
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
    """Assert that runs have the same losses but for rounding.

    Weights say less: Adam turns the rounding of a gradient that is zero, as of the keys' bias, into
    whole steps.
    """
    losses = []
    for name in names:
        rows = read_metrics(jobs.run(name) / "metrics.jsonl")
        losses.append([row["loss"] for row in rows if "loss" in row])

    assert losses[0]
    for other in losses[1:]:
        assert other == pytest.approx(losses[0], rel=MOST_ROUNDING)


def test_weights_are_close_however_many_processes_there_are(jobs):
    """Only the first process prints."""
    assert jobs.ended["one 0"]["codes"] == [0], jobs.ended["one 0"]["outputs"]
    first, *others = jobs.ended["three 1"]["outputs"]
    assert jobs.ended["three 1"]["codes"] == [0, 0, 0], first
    assert others == ["", ""]
    assert "with 3 processes" in first
    assert "accuracy" in first
    assert_close(jobs, "one", "three")

    # Each process has one shard. So sums are in the same order, and weights and moments, too,
    # differ by rounding alone.
    one = sorted(jobs.run("one").glob("checkpoints/*/*.safetensors"))
    three = sorted(jobs.run("three").glob("checkpoints/*/*.safetensors"))
    assert one
    for expected, found in zip(one, three, strict=True):
        torch.testing.assert_close(load_file(found), load_file(expected), atol=2e-3, rtol=2e-3)


def test_a_process_that_is_killed_ends_all(jobs):
    """There is one message, and a checkpoint of the last step that all have taken."""
    killed = jobs.ended["killed 2"]
    assert killed["codes"] == [1, 1, -9], killed["outputs"]
    message = "another process of this training has ended; --resume goes on"
    assert killed["outputs"][0].count(message) == 1
    assert killed["outputs"][1:] == ["", ""]
    assert list(jobs.run("killed").glob("checkpoints/step-*"))


def check_printed_once(jobs: Jobs, name: str, *, code: int, message: str) -> None:
    """Assert that the first process alone has printed the error and has the exit code."""
    ended = jobs.ended[name]
    assert ended["codes"] == [code] + [0] * (len(ended["codes"]) - 1), ended["outputs"]
    assert ended["outputs"][0].count(message) == 1
    assert "Traceback" not in ended["outputs"][0]
    assert not any(ended["outputs"][1:])


def test_what_is_wrong_in_any_process_is_printed_once(jobs):
    """That is: too many processes, data that one does not find, a run that is there already."""
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
    """After a kill, torchrun restarts all; after a signal, to the second process, a person does."""
    restarted = slow_jobs.ended["killed 3"]
    assert restarted["codes"] == [0, 0], restarted["outputs"]
    assert "going on after step" in restarted["outputs"][0]

    check_printed_once(slow_jobs, "stopped 4", code=143, message="stopped at step")
    resumed = slow_jobs.ended["stopped 5"]
    assert resumed["codes"] == [0, 0, 0], resumed["outputs"]
    assert_close(slow_jobs, "one", "two", "killed", "stopped")


@pytest.mark.parametrize(
    ("name", "objective"),
    [("pretraining", "masked_lm"), ("pretraining", "denoising"), ("model", "masked_lm")],
)
def test_shards_change_no_objective(tmp_path, name, objective):
    """Without dropout and masking by chance, steps in five shards go where whole ones do."""

    def steps(num_shards: int) -> list[StepMetrics]:
        config = make_config(
            tmp_path,
            linear=True,
            pretrain={"epochs": 1, "objective": objective, "mask_probability": 0.999999},
            model={"dropout": 0.0, "head_dropout": 0.0},
            word_dropout=0.0,
            batch_size=7,
            precision="float32",
            gradient_shards=num_shards,
            **NO_TECHNIQUES,
        )
        training = make_training(prepare(config), name)
        return [training.step(step, 0.01) for step in range(3)]

    for whole, sharded in zip(steps(1), steps(5), strict=True):
        assert sharded.tokens == whole.tokens
        assert sharded.loss == pytest.approx(whole.loss, rel=1e-3)
        assert sharded.grad_norm == pytest.approx(whole.grad_norm, rel=1e-3)
