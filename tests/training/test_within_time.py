"""A run with a time limit: what it leaves out, also after it is resumed."""

from __future__ import annotations

import math
import re
import time
from dataclasses import replace
from itertools import count
from types import SimpleNamespace

import numpy as np
import pytest
from support.events import (
    EncoderStarted,
    Event,
    Stepped,
    StepsDecided,
    Validated,
    Warned,
    train_until,
)
from support.reports import said
from support.small_runs import CPU, WITH_LINEAR, make_config, run_all, stop_after

from encoder_cls.classifier.model_folder import load_classifier
from encoder_cls.config.schema import Config, TrainConfig
from encoder_cls.data.dataset import Split
from encoder_cls.encoder_training import steps_in_time
from encoder_cls.errors import ConfigError, StoppedError
from encoder_cls.evaluation import baseline
from encoder_cls.evaluation.baseline import baseline_scores
from encoder_cls.evaluation.findings import Kind
from encoder_cls.evaluation.split_evaluation import evaluate_split
from encoder_cls.linear.ngrams import TEMPLATE_IDS
from encoder_cls.linear_training import cost, fit_data, linear_fit, stream
from encoder_cls.linear_training.cost import (
    FEW_LABELS_EFFORTS,
    IN_PASSES,
    ONE_C_VALUE,
    PLAIN_EFFORTS,
    PLANNED,
    WORDS_ALONE,
    LinearWork,
    StreamWork,
    TooLittleTimeError,
    affordable_effort,
)
from encoder_cls.linear_training.fit_data import FitData
from encoder_cls.linear_training.out_of_fold import LABELS_ONLY
from encoder_cls.run import loaded_run
from encoder_cls.run.checkpoint_files import load_newest
from encoder_cls.run.run_folder import RunDir
from encoder_cls.run.run_state import RunState
from encoder_cls.system import deadlines
from encoder_cls.training import encoder_stage as training_encoder
from encoder_cls.training import linear_stage
from encoder_cls.training.linear_stage import fit_linear_classifier
from encoder_cls.training.prepare import prepare
from encoder_cls.training.time_budget import TimeBudget


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


@pytest.fixture
def no_time(monkeypatch):
    """Let the time for the linear model be over when its fit begins, and chunks have 10 texts."""
    monkeypatch.setattr(linear_stage, "_end_of_fit", lambda _: time.monotonic())
    monkeypatch.setattr(stream, "TEXTS_PER_CHUNK", 10)


@pytest.mark.usefixtures("no_time")
def test_a_resumed_run_learns_from_the_same_texts(tmp_path, monkeypatch):
    """A resumed run has the model of an uninterrupted run, no matter how much time it has."""
    config = make_config(tmp_path, **WITH_LINEAR, time_budget="10h", checkpoint_every=1, epochs=1)
    run_all(config, tmp_path / "undisturbed")

    folder = tmp_path / "stopped"
    with pytest.raises(StoppedError):
        run_all(config, folder, stop_signal=stop_after(4))
    work = newest_state(folder).linear_work
    assert work.stream == StreamWork(chunks_counted=1, times_features=2, chunks_learned=1)
    assert work.num_unread > 0

    monkeypatch.setattr(linear_stage, "_end_of_fit", lambda _: None)
    run_all(config, folder, resume=True)

    assert linear_biases(folder) == linear_biases(tmp_path / "undisturbed")
    assert not RunDir(folder).held_out_predictions.exists()


@pytest.mark.usefixtures("no_time")
def test_texts_that_there_was_no_time_for_are_named(tmp_path):
    """The run says what all texts would take, and the report advises more time."""
    config = make_config(tmp_path, **WITH_LINEAR, time_budget="10h", epochs=1)

    events = run_all(config, tmp_path / "run")

    warning = next(warning for warning in warnings_of(events) if "has learned from" in warning)
    assert re.search(r"from 10 of \d+ texts; all of them would take it \d+ s", warning)
    report = events[-1].report
    assert report.run_facts.num_unread > 0
    assert "a longer train.time_budget would help most" in said(report, Kind.ADVICE)
    # The baseline learns from no more texts: those, and two that the fit has held out.
    assert report.baseline_scores["texts"] == 12


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
    monkeypatch.setattr(steps_in_time, "MIN_STEPS_IN_TIME", 1)
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


