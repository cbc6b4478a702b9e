"""Resuming a run under other conditions: changed data is refused, a changed machine warned of."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from support.events import Warned
from support.small_runs import make_config, run_all, stop_after

from encoder_cls.config.schema import Config
from encoder_cls.errors import ConfigError, EncoderClsError, StoppedError
from encoder_cls.training import run_progress


def stop_run(config: Config, folder: Path) -> None:
    """Train until a signal stops the run after its first steps."""
    with pytest.raises(StoppedError):
        run_all(config, folder, stop_signal=stop_after(3))


@pytest.fixture
def stopped_config(tmp_path) -> Config:
    """The config of a stopped run, `run`, on `train.csv` and `validation.csv`."""
    config = make_config(tmp_path)
    train_file = tmp_path / "train.csv"
    validation_file = tmp_path / "validation.csv"
    lines = train_file.read_text().replace(" end,", " the end,")
    validation_file.write_text(lines)

    data = {"train": str(train_file), "validation": str(validation_file)}
    config = Config.model_validate(config.model_dump() | {"data": data})
    stop_run(config, tmp_path / "run")
    return config


def test_changed_validation_texts_and_class_names_are_not_resumed(tmp_path, stopped_config):
    """Scores on different texts cannot be compared; a renamed class is another class."""
    files = [tmp_path / "train.csv", tmp_path / "validation.csv"]
    train, validation = [path.read_text() for path in files]
    _, _, label = train.splitlines()[1].rpartition(",")

    files[1].write_text(validation.replace("w3", "w4"))
    with pytest.raises(ConfigError, match="validation data has changed"):
        run_all(stopped_config, tmp_path / "run", resume=True)

    for path, content in zip(files, [train, validation], strict=True):
        path.write_text(content.replace(f",{label}\n", f",{label}z\n"))
    with pytest.raises(ConfigError, match="names of the classes have changed"):
        run_all(stopped_config, tmp_path / "run", resume=True)


def test_another_thread_count_is_a_warning(tmp_path, monkeypatch):
    """The warning names what may change the last digits of the result."""
    config = make_config(tmp_path)
    stop_run(config, tmp_path / "run")

    monkeypatch.setattr(torch, "get_num_threads", lambda: 64)
    events = run_all(config, tmp_path / "run", resume=True)

    (message,) = [event.message for event in events if isinstance(event, Warned)]
    assert "threads changed" in message


def set_free_space(monkeypatch, num_bytes: int) -> None:
    """Let every disk report this many bytes of free space."""
    usage = run_progress.shutil.disk_usage(".")
    free = usage._replace(free=num_bytes)
    monkeypatch.setattr(run_progress.shutil, "disk_usage", lambda _: free)


def test_what_the_disk_cannot_hold_is_not_begun(tmp_path, monkeypatch):
    """The error says how much space is free and how much is needed."""
    config = make_config(tmp_path)
    set_free_space(monkeypatch, 1000)

    message = r"run: 0\.0 MB are free, the run needs up to 0\.\d MB"
    with pytest.raises(EncoderClsError, match=message):
        run_all(config, tmp_path / "run")

    assert not (tmp_path / "run" / "checkpoints").exists()


def test_the_files_of_a_resumed_run_count_as_space_that_it_has(tmp_path, monkeypatch):
    config = make_config(tmp_path)
    folder = tmp_path / "run"
    set_free_space(monkeypatch, 10**9)
    stop_run(config, folder)

    # The run needs more than is free, but its files are a part of what it needs.
    num_bytes = sum(path.stat().st_size for path in folder.rglob("*.safetensors"))
    with pytest.raises(EncoderClsError, match="are free, the run needs up to"):
        set_free_space(monkeypatch, 0)
        run_all(config, folder, resume=True)
    set_free_space(monkeypatch, 3 * num_bytes)

    run_all(config, folder, resume=True)
