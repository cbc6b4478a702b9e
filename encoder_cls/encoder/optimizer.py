"""Optimizers and the learning rate."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections import defaultdict
from collections.abc import Mapping, Sequence
from typing import Any

import torch
from torch import Tensor, nn
from torch.optim.adamw import adamw

from encoder_cls.config.schema import TrainConfig
from encoder_cls.encoder.embedding_tables import embedding_tables, sum_by_row

# How much of the moving averages of gradients and of their squares stays at a step. Squares are
# remembered for a shorter time than with Adam's default, 0.999 (Vaswani et al., 2017).
BETAS = (0.9, 0.98)

# This is added to the divisor of an update, which would be zero without gradients.
EPSILON = 1e-8


def warmup_steps(total_steps: int, config: TrainConfig) -> int:
    """The number of steps in which the learning rate rises."""
    return round(config.warmup_fraction * total_steps)


def learning_rate(step: int, *, total_steps: int, config: TrainConfig) -> float:
    """The learning rate of a step, counted from 0: a linear rise, then half a cosine to zero."""
    warmup = warmup_steps(total_steps, config)
    if step < warmup:
        return config.learning_rate * (step + 1) / warmup

    progress = (step - warmup) / max(1, total_steps - warmup)
    return config.learning_rate * 0.5 * (1 + math.cos(math.pi * progress))


def make_optimizers(model: nn.Module, config: TrainConfig) -> list[Optimizer]:
    """AdamW for dense parameters, and Adam by rows for embedding tables.

    A batch touches few rows of a table, and only these are updated: so the time of a step does not
    grow with the vocabulary. Only the matrices of linear maps decay: biases and norms are not meant
    to be small, and the embedding of a rare word would vanish between its occurrences.
    """
    tables = list(embedding_tables(model).values())
    matrices = [module.weight for module in model.modules() if isinstance(module, nn.Linear)]

    known = {*tables, *matrices}
    others = [parameter for parameter in model.parameters() if parameter not in known]

    dense_groups = [
        {"params": matrices, "weight_decay": config.weight_decay},
        {"params": others, "weight_decay": 0.0},
    ]
    return [
        AdamW(dense_groups, lr=config.learning_rate),
        RowwiseAdam([{"params": tables}], lr=config.learning_rate),
    ]


class Optimizer(ABC):
    """A small `torch.optim.Optimizer`, with the same attributes.

    It is not a subclass: the first instance of one loads torch's compiler, which doubles the time
    to start.
    """

    def __init__(self, groups: Sequence[dict[str, Any]], *, lr: float) -> None:
        self.param_groups = [
            {"lr": lr, "betas": BETAS, "eps": EPSILON, **group} for group in groups
        ]
        self.state: defaultdict[Tensor, dict[str, Any]] = defaultdict(dict)
        self.parameters: list[Tensor] = []
        for group in groups:
            self.parameters += group["params"]

    def zero_grad(self) -> None:
        """Remove all gradients."""
        for parameter in self.parameters:
            parameter.grad = None

    @torch.no_grad()
    def step(self) -> None:
        """Update the parameters that have a gradient."""
        for group in self.param_groups:
            parameters = [parameter for parameter in group["params"] if parameter.grad is not None]
            self._update(parameters, group)

    @abstractmethod
    def _update(self, parameters: list[Tensor], group: dict[str, Any]) -> None:
        """Update those parameters of a group that have a gradient."""


class AdamW(Optimizer):
    """AdamW (Loshchilov and Hutter, 2019, https://arxiv.org/abs/1711.05101).

    It is torch's fused function; each group has a `weight_decay`.
    """

    def _update(self, parameters: list[Tensor], group: dict[str, Any]) -> None:
        for parameter in parameters:
            state = self.state[parameter]
            if not state:
                state["step"] = torch.zeros((), device=parameter.device)
                state["exp_avg"] = torch.zeros_like(parameter)
                state["exp_avg_sq"] = torch.zeros_like(parameter)

        states = [self.state[parameter] for parameter in parameters]
        gradients = [parameter.grad for parameter in parameters if parameter.grad is not None]
        beta1, beta2 = group["betas"]
        adamw(
            parameters,
            gradients,
            [state["exp_avg"] for state in states],
            [state["exp_avg_sq"] for state in states],
            [],
            [state["step"] for state in states],
            fused=True,
            amsgrad=False,
            maximize=False,
            beta1=beta1,
            beta2=beta2,
            lr=group["lr"],
            weight_decay=group["weight_decay"],
            eps=group["eps"],
        )


class RowwiseAdam(Optimizer):
    """Adam on those rows of tables that have a gradient.

    The other rows keep their values and moments. It computes the same, up to rounding, as
    `torch.optim.SparseAdam`, which takes a third to twice longer, because its intermediate results
    are sparse tensors. Adam: Kingma and Ba, 2015, https://arxiv.org/abs/1412.6980.
    """

    def _update(self, parameters: list[Tensor], group: dict[str, Any]) -> None:
        for table in parameters:
            state = self.state[table]
            if not state:
                state["step"] = 0
                state["exp_avg"] = torch.zeros_like(table)
                state["exp_avg_sq"] = torch.zeros_like(table)
            self._update_rows(table, state, group)

    def _update_rows(self, table: Tensor, state: dict[str, Any], group: dict[str, Any]) -> None:
        assert table.grad is not None
        rows, gradients = sum_by_row(table.grad)
        beta1, beta2 = group["betas"]
        state["step"] += 1

        # The moving averages of the gradients and of their squares, of these rows.
        means = state["exp_avg"].index_select(0, rows).lerp_(gradients, 1 - beta1)
        squares = state["exp_avg_sq"].index_select(0, rows)
        squares.mul_(beta2).addcmul_(gradients, gradients, value=1 - beta2)
        state["exp_avg"].index_copy_(0, rows, means)
        state["exp_avg_sq"].index_copy_(0, rows, squares)

        # Averages start at zero; these factors make up for it.
        mean_correction = 1 - beta1 ** state["step"]
        square_correction = 1 - beta2 ** state["step"]
        step_size = group["lr"] * math.sqrt(square_correction) / mean_correction

        updates = means.div_(squares.sqrt_().add_(group["eps"]))
        table.index_add_(0, rows, updates, alpha=-step_size)


def moments_of(optimizers: Sequence[Optimizer]) -> dict[str, Tensor]:
    """The moments and step counts, by "optimizer.parameter.name", such as `0.3.exp_avg`."""
    moments = {}
    for number, optimizer in enumerate(optimizers):
        for index, parameter in enumerate(optimizer.parameters):
            for name, value in optimizer.state[parameter].items():
                moments[f"{number}.{index}.{name}"] = torch.as_tensor(value)
    return moments


def load_moments(optimizers: Sequence[Optimizer], moments: Mapping[str, Tensor]) -> None:
    """Load moments into new optimizers of the same parameters, on their devices."""
    for key, tensor in moments.items():
        number, index, name = key.split(".")
        optimizer = optimizers[int(number)]
        parameter = optimizer.parameters[int(index)]

        # What is not a floating-point number is the step count of `RowwiseAdam`.
        value = tensor.to(parameter.device) if tensor.is_floating_point() else int(tensor)
        optimizer.state[parameter][name] = value
