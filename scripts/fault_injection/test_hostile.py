"""Model folders and checkpoints made to do harm: they are refused, and nothing in them is run."""

import json
import os
import pickle
import socket
from functools import partial
from hashlib import sha256

import pytest
import safetensors.torch
import torch
from processes import limit_memory
from samples import CHECKPOINT_FILES, ENGINES, newest_checkpoint

from encoder_cls.classifier.model_folder import FORMAT, NO_HASH, load_classifier, save_classifier

MOST_SECONDS, MOST_BYTES = 5.0, 1_000_000_000  # for an answer about a hostile folder
HUGE = 10**15
WEIGHTS_FILE = "model.safetensors"
ABSENT = object()


class Canary:
    """Runs a command where it is unpickled."""

    def __init__(self, touched):
        self.touched = touched

    def __reduce__(self):
        return os.system, (f"touch {self.touched}",)


def bind(path, _canary):
    path.unlink()
    with socket.socket(socket.AF_UNIX) as server:  # a socket's path may have 107 characters
        server.bind(f"/proc/self/fd/{os.open(path.parent, os.O_PATH)}/{path.name}")


ANY_FILE = {
    "is a pickle": lambda path, canary: path.write_bytes(pickle.dumps(Canary(canary))),
    "is torch's pickle": lambda path, canary: torch.save({"weights": Canary(canary)}, path),
    "is a link to dev zero": lambda path, _: (path.unlink(), path.symlink_to("/dev/zero")),
    "is a pipe": lambda path, _: (path.unlink(), os.mkfifo(path)),
    "is a socket": bind,
    "is a folder": lambda path, _: (path.unlink(), path.mkdir()),
    **{
        f"has {size} GB": lambda path, _, size=size: os.truncate(path, size * 10**9)
        for size in (4, 20)
    },
}


def forge(
    model, *, weights=lambda _: None, header=(), config=lambda _: None, tokenizer=lambda _: None
):
    """Change the content of a model, and give it the hash of the new content, as a forger would."""
    with safetensors.safe_open(model / WEIGHTS_FILE, "pt") as file:
        found = json.loads(file.metadata()[FORMAT])
        tensors = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118
    of_tokenizer = json.loads(found["tokenizer"])
    tokenizer(of_tokenizer)
    config(found["config"])
    weights(tensors)
    found |= {"sha256": NO_HASH.decode(), "tokenizer": json.dumps(of_tokenizer)} | dict(header)
    found = {name: value for name, value in found.items() if value is not ABSENT}
    content = safetensors.torch.save(tensors, {FORMAT: json.dumps(found)})
    (model / WEIGHTS_FILE).write_bytes(
        content.replace(NO_HASH, sha256(content).hexdigest().encode(), 1)
    )


def configured(values):
    """Other values in the config, wherever it has them."""

    def change(config):
        encoder = config["encoder"]
        for key, value in values.items():
            if key in encoder:
                encoder[key] = value
            if key in config or key not in encoder:
                config[key] = value

    return {"config": change}


def with_rows(weights):
    """A table with rows beyond its end."""
    name = "encoder.embedding.bigrams.table.weight"
    rows, columns = weights[name].shape
    weights[name] = torch.ones(2, columns, dtype=torch.int8)
    weights[f"{name}.scales"] = torch.ones(2, dtype=torch.float16)
    weights[f"{name}.rows"] = torch.tensor([0, rows], dtype=torch.int32)


