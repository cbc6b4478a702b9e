"""Training speed: systems in turns with the machine's own ceiling, and how near to it they come."""

from __future__ import annotations

from contextlib import ExitStack
from functools import partial
from typing import Any

from reporting import NOT_MEASURED, table

from speed_benchmark.plan import Plan
from speed_benchmark.sizes import Size
from speed_benchmark.systems import HF_BEST, HF_DEFAULT, OURS, OURS_TABLES, entries, running
from speed_benchmark.texts import Corpus, Kind
from speed_benchmark.timing import best_product, in_turns, rates

CEILING = "ceiling"

NOTES = """\
Real tokens a second, never padding: the median of {rounds} rounds (lowest to highest). In a round each system has
its turn, and so has the machine's fastest matrix product. Same texts, same vocabulary, same tokens, same size,
batches of 64 texts (imdb: of 4,096 tokens, padding counted, for all). The texts of a cell are those of a few batches,
spread evenly over all lengths. Systems with steps of varying length learn each of these texts once in a round;
those with fixed lengths, whose steps are all alike, as many random ones of them as there is time for.

- encoder-cls: its own training loop with logging, learning from labels. Plain encoder: without the tables of
  character n-grams and of pairs of words, so the same model as the others. Default tables: with both, as it is by
  default. The linear model that a default training fits before its first step on labels is left out.
- nn.TransformerEncoder loop: as tutorials write it, padded to a fixed length (128, imdb 512), Adam.
- HF Trainer: Hugging Face's `Trainer.train` with `BertForSequenceClassification` from a config. Default: as its
  text-classification example, padded to a fixed length (128, imdb 512). Best effort: padded to the longest of a
  batch, texts grouped by length.

Ratios are those of medians: encoder-cls's plain encoder, in its better precision, to the other."""

UTILIZATION_NOTES = """\
The ceiling is the best product of two matrices, measured in the same rounds. Model FLOPs a token are 6 N + 12 L D T
(Chowdhery et al., "PaLM", 2022, appendix B, https://arxiv.org/abs/2204.02311): N weights in matrix products, L
layers, D d_model, T tokens of the text, weighted by tokens. Padding and recomputation do no useful work, so they do
not count. Utilization is tokens a second, of the whole step with batching and logging, times FLOPs a token, by the
ceiling of the same precision."""


def cells(plan: Plan) -> list[tuple[Size, Kind]]:
    """Sizes and kinds of texts, the quick ones first."""
    return [(size, kind) for size in plan.sizes for kind in plan.kinds]


def measure(plan: Plan, size: Size, kind: Kind) -> dict[str, Any]:
    """All systems and the ceiling, in turns."""
    corpus = plan.sample(kind, size)
    with ExitStack() as stack:
        systems = {}
        for entry in entries(plan.precisions):
            if entry.needs_transformers and not plan.has_transformers:
                continue
            system = stack.enter_context(running(entry, corpus, size, plan.seconds))
            systems[f"{entry.name}|{entry.precision}"] = system
        for precision in dict.fromkeys([*plan.precisions, "float32"]):
            systems[f"{CEILING}|{precision}"] = partial(
                best_product, precision, plan.product_shapes, plan.product_seconds
            )
        measured = in_turns(systems, rounds=plan.rounds)
    return {
        "rounds": measured,
        "texts": len(corpus.texts),
        "tokens": int(corpus.texts.lengths.sum()),
        "vocabulary": corpus.tokenizer.get_vocab_size(),
        "flops_per_token": flops_per_token(corpus, size),
    }


def flops_per_token(corpus: Corpus, size: Size) -> float:
    """Forward and backward: 6 N + 12 L D T, PaLM's appendix B, the mean over real tokens."""
    d, layers = size.d_model, size.num_layers
    weights = layers * (4 * d * d + 2 * d * size.d_ff)
    lengths = corpus.texts.lengths
    return float(6 * weights + 12 * layers * d * (lengths**2).sum() / lengths.sum())


def section(plan: Plan, results: dict[tuple[Size, Kind], dict[str, Any]]) -> list[str]:
    """Markdown: speed, then utilization."""
    lines = ["## Training", "", NOTES.format(rounds=plan.rounds), "", *speed_table(results)]
    lines += ["", "### Against the ceiling", "", UTILIZATION_NOTES, "", *utilization_table(results)]
    return lines


def speed_table(results: dict[tuple[Size, Kind], dict[str, Any]]) -> list[str]:
    """Tokens a second of every system in every cell."""
    rows = []
    for (size, kind), result in results.items():
        ours = max(
            (rates(values).median for name, values in result["rounds"].items() if name.startswith(f"{OURS}|")),
            default=None,
        )
        for name, values in result["rounds"].items():
            system, precision = name.split("|")
            if system == CEILING:
                continue
            speed = rates(values)
            is_ours = system in {OURS, OURS_TABLES}
            ratio = NOT_MEASURED if ours is None or is_ours else f"{ours / speed.median:.1f}"
            spread = f"{speed.median:,.0f} ({speed.lowest:,.0f} to {speed.highest:,.0f})"
            rows.append([kind.name, str(size), system, precision, spread, ratio])
    return table(["texts", "size", "system", "precision", "tokens/s", "ratio"], rows, left=4)


def utilization_table(results: dict[tuple[Size, Kind], dict[str, Any]]) -> list[str]:
    """How much of the ceiling each does useful work at."""
    rows = []
    for (size, kind), result in results.items():
        flops, rounds = result["flops_per_token"], result["rounds"]
        for name, values in rounds.items():
            system, precision = name.split("|")
            if system not in {OURS, HF_BEST, HF_DEFAULT}:
                continue
            ceiling = rates(rounds[f"{CEILING}|{precision}"]).median
            speed = rates(values).median
            rows.append([
                kind.name, str(size), system, precision, f"{ceiling / 1e12:.3f}", f"{flops / 1e6:.2f}",
                f"{ceiling / flops:,.0f}", f"{speed:,.0f}", f"{speed * flops / ceiling:.2f}",
            ])  # fmt: skip
    columns = [
        "texts", "size", "system", "precision", "ceiling, TFLOP/s", "MFLOP a token", "tokens/s at the ceiling",
        "tokens/s", "utilization",
    ]  # fmt: skip
    return table(columns, rows, left=4)
