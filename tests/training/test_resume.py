"""A stopped or killed run resumes from its newest checkpoint, and ends with the same result."""

from __future__ import annotations

import signal
import threading
from pathlib import Path

import pytest
from support.events import EncoderStarted, Event, Stepped, Validated, recorded, train_until
from support.programs import TIME_LIMIT
from support.signals import signal_in_step
from support.small_runs import (
    CPU,
    DENOISED,
    FEW_LABELS,
    LABELLED,
    PRETRAINED,
    WITH_LINEAR,
    make_config,
    metric_rows,
    model_hash,
    result,
    run_all,
    stop_after,
)

from encoder_cls.errors import ConfigError, StoppedError
from encoder_cls.linear_training import linear_fit
from encoder_cls.run import loaded_run
from encoder_cls.run.checkpoint_files import load_newest
from encoder_cls.run.run_folder import RunDir
from encoder_cls.run.run_state import RunState
from encoder_cls.system import stop
from encoder_cls.training import run_progress
from encoder_cls.training import train as train_module
from encoder_cls.training.prepare import prepare


@pytest.fixture
def bare_trainings(blank_plots, monkeypatch):
    """Finish runs as for a user, with small weights."""
    monkeypatch.setattr(run_progress, "SECONDS_BETWEEN_CHECKPOINTS", 0)


@pytest.fixture(scope="module")
def straight(tmp_path_factory):
    """The result of an uninterrupted run, which is made once for each config."""
    results = {}

    def run(**values):
        key = repr(values)
        if key not in results:
            folder = tmp_path_factory.mktemp("straight")
            run_all(make_config(folder, **values), folder / "run")
            results[key] = result(folder / "run")
        return results[key]

    return run


def newest_state(folder: Path) -> RunState:
    """Return the state in the newest checkpoint of a run."""
    checkpoint, _ = load_newest(folder / "checkpoints")
    return checkpoint.state


# Runs that a signal stopped


@pytest.mark.parametrize(
    ("values", "stops", "is_pretraining", "step", "validated_step"),
    [
        pytest.param(LABELLED, [3, 1, 1, 1, 1], False, 5, 4, id="many times"),
        pytest.param(
            *(WITH_LINEAR, [14], False, 9, 8),
            id="in the last validation beside a linear model",
            marks=pytest.mark.slow,
        ),
        pytest.param(*(DENOISED, [3, 3], True, 3, 2), id="in denoising", marks=pytest.mark.slow),
        pytest.param(PRETRAINED, [6, 7, 3, 4], False, 11, 10, id="in both trainings"),
    ],
)
def test_a_resumed_run_equals_an_uninterrupted_one(
    tmp_path, straight, values, stops, is_pretraining, step, validated_step
):
    """Weights, moments and metrics are the same wherever the run was stopped.

    The last three parameters are those of the last checkpoint, which show where that was.
    """
    values = values | {"accumulation_steps": 2, "validate_every": 2}
    config = make_config(tmp_path, **values)
    folder = tmp_path / "broken"

    for times in stops:
        with pytest.raises(StoppedError) as stopped:
            run_all(config, folder, resume=True, stop_signal=stop_after(times))
        assert stopped.value.exit_code == 143

    state = newest_state(folder)
    assert state.is_pretraining == is_pretraining
    assert state.step == step
    assert state.training.validated_step == validated_step

    run_all(config, folder, resume=True)
    assert result(folder) == straight(**values)


@pytest.mark.slow
def test_a_stopped_last_validation_is_done_again_with_the_linear_model(
    tmp_path, straight, monkeypatch
):
    """The mixture needs the linear model again; a run that lacks only its report does not."""
    values = FEW_LABELS | {"validate_every": 1000}
    config = make_config(tmp_path, **values)
    folder = tmp_path / "stopped"
    fit_linear = linear_fit.fit_linear_from_few_labels
    num_fits = 0

    def counted_fit(*args, **options):
        nonlocal num_fits
        num_fits += 1
        return fit_linear(*args, **options)

    def stop_run(*, after: int) -> None:
        with pytest.raises(StoppedError, match="step 18"):
            run_all(config, folder, resume=True, stop_signal=stop_after(after))

    monkeypatch.setattr(linear_fit, "fit_linear_from_few_labels", counted_fit)

    # Stop in the last validation, before it is repeated, and in the report.
    stop_run(after=19)
    assert num_fits == 1
    stop_run(after=1)
    assert num_fits == 2
    stop_run(after=2)
    assert num_fits == 3

    run_all(config, folder, resume=True)
    assert num_fits == 3
    assert result(folder) == straight(**values)


