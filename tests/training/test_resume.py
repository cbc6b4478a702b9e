"""A run that was stopped, or that vanished, goes on from its last checkpoint and ends the same."""

from __future__ import annotations

import signal
import threading

import pytest
from support.events import EncoderStarted, Stepped, Validated, recorded, train_until
from support.programs import TIME_LIMIT
from support.small_runs import (
    CPU,
    DENOISED,
    FEW_LABELS,
    LABELLED,
    PRETRAINED,
    WITH_LINEAR,
    make_config,
    result,
    run_all,
    stop_after,
)

from encoder_cls.encoder.training import EncoderTraining
from encoder_cls.errors import ConfigError, StoppedError
from encoder_cls.run import run_report
from encoder_cls.run.checkpoint import load_newest
from encoder_cls.run.run_folder import RunDir
from encoder_cls.system import stop as interruptible
from encoder_cls.training import linear_fit
from encoder_cls.training import progress as run_progress
from encoder_cls.training import train as train_module
from encoder_cls.training.prepare import prepare


@pytest.fixture
def bare_trainings(blank_plots, monkeypatch):
    """Here runs end as they do for a user, with small weights."""
    monkeypatch.setattr(run_progress, "SECONDS_BETWEEN_CHECKPOINTS", 0)


@pytest.fixture(scope="module")
def straight(tmp_path_factory):
    """The result of an uninterrupted run, which is made once for each config."""
    known = {}

    def run(**values):
        if repr(values) not in known:
            folder = tmp_path_factory.mktemp("straight")
            run_all(make_config(folder, **values), folder / "run")
            known[repr(values)] = result(folder / "run")
        return known[repr(values)]

    return run


@pytest.mark.parametrize(
    ("values", "stops", "stopped_in"),
    [
        # Of the last checkpoint: whether it is of pretraining, its step, and the step of its last validation.
        pytest.param(LABELLED, [3, 1, 1, 1, 1], (False, 5, 4), id="many times"),
        pytest.param(WITH_LINEAR, [2], (False, 1, 0), id="after a step beside a linear model"),
        pytest.param(
            WITH_LINEAR, [14], (False, 9, 8), id="in the last validation beside a linear model"
        ),
        pytest.param(FEW_LABELS, [15], (False, 9, 9), id="in the report on both with few labels"),
        pytest.param(PRETRAINED, [3], (True, 2, 0), id="in a validation of pretraining"),
        pytest.param(DENOISED, [3, 3], (True, 3, 2), id="in denoising"),
        pytest.param(PRETRAINED, [23], (False, 15, 14), id="in the last validation"),
        pytest.param(PRETRAINED, [24], (False, 15, 15), id="in the report"),
        pytest.param(PRETRAINED, [6, 7, 3, 4], (False, 11, 10), id="in both trainings"),
    ],
)
def test_a_resumed_run_equals_an_uninterrupted_one(tmp_path, straight, values, stops, stopped_in):
    """Stopped at any moment of any stage and resumed: the same weights, moments and metrics."""
    values = values | {"accumulation_steps": 2, "validate_every": 2}
    config = make_config(tmp_path, **values)
    for steps in stops:
        with pytest.raises(StoppedError) as stopped:
            run_all(config, tmp_path / "broken", resume=True, stop_signal=stop_after(steps))
        assert stopped.value.exit_code == 143
    state = load_newest(tmp_path / "broken" / "checkpoints")[0].state
    found = (state.is_pretraining, state.step, state.training.validated_step)
    assert found == stopped_in
    run_all(config, tmp_path / "broken", resume=True)
    assert result(tmp_path / "broken") == straight(**values)


