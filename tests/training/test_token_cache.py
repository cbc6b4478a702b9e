"""`data.cache`: a run with it ends as one without, and the next starts at once; resumed, or with other settings."""

from __future__ import annotations

from pathlib import Path

import pytest
from support.small_runs import LABELLED, WITH_LINEAR, make_config, result, run_all, stop_after

from encoder_cls.errors import StoppedError
from encoder_cls.run.run_folder import RunDir
from encoder_cls.run.terminal_reporter import TerminalReporter
from encoder_cls.text import tokenized_data
from encoder_cls.training.prepare import prepare


def cached_config(folder: Path, **values: object):
    return make_config(folder, **values, data={"cache": str(folder / "cache")})


def test_weights_are_those_of_a_run_without(tmp_path, monkeypatch):
    """Also where the cache is there already, and where a run goes on with it, or without it."""
    run_all(make_config(tmp_path, **WITH_LINEAR), tmp_path / "plain")
    expected = result(tmp_path / "plain")
    run_all(cached_config(tmp_path, **WITH_LINEAR), tmp_path / "first")
    with monkeypatch.context() as patch:
        patch.setattr(tokenized_data, "train_and_tokenize", None)  # it is not called
        run_all(cached_config(tmp_path, **WITH_LINEAR), tmp_path / "second")
        with pytest.raises(StoppedError):
            run_all(
                cached_config(tmp_path, **WITH_LINEAR),
                tmp_path / "third",
                stop_signal=stop_after(5),
            )
    RunDir(tmp_path / "third").check_trainable(make_config(tmp_path, **WITH_LINEAR), resume=True)
    run_all(make_config(tmp_path, **WITH_LINEAR), tmp_path / "third", resume=True)
    assert [result(tmp_path / name) for name in ("first", "second", "third")] == [expected] * 3


def cache_notes(capsys):
    return [
        line.partition(" /")[0]
        for line in capsys.readouterr().err.splitlines()
        if "data.cache" in line
    ]


@pytest.mark.parametrize("setting", [{"tokenizer": {"lowercase": False}}, {"max_seq_len": 8}])
def test_other_settings_have_an_entry_of_their_own(tmp_path, capsys, setting):
    with TerminalReporter() as reporter:
        prepare(cached_config(tmp_path, **LABELLED), reporter=reporter)
    assert cache_notes(capsys) == ["data.cache: rows written to", "data.cache: tokens written to"]
    base = cached_config(tmp_path, **LABELLED)
    other = (
        base.model_copy(
            update={"tokenizer": base.tokenizer.model_copy(update=setting["tokenizer"])}
        )
        if "tokenizer" in setting
        else base.model_copy(update={"model": base.model.model_copy(update=setting)})
    )
    found, expected = (
        prepare(other),
        prepare(other.model_copy(update={"data": make_config(tmp_path).data})),
    )
    assert found.tokenizer.to_str() == expected.tokenizer.to_str()
    assert found.texts.words.tolist() == expected.texts.words.tolist()
    assert found.texts.truncated.tolist() == expected.texts.truncated.tolist()
    capsys.readouterr()
    with TerminalReporter() as reporter:
        prepare(other, reporter=reporter)
    assert cache_notes(capsys) == ["data.cache: rows read from", "data.cache: tokens read from"]
    kinds = sorted(path.name.partition("-")[0] for path in (tmp_path / "cache").glob("*-*"))
    assert kinds == ["rows", "tokens", "tokens"]
