"""Resuming a run elsewhere: with other data it is refused, in another environment there is a warning."""

from __future__ import annotations

import pytest
import torch
from support.events import Warned
from support.small_runs import make_config, run_all, stop_after

from encoder_cls.config.schema import Config
from encoder_cls.errors import ConfigError, EncoderClsError, StoppedError
from encoder_cls.training import progress


def test_changed_validation_texts_and_class_names_are_not_resumed(tmp_path):
    """Scores on other texts do not compare, and a class under another name is another class."""
    config = make_config(tmp_path)
    train_file, validation_file = tmp_path / "train.csv", tmp_path / "validation.csv"
    content = train_file.read_text()
    validation_file.write_text(content)
    data = {"train": str(train_file), "validation": str(validation_file)}
    config = Config.model_validate(config.model_dump() | {"data": data})
    with pytest.raises(StoppedError):
        run_all(config, tmp_path / "run", stop_signal=stop_after(3))
    validation_file.write_text(content.replace("w3", "w4"))
    with pytest.raises(ConfigError, match="validation data has changed"):
        run_all(config, tmp_path / "run", resume=True)
    label = content.splitlines()[1].rpartition(",")[2]
    for path in (train_file, validation_file):
        # In the same position of the alphabet.
        path.write_text(content.replace(f",{label}\n", f",{label}z\n"))
    with pytest.raises(ConfigError, match="names of the classes have changed"):
        run_all(config, tmp_path / "run", resume=True)
    for path in (train_file, validation_file):
        path.write_text(content)
    run_all(config, tmp_path / "run", resume=True)


def test_another_thread_count_is_warned_of(tmp_path, monkeypatch):
    """What changes the last digits is compared, and named."""
    config = make_config(tmp_path)
    with pytest.raises(StoppedError):
        run_all(config, tmp_path / "run", stop_signal=stop_after(3))
    monkeypatch.setattr(torch, "get_num_threads", lambda: 64)
    events = run_all(config, tmp_path / "run", resume=True)
    (message,) = [event.message for event in events if isinstance(event, Warned)]
    assert "threads changed" in message


def test_what_the_disk_cannot_hold_is_not_begun(tmp_path, monkeypatch):
    """Before the first step, with what is free and what is needed; what a resumed run has already counts."""
    config = make_config(tmp_path)
    run_all(config, tmp_path / "other")
    usage = progress.shutil.disk_usage(tmp_path)
    monkeypatch.setattr(progress.shutil, "disk_usage", lambda _: usage._replace(free=1000))
    with pytest.raises(
        EncoderClsError, match=r"run: 0\.0 MB are free, the run needs up to 0\.\d MB"
    ):
        run_all(config, tmp_path / "run")
    assert not (tmp_path / "run" / "checkpoints").exists()
    (tmp_path / "other" / "model" / "README.md").unlink()
    present = sum(path.stat().st_size for path in (tmp_path / "other").rglob("*.safetensors"))
    monkeypatch.setattr(progress.shutil, "disk_usage", lambda _: usage._replace(free=present))
    run_all(config, tmp_path / "other", resume=True)
