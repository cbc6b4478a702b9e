"""The loop over the steps and validations of a stage, in the first process and in the others."""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping
from dataclasses import replace

import numpy as np
import torch

from encoder_cls.encoder.distributed import ProcessGroup
from encoder_cls.encoder.optimizer import learning_rate, warmup_steps
from encoder_cls.errors import DivergedError
from encoder_cls.system.machine import release_memory
from encoder_cls.system.stop import check_stop
from encoder_cls.training.checkpoint import STATE_FILES, TrainingState, from_files, to_files
from encoder_cls.training.events import Stepped, Validated
from encoder_cls.training.prepared import Prepared
from encoder_cls.training.replica import Replica, StepMetrics
from encoder_cls.training.stages import Stage
from encoder_cls.training.validation import after_validation

TIMED_STEPS = 20  # after which a time budget decides the number of steps,
MOST_TIMING = 0.1  # or after this share of the time
LEAST_STEPS = 20  # a stage with time for fewer is skipped
MOST_SKIPPED = (
    2  # steps in a row whose gradient is not finite; one more, and the training has diverged
)
STEPS_BETWEEN_RELEASES = (
    50  # of memory, which is then allocated again: every ten steps would take 5% of the time
)


def train_stage(
    replica: Replica, state: TrainingState, *, seconds: float | None = None, may_skip: bool = False
) -> Iterator[tuple[TrainingState, Stepped | Validated]]:
    """Train until the last step, or until patience or time runs out; yields the state after each event, and the event.

    A stage that may be skipped ends without a validation where there is time for a few steps only.

    Raises:
        StoppedError: a signal arrived, before a step or during a validation.
        DivergedError: the loss, the logits of a validation or the gradients of more than `MOST_SKIPPED` steps in a row
            are not finite; the step has updated nothing.
        LostProcessError: another process has ended.
    """
    stage, config = replica.stage, replica.stage.prepared.config.train
    # Since the start or resumption: the speed before is unknown.
    timed_steps, timed_seconds = 0, 0.0
    row_tokens, row_seconds = 0, 0.0
    while True:
        if stage.is_validation_due(state):
            state, validated = _validated(replica, state)
            yield state, validated
        if stage.is_done(state):
            release_memory()
            return
        check_stop()
        started = time.perf_counter()
        rate = learning_rate(state.step_in_stage, total_steps=stage.steps(state), config=config)
        metrics = replica.step(state.step_in_stage, rate)
        is_skipped = not metrics.has_updated
        if not metrics.has_finite_loss or (is_skipped and state.skipped_in_a_row == MOST_SKIPPED):
            raise _diverged(stage, state, metrics, rate)
        state = state.after_step(_summed(metrics), is_skipped=is_skipped)
        taken = time.perf_counter() - started
        timed_steps, timed_seconds = timed_steps + 1, timed_seconds + taken
        row_tokens, row_seconds = row_tokens + metrics.tokens, row_seconds + taken
        if seconds is not None and state.stage_steps is None:
            state = _limited(stage, state, seconds, timed_steps, timed_seconds, may_skip=may_skip)
        values = None
        if state.step_in_stage % config.log_every == 0:
            values = {
                **_means(state.sums),
                "learning_rate": rate,
                "tokens_per_s": row_tokens / row_seconds,
                "epoch": stage.epoch(state),
            }
            state, row_tokens, row_seconds = replace(state, sums={}), 0, 0.0
        yield (
            state,
            Stepped(step=state.step, epoch=stage.epoch(state), loss=metrics.loss, values=values),
        )
        if state.step % STEPS_BETWEEN_RELEASES == 0:
            release_memory()


def _summed(metrics: StepMetrics) -> dict[str, float]:
    """The metrics of a step that are summed until they are logged; a skipped step has no gradient."""
    return {
        "loss": metrics.loss,
        "grad_norm": metrics.grad_norm if metrics.has_updated else 0.0,
        "tokens": metrics.tokens,
        "padded_tokens": metrics.padded_tokens,
    }


