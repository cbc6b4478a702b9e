"""Small data sets and configs, numbers of tries, and fingerprints of finished runs."""

import hashlib
import itertools
import json
import os
import random
import shutil
from pathlib import Path

import pytest
import yaml
from hypothesis import HealthCheck, Phase, given, settings
from processes import fork, start

TOPICS = {
    "weather": "rain snow wind cloud storm sunny frost mild humid thunder",
    "food": "soup bread cheese salt pepper onion garlic butter honey rice",
    "sport": "ball goal match team coach score league penalty sprint medal",
}
COMMON_WORDS = "the a very today again with some we they it was is and but then"
FILLERS = COMMON_WORDS.split()
WORDS = " ".join(TOPICS.values()).split()

ENGINES = ("numpy", "torch")  # by which a classifier can be computed
CHECKPOINT_FILES = ("manifest.json", "model.safetensors", "optimizer.safetensors", "state.json")

SHAPE = {"d_model": 16, "num_layers": 1, "num_heads": 2, "d_ff": 32, "max_seq_len": 24}
TABLES = {"char_ngram_buckets": 64, "bigram_buckets": 64}
TRAIN = {
    "batch_size": 16,
    "epochs": 3,
    "log_every": 3,
    "checkpoint_every": 3,
    "learning_rate": 0.01,
}
SPLITS = {"train": 40, "validation": 12, "test": 10}  # texts of a class

# Different ways through the code: pretraining, then an encoder with a linear model beside it,
# as by default; these two from labels alone, with patience, accumulation and weights; the encoder
# alone, of other layers.
VARIANTS = {
    "default": {"pretrain": {"epochs": 2}, "train": {"validate_every": 4}},
    "labels": {
        "pretrain": {"epochs": 0},
        "train": {
            "epochs": 6,
            "patience": 2,
            "accumulation_steps": 2,
            "class_weights": {"food": 2.0},
        },
    },
    "encoder": {
        "pretrain": {"epochs": 0},
        "model": {"linear": False, "norm": "post", "positions": "learned", "activation": "relu"},
        "train": {
            "validate_every": 3,
            "keep_checkpoints": 1,
            "checkpoint_every": 4,
            "monitor": "macro_f1",
        },
    },
}

FRACTION = 1.0  # of each case's tries


def part_of(count):
    """How many of so many tries are made."""
    return max(1, round(count * FRACTION))


def tries(count):
    """Give a case so many tries, by number."""
    return pytest.mark.parametrize("number", range(count))


def fuzz(count, *strategies, **named):
    """Give a case so many tries, whose arguments Hypothesis makes.

    They are always the same ones, but for --hypothesis-seed.
    """

    def decorate(test):
        phases = [Phase.generate]
        if "FAULT" not in os.environ:
            phases.append(Phase.shrink)
        limited = settings(
            max_examples=part_of(count),
            deadline=None,
            database=None,
            derandomize=True,
            phases=phases,
            print_blob=False,
            suppress_health_check=list(HealthCheck),
        )
        fuzzed = limited(given(*strategies, **named)(test))
        return pytest.mark.examples(count)(fuzzed)

    return decorate


def variant_of(number):
    """The variant of a try: each in turn."""
    return list(VARIANTS)[number % len(VARIANTS)]


