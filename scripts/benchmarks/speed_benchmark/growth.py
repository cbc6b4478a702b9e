"""What a training costs as the work grows: more texts, longer texts, more words, more classes."""

from __future__ import annotations

import time
from collections.abc import Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import replace
from math import log
from multiprocessing import get_context
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from reporting import NOT_MEASURED, table

from encoder_cls.config import load_config
from encoder_cls.data.dataset import Dataset
from encoder_cls.training.prepare import prepare
from speed_benchmark.plan import Plan
from speed_benchmark.systems import ENDLESS, LABELS_ALONE, Ours
from speed_benchmark.texts import Kind, made_up, write_csv
from speed_benchmark.timing import peak_bytes

STEPS = 6  # timed, of one length of texts
WARM_UP = 2
KIND = Kind(name="made up", max_seq_len=512, batch_tokens=8192, words=20, classes=4)
TEXTS = 512

AXES = {
    "texts": (1_000, 4_000, 16_000, 64_000, 256_000),
    "tokens a text": (8, 16, 32, 64, 128, 256, 512),
    "words": (1_000, 4_000, 16_000, 64_000, 256_000),
    "classes": (2, 16, 128, 1_024, 8_192),
}
# Where it is not their number that grows: enough for most words to occur, and for some texts of each class.
MOST_TEXTS = {"texts": 0, "tokens a text": TEXTS, "words": 64_000, "classes": 32_768}
QUICK = {"texts": (80, 160), "tokens a text": (4, 8), "words": (100, 200), "classes": (2, 4)}
LABELS = {
    "texts": "number of texts",
    "tokens a text": "tokens a text",
    "words": "words in the vocabulary",
    "classes": "number of classes",
}

NOTES = """\
Made-up texts of about 20 words by Zipf's law, a vocabulary of up to 30,000, 4 classes, the default encoder, learning
from labels without a linear model beside it, batches of 64 texts and at most 8,192 tokens; one of these grows at a
time. Preparation is from the file to the first batch: reading, training the tokenizer, tokenizing, character n-grams.
An epoch is all texts once, without validation. Memory is the most resident in a process that does only this. Growth is
the exponent between a row and the one before: the time grows as so high a power (0: not at all, 1: in proportion). Why
they bend:

- texts: a step does not know how many there are; setup reads each once.
- tokens a text: products grow with the tokens, attention with their square: by operations they are equal at 6 d_model
  tokens (PaLM's formula), in time earlier, as softmax moves memory. Up to 128 tokens a batch has 64 texts, above it
  has 8,192 tokens.
- words: tables have sparse gradients, so a step costs what the batch touches, but more different words are touched.
- classes: the last product and the loss have one number a class for each text."""


def cells(plan: Plan) -> list[tuple[str, int]]:
    """Each value of each axis."""
    return [(axis, value) for axis, values in (QUICK if plan.quick else AXES).items() for value in values]


def measure(plan: Plan, axis: str, value: int) -> dict[str, Any]:
    """One point, in a process of its own."""
    with TemporaryDirectory() as folder, ProcessPoolExecutor(1, mp_context=get_context("spawn")) as pool:
        path = Path(folder) / "train.csv"
        dataset = grown(axis, value, texts=TEXTS // 8 if plan.quick else MOST_TEXTS[axis])
        write_csv(path, dataset.train, dataset.label_names)
        return pool.submit(point, path, axis).result()


def grown(axis: str, value: int, *, texts: int) -> Dataset:
    """So many made-up texts, in which one thing, which may be their number, is as large as asked."""
    if axis == "texts":
        return made_up(KIND, number=value)
    if axis == "tokens a text":
        return made_up(replace(KIND, words=value - 1), number=texts, sigma=0.0)  # [CLS] is a token
    if axis == "words":
        return made_up(KIND, number=texts, vocabulary=value)
    return made_up(replace(KIND, classes=value), number=texts)


def point(path: Path, axis: str) -> dict[str, float]:
    """Seconds of setup, of a step and of an epoch, real tokens of a step, and peak bytes."""
    overrides = [*ENDLESS, *LABELS_ALONE, f"data.train={path}", "data.validation=null", "data.test=null"]
    overrides += ["tokenizer.max_vocab_size=1000000"] if axis == "words" else []
    began = time.perf_counter()
    setup = prepare(load_config(None, overrides))
    prepared = time.perf_counter() - began
    ours = Ours(setup, path.parent)
    try:
        for _ in range(WARM_UP):
            ours.step()
        steps = [ours.step() for _ in range(STEPS)]
    finally:
        ours.close()
    seconds = sum(step.seconds for step in steps) / STEPS
    return {
        "setup": prepared,
        "step": seconds,
        "tokens": sum(step.amount for step in steps) / STEPS,
        "epoch": seconds * setup.stages[-1].steps_per_epoch,
        "vocabulary": setup.vocab_size,
        "peak": float(peak_bytes()),
    }


def section(_plan: Plan, results: dict[tuple[str, int], dict[str, Any]]) -> list[str]:
    """Markdown."""
    rows = []
    before: tuple[str, int] | None = None
    for (axis, value), found in results.items():
        growth, size = [NOT_MEASURED, NOT_MEASURED], reached(axis, value, found)
        if before and before[0] == axis:
            smaller = reached(*before, results[before])
            growth = [exponent(results[before], found, smaller, size, what) for what in ("step", "setup")]
        rows.append([
            axis, f"{size:,}", f"{1000 * found['step']:,.1f}", growth[0], f"{found['tokens'] / found['step']:,.0f}",
            f"{found['setup']:,.2f}", growth[1], f"{found['epoch']:,.1f}", f"{found['peak'] / 2**20:,.0f}",
        ])  # fmt: skip
        before = axis, value
    columns = [
        "what grows", "to", "step, ms", "growth", "tokens/s", "setup, s", "growth", "an epoch, s", "memory, MiB",
    ]  # fmt: skip
    return ["## As the work grows", "", NOTES, "", *table(columns, rows)]


def reached(axis: str, value: int, found: dict[str, float]) -> int:
    """How large it has really become: of very many words, many do not occur."""
    return int(found["vocabulary"]) if axis == "words" else value


def exponent(former: dict[str, float], found: dict[str, float], smaller: int, larger: int, what: str) -> str:
    """How fast something grows from one value to the next, as a power; nothing where the value did not grow."""
    if larger == smaller:
        return NOT_MEASURED
    return f"{log(found[what] / former[what]) / log(larger / smaller):.2f}"


def picture(results: dict[tuple[str, int], dict[str, Any]], path: Path) -> None:
    """One panel an axis, logarithmic on both: seconds of setup and of an epoch, milliseconds of a step."""
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    figure = Figure(figsize=(8, 5.5), layout="constrained", dpi=100)
    FigureCanvasAgg(figure)
    for axes, axis in zip(figure.subplots(2, 2).flat, AXES, strict=True):
        points = [(reached(axis, value, found), found) for (name, value), found in results.items() if name == axis]
        _panel(axes, axis, points)
    figure.savefig(path, format="png", metadata={"Software": None})


def _panel(axes: Any, axis: str, points: Sequence[tuple[int, dict[str, float]]]) -> None:
    values = [value for value, _ in points]
    for what, name, marker in (("setup", "setup", "o"), ("epoch", "an epoch", "s"), ("step", "a step", "^")):
        axes.plot(values, [found[what] for _, found in points], marker=marker, markersize=4, label=name)
    axes.set(xscale="log", yscale="log", xlabel=LABELS[axis], ylabel="seconds")
    axes.grid(visible=True, which="major", alpha=0.3)
    if axis == "texts":
        axes.legend()
