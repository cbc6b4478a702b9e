"""What is to be measured: sizes, texts, precisions, and how long to take over it."""

from __future__ import annotations

import importlib.util
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from speed_benchmark.sizes import SIZES, Size
from speed_benchmark.texts import BATCH_SIZE, KINDS, Corpus, Kind, load_corpus
from speed_benchmark.timing import CEILING_SECONDS, CEILING_SHAPES

PASS_TOKENS = {128: 10_000, 256: 6_000, 512: 3_000}  # of a system's turn, by d_model: wide models take long


@dataclass(frozen=True, kw_only=True)
class Plan:
    """What the command line asks for.

    Attributes:
        folder: of data sets; none: texts are made up.
        sizes: of models.
        kinds: of texts.
        precisions: of training.
        rounds: of all systems.
        seconds: of a call of a system that can choose.
        quick: everything as small as can be, to see that it runs.
    """

    folder: Path | None
    sizes: Sequence[Size] = tuple(SIZES.values())
    kinds: Sequence[Kind] = tuple(KINDS.values())
    precisions: tuple[str, ...] = ("float32", "bfloat16")
    rounds: int = 3
    seconds: float = 1.0
    quick: bool = False

    def corpus(self, kind: Kind) -> Corpus:
        """The texts of a kind."""
        return load_corpus(self.folder, kind, most_texts=200 if self.quick else 8192)

    def sample(self, kind: Kind, size: Size) -> Corpus:
        """The texts that a system learns in a turn."""
        corpus = self.corpus(kind)
        tokens = min(kind.batch_tokens, BATCH_SIZE * corpus.mean_length)
        wanted = 0 if self.quick else PASS_TOKENS[size.d_model]
        return corpus.batches(max(1, round(wanted / tokens)))

    @property
    def most_predicted(self) -> int:
        """The most texts that a system predicts in a turn."""
        return 32 if self.quick else 2048

    @property
    def product_shapes(self) -> Sequence[tuple[int, int, int]]:
        """Of the matrices whose product is the ceiling."""
        return ((64, 64, 64),) if self.quick else CEILING_SHAPES

    @property
    def product_seconds(self) -> float:
        """For each of them."""
        return 0.001 if self.quick else CEILING_SECONDS

    @property
    def has_transformers(self) -> bool:
        """Whether Hugging Face's Trainer can take part."""
        return all(importlib.util.find_spec(name) for name in ("transformers", "accelerate"))

    @property
    def has_fasttext(self) -> bool:
        """Whether fastText can take part."""
        return importlib.util.find_spec("fasttext") is not None
