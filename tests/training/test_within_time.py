"""A run with a time limit: what it leaves out, also after it is resumed."""

from __future__ import annotations

import math
import time
from itertools import count

import numpy as np
import pytest
from support.events import Event, Stepped, StepsDecided, Validated, Warned
from support.small_runs import WITH_LINEAR, make_config, run_all, stop_after

from encoder_cls.classifier.model_folder import load_classifier
from encoder_cls.config.schema import Config, TrainConfig
from encoder_cls.encoder import step_limit
from encoder_cls.errors import ConfigError, StoppedError
from encoder_cls.evaluation import baseline
from encoder_cls.evaluation.baseline import baseline_scores
from encoder_cls.linear import effort as effort_module
from encoder_cls.linear import few_labels
from encoder_cls.linear.effort import (
    FEW_LABELS_EFFORTS,
    ONE_C_VALUE,
    PLAIN_EFFORTS,
    PLANNED,
    WORDS_ALONE,
    affordable_effort,
)
from encoder_cls.linear.few_labels import LABELS_ONLY
from encoder_cls.run.checkpoint_files import RunState, load_newest
from encoder_cls.run.run_folder import RunDir
from encoder_cls.training import encoder_stage as training_encoder
from encoder_cls.training import linear_fit, linear_stage, linear_time, time_budget
from encoder_cls.training import prepare as preparing
from encoder_cls.training.linear_fit import fit_linear_classifier
from encoder_cls.training.linear_time import affordable_texts, streamed
from encoder_cls.training.prepare import prepare


@pytest.fixture(autouse=True)
def small_sample(monkeypatch):
    """Let runs have more texts than the sample by which the time of a fit is estimated."""
    monkeypatch.setattr(linear_time, "SAMPLE", 12)


@pytest.fixture
def large_sample(monkeypatch):
    """Let runs have fewer texts than the sample by which the time of a fit is estimated."""
    monkeypatch.setattr(linear_time, "SAMPLE", 5000)


def fail(*_: object, **__: object) -> None:
    """Fail the test, in place of a function that must not be called."""
    pytest.fail("called")


def warnings_of(events: list[Event]) -> list[str]:
    """Return the warnings of a run."""
    return [event.message for event in events if isinstance(event, Warned)]


def newest_state(folder) -> RunState:
    """Return the state in the newest checkpoint of a run."""
    checkpoint, _ = load_newest(folder / "checkpoints")
    return checkpoint.state


def linear_biases(folder) -> list[float]:
    """Return the biases of a run's linear model, which differ if its texts or its fit differ."""
    return load_classifier(folder).linear.biases.tolist()


# How much text the linear model learns from


@pytest.mark.parametrize(
    ("budget", "expected"),
    [
        (None, None),
        ("10h", None),
        ("0.1s", 12),
    ],
)
def test_the_time_of_a_sample_decides_from_how_many_texts_the_linear_model_learns(
    tmp_path, budget, expected
):
    """It learns as planned if there is time, and otherwise from at least a sample of the texts."""
    prepared = prepare(make_config(tmp_path, **WITH_LINEAR, time_budget=budget))

    assert affordable_texts(prepared) == expected


def test_a_stream_of_few_texts_has_each_class(tmp_path):
    """Texts, tokens and labels have the same rows, and there is no refit."""
    prepared = prepare(make_config(tmp_path, **WITH_LINEAR))

    few = streamed(prepared, 1)

    assert np.unique(few.dataset.train.labels).tolist() == [0, 1, 2]
    assert len(few.texts) == len(few.dataset.train) <= 4
    assert few.plan.linear_fit == "stream"
    assert not few.plan.refits_on_validation
    expected = prepared.new_classifier(None).tokenize(few.dataset.train.texts)
    assert few.texts.lengths.tolist() == expected.lengths.tolist()


def test_a_resumed_run_keeps_the_number_of_texts(tmp_path, monkeypatch):
    """A resumed run has the model of an uninterrupted run, no matter how much time it has."""
    config = make_config(tmp_path, **WITH_LINEAR, time_budget="10h", checkpoint_every=1)
    monkeypatch.setattr(linear_stage, "affordable_texts", lambda _: 20)
    run_all(config, tmp_path / "undisturbed")

    folder = tmp_path / "stopped"
    with pytest.raises(StoppedError):
        run_all(config, folder, stop_signal=stop_after(12))
    assert newest_state(folder).linear_texts == 20

    monkeypatch.setattr(linear_stage, "affordable_texts", lambda _: None)
    run_all(config, folder, resume=True)

    assert linear_biases(folder) == linear_biases(tmp_path / "undisturbed")
    assert not RunDir(folder).held_out_predictions.exists()


