"""A training that runs ahead starts steps before the metrics of earlier steps are known.

On a GPU it does, because the GPU computes while the process continues. Here the CPU takes its
place.
"""

from __future__ import annotations

import threading
import warnings
from collections.abc import Collection, Iterator
from contextlib import ExitStack, closing, contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any
from unittest.mock import patch

import pytest
import torch
from support.small_runs import (
    CPU,
    PRETRAINED,
    make_config,
    make_training,
    result,
    run_all,
    stop_after,
)
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode

from encoder_cls.config.schema import Config
from encoder_cls.encoder.nested_tensors import on_device
from encoder_cls.encoder_training import training_loop as training_loop_module
from encoder_cls.encoder_training.batch_loader import BatchLoader
from encoder_cls.encoder_training.distributed import ALONE
from encoder_cls.encoder_training.optimizer import moments_of
from encoder_cls.encoder_training.random_numbers import derive_seed
from encoder_cls.encoder_training.steps_in_time import StepTiming
from encoder_cls.encoder_training.training_loop import EncoderTraining, StepDone, ValidationDone
from encoder_cls.encoder_training.training_state import TrainingState
from encoder_cls.encoder_training.training_step import Trainer
from encoder_cls.errors import DivergedError, StoppedError
from encoder_cls.training import encoder_stage
from encoder_cls.training.encoder_stage import ON_LABELS, PRETRAINING
from encoder_cls.training.prepare import prepare
from encoder_cls.training.prepared import Objective

# Random numbers of dropout follow those of the batches on a CPU, and have a seed of their own where
# a training runs ahead. Without dropout, both kinds of training compute the same.
NO_DROPOUT = {"dropout": 0.0, "head_dropout": 0.0}

MASKED = {"epochs": 1}
DENOISED = {"epochs": 1, "objective": "denoising"}
KINDS = [
    pytest.param(ON_LABELS, {"rdrop_weight": 1.0}, id="labels"),
    pytest.param(ON_LABELS, {"gradient_shards": 3}, id="shards", marks=pytest.mark.slow),
    pytest.param(PRETRAINING, {"pretrain": MASKED}, id="masked words"),
    pytest.param(PRETRAINING, {"pretrain": DENOISED}, id="denoising"),
]


def ahead(training: EncoderTraining) -> EncoderTraining:
    """The same training, running ahead."""
    return replace(training, trainer=replace(training.trainer, runs_ahead=True))


# What waits


class Waits(TorchDispatchMode):
    """Collects the operations for which a process would wait for a GPU.

    They are those that give a value to Python, and those whose result has a size that depends on
    values.

    Attributes:
        names: the names of the operations, in order.
    """

    OPERATIONS = (
        "_local_scalar_dense",
        "equal",
        "masked_select",
        "nonzero",
        "repeat_interleave",
        "unique",
    )

    def __init__(self) -> None:
        super().__init__()
        self.names: list[str] = []

    def __torch_dispatch__(self, func, types, args=(), kwargs=None) -> Any:
        name = func.name().removeprefix("aten::")
        if name.strip("_").startswith(tuple(part.strip("_") for part in self.OPERATIONS)):
            self.names.append(name)
        if name.startswith("index") and _has_mask(args):
            self.names.append(f"{name} by a mask")
        return func(*args, **(kwargs or {}))


def _has_mask(args: Any) -> bool:
    """Whether the arguments have a list of indices with a mask."""
    indices = []
    for argument in args:
        if isinstance(argument, list | tuple):
            indices += argument
    return any(isinstance(index, Tensor) and index.dtype == torch.bool for index in indices)


@contextmanager
def counting_waits() -> Iterator[Waits]:
    """Collect the operations of this thread that wait, and the conversions of tensors."""
    waits = Waits()

    def recorded(name: str) -> Any:
        convert = getattr(Tensor, name)

        def record(tensor: Tensor, *args: Any) -> Any:
            if threading.current_thread() is threading.main_thread():
                waits.names.append(name)
            return convert(tensor, *args)

        return record

    with ExitStack() as patches:
        for name in ("tolist", "numpy", "cpu"):
            patches.enter_context(patch.object(Tensor, name, recorded(name)))
        with waits:
            yield waits


@pytest.mark.parametrize(("name", "values"), KINDS)
def test_a_step_that_runs_ahead_waits_for_nothing(tmp_path, name, values):
    training = ahead(make_training(prepare(make_config(tmp_path, **values)), name))

    with counting_waits() as waits:
        steps = [training.trainer.start_step(step, 0.01) for step in range(3)]
        assert waits.names == []

        steps[-1].metrics()
        assert waits.names == ["tolist"]


@pytest.mark.parametrize(("name", "values"), KINDS)
def test_other_steps_wait(tmp_path, name, values):
    """The test above would notice it."""
    training = make_training(prepare(make_config(tmp_path, **values)), name)

    with counting_waits() as waits:
        training.trainer.start_step(0, 0.01)

    assert waits.names


