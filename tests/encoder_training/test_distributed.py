"""Trainings of several processes: they agree up to rounding, and end together."""

from __future__ import annotations

import json
import subprocess
import sys
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file
from support.programs import TIME_LIMIT
from support.small_runs import NO_TECHNIQUES, PRETRAINED, make_config, make_training
from support.topics import labelled_texts, write_labelled_texts

from encoder_cls.config.schema import Config
from encoder_cls.encoder_training import distributed
from encoder_cls.encoder_training.distributed import (
    LostProcessError,
    ProcessGroup,
    joined_process_group,
)
from encoder_cls.encoder_training.training_state import StepMetrics
from encoder_cls.run.run_folder import read_metrics
from encoder_cls.training.prepare import prepare

SHARDS = 3

# The largest relative difference of two losses by rounding: at this learning rate, it grows to a
# hundredth within forty steps.
MAX_ROUNDING = 0.05


def sharded_config(folder: Path, *, epochs: int) -> Config:
    """A run with pretraining, and with a linear model that teaches the encoder.

    Three shards do not divide its batches. Pretraining, and the training on labels, have so many
    epochs.
    """
    lines = []
    for number, colour in enumerate(["green", "red"] * 15):
        lines.append(f"w{number % 7} more {colour}\n")
    (folder / "more.txt").write_text("".join(lines))

    # With a technique for few labels, the linear model teaches the encoder.
    values = PRETRAINED | {"naive_bayes": True, "pretrain": {"epochs": epochs}}
    return make_config(
        folder,
        **values,
        data={"unlabelled": str(folder / "more.txt")},
        gradient_shards=SHARDS,
        epochs=epochs,
        checkpoint_every=5,
    )


@dataclass
class EndedJob:
    """The exit code and the output of each process of a job, in order of rank."""

    codes: list[int]
    outputs: list[str]

    def check_succeeded(self) -> None:
        """Assert that no process has failed, and that the first process alone has printed."""
        first_output, *other_outputs = self.outputs
        assert set(self.codes) == {0}, first_output
        assert not any(other_outputs)

    def check_failed(self, *, code: int, message: str) -> None:
        """Assert that the first process alone has the exit code, and has printed the message."""
        first_code, *other_codes = self.codes
        first_output, *other_outputs = self.outputs
        assert first_code == code, first_output
        assert not any(other_codes)

        assert first_output.count(message) == 1
        assert "Traceback" not in first_output
        assert not any(other_outputs)


@dataclass
class Jobs:
    """How each job ended, by its name and number, and the folder of all runs."""

    folder: Path
    ended: dict[str, EndedJob]

    def run(self, name: str) -> Path:
        return self.folder / name


def run_jobs(folder: Path, *jobs: dict[str, Any], epochs: int) -> Jobs:
    """Run jobs, all from one process, which has to load torch once.

    A job is as in `support/process_jobs`, with the `name` of its run in place of `arguments`, and
    with `more` arguments. Its signal is sent when the checkpoint `at_step` is there.
    """
    config_file = folder / "c.yaml"
    config_file.write_text(sharded_config(folder, epochs=epochs).to_yaml())
    for job in jobs:
        run = folder / job["name"]
        job["arguments"] = ["train", "--config", str(config_file), "--run-dir", str(run)]
        job["arguments"] += job.get("more", [])
        if "signal" in job:
            job["after"] = str(run / "checkpoints" / f"step-{job['at_step']}")
    jobs_file = folder / "jobs.json"
    jobs_file.write_text(json.dumps(jobs))

    script = Path(__file__).parents[1] / "support" / "process_jobs.py"
    done = subprocess.run(
        [sys.executable, script, jobs_file],
        check=True,
        capture_output=True,
        text=True,
        timeout=TIME_LIMIT,
    )

    ended = {}
    for number, result in enumerate(json.loads(done.stdout)):
        ended[f"{jobs[number]['name']} {number}"] = EndedJob(**result)
    return Jobs(folder, ended)