@pytest.mark.parametrize(
    ("values", "last"),
    [
        pytest.param(LABELLED, ("model", Stepped, 1), id="before any checkpoint"),
        pytest.param(LABELLED, ("model", Validated, 6), id="after a validation"),
        pytest.param(
            WITH_LINEAR, ("model", EncoderStarted, 0), id="after the linear model was fitted"
        ),
        pytest.param(WITH_LINEAR, ("model", Stepped, 11), id="after a step beside a linear model"),
        pytest.param(WITH_LINEAR, ("model", Validated, 18), id="before the report on both"),
        pytest.param(PRETRAINED, ("pretraining", Stepped, 5), id="in pretraining"),
        pytest.param(PRETRAINED, ("model", EncoderStarted, 12), id="after pretraining"),
    ],
)
def test_a_run_that_vanished_resumes_from_its_last_checkpoint(tmp_path, straight, values, last):
    """Ended without warning between checkpoints, a run is taken up at the last one, and ends the same."""
    values = values | {"checkpoint_every": 2}
    config = make_config(tmp_path, **values)
    names = []

    def is_last(event) -> bool:
        if isinstance(event, EncoderStarted):
            names.append(event.name)
        return bool(names) and (names[-1], type(event), getattr(event, "step", None)) == last

    train_until(is_last, prepare(config), RunDir(tmp_path / "broken"), device=CPU)
    run_all(config, tmp_path / "broken", resume=True)
    assert result(tmp_path / "broken") == straight(**values)


@pytest.mark.parametrize(("step", "checkpoints"), [(6, []), (24, [12])])
def test_validations_soon_after_a_checkpoint_are_done_again(
    tmp_path, straight, monkeypatch, step, checkpoints
):
    """A run that vanished there ends the same, though the model on disk was of a later step than any checkpoint."""
    monkeypatch.setattr(run_progress, "SECONDS_BETWEEN_CHECKPOINTS", 600)
    config = make_config(tmp_path, **PRETRAINED)

    def is_that_validation(event) -> bool:
        return isinstance(event, Validated) and event.step == step

    train_until(is_that_validation, prepare(config), RunDir(tmp_path / "broken"), device=CPU)
    found = (tmp_path / "broken" / "checkpoints").glob("step-*")
    assert [int(path.name.removeprefix("step-")) for path in found] == checkpoints
    run_all(config, tmp_path / "broken", resume=True)
    assert result(tmp_path / "broken") == straight(**PRETRAINED)


def test_a_last_validation_that_a_signal_cut_short_has_the_linear_classifier(
    tmp_path, straight, monkeypatch
):
    """Every step is done, and still what both say together has to be known; for the report alone it is not fitted."""
    values, fitted = FEW_LABELS | {"validate_every": 1000}, []
    config = make_config(tmp_path, **values)
    real = linear_fit.fit_linear_from_few_labels
    monkeypatch.setattr(
        linear_fit,
        "fit_linear_from_few_labels",
        lambda *args, **options: fitted.append(1) or real(*args, **options),
    )
    for predictions, fits in ((19, 1), (1, 2), (2, 3)):
        with pytest.raises(StoppedError, match="step 18"):
            run_all(config, tmp_path / "stopped", resume=True, stop_signal=stop_after(predictions))
        assert len(fitted) == fits
    run_all(config, tmp_path / "stopped", resume=True)
    assert len(fitted) == 3
    assert result(tmp_path / "stopped") == straight(**values)


