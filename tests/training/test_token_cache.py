"""`data.cache`: a cache does not change the result of a run, and the next run starts at once."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from support.programs import TIME_OF_LINE
from support.small_runs import LABELLED, WITH_LINEAR, make_config, result, run_all, stop_after
from support.tokenizer import train_tokenizer
from tokenizers import Tokenizer

from encoder_cls.config.schema import Config
from encoder_cls.errors import StoppedError
from encoder_cls.run.run_folder import RunDir
from encoder_cls.system.terminal_reporter import TerminalReporter
from encoder_cls.text import tokenized_data
from encoder_cls.training.prepare import prepare


def cached_config(folder: Path, **values: object) -> Config:
    """Return the config of a run with a cache in the folder `cache`."""
    return make_config(folder, **values, data={"cache": str(folder / "cache")})


def forbid_tokenizing(monkeypatch) -> None:
    """Fail the test if a tokenizer is trained or data is tokenized."""
    monkeypatch.setattr(tokenized_data, "train_and_tokenize", None)


def test_weights_are_those_of_a_run_without_a_cache(tmp_path, monkeypatch):
    """The first run writes the cache, the second reads it, the third is resumed without it."""
    values = WITH_LINEAR | {"epochs": 1}
    without_cache = make_config(tmp_path, **values)
    run_all(without_cache, tmp_path / "without")
    config = cached_config(tmp_path, **values)

    run_all(config, tmp_path / "first")
    with monkeypatch.context() as patch:
        forbid_tokenizing(patch)
        run_all(config, tmp_path / "second")
        with pytest.raises(StoppedError):
            run_all(config, tmp_path / "third", stop_signal=stop_after(5))
    RunDir(tmp_path / "third").check_trainable(without_cache, resume=True)
    run_all(without_cache, tmp_path / "third", resume=True)

    for name in ("first", "second", "third"):
        assert result(tmp_path / name) == result(tmp_path / "without")


def notes_of_cache(config: Config, capsys) -> list[str]:
    """Prepare a run, and return its notes about the cache, without the paths."""
    capsys.readouterr()
    with TerminalReporter() as reporter:
        prepare(config, reporter=reporter)

    notes = []
    for line in TIME_OF_LINE.sub("", capsys.readouterr().err).splitlines():
        if "data.cache" in line:
            note, _, _ = line.partition(" /")
            notes.append(note)
    return notes


@pytest.mark.parametrize(
    ("section", "changes"),
    [
        ("tokenizer", {"lowercase": False}),
        ("model", {"max_seq_len": 8}),
    ],
)
def test_other_settings_have_an_entry_of_their_own(tmp_path, capsys, section, changes):
    config = cached_config(tmp_path, **LABELLED)
    changed_section = getattr(config, section).model_copy(update=changes)
    other = config.model_copy(update={section: changed_section})
    other_without_cache = other.model_copy(update={"data": make_config(tmp_path).data})

    first_notes = notes_of_cache(config, capsys)
    assert first_notes == ["data.cache: rows written to", "data.cache: tokens written to"]

    # The entry of the first settings is not used.
    found = prepare(other)
    expected = prepare(other_without_cache)
    assert found.tokenizer.to_str() == expected.tokenizer.to_str()
    assert found.texts.words.tolist() == expected.texts.words.tolist()
    assert found.texts.truncated.tolist() == expected.texts.truncated.tolist()

    # The other settings now also have an entry.
    notes_again = notes_of_cache(other, capsys)
    assert notes_again == ["data.cache: rows read from", "data.cache: tokens read from"]
    kinds = [path.name.partition("-")[0] for path in (tmp_path / "cache").glob("*-*")]
    assert sorted(kinds) == ["rows", "tokens", "tokens"]


def test_a_continued_run_has_an_entry_of_its_own(tmp_path):
    """Its tokenizer extends that of its base, though texts and settings are equal."""
    config = cached_config(tmp_path)
    base = train_tokenizer(["from the base"] * 2, config.tokenizer)

    def vocabulary(base: Tokenizer | None) -> set[str]:
        data = tokenized_data.tokenized_data(
            ["a new text", "a new text"],
            [],
            config,
            fingerprints=["texts"],
            groups=lambda: np.arange(2),
            base=base,
            check=lambda: None,
        )
        return set(data.tokenizer.get_vocab())

    assert "base" not in vocabulary(None)
    assert "base" in vocabulary(base)


def test_a_cached_tokenizer_asks_for_no_groups(tmp_path):
    """To number the groups of all texts again would take seconds for millions of texts."""
    config = cached_config(tmp_path)
    asked = []

    def groups():
        asked.append(True)
        return np.arange(2)

    for _ in range(2):
        tokenized_data.tokenized_data(
            ["a new text", "a new text"],
            [],
            config,
            fingerprints=["texts"],
            groups=groups,
            base=None,
            check=lambda: None,
        )
    assert len(asked) == 1