@pytest.fixture(scope="module")
def jobs(tmp_path_factory) -> Jobs:
    """Jobs of which none trains to its end."""
    folder = tmp_path_factory.mktemp("processes")
    other_data = ["--set", f"data.train={folder}/nowhere.csv"]
    return run_jobs(
        folder,
        {"name": "killed", "size": 3, "signal": "SIGKILL", "to": 2, "at_step": 5},
        {"name": "four", "size": 4},
        {"name": "missing", "size": 2, "arguments_of": {"1": other_data}, "late": 1},
        {"name": "killed", "size": 2},
        epochs=1,
    )


@pytest.fixture(scope="module")
def finished_jobs(tmp_path_factory) -> Jobs:
    """Two jobs that differ in the number of processes alone."""
    return run_jobs(
        tmp_path_factory.mktemp("finished-processes"),
        {"name": "one", "size": 1},
        {"name": "three", "size": 3},
        epochs=1,
    )


@pytest.fixture(scope="module")
def whole_jobs(tmp_path_factory) -> Jobs:
    """Jobs that train to their end, or until something stops them."""
    return run_jobs(
        tmp_path_factory.mktemp("more-processes"),
        {"name": "one", "size": 1},
        {"name": "two", "size": 2},
        {"name": "killed", "size": 3, "signal": "SIGKILL", "to": 2, "at_step": 25},
        {"name": "killed", "size": 2, "restarts": 1},
        {"name": "stopped", "size": 2, "signal": "SIGTERM", "to": 1, "at_step": 25},
        {"name": "stopped", "size": 3, "more": ["--resume"]},
        {"name": "unequal", "size": 2, "arguments_of": {"1": ["--set", "seed=7"]}},
        {"name": "diverged", "size": 2, "more": ["--set", "train.learning_rate=1e37"]},
        epochs=2,
    )


def assert_close(jobs: Jobs, *names: str) -> None:
    """Assert that runs have the same losses up to rounding.

    Weights say less: Adam turns the rounding of a gradient that is zero, as of the keys' bias, into
    whole steps.
    """
    losses = []
    for name in names:
        rows = read_metrics(jobs.run(name) / "metrics.jsonl")
        losses.append([row["loss"] for row in rows if "loss" in row])

    assert losses[0]
    for other in losses[1:]:
        assert other == pytest.approx(losses[0], rel=MAX_ROUNDING)


@pytest.mark.slow
def test_weights_are_close_however_many_processes_there_are(finished_jobs):
    finished_jobs.ended["one 0"].check_succeeded()
    finished_jobs.ended["three 1"].check_succeeded()
    output = finished_jobs.ended["three 1"].outputs[0]
    assert "with 3 processes" in output
    assert "accuracy" in output
    assert_close(finished_jobs, "one", "three")

    # Each process has one shard. So sums are in the same order, and weights and moments, too,
    # differ by rounding alone.
    files_of_one = sorted(finished_jobs.run("one").glob("checkpoints/*/*.safetensors"))
    files_of_three = sorted(finished_jobs.run("three").glob("checkpoints/*/*.safetensors"))
    assert files_of_one
    for expected, found in zip(files_of_one, files_of_three, strict=True):
        torch.testing.assert_close(load_file(found), load_file(expected), atol=2e-3, rtol=2e-3)


@pytest.mark.slow
def test_a_process_that_is_killed_ends_all(jobs):
    """The error is printed once, and there is a checkpoint of the last step of all processes."""
    killed = jobs.ended["killed 0"]
    first_output, *other_outputs = killed.outputs

    assert killed.codes == [1, 1, -9], first_output
    message = "another process of this training has ended; --resume continues"
    assert first_output.count(message) == 1
    assert other_outputs == ["", ""]
    assert list(jobs.run("killed").glob("checkpoints/step-*"))


@pytest.mark.slow
def test_too_many_processes_are_refused(jobs):
    jobs.ended["four 1"].check_failed(code=2, message="train.gradient_shards: 3, for 4 processes")


