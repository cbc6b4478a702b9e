"""Where the time of a training step goes: by what it is for, and by which operations take it."""

from __future__ import annotations

import time
from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any
from unittest.mock import patch

import torch
from reporting import table
from torch import nn
from torch.nn.modules.module import register_module_forward_hook, register_module_forward_pre_hook
from torch.profiler import ProfilerActivity, profile, record_function

from encoder_cls.model import EncoderClassifier
from encoder_cls.system.device import resolve_precision
from encoder_cls.training.optimizer import Optimizer
from speed_benchmark.plan import Plan
from speed_benchmark.sizes import PLAIN, Size
from speed_benchmark.systems import LABELS_ALONE, Ours, prepared
from speed_benchmark.texts import Kind

EPOCHS = 2  # over the texts of a cell, after one that warms up
SECTIONS = ("batching", "forward", "loss, backward, clipping", "optimizers", "logging, bookkeeping")
OUTSIDE = {"batching", "logging, bookkeeping"}  # of the model
VARIANTS = {
    "plain encoder": (*LABELS_ALONE, *PLAIN),
    "default tables": LABELS_ALONE,
}

UPDATE = "an optimizer's step"  # what operations run within
# The first that is in an operation's name.
OPERATIONS = (
    ("optimizers", (UPDATE,)),
    ("matrix products", ("mm", "linear", "matmul", "mkldnn", "addmv")),
    ("softmax", ("softmax",)),
    ("layer norms", ("layer_norm",)),
    ("GELU", ("gelu",)),
    ("random numbers", ("bernoulli", "rand", "uniform", "dropout")),
    ("embedding tables", ("embedding", "index_select", "sparse", "coalesce", "indices", "_values")),
    ("copies, casts, fills", ("copy", "_to", "clone", "contiguous", "fill", "zero", "empty", "new_", "cat", "stack")),
    ("gradient norm", ("norm",)),
    ("sums and products by element", ("add", "mul", "div", "sub", "sum", "mean", "neg", "where")),
)
OTHER, NOT_TORCH = "other operations", "Python, NumPy, between operations"

NOTES = """\
Share of a step's time in percent, with precision `auto` ({precision} here). {sections} are told apart by hooks on the
model and the optimizers; `outside` is {outside}, that is all that is neither model nor optimizer. Steps are those on
labels; a linear model is fitted before the first of them, and has no part in any."""
OPERATIONS_NOTE = """\
By operation, from `torch.profiler`, whose own work slows small operations down: shares are rough. Operations inside
an optimizer count as the optimizer's."""


def cells(plan: Plan) -> list[tuple[Size, Kind]]:
    """Sizes and kinds of texts."""
    return [(size, kind) for size in plan.sizes for kind in plan.kinds]


def measure(plan: Plan, size: Size, kind: Kind) -> dict[str, Any]:
    """Sections of all variants, and operations."""
    corpus = plan.sample(kind, size)
    found: dict[str, Any] = {}
    for name, overrides in VARIANTS.items():
        with TemporaryDirectory() as folder:
            ours = Ours(prepared(corpus, [*size.overrides(kind.max_seq_len), *overrides], Path(folder)), Path(folder))
            try:
                ours()
                found[name] = {"sections": sections(ours, epochs=EPOCHS), "operations": operations(ours)}
            finally:
                ours.close()
    return found


def sections(ours: Ours, *, epochs: int) -> dict[str, float]:
    """Milliseconds of a step, by section."""
    clock = _Clock()
    steps = epochs * ours.stage.steps_per_epoch
    with clock.listening():
        for _ in range(steps):
            clock.begin()
            ours.step()
            clock.end("logging, bookkeeping")
    return {name: 1000 * clock.seconds[name] / steps for name in SECTIONS}


