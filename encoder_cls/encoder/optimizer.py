"""Optimizers and the learning rate."""

from __future__ import annotations

import copy
import math
from abc import ABC, abstractmethod
from collections import defaultdict
from collections.abc import Mapping, Sequence
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional
from torch.optim.adamw import adamw

from encoder_cls.config.schema import TrainConfig
from encoder_cls.encoder.transformer import EncoderClassifier

BETAS = (0.9, 0.98)  # Vaswani et al. (2017): a shorter memory of squares than Adam's default 0.999
EPSILON = 1e-8  # added to the divisor


def warmup_steps(total_steps: int, config: TrainConfig) -> int:
    """The steps in which the learning rate rises."""
    return round(config.warmup_fraction * total_steps)


def learning_rate(step: int, *, total_steps: int, config: TrainConfig) -> float:
    """The learning rate of a step, counted from 0: a linear rise, then half a cosine down to zero."""
    warmup = warmup_steps(total_steps, config)
    if step < warmup:
        return config.learning_rate * (step + 1) / warmup
    progress = (step - warmup) / max(1, total_steps - warmup)
    return config.learning_rate * 0.5 * (1 + math.cos(math.pi * progress))


def make_optimizers(model: nn.Module, config: TrainConfig) -> list[Optimizer]:
    """AdamW (Loshchilov and Hutter, 2019, https://arxiv.org/abs/1711.05101) and, for embeddings, Adam by rows.

    A batch touches few rows of a table, and only these are updated: so the time of a step does not grow with the
    vocabulary. Only the matrices of linear maps decay: biases and norms are not meant to be small, and the embedding of
    a rare word would vanish between its occurrences.
    """
    sparse = list(tables(model).values())
    matrices = [module.weight for module in model.modules() if isinstance(module, nn.Linear)]
    known = {*sparse, *matrices}
    others = [parameter for parameter in model.parameters() if parameter not in known]
    groups = [
        {"params": matrices, "weight_decay": config.weight_decay},
        {"params": others, "weight_decay": 0.0},
    ]
    return [
        AdamW(groups, lr=config.learning_rate),
        RowwiseAdam([{"params": sparse}], lr=config.learning_rate),
    ]


class Optimizer(ABC):
    """A small `torch.optim.Optimizer`, with the same attributes.

    It is not a subclass: the first instance of one loads torch's compiler, which doubles the time to start.
    """

    def __init__(self, groups: Sequence[dict[str, Any]], *, lr: float) -> None:
        self.param_groups = [
            {"lr": lr, "betas": BETAS, "eps": EPSILON, **group} for group in groups
        ]
        self.state: defaultdict[Tensor, dict[str, Any]] = defaultdict(dict)
        self.parameters: list[Tensor] = [it for group in groups for it in group["params"]]

    def zero_grad(self) -> None:
        """Remove all gradients."""
        for parameter in self.parameters:
            parameter.grad = None

    @torch.no_grad()
    def step(self) -> None:
        """Update the parameters that have a gradient."""
        for group in self.param_groups:
            self._update(
                [parameter for parameter in group["params"] if parameter.grad is not None], group
            )

    @abstractmethod
    def _update(self, parameters: list[Tensor], group: dict[str, Any]) -> None:
        """Update parameters of a group."""


class AdamW(Optimizer):
    """AdamW by torch's fused function; each group has a `weight_decay`."""

    def _update(self, parameters: list[Tensor], group: dict[str, Any]) -> None:
        states = [self.state[parameter] for parameter in parameters]
        for parameter, state in zip(parameters, states, strict=True):
            if not state:
                state |= {"step": torch.zeros((), device=parameter.device)}
                state |= {name: torch.zeros_like(parameter) for name in ("exp_avg", "exp_avg_sq")}
        gradients = [parameter.grad for parameter in parameters if parameter.grad is not None]
        means, squares, steps = (
            [state[name] for state in states] for name in ("exp_avg", "exp_avg_sq", "step")
        )
        settings = {name: group[name] for name in ("lr", "weight_decay", "eps")}
        settings["beta1"], settings["beta2"] = group["betas"]
        adamw(
            parameters,
            gradients,
            means,
            squares,
            [],
            steps,
            fused=True,
            amsgrad=False,
            maximize=False,
            **settings,
        )


