"""The optimizers of a model."""

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
from encoder_cls.encoder_training.embedding_tables import (
    embedding_tables,
    sum_at_occurrences,
    sum_by_row,
    use_sparse_gradients,
)

# The decay of the moving averages of gradients and of squared gradients: the part of an average
# that remains after a step. The second one is lower than Adam's default of 0.999, as in Vaswani et
# al. (2017).
BETAS = (0.9, 0.98)

# A small number that is added to the divisor of an update, which could be zero.
EPSILON = 1e-8


def make_optimizers(model: nn.Module, config: TrainConfig) -> list[Optimizer]:
    """Make an `AdamW` for dense parameters and a `RowwiseAdam` for embedding tables.

    Only the rows of a table that a batch uses are updated, by sparse gradients, so that time does
    not grow with the vocabulary.

    Weight decay applies only to matrices of linear maps: biases and norms should not become small,
    and the embedding of a rare word would vanish between its occurrences.
    """
    use_sparse_gradients(model)

    tables = list(embedding_tables(model).values())
    matrices = [module.weight for module in model.modules() if isinstance(module, nn.Linear)]

    tables_and_matrices = {*tables, *matrices}
    other_parameters = [
        parameter for parameter in model.parameters() if parameter not in tables_and_matrices
    ]

    dense_groups = [
        {"params": matrices, "weight_decay": config.weight_decay},
        {"params": other_parameters, "weight_decay": 0.0},
    ]
    return [
        AdamW(dense_groups, lr=config.learning_rate),
        RowwiseAdam([{"params": tables}], lr=config.learning_rate),
    ]


class Optimizer(ABC):
    """An optimizer with the attributes of `torch.optim.Optimizer`.

    A subclass would import torch's compiler, which doubles the start-up time.

    Attributes:
        param_groups: with all options.
        state: moments and step count of each updated parameter.
    """

    def __init__(self, groups: Sequence[dict[str, Any]], *, lr: float) -> None:
        self.param_groups = [
            {"lr": lr, "betas": BETAS, "eps": EPSILON, **group} for group in groups
        ]
        self.state: defaultdict[Tensor, dict[str, Any]] = defaultdict(dict)
        self.parameters: list[Tensor] = []
        for group in groups:
            self.parameters += group["params"]

    def keep_learning_rate_on(self, device: torch.device) -> None:
        """Keep the learning rates in a device's memory.

        A CUDA graph computes with the same numbers in each step, unless it reads them there.
        """
        for group in self.param_groups:
            group["lr"] = torch.tensor(float(group["lr"]), dtype=torch.float32, device=device)

    def set_learning_rate(self, rate: float) -> None:
        """Set the learning rate of all groups."""
        for group in self.param_groups:
            if isinstance(group["lr"], Tensor):
                group["lr"].fill_(rate)
            else:
                group["lr"] = rate

    def zero_grad(self) -> None:
        """Remove all gradients."""
        for parameter in self.parameters:
            parameter.grad = None

    @torch.no_grad()
    def step(self, found_inf: Tensor | None = None) -> None:
        """Update parameters that have a gradient.

        Args:
            found_inf: 1 if nothing may change, because a gradient is not finite, else 0; a float32
                tensor, (), on the device, which decides while it computes. None if all are known to
                be finite.
        """
        for group in self.param_groups:
            parameters = [parameter for parameter in group["params"] if parameter.grad is not None]
            self._update(parameters, group, found_inf)

    @abstractmethod
    def _update(
        self, parameters: list[Tensor], group: dict[str, Any], found_inf: Tensor | None
    ) -> None:
        """Update those parameters of a group that have a gradient."""


class AdamW(Optimizer):
    """AdamW (Loshchilov and Hutter, 2019, https://arxiv.org/abs/1711.05101).

    Each group has a `weight_decay`; the update is torch's fused function.
    """

    def _update(
        self, parameters: list[Tensor], group: dict[str, Any], found_inf: Tensor | None
    ) -> None:
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
            found_inf=found_inf,
            amsgrad=False,
            maximize=False,
            beta1=beta1,
            beta2=beta2,
            lr=group["lr"],
            weight_decay=group["weight_decay"],
            eps=group["eps"],
        )


