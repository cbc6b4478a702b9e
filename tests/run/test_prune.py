"""`encoder-cls prune`: finished runs lose what only a resumed training needs."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest
from support.programs import assert_failed

from encoder_cls.run.run_folder import RunDir


def files_in(folder: Path) -> dict[str, bytes]:
    """Return the content of all files in a folder, by their path in it."""
    contents = {}
    for path in sorted(folder.rglob("*")):
        if path.is_file():
            contents[str(path.relative_to(folder))] = path.read_bytes()
    return contents


def add_old_checkpoints(run: RunDir) -> None:
    """Add 1,500 bytes that a finished run of an earlier version, or a killed one, has kept."""
    (newest,) = run.checkpoints.iterdir()
    (newest / "optimizer.safetensors").write_bytes(b"0" * 800)

    older = run.checkpoints / "step-1"
    older.mkdir()
    (older / "model.safetensors").write_bytes(b"0" * 300)

    unfinished = run.checkpoints / ".tmp-3"
    unfinished.mkdir()
    (unfinished / "model.safetensors").write_bytes(b"0" * 300)

    run.pretrained.mkdir()
    (run.pretrained / "config.json").write_bytes(b"0" * 100)


@pytest.fixture
def runs(run_copy: RunDir) -> RunDir:
    """A finished run in `runs/tiny` with files to remove, beside an unfinished one."""
    add_old_checkpoints(run_copy)
    shutil.copytree(run_copy.path, "runs/study/stopped")
    Path("runs/study/stopped/model/README.md").unlink()
    return run_copy


def test_only_finished_runs_lose_files(cli, runs, trained_run):
    """The run is as its training left it; the unfinished run, and other files, are untouched."""
    note = runs.checkpoints / "step-1" / "notes.txt"
    note.write_text("mine")
    files_of_stopped = files_in(Path("runs/study/stopped"))

    outcome = cli("prune", "runs")

    assert outcome.code == 0
    stopped, finished, total = outcome.out.splitlines()
    assert stopped.split()[0] == "runs/study/stopped"
    assert stopped.endswith("not finished, so nothing is removed")
    assert finished.split()[0] == "runs/tiny"
    assert finished.endswith("checkpoints, pretrained")
    assert total == "removed 0.0 MB"

    assert files_in(Path("runs/study/stopped")) == files_of_stopped
    expected = files_in(trained_run.path) | {"checkpoints/step-1/notes.txt": b"mine"}
    assert files_in(runs.path) == expected
    assert not runs.pretrained.exists()
    assert not (runs.checkpoints / ".tmp-3").exists()


def test_a_dry_run_says_how_many_bytes_would_go_and_removes_nothing(cli, runs):
    with (runs.checkpoints / "step-1" / "model.safetensors").open("ab") as file:
        file.truncate(20_000_000)
    before = files_in(Path("runs"))

    outcome = cli("prune", "runs", "runs/tiny", "--dry-run")

    assert outcome.code == 0
    assert [line for line in outcome.out.splitlines() if "20.0 MB" in line] == [
        "runs/tiny           20.0 MB  checkpoints, pretrained",
        "would remove 20.0 MB",
    ]
    assert files_in(Path("runs")) == before


def test_a_run_that_lost_its_files_is_as_good_as_before(cli, run_copy):
    """It is still finished, its data can be compared, and there is nothing more to remove."""
    assert cli("prune", "runs").code == 0

    assert "nothing to remove" in cli("prune", "runs").out
    assert cli("eval", run_copy.path).code == 0
    again = cli("train", "--run-dir", run_copy.path, "--resume")
    assert "nothing to do" in again.err


def test_a_path_without_runs_removes_nothing_elsewhere(cli, runs):
    before = files_in(Path("runs"))
    Path("empty").mkdir()

    assert_failed(cli("prune", "runs", "empty"), 2, "error: empty: no run in it")
    assert files_in(Path("runs")) == before


def test_nothing_is_removed_through_a_link(cli, runs):
    """A checkpoint, the checkpoints and the pretrained encoder may be links to those of others."""
    linked = shutil.copytree(runs.path, Path("runs/linked"))
    for folder in ("pretrained", "checkpoints"):
        shutil.rmtree(linked / folder)
        (linked / folder).symlink_to(
            shutil.copytree(runs.path / folder, Path("mine", folder).resolve())
        )
    (runs.checkpoints / "step-0").symlink_to(
        shutil.copytree("mine/checkpoints", Path("mine/step-0").resolve())
    )
    before = files_in(Path("mine"))

    outcome = cli("prune", "runs")

    assert outcome.code == 0
    assert not runs.pretrained.exists()
    assert files_in(Path("mine")) == before
