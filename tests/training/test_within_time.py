"""A run within a time limit: what it leaves out, also after it was resumed."""

from __future__ import annotations

import math
import time

import numpy as np
import pytest
from support.events import Stepped, StepsDecided, Validated, Warned
from support.small_runs import WITH_LINEAR, make_config, run_all, stop_after

from encoder_cls.classifier.model_folder import load_classifier
from encoder_cls.config.schema import Config, TrainConfig
from encoder_cls.encoder import training as encoder_training
from encoder_cls.errors import ConfigError, StoppedError
from encoder_cls.evaluation import baseline
from encoder_cls.linear import effort as effort_module
from encoder_cls.linear import few_labels
from encoder_cls.linear.effort import (
    FEW_LABELS_EFFORTS,
    ONE_PENALTY,
    PLAIN_EFFORTS,
    PLANNED,
    WORDS_ALONE,
    affordable_effort,
)
from encoder_cls.linear.few_labels import ALONE
from encoder_cls.run.checkpoint import load_newest
from encoder_cls.run.run_folder import RunDir
from encoder_cls.training import encoder as training_encoder
from encoder_cls.training import linear, linear_fit, linear_time, time_budget
from encoder_cls.training import prepare as preparing
from encoder_cls.training.linear_fit import fit_linear_classifier
from encoder_cls.training.linear_time import affordable_texts, streamed
from encoder_cls.training.prepare import prepare


@pytest.fixture(autouse=True)
def small_sample(monkeypatch):
    monkeypatch.setattr(linear_time, "SAMPLE", 12)


def few_labels_config(folder) -> Config:
    """Few labels beside many texts without."""
    unlabelled = folder / "unlabelled.txt"
    unlabelled.write_text("".join(f"w{n} red w{n + 1}\ngreen w{n % 7}\n" for n in range(60)))
    return make_config(folder, linear=True, data={"unlabelled": str(unlabelled)})


@pytest.mark.parametrize(("budget", "expected"), [(None, None), ("10h", None), ("0.1s", 12)])
def test_the_time_of_a_sample_decides_from_how_many_texts_the_linear_classifier_learns(
    tmp_path, budget, expected
):
    """It learns as planned where there is time for that, else from the sample at the least."""
    prepared = prepare(make_config(tmp_path, **WITH_LINEAR, time_budget=budget))

    assert affordable_texts(prepared) == expected


def test_a_stream_of_few_texts_has_each_class(tmp_path):
    """Texts, tokens and labels are of the same rows; nothing is refitted."""
    prepared = prepare(make_config(tmp_path, **WITH_LINEAR))

    few = streamed(prepared, 1)

    assert np.unique(few.dataset.train.labels).tolist() == [0, 1, 2]
    assert len(few.texts) == len(few.dataset.train) <= 4
    assert few.plan.linear_fit == "stream"
    assert not few.plan.refits_on_validation
    again = prepared.new_classifier(None).tokenize(few.dataset.train.texts)
    assert few.texts.lengths.tolist() == again.lengths.tolist()


def test_a_run_that_goes_on_keeps_to_the_number_of_texts(tmp_path, monkeypatch):
    """However much time there is then; all of its model is that of an undisturbed run."""
    monkeypatch.setattr(linear, "affordable_texts", lambda _: 20)
    config = make_config(tmp_path, **WITH_LINEAR, time_budget="10h", checkpoint_every=1)
    run_all(config, tmp_path / "straight")
    with pytest.raises(StoppedError):
        run_all(config, tmp_path / "run", stop_signal=stop_after(12))
    assert load_newest(tmp_path / "run" / "checkpoints")[0].state.linear_texts == 20
    monkeypatch.setattr(linear, "affordable_texts", lambda _: None)
    run_all(config, tmp_path / "run", resume=True)
    resumed = load_classifier(tmp_path / "run").linear
    straight = load_classifier(tmp_path / "straight").linear
    assert resumed.biases.tolist() == straight.biases.tolist()
    assert not RunDir(tmp_path / "run").held_out_predictions.exists()


def test_a_stage_of_a_few_steps_is_skipped(tmp_path, monkeypatch):
    """Where the first steps show that there is time for too few, there is neither a further one nor a validation."""
    monkeypatch.setattr(training_encoder, "PASSES_PER_STEP", math.inf)
    clock = iter(range(10**9))
    monkeypatch.setattr(time, "perf_counter", lambda: next(clock) * 60.0)
    events = run_all(make_config(tmp_path, **WITH_LINEAR, time_budget="10m"), tmp_path / "run")
    decided = [(event.name, event.steps) for event in events if isinstance(event, StepsDecided)]
    assert decided == [("model", 0)]
    assert len([event for event in events if isinstance(event, Stepped)]) == 1
    assert [event.step for event in events if isinstance(event, Validated)] == [0]
    assert load_classifier(tmp_path / "run").parts == ("linear",)
    monkeypatch.setattr(encoder_training, "FEWEST_STEPS", 1)
    events = run_all(make_config(tmp_path, **WITH_LINEAR, time_budget="10m"), tmp_path / "other")
    assert any(isinstance(event, Validated) and event.step for event in events)


