"""The run folder: its lock, its leftover files, the paths of its data, and the newest run."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import pytest

from encoder_cls.config.loading import load_config
from encoder_cls.errors import EncoderClsError
from encoder_cls.run.run_folder import RunDir, newest_with_model


def write_weights(folder: Path, *, time: float) -> None:
    """Write the weights of a run's model, at a time in seconds since 1970."""
    weights = RunDir(folder).weights
    weights.parent.mkdir(parents=True)
    weights.write_bytes(b"weights")
    os.utime(weights, (time, time))


def test_the_newest_run_with_a_model_is_found(tmp_path):
    """The newest run has the newest model; runs without a model and other files do not count."""
    write_weights(tmp_path / "older", time=1_000)
    write_weights(tmp_path / "newer", time=2_000)
    (tmp_path / "without" / "model").mkdir(parents=True)
    (tmp_path / "stray.txt").write_text("")

    assert newest_with_model(tmp_path).path.name == "newer"


def test_a_locked_folder_is_refused_to_others(tmp_path):
    """The error names the locking process, which may nest its locks."""
    run = RunDir(tmp_path / "run")
    other = RunDir(tmp_path / "run")

    with run.lock():
        with run.lock(), pytest.raises(EncoderClsError) as error:
            other.lock().__enter__()
        assert f"process {os.getpid()} is training here" in str(error.value)
        with pytest.raises(EncoderClsError, match="is training here"):
            other.lock().__enter__()

    with other.lock():
        pass


def test_folders_made_for_a_run_that_never_began_are_removed(tmp_path):
    run = RunDir(tmp_path / "runs" / "new")

    with run.lock():
        assert run.path.is_dir()

    assert not run.path.exists()
    assert not run.path.parent.exists()


def test_an_empty_folder_that_a_person_made_stays_empty(tmp_path):
    run = RunDir(tmp_path / "runs" / "new")
    run.path.mkdir(parents=True)

    with run.lock():
        pass

    assert list(run.path.iterdir()) == []


def test_half_written_files_of_a_killed_process_are_removed(tmp_path):
    """A resumed run removes leftover files in each of its folders."""
    run = RunDir(tmp_path / "run")
    with run.open_for_training(load_config(), resume=False):
        pass

    for folder in (run.path, run.model, run.checkpoints, run.eval, run.pretrained):
        folder.mkdir(parents=True, exist_ok=True)
        (folder / ".tmp-99-model.safetensors").write_bytes(b"half")

    with run.open_for_training(load_config(), resume=True):
        assert not list(run.path.rglob(".tmp-*"))
        assert run.is_run()


def test_a_run_killed_before_its_config_was_written_can_begin(tmp_path):
    """The files that a killed process has left do not keep a run from starting."""
    run = RunDir(tmp_path / "run")
    run.path.mkdir()
    (run.path / ".tmp-99-config.yaml").write_text("half")
    run.sources_file.write_text("{}")

    with run.open_for_training(load_config(), resume=False):
        assert run.is_run()


def test_the_paths_of_the_data_can_be_read_without_a_yaml_parser(tmp_path, monkeypatch):
    """The recorded paths are absolute; if the file is damaged or missing, there are none."""
    run = RunDir(tmp_path / "run")
    overrides = ["data.train=a #1.csv", "data.validation=null", "data.test='[b]: c.csv'"]
    with run.open_for_training(load_config(None, overrides), resume=False):
        pass

    monkeypatch.setitem(sys.modules, "encoder_cls.config.data_paths", None)
    assert run.data_sources() == [
        str(Path("a #1.csv").absolute()),
        str(Path("[b]: c.csv").absolute()),
    ]

    # The file is damaged or missing.
    for content in ("{", "[]", "{}", "[" * 100_000):
        run.sources_file.write_text(content)
        assert run.data_sources() == []
    run.sources_file.unlink()
    assert run.data_sources() == []

    # A device can be read without end.
    run.sources_file.symlink_to("/dev/full")
    assert run.data_sources() == []
