"""Cases about searches for hyperparameters, whose processes are killed."""

from __future__ import annotations

import json
import random
import signal
from pathlib import Path
from typing import Any

from cases import Case
from processes import Arguments, fork
from samples import VARIANTS, Workspace

from encoder_cls.tracking.rows import read_metrics
from encoder_cls.tracking.run_dir import RunDir

BUDGET, LEAST_BUDGET = "4s", "0.001s"


def kill_tune(space: Workspace, draw: random.Random, number: int) -> None:
    """Two processes share a search, one is killed at any moment, another goes on: no trial is lost, or made twice.

    In half of the tries, a power cut tears the last line of the journal before that.
    """
    variant, folder = list(VARIANTS)[number % len(VARIANTS)], space.new_path("search")
    first, second = (fork(_tune(space, variant, folder, BUDGET), cwd=space.folder) for _ in range(2))
    if first.wait(draw.uniform(0, 5)) is None:
        first.signal(signal.SIGKILL)
    first.end()
    if number % 2:
        second.end()
        journal = folder / "study.journal"
        content = journal.read_bytes()
        journal.write_bytes(content[: len(content) - draw.randrange(1, 30)])
    third = fork(_tune(space, variant, folder, BUDGET), cwd=space.folder)
    for process in (second, third):
        ended = process.end()
        assert ended.code == 0, ended.err
    ended = fork(_tune(space, variant, folder, LEAST_BUDGET, "--json"), cwd=space.folder).end()
    assert ended.code == 0, ended.err
    found = json.loads(ended.out)
    numbers = [it["number"] for it in found["trials"]]
    folders = sorted(int(path.name) for path in (folder / "trials").iterdir())
    waiting = set(folders) - set(numbers)  # for time: what the killed process was at
    assert folders == list(range(len(folders))), folders
    assert len(numbers) + len(waiting) == len(folders), (numbers, folders)
    assert len(waiting) <= 1, waiting
    for trial in {0, found["best"]["number"]}:
        run = RunDir(folder / "trials" / f"{trial:03}")
        undisturbed = space.new_path("undisturbed")
        again: Arguments = ["train", "--config", run.config_file, "--run-dir", undisturbed, "--device", "cpu"]
        ended = fork(again, cwd=space.folder).end()
        assert ended.code == 0, ended.err
        assert _validations(run) == _validations(RunDir(undisturbed)), f"trial {trial} went another way"


def _tune(space: Workspace, variant: str, folder: Path, budget: str, *more: str) -> Arguments:
    arguments: list[str | bytes | Path] = [
        "tune",
        "--config",
        space.config(variant),
        "--run-dir",
        folder,
        "--budget",
        budget,
    ]
    return [*arguments, "--device", "cpu", *more]


def _validations(run: RunDir) -> list[dict[str, Any]]:
    """What each validation of the model has found out."""
    rows = [row for row in read_metrics(run.metrics_file) if row["split"] == "validation"]
    return [{key: value for key, value in row.items() if key != "time"} for row in rows]


CASES = {
    "kill-tune": Case("kill -9 of a search that two processes share: no trial is lost, or made twice", 20, kill_tune),
}
