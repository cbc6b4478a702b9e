"""A search: its trials, how it continues after a crash, and its messages."""

from __future__ import annotations

import signal
from contextlib import ExitStack
from itertools import islice

import optuna
import pytest
from support.events import Noted, RecordingReporter, StepsDecided, Warned
from support.small_runs import make_config
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator
from tensorboard.plugins.hparams.plugin_data_pb2 import HParamsPluginData

from encoder_cls import Config, config_of, load_config, read_metrics
from encoder_cls.errors import ConfigError, StoppedError
from encoder_cls.extras.tune.search import Search, TrialResult
from encoder_cls.extras.tune.study import JOURNAL_FILE
from encoder_cls.system.files import LockedError, locked
from encoder_cls.system.stop import stopping_at
from encoder_cls.training import from_python

pytestmark = pytest.mark.usefixtures("bare_trainings", "usual_c")

SPACE = {
    "train.learning_rate": {"low": 0.001, "high": 0.01, "log": True},
    "train.batch_size": [16, 32],
}


TWO_EPOCHS = {
    "epochs": 2,
    "batch_size": 32,
    "precision": "float32",
    "learning_rate": 0.001,
}


@pytest.fixture
def config(tmp_path) -> Config:
    return search_config(tmp_path)


def search_config(folder, **train_values: object) -> Config:
    """Return the config of a search of two settings, whose trials take two epochs by default."""
    config = make_config(folder, **TWO_EPOCHS | train_values)
    return config_of({"name": "run", "tune": SPACE}, base=config)


def open_search(folder, config: Config) -> Search:
    """Start or resume the search of a test."""
    return Search(config, folder / "search", device="cpu")


def run_trials(search: Search, count: int) -> list[TrialResult]:
    """Run this many trials, and return their results."""
    results = []
    for result in search.run_trials(lambda: len(results) < count):
        results.append(result)
        if len(results) == count:
            break
    return results


def test_the_first_trial_is_the_config_as_it_is_and_all_are_runs(tmp_path, config):
    search = open_search(tmp_path, config)
    first, second = run_trials(search, 2)

    # The first trial has the values of the config, and the second trial has others.
    assert first.number == 0
    assert first.values == {"train.learning_rate": 0.001, "train.batch_size": 32}
    assert search.config_of(0, first.values) == config.model_copy(update={"tune": {}})
    assert second.values != first.values

    # Both trials are runs without a report.
    for result in (first, second):
        run = search.trial_folder(result.number)
        validations = [
            row for row in read_metrics(run / "metrics.jsonl") if row["split"] == "validation"
        ]
        assert result.score == min(row["loss"] for row in validations)
        assert load_config(run / "config.yaml") == search.config_of(result.number, result.values)
        assert not (run / "model" / "README.md").exists()
        assert not (run / "checkpoints").exists()

    better = min((first, second), key=lambda result: result.score)
    assert search.best.number == better.number
    assert first.is_best
    assert second.is_best == (better is second)


def test_a_search_resumes_the_trial_whose_process_ended(tmp_path, config):
    """A resumed trial has the same score as a trial that was not interrupted."""
    undisturbed = run_trials(Search(config, tmp_path / "undisturbed", device="cpu"), 2)

    num_looks = 0

    def stop_signal() -> int | None:
        nonlocal num_looks
        num_looks += 1
        if num_looks == 3:
            return signal.SIGTERM
        return None

    with pytest.raises(StoppedError), stopping_at(stop_signal):
        run_trials(open_search(tmp_path, config), 2)

    search = open_search(tmp_path, config)
    assert search.results == []

    results = run_trials(search, 2)
    for result, expected in zip(results, undisturbed, strict=True):
        assert result.number == expected.number
        assert result.values == expected.values
        assert result.score == expected.score


def test_an_incomplete_last_line_of_the_journal_is_removed(tmp_path, config):
    """Lines that follow an incomplete line can be read, and its trial is resumed."""
    (first,) = run_trials(open_search(tmp_path, config), 1)
    journal = tmp_path / "search" / JOURNAL_FILE
    journal.write_bytes(journal.read_bytes()[:-20])
    assert open_search(tmp_path, config).results == []

    first_again, _ = run_trials(open_search(tmp_path, config), 2)

    results = open_search(tmp_path, config).results
    assert [result.number for result in results] == [0, 1]
    assert first_again.score == first.score


def test_a_trial_that_another_process_trains_is_left_to_it(tmp_path, config):
    here = open_search(tmp_path, config)
    there = open_search(tmp_path, config)

    with ExitStack() as locks:
        trial = here._next_trial(locks)
        next_trial = there._next_trial(locks)
        assert next_trial.number == trial.number + 1

    with ExitStack() as locks:
        assert there._next_trial(locks).number == trial.number


def test_no_process_chooses_a_trial_while_another_one_ends_its_own(tmp_path, config, monkeypatch):
    """Otherwise a trial could be seen unfinished, end, and then be found without a lock."""
    search = open_search(tmp_path, config)
    tell = optuna.Study.tell
    ended = []

    def tell_while_locked(
        study: optuna.Study, trial: optuna.Trial, *values: object, **more: object
    ):
        with pytest.raises(LockedError), locked(search.folder / "study.lock", wait=False):
            pass
        ended.append(trial.number)
        return tell(study, trial, *values, **more)

    monkeypatch.setattr(optuna.Study, "tell", tell_while_locked)
    run_trials(search, 1)
    assert ended == [0]


