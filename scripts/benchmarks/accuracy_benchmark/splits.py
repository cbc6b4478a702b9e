"""A data set's folder and a seed in, the config overrides that name its files out; also of fewer labelled texts."""

from __future__ import annotations

import hashlib
import json
import tempfile
from collections.abc import Hashable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import numpy as np
import pyarrow.parquet as pq
from numpy.typing import NDArray

EXAMPLE = "example"  # the bundled data
SPLITS = ("train", "validation", "test")


def missing_file(folder: Path, names: Iterable[str]) -> Path | None:
    """The training file of the first of these data sets that is not in the folder; none: all are there."""
    files = (folder / name / "train.parquet" for name in names if name != EXAMPLE)
    return next((file for file in files if not file.exists()), None)


@contextmanager
def split_files(folder: Path, data: str, *, seed: int, size: int | None) -> Iterator[tuple[str, ...]]:
    """The config overrides that name the files of a data set; those of a subset exist inside the block only."""
    if data == EXAMPLE:
        yield ()
        return
    files = {name: folder / data / f"{name}.parquet" for name in SPLITS}
    with tempfile.TemporaryDirectory() as temporary:
        if size is not None:
            rows = pq.read_table(files["train"])
            order = nested_order(rows["label"].to_pylist(), seed)
            files["validation"] = Path(temporary) / "none"
            for name, indices in (("train", order[:size]), ("unlabelled", order[size:])):
                files[name] = Path(temporary) / f"{name}.parquet"
                pq.write_table(rows.take(np.sort(indices)), files[name])
        named = {name: json.dumps(str(path)) if path.exists() else "null" for name, path in files.items()}
        # What is held out is drawn anew with each seed, of all methods alike.
        yield (f"name={data}", f"data.split_seed={seed}", *(f"data.{name}={path}" for name, path in named.items()))


def nested_order(labels: Sequence[Hashable], seed: int) -> NDArray[np.int64]:
    """An order of texts of which every beginning is stratified, and that starts with two texts of each class.

    Two, since one of them has to validate.
    """
    random = np.random.default_rng(seed)
    _, classes = np.unique(np.array([str(label) for label in labels]), return_inverse=True)
    order = random.permutation(len(labels))
    ranks = np.empty(len(labels))
    for number in range(classes.max() + 1):
        members = order[classes[order] == number]
        ranks[members] = (np.arange(len(members)) + 0.5) / len(members)
        ranks[members[:2]] = -1
    return order[np.argsort(ranks[order], kind="stable")]


def data_hash(folder: Path, data: str) -> str:
    """Equal files, equal hash; the bundled data belongs to the code."""
    if data == EXAMPLE:
        return EXAMPLE
    found = hashlib.sha256()
    for name in SPLITS:
        path = folder / data / f"{name}.parquet"
        found.update(f"{name}: {hashlib.sha256(path.read_bytes()).hexdigest() if path.exists() else None}\n".encode())
    return found.hexdigest()[:16]
