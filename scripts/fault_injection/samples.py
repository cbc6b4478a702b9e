"""Small data sets and configs, and what a finished run consists of."""

from __future__ import annotations

import hashlib
import json
import random
import shutil
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import yaml
from processes import Arguments, Ended, Process, fork

from encoder_cls.tracking.run_dir import RunDir

TOPICS = {
    "weather": "rain snow wind cloud storm sunny frost mild humid thunder",
    "food": "soup bread cheese salt pepper onion garlic butter honey rice",
    "sport": "ball goal match team coach score league penalty sprint medal",
}
FILLERS = ["the", "a", "very", "today", "again", "with", "some", "we", "they", "it", "was", "is", "and", "but", "then"]

ENGINES = ("numpy", "torch")  # by which a classifier can be computed
MODEL_FILES = ("config.json", "tokenizer.json", "model.safetensors")
CHECKPOINT_FILES = ("manifest.json", "model.safetensors", "optimizer.safetensors", "state.json")

SHAPE = {"d_model": 16, "num_layers": 1, "num_heads": 2, "d_ff": 32, "max_seq_len": 24}
TABLES = {"char_ngram_buckets": 64, "bigram_buckets": 64}
TRAIN = {"batch_size": 16, "epochs": 3, "log_every": 3, "checkpoint_every": 3, "learning_rate": 0.01}

# Different ways through the code. Pretraining, then an encoder with a linear classifier beside it, as by default; these
# two from labels alone, with patience, accumulation and weights; the encoder alone, of other layers.
VARIANTS: dict[str, dict[str, Any]] = {
    "default": {"pretrain": {"epochs": 2}, "train": {"validate_every": 4}},
    "labels": {
        "pretrain": {"epochs": 0},
        "train": {"epochs": 6, "patience": 2, "accumulation_steps": 2, "class_weights": {"food": 2.0}},
    },
    "encoder": {
        "pretrain": {"epochs": 0},
        "model": {"linear": False, "norm": "post", "positions": "learned", "activation": "relu"},
        "train": {"validate_every": 3, "keep_checkpoints": 1, "checkpoint_every": 4, "monitor": "macro_f1"},
    },
}


@dataclass(eq=False)
class Workspace:
    """A folder with data, a config for each variant, and finished runs to compare with."""

    folder: Path
    _references: dict[str, Path] = field(default_factory=dict)
    _count: int = 0

    def __post_init__(self) -> None:
        self.folder = self.folder.resolve()
        for seed, (split, size) in enumerate({"train": 40, "validation": 12, "test": 10}.items()):
            (self.folder / f"{split}.csv").write_text(labelled_text(size, seed=seed), encoding="utf-8")
        data = {split: str(self.folder / f"{split}.csv") for split in ("train", "validation", "test")}
        for name, changes in VARIANTS.items():
            sections = {"data": data, "model": SHAPE | TABLES, "train": TRAIN}
            config = {key: sections.get(key, {}) | changes.get(key, {}) for key in sections.keys() | changes.keys()}
            self.config(name).write_text(yaml.safe_dump({"name": name} | config))

    def config(self, variant: str) -> Path:
        """The config file of a variant."""
        return self.folder / f"{variant}.yaml"

    def continued(self, variant: str) -> str:
        """The name of a config that goes on from a variant's finished run, with new texts and a new class."""
        name = f"continued-{variant}"
        if not self.config(name).exists():
            data = self.folder / f"{name}.csv"
            data.write_text(labelled_text(12, seed=9).replace(",sport\n", ",games\n"), encoding="utf-8")
            own = {key: VARIANTS[variant].get(key, {}) for key in ("pretrain", "train")}
            config = {"name": name, "from_run": str(self.reference(variant)), "data": {"train": str(data)}}
            self.config(name).write_text(yaml.safe_dump(config | own | {"train": TRAIN | own["train"]}))
        return name

    def sharded(self, variant: str) -> str:
        """The name of a config that cuts the batches of a variant into four shards."""
        name = f"sharded-{variant}"
        if not self.config(name).exists():
            config = yaml.safe_load(self.config(variant).read_text())
            config["train"] |= {"gradient_shards": 4}
            self.config(name).write_text(yaml.safe_dump(config | {"name": name}))
        return name

    def cached(self, variant: str) -> tuple[str, Path]:
        """The name of a config of a variant that has a cache, and the folder of that, which is empty now."""
        name, cache = f"cached-{variant}", self.folder / "cache"
        if not self.config(name).exists():
            config = yaml.safe_load(self.config(variant).read_text())
            config["data"] |= {"cache": str(cache)}
            self.config(name).write_text(yaml.safe_dump(config | {"name": name}))
            self.reference(name)
        shutil.rmtree(cache)
        return name, cache

    def new_path(self, name: str) -> Path:
        """A path that nothing is at."""
        self._count += 1
        return self.folder / f"{name}-{self._count}"

    def reference(self, variant: str) -> Path:
        """A run of a variant that nothing disturbed."""
        if variant not in self._references:
            path = self.new_path(f"reference-{variant}")
            ended = fork(self.train(variant, path), cwd=self.folder).end()
            assert ended.code == 0, ended.err
            self._references[variant] = path
        return self._references[variant]

    def copy(self, run: Path) -> Path:
        """A copy of a run to be damaged."""
        return Path(shutil.copytree(run, self.new_path("copy"), symlinks=True))

    def finish(self, variant: str, run: Path, *, begin: Callable[..., Process] = fork) -> Ended:
        """Go on with a disturbed run to its end: it must be the one that nothing disturbed."""
        reference = self.reference(variant)
        ended = begin(self.train(variant, run), cwd=self.folder).end()
        assert ended.code == 0, ended.err
        assert_same_run(run, reference)
        return ended

    def train(self, variant: str, run: Path, *more: str) -> Arguments:
        """The arguments that train a variant into a run folder, or go on with it."""
        return ["train", "--config", self.config(variant), "--run-dir", run, "--resume", "--device", "cpu", *more]


