"""Systems in, their times out: taken in turns, several rounds, so that all of them see the same machine."""

from __future__ import annotations

import gc
import statistics
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

import torch

PRECISIONS = {"float32": torch.float32, "bfloat16": torch.bfloat16}
CEILING_SHAPES = ((1024, 1024, 1024), (2048, 2048, 2048), (4096, 512, 2048))  # m, k, n
CEILING_SECONDS = 0.2  # of each shape, in each round


class Measured(NamedTuple):
    """How long something took, and how much it was: real tokens, texts or floating-point operations."""

    seconds: float
    amount: float


Rounds = dict[str, list[Measured]]


class Spread(NamedTuple):
    """Median, lowest and highest of several rounds."""

    median: float
    lowest: float
    highest: float


def rates(rounds: Sequence[Sequence[float]]) -> Spread:
    """The amounts per second of some rounds, of which each is a `Measured` or a list of the same from JSON."""
    values = [amount / seconds for seconds, amount in rounds]
    return Spread(statistics.median(values), min(values), max(values))


def in_turns(systems: Mapping[str, Callable[[], Measured]], *, rounds: int) -> Rounds:
    """Let each system run once to warm up and then once in each round; a later one begins each time."""
    names = list(systems)
    measured: Rounds = {name: [] for name in names}
    for name in names:
        systems[name]()
    for number in range(rounds):
        first = number % len(names)
        for name in names[first:] + names[:first]:
            gc.collect()
            measured[name].append(systems[name]())
    return measured


def repetitions(seconds_each: float, *, most: int, budget: float) -> int:
    """How often something that takes so long can be done within a budget: once at least."""
    return max(1, min(most, round(budget / seconds_each)))


def best_product(precision: str, shapes: Sequence[tuple[int, int, int]], seconds: float) -> Measured:
    """The fastest matrix product of some shapes (m, k, n), by 2 m k n operations each: what this machine can do."""
    best = Measured(1.0, 0.0)
    for m, k, n in shapes:
        left, right = (torch.randn(*shape).to(PRECISIONS[precision]) for shape in ((m, k), (k, n)))
        out = torch.empty(m, n, dtype=PRECISIONS[precision])
        torch.mm(left, right, out=out)
        began, done, elapsed = time.perf_counter(), 0, 0.0
        while not done or elapsed < seconds:
            torch.mm(left, right, out=out)
            done += 1
            elapsed = time.perf_counter() - began
        found = Measured(elapsed, 2.0 * m * k * n * done)
        if found.amount / found.seconds > best.amount / best.seconds:
            best = found
    return best


def peak_bytes(process: int | str = "self") -> int:
    """The most memory that a process has had resident so far (Linux).

    Not `getrusage`: its peak is passed on from a process to the one that it starts.
    """
    status = Path(f"/proc/{process}/status").read_text()
    line = next(line for line in status.splitlines() if line.startswith("VmHWM:"))
    return int(line.split()[1]) * 1024
