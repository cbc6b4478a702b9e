"""A step of a training: its batches, their gradient, and the update of the model.

It depends only on weights, moments and the step's index, so a resumed training computes the same.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain
from typing import NamedTuple

import safetensors.torch
import torch
from torch import Tensor

from encoder_cls.encoder.nested_tensors import on_device
from encoder_cls.encoder.transformer import EncoderClassifier
from encoder_cls.encoder_training.batch_loader import BatchLoader
from encoder_cls.encoder_training.distributed import ProcessGroup
from encoder_cls.encoder_training.gradients import clip_gradients, sum_gradients
from encoder_cls.encoder_training.optimizer import Optimizer, load_moments, moments_of
from encoder_cls.encoder_training.random_numbers import derive_seed, seed_random_numbers
from encoder_cls.encoder_training.step_graphs import Recorder, StepGraphs
from encoder_cls.encoder_training.training_state import StepMetrics
from encoder_cls.encoder_training.training_task import TrainingBatch, TrainingTask
from encoder_cls.system.machine import autocast


class StepBatches(NamedTuple):
    """This process's shards, by number, of a step's batches, counted from 0.

    Attributes:
        padded_tokens: with padding; `tokens` are without, both ().
    """

    step: int
    shards: dict[int, list[TrainingBatch]]
    tokens: Tensor
    padded_tokens: Tensor


class StartedStep(NamedTuple):
    """A step that a device may still be computing.

    Attributes:
        sums: of the loss, tokens without and with padding, and processes with a gradient that is
            not finite, over all processes, (4,).
        grad_norm: of dense gradients, before clipping.
    """

    sums: Tensor
    grad_norm: Tensor

    def metrics(self) -> StepMetrics:
        """Wait for the metrics."""
        (metrics,) = metrics_of([self])
        return metrics


def metrics_of(steps: Sequence[StartedStep]) -> list[StepMetrics]:
    """Wait for the metrics of steps, in a single copy."""
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


@dataclass(kw_only=True)
class Trainer:
    """Trains a model step by step, in all processes of a group.

    Attributes:
        model: with the same weights in all.
        max_grad_norm: of dense gradients, which are clipped to it.
        precision: of matrix products, torch.float32 or torch.bfloat16.
        objective: a user's own loss, in place of `TrainingBatch.loss`.
        runs_ahead: whether steps start before the metrics of earlier ones are known, and batches
            are made ahead, which suits a GPU.
        recorder: records a CUDA graph for each shape, if steps run ahead: then nothing waits for
            the device.
    """

    task: TrainingTask
    model: EncoderClassifier
    optimizers: Sequence[Optimizer]
    num_shards: int
    max_grad_norm: float
    seed: int
    device: torch.device
    precision: torch.dtype
    group: ProcessGroup
    objective: Callable[[EncoderClassifier, TrainingBatch], Tensor] | None = None
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

    def share_weights(self) -> None:
        """Copy weights and moments of the first process to all."""
        if self.group.size == 1:
            return
        weights = self.group.broadcast_bytes(as_safetensors(self.model.state_dict()))
        moments = self.group.broadcast_bytes(as_safetensors(moments_of(self.optimizers)))

        if not self.group.is_first:
            self.model.load_state_dict(safetensors.torch.load(weights))
            load_moments(self.optimizers, safetensors.torch.load(moments))

    def start_step(self, step: int, rate: float) -> StartedStep:
        """Update the model by the gradient of a step, counted from 0.

        If loss or gradient is not finite, nothing is updated; the device decides this if the
        trainer runs ahead.

        Raises:
            LostProcessError: another process has ended; nothing is updated.
        """
        for optimizer in self.optimizers:
            optimizer.set_learning_rate(rate)

        batches = self._loader.batches_of_step(step)

        # A trainer that runs ahead seeds the random numbers of the model, such as the masks of
        # dropout. In any other trainer, they continue those with which the batches were just made.
        if self.runs_ahead:
            seed_random_numbers(derive_seed(self.seed, step), self.device)

        if self._graphs is None:
            return self._compute_step(on_device(batches, self.device))
        return self._graphs(batches)

    def close(self) -> None:
        """End the thread, and free the memory of graphs."""
        self._loader.close()
        if self._graphs is not None:
            self._graphs.clear()

    def _make_batches(self, step: int, generator: torch.Generator | None) -> StepBatches:
        """Make batches; the random numbers of a shard do not depend on its process."""
        seed = derive_seed(self.seed, step)

        shards: dict[int, list[TrainingBatch]] = {}
        tokens = 0
        padded_tokens = 0
        for shard in self.group.share(self.num_shards):
            shard_seed = seed
            if self.num_shards > 1:
                shard_seed = derive_seed(seed, shard)
            if generator is None:
                seed_random_numbers(shard_seed, self.device)
            else:
                generator.manual_seed(shard_seed)

            batches = list(self.task.batches_at(step, shard, self.num_shards, generator))
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
        """Pad to few shapes: a graph is recorded for each."""
        return batch.padded(max_seq_len=self.model.encoder.embedding.positions.max_seq_len)

    def _compute_step(self, batches: StepBatches) -> StartedStep:
        self.model.train()

        # Compute the gradient of the mean loss over the targets of all batches and processes.
        my_loss = self._add_gradients(batches)
        if self.group.size > 1:
            sum_gradients(self.model, self.group)
        grad_norm, is_finite = clip_gradients(self.model, self.max_grad_norm)

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

        # Update the model, or skip a step that is not finite. A trainer that runs ahead lets the
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

    def _add_gradients(self, batches: StepBatches) -> Tensor:
        """Add gradients, and return this process's part of the mean loss, ().

        It is divided by the normalizer of all batches, so that several small ones give the same
        gradient as a large one.
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
        if self.num_shards > 1:
            seed = derive_seed(self.seed, step)
            seed_random_numbers(derive_seed(seed, shard, 1), self.device)

    def _summed_loss(self, batch: TrainingBatch) -> Tensor:
        if self.objective is None:
            return batch.loss(self.model)
        return self.objective(self.model, batch)

    def _update(self, found_inf: Tensor | None = None) -> None:
        for optimizer in self.optimizers:
            optimizer.step(found_inf)


def as_safetensors(tensors: Mapping[str, Tensor]) -> bytes:
    """The content of a safetensors file."""
    contiguous = {name: tensor.detach().cpu().contiguous() for name, tensor in tensors.items()}
    return safetensors.torch.save(contiguous)
