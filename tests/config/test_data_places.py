"""The places of a run's data: beside the config file, absolute in the run, and named anew."""

from __future__ import annotations

import os
import shutil
import signal
from pathlib import Path

import pytest
import torch
import yaml
from support.programs import assert_failed

from encoder_cls.config.changed_keys import changed_keys
from encoder_cls.config.data_paths import SOURCES, absolute_sources, missing_sources
from encoder_cls.config.loading import load_config
from encoder_cls.errors import StoppedError
from encoder_cls.run.run_folder import RunDir
from encoder_cls.system.stop import stopping_at
from encoder_cls.training.prepare import prepare
from encoder_cls.training.train import train

CPU = torch.device("cpu")


def config_of(**sources: str) -> str:
    """The text of a config with these sources."""
    return yaml.safe_dump({"data": sources})


def test_data_is_found_beside_the_config_file():
    """The current folder comes first; paths that exist nowhere stay as they are written."""
    Path("conf/parts").mkdir(parents=True)
    for name in ("conf/a.csv", "conf/b.csv", "conf/parts/1.csv", "b.csv"):
        Path(name).touch()
    sources = {
        "train": "a.csv",
        "validation": "b.csv",
        "test": "c.csv",
        "unlabelled": "parts/*.csv",
    }
    Path("conf/run.yaml").write_text(config_of(**sources))

    data = load_config(Path("conf/run.yaml")).data
    places = [data.train, data.validation, data.test, data.unlabelled]
    assert places == ["conf/a.csv", "b.csv", "c.csv", "conf/parts/*.csv"]
    assert missing_sources(data) == [("data.test", "c.csv")]

    # A path on the command line starts at the current folder alone.
    assert load_config(Path("conf/run.yaml"), ["data.train=a.csv"]).data.train == "a.csv"


def test_absolute_sources_name_the_same_from_any_folder():
    """A pattern does, too, even where the folder's name has characters of a pattern."""
    Path("[x]").mkdir()
    os.chdir("[x]")
    Path("[y]").mkdir()
    Path("a.csv").touch()
    Path("[y]/a.csv").touch()
    text = config_of(
        train="[y]/*.csv",
        validation="a.csv",
        test="hub:owner/name",
        unlabelled="example:train",
    )
    Path("run.yaml").write_text(text)

    data = absolute_sources(load_config(Path("run.yaml"))).data
    os.chdir("/")
    assert missing_sources(data) == []
    assert Path(data.train).is_absolute()
    assert Path(data.validation).is_absolute()

    # These are no paths.
    assert data.test == "hub:owner/name"
    assert data.unlabelled == "example:train"


@pytest.fixture
def begun(trained_run, tmp_path) -> RunDir:
    """A run of data in the current folder that was stopped after its first steps."""
    for split in ("train", "validation"):
        shutil.copy(trained_run.path.parent / f"{split}.csv", f"{split}.csv")
    values = yaml.safe_load((trained_run.path.parent / "tiny.yaml").read_text("utf-8"))
    values["data"] = {"train": "train.csv", "validation": "validation.csv"}
    values["train"] |= {"epochs": 2, "checkpoint_every": 2}
    Path("tiny.yaml").write_text(yaml.safe_dump(values))

    # SIGTERM is noticed when the training looks for the seventh time.
    signals = iter([None] * 6)
    run = RunDir(tmp_path / "runs" / "tiny")
    with pytest.raises(StoppedError), stopping_at(lambda: next(signals, signal.SIGTERM)):
        train(prepare(load_config(Path("tiny.yaml"))), run, device=CPU)
    return run


def test_a_run_goes_on_from_any_folder_and_with_moved_data(cli, begun, blank_plots):
    """While the data is where it was, another place is an error; so is data that has changed."""
    assert load_config(begun.config_file) == absolute_sources(load_config(Path("tiny.yaml")))
    command = ["train", "--run-dir", begun.path, "--resume"]

    # The data is where it was.
    shutil.copy("train.csv", "copy.csv")
    copied = cli(*command, "--set", "data.train=copy.csv")
    assert_failed(copied, 2, "was started with another data.train")

    # It is gone from its place.
    Path("moved").mkdir()
    shutil.move("train.csv", "moved/train.csv")
    refused = cli(*command)
    assert refused.code == 3
    assert f"data.train: {Path.cwd()}/train.csv: no such file or folder" in refused.err
    assert "--set data.train=PATH" in refused.err

    # Data in the new place has changed.
    Path("other.csv").write_text(Path("copy.csv").read_text("utf-8") + "rain,weather\n", "utf-8")
    before = begun.config_file.read_bytes()
    changed = cli(*command, "--set", "data.train=other.csv")
    assert_failed(changed, 2, "the training data has changed since the run began")
    assert begun.config_file.read_bytes() == before

    # The run goes on in another folder with the data that it was trained on, and records its place.
    os.chdir("moved")
    assert cli(*command, "--set", "data.train=train.csv").code == 0
    assert cli("eval", begun.path).code == 0
    os.chdir("..")
    assert load_config(begun.config_file).data.train == str(Path.cwd() / "moved" / "train.csv")

    # Validation data that is gone is an error of `eval`.
    shutil.move("validation.csv", "moved/validation.csv")
    refused = cli("eval", begun.path)
    assert refused.code == 3
    assert f"data.validation: {Path.cwd()}/validation.csv: no such file or folder" in refused.err
    assert "--data" in refused.err


@pytest.mark.parametrize("key", SOURCES)
def test_a_source_may_have_another_path_only_if_it_was_moved(key):
    Path("old.csv").touch()
    settings = ["name=mine", "data.train=old.csv"]
    started = load_config(None, [*settings, f"data.{key}=old.csv"])
    config = load_config(None, [*settings, f"data.{key}=new.csv"])
    assert changed_keys(started, config) == [f"data.{key}"]

    Path("old.csv").rename("new.csv")
    assert changed_keys(started, config) == []


def test_a_missing_file_is_named_with_the_folders_that_were_searched(cli):
    Path("conf").mkdir()
    Path("conf/run.yaml").write_text(config_of(train="a.csv"))

    outcome = cli("train", "--config", "conf/run.yaml")
    assert outcome.code == 3
    assert (
        f"error: a.csv: no such file or folder (looked for in the current folder, {Path.cwd()}, "
        "and beside conf/run.yaml); data.train names it\n"
    ) in outcome.err