def test_the_baseline_gets_the_time_that_is_left_after_scoring(tmp_path, monkeypatch):
    """Of 6,000 seconds, a tenth is reserved for writing.

    The scoring takes 1,000, and so does the test of class weights.
    """
    seconds_passed = 0.0
    limits = []

    def slow_evaluation(*arguments, **options):
        nonlocal seconds_passed
        seconds_passed += 1000
        return evaluate_split(*arguments, **options)

    def slow_note(*_):
        nonlocal seconds_passed
        seconds_passed += 1000
        return ""

    def recorded_limit(*arguments, seconds, **options):
        limits.append(seconds)
        return baseline_scores(*arguments, seconds=seconds, **options)

    clock = SimpleNamespace(monotonic=lambda: time.monotonic() + seconds_passed)
    monkeypatch.setattr(deadlines, "time", clock)
    monkeypatch.setattr(loaded_run, "evaluate_split", slow_evaluation)
    monkeypatch.setattr(loaded_run, "class_weights_note", slow_note)
    monkeypatch.setattr(loaded_run, "baseline_scores", recorded_limit)
    run_all(make_config(tmp_path, **WITH_LINEAR, time_budget="100m", epochs=1), tmp_path / "run")

    (limit,) = limits
    assert 3000 < limit < 3400


@pytest.mark.parametrize(
    ("time_budget", "num_tries"),
    [
        ("15s", 0),
        ("10h", 1),
    ],
)
def test_class_weights_are_not_tried_where_time_is_short(
    tmp_path, monkeypatch, time_budget, num_tries
):
    tries = []

    def tried(*_):
        tries.append(1)
        return ""

    monkeypatch.setattr(loaded_run, "class_weights_note", tried)
    config = make_config(tmp_path, **WITH_LINEAR, time_budget=time_budget, epochs=1)
    run_all(config, tmp_path / "run")

    assert len(tries) == num_tries


@pytest.mark.parametrize(
    ("limit", "seconds"),
    [
        ("6s", 4.2),
        ("30s", 25.0),
        ("10m", 540.0),
    ],
)
def test_a_share_of_the_time_is_reserved(tmp_path, limit, seconds):
    """It is a tenth of the time, but 5 seconds at least, and 30% at most."""
    budget = TimeBudget(make_config(tmp_path, time_budget=limit))
    assert budget.seconds_for(pretraining=False) == pytest.approx(seconds, abs=1.0)


def test_time_for_scoring_is_kept_but_no_more_than_a_fifth(tmp_path):
    budget = TimeBudget(make_config(tmp_path, time_budget="100s"))

    budget.keep_for_scoring(5.0)
    assert budget.seconds_for(pretraining=False) == pytest.approx(85.0, abs=1.0)

    budget.keep_for_scoring(1000.0)
    assert budget.seconds_for(pretraining=False) == pytest.approx(70.0, abs=1.0)


@pytest.mark.parametrize(
    ("seconds", "num_scored"),
    [
        # A text takes 0.03 seconds in all: 0.01 for its logits, and twice as much for the rest.
        (1.5, 50),
        # There are five texts for each of three classes in any case.
        (0.0, 15),
        (3600.0, 60),
        (None, 60),
    ],
)
def test_a_report_scores_as_many_texts_as_there_is_time_for(monkeypatch, seconds, num_scored):
    now = 0.0

    def slow_logits(texts, **_):
        nonlocal now
        now += 0.01 * len(texts)

    monkeypatch.setattr(loaded_run, "TIMED_TEXTS", 10)
    monkeypatch.setattr(loaded_run, "time", SimpleNamespace(monotonic=lambda: now))
    classifier = SimpleNamespace(label_names="abc", tokenize=list, part_logits=slow_logits)
    texts = [str(row) for row in range(60)]
    split = Split(texts=texts, labels=np.arange(60), where=texts)

    scored = loaded_run.scored_in_time(classifier, split, seconds=seconds, batch_tokens=None)

    assert len(set(scored.texts)) == pytest.approx(num_scored, abs=1)
    assert scored.labels.tolist() == [int(text) for text in scored.texts]