def test_the_baseline_takes_no_more_than_its_time(tmp_path, monkeypatch):
    dataset = prepare(make_config(tmp_path, **WITH_LINEAR, texts=300)).dataset
    whole = baseline.baseline_scores(dataset, dataset.validation)
    assert baseline.baseline_scores(dataset, dataset.validation, seconds=1000.0) == whole
    assert baseline.baseline_scores(dataset, dataset.validation, seconds=0.0) is None
    monkeypatch.setattr(baseline, "TIMED_CHARACTERS", 500)
    clock = iter(range(10**9))
    # A second for the sample.
    monkeypatch.setattr(baseline.time, "monotonic", lambda: float(next(clock)))
    sizes = [
        baseline.baseline_scores(dataset, dataset.validation, seconds=seconds)
        for seconds in (4.0, 8.0, 1000.0)
    ]
    assert sizes[0] is None
    assert 0 < sizes[1]["texts"] < sizes[1]["of_texts"] == sizes[2]["texts"] == len(dataset.train)


def test_a_limit_that_nothing_can_keep_is_refused_at_once(tmp_path, monkeypatch):
    """Before the data is read, with the time that it takes at the least; one that can be kept is not."""
    config = make_config(tmp_path, **WITH_LINEAR, time_budget="5m")
    monkeypatch.setattr(time_budget, "LARGE", 1)
    prepare(config)
    monkeypatch.setattr(preparing, "load_all_data", lambda *_, **__: 1 / 0)
    monkeypatch.setattr(time_budget, "LEAST_WORK", 1e9)
    with pytest.raises(
        ConfigError, match=r"train\.time_budget: .* MB of text, which take at least about"
    ):
        prepare(config)


@pytest.mark.parametrize(
    ("seconds", "expected"), [(100.0, PLANNED), (20.0, ONE_PENALTY), (9.0, WORDS_ALONE)]
)
def test_a_fit_does_as_much_as_there_is_time_for(seconds, expected):
    seconds_of = {PLANNED: 60.0, ONE_PENALTY: 10.0, WORDS_ALONE: 5.0}
    found = affordable_effort(PLAIN_EFFORTS, seconds_of.__getitem__, seconds=seconds)
    assert found is expected


def test_a_fit_that_takes_too_long_at_the_least_is_refused_unless_it_takes_a_moment():
    with pytest.raises(ConfigError, match=r"^train\.time_budget: 3 s are left .* about 130 s at"):
        affordable_effort([WORDS_ALONE], lambda _: 100.0, seconds=3.0)
    assert affordable_effort([WORDS_ALONE], lambda _: 0.5, seconds=-1.0) is WORDS_ALONE


def test_many_classes_are_refused_before_anything_is_fitted(tmp_path, monkeypatch):
    monkeypatch.setattr(linear_time, "SAMPLE", 5000)
    monkeypatch.setattr(linear_fit, "seconds_to_fit", lambda *_: 100.0)
    monkeypatch.setattr(linear_fit, "fit_linear", lambda *_, **__: 1 / 0)
    config = make_config(tmp_path, **WITH_LINEAR, time_budget="20s")
    with pytest.raises(ConfigError, match=r"train\.time_budget: .* left for the linear model"):
        run_all(config, tmp_path / "run")
    assert not (tmp_path / "run" / "model").exists()


@pytest.mark.parametrize("effort", FEW_LABELS_EFFORTS, ids=lambda effort: effort.key)
def test_less_effort_for_few_labels_predicts_all_of_them(tmp_path, effort):
    """However few folds there are, each labelled text has an answer from before it was learned."""
    setup = prepare(few_labels_config(tmp_path))
    fitted = fit_linear_classifier(setup, effort=effort)
    num_labelled = len(setup.dataset.train) + len(setup.dataset.selection)
    assert fitted.few_labels.effort is effort
    assert sorted(fitted.few_labels.rows) == list(range(num_labelled))
    assert len(fitted.few_labels.logits) == num_labelled
    assert (fitted.few_labels.kept == ALONE) or effort.self_trains
    assert (fitted.few_labels.accuracy_with_twice is not None) == effort.extrapolates


def test_less_effort_is_less_work():
    """By the estimate that decides between them, from the most to the least."""

    class Corpus:
        labels = np.zeros(2000)
        unlabelled = np.zeros(8000)
        class_weights = np.zeros(77)

    work = [
        few_labels.count_fits(effort, Corpus, TrainConfig(), num_held_out=200, with_teacher=True)
        for effort in FEW_LABELS_EFFORTS
    ]
    assert work == sorted(work, reverse=True)
    assert work[0] > 10 * work[-1]


@pytest.mark.parametrize("effort", [ONE_PENALTY, WORDS_ALONE], ids=lambda effort: effort.key)
def test_a_run_that_goes_on_keeps_to_the_effort(tmp_path, monkeypatch, effort):
    """However much time there is then; one warning says so."""
    monkeypatch.setattr(linear_time, "SAMPLE", 5000)
    monkeypatch.setattr(effort_module, "affordable_effort", lambda *_, **__: effort)
    config = make_config(tmp_path, **WITH_LINEAR, time_budget="10h", checkpoint_every=1)
    events = run_all(config, tmp_path / "straight")
    warned = [event.message for event in events if isinstance(event, Warned)]
    assert [message for message in warned if effort.name in message]

    with pytest.raises(StoppedError):
        run_all(config, tmp_path / "run", stop_signal=stop_after(12))
    assert load_newest(tmp_path / "run" / "checkpoints")[0].state.linear_effort == effort.key
    monkeypatch.setattr(effort_module, "affordable_effort", lambda *_, **__: PLANNED)
    events = run_all(config, tmp_path / "run", resume=True)
    warned = [event.message for event in events if isinstance(event, Warned)]
    assert not [message for message in warned if effort.name in message]

    resumed = load_classifier(tmp_path / "run").linear
    straight = load_classifier(tmp_path / "straight").linear
    assert resumed.biases.tolist() == straight.biases.tolist()
    has_kept = RunDir(tmp_path / "run").held_out_predictions.exists()
    assert has_kept == (effort is ONE_PENALTY)