class RowwiseAdam(Optimizer):
    """Adam (Kingma and Ba, 2015, https://arxiv.org/abs/1412.6980) for embedding tables.

    It updates only rows with a gradient; others keep their values and moments.

    Up to rounding, it equals `torch.optim.SparseAdam`, which takes 1.3 to 2 times as long, because
    its intermediate results are sparse tensors (docs/experiments/speed.md).
    """

    def _update(
        self, parameters: list[Tensor], group: dict[str, Any], found_inf: Tensor | None
    ) -> None:
        for table in parameters:
            state = self.state[table]
            if not state:
                state["step"] = 0
                state["exp_avg"] = torch.zeros_like(table)
                state["exp_avg_sq"] = torch.zeros_like(table)

            if found_inf is None:
                self._update_rows(table, state, group)
            else:
                self._update_rows_unless(found_inf, table, state, group)

    def _update_rows(self, table: Tensor, state: dict[str, Any], group: dict[str, Any]) -> None:
        assert table.grad is not None
        rows, gradients = sum_by_row(table.grad)
        beta1, beta2 = group["betas"]
        state["step"] += 1

        # Update the rows' moving averages of gradients and of squared gradients.
        means = state["exp_avg"].index_select(0, rows).lerp_(gradients, 1 - beta1)
        squares = state["exp_avg_sq"].index_select(0, rows)
        squares.mul_(beta2).addcmul_(gradients, gradients, value=1 - beta2)
        state["exp_avg"].index_copy_(0, rows, means)
        state["exp_avg_sq"].index_copy_(0, rows, squares)

        # The averages start at zero, so in the first steps they are too small. These factors
        # correct for that.
        mean_correction = 1 - beta1 ** state["step"]
        square_correction = 1 - beta2 ** state["step"]
        step_size = group["lr"] * math.sqrt(square_correction) / mean_correction

        updates = means.div_(squares.sqrt_().add_(group["eps"]))
        table.index_add_(0, rows, updates, alpha=-step_size)

    def _update_rows_unless(
        self, found_inf: Tensor, table: Tensor, state: dict[str, Any], group: dict[str, Any]
    ) -> None:
        """Update rows, or change nothing if `found_inf` is 1.

        It is only a factor, so nothing waits for the device. A row that occurs several times is
        computed as often, since only the device knows how many rows there are.
        """
        assert table.grad is not None
        rows, gradients = sum_at_occurrences(table.grad)
        beta1, beta2 = group["betas"]
        is_skipped = found_inf.bool()

        # Count the updates on the device, in an integer, as a checkpoint has them. The count stays
        # in the same memory, where a CUDA graph finds it again.
        steps = torch.as_tensor(state["step"], device=table.device)
        steps += (~is_skipped).long()
        state["step"] = steps

        # Without an update, the gradients are zeros, and the averages keep all of their old values.
        gradients.masked_fill_(is_skipped, 0)
        mean_weight = torch.where(is_skipped, 0.0, 1 - beta1)
        square_decay = torch.where(is_skipped, 1.0, beta2)

        means = state["exp_avg"].index_select(0, rows).lerp_(gradients, mean_weight)
        squares = state["exp_avg_sq"].index_select(0, rows)
        squares.mul_(square_decay).addcmul_(gradients, gradients, value=1 - beta2)
        state["exp_avg"].index_copy_(0, rows, means)
        state["exp_avg_sq"].index_copy_(0, rows, squares)

        # Before the first update the corrections are 0; the step size is then 0 as well.
        mean_correction = 1 - beta1 ** steps.double()
        square_correction = 1 - beta2 ** steps.double()
        step_size = group["lr"] * square_correction.sqrt() / mean_correction
        step_size = torch.where(is_skipped, 0.0, step_size)

        updates = means.div_(squares.sqrt_().add_(group["eps"])).mul_(step_size)
        table.index_copy_(0, rows, table.index_select(0, rows).sub_(updates))


def moments_of(optimizers: Sequence[Optimizer]) -> dict[str, Tensor]:
    """The moments and step counts of all parameters.

    A name such as `0.3.exp_avg` has the index of the optimizer, of the parameter in it, and the
    value.
    """
    moments = {}
    for optimizer_index, optimizer in enumerate(optimizers):
        for parameter_index, parameter in enumerate(optimizer.parameters):
            for name, value in optimizer.state[parameter].items():
                key = f"{optimizer_index}.{parameter_index}.{name}"
                moments[key] = torch.as_tensor(value)
    return moments


def load_moments(optimizers: Sequence[Optimizer], moments: Mapping[str, Tensor]) -> None:
    """Load `moments_of` into new optimizers of the same parameters."""
    for key, tensor in moments.items():
        optimizer_index, parameter_index, name = key.split(".")
        optimizer = optimizers[int(optimizer_index)]
        parameter = optimizer.parameters[int(parameter_index)]

        # Only the step count of `RowwiseAdam` is an integer; it begins on the CPU.
        value = tensor.to(parameter.device) if tensor.is_floating_point() else int(tensor)
        optimizer.state[parameter][name] = value