# How much work the fit of the linear model does


@pytest.mark.parametrize(("seconds", "num_preliminary"), [(10, 0), (36_000, 1)])
def test_a_fit_that_ends_soon_gives_no_preliminary_model(
    tmp_path, monkeypatch, seconds, num_preliminary
):
    monkeypatch.setattr(linear_stage, "_end_of_fit", lambda _: time.monotonic() + seconds)
    prepared = prepare(make_config(tmp_path, **WITH_LINEAR, time_budget="10h"))
    plan = replace(prepared.plan, linear_fit="stream", refits_on_validation=False)
    preliminary = []

    fit_linear_classifier(replace(prepared, plan=plan), on_preliminary=preliminary.append)

    assert len(preliminary) == num_preliminary


@pytest.mark.parametrize(
    ("seconds", "expected"),
    [
        (100.0, PLANNED),
        (20.0, ONE_C_VALUE),
    ],
)
def test_a_fit_does_as_much_as_there_is_time_for(seconds, expected):
    seconds_of_efforts = {PLANNED: 60.0, ONE_C_VALUE: 10.0}

    effort = affordable_effort(PLAIN_EFFORTS, seconds_of_efforts.get, seconds=seconds)

    assert effort is expected


def test_a_least_effort_that_takes_too_long_is_refused_unless_it_takes_a_moment():
    message = r"^train\.time_budget: 3 s are left .* at least about 130 s on"
    with pytest.raises(ConfigError, match=message):
        affordable_effort([ONE_C_VALUE], lambda _: 100.0, seconds=3.0)

    assert affordable_effort([ONE_C_VALUE], lambda _: 0.5, seconds=-1.0) is ONE_C_VALUE


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

    found = fit_linear_classifier(setup, work=LinearWork(effort.key)).fit.few_labels

    assert found.effort is effort
    assert sorted(found.rows) == list(range(num_labelled))
    assert len(found.logits) == num_labelled
    assert found.kind == LABELS_ONLY or effort.self_trains
    assert (found.accuracy_with_twice is not None) == effort.extrapolates


LARGE_CORPUS = cost.CorpusSizes(labelled=2000, unlabelled=8000, classes=77)


def test_less_effort_is_less_work():
    """The estimated work falls from the first effort to the last."""
    work = []
    for effort in FEW_LABELS_EFFORTS:
        num_fits = cost.count_fits(
            effort, LARGE_CORPUS, TrainConfig(), num_held_out=200, with_teacher=True
        )
        work.append(num_fits)

    assert work == sorted(work, reverse=True)
    assert work[0] > 10 * work[-1]


def test_a_teacher_is_a_further_fit_only_if_there_are_validation_texts():
    """Otherwise the final model has not learned from any of them, and is the teacher, too."""

    def num_fits(num_held_out: int, *, with_teacher: bool) -> float:
        return cost.count_fits(
            PLANNED,
            LARGE_CORPUS,
            TrainConfig(),
            num_held_out=num_held_out,
            with_teacher=with_teacher,
        )

    assert num_fits(200, with_teacher=True) > num_fits(200, with_teacher=False)
    assert num_fits(0, with_teacher=True) == num_fits(0, with_teacher=False)


@pytest.fixture
def less_effort(monkeypatch):
    """Let there be time for one value of C only."""
    monkeypatch.setattr(linear_fit, "PLANNED_COST", 0)
    monkeypatch.setattr(cost, "affordable_effort", lambda *_, **__: ONE_C_VALUE)


