"""A search: its trials, what is left of them after a crash, and what a person hears of them."""

from __future__ import annotations

import optuna
import pytest
from support.events import Noted, RecordingReporter, Warned
from support.small_runs import CPU, make_config

from encoder_cls.config.schema import Config, SearchRange
from encoder_cls.errors import ConfigError, StoppedError
from encoder_cls.run.run_folder import read_metrics
from encoder_cls.system.stop import stopping_at
from encoder_cls.tuning.search import Search, TrialResult
from encoder_cls.tuning.study import JOURNAL

pytestmark = pytest.mark.usefixtures("bare_trainings")

SPACE = {
    "train.learning_rate": SearchRange(low=0.001, high=0.01, log=True),
    "train.batch_size": (16, 32),
}


@pytest.fixture
def config(tmp_path) -> Config:
    config = make_config(
        tmp_path, epochs=2, batch_size=32, precision="float32", learning_rate=0.001
    )
    return config.model_copy(update={"name": "run", "tune": SPACE})


def run_trials(search: Search, count: int) -> list[TrialResult]:
    """The results of so many trials."""
    results = []
    for result in search.trials(lambda: len(results) < count):
        results.append(result)
        if len(results) == count:
            break
    return results


def test_the_first_trial_is_the_config_as_it_is_and_all_are_runs(tmp_path, config):
    search = Search(config, tmp_path / "search", device=CPU)
    first, second = run_trials(search, 2)
    assert first.number == 0
    assert first.values == {"train.learning_rate": 0.001, "train.batch_size": 32}
    assert second.values != first.values
    assert search.config_of(0, first.values) == config.model_copy(update={"tune": {}})

    for result in (first, second):
        run = search._run_of(result.number)
        rows = read_metrics(run.metrics_file)
        assert result.score == min(row["loss"] for row in rows if row["split"] == "validation")
        assert run.load_config() == search.config_of(result.number, result.values)
        assert not run.is_finished()
        assert run.event_files
        assert not run.checkpoints.exists()

    better = min((first, second), key=lambda result: result.score)
    assert search.best.number == better.number
    assert first.is_best
    assert second.is_best == (better is second)


def test_a_search_goes_on_with_the_trial_whose_process_ended(tmp_path, config):
    """It comes to the same score as a search that was not disturbed."""
    undisturbed = run_trials(Search(config, tmp_path / "whole", device=CPU), 2)

    num_looks = 0

    def stop_signal() -> int | None:
        nonlocal num_looks
        num_looks += 1
        return 15 if num_looks == 3 else None

    with pytest.raises(StoppedError), stopping_at(stop_signal):
        run_trials(Search(config, tmp_path / "search", device=CPU), 2)

    stopped = Search(config, tmp_path / "search", device=CPU)
    assert stopped.results == []
    for result, expected in zip(run_trials(stopped, 2), undisturbed, strict=True):
        assert result.number == expected.number
        assert result.values == expected.values
        assert result.score == expected.score


def test_a_torn_last_line_of_the_journal_is_cut_off(tmp_path, config):
    """What is appended after it can be read, and the trial whose end was torn is resumed."""
    (first,) = run_trials(Search(config, tmp_path / "search", device=CPU), 1)
    journal = tmp_path / "search" / JOURNAL
    journal.write_bytes(journal.read_bytes()[:-20])
    assert Search(config, tmp_path / "search", device=CPU).results == []

    again, _ = run_trials(Search(config, tmp_path / "search", device=CPU), 2)
    results = Search(config, tmp_path / "search", device=CPU).results
    assert [result.number for result in results] == [0, 1]
    assert again.score == first.score


def test_a_trial_that_another_process_trains_is_left_to_it(tmp_path, config):
    here = Search(config, tmp_path / "search", device=CPU)
    there = Search(config, tmp_path / "search", device=CPU)

    trial, run = here._next_trial()
    with run.lock():
        next_trial, _ = there._next_trial()
        assert next_trial.number == trial.number + 1

    next_trial, _ = there._next_trial()
    assert next_trial.number == trial.number


def test_a_trial_that_runs_out_of_time_is_pruned(tmp_path, config, monkeypatch):
    """The first one is trained to its end."""
    monkeypatch.setattr(optuna.trial.Trial, "should_prune", lambda _: False)
    has_time = iter([True])
    search = Search(config, tmp_path / "search", device=CPU)

    states = [result.state for result in search.trials(lambda: next(has_time, False))]
    assert states == ["complete", "pruned"]
    assert search.best.number == 0


def test_a_trial_without_a_chance_is_pruned(tmp_path, config, monkeypatch):
    """The first one is trained to its end."""
    monkeypatch.setattr(optuna.trial.Trial, "should_prune", lambda _: True)
    search = Search(config, tmp_path / "search", device=CPU)

    states = [result.state for result in run_trials(search, 2)]
    assert states == ["complete", "pruned"]
    assert search.best.number == 0
    assert search.results[1].score is None


def test_a_trial_that_diverges_fails_and_the_search_goes_on(tmp_path, config):
    wild = config.model_copy(update={"tune": {"train.learning_rate": (1e-3, 1e37)}})
    search = Search(wild, tmp_path / "search", device=CPU)
    states = {
        (result.values["train.learning_rate"], result.state) for result in run_trials(search, 4)
    }
    assert states == {(1e-3, "complete"), (1e37, "fail")}


def test_notes_and_warnings_of_trials_reach_the_person_once(tmp_path, config):
    """All trials give this warning, and the notes that the cache writes and reads each kind."""
    data = config.data.model_copy(update={"cache": str(tmp_path / "cache")})
    train_file = tmp_path / "train.csv"
    train_file.write_text(train_file.read_text() + "one red end,red\n" * 5)

    reporter = RecordingReporter()
    config = config.model_copy(update={"data": data})
    search = Search(config, tmp_path / "search", device=CPU, reporter=reporter)
    first, _ = run_trials(search, 2)
    assert search.train_again(first)

    warnings = [event.message for event in reporter.events if isinstance(event, Warned)]
    notes = [event.message for event in reporter.events if isinstance(event, Noted)]
    assert sum("repeat an earlier one" in warning for warning in warnings) == 1
    assert len(warnings) == len(set(warnings))
    assert len(notes) == len(set(notes))
    assert any(note.startswith("data.cache: rows written to") for note in notes)
    assert any(note.startswith("data.cache: rows read from") for note in notes)


def test_a_folder_with_another_search_is_refused(tmp_path, config):
    Search(config, tmp_path / "search", device=CPU)
    with pytest.raises(ConfigError, match="another config"):
        Search(config.model_copy(update={"seed": 1}), tmp_path / "search", device=CPU)
