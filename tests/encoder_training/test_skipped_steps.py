"""A step whose gradient is not finite is skipped; after three in a row, training has diverged."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from support.small_runs import CPU, make_config, make_training, metric_rows, result, stop_after
from torch import Tensor

from encoder_cls.config.schema import Config
from encoder_cls.encoder_training.distributed import ProcessGroup
from encoder_cls.encoder_training.optimizer import moments_of
from encoder_cls.encoder_training.random_numbers import derive_seed
from encoder_cls.encoder_training.training_step import Trainer
from encoder_cls.errors import DivergedError, StoppedError
from encoder_cls.run.run_folder import RunDir
from encoder_cls.system.stop import stopping_at
from encoder_cls.training.prepare import prepare
from encoder_cls.training.prepared import Objective, Prepared
from encoder_cls.training.train import train


def failing_at(config: Config, steps: Collection[int]) -> Objective:
    """The usual objective, but with a gradient that is NaN in some steps, counted from 1.

    The loss is as it should be. A step is known by the seed of its random numbers, so that a
    resumed run fails in the same steps.
    """
    seeds = {derive_seed(config.seed, step - 1) for step in steps}

    def objective(model, batch) -> Tensor:
        loss = batch.loss(model)
        if torch.initial_seed() in seeds:
            # The square root of 0 is 0, its derivative infinite.
            loss = loss + (model.head.linear.weight * 0).square().sum().sqrt()
        return loss

    return objective


def run_failing(
    folder: Path, config: Config, *, at: Collection[int], stop_after_polls: int = 999, **options
) -> None:
    prepared = replace(prepare(config), objective=failing_at(config, at))
    with stopping_at(stop_after(stop_after_polls)):
        train(prepared, RunDir(folder), device=CPU, **options)


def with_moments(prepared: Prepared) -> Trainer:
    """A trainer after its first step."""
    trainer = make_training(prepared).trainer
    trainer.start_step(0, 0.01)
    return trainer


def numbers_of(trainer: Trainer) -> dict[str, Tensor]:
    """Copies of the weights, the moments and the counts of steps."""
    tensors = trainer.model.state_dict() | moments_of(trainer.optimizers)
    return {name: tensor.clone() for name, tensor in tensors.items()}


def assert_equal(found: dict[str, Tensor], expected: dict[str, Tensor]) -> None:
    assert found.keys() == expected.keys()
    for name, tensor in expected.items():
        assert torch.equal(found[name], tensor), name


def test_a_skipped_step_updates_neither_weights_nor_moments(tmp_path):
    config = make_config(tmp_path)
    skipping = with_moments(replace(prepare(config), objective=failing_at(config, {2})))
    before = numbers_of(skipping)

    metrics = skipping.start_step(1, 0.01).metrics()

    assert metrics.has_finite_loss
    assert not metrics.has_finite_gradient
    assert_equal(numbers_of(skipping), before)


def test_a_skipped_step_does_not_change_the_step_after_it(tmp_path):
    config = make_config(tmp_path)
    prepared = replace(prepare(config), objective=failing_at(config, {2}))
    skipping = with_moments(prepared)
    other = with_moments(prepared)

    skipping.start_step(1, 0.01)
    skipping.start_step(2, 0.01)
    other.start_step(2, 0.01)

    assert_equal(numbers_of(skipping), numbers_of(other))


def test_a_gradient_of_a_table_that_is_not_finite_is_noticed(tmp_path):
    """The gradient norm does not show this, because it is the norm of the dense gradients alone."""
    config = make_config(tmp_path)

    def objective(model, batch) -> Tensor:
        words = model.encoder.embedding.tokens(batch.inputs.input_ids)
        return batch.loss(model) + (words * 0).square().sum().sqrt()

    trainer = make_training(replace(prepare(config), objective=objective)).trainer
    before = numbers_of(trainer)

    metrics = trainer.start_step(0, 0.01).metrics()

    assert not metrics.has_finite_gradient
    assert_equal(numbers_of(trainer), before)


def test_a_process_skips_the_step_that_another_one_skips(tmp_path):
    class WithAnother(ProcessGroup):
        """A group whose other process has found a gradient that is not finite."""

        def sum(self, tensor: Tensor) -> None:
            num_failed = tensor[-1]
            num_failed += 1

    trainer = make_training(prepare(make_config(tmp_path))).trainer
    trainer.group = WithAnother()
    before = numbers_of(trainer)

    metrics = trainer.start_step(0, 0.01).metrics()

    assert not metrics.should_update
    assert_equal(numbers_of(trainer), before)


def test_skipped_steps_are_counted_in_the_log(tmp_path):
    """The gradient norm is a mean over the other steps; other rows have no count."""
    run_failing(tmp_path / "run", make_config(tmp_path, log_every=3), at={2, 4, 5})

    rows = [row for row in metric_rows(tmp_path / "run") if row["split"] == "train"]
    first, second, *others = rows
    assert first["skipped_steps"] == 1
    assert second["skipped_steps"] == 2
    for row in others:
        assert "skipped_steps" not in row
    for row in rows:
        assert row["grad_norm"] > 0
        assert row["loss"] > 0


def test_a_row_of_skipped_steps_alone_has_no_gradient(tmp_path):
    run_failing(tmp_path / "run", make_config(tmp_path, log_every=1), at={2})

    (row,) = [row for row in metric_rows(tmp_path / "run") if row["step"] == 2]
    assert row["skipped_steps"] == 1
    assert "grad_norm" not in row
    assert row["loss"] > 0


def test_three_skipped_steps_in_a_row_end_the_run_as_diverged(tmp_path):
    message = r"step 7: .*norm nan.* after 2 skipped.*csv:\d+"
    with pytest.raises(DivergedError, match=message) as diverged:
        run_failing(tmp_path / "run", make_config(tmp_path), at={5, 6, 7})
    assert diverged.value.exit_code == 4


def test_two_skipped_steps_in_a_row_end_no_run(tmp_path):
    run_failing(tmp_path / "run", make_config(tmp_path), at={2, 3, 5, 6, 8, 9})

    assert RunDir(tmp_path / "run").is_finished()


def test_a_resumed_run_continues_to_count_skipped_steps(tmp_path):
    config = make_config(tmp_path)
    with pytest.raises(StoppedError, match="stopped at step 3"):
        run_failing(tmp_path / "run", config, at={2, 3, 4}, stop_after_polls=3)

    with pytest.raises(DivergedError, match=r"step 4: .* after 2 skipped"):
        run_failing(tmp_path / "run", config, at={2, 3, 4}, resume=True)


@pytest.mark.slow
def test_a_run_that_is_stopped_between_skipped_steps_ends_like_an_undisturbed_run(tmp_path):
    config = make_config(tmp_path)
    run_failing(tmp_path / "straight", config, at={2, 3})

    with pytest.raises(StoppedError, match="stopped at step 2"):
        run_failing(tmp_path / "stopped", config, at={2, 3}, stop_after_polls=2)
    run_failing(tmp_path / "stopped", config, at={2, 3}, resume=True)

    assert result(tmp_path / "stopped") == result(tmp_path / "straight")