def predict(run: Path, engine: str, *more: str | bytes | Path) -> Arguments:
    """The arguments that predict by an engine."""
    return ["predict", "--model", run, "--engine", engine, "--device", "cpu", *more]


def engine_of(number: int, *, kinds: int = 1) -> str:
    """The engine of a try: each in turn, where there are several kinds of tries by turns, each of these by both."""
    return ENGINES[number // kinds % len(ENGINES)]


def labelled_text(texts_per_class: int, *, seed: int) -> str:
    """A CSV file of short texts, each with words of its class and some of any: nobody is right about all of them."""
    draw = random.Random(seed)
    misleading = " ".join(TOPICS.values()).split()
    rows = []
    for _ in range(texts_per_class):
        for label, words in TOPICS.items():
            chosen = draw.sample(words.split(), draw.randint(1, 3)) + draw.choices(FILLERS, k=draw.randint(0, 9))
            chosen += draw.choices(misleading, k=draw.randint(0, 3))
            draw.shuffle(chosen)
            rows.append(f"{' '.join(chosen)},{label}\n")
    return "text,label\n" + "".join(rows)


def fingerprint(run: Path) -> dict[str, Any]:
    """All of a finished run that must not depend on how it came about: hashes of files, rows of metrics."""
    newest = newest_checkpoint(run)
    files = [*(run / "model").glob("*"), *newest.glob("*"), *(run / "eval").glob("*")]
    return {
        "files": {str(path.relative_to(run)): hashlib.sha256(path.read_bytes()).hexdigest() for path in sorted(files)},
        "metrics": metric_rows(run),
        "curves": curves(run),
        "others": sorted({path.name for path in run.iterdir()} - {path.name for path in RunDir(run).event_files}),
    }


def hashes_of(folder: Path) -> dict[str, str]:
    """The hash of each file of a folder, whatever it is."""
    files = sorted(path for path in folder.rglob("*") if path.is_file())
    return {str(path.relative_to(folder)): hashlib.sha256(path.read_bytes()).hexdigest() for path in files}


def newest_checkpoint(run: Path) -> Path:
    """The folder of the checkpoint with the highest step."""
    return max((run / "checkpoints").glob("step-*"), key=lambda path: int(path.name.split("-")[1].split(".")[0]))


def last_weights(run: Path) -> str:
    """A hash of the weights of the newest checkpoint."""
    manifest = json.loads((newest_checkpoint(run) / "manifest.json").read_text())
    return str(manifest["files"]["model.safetensors"]["sha256"])


def metric_rows(run: Path) -> list[dict[str, Any]]:
    """The rows of `metrics.jsonl` without what the clock has written."""
    rows = [json.loads(line) for line in (run / "metrics.jsonl").read_text().splitlines()]
    return [{key: value for key, value in row.items() if key not in {"time", "tokens_per_s"}} for row in rows]


def curves(run: Path) -> dict[str, list[tuple[int, float]]]:
    """The curves in TensorBoard, as a person would see them, without those of speed; of pictures their sizes."""
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    events = EventAccumulator(str(run)).Reload()
    tags = events.Tags()
    scalars = [tag for tag in tags["scalars"] if not tag.endswith("tokens per second")]
    pictures = {
        tag: [(event.step, len(event.encoded_image_string)) for event in events.Images(tag)] for tag in tags["images"]
    }
    return {tag: [(event.step, event.value) for event in events.Scalars(tag)] for tag in scalars} | pictures


def assert_same_run(run: Path, reference: Path) -> None:
    """Fail, naming what differs, unless two runs have equal fingerprints."""
    one, other = fingerprint(run), fingerprint(reference)
    if one == other:
        return
    for part in one:
        assert one[part] == other[part], f"{part} differ:\n  {_difference(one[part], other[part])}"


def assert_mendable(ended: Ended, *, code: int, named: str) -> None:
    """Fail unless a command ended with a code and an error of one or two lines that names something."""
    errors = [line for line in ended.err.splitlines() if line.startswith("error:")]
    assert ended.code == code, f"exit {ended.code}, expected {code}: {ended.err[-800:]}"
    assert "Traceback" not in ended.err, ended.err[-800:]
    assert len(errors) == 1, ended.err[-800:]
    assert named in ended.err, f"{named!r} is not named: {ended.err[-800:]}"


def _difference(one: Any, other: Any) -> str:
    if isinstance(one, dict):
        changed = [key for key in one.keys() | other.keys() if one.get(key) != other.get(key)]
        return ", ".join(
            f"{key}: {str(one.get(key))[:200]} / {str(other.get(key))[:200]}" for key in sorted(changed)[:4]
        )
    if isinstance(one, list):
        pairs = [(x, y) for x, y in zip(one, other, strict=False) if x != y][:2]
        return f"{len(one)} / {len(other)} entries; {pairs}"
    return f"{one} / {other}"
