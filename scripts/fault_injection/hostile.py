"""Cases about model folders and checkpoints made to do harm: they are refused, and nothing in them is run."""

from __future__ import annotations

import json
import os
import pickle
import random
import socket
from collections.abc import Callable
from pathlib import Path
from typing import Any

import safetensors.torch
import torch
from cases import Case
from processes import fork
from samples import CHECKPOINT_FILES, ENGINES, MODEL_FILES, Workspace, assert_mendable, newest_checkpoint, predict

from encoder_cls.inference.folder import NO_HASH, load_classifier, save_classifier
from encoder_cls.inference.metadata import FORMAT
from encoder_cls.system.files import sha256

MOST_SECONDS, MOST_BYTES = 5.0, 1_000_000_000  # for an answer about a hostile folder
HUGE = 10**15

Action = Callable[[Path, Path], object]
"""Does something to a path; what it smuggles in would touch the second path if it were run."""


class _Canary:
    """Runs a command where it is unpickled."""

    def __init__(self, touched: Path) -> None:
        self._touched = touched

    def __reduce__(self) -> tuple[Any, ...]:
        return os.system, (f"touch {self._touched}",)


def hostile_model(space: Workspace, _draw: random.Random, number: int) -> None:
    """A model folder made to do harm: refused within seconds and 1 GB, and nothing in it is run."""
    name = sorted(HOSTILE)[number % len(HOSTILE)]
    run, canary = space.copy(space.reference("labels")), space.new_path("canary")
    save_classifier(load_classifier(run), run / "model")  # in float32, which is the easiest to forge
    HOSTILE[name](run / "model", canary)
    for engine in ENGINES:
        ended = fork(predict(run, engine, "some rain and a ball"), cwd=space.folder).end()
        what = f"{name}, {engine}"
        assert not canary.exists(), f"{what}: something in the folder was run"
        assert ended.seconds < MOST_SECONDS, f"{what}: {ended.seconds:.1f} s"
        assert ended.peak_bytes < MOST_BYTES, f"{what}: {ended.peak_bytes / 1e9:.2f} GB"
        assert ended.code in {1, 2}, f"{what}: exit {ended.code}: {ended.out!r} {ended.err}"
        assert_mendable(ended, code=ended.code, named=str(run))


def hostile_run(space: Workspace, _draw: random.Random, number: int) -> None:
    """The same in checkpoints: resume passes over them and trains again, exactly."""
    name = sorted(HOSTILE_CHECKPOINTS)[number % len(HOSTILE_CHECKPOINTS)]
    run, canary = space.copy(space.reference("labels")), space.new_path("canary")
    (run / "model" / "README.md").unlink()
    newest = newest_checkpoint(run)
    HOSTILE_CHECKPOINTS[name](newest, canary)
    ended = space.finish("labels", run)
    assert not canary.exists(), f"{name}: something in the folder was run"
    assert "passed over, damaged" in ended.err, f"{name}: {ended.err}"
    assert ended.peak_bytes < MOST_BYTES, f"{name}: {ended.peak_bytes / 1e9:.2f} GB"


def _pickled(path: Path, canary: Path) -> None:
    path.write_bytes(pickle.dumps(_Canary(canary)))


def _pickled_by_torch(path: Path, canary: Path) -> None:
    torch.save({"weights": _Canary(canary)}, path)


def _linked(path: Path, _canary: Path) -> None:
    moved = path.with_name(f"{path.name}.moved")
    path.rename(moved)
    path.symlink_to(moved)


def _endless(path: Path, _canary: Path) -> None:
    path.unlink()
    path.symlink_to("/dev/zero")


def _pipe(path: Path, _canary: Path) -> None:
    path.unlink()
    os.mkfifo(path)


def _socket(path: Path, _canary: Path) -> None:
    path.unlink()
    with socket.socket(socket.AF_UNIX) as server:
        former = Path.cwd()
        os.chdir(path.parent)  # a socket's path may have 107 characters
        server.bind(path.name)
        os.chdir(former)