# The encoder


@pytest.fixture
def minute_steps(monkeypatch):
    """Let each step of the encoder take a minute, and the report no time."""
    minutes = count()
    monkeypatch.setattr(training_encoder, "PASSES_PER_STEP", math.inf)
    monkeypatch.setattr(time, "perf_counter", lambda: next(minutes) * 60.0)


@pytest.mark.usefixtures("minute_steps")
def test_a_training_of_a_few_steps_is_skipped(tmp_path):
    """The training ends after the steps that show the lack of time, without a validation."""
    config = make_config(tmp_path, **WITH_LINEAR, time_budget="10m")

    events = run_all(config, tmp_path / "run")

    decided = [(event.name, event.steps) for event in events if isinstance(event, StepsDecided)]
    assert decided == [("model", 0)]
    assert len([event for event in events if isinstance(event, Stepped)]) == 1
    assert [event.step for event in events if isinstance(event, Validated)] == [0]
    assert load_classifier(tmp_path / "run").parts == ("linear",)


@pytest.mark.usefixtures("minute_steps")
def test_a_training_of_enough_steps_is_not_skipped(tmp_path, monkeypatch):
    monkeypatch.setattr(step_limit, "MIN_STEPS_IN_TIME", 1)
    config = make_config(tmp_path, **WITH_LINEAR, time_budget="10m")

    events = run_all(config, tmp_path / "run")

    validated_steps = [event.step for event in events if isinstance(event, Validated)]
    assert any(step > 0 for step in validated_steps)


# The baseline of the report


def test_the_baseline_takes_no_more_than_its_time(tmp_path, monkeypatch):
    dataset = prepare(make_config(tmp_path, **WITH_LINEAR, texts=300)).dataset
    split = dataset.validation
    whole = baseline_scores(dataset, split)
    assert baseline_scores(dataset, split, seconds=1000.0) == whole
    assert baseline_scores(dataset, split, seconds=0.0) is None

    # Let the clock advance a second with each call, so that the sample takes a second.
    seconds = count()
    monkeypatch.setattr(baseline, "TIMED_CHARACTERS", 500)
    monkeypatch.setattr(baseline.time, "monotonic", lambda: float(next(seconds)))

    assert baseline_scores(dataset, split, seconds=4.0) is None
    part = baseline_scores(dataset, split, seconds=8.0)
    assert 0 < part["texts"] < len(dataset.train)
    assert part["of_texts"] == len(dataset.train)
    enough_time = baseline_scores(dataset, split, seconds=1000.0)
    assert enough_time["texts"] == len(dataset.train)


# Limits that are refused


def test_a_limit_that_can_be_kept_is_not_refused(tmp_path, monkeypatch):
    monkeypatch.setattr(time_budget, "LARGE_SOURCE", 1)

    prepare(make_config(tmp_path, **WITH_LINEAR, time_budget="5m"))


def test_a_limit_that_nothing_can_keep_is_refused_before_the_data_is_read(tmp_path, monkeypatch):
    """The error says the minimum time of the run."""
    config = make_config(tmp_path, **WITH_LINEAR, time_budget="5m")
    monkeypatch.setattr(time_budget, "LARGE_SOURCE", 1)
    monkeypatch.setattr(time_budget, "MIN_READING_TIMES", 1e9)
    monkeypatch.setattr(preparing, "load_all_data", fail)

    message = r"train\.time_budget: .* MB of text, which take at least about"
    with pytest.raises(ConfigError, match=message):
        prepare(config)


@pytest.mark.usefixtures("large_sample")
def test_many_classes_are_refused_before_anything_is_fitted(tmp_path, monkeypatch):
    monkeypatch.setattr(linear_fit, "seconds_to_fit", lambda *_: 100.0)
    monkeypatch.setattr(linear_fit, "fit_linear", fail)
    config = make_config(tmp_path, **WITH_LINEAR, time_budget="20s")

    with pytest.raises(ConfigError, match=r"train\.time_budget: .* left for the linear model"):
        run_all(config, tmp_path / "run")

    assert not (tmp_path / "run" / "model").exists()


