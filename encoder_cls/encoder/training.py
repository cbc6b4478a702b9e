"""Train an encoder: the loss, the step and the loop.

The loop is the same for labels and for pretraining, which differ in their batches and their
validation. A step is a pure function of the weights, the moments and its number, so a resumed
training equals one that was never interrupted.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple, Protocol

import safetensors.torch
import torch
from torch import Tensor
from torch.nn import functional

from encoder_cls.config.schema import TrainConfig
from encoder_cls.encoder.batches import derive_seed, seed_random_numbers
from encoder_cls.encoder.distributed import ProcessGroup
from encoder_cls.encoder.embedding_tables import without_untrained
from encoder_cls.encoder.gradients import clip_gradients, sum_gradients
from encoder_cls.encoder.optimizer import (
    Optimizer,
    learning_rate,
    load_moments,
    moments_of,
    warmup_steps,
)
from encoder_cls.encoder.torch_encoder import Batch
from encoder_cls.encoder.training_state import Outcome, StepMetrics, TrainingState
from encoder_cls.encoder.transformer import EncoderClassifier
from encoder_cls.errors import DivergedError
from encoder_cls.metrics.validation_score import ValidationScore
from encoder_cls.system.machine import autocast, release_memory
from encoder_cls.system.stop import check_stop

# --- The loss -------------------------------------------------------------------------------------


class TrainingBatch(Protocol):
    """Texts with what is to be learned from them."""

    @property
    def inputs(self) -> Batch:
        """The texts."""

    @property
    def normalizer(self) -> Tensor:
        """The number by which the summed loss is divided to get the mean loss, ()."""

    def loss(self, model: EncoderClassifier) -> Tensor:
        """The losses of all targets, summed, ()."""


@dataclass(frozen=True, kw_only=True)
class ClassificationBatch:
    """Texts with target probabilities.

    With an `rdrop_weight`, each text is in the batch twice, with different dropout masks and
    dropped words, and the loss has that weight times the symmetric Kullback-Leibler divergence of
    both predictions added (Liang et al., "R-Drop: Regularized Dropout for Neural Networks", 2021,
    https://arxiv.org/abs/2106.14448).

    Attributes:
        inputs: the texts; with an `rdrop_weight`, all of them once, then all of them again.
        targets: target probabilities, (B, C).
        weights: of the classes, (C,).
        rdrop_weight: of the divergence; 0: each text is there once.
    """

    inputs: Batch
    targets: Tensor
    weights: Tensor
    rdrop_weight: float

    @property
    def normalizer(self) -> Tensor:
        """The sum of the weights of all targets, ()."""
        return (self.targets @ self.weights).sum()

    def loss(self, model: EncoderClassifier) -> Tensor:
        """The losses of all texts, summed by their weights, ()."""
        logits = model(*self.inputs)
        loss = self._cross_entropy(logits)
        if self.rdrop_weight:
            loss = loss + self.rdrop_weight * self._symmetric_kl(logits)
        return loss

    def _cross_entropy(self, logits: Tensor) -> Tensor:
        return functional.cross_entropy(logits, self.targets, weight=self.weights, reduction="sum")

    def _symmetric_kl(self, logits: Tensor) -> Tensor:
        """The mean of KL(p || q) and KL(q || p) of both passes, summed by the weights, ()."""
        log_p, log_q = functional.log_softmax(logits, dim=-1).chunk(2)
        divergences = ((log_p.exp() - log_q.exp()) * (log_p - log_q)).sum(dim=-1) / 2

        # Both halves of the batch have the same targets.
        weights, _ = (self.targets @ self.weights).chunk(2)
        return (weights * divergences).sum()


class MultiLabelBatch(ClassificationBatch):
    """Texts that may have several labels; `weights` are those of each text's labels, (B, C)."""

    @property
    def normalizer(self) -> Tensor:
        """The number of texts, (): each counts once, with all its labels."""
        return torch.tensor(float(len(self.targets)), device=self.targets.device)

    def _cross_entropy(self, logits: Tensor) -> Tensor:
        """The binary cross entropies of all labels, summed, ()."""
        return functional.binary_cross_entropy_with_logits(
            logits, self.targets, weight=self.weights, reduction="sum"
        )

    def _symmetric_kl(self, logits: Tensor) -> Tensor:
        """The divergences of Bernoulli distributions: (p - q) * (logit p - logit q) / 2."""
        first, second = logits.chunk(2)
        divergences = (first.sigmoid() - second.sigmoid()) * (first - second) / 2
        weights, _ = self.weights.chunk(2)
        return (weights * divergences).sum()


# --- A training -----------------------------------------------------------------------------------


@dataclass(frozen=True, kw_only=True)
class TrainingLength:
    """The maximum length of a training, and the steps between its validations."""

    epochs: int
    steps_per_epoch: int
    validate_every: int

    @property
    def total_steps(self) -> int:
        """Optimizer steps of all epochs."""
        return self.epochs * self.steps_per_epoch


class Validation(Protocol):
    """The result of a validation."""

    @property
    def score(self) -> ValidationScore:
        """The score by which validations are compared."""


class StepDone(NamedTuple):
    """A step is done.

    Attributes:
        state: the state after it.
        loss: its mean loss.
        values: the row to log, if one is due.
    """

    state: TrainingState
    loss: float
    values: dict[str, float] | None


class ValidationDone(NamedTuple):
    """A validation is done.

    Attributes:
        state: the state after it.
        result: what it has found; only the first process has it.
        is_best: whether its score is the best so far.
    """

    state: TrainingState
    result: Validation | None
    is_best: bool


class Ended(NamedTuple):
    """The training has ended; the state has its outcome."""

    state: TrainingState


# How many gradients in a row may not be finite; one more, and the training has diverged.
MAX_SKIPPED_IN_A_ROW = 2

# A training with time for fewer steps is skipped, where a run can do without it.
MIN_STEPS = 20

# Memory that was freed goes back to the system after so many steps. After every tenth, it would
# take 5% of the time.
STEPS_BETWEEN_RELEASES = 50


@dataclass(kw_only=True)
class EncoderTraining:
    """A training of one model, by all processes of a group together.

    Attributes:
        name: `pretraining` or `model`, as people see it.
        model: in training; all processes have equal weights.
        optimizers: of the model.
        batches_at: the batches of a step, counted from 0: `batches_at(step, shard, num_shards)` has
            this shard of each batch, without empty ones.
        validate: scores a model; None where its logits are not finite, and in all processes but the
            first.
        length: the most epochs and steps, and the steps between validations.
        config: learning rate, clipping, log intervals.
        seed: of the random numbers of its steps.
        device: of the model.
        precision: of the products, as in `system.machine.autocast`.
        describe_step: names some texts of a step, for error messages.
        group: the processes.
        patience: ends it after this many validations in a row without a better score; None: never.
        validation_cost: the time of a validation, in steps.
        report_cost: the time of all that follows the training, in steps.
        loss_function: the summed loss of a batch, in place of the batch's own.
        initial_tables: the tables with which the model began, to find the rows that were never
            trained.
    """

    name: str
    model: EncoderClassifier
    optimizers: Sequence[Optimizer]
    batches_at: Callable[[int, int, int], Sequence[TrainingBatch]]
    validate: Callable[[EncoderClassifier], Validation | None]
    length: TrainingLength
    config: TrainConfig
    seed: int
    device: torch.device
    precision: torch.dtype
    describe_step: Callable[[int], str]
    group: ProcessGroup
    patience: int | None = None
    validation_cost: float = 0.0
    report_cost: float = 0.0
    loss_function: Callable[[EncoderClassifier, TrainingBatch], Tensor] | None = None
    initial_tables: Mapping[str, Tensor] | None = None

    @property
    def model_for_users(self) -> EncoderClassifier:
        """The model as it is validated and saved: rows of tables that were never trained are 0."""
        if self.initial_tables is None:
            return self.model
        return without_untrained(self.model, self.initial_tables)

    def share_weights(self) -> None:
        """Give all processes the weights and moments of the first one."""
        if self.group.size == 1:
            return
        weights = self.group.broadcast(_saved(self.model.state_dict()))
        moments = self.group.broadcast(_saved(moments_of(self.optimizers)))

        if not self.group.leads:
            self.model.load_state_dict(safetensors.torch.load(weights))
            load_moments(self.optimizers, safetensors.torch.load(moments))

    # --- The step ---------------------------------------------------------------------------------

    def step(self, step: int, rate: float) -> StepMetrics:
        """Update the model once, by all batches of a step.

        Where the loss or the gradient is not finite, neither weights nor moments are updated.

        Args:
            step: its number, counted from 0.
            rate: the learning rate.

        Raises:
            LostProcessError: another process has ended; nothing is updated.
        """
        self.model.train()
        for optimizer in self.optimizers:
            for parameters in optimizer.param_groups:
                parameters["lr"] = rate

        # The gradient of the mean loss over all targets, of all batches and processes.
        my_loss, my_batches = self._add_gradients(step)
        if self.group.size > 1:
            sum_gradients(self.model, self.group)
        grad_norm, is_finite = clip_gradients(self.model, self.config.max_grad_norm)

        # Gradients are equal in all processes, which still decide together: a process that kept a
        # step which the others skip would have another model from then on.
        masks = [batch.inputs.attention_mask for batch in my_batches]
        loss, tokens, padded_tokens, failed = self.group.summed(
            my_loss,
            sum(int(mask.sum()) for mask in masks),
            sum(mask.numel() for mask in masks),
            0 if is_finite else 1,
        )
        metrics = StepMetrics(
            loss=loss,
            grad_norm=grad_norm,
            tokens=int(tokens),
            padded_tokens=int(padded_tokens),
            has_finite_gradient=failed == 0,
        )

        for optimizer in self.optimizers:
            if metrics.should_update:
                optimizer.step()
            optimizer.zero_grad()
        return metrics

    def _add_gradients(self, step: int) -> tuple[float, list[TrainingBatch]]:
        """Add the gradients of this process's shards of a step's batches.

        The loss is divided by the normalizer of all batches together: so small batches give the
        same gradient as a large one, that of the mean loss over all their targets.

        Returns:
            The part of the mean loss, and the batches, of this process.
        """
        num_shards = self.config.gradient_shards
        seed = derive_seed(self.seed, step)

        # Draw the batches. Each shard has random numbers of its own, whichever process has it.
        batches_of_shards: dict[int, Sequence[TrainingBatch]] = {}
        my_batches: list[TrainingBatch] = []
        for shard in self.group.share(num_shards):
            shard_seed = seed
            if num_shards > 1:
                shard_seed = derive_seed(seed, shard)
            seed_random_numbers(shard_seed, self.device)

            batches_of_shards[shard] = self.batches_at(step, shard, num_shards)
            my_batches += batches_of_shards[shard]

        normalizer: Tensor | float = sum(batch.normalizer for batch in my_batches)
        if self.group.size > 1:
            (normalizer,) = self.group.summed(float(normalizer))

        # Forward and backward, batch by batch. With several shards, each is seeded again, since the
        # others have drawn random numbers.
        mean_loss = 0.0
        for shard, batches in batches_of_shards.items():
            if num_shards > 1:
                seed_random_numbers(derive_seed(seed, shard, 1), self.device)

            for batch in batches:
                with autocast(self.precision, self.device):
                    loss: Tensor = self._summed_loss(batch) / normalizer
                loss.backward()  # type: ignore[no-untyped-call]
                mean_loss += loss.item()
        return mean_loss, my_batches

    def _summed_loss(self, batch: TrainingBatch) -> Tensor:
        if self.loss_function is None:
            return batch.loss(self.model)
        return self.loss_function(self.model, batch)

    # --- The loop ---------------------------------------------------------------------------------

    def run(
        self, state: TrainingState, *, seconds: float | None = None, may_skip: bool = False
    ) -> Iterator[StepDone | ValidationDone | Ended]:
        """Train until the last step, or until patience or time runs out.

        Args:
            state: where to go on.
            seconds: the time for the training and all that follows it.
            may_skip: whether the training is skipped where there is time for a few steps only.

        Yields:
            Each step, each validation and the end.

        Raises:
            StoppedError: a signal arrived, before a step or during a validation.
            DivergedError: the loss, the logits of a validation or the gradients of more than
                `MAX_SKIPPED_IN_A_ROW` steps in a row are not finite; the step has updated nothing.
            LostProcessError: another process has ended.
        """
        has_no_time = self.group.decide(seconds == 0)
        if has_no_time and may_skip and state.step_in_training == 0 and state.outcome is None:
            yield Ended(replace(state, step_limit=0, outcome="skipped"))
            return

        timer = _Timer(seconds)
        tokens_since_row = 0
        seconds_since_row = 0.0

        while True:
            if self.is_validation_due(state):
                self.group.end_with_first()
                state, validation = self._validated(state)
                yield ValidationDone(state, validation, is_best=state.best_step == state.step)

            outcome = self.outcome(state)
            if outcome is not None:
                release_memory()
                yield Ended(replace(state, outcome=outcome))
                return

            # The first process heeds signals, and the others end with it.
            check_stop()
            self.group.end_with_first()

            started = time.perf_counter()
            rate = learning_rate(
                state.step_in_training, total_steps=self.num_steps(state), config=self.config
            )
            metrics = self.step(state.step_in_training, rate)
            self._check_finite(state, metrics, rate)
            state = state.after_step(metrics)
            seconds_taken = time.perf_counter() - started

            # The first steps show how many there is time for.
            timer.add(seconds_taken)
            if seconds is not None and state.step_limit is None:
                state = self._with_step_limit(state, timer, may_skip=may_skip)

            # A row of the log has the means over the steps since the last row.
            row = None
            tokens_since_row += metrics.tokens
            seconds_since_row += seconds_taken
            if state.step_in_training % self.config.log_every == 0:
                row = {
                    **state.mean_metrics(),
                    "learning_rate": rate,
                    "tokens_per_s": tokens_since_row / seconds_since_row,
                    "epoch": self.epoch(state),
                }
                state = replace(state, sums={})
                tokens_since_row = 0
                seconds_since_row = 0.0
            yield StepDone(state, metrics.loss, row)

            if state.step % STEPS_BETWEEN_RELEASES == 0:
                release_memory()

    def num_steps(self, state: TrainingState) -> int:
        """The maximum number of steps: those of all epochs, or as many as the time allows."""
        return self.length.total_steps if state.step_limit is None else state.step_limit

    def epoch(self, state: TrainingState) -> float:
        """The epochs done, as a fraction."""
        return state.step_in_training / self.length.steps_per_epoch

    def is_validation_due(self, state: TrainingState) -> bool:
        """Whether a validation comes before the next step."""
        if state.outcome == "skipped" or state.step == state.validated_step:
            return False
        step = state.step_in_training
        return step % self.length.validate_every == 0 or step == self.num_steps(state)

    def outcome(self, state: TrainingState) -> Outcome | None:
        """How the training has ended; None if it goes on."""
        if state.outcome is not None:
            return state.outcome
        if self.patience is not None and state.stale_validations >= self.patience:
            return "patience"
        if state.step_in_training < self.num_steps(state):
            return None
        return "done" if self.num_steps(state) == self.length.total_steps else "time"

    def affordable_steps(self, seconds: float, seconds_per_step: float) -> int:
        """The number of steps that fit into a time, with validations and what follows them."""
        total_steps = self.length.total_steps

        # The time in steps, which may be infinite, without the last validation and the report.
        steps = seconds / seconds_per_step - self.validation_cost - self.report_cost

        # A step takes its part of the validation that comes after every few steps.
        cost_per_step = 1 + self.validation_cost / self.length.validate_every
        return int(min(max(steps / cost_per_step, 0), total_steps))

    def _validated(self, state: TrainingState) -> tuple[TrainingState, Validation | None]:
        """Validate the model; all processes get the score, the first one also the result."""
        with self.group.deferring_stops():
            result = self.validate(self.model_for_users)
        if self.group.leads and result is None:
            raise DivergedError(state.step, "the logits of a validation text are not finite")

        my_score = vars(result.score) if result else {}
        score = ValidationScore(**self.group.decide(my_score))
        is_warming_up = state.step_in_training <= warmup_steps(self.num_steps(state), self.config)
        return state.after_validation(score, is_warming_up=is_warming_up), result

    def _with_step_limit(
        self, state: TrainingState, timer: _Timer, *, may_skip: bool
    ) -> TrainingState:
        """Decide the number of steps by the time of the first ones, once enough are timed.

        The state keeps the number, also for a resumed run.
        """
        steps = None
        if timer.is_sure:
            steps_before = state.step_in_training - timer.steps
            steps = steps_before + self.affordable_steps(timer.limit, timer.seconds_per_step)
        steps = self.group.decide(steps)
        if steps is None:
            return state

        done = state.step_in_training
        total = self.length.total_steps
        if may_skip and steps < min(MIN_STEPS, total):
            return replace(state, step_limit=done, outcome="skipped")
        return replace(state, step_limit=min(max(steps, done), total))

    def _check_finite(self, state: TrainingState, metrics: StepMetrics, rate: float) -> None:
        """Raise a `DivergedError` for a loss, or for gradients in a row, that are not finite."""
        has_failed_too_often = (
            not metrics.should_update and state.skipped_in_a_row == MAX_SKIPPED_IN_A_ROW
        )
        if metrics.has_finite_loss and not has_failed_too_often:
            return

        reason = f"loss {metrics.loss}, gradient norm {metrics.grad_norm}, learning rate {rate:.3g}"
        if state.skipped_in_a_row:
            reason += f", after {state.skipped_in_a_row} skipped steps"
        texts = self.describe_step(state.step_in_training)
        raise DivergedError(state.step + 1, f"{reason}, batch of {texts}, …")


# A time budget decides the number of steps once this many of them are timed.
TIMED_STEPS = 20

# It decides earlier where timing has taken this share of the time.
LARGEST_TIMING_SHARE = 0.1


class _Timer:
    """Times the steps since the start or resumption; the speed before that is unknown."""

    def __init__(self, limit: float | None) -> None:
        self.limit = math.inf if limit is None else limit
        self.steps = 0
        self._seconds = 0.0

    def add(self, seconds: float) -> None:
        """Count a step."""
        self.steps += 1
        self._seconds += seconds

    @property
    def seconds_per_step(self) -> float:
        """The mean time of a step."""
        return self._seconds / self.steps

    @property
    def is_sure(self) -> bool:
        """Whether enough steps are timed to tell how long others will take."""
        return self.steps >= TIMED_STEPS or self._seconds >= LARGEST_TIMING_SHARE * self.limit


def _saved(tensors: Mapping[str, Tensor]) -> bytes:
    """The content of a safetensors file."""
    contiguous = {name: tensor.detach().cpu().contiguous() for name, tensor in tensors.items()}
    return safetensors.torch.save(contiguous)