def _folder(path: Path, _canary: Path) -> None:
    path.unlink()
    path.mkdir()


def _sparse(path: Path, _canary: Path) -> None:
    os.truncate(path, 20_000_000_000)


def _header_bomb(length: int, content: bytes) -> Action:
    def write(path: Path, _canary: Path) -> None:
        path.write_bytes(length.to_bytes(8, "little") + content)

    return write


def _config(**values: Any) -> Action:
    """Other values in `config.json`, sealed as if they had been trained with."""

    def write(model: Path, _canary: Path) -> None:
        config = json.loads((model / "config.json").read_bytes())
        for key, value in values.items():
            if key in config["encoder"]:
                config["encoder"][key] = value
            if key in config or key not in config["encoder"]:
                config[key] = value
        (model / "config.json").write_text(json.dumps(config))
        _reseal(model)

    return write


def _linear(**values: Any) -> Action:
    """Other numbers of the linear classifier in `config.json`, sealed as if they had been trained with."""

    def write(model: Path, canary: Path) -> None:
        linear = json.loads((model / "config.json").read_bytes())["linear"]
        _config(linear=linear | values)(model, canary)

    return write


def _tokenizer(change: Callable[[dict[str, Any]], object]) -> Action:
    """Another `tokenizer.json`, sealed as if the model had been trained with it."""

    def write(model: Path, _canary: Path) -> None:
        tokenizer = json.loads((model / "tokenizer.json").read_bytes())
        change(tokenizer)
        (model / "tokenizer.json").write_text(json.dumps(tokenizer))
        config = json.loads((model / "config.json").read_bytes())
        config["tokenizer_sha256"] = sha256((model / "tokenizer.json").read_bytes())
        (model / "config.json").write_text(json.dumps(config))
        _reseal(model)

    return write


def _weights(change: Callable[[dict[str, torch.Tensor]], object], **header: Any) -> Action:
    def write(model: Path, _canary: Path) -> None:
        _reseal(model, change, **header)

    return write


def _reseal(model: Path, change: Callable[[dict[str, torch.Tensor]], object] | None = None, **header: Any) -> None:
    """Give a weights file the hashes that belong to what is in the folder, as a forger would."""
    path = model / "model.safetensors"
    with safetensors.safe_open(path, "pt") as file:
        former = json.loads(file.metadata()[FORMAT])
        weights = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118
    if change:
        change(weights)
    former |= {"sha256": NO_HASH.decode(), "config_sha256": sha256((model / "config.json").read_bytes())} | header
    content = safetensors.torch.save(weights, {FORMAT: json.dumps(former)})
    path.write_bytes(content.replace(NO_HASH, sha256(content).encode(), 1))


def _of(name: str, action: Action) -> Action:
    return lambda model, canary: action(model / name, canary)


def _with_rows(weights: dict[str, torch.Tensor]) -> None:
    """A table with rows beyond its end."""
    name = "encoder.embedding.bigrams.table.weight"
    rows, columns = weights[name].shape
    weights[name] = torch.ones(2, columns, dtype=torch.int8)
    weights[f"{name}.scales"] = torch.ones(2, dtype=torch.float16)
    weights[f"{name}.rows"] = torch.tensor([0, rows], dtype=torch.int32)


