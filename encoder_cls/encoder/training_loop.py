"""Train an encoder: the loss, the step and the loop.

Pretraining and training on labels use the same loop; they differ in their batches and in their
validation. A step depends only on the weights, the optimizers' moments and the step's index, so a
resumed training computes the same as one that was never interrupted.
"""

from __future__ import annotations

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
from encoder_cls.encoder.learning_rate import learning_rate, warmup_steps
from encoder_cls.encoder.optimizer import Optimizer, load_moments, moments_of
from encoder_cls.encoder.step_limit import StepLimiter, TrainingLength
from encoder_cls.encoder.torch_encoder import Batch
from encoder_cls.encoder.training_state import Outcome, StepMetrics, TrainingState
from encoder_cls.encoder.transformer import EncoderClassifier
from encoder_cls.errors import DivergedError
from encoder_cls.metrics.validation_score import ValidationScore
from encoder_cls.system.machine import autocast, release_memory
from encoder_cls.system.stop import check_stop

# --- The loss -------------------------------------------------------------------------------------


class TrainingBatch(Protocol):
    """A batch of texts, and the loss of a model on them."""

    @property
    def inputs(self) -> Batch:
        """The token ids and character n-grams of the texts."""

    @property
    def normalizer(self) -> Tensor:
        """The number by which `loss` is divided to get the mean loss, ()."""

    def loss(self, model: EncoderClassifier) -> Tensor:
        """The sum of the losses of all targets, ()."""


@dataclass(frozen=True, kw_only=True)
class ClassificationBatch:
    """A batch of texts with target probabilities.

    If `rdrop_weight` is not 0, the loss is that of R-Drop: each text occurs twice in the batch,
    with different dropout masks and different dropped words. The loss gets another term,
    `rdrop_weight` times the symmetric Kullback-Leibler divergence between the two predictions for a
    text (Liang et al., "R-Drop: Regularized Dropout for Neural Networks", 2021,
    https://arxiv.org/abs/2106.14448).

    Attributes:
        inputs: the texts. With R-Drop, the second half of the batch repeats the first half.
        targets: target probabilities, (B, C).
        weights: the weight of each class, (C,). In a `MultiLabelBatch`, this is the weight of each
            label of each text, (B, C).
        rdrop_weight: the weight of the divergence; 0 turns R-Drop off.
        text_weights: how much each text counts, (B,), 1 on average over all texts; None if all
            texts count alike.
    """

    inputs: Batch
    targets: Tensor
    weights: Tensor
    rdrop_weight: float
    text_weights: Tensor | None = None

    @property
    def normalizer(self) -> Tensor:
        """The sum of the class weights of all targets, ().

        The weights of texts do not count: in a batch of a single text, its weight would cancel out.
        """
        return (self.targets @ self.weights).sum()

    def loss(self, model: EncoderClassifier) -> Tensor:
        """The weighted sum of the losses of all texts, ()."""
        logits = model(*self.inputs)
        loss = self._cross_entropy(logits)
        if self.rdrop_weight:
            loss = loss + self.rdrop_weight * self._symmetric_kl(logits)
        return loss

    def _cross_entropy(self, logits: Tensor) -> Tensor:
        if self.text_weights is None:
            return functional.cross_entropy(
                logits, self.targets, weight=self.weights, reduction="sum"
            )
        losses = functional.cross_entropy(
            logits, self.targets, weight=self.weights, reduction="none"
        )
        return (self.text_weights * losses).sum()

    def _symmetric_kl(self, logits: Tensor) -> Tensor:
        """The sum over texts of weight * (KL(p || q) + KL(q || p)) / 2, ().

        p and q are the two predictions for a text.
        """
        log_p, log_q = functional.log_softmax(logits, dim=-1).chunk(2)
        divergences = ((log_p.exp() - log_q.exp()) * (log_p - log_q)).sum(dim=-1) / 2

        # Both halves of the batch have the same targets, and so the same weights.
        all_weights = self.targets @ self.weights
        if self.text_weights is not None:
            all_weights = all_weights * self.text_weights
        weights, _ = all_weights.chunk(2)
        return (weights * divergences).sum()


class MultiLabelBatch(ClassificationBatch):
    """A batch of texts that may have several labels each.

    Its `weights` are (B, C): the weight of each label of each text. They include the weights of the
    texts, so there are no `text_weights`.
    """

    @property
    def normalizer(self) -> Tensor:
        """The number of texts, (): a text counts once, however many labels it has."""
        return torch.tensor(float(len(self.targets)), device=self.targets.device)

    def _cross_entropy(self, logits: Tensor) -> Tensor:
        """The weighted sum of the binary cross entropies of all labels, ()."""
        return functional.binary_cross_entropy_with_logits(
            logits, self.targets, weight=self.weights, reduction="sum"
        )

    def _symmetric_kl(self, logits: Tensor) -> Tensor:
        """The weighted sum of the symmetric divergences of all labels, ().

        The divergence of two Bernoulli distributions is (p - q) * (logit p - logit q) / 2.
        """
        logit_p, logit_q = logits.chunk(2)
        divergences = (logit_p.sigmoid() - logit_q.sigmoid()) * (logit_p - logit_q) / 2

        # Both halves of the batch have the same weights.
        weights, _ = self.weights.chunk(2)
        return (weights * divergences).sum()


