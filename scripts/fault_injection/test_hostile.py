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

# To accept or refuse a hostile folder.
MAX_SECONDS = 5.0
MAX_BYTES = 1_000_000_000
HUGE = 10**15
WEIGHTS_FILE = "model.safetensors"
# In place of a value that the head shall not have.
ABSENT = object()


# Files that are of another kind


class Canary:
    """Runs a command where it is unpickled."""

    def __init__(self, touched):
        self.touched = touched

    def __reduce__(self):
        return os.system, (f"touch {self.touched}",)


def is_a_pickle(path, canary):
    path.write_bytes(pickle.dumps(Canary(canary)))


def is_a_pickle_of_torch(path, canary):
    torch.save({"weights": Canary(canary)}, path)


def is_a_link_to_dev_zero(path, _canary):
    path.unlink()
    path.symlink_to("/dev/zero")


def is_a_pipe(path, _canary):
    path.unlink()
    os.mkfifo(path)


def is_a_socket(path, _canary):
    path.unlink()
    with socket.socket(socket.AF_UNIX) as server:  # a socket's path may have 107 characters
        server.bind(f"/proc/self/fd/{os.open(path.parent, os.O_PATH)}/{path.name}")


def is_a_folder(path, _canary):
    path.unlink()
    path.mkdir()


def has_4_gigabytes(path, _canary):
    os.truncate(path, 4 * 10**9)


def has_20_gigabytes(path, _canary):
    os.truncate(path, 20 * 10**9)


OTHER_KINDS = [
    is_a_pickle,
    is_a_pickle_of_torch,
    is_a_link_to_dev_zero,
    is_a_pipe,
    is_a_socket,
    is_a_folder,
    has_4_gigabytes,
    has_20_gigabytes,
]


# Models whose content is forged, with a hash that fits


def forge(model, *, weights=None, header=(), config=None, tokenizer=None):
    """Change the content of a model, and give it the hash of the new content, as a forger would.

    `weights`, `config` and `tokenizer` are functions that change what they are given.
    """
    with safetensors.safe_open(model / WEIGHTS_FILE, "pt") as file:
        head = json.loads(file.metadata()[FORMAT])
        tensors = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118

    tokenizer_json = json.loads(head["tokenizer"])
    if tokenizer:
        tokenizer(tokenizer_json)
    if config:
        config(head["config"])
    if weights:
        weights(tensors)
    head |= {"sha256": NO_HASH.decode(), "tokenizer": json.dumps(tokenizer_json)}
    head |= dict(header)
    head = {name: value for name, value in head.items() if value is not ABSENT}

    content = safetensors.torch.save(tensors, {FORMAT: json.dumps(head)})
    sealed = content.replace(NO_HASH, sha256(content).hexdigest().encode(), 1)
    (model / WEIGHTS_FILE).write_bytes(sealed)


def with_config(config, values):
    """Put other values into a config, wherever it has them."""
    encoder = config["encoder"]
    for key, value in values.items():
        if key in encoder:
            encoder[key] = value
        if key in config or key not in encoder:
            config[key] = value


def with_linear_config(config, values):
    config["linear"].update(values)


def with_rows_beyond_the_end(weights):
    """Give a table a row that is beyond its end."""
    name = "encoder.embedding.bigrams.table.weight"
    rows, columns = weights[name].shape
    weights[name] = torch.ones(2, columns, dtype=torch.int8)
    weights[f"{name}.scales"] = torch.ones(2, dtype=torch.float16)
    weights[f"{name}.rows"] = torch.tensor([0, rows], dtype=torch.int32)