def _means(sums: Mapping[str, float]) -> dict[str, float]:
    """The values of a row that are means over the steps since the row before, and how many of these were skipped."""
    means = {
        "loss": sums["loss"] / sums["steps"],
        "padding_fraction": 1 - sums["tokens"] / sums["padded_tokens"],
    }

    num_updates = sums["steps"] - sums["skipped_steps"]
    if num_updates:
        means["grad_norm"] = sums["grad_norm"] / num_updates

    if sums["skipped_steps"]:
        means["skipped_steps"] = int(sums["skipped_steps"])
    return means


def _diverged(
    stage: Stage, state: TrainingState, metrics: StepMetrics, rate: float
) -> DivergedError:
    """The error of a step, with its numbers and the places of some of its texts."""
    texts = np.concatenate(stage.sampler.batches_of_step(state.step_in_stage))[:3]
    examples = ", ".join(stage.prepared.where(row) for row in stage.rows[texts].tolist())
    numbers = f"loss {metrics.loss}, gradient norm {metrics.grad_norm}, learning rate {rate:.3g}"
    if state.skipped_in_a_row:
        numbers += f", after {state.skipped_in_a_row} skipped steps"
    return DivergedError(state.step + 1, f"{numbers}, batch of {examples}, …")


def _limited(
    stage: Stage,
    state: TrainingState,
    seconds: float,
    timed_steps: int,
    taken: float,
    *,
    may_skip: bool,
) -> TrainingState:
    """Decide the number of steps by the time of the first ones; a resumed run keeps it, as part of the state."""
    if timed_steps < TIMED_STEPS and taken < MOST_TIMING * seconds:
        return state
    done = state.step_in_stage
    steps = done - timed_steps + stage.affordable_steps(seconds, taken / timed_steps)
    total = stage.schedule.total_steps
    if may_skip and steps < min(LEAST_STEPS, total):
        return replace(state, stage_steps=done, validated_step=state.step)
    return replace(state, stage_steps=min(max(steps, done), total))


def _validated(replica: Replica, state: TrainingState) -> tuple[TrainingState, Validated]:
    stage, config = replica.stage, replica.stage.prepared.config.train
    result = replica.validate()
    if result is None:
        raise DivergedError(state.step, "the logits of a validation text are not finite")
    is_warming_up = state.step_in_stage <= warmup_steps(stage.steps(state), config)
    state = after_validation(state, result.selection_key, is_warming_up=is_warming_up)
    is_best = state.best_step == state.step
    return state, Validated(
        stage.name, state.step, stage.epoch(state), result, is_best, stage.is_drawn(state)
    )


def start_stage(replica: Replica) -> None:
    """Start a stage: give all processes the weights, moments and pseudo-labels of the first one."""
    group, stage = replica.group, replica.stage
    group.lead({"stage": replica.number})
    if group.size == 1:
        return
    files = to_files(replica.model, replica.optimizers, TrainingState(), fingerprint={})
    files = {name: group.broadcast(files[name]) for name in STATE_FILES}
    labels = group.broadcast(b"" if stage.pseudo_labels is None else stage.pseudo_labels.tobytes())
    if group.leads:
        return
    from_files(files).restore(replica.model, replica.optimizers)
    if labels:
        classes = len(stage.prepared.dataset.label_names)
        stage.pseudo_labels = np.frombuffer(labels, dtype=np.float32).reshape(-1, classes)


def assist(prepared: Prepared, group: ProcessGroup, *, device: torch.device) -> None:
    """Take part in the steps and validations of the first process until it ends the training; write and print nothing.

    Raises:
        LostProcessError: another process has ended before the training did.
    """
    replica: Replica | None = None
    while True:
        match group.follow():
            case {"stage": int(number)}:
                replica = Replica(prepared, number, device=device, group=group)
                start_stage(replica)
            case {"step": int(step), "learning_rate": float(rate)} if replica:
                replica.step(step, rate)
            case {"validate": True} if replica:
                replica.validate()
            case _:
                return