class StuckWork:
    """A function that blocks until the test ends, and a signal that arrives meanwhile."""

    def __init__(self) -> None:
        self.may_return = threading.Event()
        self.has_returned = False
        self._has_begun = False

    def __call__(self, *_args: object, **_options: object) -> None:
        self._has_begun = True
        self.may_return.wait(TIME_LIMIT)
        self.has_returned = True

    def stop_signal(self) -> signal.Signals | None:
        """Return SIGTERM once the function has been called."""
        if self._has_begun:
            return signal.SIGTERM
        return None


@pytest.mark.parametrize(
    ("module", "name", "step"),
    [
        pytest.param(
            *(linear_fit, "fit_linear_from_few_labels", 0),
            id="linear model",
            marks=pytest.mark.slow,
        ),
        pytest.param(loaded_run, "baseline_scores", 18, id="TF-IDF baseline"),
    ],
)
def test_a_signal_does_not_wait_for_long_work(tmp_path, straight, monkeypatch, module, name, step):
    """The blocked work is abandoned, and the run resumes exactly."""
    config = make_config(tmp_path, **FEW_LABELS)
    folder = tmp_path / "stopped"

    work = StuckWork()
    with monkeypatch.context() as patch:
        patch.setattr(stop, "SECONDS_BETWEEN_LOOKS", 0.01)
        patch.setattr(stop, "SECONDS_TO_END", 0.01)
        patch.setattr(module, name, work)
        with pytest.raises(StoppedError):
            run_all(config, folder, resume=True, stop_signal=work.stop_signal)

        assert not work.has_returned
        work.may_return.set()

    assert newest_state(folder).step == step
    run_all(config, folder, resume=True)
    assert result(folder) == straight(**FEW_LABELS)


def test_a_signal_between_both_trainings_loses_nothing(tmp_path, straight, monkeypatch):
    """Training on labels begins with the best weights of pretraining, not with its last weights."""
    config = make_config(tmp_path, **PRETRAINED)
    folder = tmp_path / "stopped"

    def stop(*_args, **_options):
        raise StoppedError("stopped", signal_number=signal.SIGTERM)

    with monkeypatch.context() as patch:
        patch.setattr(train_module, "make_training_on_labels", stop)
        with pytest.raises(StoppedError, match="stopped at step 12"):
            run_all(config, folder)

    run_all(config, folder, resume=True)
    assert result(folder) == straight(**PRETRAINED)


@pytest.fixture
def interrupted(tmp_path, cli):
    """The outcome of a command that trains into `run`, in whose ninth step Ctrl-C is pressed."""
    (tmp_path / "config.yaml").write_text(make_config(tmp_path, **WITH_LINEAR).to_yaml())
    with signal_in_step(signal.SIGINT, 8):
        return cli("train", "config.yaml", "--run-dir", "run")


def test_ctrl_c_ends_with_130_and_leaves_the_best_model_so_far(cli, interrupted):
    """The message says how to continue, and the model predicts."""
    assert interrupted.code == 130
    assert "stopped at step 9; a checkpoint is written" in interrupted.err
    assert "--resume" in interrupted.err
    assert cli("predict", "--model", "run", "w1 red end").out.startswith("red ")


@pytest.mark.usefixtures("interrupted")
def test_an_interrupted_run_resumes_with_data_that_has_been_moved(tmp_path, cli):
    (tmp_path / "train.csv").rename("moved.csv")
    command = ["train", "--run-dir", "run", "--resume"]

    assert cli(*command).code == 3
    assert cli(*command, "--set", "data.train=moved.csv").code == 0
    assert RunDir(tmp_path / "run").is_finished()


# Runs that were killed