IDS = "linear.feature_ids"
BIAS = "head.linear.bias"
# Patterns that take exponential time.
SLOW_PATTERN = {
    "type": "Split",
    "pattern": {"Regex": "(?:a|a?)+$"},
    "behavior": "Isolated",
    "invert": False,
}
SLOW_NORMALIZER = {"type": "Replace", "pattern": {"Regex": "(a+)+$"}, "content": "a" * 9999}
CONTENTS = [
    # The length of the head, and a head of another length.
    (2**63).to_bytes(8, "little") + b"{}",
    (1000).to_bytes(8, "little") + b"{}",
    (10**6).to_bytes(8, "little") + b"[" * 10**6,
    (2).to_bytes(8, "little") + b"{}",
]
CONFIGS = [
    {"d_model": HUGE},
    {"d_model": 8192, "d_ff": 65536, "num_layers": 256, "num_heads": 1},
    {"num_layers": HUGE},
    {"num_heads": HUGE},
    {"max_seq_len": HUGE},
    {"max_seq_len": 65536, "positions": "learned"},
    {"d_model": -16},
    {"num_heads": 16, "max_seq_len": 65536},
    {"char_ngram_buckets": HUGE},
    {"char_ngram_buckets": 2**24, "bigram_buckets": 2**24},
    {"linear": None},
    {"d_model": "../../etc/passwd"},
    {"id2label": {}},
    {"id2label": {"0": ["a"], "1": "b", "2": "c"}},
    {"id2label": {"0": "a", "1": "a", "2": "c"}},
    {"id2label": {str(number): f"class {number}" for number in range(1_000_000)}},
    {"id2label": "../../../etc"},
    {"encoder": []},
    {"format_version": 99},
    {"linear": [HUGE] * 9},
    {"task": "other"},
    {"text_columns": [1, 2]},
    {"text_columns": []},
]
LINEAR_CONFIGS = [
    {"features": HUGE},
    {"features": 2**24 - 1},
    {"features": -1},
    {"features": "../../etc/passwd"},
    {"frequent_tokens": HUGE},
    {"frequent_tokens": [HUGE] * 9},
    {"max_tokens": HUGE},
]
TOKENIZERS = [
    lambda tokenizer: tokenizer.update(pre_tokenizer=SLOW_PATTERN),
    lambda tokenizer: tokenizer.update(normalizer=SLOW_NORMALIZER),
    lambda tokenizer: tokenizer.clear(),
    lambda tokenizer: tokenizer["model"].update(vocab={}),
    lambda tokenizer: tokenizer["model"]["vocab"].update(rain=2**32 - 1),
]
WEIGHTS = [
    lambda weights: weights[BIAS].fill_(float("nan")),
    lambda weights: weights.update({BIAS: torch.zeros(7)}),
    lambda weights: weights.pop(BIAS),
    lambda weights: weights.update({BIAS: torch.zeros(3).double()}),
    lambda weights: weights.update({"../../../tmp/x": torch.zeros(1)}),
    lambda weights: weights["linear.weights"].fill_(float("nan")),
    lambda weights: weights.update({"linear.biases": torch.zeros(2)}),
    lambda weights: weights.pop("linear.idf"),
    lambda weights: weights[IDS].copy_(weights[IDS].flip(0)),
    lambda weights: weights[IDS][:1].fill_(-1),
    lambda weights: weights[IDS][-1:].fill_(2**31 - 1),
    lambda weights: weights[IDS][:2].fill_(1),
]
HEADERS = [
    {"mixture_weights": None},
    {"mixture_weights": {"encoder": 1.0}},
    {"mixture_weights": {"encoder": 1.0, "linear": 0.0}},
    {"mixture_weights": dict.fromkeys(map(str, range(10**6)), 1.0)},
    {"mixture_weights": {"encoder": -1.0, "linear": 1.0}},
    {"mixture_weights": {"encoder": 1.0, "linear": "nan"}},
    {"mixture_shares": {"encoder": 7.0, "linear": 0.5}},
    {"mixture_shares": {"encoder": 0.5, "linear": 0.4, "x": 0.1}},
    {"parts": ["linear", "other"]},
    {"dtypes": {"encoder": "int8", "linear": "int8"}},
    {"dtypes": {"encoder": "int4", "linear": "float32"}},
    {"config": "[" * 10**6},
    {"config": []},
    {"tokenizer": "[" * 10**6},
    {"tokenizer": {}},
    {"tokenizer": ABSENT},
    {"config": ABSENT},
    {"thresholds": [0.5] * 3},
    {"guarantees": [HUGE] * 9},
    {"familiarity": "../../etc/passwd"},
]
FORGERIES = [
    *({"config": partial(with_config, values=values)} for values in CONFIGS),
    *({"config": partial(with_linear_config, values=values)} for values in LINEAR_CONFIGS),
    *({"tokenizer": change} for change in TOKENIZERS),
    *({"weights": change} for change in WEIGHTS),
    *({"header": values} for values in HEADERS),
    {"weights": lambda weights: weights.pop(BIAS), "header": {"parts": ["linear"]}},
    {
        "weights": with_rows_beyond_the_end,
        "header": {"dtypes": {"encoder": "int8", "linear": "float32"}},
    },
]


