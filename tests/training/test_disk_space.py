"""Free space: what a run will write has to fit before it begins."""

from __future__ import annotations

import pytest
from small_runs import make_config, run_all

from encoder_cls.errors import EncoderClsError
from encoder_cls.training.encoder import checkpoint as disk_space


def test_what_the_disk_cannot_hold_is_not_begun(tmp_path, monkeypatch):
    """Before the first step, with what is free and what is needed; what a resumed run has already counts."""
    config = make_config(tmp_path)
    run_all(config, tmp_path / "other")
    usage = disk_space.shutil.disk_usage(tmp_path)
    monkeypatch.setattr(disk_space.shutil, "disk_usage", lambda _: usage._replace(free=1000))
    with pytest.raises(EncoderClsError, match=r"run: 0\.0 MB are free, the run needs up to 0\.\d MB"):
        run_all(config, tmp_path / "run")
    assert not (tmp_path / "run" / "checkpoints").exists()
    (tmp_path / "other" / "model" / "README.md").unlink()
    present = sum(path.stat().st_size for path in (tmp_path / "other").rglob("*.safetensors"))
    monkeypatch.setattr(disk_space.shutil, "disk_usage", lambda _: usage._replace(free=present))
    run_all(config, tmp_path / "other", resume=True)


@pytest.mark.parametrize(("linear", "needed"), [(False, "0.2"), (True, "2,000.2")])
def test_the_disk_has_to_hold_the_linear_classifier_twice(tmp_path, monkeypatch, linear, needed):
    """The file in which it is, and the one that replaces it."""
    usage = disk_space.shutil.disk_usage(tmp_path)
    monkeypatch.setattr(disk_space.shutil, "disk_usage", lambda _: usage._replace(free=0))
    monkeypatch.setattr(disk_space, "bytes_at_most", lambda *_arguments, **_options: 10**9)
    with pytest.raises(EncoderClsError, match=f"the run needs up to {needed} MB"):
        run_all(make_config(tmp_path, linear=linear), tmp_path / "run")


def test_room_is_needed_for_the_checkpoints_that_there_will_be(tmp_path):
    """To keep more than a run writes needs no more room than to keep all it writes."""
    run_all(make_config(tmp_path, keep_checkpoints=2**31 - 1), tmp_path / "run")
    assert len(list((tmp_path / "run" / "checkpoints").iterdir())) < 20