IDS = "linear.feature_ids"
SLOW_PATTERN = {"type": "Split", "pattern": {"Regex": "(?:a|a?)+$"}, "behavior": "Isolated", "invert": False}
ANY_FILE = {
    "is a pickle": _pickled,
    "is torch's pickle": _pickled_by_torch,
    "is a link": _linked,
    "is a link to /dev/zero": _endless,
    "is a pipe": _pipe,
    "is a socket": _socket,
    "is a folder": _folder,
    "has 20 GB": _sparse,
}
HOSTILE: dict[str, Action] = {
    **{f"{name} {what}": _of(name, action) for name in MODEL_FILES for what, action in ANY_FILE.items()},
    "header of 2^63 bytes": _of("model.safetensors", _header_bomb(2**63, b"{}")),
    "header longer than the file": _of("model.safetensors", _header_bomb(1000, b"{}")),
    "header of nested lists": _of("model.safetensors", _header_bomb(10**6, b"[" * 10**6)),
    "header without entries": _of("model.safetensors", _header_bomb(2, b"{}")),
    "config of nested lists": _of("config.json", lambda path, _: path.write_bytes(b"[" * 10**7)),
    "config that is a number": _of("config.json", lambda path, _: path.write_bytes(b"1" * 10**6)),
    "huge width": _config(d_model=HUGE),
    "huge width within limits": _config(d_model=8192, d_ff=65536, num_layers=256, num_heads=1),
    "many layers": _config(num_layers=HUGE),
    "many heads": _config(num_heads=HUGE),
    "long texts": _config(max_seq_len=HUGE),
    "long texts within limits": _config(max_seq_len=65536, positions="learned"),
    "huge tables": _config(char_ngram_buckets=HUGE),
    "huge tables within limits": _config(char_ngram_buckets=2**24, bigram_buckets=2**24),
    "width below zero": _config(d_model=-16),
    "width that is a text": _config(d_model="../../etc/passwd"),
    "no classes": _config(id2label={}),
    "a class that is a list": _config(id2label={"0": ["a"], "1": "b", "2": "c"}),
    "two classes of one name": _config(id2label={"0": "a", "1": "a", "2": "c"}),
    "a million classes": _config(id2label={str(number): f"class {number}" for number in range(1_000_000)}),
    "classes that are a path": _config(id2label="../../../etc"),
    "architecture that is a list": _config(encoder=[]),
    "version of the future": _config(format_version=99),
    "slow pattern in the tokenizer": _tokenizer(lambda it: it.update(pre_tokenizer=SLOW_PATTERN)),
    "pattern in the normalizer": _tokenizer(
        lambda it: it.update(normalizer={"type": "Replace", "pattern": {"Regex": "(a+)+$"}, "content": "a" * 9999})
    ),
    "tokenizer of nothing": _tokenizer(lambda it: it.clear()),
    "tokenizer without words": _tokenizer(lambda it: it["model"].update(vocab={})),
    "tokenizer with huge numbers": _tokenizer(lambda it: it["model"]["vocab"].update(rain=2**32 - 1)),
    "weights that are no numbers": _weights(lambda it: it["head.linear.bias"].fill_(float("nan"))),
    "weights of another shape": _weights(lambda it: it.update({"head.linear.bias": torch.zeros(7)})),
    "weights of another type": _weights(lambda it: it.update({"head.linear.bias": torch.zeros(3).double()})),
    "weights under names of paths": _weights(lambda it: it.update({"../../../tmp/x": torch.zeros(1)})),
    "weights left out": _weights(lambda it: it.pop("head.linear.bias")),
    "linear weights that are no numbers": _weights(lambda it: it["linear.weights"].fill_(float("nan"))),
    "linear weights of another shape": _weights(lambda it: it.update({"linear.biases": torch.zeros(2)})),
    "linear weights left out": _weights(lambda it: it.pop("linear.idf")),
    "linear features in another order": _weights(lambda it: it[IDS].copy_(it[IDS].flip(0))),
    "a linear feature below zero": _weights(lambda it: it[IDS][:1].fill_(-1)),
    "a linear feature beyond all": _weights(lambda it: it[IDS][-1:].fill_(2**31 - 1)),
    "a linear feature twice": _weights(lambda it: it[IDS][:2].fill_(1)),
    "no linear classifier, but its weights": _config(linear=None),
    "many linear features": _linear(features=HUGE),
    "many linear features within limits": _linear(features=2**24 - 1),
    "linear features below zero": _linear(features=-1),
    "linear features that are a text": _linear(features="../../etc/passwd"),
    "many frequent tokens": _linear(frequent_tokens=HUGE),
    "frequent tokens that are a list": _linear(frequent_tokens=[HUGE] * 9),
    "a linear classifier that reads for ever": _linear(max_tokens=HUGE),
    "a linear classifier that is a list": _config(linear=[HUGE] * 9),
    "no mixture weights": _weights(lambda _: None, mixture_weights=None),
    "one mixture weight": _weights(lambda _: None, mixture_weights={"encoder": 1.0}),
    "a million mixture weights": _weights(lambda _: None, mixture_weights=dict.fromkeys(map(str, range(10**6)), 1.0)),
    "mixture weight zero": _weights(lambda _: None, mixture_weights={"encoder": 1.0, "linear": 0.0}),
    "mixture weight below zero": _weights(lambda _: None, mixture_weights={"encoder": -1.0, "linear": 1.0}),
    "mixture shares above 1": _weights(lambda _: None, mixture_shares={"encoder": 7.0, "linear": 0.5}),
    "a mixture share of no part": _weights(lambda _: None, mixture_shares={"encoder": 0.5, "linear": 0.4, "x": 0.1}),
    "mixture weight that is no number": _weights(lambda _: None, mixture_weights={"encoder": 1.0, "linear": "nan"}),
    "parts that are not there": _weights(lambda _: None, parts=["linear", "other"]),
    "parts without their weights": _weights(lambda it: it.pop("head.linear.bias"), parts=["linear"]),
    "another type than the weights have": _weights(lambda _: None, dtypes={"encoder": "int8", "linear": "int8"}),
    "a type of the future": _weights(lambda _: None, dtypes={"encoder": "int4", "linear": "float32"}),
    "rows that are not there": _weights(_with_rows, dtypes={"encoder": "int8", "linear": "float32"}),
    "task of the future": _config(task="other"),
    "columns that are a list of numbers": _config(text_columns=[1, 2]),
    "no columns": _config(text_columns=[]),
}