def hostile_models():
    """Functions that make a model folder hostile; their arguments are the folder and the canary."""
    for make in OTHER_KINDS:
        name = make.__name__.replace("_", " ")
        yield pytest.param(partial(make_file, WEIGHTS_FILE, make), id=f"{WEIGHTS_FILE} {name}")
    for number, content in enumerate(CONTENTS):
        yield pytest.param(partial(write_weights, content), id=f"{WEIGHTS_FILE} {number}")
    for number, changes in enumerate(FORGERIES):
        yield pytest.param(partial(forge_model, changes), id=f"{'+'.join(changes)} {number}")


def make_file(name, make, folder, canary):
    make(folder / name, canary)


def write_weights(content, model, _canary):
    (model / WEIGHTS_FILE).write_bytes(content)


def forge_model(changes, model, _canary):
    forge(model, **changes)


@pytest.mark.parametrize("make_hostile", hostile_models())
def test_hostile_model(space, make_hostile):
    """A model made to do harm: refused within seconds and 1 GB, and nothing in it is run."""
    run = space.copy("labels")
    canary = space.new_path("canary")
    # In float32, which is the easiest to forge.
    save_classifier(load_classifier(run), run / "model")
    make_hostile(run / "model", canary)

    prepare = partial(limit_memory, 4 * MAX_BYTES)
    for engine in ENGINES:
        ended = space.predict(run, engine, "some rain and a ball", prepare=prepare)
        assert not canary.exists(), "something in the folder was run"
        assert ended.seconds < MAX_SECONDS, f"{engine}: {ended.seconds:.1f} s"
        assert ended.peak_bytes < MAX_BYTES, f"{engine}: {ended.peak_bytes / 1e9:.2f} GB"
        assert ended.code in {1, 2}, f"{engine}: exit {ended.code}: {ended.out!r} {ended.err}"
        ended.check_error(ended.code, str(run))


# Checkpoints


def change_state(values, checkpoint, _canary):
    """Give a checkpoint another state, and a manifest that fits."""
    state = json.loads((checkpoint / "state.json").read_bytes())
    content = json.dumps(state | {"state": values}).encode()
    (checkpoint / "state.json").write_bytes(content)

    files = json.loads((checkpoint / "manifest.json").read_bytes())["files"]
    files["state.json"] = {"size": len(content), "sha256": sha256(content).hexdigest()}
    change_manifest(files, checkpoint, None)


def change_manifest(files, checkpoint, _canary):
    manifest = json.loads((checkpoint / "manifest.json").read_bytes())
    (checkpoint / "manifest.json").write_text(json.dumps(manifest | {"files": files}))


def remove_manifest(checkpoint, _canary):
    (checkpoint / "manifest.json").unlink()


def remove_all(checkpoint, _canary):
    for path in checkpoint.iterdir():
        path.unlink()


OTHER_SIZES = {name: {"size": HUGE, "sha256": "0"} for name in CHECKPOINT_FILES}
OTHER_PATHS = {"../../../../etc/passwd": {"size": 1, "sha256": "0"}}


def hostile_checkpoints():
    """Functions that make a checkpoint hostile; their arguments are its folder and the canary."""
    for file in CHECKPOINT_FILES:
        for make in OTHER_KINDS:
            name = make.__name__.replace("_", " ")
            yield pytest.param(partial(make_file, file, make), id=f"{file} {name}")

    yield pytest.param(partial(change_manifest, {}), id="manifest without files")
    yield pytest.param(partial(change_manifest, OTHER_SIZES), id="manifest with other sizes")
    yield pytest.param(partial(change_manifest, OTHER_PATHS), id="manifest with paths")
    yield pytest.param(partial(change_state, {"epoch": 3}), id="state of another program")
    yield pytest.param(partial(change_state, []), id="state that is a list")
    yield pytest.param(partial(change_state, {"step": "many"}), id="step that is a text")
    yield pytest.param(remove_manifest, id="no manifest")
    yield pytest.param(remove_all, id="nothing")


@pytest.mark.parametrize("make_hostile", hostile_checkpoints())
def test_hostile_checkpoint(space, make_hostile):
    """The same in checkpoints: resume passes over them and trains again, exactly."""
    run = space.copy("labels", is_begun=True)
    canary = space.new_path("canary")
    make_hostile(newest_checkpoint(run), canary)
    ended = space.finish("labels", run)
    assert not canary.exists(), "something in the folder was run"
    assert "passed over, damaged" in ended.err, ended.err
    assert ended.peak_bytes < MAX_BYTES, f"{ended.peak_bytes / 1e9:.2f} GB"