IDS, BIAS = "linear.feature_ids", "head.linear.bias"
SLOW_PATTERN = {
    "type": "Split",
    "pattern": {"Regex": "(?:a|a?)+$"},
    "behavior": "Isolated",
    "invert": False,
}
SLOW_NORMALIZER = {"type": "Replace", "pattern": {"Regex": "(a+)+$"}, "content": "a" * 9999}
# fmt: off
CONTENTS = [
    (WEIGHTS_FILE, (2**63).to_bytes(8, "little") + b"{}"), (WEIGHTS_FILE, b"\xe8\3" + bytes(6) + b"{}"),
    (WEIGHTS_FILE, (10**6).to_bytes(8, "little") + b"[" * 10**6), (WEIGHTS_FILE, b"\2" + bytes(7) + b"{}"),
]
CONFIGS = [
    {"d_model": HUGE}, {"d_model": 8192, "d_ff": 65536, "num_layers": 256, "num_heads": 1}, {"num_layers": HUGE},
    {"num_heads": HUGE}, {"max_seq_len": HUGE}, {"max_seq_len": 65536, "positions": "learned"}, {"d_model": -16},
    {"num_heads": 16, "max_seq_len": 65536},
    {"char_ngram_buckets": HUGE}, {"char_ngram_buckets": 2**24, "bigram_buckets": 2**24}, {"linear": None},
    {"d_model": "../../etc/passwd"}, {"id2label": {}}, {"id2label": {"0": ["a"], "1": "b", "2": "c"}},
    {"id2label": {"0": "a", "1": "a", "2": "c"}}, {"id2label": {str(it): f"class {it}" for it in range(1_000_000)}},
    {"id2label": "../../../etc"}, {"encoder": []}, {"format_version": 99}, {"linear": [HUGE] * 9}, {"task": "other"},
    {"text_columns": [1, 2]}, {"text_columns": []},
]
LINEARS = [
    {"features": HUGE}, {"features": 2**24 - 1}, {"features": -1}, {"features": "../../etc/passwd"},
    {"frequent_tokens": HUGE}, {"frequent_tokens": [HUGE] * 9}, {"max_tokens": HUGE},
]
TOKENIZERS = [
    lambda it: it.update(pre_tokenizer=SLOW_PATTERN), lambda it: it.update(normalizer=SLOW_NORMALIZER),
    lambda it: it.clear(), lambda it: it["model"].update(vocab={}),
    lambda it: it["model"]["vocab"].update(rain=2**32 - 1),
]
WEIGHTS = [
    lambda it: it[BIAS].fill_(float("nan")), lambda it: it.update({BIAS: torch.zeros(7)}), lambda it: it.pop(BIAS),
    lambda it: it.update({BIAS: torch.zeros(3).double()}), lambda it: it.update({"../../../tmp/x": torch.zeros(1)}),
    lambda it: it["linear.weights"].fill_(float("nan")), lambda it: it.update({"linear.biases": torch.zeros(2)}),
    lambda it: it.pop("linear.idf"), lambda it: it[IDS].copy_(it[IDS].flip(0)), lambda it: it[IDS][:1].fill_(-1),
    lambda it: it[IDS][-1:].fill_(2**31 - 1), lambda it: it[IDS][:2].fill_(1),
]
MIXTURES = [
    None, {"encoder": 1.0}, {"encoder": 1.0, "linear": 0.0}, dict.fromkeys(map(str, range(10**6)), 1.0),
    {"encoder": -1.0, "linear": 1.0}, {"encoder": 1.0, "linear": "nan"},
]
HEADERS = [
    *({"mixture_weights": it} for it in MIXTURES),
    {"mixture_shares": {"encoder": 7.0, "linear": 0.5}}, {"mixture_shares": {"encoder": 0.5, "linear": 0.4, "x": 0.1}},
    {"parts": ["linear", "other"]}, {"dtypes": {"encoder": "int8", "linear": "int8"}},
    {"dtypes": {"encoder": "int4", "linear": "float32"}}, {"config": "[" * 10**6}, {"config": []},
    {"tokenizer": "[" * 10**6}, {"tokenizer": {}}, {"tokenizer": ABSENT}, {"config": ABSENT},
    {"thresholds": [0.5] * 3}, {"guarantees": [HUGE] * 9}, {"familiarity": "../../etc/passwd"},
]
FORGED = [
    *map(configured, CONFIGS), *({"config": lambda it, more=it: it["linear"].update(more)} for it in LINEARS),
    *({"tokenizer": it} for it in TOKENIZERS), *({"weights": it} for it in WEIGHTS),
    *({"header": it} for it in HEADERS), {"weights": lambda it: it.pop(BIAS), "header": {"parts": ["linear"]}},
    {"weights": with_rows, "header": {"dtypes": {"encoder": "int8", "linear": "float32"}}},
]
HOSTILE = {
    **{f"{WEIGHTS_FILE} {what}": lambda it, canary, a=act: a(it / WEIGHTS_FILE, canary)
       for what, act in ANY_FILE.items()},
    **{f"{name} {number}": lambda it, _, n=name, c=content: (it / n).write_bytes(c)
       for number, (name, content) in enumerate(CONTENTS)},
    **{f"{'+'.join(changes)} {number}": lambda it, _, c=changes: forge(it, **c)
       for number, changes in enumerate(FORGED)},
}
# fmt: on