def _manifest(**values: Any) -> Action:
    def write(checkpoint: Path, _canary: Path) -> None:
        path = checkpoint / "manifest.json"
        path.write_text(json.dumps(json.loads(path.read_bytes()) | values))

    return write


def _emptied(checkpoint: Path, _canary: Path) -> None:
    for path in checkpoint.iterdir():
        path.unlink()


def _state_with(**values: Any) -> Action:
    """Another state with a manifest that fits."""

    def write(checkpoint: Path, _canary: Path) -> None:
        state = json.loads((checkpoint / "state.json").read_bytes()) | values
        content = json.dumps(state).encode()
        (checkpoint / "state.json").write_bytes(content)
        manifest = json.loads((checkpoint / "manifest.json").read_bytes())
        manifest["files"]["state.json"] = {"size": len(content), "sha256": sha256(content)}
        (checkpoint / "manifest.json").write_text(json.dumps(manifest))

    return write


HOSTILE_CHECKPOINTS: dict[str, Action] = {
    **{f"{name} {what}": _of(name, action) for name in CHECKPOINT_FILES for what, action in ANY_FILE.items()},
    "manifest without files": _manifest(files={}),
    "manifest with other sizes": _manifest(files={name: {"size": HUGE, "sha256": "0"} for name in CHECKPOINT_FILES}),
    "manifest with paths": _manifest(files={"../../../../etc/passwd": {"size": 1, "sha256": "0"}}),
    "state of another program": _state_with(state={"epoch": 3}),
    "state that is a list": _state_with(state=[]),
    "step that is a text": _state_with(state={"step": "many"}),
    "no manifest": lambda checkpoint, _: (checkpoint / "manifest.json").unlink(),
    "nothing": _emptied,
}

CASES = {
    "hostile-model": Case("a hostile model folder is refused within 5 s and 1 GB", len(HOSTILE), hostile_model),
    "hostile-checkpoint": Case(
        "a hostile checkpoint is passed over, and the run is exact", len(HOSTILE_CHECKPOINTS), hostile_run
    ),
}