@pytest.mark.parametrize(
    ("values", "training", "kind", "step"),
    [
        pytest.param(
            *(LABELLED, "model", Stepped, 1), id="before any checkpoint", marks=pytest.mark.slow
        ),
        pytest.param(LABELLED, "model", Stepped, 5, id="between checkpoints"),
        pytest.param(
            *(WITH_LINEAR, "model", EncoderStarted, 0),
            id="after the linear model was fitted",
            marks=pytest.mark.slow,
        ),
        pytest.param(
            *(PRETRAINED, "pretraining", Stepped, 5), id="in pretraining", marks=pytest.mark.slow
        ),
        pytest.param(
            *(PRETRAINED, "model", EncoderStarted, 12),
            id="after pretraining",
            marks=pytest.mark.slow,
        ),
    ],
)
def test_a_killed_run_resumes_from_its_newest_checkpoint(
    tmp_path, straight, values, training, kind, step
):
    """A run that is killed at an event, perhaps between checkpoints, resumes exactly."""
    values = values | {"checkpoint_every": 2}
    config = make_config(tmp_path, **values)
    run = RunDir(tmp_path / "broken")
    current_training = None

    def is_last(event: Event) -> bool:
        nonlocal current_training
        if isinstance(event, EncoderStarted):
            current_training = event.name
        return current_training == training and isinstance(event, kind) and event.step == step

    train_until(is_last, prepare(config), run, device=CPU)
    run_all(config, run.path, resume=True)

    assert result(run.path) == straight(**values)


@pytest.mark.slow
def test_validations_soon_after_a_checkpoint_are_done_again(tmp_path, straight, monkeypatch):
    """The result is the same, even though the saved model was newer than any checkpoint."""
    monkeypatch.setattr(run_progress, "SECONDS_BETWEEN_CHECKPOINTS", 600)
    config = make_config(tmp_path, **PRETRAINED)
    run = RunDir(tmp_path / "broken")

    def is_last(event: Event) -> bool:
        return isinstance(event, Validated) and event.step == 24

    train_until(is_last, prepare(config), run, device=CPU)
    names = [path.name for path in run.checkpoints.glob("step-*")]
    assert names == ["step-12"]

    run_all(config, run.path, resume=True)
    assert result(run.path) == straight(**PRETRAINED)


@pytest.mark.slow
def test_a_run_that_keeps_no_checkpoints_starts_again_and_ends_with_the_same_result(
    tmp_path, straight
):
    """It writes only the state before its first step, and says so when it is stopped."""
    run = RunDir(tmp_path / "run")
    config = make_config(tmp_path, **PRETRAINED, keep_checkpoints=0)

    with pytest.raises(StoppedError, match=r"step 20; no checkpoint .* --resume starts again"):
        run_all(config, run.path, stop_signal=stop_after(24))
    assert [path.name for path in run.checkpoints.iterdir()] == ["step-0"]

    started, *_ = run_all(config, run.path, resume=True)
    assert started.step == 0
    assert [path.name for path in run.checkpoints.iterdir()] == ["step-0"]

    weights_and_metrics = (model_hash(run.path), metric_rows(run.path))
    hashes, metrics = straight(**PRETRAINED)
    assert weights_and_metrics == (hashes.split()[-1], metrics)


def fail_at_a_step(event: Event) -> None:
    """Fail the test at a training step."""
    if isinstance(event, Stepped):
        pytest.fail("a step")


@pytest.mark.parametrize(
    ("values", "times", "lost"),
    [
        pytest.param(PRETRAINED, 13, "pretrained", id="of pretraining", marks=pytest.mark.slow),
        pytest.param(WITH_LINEAR, 23, "model", id="of a linear model before the report"),
    ],
)
def test_a_run_whose_best_model_is_missing_is_not_resumed(tmp_path, values, times, lost):
    config = make_config(tmp_path, **values)
    run = RunDir(tmp_path / "run")
    with pytest.raises(StoppedError):
        run_all(config, run.path, stop_signal=stop_after(times))

    weights = run.path / lost / "model.safetensors"
    weights.rename(tmp_path / "saved")
    with pytest.raises(ConfigError, match=rf"{lost}: .*best model so far: bring"):
        recorded(prepare(config), run, on_event=fail_at_a_step, device=CPU, resume=True)

    (tmp_path / "saved").rename(weights)
    run_all(config, run.path, resume=True)
    assert run.is_finished()


def test_a_finished_run_whose_model_was_moved_is_not_trained_again(tmp_path, run_copy):
    """It is refused before any data is read."""
    run_copy.model.rename(tmp_path / "moved")

    with pytest.raises(ConfigError, match="model: the model of this finished run is missing"):
        run_copy.check_trainable(run_copy.load_config(), resume=True)