def test_a_loop_waits_at_rows_of_the_log_and_at_validations_only(tmp_path):
    """An epoch has six steps, and a row of the log comes after each fourth one."""
    training = ahead(make_training(prepare(make_config(tmp_path, log_every=4))))
    training.trainer.task.validate = lambda _: None
    training.model_for_users.eval()
    started = []

    def looked_at(steps):
        started.append(len(steps))
        return metrics_of(steps)

    metrics_of = training_loop_module.metrics_of
    with patch.object(training_loop_module, "metrics_of", looked_at), pytest.raises(DivergedError):
        list(training.run(TrainingState()))

    assert started == [4, 2]


@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")
@pytest.mark.parametrize(("name", "values"), KINDS)
def test_a_step_on_a_gpu_waits_for_nothing(tmp_path, name, values):
    """CUDA itself reports it. The first step is left out, in which kernels are loaded."""
    prepared = prepare(make_config(tmp_path, **values))
    make = encoder_stage.make_training_on_labels
    if name == PRETRAINING:
        make = encoder_stage.make_pretraining
    trainer = make(prepared, device=torch.device("cuda"), group=ALONE).trainer
    assert trainer.runs_ahead
    trainer.start_step(0, 0.01).metrics()

    try:
        with warnings.catch_warnings():
            # The mode is a prototype, and says so.
            warnings.simplefilter("ignore")
            torch.cuda.set_sync_debug_mode("error")
        steps = [trainer.start_step(step, 0.01) for step in range(1, 4)]
    finally:
        torch.cuda.set_sync_debug_mode("default")

    assert all(step.metrics().should_update for step in steps)


# What is computed


@pytest.mark.parametrize(("name", "values"), KINDS)
def test_running_ahead_changes_no_result(tmp_path, name, values):
    config = make_config(tmp_path, model=NO_DROPOUT, word_dropout=0.2, epochs=2, **values)
    usual = make_training(prepare(config), name)
    training = ahead(make_training(prepare(config), name))

    usual_events = list(usual.run(TrainingState()))
    events = list(training.run(TrainingState()))

    assert len(events) == len(usual_events)
    for event, expected in zip(events, usual_events, strict=True):
        assert type(event) is type(expected)
        assert event.state.step == expected.state.step
        if isinstance(event, StepDone):
            assert event.loss == pytest.approx(expected.loss, rel=1e-4)
            assert_rows_equal(event.values, expected.values)
        if isinstance(event, ValidationDone):
            assert event.is_best == expected.is_best

    for key, weight in usual.trainer.model.state_dict().items():
        torch.testing.assert_close(
            training.trainer.model.state_dict()[key], weight, atol=1e-4, rtol=1e-3
        )


def assert_rows_equal(found: dict[str, float] | None, expected: dict[str, float] | None) -> None:
    """Assert that two rows of the log are equal, except for the speed."""
    if expected is None:
        assert found is None
        return
    assert found is not None
    without_speed = {key: value for key, value in expected.items() if key != "tokens_per_s"}
    assert found == pytest.approx(without_speed | {"tokens_per_s": found["tokens_per_s"]}, rel=1e-4)


def failing_at(config: Config, steps: Collection[int], *, with_loss: bool) -> Objective:
    """The usual objective, but with a gradient, or also a loss, that is NaN in some steps.

    A step, counted from 1, is known by the seed of its random numbers.
    """
    seeds = {derive_seed(config.seed, step - 1) for step in steps}

    def objective(model, batch) -> Tensor:
        loss = batch.loss(model)
        if torch.initial_seed() not in seeds:
            return loss
        if with_loss:
            return loss * torch.nan
        # The square root of 0 is 0, its derivative infinite.
        words = model.encoder.embedding.tokens(batch.inputs.input_ids)
        return loss + (words * 0).square().sum().sqrt()

    return objective


@pytest.mark.parametrize("with_loss", [True, False])
@pytest.mark.parametrize("failing", [1, 3])
def test_a_step_that_is_not_finite_changes_neither_weights_nor_moments(
    tmp_path, failing, with_loss
):
    """The device decides it: nobody has looked at the metrics when the next step starts."""
    config = make_config(tmp_path)
    objective = failing_at(config, {failing}, with_loss=with_loss)
    training = ahead(make_training(replace(prepare(config), objective=objective)))
    other = ahead(make_training(prepare(config)))

    steps = [training.trainer.start_step(step, 0.01) for step in range(4)]
    for step in range(4):
        if step != failing - 1:
            other.trainer.start_step(step, 0.01)

    assert [step.metrics().should_update for step in steps].index(False) == failing - 1
    found = training.trainer.model.state_dict() | moments_of(training.trainer.optimizers)
    expected = other.trainer.model.state_dict() | moments_of(other.trainer.optimizers)
    assert found.keys() == expected.keys()
    for key, tensor in expected.items():
        assert torch.equal(found[key], tensor), key


def test_a_loss_that_is_not_finite_is_named_with_its_step_and_texts(tmp_path):
    """The step is the third of six between two rows of the log; those before it are reported."""
    config = make_config(tmp_path, log_every=6)
    objective = failing_at(config, {3}, with_loss=True)
    training = ahead(make_training(replace(prepare(config), objective=objective)))
    reported = []

    with pytest.raises(DivergedError, match=r"step 3: loss nan, .*csv:\d+") as diverged:
        for event in training.run(TrainingState()):
            reported.append(event.state.step)

    assert reported == [1, 2]
    assert training.trainer.task.describe_step(2) in str(diverged.value)