# --- A training -----------------------------------------------------------------------------------


class HasScore(Protocol):
    """The result of a validation, with the score by which validations are compared."""

    @property
    def score(self) -> ValidationScore:
        """The score of the model on the validation texts."""


class StepDone(NamedTuple):
    """The event that the loop yields after each step.

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


# The number of steps in a row that may be skipped because their gradients are not finite. After one
# more, the training has diverged.
MAX_SKIPPED_IN_A_ROW = 2

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
        batches_at: `batches_at(step, shard, num_shards)` returns the batches of a step, counted
            from 0: of each batch the given shard, and no empty ones.
        validate: scores a model on the validation texts. It returns None in all processes but the
            first. In the first process, None means that logits are not finite.
        length: the maximum length of the training, and the interval of its validations.
        config: the learning rate, the clipping of gradients, the interval of log rows.
        seed: the seed of the random numbers of all steps.
        device: the device of the model.
        precision: the precision of matrix products, torch.float32 or torch.bfloat16.
        describe_step: returns where some texts of a step were read, such as `train.csv:7`, for
            error messages.
        group: the processes that train together.
        patience: the number of validations in a row without a better score after which the training
            ends; None if it trains for all epochs.
        validation_cost: the time of a validation, measured in steps.
        report_cost: the time of everything that follows the training, measured in steps.
        loss_function: a user's own function, which returns the summed loss of a batch; None if
            `TrainingBatch.loss` is used.
        initial_tables: the model's embedding tables before its first training, by name. Rows that
            still have these values were never trained. None if such rows do not matter.
    """

    name: str
    model: EncoderClassifier
    optimizers: Sequence[Optimizer]
    batches_at: Callable[[int, int, int], Sequence[TrainingBatch]]
    validate: Callable[[EncoderClassifier], HasScore | None]
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

    def train_step(self, step: int, rate: float) -> StepMetrics:
        """Update the model once, with the gradient of all batches of a step.

        If the loss or the gradient is not finite, neither weights nor moments are updated.

        Args:
            step: the index of the step, counted from 0.
            rate: the learning rate.

        Raises:
            LostProcessError: another process has ended; nothing is updated.
        """
        self.model.train()
        for optimizer in self.optimizers:
            for param_group in optimizer.param_groups:
                param_group["lr"] = rate

        # Compute the gradient of the mean loss over the targets of all batches and processes.
        my_loss, my_batches = self._add_gradients(step)
        if self.group.size > 1:
            sum_gradients(self.model, self.group)
        grad_norm, is_finite = clip_gradients(self.model, self.config.max_grad_norm)

        # Sum the metrics over all processes. If one process has a gradient that is not finite, all
        # processes skip the step: otherwise their weights would differ from then on.
        masks = [batch.inputs.attention_mask for batch in my_batches]
        loss, tokens, padded_tokens, num_failed = self.group.summed(
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
            has_finite_gradient=num_failed == 0,
        )

        for optimizer in self.optimizers:
            if metrics.should_update:
                optimizer.step()
            optimizer.zero_grad()
        return metrics

    def _add_gradients(self, step: int) -> tuple[float, list[TrainingBatch]]:
        """Add up the gradients of this process's shards of a step's batches.

        The loss is divided by the summed normalizer of all batches, so that several small batches
        give the same gradient as one large batch.

        Returns:
            This process's part of the mean loss, and its batches.
        """
        num_shards = self.config.gradient_shards
        seed = derive_seed(self.seed, step)

        # Draw the batches. The random numbers of a shard do not depend on the process that has it.
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

        # Run the forward and the backward pass for each batch. If there are several shards, seed
        # the random numbers again for each shard: drawing the batches has advanced the generator.
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
            group=self.group,
        )
        tokens_since_row = 0
        seconds_since_row = 0.0

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

            started = time.perf_counter()
            rate = learning_rate(
                state.step_in_training, total_steps=self.max_steps(state), config=self.config
            )
            metrics = self.train_step(state.step_in_training, rate)
            self._check_finite(state, metrics, rate)
            state = state.after_step(metrics)
            seconds_taken = time.perf_counter() - started

            # The speed of the first steps shows how many steps the time budget allows.
            limiter.add_step(seconds_taken)
            if seconds is not None and state.step_limit is None:
                state = limiter.decide(state)

            # A row of the log has the means over all steps since the row before.
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
            result = self.validate(self.model_for_users)
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
        texts = self.describe_step(state.step_in_training)
        raise DivergedError(state.step + 1, f"{reason}; the batch includes {texts}")


def _as_safetensors(tensors: Mapping[str, Tensor]) -> bytes:
    """The content of a safetensors file with these tensors."""
    contiguous = {name: tensor.detach().cpu().contiguous() for name, tensor in tensors.items()}
    return safetensors.torch.save(contiguous)