def engine_of(number, *, kinds=1):
    """The engine of a try: each in turn.

    Of several kinds of tries that alternate, each kind is tried by both engines.
    """
    return ENGINES[number // kinds % len(ENGINES)]


class Workspace:
    """A folder with data, a config for each variant, and finished runs to compare with."""

    def __init__(self, folder):
        self.folder = folder
        self.scratch = folder / "scratch"
        self._references = {}
        self._numbers = itertools.count()
        self.scratch.mkdir()

        self.data = {split: str(folder / f"{split}.csv") for split in SPLITS}
        for seed, (split, size) in enumerate(SPLITS.items()):
            Path(self.data[split]).write_text(labelled_text(size, seed=seed))

        for name, changes in VARIANTS.items():
            config = {"data": self.data, "model": SHAPE | TABLES, "train": TRAIN}
            for section, values in changes.items():
                config[section] = config.get(section, {}) | values
            self._add(name, config)

    def _add(self, name, config):
        """Write a config; returns its name."""
        self.config(name).write_text(yaml.safe_dump(config | {"name": name}))
        return name

    def _changed(self, name, variant, section, **values):
        """Write a config of a variant with other values, unless there is one; returns its name."""
        if self.config(name).exists():
            return name
        config = yaml.safe_load(self.config(variant).read_text())
        return self._add(name, config | {section: config[section] | values})

    def config(self, variant):
        """The config file of a variant."""
        return self.folder / f"{variant}.yaml"

    def continued(self, variant):
        """The name of a config that goes on from a variant's run, with new texts and classes."""
        name = f"continued-{variant}"
        if self.config(name).exists():
            return name

        data = self.folder / f"{name}.csv"
        data.write_text(labelled_text(12, seed=9).replace(",sport\n", ",games\n"))
        changes = VARIANTS[variant]
        config = {
            "from_run": str(self.reference(variant)),
            "data": {"train": str(data)},
            "pretrain": changes.get("pretrain", {}),
            "train": TRAIN | changes.get("train", {}),
        }
        return self._add(name, config)

    def sharded(self, variant):
        """The name of a config that cuts the batches of a variant into four shards."""
        return self._changed(f"sharded-{variant}", variant, "train", gradient_shards=4)

    def cached(self, variant):
        """The name of a config of a variant with a cache, and the folder of the empty cache."""
        cache = self.folder / "cache"
        name = self._changed(f"cached-{variant}", variant, "data", cache=str(cache))
        self.reference(name)
        shutil.rmtree(cache, ignore_errors=True)
        return name, cache

    def brief(self):
        """The name of a config of a run of a few steps, with two checkpoints."""
        return self._changed("brief", "labels", "train", epochs=1, keep_checkpoints=1)

    def new_path(self, name):
        """A path that nothing is at, until the end of the try."""
        return self.scratch / f"{name}-{next(self._numbers)}"

    def reference(self, variant):
        """A run of a variant that nothing disturbed."""
        if variant not in self._references:
            path = self.folder / f"reference-{variant}"
            self.fork(self.train(variant, path)).end().check()
            self._references[variant] = path
        return self._references[variant]

    def begun(self, variant):
        """A run of a variant as if it had been killed just before its end."""
        name = f"begun-{variant}"
        if name not in self._references:
            path = self.folder / name
            self.fork(self.train(variant, path), prepare=keep_checkpoints).end().check()
            (path / "model" / "README.md").unlink()
            self._references[name] = path
        return self._references[name]

    def copy(self, variant, *, is_begun=False):
        """A copy of the finished run of a variant, or of the begun one, to be damaged."""
        run = self.new_path("copy")
        original = self.begun(variant) if is_begun else self.reference(variant)
        shutil.copytree(original, run, symlinks=True)
        return run

    def copy_with_data(self, variant, folder):
        """Copy the finished run of a variant and its data into a folder, where both may be harmed.

        Returns:
            The run, which is called run.
        """
        run = Path(shutil.copytree(self.reference(variant), folder / "run"))
        for split, path in self.data.items():
            copy = shutil.copy(path, folder / f"{split}.csv")
            for name in ("config.yaml", "sources.json"):
                file = run / name
                file.write_text(file.read_text().replace(path, str(copy)))
        return run

    def fork(self, arguments, **options):
        """A command in a copy of this process."""
        return fork(arguments, cwd=self.folder, **options)

    def start(self, arguments, **options):
        """A command in a process of its own."""
        return start(arguments, cwd=self.folder, **options)

    def finish(self, variant, run, *, begin=None):
        """Go on with a disturbed run to its end, where it must equal the undisturbed one."""
        reference = self.reference(variant)
        begin = begin or self.fork
        ended = begin(self.train(variant, run)).end().check()
        assert_same_run(run, reference)
        return ended

    def train(self, variant, run, *more):
        """The arguments that train a variant into a run folder, or go on with it."""
        return [
            "train",
            "--config",
            self.config(variant),
            "--run-dir",
            run,
            "--resume",
            "--device",
            "cpu",
            *more,
        ]

    def predict(self, run, engine, *more, **options):
        """Predict by an engine, to the end."""
        return self.fork(predict(run, engine, *more), **options).end()


def keep_checkpoints():
    """Let the trainings of this process keep their checkpoints when they are finished."""
    from encoder_cls.training import train

    train.remove_files_to_resume = lambda _folder: None


def predict(run, engine, *more):
    """The arguments that predict by an engine."""
    return ["predict", "--model", run, "--engine", engine, "--device", "cpu", *more]


def labelled_text(texts_per_class, *, seed):
    """The content of a CSV file of short texts.

    They have words of their class and some of any, so that no classifier is always right.
    """
    draw = random.Random(seed)
    rows = ["text,label\n"]
    for _ in range(texts_per_class):
        for label, words in TOPICS.items():
            chosen = draw.sample(words.split(), draw.randint(1, 3))
            chosen += draw.choices(FILLERS, k=draw.randint(0, 9))
            chosen += draw.choices(WORDS, k=draw.randint(0, 3))
            draw.shuffle(chosen)
            rows.append(f"{' '.join(chosen)},{label}\n")
    return "".join(rows)


def sha256_of(path):
    """The hash of a file."""
    return hashlib.sha256(path.read_bytes()).hexdigest()


def hashes_of(folder):
    """The hash of each file of a folder."""
    files = [path for path in sorted(folder.rglob("*")) if path.is_file()]
    return {str(path.relative_to(folder)): sha256_of(path) for path in files}


def fingerprint(run):
    """All of a finished run that must not depend on how it came about."""
    files = {}
    for folder in (run / "model", newest_checkpoint(run), run / "eval"):
        for name, sha256 in hashes_of(folder).items():
            files[f"{folder.name}/{name}"] = sha256
    return {
        "files": files,
        "metrics": metric_rows(run),
        "curves": curves(run),
        "others": sorted(path.name for path in run.iterdir() if "tfevents" not in path.name),
    }


def newest_checkpoint(run):
    """The folder of the checkpoint with the highest step."""

    def step(path):
        return int(path.name.removeprefix("step-").split(".")[0])

    return max((run / "checkpoints").glob("step-*"), key=step)


def last_weights(run):
    """The hash of the last weights, which the manifest of a finished run still has."""
    manifest = json.loads((newest_checkpoint(run) / "manifest.json").read_text())
    return manifest["files"]["model.safetensors"]["sha256"]


def metric_rows(run):
    """The rows of `metrics.jsonl` without what the clock has written."""
    rows = []
    for line in (run / "metrics.jsonl").read_text().splitlines():
        row = json.loads(line)
        row.pop("time", None)
        row.pop("tokens_per_s", None)
        rows.append(row)
    return rows


def curves(run):
    """The curves in TensorBoard, without those of speed; of pictures their sizes."""
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    events = EventAccumulator(str(run)).Reload()
    found = {}
    for tag in events.Tags()["scalars"]:
        if not tag.endswith("tokens per second"):
            found[tag] = [(event.step, event.value) for event in events.Scalars(tag)]
    for tag in events.Tags()["images"]:
        sizes = []
        for event in events.Images(tag):
            sizes.append((event.step, len(event.encoded_image_string)))
        found[tag] = sizes
    return found


def assert_same_run(run, reference):
    """Fail unless two runs have equal fingerprints."""
    expected = fingerprint(reference)
    for part, found in fingerprint(run).items():
        assert found == expected[part], part


def damage(path, draw, *, cut=0.2):
    """Change a bit of a file, or cut off its end; returns its content before."""
    content = path.read_bytes()
    changed = bytearray(content)
    place = draw.randrange(len(content))
    if draw.random() < cut:
        # Without its last character, a line feed, a JSON file says the same.
        del changed[min(place, len(content) - 2) :]
    else:
        changed[place] ^= 1 << draw.randrange(8)
    path.write_bytes(changed)
    return content