class _Clock:
    """Adds the time since it was last asked to a section."""

    def __init__(self) -> None:
        self.seconds: defaultdict[str, float] = defaultdict(float)
        self._last = 0.0
        self._is_updating = False

    def begin(self) -> None:
        """A step begins."""
        self._last, self._is_updating = time.perf_counter(), False

    def end(self, name: str) -> None:
        """A section ends."""
        now = time.perf_counter()
        self.seconds[name] += now - self._last
        self._last = now

    @contextmanager
    def listening(self) -> Iterator[None]:
        """Be told of the model's and the optimizers' turns."""
        hooks = [
            register_module_forward_pre_hook(lambda module, _: self._of_model(module, "batching")),
            register_module_forward_hook(lambda module, *_: self._of_model(module, "forward")),
        ]
        try:
            with _around_updates(self._update):
                yield
        finally:
            for hook in hooks:
                hook.remove()

    def _of_model(self, module: nn.Module, name: str) -> None:
        if isinstance(module, EncoderClassifier):
            self.end(name)

    @contextmanager
    def _update(self) -> Iterator[None]:
        self.end("optimizers" if self._is_updating else "loss, backward, clipping")
        self._is_updating = True
        yield
        self.end("optimizers")


@contextmanager
def _around_updates(around: Callable[[], AbstractContextManager[Any]]) -> Iterator[None]:
    """Each step of an optimizer is within such a context."""
    step = Optimizer.step

    def within(optimizer: Optimizer) -> None:
        with around():
            step(optimizer)

    with patch.object(Optimizer, "step", within):
        yield


def operations(ours: Ours) -> dict[str, float]:
    """Milliseconds of a step, by kind of operation."""
    steps = ours.stage.steps_per_epoch
    updates = _around_updates(lambda: record_function(UPDATE))
    with updates, profile(activities=[ProfilerActivity.CPU], acc_events=True) as profiler:
        began = time.perf_counter()
        ours()
        wall = 1000 * (time.perf_counter() - began)
    milliseconds: defaultdict[str, float] = defaultdict(float)
    for event in profiler.events() or ():
        milliseconds[_group(event)] += event.self_cpu_time_total / 1000
    milliseconds[NOT_TORCH] = max(0.0, wall - sum(milliseconds.values()))
    return {name: spent / steps for name, spent in milliseconds.items()}


def _group(event: Any) -> str:
    """The kind of an operation."""
    names, outer = [event.name], event.cpu_parent
    while outer is not None:
        names.append(outer.name)
        outer = outer.cpu_parent
    if UPDATE in names:
        return "optimizers"
    return next((group for group, parts in OPERATIONS if any(part in event.name for part in parts)), OTHER)


def section(_plan: Plan, results: dict[tuple[Size, Kind], dict[str, Any]]) -> list[str]:
    """Markdown."""
    precision = str(resolve_precision("auto", torch.device("cpu"))).removeprefix("torch.")
    rows, groups = [], [name for name, _ in OPERATIONS] + [OTHER, NOT_TORCH]
    by_operation = []
    for (size, kind), result in results.items():
        for variant, found in result.items():
            first = [kind.name, str(size), variant]
            times = found["sections"]
            whole = sum(times.values())
            outside = sum(times[name] for name in OUTSIDE)
            rows.append([*first, f"{whole:,.0f}", *_shares(times, SECTIONS), f"{100 * outside / whole:.1f}"])
            by_operation.append([*first, *_shares(found["operations"], groups)])
    notes = NOTES.format(
        precision=precision,
        sections="Batching, forward, backward and optimizers",
        outside=" and ".join(f"`{name}`" for name in SECTIONS if name in OUTSIDE),
    )
    lines = ["## Where a step's time goes", "", notes, ""]
    lines += table(["texts", "size", "variant", "step, ms", *SECTIONS, "outside"], rows, left=3)
    lines += ["", OPERATIONS_NOTE, "", *table(["texts", "size", "variant", *groups], by_operation, left=3)]
    return lines


def _shares(times: dict[str, float], names: Sequence[str]) -> list[str]:
    whole = sum(times.values())
    return [f"{100 * times.get(name, 0.0) / whole:.1f}" for name in names]