@pytest.mark.slow
@pytest.mark.usefixtures("less_effort")
def test_a_resumed_run_keeps_the_effort(tmp_path, monkeypatch):
    """The effort does not depend on the time of the resumed run, and is warned of only once."""
    config = make_config(tmp_path, **WITH_LINEAR, time_budget="10h", checkpoint_every=1, epochs=1)
    events = run_all(config, tmp_path / "undisturbed")
    assert any(ONE_C_VALUE.name in warning for warning in warnings_of(events))

    folder = tmp_path / "stopped"
    with pytest.raises(StoppedError):
        run_all(config, folder, stop_signal=stop_after(4))
    assert newest_state(folder).linear_work == LinearWork(ONE_C_VALUE.key)

    monkeypatch.setattr(cost, "affordable_effort", lambda *_, **__: PLANNED)
    events = run_all(config, folder, resume=True)
    assert not any(ONE_C_VALUE.name in warning for warning in warnings_of(events))

    assert linear_biases(folder) == linear_biases(tmp_path / "undisturbed")
    assert RunDir(folder).held_out_predictions.exists()


def too_little_time(*_: object, **__: object) -> None:
    raise TooLittleTimeError("no time")


def test_without_time_for_the_planned_fit_words_in_passes_are_kept(tmp_path, monkeypatch):
    monkeypatch.setattr(cost, "affordable_effort", too_little_time)
    monkeypatch.setattr(linear_fit, "ALL_FEATURES_COST", math.inf)

    events = run_all(
        make_config(tmp_path, **WITH_LINEAR, time_budget="10h", epochs=1), tmp_path / "run"
    )

    assert any(WORDS_ALONE.name in warning for warning in warnings_of(events))
    assert load_classifier(tmp_path / "run").linear.feature_ids.max() < TEMPLATE_IDS


@pytest.mark.slow
def test_held_out_predictions_of_a_killed_process_that_had_more_time_are_removed(
    tmp_path, monkeypatch
):
    config = make_config(tmp_path, **WITH_LINEAR, time_budget="10h", epochs=1)
    run = RunDir(tmp_path / "run")
    monkeypatch.setattr(linear_fit, "PLANNED_COST", 0)
    train_until(lambda event: isinstance(event, EncoderStarted), prepare(config), run, device=CPU)
    assert run.held_out_predictions.exists()

    monkeypatch.setattr(cost, "affordable_effort", too_little_time)
    run_all(config, run.path, resume=True)

    assert not run.held_out_predictions.exists()


@pytest.mark.parametrize("are_better", [True, False])
def test_all_features_in_passes_are_kept_only_if_they_are_better_than_words(
    tmp_path, monkeypatch, are_better
):
    monkeypatch.setattr(cost, "affordable_effort", too_little_time)
    monkeypatch.setattr(linear_fit, "ALL_FEATURES_COST", 0)
    monkeypatch.setattr(FitData, "is_better", lambda *_: are_better)

    prepared = prepare(make_config(tmp_path, **WITH_LINEAR, time_budget="10h"))
    fitted = fit_linear_classifier(prepared)

    assert fitted.fit.effort is (IN_PASSES if are_better else WORDS_ALONE)
    has_all_features = fitted.classifier.linear.feature_ids.max() > TEMPLATE_IDS
    assert has_all_features == are_better


def test_a_planned_fit_that_is_surely_worse_does_not_replace_the_one_before(tmp_path, monkeypatch):
    fit_to_many_labels = linear_fit.fit_to_many_labels

    def fit_badly(*arguments, **options):
        fit = fit_to_many_labels(*arguments, **options)
        assert fit.held_out
        wrong = fit.held_out._replace(logits=-10 * fit.held_out.logits)
        return fit._replace(held_out=wrong)

    monkeypatch.setattr(linear_fit, "PLANNED_COST", 0)
    monkeypatch.setattr(fit_data, "MIN_COMPARED", 1)
    prepared = prepare(make_config(tmp_path, **WITH_LINEAR, time_budget="10h"))
    assert fit_linear_classifier(prepared).fit.effort is PLANNED

    monkeypatch.setattr(linear_fit, "fit_to_many_labels", fit_badly)
    assert fit_linear_classifier(prepared).fit.effort is WORDS_ALONE