def test_skipped_steps_are_counted_from_one_look_to_the_next(tmp_path):
    """The metrics are looked at after the fourth step, and after the sixth one."""
    config = make_config(tmp_path, log_every=4)
    objective = failing_at(config, {4, 5, 6}, with_loss=False)
    training = ahead(make_training(replace(prepare(config), objective=objective)))

    with pytest.raises(DivergedError, match=r"step 6: .* after 2 skipped steps"):
        list(training.run(TrainingState()))


# When metrics are looked at


def test_the_model_is_never_ahead_where_it_is_saved(tmp_path):
    """It is saved at validations, after each sixth step, and at checkpoints, here each fourth."""
    config = make_config(tmp_path, log_every=5, checkpoint_every=4, epochs=2)
    training = ahead(make_training(prepare(config)))
    num_started = 0
    start_step = training.trainer.start_step

    def counted(step: int, rate: float) -> Any:
        nonlocal num_started
        num_started += 1
        return start_step(step, rate)

    training.trainer.start_step = counted
    is_ahead = {}
    for event in training.run(TrainingState()):
        is_ahead[event.state.step] = num_started > event.state.step

    assert [step for step, ahead_there in is_ahead.items() if not ahead_there] == [
        4,
        5,
        6,
        8,
        10,
        12,
    ]


def test_the_step_limit_is_decided_before_further_steps_are_started(tmp_path, monkeypatch):
    """Rows of the log are far apart, but the time budget needs the speed of the first steps."""
    timing = StepTiming(warm_up_steps=0, timed_steps=3)
    monkeypatch.setattr(training_loop_module, "CPU_TIMING", timing)
    config = make_config(tmp_path, log_every=100, epochs=4)
    training = ahead(make_training(prepare(config)))

    states = {}
    for event in training.run(TrainingState(), seconds=1e6):
        states.setdefault(event.state.step, event.state)

    assert states[2].step_limit is None
    assert states[3].step_limit == 24


class AheadTrainer(Trainer):
    """A trainer that runs ahead on any device."""

    def __post_init__(self) -> None:
        self.runs_ahead = True
        super().__post_init__()


@pytest.mark.slow
def test_a_stopped_run_resumes_to_the_same_weights(tmp_path, monkeypatch):
    """The run stops in its training on labels, two steps after a row of the log."""
    monkeypatch.setattr(encoder_stage, "Trainer", AheadTrainer)
    config = make_config(tmp_path, log_every=5, **PRETRAINED)
    run_all(config, tmp_path / "straight")

    with pytest.raises(StoppedError, match="stopped at step 24;"):
        run_all(config, tmp_path / "stopped", stop_signal=stop_after(12))
    run_all(config, tmp_path / "stopped", resume=True)

    assert result(tmp_path / "stopped") == result(tmp_path / "straight")


# Batches


def test_batches_are_made_one_step_ahead_in_a_thread():
    makers = {}

    def make(step: int, generator: torch.Generator | None) -> int:
        assert generator is not None
        makers[step] = threading.current_thread()
        return 10 * step

    with closing(BatchLoader(make, device=CPU, makes_ahead=True)) as loader:
        found = [loader.batches_of_step(step) for step in (4, 5, 6, 2)]

    assert found == [40, 50, 60, 20]
    assert {4, 5, 6, 2} <= makers.keys()
    assert threading.main_thread() not in makers.values()
    assert not any(thread.is_alive() for thread in makers.values())


def test_an_error_in_a_batch_is_raised_at_its_step():
    def make(step: int, _: torch.Generator | None) -> int:
        return 6 // (2 - step)

    with closing(BatchLoader(make, device=CPU, makes_ahead=True)) as loader:
        assert loader.batches_of_step(0) == 3
        assert loader.batches_of_step(1) == 6
        with pytest.raises(ZeroDivisionError):
            loader.batches_of_step(2)


def test_the_thread_ends_with_the_training(tmp_path):
    training = ahead(make_training(prepare(make_config(tmp_path))))
    before = threading.active_count()

    events = training.run(TrainingState())
    next(events)
    assert threading.active_count() == before + 1

    events.close()
    assert threading.active_count() == before


def test_copied_batches_keep_their_numbers(tmp_path: Path):
    """The device `meta` takes the place of a GPU: it keeps shapes, and no values."""
    training = make_training(prepare(make_config(tmp_path)))
    batches = training.trainer._make_batches(3, None)

    moved = on_device(batches, torch.device("meta"))

    assert moved.step == 3
    (batch,) = moved.shards[0]
    (expected,) = batches.shards[0]
    assert batch.rdrop_weight == expected.rdrop_weight
    assert batch.inputs.char_ngrams.words.shape == expected.inputs.char_ngrams.words.shape
    tensors = (*batch.inputs[:2], *batch.inputs.char_ngrams[:3], batch.targets, batch.weights)
    for tensor in tensors:
        assert tensor.device.type == "meta"