# How much work the fit of the linear model does


@pytest.mark.parametrize(
    ("seconds", "expected"),
    [
        (100.0, PLANNED),
        (20.0, ONE_C_VALUE),
        (9.0, WORDS_ALONE),
    ],
)
def test_a_fit_does_as_much_as_there_is_time_for(seconds, expected):
    seconds_of_efforts = {PLANNED: 60.0, ONE_C_VALUE: 10.0, WORDS_ALONE: 5.0}

    effort = affordable_effort(PLAIN_EFFORTS, seconds_of_efforts.get, seconds=seconds)

    assert effort is expected


def test_a_least_effort_that_takes_too_long_is_refused_unless_it_takes_a_moment():
    message = r"^train\.time_budget: 3 s are left .* at least about 130 s on"
    with pytest.raises(ConfigError, match=message):
        affordable_effort([WORDS_ALONE], lambda _: 100.0, seconds=3.0)

    assert affordable_effort([WORDS_ALONE], lambda _: 0.5, seconds=-1.0) is WORDS_ALONE


def few_labels_config(folder) -> Config:
    """Return the config of a run with few labelled and many unlabelled texts."""
    lines = []
    for number in range(60):
        lines.append(f"w{number} red w{number + 1}\n")
        lines.append(f"green w{number % 7}\n")
    unlabelled = folder / "unlabelled.txt"
    unlabelled.write_text("".join(lines))
    return make_config(folder, linear=True, data={"unlabelled": str(unlabelled)})


@pytest.mark.parametrize("effort", FEW_LABELS_EFFORTS, ids=lambda effort: effort.key)
def test_less_effort_for_few_labels_predicts_all_of_them_out_of_fold(tmp_path, effort):
    """Each labelled text has an out-of-fold prediction, even if there are only two folds."""
    setup = prepare(few_labels_config(tmp_path))
    num_labelled = len(setup.dataset.train) + len(setup.dataset.known_validation)

    found = fit_linear_classifier(setup, effort=effort).few_labels

    assert found.effort is effort
    assert sorted(found.rows) == list(range(num_labelled))
    assert len(found.logits) == num_labelled
    assert found.kind == LABELS_ONLY or effort.self_trains
    assert (found.accuracy_with_twice is not None) == effort.extrapolates


class LargeCorpus:
    """The sizes of a corpus with few labels."""

    labels = np.zeros(2000)
    unlabelled = np.zeros(8000)
    class_weights = np.zeros(77)


def test_less_effort_is_less_work():
    """The estimated work falls from the first effort to the last."""
    work = []
    for effort in FEW_LABELS_EFFORTS:
        num_fits = few_labels.count_fits(
            effort, LargeCorpus, TrainConfig(), num_held_out=200, with_teacher=True
        )
        work.append(num_fits)

    assert work == sorted(work, reverse=True)
    assert work[0] > 10 * work[-1]


@pytest.mark.usefixtures("large_sample")
@pytest.mark.parametrize("effort", [ONE_C_VALUE, WORDS_ALONE], ids=lambda effort: effort.key)
def test_a_resumed_run_keeps_the_effort(tmp_path, monkeypatch, effort):
    """The effort does not depend on the time of the resumed run, and is warned of only once."""
    config = make_config(tmp_path, **WITH_LINEAR, time_budget="10h", checkpoint_every=1)
    monkeypatch.setattr(effort_module, "affordable_effort", lambda *_, **__: effort)
    events = run_all(config, tmp_path / "undisturbed")
    assert any(effort.name in warning for warning in warnings_of(events))

    folder = tmp_path / "stopped"
    with pytest.raises(StoppedError):
        run_all(config, folder, stop_signal=stop_after(12))
    assert newest_state(folder).linear_effort == effort.key

    monkeypatch.setattr(effort_module, "affordable_effort", lambda *_, **__: PLANNED)
    events = run_all(config, folder, resume=True)
    assert not any(effort.name in warning for warning in warnings_of(events))

    assert linear_biases(folder) == linear_biases(tmp_path / "undisturbed")

    # The final fit to words alone does not include the validation texts.
    is_refitted = RunDir(folder).held_out_predictions.exists()
    assert is_refitted == (effort is ONE_C_VALUE)
