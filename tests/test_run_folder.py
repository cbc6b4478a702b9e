"""Which run is the newest finished one."""

from __future__ import annotations

import os

import pytest

from encoder_cls.errors import ConfigError
from encoder_cls.run_folder import RunFolder, newest_finished


def finish(folder, *, time):
    card = RunFolder(folder).model_card
    card.parent.mkdir(parents=True)
    card.write_text("# card\n")
    os.utime(card, (time, time))


def test_the_newest_finished_run_is_found(tmp_path):
    """By the time at which it finished; unfinished runs and stray files do not count."""
    finish(tmp_path / "older", time=1_000)
    finish(tmp_path / "newer", time=2_000)
    (tmp_path / "unfinished" / "model").mkdir(parents=True)
    (tmp_path / "stray.txt").write_text("")
    assert newest_finished(tmp_path).path.name == "newer"


def test_without_a_finished_run_the_way_to_one_is_named(tmp_path):
    """No run is an error that says what to do."""
    with pytest.raises(ConfigError, match=r"no finished run in .*train one"):
        newest_finished(tmp_path / "runs")