@pytest.mark.slow
def test_data_that_one_process_does_not_find_ends_all(jobs):
    """The first process waits for the other one for longer than either had time to join."""
    message = f"process 1: {jobs.folder}/nowhere.csv: no such file"
    jobs.ended["missing 2"].check_failed(code=3, message=message)


@pytest.mark.slow
def test_a_run_that_is_there_already_ends_all(jobs):
    jobs.ended["killed 3"].check_failed(code=2, message="already holds a run")


@pytest.mark.slow
def test_another_config_in_one_process_ends_all(whole_jobs):
    message = "process 1 has another config than process 0"
    whole_jobs.ended["unequal 6"].check_failed(code=2, message=message)


@pytest.mark.slow
def test_numbers_that_are_not_finite_end_all(whole_jobs):
    whole_jobs.ended["diverged 7"].check_failed(code=4, message="diverged at step")


@pytest.mark.slow
def test_a_restart_and_a_resume_of_other_numbers_of_processes_end_the_same(whole_jobs):
    """torchrun restarts a killed job; a job that was stopped by a signal is resumed by its user."""
    restarted = whole_jobs.ended["killed 3"]
    restarted.check_succeeded()
    assert "continuing after step" in restarted.outputs[0]

    whole_jobs.ended["stopped 4"].check_failed(code=143, message="stopped at step")
    whole_jobs.ended["stopped 5"].check_succeeded()

    assert_close(whole_jobs, "one", "two", "killed", "stopped")


def test_a_process_does_not_wait_long_for_one_that_never_begins(monkeypatch):
    """torchrun ends all processes in that case; other programs that start them may not."""
    monkeypatch.setattr(distributed, "MAX_WAIT_TO_MEET", timedelta(seconds=0.1))
    environment = {"WORLD_SIZE": "2", "RANK": "0", "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": "0"}
    for name, value in environment.items():
        monkeypatch.setenv(name, value)

    with (
        pytest.raises(LostProcessError, match="have not found each other"),
        joined_process_group(),
    ):
        pass


def test_a_process_that_has_lost_another_one_tells_no_third_one():
    """The third may wait for this one in another exchange, so that neither would end."""
    group = ProcessGroup(rank=0, size=3)

    with pytest.raises(LostProcessError), group.failing_together():
        raise LostProcessError


def test_the_others_exit_if_the_first_process_ends_by_an_unexpected_error(monkeypatch):
    """It ends where they exchange their failures; its message is none of those."""
    group = ProcessGroup(rank=1, size=2)
    monkeypatch.setattr(group, "gather_bytes", lambda mine: [distributed.HAS_ENDED, mine])

    with pytest.raises(SystemExit) as ended, group.failing_together():
        pass

    assert ended.value.code == 0


def test_torchrun_may_restart_a_training_that_has_no_run_folder_yet(cli, monkeypatch):
    """No `--config` is needed then, as at the first start."""
    monkeypatch.setenv("TORCHELASTIC_RESTART_COUNT", "1")
    write_labelled_texts(Path("train.csv"), labelled_texts(4, seed=0))

    command = "train --set data.train=train.csv --run-dir new --device cpu --dry-run"
    outcome = cli(*command.split())

    assert outcome.code == 0, outcome.err


@pytest.mark.parametrize(
    ("name", "objective"),
    [
        ("pretraining", "masked_lm"),
        ("pretraining", "denoising"),
        ("model", "masked_lm"),
    ],
)
def test_shards_change_no_objective(tmp_path, name, objective):
    """Without dropout and masking, steps in five shards give the same weights as whole steps."""

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
        trainer = make_training(prepare(config), name).trainer
        return [trainer.start_step(step, 0.01).metrics() for step in range(3)]

    for whole, sharded in zip(steps(1), steps(5), strict=True):
        assert sharded.tokens == whole.tokens
        assert sharded.loss == pytest.approx(whole.loss, rel=1e-3)
        assert sharded.grad_norm == pytest.approx(whole.grad_norm, rel=1e-3)
