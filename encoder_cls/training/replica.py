"""A model in training: its first weights, its steps and validations. All processes have equal ones."""

from __future__ import annotations

import math
from pathlib import Path
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor, nn

from encoder_cls.classifier.classifier import Classifier
from encoder_cls.classifier.model_folder import load_classifier, save_classifier
from encoder_cls.encoder.batches import derive_seed
from encoder_cls.encoder.distributed import ALONE, ProcessGroup
from encoder_cls.encoder.optimizer import make_optimizers, sum_by_row, tables, without_untrained
from encoder_cls.encoder.pretraining import start_from_word_vectors
from encoder_cls.encoder.torch_encoder import TorchEncoder
from encoder_cls.encoder.transformer import EncoderClassifier
from encoder_cls.system.machine import autocast, resolve_precision
from encoder_cls.training.prepared import Prepared
from encoder_cls.training.stages import make_stages
from encoder_cls.training.validation import ValidationResult

WORDS, HEAD = "encoder.embedding.tokens.weight", "head.linear."


class StepMetrics(NamedTuple):
    """What a step was like.

    Attributes:
        loss: the mean loss.
        grad_norm: the norm of the dense gradients before clipping.
        tokens: the tokens without padding.
        padded_tokens: the tokens with padding.
        has_finite_gradient: whether the gradient is finite in all processes; without, the step has updated nothing.
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
        """Whether the step has updated the model."""
        return self.has_finite_loss and self.has_finite_gradient


class Replica:
    """The model of a stage with its optimizers; where the first process steps or validates, so do the others."""

    def __init__(
        self, prepared: Prepared, number: int, *, device: torch.device, group: ProcessGroup = ALONE
    ) -> None:
        stages = make_stages(prepared, device)
        self.stage, self.number, self.group = stages[number], number, group
        self.is_last = number == len(stages) - 1
        self._earlier = stages[number - 1].name if number else None
        self._config = prepared.config.train
        self.model = prepared.new_model(self.stage.seed, self.stage.kind).to(device)
        self.optimizers = make_optimizers(self.model, self._config)
        self._objective = prepared.objective if self.is_last else None
        self._precision = resolve_precision(self._config.precision, device)
        # Only the last stage makes a model for users, without untrained rows.
        self._initial_tables = tables(prepared.new_model(stages[0].seed)) if self.is_last else None

    def load_first_weights(self, stages: Path) -> None:
        """Start from the best weights of the earlier stage, saved in `stages`, of a base run, or from word vectors."""
        prepared, base = self.stage.prepared, self.stage.prepared.base
        if self._earlier and (stages / self._earlier).is_dir():  # else there was no time for it
            base = load_classifier(
                stages / self._earlier, engine="numpy"
            )  # arrays: no second model is made
        if base and base.encoder:
            start_from(base, self.model, label_names=prepared.dataset.label_names)
        elif prepared.plan.has_word_vectors:
            start_from_word_vectors(self.model, prepared.texts, seed=self.stage.seed)

    def step(self, step: int, learning_rate: float) -> StepMetrics:
        """Update the model once, by all batches of a step, counted from 0: a pure function of model and step.

        Neither weights nor moments are updated where the loss or the gradient is not finite, or a `LostProcessError`
        is raised.
        """
        self.group.lead({"step": step, "learning_rate": learning_rate})
        for optimizer in self.optimizers:
            for group in optimizer.param_groups:
                group["lr"] = learning_rate
        self.model.train()
        my_loss, my_tokens, my_padded_tokens = self._add_gradients(step)

        # The sparse gradients of tables come through the same layers, so they need no clipping.
        gradients = [p.grad for p in self.model.parameters() if p.grad is not None]
        dense = [p for p in self.model.parameters() if p.grad is not None and not p.grad.is_sparse]
        grad_norm = float(torch.nn.utils.clip_grad_norm_(dense, self._config.max_grad_norm))
        of_tables = sum(float(it._values().sum()) for it in gradients if it.is_sparse)
        is_finite = math.isfinite(grad_norm) and math.isfinite(of_tables)

        # All processes have equal gradients, and decide together all the same: one that kept a step which the others
        # skip would have another model from then on.
        loss, tokens, padded_tokens, failed = self.group.summed(
            my_loss, my_tokens, my_padded_tokens, 0 if is_finite else 1
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

    def validate(self) -> ValidationResult | None:
        """Validate the model; None where its logits are not finite, and in all processes but the first."""
        self.group.lead({"validate": True})
        with self.group.deferring_stops():
            return self.stage.validate(self._trained_model, self.group)

    def save(self, folder: Path, result: ValidationResult, *, linear: Classifier | None) -> None:
        """Save the model as a classifier, with the mixture weights and thresholds of its validation."""
        prepared = self.stage.prepared
        classifier = prepared.new_classifier(
            TorchEncoder(self._trained_model, prepared.config.model)
        )
        if linear:
            classifier.linear = linear.linear
        if result.mixture_weights:  # none of pretraining
            classifier.mixture_weights = result.mixture_weights
            classifier.mixture_shares = dict(
                zip(classifier.parts, result.mixture_shares, strict=True)
            )
            classifier.thresholds = result.thresholds
        save_classifier(classifier, folder)

    @property
    def _trained_model(self) -> EncoderClassifier:
        """The model to validate and to save, with zeros in the rows of tables that were never trained."""
        return (
            without_untrained(self.model, self._initial_tables)
            if self._initial_tables
            else self.model
        )

    def _add_gradients(self, step: int) -> tuple[float, int, int]:
        """Compute the gradients of a step, summed over all processes; return loss, tokens and padded tokens of this one.

        Processes share the shards of each batch. The loss is divided by the normalizer of all batches together: so
        small batches give the same gradient as a large one, that of the mean loss over all their targets.
        """
        num_shards, seed = self._config.gradient_shards, derive_seed(self.stage.seed, step)
        shards = {}
        for shard in self.group.dealt(num_shards):
            torch.manual_seed(derive_seed(seed, shard) if num_shards > 1 else seed)
            shards[shard] = self.stage.batches_at(step, shard, num_shards)
        batches = [batch for of_shard in shards.values() for batch in of_shard]
        normalizer: Tensor | float = sum(batch.normalizer for batch in batches)
        if self.group.size > 1:
            (normalizer,) = self.group.summed(float(normalizer))
        total = 0.0
        for shard, of_shard in shards.items():
            if num_shards > 1:
                torch.manual_seed(derive_seed(seed, shard, 1))  # other shards have drawn since
            for batch in of_shard:
                with autocast(self._precision, self.stage.device):
                    total_loss = (
                        self._objective(self.model, batch)
                        if self._objective
                        else batch.loss(self.model)
                    )
                    loss: Tensor = total_loss / normalizer
                loss.backward()  # type: ignore[no-untyped-call]
                total += loss.item()
        if self.group.size > 1:
            sum_gradients(self.model, self.group)
        masks = [batch.inputs.attention_mask for batch in batches]
        tokens = sum(int(mask.sum()) for mask in masks)
        padded_tokens = sum(mask.numel() for mask in masks)
        return total, tokens, padded_tokens


def start_from(base: Classifier, model: EncoderClassifier, *, label_names: tuple[str, ...]) -> None:
    """Copy the weights of a classifier's encoder into a model of the same shape.

    New words and classes keep their random weights. Words of the base come first; classes are matched by name.
    """
    assert base.encoder
    numbers = [base.label_names.index(name) for name in label_names if name in base.label_names]
    is_known = torch.tensor([name in base.label_names for name in label_names])
    state = model.state_dict()
    for name, weight in base.encoder.named_weights().items():
        values = torch.from_numpy(np.asarray(weight, dtype=np.float32))
        if name == WORDS:
            state[name][: len(values)] = values
        elif name.startswith(HEAD):
            state[name][is_known] = values[numbers].to(state[name].device)
        else:
            state[name].copy_(values)


def sum_gradients(model: nn.Module, group: ProcessGroup) -> None:
    """Sum the gradients of all processes: the dense ones in one buffer, of each table the rows that have one."""
    sparse = tables(model)
    dense = [parameter for name, parameter in model.named_parameters() if name not in sparse]
    gradients = [torch.zeros_like(it) if it.grad is None else it.grad for it in dense]
    counts = torch.tensor([it.grad is not None for it in dense]).to(gradients[0])
    buffer = torch.cat([*(it.flatten() for it in gradients), counts])
    group.sum(buffer)
    *sums, counts = torch.split(buffer, [*(it.numel() for it in dense), len(dense)])
    for parameter, gradient, count in zip(dense, sums, counts.tolist(), strict=True):
        parameter.grad = gradient.view_as(parameter) if count else None
    for table in sparse.values():
        if table.grad is None:
            rows, values = (
                torch.empty(0, dtype=torch.int64, device=table.device),
                table.new_empty(0, table.shape[1]),
            )
        else:
            rows, values = sum_by_row(table.grad)
        rows, values = torch.cat(group.gather(rows)), torch.cat(group.gather(values))
        if len(rows):
            # Not by the argument `check_invariants`, of which torch 2.11 warns.
            with torch.sparse.check_sparse_tensor_invariants(enable=False):  # type: ignore[no-untyped-call]
                table.grad = torch.sparse_coo_tensor(rows[None], values, table.shape)