class RowwiseAdam(Optimizer):
    """Adam (Kingma and Ba, 2015, https://arxiv.org/abs/1412.6980) on those rows of tables that have a gradient.

    The other rows keep their values and moments. The same, to rounding, as `torch.optim.SparseAdam`, which takes a
    third to twice longer, since its intermediate results are sparse tensors.
    """

    def _update(self, parameters: list[Tensor], group: dict[str, Any]) -> None:
        beta1, beta2 = group["betas"]
        for table in parameters:
            state = self.state[table]
            if not state:
                state |= {
                    "step": 0,
                    "exp_avg": torch.zeros_like(table),
                    "exp_avg_sq": torch.zeros_like(table),
                }
            state["step"] += 1
            rows, values = sum_by_row(table.grad)  # type: ignore[arg-type]
            mean = state["exp_avg"].index_select(0, rows).lerp_(values, 1 - beta1)
            square = state["exp_avg_sq"].index_select(0, rows)
            square.mul_(beta2).addcmul_(values, values, value=1 - beta2)
            state["exp_avg"].index_copy_(0, rows, mean)
            state["exp_avg_sq"].index_copy_(0, rows, square)
            size = (
                group["lr"] * math.sqrt(1 - beta2 ** state["step"]) / (1 - beta1 ** state["step"])
            )
            table.index_add_(0, rows, mean.div_(square.sqrt_().add_(group["eps"])), alpha=-size)


def moments_of(optimizers: Sequence[Optimizer]) -> dict[str, Tensor]:
    """The moments and step counts of optimizers, by "optimizer.parameter.name", such as `0.3.exp_avg`."""
    return {
        f"{number}.{index}.{name}": torch.as_tensor(value)
        for number, optimizer in enumerate(optimizers)
        for index, parameter in enumerate(optimizer.parameters)
        for name, value in optimizer.state[parameter].items()
    }


def load_moments(optimizers: Sequence[Optimizer], moments: Mapping[str, Tensor]) -> None:
    """Load moments into new optimizers of the same parameters, on their devices."""
    for key, tensor in moments.items():
        number, index, name = key.split(".")
        optimizer = optimizers[int(number)]
        parameter = optimizer.parameters[int(index)]
        # What is not a floating-point number is a count of steps.
        value = tensor.to(parameter.device) if tensor.is_floating_point() else int(tensor)
        optimizer.state[parameter][name] = value


def sum_by_row(gradient: Tensor) -> tuple[Tensor, Tensor]:
    """Sum the values of each row of a sparse gradient; returns the numbers of the rows, and their sums.

    Equal to `coalesce`, which uses one thread and takes twice as long: here a row's values are a bag of embeddings.
    """
    sorted_rows, positions = gradient._indices()[0].sort(stable=True)
    rows, counts = torch.unique_consecutive(sorted_rows, return_counts=True)
    return rows, functional.embedding_bag(
        positions, gradient._values(), counts.cumsum(0) - counts, mode="sum"
    )


def without_untrained(model: EncoderClassifier, initial: Mapping[str, Tensor]) -> EncoderClassifier:
    """Copy a model with zeros in the rows of tables that still have their initial values; only tables are copied."""
    replaced: dict[int, object] = {
        id(tensor): tensor for tensor in (*model.parameters(), *model.buffers())
    }
    for name, table in tables(model).items():
        is_untrained = (table == initial[name].to(table.device)).all(dim=1, keepdim=True)
        replaced[id(table)] = nn.Parameter(table.detach().masked_fill(is_untrained, 0))
    return copy.deepcopy(model, replaced)


def tables(model: nn.Module) -> dict[str, Tensor]:
    """The embedding tables of a model, by name: a batch touches few of their rows, so their gradients are sparse."""
    return {
        f"{name}.weight": module.weight
        for name, module in model.named_modules()
        if isinstance(module, nn.Embedding | nn.EmbeddingBag) and module.sparse
    }