@pytest.mark.parametrize("name", HOSTILE)
def test_hostile_model(space, name):
    """A model folder made to do harm: refused within seconds and 1 GB, and nothing in it is run."""
    run, canary = space.copy("labels"), space.new_path("canary")
    # In float32, which is the easiest to forge.
    save_classifier(load_classifier(run), run / "model")
    HOSTILE[name](run / "model", canary)
    for engine in ENGINES:
        ended = space.predict(
            run, engine, "some rain and a ball", prepare=partial(limit_memory, 4 * MOST_BYTES)
        )
        assert not canary.exists(), "something in the folder was run"
        assert ended.seconds < MOST_SECONDS, f"{engine}: {ended.seconds:.1f} s"
        assert ended.peak_bytes < MOST_BYTES, f"{engine}: {ended.peak_bytes / 1e9:.2f} GB"
        assert ended.code in {1, 2}, f"{engine}: exit {ended.code}: {ended.out!r} {ended.err}"
        ended.check_error(ended.code, str(run))


def sealed_state(checkpoint, **values):
    """Another state with a manifest that fits."""
    content = json.dumps(json.loads((checkpoint / "state.json").read_bytes()) | values).encode()
    (checkpoint / "state.json").write_bytes(content)
    files = json.loads((checkpoint / "manifest.json").read_bytes())["files"]
    change_manifest(
        checkpoint,
        files | {"state.json": {"size": len(content), "sha256": sha256(content).hexdigest()}},
    )


def change_manifest(checkpoint, files):
    manifest = json.loads((checkpoint / "manifest.json").read_bytes())
    (checkpoint / "manifest.json").write_text(json.dumps(manifest | {"files": files}))


# fmt: off
HOSTILE_CHECKPOINTS = {
    **{f"{name} {what}": lambda it, canary, n=name, a=act: a(it / n, canary) for name in CHECKPOINT_FILES
       for what, act in ANY_FILE.items()},
    "manifest without files": lambda it, _: change_manifest(it, {}),
    "manifest with other sizes": lambda it, _: change_manifest(
        it, {name: {"size": HUGE, "sha256": "0"} for name in CHECKPOINT_FILES}),
    "manifest with paths": lambda it, _: change_manifest(it, {"../../../../etc/passwd": {"size": 1, "sha256": "0"}}),
    "state of another program": lambda it, _: sealed_state(it, state={"epoch": 3}),
    "state that is a list": lambda it, _: sealed_state(it, state=[]),
    "step that is a text": lambda it, _: sealed_state(it, state={"step": "many"}),
    "no manifest": lambda it, _: (it / "manifest.json").unlink(),
    "nothing": lambda it, _: [path.unlink() for path in it.iterdir()],
}
# fmt: on


@pytest.mark.parametrize("name", HOSTILE_CHECKPOINTS)
def test_hostile_checkpoint(space, name):
    """The same in checkpoints: resume passes over them and trains again, exactly."""
    run, canary = space.copy("labels", is_begun=True), space.new_path("canary")
    HOSTILE_CHECKPOINTS[name](newest_checkpoint(run), canary)
    ended = space.finish("labels", run)
    assert not canary.exists(), "something in the folder was run"
    assert "passed over, damaged" in ended.err, ended.err
    assert ended.peak_bytes < MOST_BYTES, f"{ended.peak_bytes / 1e9:.2f} GB"
