"""A search: it begins with the config as it is, survives its process, and prunes and ends when it is told to."""

from __future__ import annotations

import optuna
import pytest
from support.small_runs import CPU, make_config

from encoder_cls import tuning
from encoder_cls.config.schema import Config, DataConfig, SearchRange, TrainConfig
from encoder_cls.errors import ConfigError, StoppedError
from encoder_cls.run.run_folder import read_metrics
from encoder_cls.system.stop import stopping_at
from encoder_cls.tuning import DEFAULT_SPACE, Search, search_space

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


def trials_of(search: Search, count: int) -> list[tuning.TrialResult]:
    """So many trials."""
    found = []
    for result in search.trials(lambda: len(found) < count):
        found.append(result)
        if len(found) == count:
            break
    return found


def test_the_first_trial_is_the_config_as_it_is_and_all_are_runs(tmp_path, config):
    search = Search(config, tmp_path / "search", device=CPU)
    first, second = trials_of(search, 2)
    assert (first.number, first.values) == (
        0,
        {"train.learning_rate": 0.001, "train.batch_size": 32},
    )
    assert second.values != first.values
    assert search.config_of(0, first.values) == config.model_copy(update={"tune": {}})
    for result in (first, second):
        run = search._run_of(result.number)
        scores = [
            row["loss"] for row in read_metrics(run.metrics_file) if row["split"] == "validation"
        ]
        assert result.score == min(scores)
        assert run.load_config() == search.config_of(result.number, result.values)
        assert not run.is_finished()
        assert run.event_files
        assert not run.checkpoints.exists()
    assert search.best.number == min((first, second), key=lambda it: it.score).number
    assert [it.is_best for it in (first, second)] == [True, search.best.number == 1]


def test_a_search_goes_on_with_the_trial_whose_process_ended(tmp_path, config):
    """To the same score as one that was not disturbed."""
    whole = trials_of(Search(config, tmp_path / "whole", device=CPU), 2)
    asked = []

    def stop_signal():
        asked.append(None)
        return 15 if len(asked) == 3 else None

    with pytest.raises(StoppedError), stopping_at(stop_signal):
        trials_of(Search(config, tmp_path / "search", device=CPU), 2)
    stopped = Search(config, tmp_path / "search", device=CPU)
    assert stopped.results == []
    again = trials_of(stopped, 2)
    assert [(it.number, it.values, it.score) for it in again] == [
        (it.number, it.values, it.score) for it in whole
    ]


def test_a_torn_last_line_of_the_journal_is_cut_off(tmp_path, config):
    """Whatever is appended after it is read again; the trial whose end was torn is gone on with."""
    first = trials_of(Search(config, tmp_path / "search", device=CPU), 1)
    journal = tmp_path / "search" / tuning.JOURNAL
    journal.write_bytes(journal.read_bytes()[:-20])
    assert Search(config, tmp_path / "search", device=CPU).results == []
    second = trials_of(Search(config, tmp_path / "search", device=CPU), 2)
    assert [it.number for it in Search(config, tmp_path / "search", device=CPU).results] == [0, 1]
    assert first[0].score == second[0].score


def test_a_trial_that_another_process_trains_is_left_to_it(tmp_path, config):
    here, there = (Search(config, tmp_path / "search", device=CPU) for _ in range(2))
    trial, run = here._next_trial()
    with run.lock():
        assert there._next_trial()[0].number == trial.number + 1
    assert there._next_trial()[0].number == trial.number


@pytest.mark.parametrize("is_time_up", [True, False])
def test_a_trial_is_pruned_without_time_or_a_chance(tmp_path, config, monkeypatch, is_time_up):
    """But the first, which is trained to its end."""
    search, left = (
        Search(config, tmp_path / "search", device=CPU),
        iter([True, False] if is_time_up else [True] * 20),
    )
    monkeypatch.setattr(optuna.trial.Trial, "should_prune", lambda _: not is_time_up)
    trials = search.trials(lambda: next(left, False))
    assert (next(trials).state, next(trials).state) == ("complete", "pruned")
    if is_time_up:
        assert next(trials, None) is None
    assert search.best.number == 0
    assert search.results[1].score is None


def test_a_trial_that_diverges_fails_and_the_search_goes_on(tmp_path, config):
    wild = config.model_copy(update={"tune": {"train.learning_rate": (1e-3, 1e37)}})
    search = Search(wild, tmp_path / "search", device=CPU)
    states = {(it.values["train.learning_rate"], it.state) for it in trials_of(search, 4)}
    assert states == {(1e-3, "complete"), (1e37, "fail")}


def test_a_folder_with_another_search_is_refused(tmp_path, config):
    Search(config, tmp_path / "search", device=CPU)
    with pytest.raises(ConfigError, match="another config"):
        Search(config.model_copy(update={"seed": 1}), tmp_path / "search", device=CPU)


def test_the_space_holds_the_configs_own_values():
    config = Config(name="run", data=DataConfig(train="train.csv"))
    assert search_space(config) == DEFAULT_SPACE
    space = search_space(
        config.model_copy(update={"train": TrainConfig(learning_rate=0.02, batch_size=8)})
    )
    assert space["train.learning_rate"].high == 0.02
    assert space["train.batch_size"] == (8, 32, 64, 128)


@pytest.mark.parametrize(
    ("space", "message"),
    [
        ({"train.lerning_rate": (1e-3,)}, r"tune\.train\.lerning_rate: no value"),
        ({"data.train": ("a.csv",)}, r"tune\.data\.train: no value"),
        ({"train.batch_size": (0,)}, r"tune\.train\.batch_size: train\.batch_size"),
        ({"model.norm": SearchRange(low=0, high=1)}, r"tune\.model\.norm: a range is for numbers"),
    ],
)
def test_a_space_that_cannot_be_searched_is_refused(space, message):
    config = Config(name="run", data=DataConfig(train="train.csv"), tune=space)
    with pytest.raises(ConfigError, match=message):
        search_space(config)
