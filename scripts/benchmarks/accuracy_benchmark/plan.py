"""Which trainings are to be made, in which order: the most telling ones first."""

from __future__ import annotations

import importlib.util
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path

import peers
import pyarrow.parquet as pq
from reporting import note

from accuracy_benchmark.methods import ABLATIONS, DEFAULT, PLAIN_ENCODER

METHODS = (DEFAULT, PLAIN_ENCODER, *peers.PEERS)
# The columns of the page unless others are asked for. The rest are no better than these, and slow.
COMPARED = (DEFAULT, PLAIN_ENCODER, "fasttext", "tfidf-words", "tfidf-chars")
PARTS = ("main", "curves", "ablation")
SEEDS = {"trec6": 5, "sst2": 5, "banking77": 5, "example": 5, "ag_news": 5, "imdb": 3}
FEWER_SEEDS = 3  # of learning curves and ablation
FEWEST_TEXTS = {"trec6": 100, "sst2": 100, "banking77": 300, "ag_news": 100}  # of a learning curve
SIZES = (100, 300, 1000, 3000, 10_000, 30_000)
LARGEST_PART = 0.9  # of all texts; a larger size would say what all texts say
DATA = {"main": tuple(SEEDS), "curves": tuple(FEWEST_TEXTS), "ablation": ("trec6", "sst2", "banking77", "example")}
SLOWEST = {("imdb", "tfidf-chars")}  # hours for one column of one row: after everything else


@dataclass(frozen=True, kw_only=True)
class Training:
    """One training of one method: on a data set as one seed splits it, or on `size` of its labelled texts only."""

    data: str
    method: str
    seed: int
    size: int | None = None

    def __str__(self) -> str:
        size = "all texts" if self.size is None else f"{self.size} texts"
        return f"{self.data}, {size}, seed {self.seed}, {self.method}"


@dataclass(frozen=True, kw_only=True)
class Plan:
    """What the command line asks for; `seeds`: in place of the usual numbers of seeds."""

    folder: Path
    data: Sequence[str]
    methods: Sequence[str]
    parts: Sequence[str] = PARTS
    seeds: int | None = None

    def trainings(self) -> list[Training]:
        """Every training once: seed by seed the main table, then the learning curves, then the ablation."""
        found = dict.fromkeys(training for part in PARTS if part in self.parts for training in self._of(part))
        return sorted(found, key=lambda training: (training.data, training.method) in SLOWEST)

    def data_of(self, part: str) -> list[str]:
        """The data sets of a part."""
        return [data for data in self.data if data in DATA[part]]

    def methods_of(self, part: str) -> list[str]:
        """The methods of a part; those of the ablation belong to the default config."""
        if part == "ablation":
            return [DEFAULT, *ABLATIONS] if DEFAULT in self.methods else []
        return [method for method in self.methods if part == "main" or method != PLAIN_ENCODER]

    def num_seeds(self, part: str, data: str) -> int:
        """How many seeds a data set has in a part."""
        return self.seeds or (SEEDS[data] if part == "main" else FEWER_SEEDS)

    def sizes(self, part: str, data: str) -> list[int | None]:
        """How many of the labelled texts of a data set a part uses; None: all."""
        if part != "curves":
            return [None]
        most = LARGEST_PART * self.num_texts(data)
        return [*(size for size in SIZES if FEWEST_TEXTS[data] <= size < most), None]

    def num_texts(self, data: str) -> int:
        """The number of labelled training texts of a data set."""
        return _num_rows(self.folder / data / "train.parquet")

    def over_seeds(self, part: str, data: str, method: str, size: int | None = None) -> list[Training]:
        """The trainings of one cell of a table."""
        seeds = range(self.num_seeds(part, data))
        return [Training(data=data, method=method, seed=seed, size=size) for seed in seeds]

    def _of(self, part: str) -> Iterator[Training]:
        sets = self.data_of(part)
        for seed in range(max((self.num_seeds(part, data) for data in sets), default=0)):
            for data in sets:
                if seed < self.num_seeds(part, data):
                    for size in self.sizes(part, data):
                        for method in self.methods_of(part):
                            yield Training(data=data, method=method, seed=seed, size=size)


@cache
def _num_rows(path: Path) -> int:
    return int(pq.read_metadata(path).num_rows)


def installed(methods: Sequence[str]) -> list[str]:
    """The methods whose libraries are there; one line tells of the others."""
    missing = [name for name in methods if name.startswith("fasttext") and not importlib.util.find_spec("fasttext")]
    if missing:
        note(f"fastText is not installed (pip install -e '.[bench]'); left out: {', '.join(missing)}")
    return [name for name in methods if name not in missing]
