"""Train an encoder: the loss, the step and the loop.

The loop is the same for labels and for pretraining, which differ in their batches and their validation. A step is a
pure function of the weights, the moments and its number, so a resumed training equals one that was never interrupted.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Literal, NamedTuple, Protocol

import safetensors.torch
import torch
from torch import Tensor, nn
from torch.nn import functional

from encoder_cls.config.schema import TrainConfig
from encoder_cls.encoder.batches import derive_seed
from encoder_cls.encoder.distributed import ProcessGroup
from encoder_cls.encoder.optimizer import (
    Optimizer,
    learning_rate,
    load_moments,
    moments_of,
    sum_by_row,
    tables,
    warmup_steps,
    without_untrained,
)
from encoder_cls.encoder.torch_encoder import Batch
from encoder_cls.encoder.transformer import EncoderClassifier
from encoder_cls.errors import DivergedError
from encoder_cls.metrics.score import Score
from encoder_cls.system.machine import autocast, release_memory
from encoder_cls.system.stop import check_stop

# A time budget decides the number of steps after this many steps have been timed,
TIMED_STEPS = 20
# or earlier, once timing them has taken this share of the time.
LARGEST_TIMING_SHARE = 0.1
# A training with time for fewer steps is skipped, where a run can do without it.
FEWEST_STEPS = 20
# Gradients that are not finite may come in so many steps in a row; one more, and the training has diverged.
MOST_SKIPPED_IN_A_ROW = 2
# Memory that was freed goes back to the system; doing so every ten steps would take 5% of the time.
STEPS_BETWEEN_RELEASES = 50

Outcome = Literal["done", "patience", "time", "skipped"]


# --- The loss ---------------------------------------------------------------------------------------------------------


class TrainingBatch(Protocol):
    """Texts with what is to be learned from them."""

    @property
    def inputs(self) -> Batch:
        """The texts."""

    @property
    def normalizer(self) -> Tensor:
        """What the summed loss is divided by to get the mean loss, ()."""

    def loss(self, model: EncoderClassifier) -> Tensor:
        """The losses of all targets, summed, ()."""


@dataclass(frozen=True, kw_only=True)
class ClassificationBatch:
    """Texts with target probabilities, (B, C), and weights of classes, (C,).

    With an `rdrop_weight`, each text is in the batch twice, with different dropout masks and dropped words, and the
    loss has that weight times the symmetric Kullback-Leibler divergence of both predictions added (Liang et al.,
    "R-Drop: Regularized Dropout for Neural Networks", 2021, https://arxiv.org/abs/2106.14448).
    """

    inputs: Batch
    targets: Tensor
    weights: Tensor
    rdrop_weight: float

    @property
    def normalizer(self) -> Tensor:
        """The sum of the weights of all targets, (): the summed loss divided by it is the mean loss."""
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
        """The mean of KL(p || q) and KL(q || p) of the two passes, in nats, summed by the weights, ()."""
        log_p, log_q = functional.log_softmax(logits, dim=-1).chunk(2)
        divergences = ((log_p.exp() - log_q.exp()) * (log_p - log_q)).sum(dim=-1) / 2
        weights, _ = (self.targets @ self.weights).chunk(2)
        return (weights * divergences).sum()


class MultiLabelBatch(ClassificationBatch):
    """The same where a text may have several labels, with weights of the labels of each text, (B, C)."""

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
        """The same of Bernoulli distributions: (p - q) * (logit p - logit q) / 2 of each label."""
        first, second = logits.chunk(2)
        divergences = (first.sigmoid() - second.sigmoid()) * (first - second) / 2
        weights, _ = self.weights.chunk(2)
        return (weights * divergences).sum()


# --- The step ---------------------------------------------------------------------------------------------------------


class StepMetrics(NamedTuple):
    """What a step was like.

    Attributes:
        loss: the mean loss.
        grad_norm: the norm of the dense gradients before clipping.
        tokens: the number of tokens without padding.
        padded_tokens: the number of tokens with padding.
        has_finite_gradient: whether the gradient is finite in all processes.
    """

    loss: float
    grad_norm: float
    tokens: int
    padded_tokens: int
    has_finite_gradient: bool

    @property
    def has_finite_loss(self) -> bool:
        """Whether the loss is finite."""
        return math.isfinite(self.loss)

    @property
    def has_updated(self) -> bool:
        """Whether the step has updated the model; it does not where the loss or the gradient is not finite."""
        return self.has_finite_loss and self.has_finite_gradient


@dataclass(frozen=True, kw_only=True)
class Schedule:
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
    def score(self) -> Score:
        """By which validations are compared."""


@dataclass(kw_only=True)
class EncoderTraining:
    """A training of one model, by all processes of a group together.

    Attributes:
        name: `pretraining` or `model`, as people see it.
        model: in training; all processes have equal weights.
        optimizers: of the model.
        batches_at: the batches of a step, counted from 0: `batches_at(step, shard, num_shards)` has this shard of each
            batch, without empty ones.
        validate: scores a model; None where its logits are not finite, and in all processes but the first.
        schedule: its maximum length.
        config: learning rate, clipping, log intervals.
        seed: of the random numbers of its steps.
        device: of the model.
        precision: of the products, as in `system.machine.autocast`.
        patience: ends it after this many validations in a row without a better score; None: never.
        validation_cost: the time of a validation, in steps.
        report_cost: the time of all that follows the training, in steps.
        describe_step: names some texts of a step, for error messages.
        loss_function: the summed loss of a batch, in place of the batch's own.
        initial_tables: the tables with which the model began, to tell which of their rows were never trained.
        group: the processes.
    """

    name: str
    model: EncoderClassifier
    optimizers: Sequence[Optimizer]
    batches_at: Callable[[int, int, int], Sequence[TrainingBatch]]
    validate: Callable[[EncoderClassifier], Validation | None]
    schedule: Schedule
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
        """The model as it is validated and saved: with zeros in the rows of tables that were never trained."""
        if self.initial_tables is None:
            return self.model
        return without_untrained(self.model, self.initial_tables)

    def share_weights(self) -> None:
        """Give all processes the weights and moments of the first one."""
        if self.group.size == 1:
            return
        weights = _saved(self.model.state_dict())
        moments = _saved(moments_of(self.optimizers))

        weights = self.group.broadcast(weights)
        moments = self.group.broadcast(moments)

        if not self.group.leads:
            self.model.load_state_dict(safetensors.torch.load(weights))
            load_moments(self.optimizers, safetensors.torch.load(moments))

    def step(self, step: int, rate: float) -> StepMetrics:
        """Update the model once, by all batches of a step, counted from 0, with a learning rate.

        Neither weights nor moments are updated where the loss or the gradient is not finite.

        Raises:
            LostProcessError: another process has ended; nothing is updated.
        """
        for optimizer in self.optimizers:
            for parameters in optimizer.param_groups:
                parameters["lr"] = rate
        self.model.train()

        # The gradient of the mean loss, summed over all processes.
        my_loss, my_batches = self._add_gradients(step)
        if self.group.size > 1:
            sum_gradients(self.model, self.group)

        # Clip the dense gradients. Those of tables are sparse; they come through the same layers and need no clipping.
        dense: list[Tensor] = []
        sum_of_tables = 0.0
        for parameter in self.model.parameters():
            if parameter.grad is None:
                continue
            if parameter.grad.is_sparse:
                sum_of_tables += float(parameter.grad._values().sum())  # not finite if any is
            else:
                dense.append(parameter)
        grad_norm = float(torch.nn.utils.clip_grad_norm_(dense, self.config.max_grad_norm))
        is_finite = math.isfinite(grad_norm) and math.isfinite(sum_of_tables)

        # All processes have equal gradients, and decide together all the same: one that kept a step which the others
        # skip would have another model from then on.
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
            if metrics.has_updated:
                optimizer.step()
            optimizer.zero_grad()
        return metrics

    def _add_gradients(self, step: int) -> tuple[float, list[TrainingBatch]]:
        """Add the gradients of this process's shards of a step's batches; return its part of the loss, and its batches.

        The loss is divided by the normalizer of all batches together: so small batches give the same gradient as a
        large one, that of the mean loss over all their targets.
        """
        num_shards = self.config.gradient_shards
        seed = derive_seed(self.seed, step)

        # Draw the batches. Each shard has random numbers of its own, whichever process has it.
        batches_of_shards: dict[int, Sequence[TrainingBatch]] = {}
        for shard in self.group.dealt(num_shards):
            torch.manual_seed(derive_seed(seed, shard) if num_shards > 1 else seed)
            batches_of_shards[shard] = self.batches_at(step, shard, num_shards)
        batches = [batch for shard in batches_of_shards.values() for batch in shard]

        normalizer: Tensor | float = sum(batch.normalizer for batch in batches)
        if self.group.size > 1:
            (normalizer,) = self.group.summed(float(normalizer))

        # Forward and backward, batch by batch.
        mean_loss = 0.0
        for shard, shard_batches in batches_of_shards.items():
            if num_shards > 1:
                torch.manual_seed(derive_seed(seed, shard, 1))  # other shards have drawn since
            for batch in shard_batches:
                with autocast(self.precision, self.device):
                    loss: Tensor = self._summed_loss(batch) / normalizer
                loss.backward()  # type: ignore[no-untyped-call]
                mean_loss += loss.item()
        return mean_loss, batches

    def _summed_loss(self, batch: TrainingBatch) -> Tensor:
        if self.loss_function is None:
            return batch.loss(self.model)
        return self.loss_function(self.model, batch)

    # --- The loop -----------------------------------------------------------------------------------------------------

    def run(
        self, state: TrainingState, *, seconds: float | None = None, may_skip: bool = False
    ) -> Iterator[StepDone | ValidationDone | Ended]:
        """Train until the last step, or until patience or time runs out; yields each step, each validation and the end.

        Args:
            state: where to go on.
            seconds: the time for the training and all that follows it.
            may_skip: whether the training is skipped where there is time for a few steps only.

        Raises:
            StoppedError: a signal arrived, before a step or during a validation.
            DivergedError: the loss, the logits of a validation or the gradients of more than `MOST_SKIPPED_IN_A_ROW`
                steps in a row are not finite; the step has updated nothing.
            LostProcessError: another process has ended.
        """
        has_no_time = self.group.decide(seconds == 0)
        if has_no_time and may_skip and state.step_in_training == 0 and state.outcome is None:
            yield Ended(replace(state, step_limit=0, outcome="skipped"))
            return

        timer = _Timer(seconds)
        row_tokens = 0
        row_seconds = 0.0

        while True:
            if self.is_validation_due(state):
                self.group.decide(None)  # where the first process has ended, the others end here
                state, validation = self._validated(state)
                yield ValidationDone(state, validation, is_best=state.best_step == state.step)

            outcome = self.outcome(state)
            if outcome is not None:
                release_memory()
                yield Ended(replace(state, outcome=outcome))
                return

            # The first process heeds signals, and the others end with it.
            check_stop()
            self.group.decide(None)

            started = time.perf_counter()
            rate = learning_rate(
                state.step_in_training, total_steps=self.num_steps(state), config=self.config
            )
            metrics = self.step(state.step_in_training, rate)
            self._check_finite(state, metrics, rate)
            state = state.after_step(metrics)
            seconds_taken = time.perf_counter() - started

            # The first steps tell how many there is time for.
            timer.add(seconds_taken)
            if seconds is not None and state.step_limit is None:
                state = self._with_step_limit(state, timer, may_skip=may_skip)

            values = None
            row_tokens += metrics.tokens
            row_seconds += seconds_taken
            if state.step_in_training % self.config.log_every == 0:
                values = {
                    **state.mean_metrics(),
                    "learning_rate": rate,
                    "tokens_per_s": row_tokens / row_seconds,
                    "epoch": self.epoch(state),
                }
                state = replace(state, sums={})
                row_tokens = 0
                row_seconds = 0.0
            yield StepDone(state, metrics.loss, values)

            if state.step % STEPS_BETWEEN_RELEASES == 0:
                release_memory()

    def num_steps(self, state: TrainingState) -> int:
        """The maximum number of steps: those of all epochs, or as many as the time allows."""
        return self.schedule.total_steps if state.step_limit is None else state.step_limit

    def epoch(self, state: TrainingState) -> float:
        """The epochs done, as a fraction."""
        return state.step_in_training / self.schedule.steps_per_epoch

    def is_validation_due(self, state: TrainingState) -> bool:
        """Whether a validation comes before the next step."""
        if state.outcome == "skipped" or state.step == state.validated_step:
            return False
        step = state.step_in_training
        return step % self.schedule.validate_every == 0 or step == self.num_steps(state)

    def outcome(self, state: TrainingState) -> Outcome | None:
        """How the training has ended; None if it goes on."""
        if state.outcome is not None:
            return state.outcome
        if self.patience is not None and state.stale_validations >= self.patience:
            return "patience"
        if state.step_in_training < self.num_steps(state):
            return None
        return "done" if self.num_steps(state) == self.schedule.total_steps else "time"

    def has_work_left(self, state: TrainingState) -> bool:
        """Whether a step or a validation is left."""
        return self.is_validation_due(state) or self.outcome(state) is None

    def affordable_steps(self, seconds: float, seconds_per_step: float) -> int:
        """The number of steps that fit into a time, with their validations and what follows the training."""
        steps = seconds / seconds_per_step - self.validation_cost - self.report_cost  # or infinite
        affordable = steps / (1 + self.validation_cost / self.schedule.validate_every)
        return int(min(max(affordable, 0), self.schedule.total_steps))

    def _validated(self, state: TrainingState) -> tuple[TrainingState, Validation | None]:
        """Validate the model; all processes get the score, the first one also the result."""
        with self.group.deferring_stops():
            result = self.validate(self.model_for_users)
        if self.group.leads and result is None:
            raise DivergedError(state.step, "the logits of a validation text are not finite")

        my_score = vars(result.score) if result else {}
        score = Score(**self.group.decide(my_score))
        is_warming_up = state.step_in_training <= warmup_steps(self.num_steps(state), self.config)
        return state.after_validation(score, is_warming_up=is_warming_up), result

    def _with_step_limit(
        self, state: TrainingState, timer: _Timer, *, may_skip: bool
    ) -> TrainingState:
        """Decide the number of steps by the time of the first ones; the state keeps it, also for a resumed run."""
        steps = None
        if timer.is_sure:
            steps_before = state.step_in_training - timer.steps
            steps = steps_before + self.affordable_steps(timer.limit, timer.seconds_per_step)
        steps = self.group.decide(steps)
        if steps is None:
            return state

        done = state.step_in_training
        total = self.schedule.total_steps
        if may_skip and steps < min(FEWEST_STEPS, total):
            return replace(state, step_limit=done, outcome="skipped")
        return replace(state, step_limit=min(max(steps, done), total))

    def _check_finite(self, state: TrainingState, metrics: StepMetrics, rate: float) -> None:
        """Raise a `DivergedError` for a loss that is not finite, or for too many such gradients in a row."""
        has_failed_too_often = (
            not metrics.has_updated and state.skipped_in_a_row == MOST_SKIPPED_IN_A_ROW
        )
        if metrics.has_finite_loss and not has_failed_too_often:
            return

        reason = f"loss {metrics.loss}, gradient norm {metrics.grad_norm}, learning rate {rate:.3g}"
        if state.skipped_in_a_row:
            reason += f", after {state.skipped_in_a_row} skipped steps"
        texts = self.describe_step(state.step_in_training)
        raise DivergedError(state.step + 1, f"{reason}, batch of {texts}, …")


@dataclass(frozen=True, kw_only=True)
class TrainingState:
    """All that decides how a training goes on, besides weights and moments.

    Attributes:
        step: optimizer steps done in the run, those of an earlier pretraining counted.
        first_step: the steps done before this training.
        step_limit: its number of steps, once a time budget has decided it.
        validated_step: the step of the last validation.
        best_score: the best score so far.
        best_step: its step.
        stale_validations: the later validations that count against patience.
        skipped_in_a_row: the last steps that updated nothing, since their gradient was not finite.
        sums: of the metrics of steps that are not logged yet.
        outcome: how it has ended; None before.
    """

    step: int = 0
    first_step: int = 0
    step_limit: int | None = None
    validated_step: int = 0
    best_score: Score | None = None
    best_step: int = 0
    stale_validations: int = 0
    skipped_in_a_row: int = 0
    sums: dict[str, float] = field(default_factory=dict)
    outcome: Outcome | None = None

    @classmethod
    def starting_at(cls, step: int) -> TrainingState:
        """The state of a training that follows another one."""
        return cls(step=step, first_step=step, validated_step=step, best_step=step)

    @property
    def step_in_training(self) -> int:
        """Optimizer steps done in this training."""
        return self.step - self.first_step

    def after_step(self, metrics: StepMetrics) -> TrainingState:
        """The state one step later, with its metrics added to the sums."""
        is_skipped = not metrics.has_updated
        added = {
            "steps": 1,
            "skipped_steps": 1 if is_skipped else 0,
            "loss": metrics.loss,
            "grad_norm": 0.0 if is_skipped else metrics.grad_norm,
            "tokens": metrics.tokens,
            "padded_tokens": metrics.padded_tokens,
        }
        return replace(
            self,
            step=self.step + 1,
            skipped_in_a_row=self.skipped_in_a_row + 1 if is_skipped else 0,
            sums={name: self.sums.get(name, 0.0) + value for name, value in added.items()},
        )

    def after_validation(self, score: Score, *, is_warming_up: bool) -> TrainingState:
        """The state after a validation: one without a better score is stale, unless the learning rate still rises."""
        if score.is_better_than(self.best_score):
            return replace(
                self,
                validated_step=self.step,
                best_score=score,
                best_step=self.step,
                stale_validations=0,
            )
        stale_validations = 0 if is_warming_up else self.stale_validations + 1
        return replace(self, validated_step=self.step, stale_validations=stale_validations)

    def mean_metrics(self) -> dict[str, float]:
        """The means of the metrics since the last row of the log, and how many steps were skipped, if any."""
        sums = self.sums
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


class StepDone(NamedTuple):
    """A step is done; `values` is the row to log, if one is due."""

    state: TrainingState
    loss: float
    values: dict[str, float] | None


class ValidationDone(NamedTuple):
    """A validation is done; only the first process has its result. `is_best`: it is the best so far."""

    state: TrainingState
    result: Validation | None
    is_best: bool


class Ended(NamedTuple):
    """The training has ended; the state has its outcome."""

    state: TrainingState


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


def sum_gradients(model: nn.Module, group: ProcessGroup) -> None:
    """Sum the gradients of all processes: the dense ones in one buffer, of each table the rows that have one."""
    sparse = tables(model)
    dense = [parameter for name, parameter in model.named_parameters() if name not in sparse]

    # One buffer for all dense gradients, and for which of them there are.
    gradients = [torch.zeros_like(p) if p.grad is None else p.grad for p in dense]
    counts = torch.tensor([p.grad is not None for p in dense]).to(gradients[0])
    buffer = torch.cat([*(gradient.flatten() for gradient in gradients), counts])
    group.sum(buffer)

    *sums, counts = torch.split(buffer, [*(p.numel() for p in dense), len(dense)])
    for parameter, gradient, count in zip(dense, sums, counts.tolist(), strict=True):
        parameter.grad = gradient.view_as(parameter) if count else None

    # The rows of each table, gathered: a sum over whole tables would cost what the tables cost.
    for table in sparse.values():
        if table.grad is None:
            rows = torch.empty(0, dtype=torch.int64, device=table.device)
            values = table.new_empty(0, table.shape[1])
        else:
            rows, values = sum_by_row(table.grad)
        rows = torch.cat(group.gather(rows))
        values = torch.cat(group.gather(values))
        if len(rows):
            # Not by the argument `check_invariants`, of which torch 2.11 warns.
            with torch.sparse.check_sparse_tensor_invariants(enable=False):  # type: ignore[no-untyped-call]
                table.grad = torch.sparse_coo_tensor(rows[None], values, table.shape)


def _saved(tensors: Mapping[str, Tensor]) -> bytes:
    contiguous = {name: tensor.detach().cpu().contiguous() for name, tensor in tensors.items()}
    return safetensors.torch.save(contiguous)