@pytest.mark.parametrize(
    ("module", "work", "steps", "stopped_in"),
    [
        (linear_fit, "fit_linear_from_few_labels", None, 0),
        (linear_fit, "fit_linear_from_few_labels", 12, 10),
        (run_report, "baseline_scores", None, 18),
    ],
    ids=["linear model", "linear model again", "TF-IDF baseline"],
)
def test_a_signal_is_heard_while_something_long_is_waited_for(
    tmp_path, straight, monkeypatch, module, work, steps, stopped_in
):
    """Fitting a linear model takes as long as it takes: it is left behind, and the run resumes exactly."""
    config = make_config(tmp_path, **FEW_LABELS)
    if steps:
        with pytest.raises(StoppedError):
            run_all(config, tmp_path / "stopped", stop_signal=stop_after(steps))
    release, waited = threading.Event(), []
    asked = [None]
    with monkeypatch.context() as patch:
        patch.setattr(interruptible, "SECONDS_BETWEEN_LOOKS", 0.01)
        patch.setattr(interruptible, "SECONDS_TO_END", 0.01)

        def never(*_arguments, **_options):
            asked[0] = signal.SIGTERM
            release.wait(TIME_LIMIT)
            waited.append(release.is_set())

        patch.setattr(module, work, never)
        with pytest.raises(StoppedError):
            run_all(config, tmp_path / "stopped", resume=True, stop_signal=lambda: asked[0])
        assert not waited
        release.set()
    state = load_newest(tmp_path / "stopped" / "checkpoints")[0].state
    assert state.step == stopped_in
    run_all(config, tmp_path / "stopped", resume=True)
    assert result(tmp_path / "stopped") == straight(**FEW_LABELS)


@pytest.mark.parametrize("values", [PRETRAINED, DENOISED], ids=["masked words", "denoising"])
def test_a_signal_between_both_trainings_loses_nothing(tmp_path, straight, monkeypatch, values):
    """The second one begins with the best weights of the first, not with its last ones."""
    config = make_config(tmp_path, **values)

    def stopped(*_arguments, **_options):
        raise StoppedError("stopped", signal_number=signal.SIGTERM)

    with monkeypatch.context() as patch:
        patch.setattr(train_module, "training_on_labels", stopped)
        with pytest.raises(StoppedError, match="stopped at step 12"):
            run_all(config, tmp_path / "stopped")
    run_all(config, tmp_path / "stopped", resume=True)
    assert result(tmp_path / "stopped") == straight(**values)


def test_ctrl_c_ends_with_130_and_leaves_the_best_model_so_far(tmp_path, cli, monkeypatch):
    """Which answers; the message names how to go on, as is possible where the data has moved since."""
    (tmp_path / "c.yaml").write_text(make_config(tmp_path, **WITH_LINEAR).to_yaml())
    real = EncoderTraining.step

    def pressed(training, step, rate):
        if step == 8:
            signal.raise_signal(signal.SIGINT)
        return real(training, step, rate)

    monkeypatch.setattr(EncoderTraining, "step", pressed)
    stopped = cli("train", "c.yaml", "--run-dir", "run")
    assert stopped.code == 130
    assert "stopped at step 9; a checkpoint is written" in stopped.err
    assert "--resume" in stopped.err
    assert cli("predict", "--model", "run", "w1 red end").out.startswith("red ")
    monkeypatch.setattr(EncoderTraining, "step", real)
    (tmp_path / "train.csv").rename("moved.csv")
    assert cli("train", "--run-dir", "run", "--resume").code == 3
    assert cli("train", "--run-dir", "run", "--resume", "--set", "data.train=moved.csv").code == 0
    assert RunDir(tmp_path / "run").is_finished()


@pytest.mark.parametrize(
    ("values", "stops", "lost"),
    [
        pytest.param(LABELLED, 12, "model", id="of labels"),
        pytest.param(PRETRAINED, 13, "pretrained", id="of pretraining"),
    ],
)
def test_a_run_whose_best_model_is_gone_says_so_before_it_trains_on(tmp_path, values, stops, lost):
    config, run = make_config(tmp_path, **values), RunDir(tmp_path / "run")
    with pytest.raises(StoppedError):
        run_all(config, run.path, stop_signal=stop_after(stops))
    (run.path / lost / "model.safetensors").rename(tmp_path / "saved")

    with pytest.raises(ConfigError, match=rf"{lost}: .*best model so far, of step \d+: bring"):
        recorded(
            prepare(config),
            run,
            on_event=lambda event: pytest.fail("a step") if isinstance(event, Stepped) else None,
            device=CPU,
            resume=True,
        )

    (tmp_path / "saved").rename(run.path / lost / "model.safetensors")
    run_all(config, run.path, resume=True)
    assert run.is_finished()