def test_all_trials_read_as_many_rows_as_the_first_had_time_for(tmp_path, monkeypatch):
    """Another process waits for the first trial to find out."""
    config = search_config(tmp_path, time_budget="10h")
    here = open_search(tmp_path, config)
    there = open_search(tmp_path, config)
    with ExitStack() as locks:
        here._next_trial(locks)
        assert there._next_trial(locks) is None

    shares = iter([0.9, 0.5])
    monkeypatch.setattr(from_python, "affordable_train_fraction", lambda *_, **__: next(shares))
    run_trials(here, 1)

    with ExitStack() as locks:
        assert there._next_trial(locks).number == 1
    assert there.config_of(1, {}).data.train_fraction == 0.9


def test_the_table_of_tensorboard_has_the_score_and_the_values_of_a_trial(tmp_path, config):
    search = open_search(tmp_path, config)
    (first,) = run_trials(search, 1)

    events = EventAccumulator(str(search.trial_folder(0))).Reload()
    assert "loss/validation" in events.Tags()["scalars"]
    content = events.PluginTagToContent("hparams")["_hparams_/session_start_info"]
    columns = HParamsPluginData.FromString(content).session_start_info.hparams
    assert columns["best validation loss"].number_value == first.score
    assert columns["train.batch_size"].number_value == 32


def test_a_trial_that_runs_out_of_time_is_pruned(tmp_path, config, monkeypatch):
    """The first trial is trained to its end."""
    monkeypatch.setattr(optuna.trial.Trial, "should_prune", lambda _: False)
    search = open_search(tmp_path, config)
    has_time = iter([True])

    results = list(search.run_trials(lambda: next(has_time, False)))

    assert [result.state for result in results] == ["complete", "pruned"]
    assert search.best.number == 0


def test_a_search_that_is_out_of_time_has_one_complete_trial(tmp_path, config):
    """Another process trains the first trial, so this process completes the second one."""
    here = open_search(tmp_path, config)
    there = open_search(tmp_path, config)

    with ExitStack() as locks:
        here._next_trial(locks)
        results = list(islice(there.run_trials(lambda: False), 2))

    assert [(result.number, result.state) for result in results] == [(1, "complete")]


def test_a_trial_that_is_worse_than_others_is_pruned(tmp_path, config, monkeypatch):
    """The first trial is trained to its end."""
    monkeypatch.setattr(optuna.trial.Trial, "should_prune", lambda _: True)
    search = open_search(tmp_path, config)

    results = run_trials(search, 2)

    assert [result.state for result in results] == ["complete", "pruned"]
    assert search.best.number == 0
    assert search.results[1].score is None


def test_a_trial_that_diverges_fails_and_the_search_continues(tmp_path, config):
    wild = config.model_copy(update={"tune": {"train.learning_rate": (1e-3, 1e37)}})

    results = run_trials(open_search(tmp_path, wild), 4)

    states = {(result.values["train.learning_rate"], result.state) for result in results}
    assert states == {(1e-3, "complete"), (1e37, "fail")}


def test_notes_and_warnings_of_trials_reach_the_person_once(tmp_path, config):
    """All trials give the same warnings and notes, but each is shown only once."""
    train_file = tmp_path / "train.csv"
    train_file.write_text(train_file.read_text() + "one red end,red\n" * 5)
    data = config.data.model_copy(update={"cache": str(tmp_path / "cache")})
    config = config.model_copy(update={"data": data})
    reporter = RecordingReporter()
    search = Search(config, tmp_path / "search", device="cpu", reporter=reporter)

    first, _ = run_trials(search, 2)
    assert search.train_again(first)

    warnings = [event.message for event in reporter.events if isinstance(event, Warned)]
    repetitions = [
        warning for warning in warnings if "an earlier text with the same label" in warning
    ]
    assert len(repetitions) == 1
    assert len(warnings) == len(set(warnings))

    notes = [event.message for event in reporter.events if isinstance(event, Noted)]
    assert len(notes) == len(set(notes))
    assert any(note.startswith("data.cache: rows written to") for note in notes)
    assert any(note.startswith("data.cache: rows read from") for note in notes)


def test_the_steps_that_a_time_budget_allows_reach_the_person_with_the_trial(tmp_path):
    config = search_config(tmp_path, time_budget="10h", epochs=10)
    reporter = RecordingReporter()
    search = Search(config, tmp_path / "search", device="cpu", reporter=reporter)

    run_trials(search, 2)

    decided = [event for event in reporter.events if isinstance(event, StepsDecided)]
    assert [event.name for event in decided] == ["model (trial 0)", "model (trial 1)"]
    assert all(event.steps > 0 for event in decided)


def test_a_folder_with_another_search_is_refused(tmp_path, config):
    open_search(tmp_path, config)

    other_config = config.model_copy(update={"seed": 1})
    with pytest.raises(ConfigError, match="another config"):
        open_search(tmp_path, other_config)
