"""Train an encoder: the step and the loop.

Pretraining and training on labels use the same loop, and differ in their `TrainingTask`. A step
depends only on the weights, the optimizers' moments and the step's index, so a resumed training
computes the same as one that was never interrupted.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Generator, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import chain
from typing import NamedTuple, Protocol, Self

import safetensors.torch
import torch
from torch import Tensor

from encoder_cls.config.schema import TrainConfig
from encoder_cls.encoder.batch_loader import BatchLoader
from encoder_cls.encoder.distributed import ProcessGroup
from encoder_cls.encoder.embedding_tables import without_untrained
from encoder_cls.encoder.gradients import clip_gradients, sum_gradients
from encoder_cls.encoder.learning_rate import learning_rate, warmup_steps
from encoder_cls.encoder.nested_tensors import on_device
from encoder_cls.encoder.optimizer import Optimizer, load_moments, moments_of
from encoder_cls.encoder.random_numbers import derive_seed, seed_random_numbers
from encoder_cls.encoder.step_graphs import Recorder, StepGraphs
from encoder_cls.encoder.step_limit import CPU_TIMING, GPU_TIMING, StepLimiter, TrainingLength
from encoder_cls.encoder.torch_encoder import Batch
from encoder_cls.encoder.training_state import Outcome, StepMetrics, TrainingState
from encoder_cls.encoder.transformer import EncoderClassifier
from encoder_cls.errors import DivergedError
from encoder_cls.metrics.validation_score import ValidationScore
from encoder_cls.system.machine import autocast, release_memory
from encoder_cls.system.stop import check_stop

# --- What is learned ------------------------------------------------------------------------------


class TrainingBatch(Protocol):
    """A batch of texts, and the loss of a model on them.

    It is a dataclass, so that its tensors can be copied to a device (`nested_tensors.on_device`).
    """

    @property
    def inputs(self) -> Batch:
        """The token ids and character n-grams of the texts."""

    @property
    def normalizer(self) -> Tensor:
        """The number by which `loss` is divided to get the mean loss, ()."""

    def loss(self, model: EncoderClassifier) -> Tensor:
        """The sum of the losses of all targets, ()."""

    def padded(self, *, max_seq_len: int) -> Self:
        """The same batch, padded to one of few shapes; its loss is the same up to rounding.

        Args:
            max_seq_len: the maximum number of tokens of a text.
        """


class HasScore(Protocol):
    """The result of a validation, with the score by which validations are compared."""

    @property
    def score(self) -> ValidationScore:
        """The score of the model on the validation texts."""


class TrainingTask(Protocol):
    """What a model learns in a training, and how it is scored."""

    def batches_at(
        self, step: int, shard: int, num_shards: int, generator: torch.Generator | None = None, /
    ) -> Sequence[TrainingBatch]:
        """Make one shard of each batch of a step, and no empty ones, on the CPU.

        Args:
            step: the index of the step, counted from 0.
            shard: the number of the shard, counted from 0.
            num_shards: the number of shards into which each batch is divided.
            generator: draws the random numbers; None for torch's default generator.
        """

    def validate(self, model: EncoderClassifier) -> HasScore | None:
        """Score a model on the validation texts, by all processes together.

        Returns:
            None in all processes but the first. In the first process, None means that the logits or
            the loss are not finite.
        """

    def describe_step(self, step: int) -> str:
        """Name where some texts of a step were read, such as `train.csv:7`, for error messages."""


# --- A step ---------------------------------------------------------------------------------------


class StepBatches(NamedTuple):
    """This process's shards of a step's batches.

    Attributes:
        step: the index of the step, counted from 0.
        shards: the batches, by the number of their shard.
        tokens: the number of tokens without padding, ().
        padded_tokens: the number of tokens with padding, ().
    """

    step: int
    shards: dict[int, list[TrainingBatch]]
    tokens: Tensor
    padded_tokens: Tensor


class StartedStep(NamedTuple):
    """A step whose metrics may not be known yet, because a device is still computing it.

    Attributes:
        sums: the loss, the number of tokens without padding, the number of tokens with padding, and
            the number of processes whose gradient is not finite, summed over all processes, (4,).
        grad_norm: the norm of the dense gradients before clipping, ().
    """

    sums: Tensor
    grad_norm: Tensor

    def metrics(self) -> StepMetrics:
        """Wait for the metrics of the step."""
        (metrics,) = metrics_of([self])
        return metrics


def metrics_of(steps: Sequence[StartedStep]) -> list[StepMetrics]:
    """Wait for the metrics of several steps, which come from the device in a single copy."""
    sums = torch.stack([step.sums for step in steps])
    grad_norms = torch.stack([step.grad_norm for step in steps])
    rows = torch.column_stack([sums, grad_norms])

    all_metrics = []
    for loss, tokens, padded_tokens, num_failed, grad_norm in rows.tolist():
        metrics = StepMetrics(
            loss=loss,
            grad_norm=grad_norm,
            tokens=int(tokens),
            padded_tokens=int(padded_tokens),
            has_finite_gradient=num_failed == 0,
        )
        all_metrics.append(metrics)
    return all_metrics


# --- The events of a training ---------------------------------------------------------------------


class StepDone(NamedTuple):
    """The event that the loop yields for each step.

    A training that runs ahead yields the events of several steps at once, when their metrics are
    known. The model is then that of the last of these steps. So steps after which a checkpoint is
    due, and steps before a validation, are always the last ones.

    Attributes:
        state: the state of the training after the step.
        loss: the mean loss of the step.
        values: the metrics to log; None if the step is between two rows of the log.
    """

    state: TrainingState
    loss: float
    values: dict[str, float] | None


class ValidationDone(NamedTuple):
    """The event that the loop yields after each validation.

    Attributes:
        state: the state of the training after the validation.
        result: the result of the validation; None in all processes but the first.
        is_best: whether the score is the best so far.
    """

    state: TrainingState
    result: HasScore | None
    is_best: bool


class Ended(NamedTuple):
    """The last event of the loop; the state has the outcome of the training."""

    state: TrainingState


@dataclass
class Speed:
    """The tokens without padding, and the seconds, of the steps since the last row of the log."""

    tokens: int = 0
    seconds: float = 0.0

    def add(self, tokens: int, seconds: float) -> None:
        """Add a step."""
        self.tokens += tokens
        self.seconds += seconds

    def tokens_per_second(self) -> float:
        """The tokens per second."""
        return self.tokens / self.seconds

    def reset(self) -> None:
        """Begin after a row of the log."""
        self.tokens = 0
        self.seconds = 0.0


# --- A training -----------------------------------------------------------------------------------

# The number of steps in a row that may be skipped because their gradients are not finite. After one
# more, the training has diverged.
MAX_SKIPPED_IN_A_ROW = 2

# The maximum number of steps that are started before their metrics are read. The progress bar and
# signals to stop wait for these steps.
MAX_STEPS_AHEAD = 50

# Freed memory is returned to the system after this many steps. To return it every ten steps would
# take 5% of the training time.
STEPS_BETWEEN_RELEASES = 50


@dataclass(kw_only=True)
class EncoderTraining:
    """The training of one model by all processes of a group.

    Attributes:
        name: the name in logs and messages, `pretraining` or `model`.
        model: the model in training. It has the same weights in all processes.
        optimizers: the optimizers of the model's parameters.
        task: makes the batches of a step, and scores the model.
        length: the maximum length of the training, and the interval of its validations.
        config: the learning rate, the clipping of gradients, the interval of log rows.
        seed: the seed of the random numbers of all steps.
        device: the device of the model.
        precision: the precision of matrix products, torch.float32 or torch.bfloat16.
        group: the processes that train together.
        patience: the number of validations in a row without a better score after which the training
            ends; None if it trains for all epochs.
        validation_cost: the time of a validation, measured in steps.
        report_cost: the time of everything that follows the training, measured in steps.
        loss_function: a user's own function, which returns the summed loss of a batch; None if
            `TrainingBatch.loss` is used.
        initial_tables: the model's embedding tables before its first training, by name. Rows that
            still have these values were never trained. None if such rows do not matter.
        runs_ahead: whether steps are started before the metrics of earlier steps are known, and
            batches are made ahead. This suits a GPU, which computes while this process continues.
        recorder: records the steps as CUDA graphs, one for each shape of a batch; None if they are
            not recorded. Only the steps of a training that runs ahead can be recorded, because
            nothing in them waits for the device.
    """

    name: str
    model: EncoderClassifier
    optimizers: Sequence[Optimizer]
    task: TrainingTask
    length: TrainingLength
    config: TrainConfig
    seed: int
    device: torch.device
    precision: torch.dtype
    group: ProcessGroup
    patience: int | None = None
    validation_cost: float = 0.0
    report_cost: float = 0.0
    loss_function: Callable[[EncoderClassifier, TrainingBatch], Tensor] | None = None
    initial_tables: Mapping[str, Tensor] | None = None
    runs_ahead: bool = False
    recorder: Recorder | None = None

    def __post_init__(self) -> None:
        self._loader = BatchLoader(
            self._make_batches, device=self.device, makes_ahead=self.runs_ahead
        )
        self._graphs: StepGraphs[StepBatches, StartedStep] | None = None
        if self.recorder:
            self._graphs = StepGraphs(self._compute_step, self.recorder)
            for optimizer in self.optimizers:
                optimizer.keep_learning_rate_on(self.device)

    @property
    def model_for_users(self) -> EncoderClassifier:
        """The model that is validated and saved, with zeros in the table rows never trained."""
        if self.initial_tables is None:
            return self.model
        return without_untrained(self.model, self.initial_tables)

    def share_weights(self) -> None:
        """Copy the weights and moments of the first process to all others."""
        if self.group.size == 1:
            return
        weights = self.group.broadcast_bytes(_as_safetensors(self.model.state_dict()))
        moments = self.group.broadcast_bytes(_as_safetensors(moments_of(self.optimizers)))

        if not self.group.is_first:
            self.model.load_state_dict(safetensors.torch.load(weights))
            load_moments(self.optimizers, safetensors.torch.load(moments))

    # --- The step ---------------------------------------------------------------------------------

    def train_step(self, step: int, rate: float) -> StartedStep:
        """Update the model once, with the gradient of all batches of a step.

        If the loss or the gradient is not finite, neither weights nor moments are updated. If the
        training runs ahead, the device decides this, and nothing here waits for the device.

        Args:
            step: the index of the step, counted from 0.
            rate: the learning rate.

        Raises:
            LostProcessError: another process has ended; nothing is updated.
        """
        for optimizer in self.optimizers:
            optimizer.set_learning_rate(rate)

        # Seed the random numbers of the model, such as the masks of dropout. Batches that are made
        # by the default generator have seeded it, and their model continues with its numbers.
        batches = self._loader.batches_of_step(step)
        if self.runs_ahead:
            seed_random_numbers(derive_seed(self.seed, step), self.device)

        if self._graphs is None:
            return self._compute_step(on_device(batches, self.device))
        return self._graphs(batches)

    def _compute_step(self, batches: StepBatches) -> StartedStep:
        """Update the model once, with the gradient of batches on the device."""
        self.model.train()

        # Compute the gradient of the mean loss over the targets of all batches and processes.
        my_loss = self._add_gradients(batches)
        if self.group.size > 1:
            sum_gradients(self.model, self.group)
        grad_norm, is_finite = clip_gradients(self.model, self.config.max_grad_norm)

        # Sum the metrics over all processes. If one process has a gradient that is not finite, all
        # processes skip the step: otherwise their weights would differ from then on.
        sums = torch.stack(
            [
                my_loss,
                batches.tokens,
                batches.padded_tokens,
                (~is_finite).to(my_loss.dtype),
            ]
        )
        self.group.sum(sums)

        # Update the model, or skip a step that is not finite. A training that runs ahead lets the
        # device decide, because reading `should_skip` here would wait for the device.
        loss, _, _, num_failed = sums.unbind()
        should_skip = (num_failed > 0) | ~loss.isfinite()
        if self.runs_ahead:
            self._update(should_skip.float())
        elif not should_skip:
            self._update()
        for optimizer in self.optimizers:
            optimizer.zero_grad()
        return StartedStep(sums, grad_norm)

    def _make_batches(self, step: int, generator: torch.Generator | None) -> StepBatches:
        """Make this process's shards of a step's batches, on the CPU.

        The random numbers of a shard do not depend on the process that has it. The generator draws
        them; None means torch's default generator.
        """
        num_shards = self.config.gradient_shards
        seed = derive_seed(self.seed, step)

        shards: dict[int, list[TrainingBatch]] = {}
        tokens = 0
        padded_tokens = 0
        for shard in self.group.share(num_shards):
            shard_seed = seed
            if num_shards > 1:
                shard_seed = derive_seed(seed, shard)
            if generator is None:
                seed_random_numbers(shard_seed, self.device)
            else:
                generator.manual_seed(shard_seed)

            batches = list(self.task.batches_at(step, shard, num_shards, generator))
            if self.recorder:
                batches = [self._padded(batch) for batch in batches]
            shards[shard] = batches

            for batch in batches:
                mask = batch.inputs.attention_mask
                tokens += int(mask.sum())
                padded_tokens += mask.numel()

        return StepBatches(
            step,
            shards,
            tokens=torch.tensor(tokens, dtype=torch.float64),
            padded_tokens=torch.tensor(padded_tokens, dtype=torch.float64),
        )

    def _padded(self, batch: TrainingBatch) -> TrainingBatch:
        """Pad a batch to one of few shapes, because a graph is recorded for each shape."""
        return batch.padded(max_seq_len=self.model.encoder.embedding.positions.max_seq_len)

    def _add_gradients(self, batches: StepBatches) -> Tensor:
        """Add up the gradients of this process's shards of a step's batches.

        The loss is divided by the summed normalizer of all batches, so that several small batches
        give the same gradient as one large batch.

        Returns:
            This process's part of the mean loss, in float64, ().
        """
        my_batches = chain.from_iterable(batches.shards.values())
        normalizer: Tensor | float = sum(batch.normalizer for batch in my_batches)
        if self.group.size > 1:
            (normalizer,) = self.group.summed(float(normalizer))

        # Run the forward and the backward pass for each batch.
        mean_loss = torch.zeros((), dtype=torch.float64, device=self.device)
        for shard, batches_of_shard in batches.shards.items():
            self._seed_shard(batches.step, shard)
            for batch in batches_of_shard:
                with autocast(self.precision, self.device):
                    loss: Tensor = self._summed_loss(batch) / normalizer
                loss.backward()  # type: ignore[no-untyped-call]
                mean_loss += loss.detach()
        return mean_loss

    def _seed_shard(self, step: int, shard: int) -> None:
        """Seed the random numbers of the model for one of several shards.

        They do not depend on the process that has the shard.
        """
        if self.config.gradient_shards > 1:
            seed = derive_seed(self.seed, step)
            seed_random_numbers(derive_seed(seed, shard, 1), self.device)

    def _summed_loss(self, batch: TrainingBatch) -> Tensor:
        """The sum of the losses of a batch, (), by the user's function if there is one."""
        if self.loss_function is None:
            return batch.loss(self.model)
        return self.loss_function(self.model, batch)

    def _update(self, found_inf: Tensor | None = None) -> None:
        """Update all parameters.

        Args:
            found_inf: 1 if nothing may change, because a gradient is not finite, else 0, (); None
                if all gradients are finite.
        """
        for optimizer in self.optimizers:
            optimizer.step(found_inf)

    # --- The loop ---------------------------------------------------------------------------------

    def run(
        self, state: TrainingState, *, seconds: float | None = None, may_skip: bool = False
    ) -> Iterator[StepDone | ValidationDone | Ended]:
        """Train until the last step, or until patience or time runs out.

        Args:
            state: the state from which the training continues.
            seconds: the time for the training and everything that follows it; None if there is no
                time budget, 0 if the time is used up.
            may_skip: whether the training is skipped if there is time for a few steps only.

        Yields:
            An event for each step, for each validation and for the end.

        Raises:
            StoppedError: a signal arrived before a step or during a validation.
            DivergedError: the loss of a step, the logits of a validation, or the gradients of more
                than `MAX_SKIPPED_IN_A_ROW` steps in a row are not finite. The last step has updated
                nothing.
            LostProcessError: another process has ended.
        """
        with self._loader:
            try:
                yield from self._events(state, seconds, may_skip=may_skip)
            finally:
                if self._graphs is not None:
                    self._graphs.clear()

    def _events(
        self, state: TrainingState, seconds: float | None, *, may_skip: bool
    ) -> Iterator[StepDone | ValidationDone | Ended]:
        """Train; the arguments and the events are those of `run`."""
        # All processes follow the first one, because their clocks may differ.
        has_no_time = self.group.broadcast_value(seconds == 0)
        if has_no_time and may_skip and state.step_in_training == 0 and state.outcome is None:
            yield Ended(replace(state, step_limit=0, outcome="skipped"))
            return

        limiter = StepLimiter(
            seconds,
            length=self.length,
            validation_cost=self.validation_cost,
            report_cost=self.report_cost,
            may_skip=may_skip,
            timing=GPU_TIMING if self.device.type == "cuda" else CPU_TIMING,
            group=self.group,
        )
        speed = Speed()

        while True:
            if self.is_validation_due(state):
                self.group.exit_if_first_has_ended()
                state, result = self._validate(state)

                # A new best score has set the best step to the current one.
                is_best = state.best_step == state.step
                yield ValidationDone(state, result, is_best=is_best)

            outcome = self.outcome(state)
            if outcome is not None:
                release_memory()
                yield Ended(replace(state, outcome=outcome))
                return

            # The first process stops at a signal, and the others end with it.
            check_stop()
            self.group.exit_if_first_has_ended()

            state = yield from self._take_steps(state, limiter, speed)

    def _take_steps(
        self, state: TrainingState, limiter: StepLimiter, speed: Speed
    ) -> Generator[StepDone, None, TrainingState]:
        """Take a step, or several if the training runs ahead, and yield an event for each.

        Args:
            state: the state before the steps.
            limiter: times the steps, and decides after the last one whether the time is limited.
            speed: the tokens and the time since the last row of the log, which are updated.

        Returns:
            The state after the steps.
        """
        # Start the steps, then wait for their metrics.
        started = time.perf_counter()
        steps = self._start_steps(state, limiter, started)
        all_metrics = metrics_of(steps)
        seconds = time.perf_counter() - started
        last_step = state.step + len(steps)

        for metrics in all_metrics:
            rate = self._learning_rate(state.step_in_training, state)
            self._check_finite(state, metrics, rate)
            state = state.after_step(metrics)

            # The speed of the first steps shows how many steps the time budget allows.
            if state.step == last_step:
                limiter.add_steps(len(steps), seconds)
                if limiter.is_deciding(state):
                    state = limiter.decide(state)

            # A row of the log has the means over all steps since the row before.
            row = None
            speed.add(metrics.tokens, seconds / len(steps))
            if state.step_in_training % self.config.log_every == 0:
                row = {
                    **state.mean_metrics(),
                    "learning_rate": rate,
                    "tokens_per_s": speed.tokens_per_second(),
                    "epoch": self.epoch(state),
                }
                state = replace(state, sums={})
                speed.reset()
            yield StepDone(state, metrics.loss, row)

            if state.step % STEPS_BETWEEN_RELEASES == 0:
                release_memory()
        return state

    def _start_steps(
        self, state: TrainingState, limiter: StepLimiter, started: float
    ) -> list[StartedStep]:
        """Start the next step, or several if the training runs ahead.

        While the step limit is not decided, the last one is the step that decides it.

        Args:
            state: the state before the steps.
            limiter: decides the step limit.
            started: the time at which the first of these steps starts, by `time.perf_counter`.
        """
        steps: list[StartedStep] = []
        for step in self._steps_to_start(state):
            if steps and limiter.is_deciding(state):
                seconds = time.perf_counter() - started
                if limiter.has_enough_with(len(steps), seconds):
                    break
            steps.append(self.train_step(step, self._learning_rate(step, state)))
        return steps

    def _steps_to_start(self, state: TrainingState) -> range:
        """The steps to start before their metrics are read, counted from 0.

        A training that runs ahead starts the steps up to the next row of the log, validation or
        checkpoint, whichever comes first. Any other training starts a single step.
        """
        first = state.step_in_training
        if not self.runs_ahead:
            return range(first, first + 1)

        ends = [
            first + MAX_STEPS_AHEAD,
            self.max_steps(state),
            _next_multiple(first, self.config.log_every),
            _next_multiple(first, self.length.validate_every),
        ]
        # Checkpoints are due by the steps of the run, which may begin with another training.
        if self.config.checkpoint_every:
            next_checkpoint = _next_multiple(state.step, self.config.checkpoint_every)
            ends.append(next_checkpoint - state.first_step)
        return range(first, min(ends))

    def _learning_rate(self, step: int, state: TrainingState) -> float:
        """The learning rate of a step, counted from 0."""
        return learning_rate(step, total_steps=self.max_steps(state), config=self.config)

    def max_steps(self, state: TrainingState) -> int:
        """The maximum number of steps: those of all epochs, or as many as the time allows."""
        if state.step_limit is None:
            return self.length.total_steps
        return state.step_limit

    def epoch(self, state: TrainingState) -> float:
        """The number of epochs done, with a fraction for the current one."""
        return state.step_in_training / self.length.steps_per_epoch

    def is_validation_due(self, state: TrainingState) -> bool:
        """Whether the model is validated before the next step."""
        if state.outcome == "skipped" or state.step == state.validated_step:
            return False
        step = state.step_in_training
        return step % self.length.validate_every == 0 or step == self.max_steps(state)

    def outcome(self, state: TrainingState) -> Outcome | None:
        """How the training has ended; None if it has not ended yet."""
        if state.outcome is not None:
            return state.outcome
        if self.patience is not None and state.stale_validations >= self.patience:
            return "patience"
        if state.step_in_training < self.max_steps(state):
            return None
        return "done" if self.max_steps(state) == self.length.total_steps else "time"

    def _validate(self, state: TrainingState) -> tuple[TrainingState, HasScore | None]:
        """Validate the model, and return the state after the validation and its result.

        The state has the score in all processes; only the first process has the result.
        """
        with self.group.deferring_stops():
            result = self.task.validate(self.model_for_users)
        if self.group.is_first and result is None:
            raise DivergedError(state.step, "the logits of a validation text are not finite")

        my_score = vars(result.score) if result else {}
        score = ValidationScore(**self.group.broadcast_value(my_score))

        # Validations in which the learning rate still rises do not count against patience.
        is_warming_up = state.step_in_training <= warmup_steps(self.max_steps(state), self.config)
        return state.after_validation(score, is_warming_up=is_warming_up), result

    def _check_finite(self, state: TrainingState, metrics: StepMetrics, rate: float) -> None:
        """Raise a `DivergedError` if the loss or too many gradients in a row are not finite.

        Args:
            state: the state before the step.
            metrics: the metrics of the step.
            rate: the learning rate of the step.
        """
        has_failed_too_often = (
            not metrics.should_update and state.skipped_in_a_row == MAX_SKIPPED_IN_A_ROW
        )
        if metrics.has_finite_loss and not has_failed_too_often:
            return

        reason = f"loss {metrics.loss}, gradient norm {metrics.grad_norm}, learning rate {rate:.3g}"
        if state.skipped_in_a_row:
            reason += f", after {state.skipped_in_a_row} skipped steps"
        texts = self.task.describe_step(state.step_in_training)
        raise DivergedError(state.step + 1, f"{reason}; the batch includes {texts}")


def _next_multiple(number: int, interval: int) -> int:
    """The least multiple of an interval that is greater than a number."""
    return (number // interval + 1) * interval


def _as_safetensors(tensors: Mapping[str, Tensor]) -> bytes:
    """The content of a safetensors file with these tensors."""
    contiguous = {name: tensor.detach().cpu().contiguous() for name, tensor in tensors.items()}
    return safetensors.torch.save(contiguous)
