"""The folder of a portable classifier; docs/format.md describes it.

    config.json         task, columns, class names, the architecture of the parts, hash of the tokenizer
    tokenizer.json      Hugging Face tokenizers format
    model.safetensors   weights of the parts; in the header which parts are there, their mixture weights, and the
                        hashes of the config and of the file itself
    README.md           model card, written when training has finished

A running training replaces only `model.safetensors`, in one atomic rename. So whoever loads the folder at
any moment gets one complete classifier, and parts of two classifiers are refused.
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from dataclasses import asdict
from importlib.util import find_spec
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import safetensors
import safetensors.numpy
from numpy.typing import NDArray
from tokenizers import Tokenizer

from encoder_cls.errors import ConfigError, EncoderClsError
from encoder_cls.inference.auto_engine import AutoEncoder
from encoder_cls.inference.classifier import Classifier, Encoder
from encoder_cls.inference.encoder_architecture import EncoderArchitecture
from encoder_cls.inference.linear import LinearClassifier, num_one_vs_rest
from encoder_cls.inference.numpy_engine import NumpyEncoder
from encoder_cls.inference.weights_file import DTYPES, Weight, dense, pack, unpack
from encoder_cls.system.files import read_file, reporting_os_errors, sha256, to_json, write_file
from encoder_cls.text.ngram_features import MOST_FREQUENT, NUM_FEATURE_IDS
from encoder_cls.text.token_arrays import KEPT_PER_TOKEN
from encoder_cls.text.tokenizer import parse_tokenizer

CONFIG_FILE, TOKENIZER_FILE, WEIGHTS_FILE = "config.json", "tokenizer.json", "model.safetensors"
FORMAT, FORMAT_VERSION = "encoder-cls", 8
TASK = "single-label"
PARTS = ("encoder", "linear")
ENGINES = ("auto", "numpy", "torch")
LARGEST_HEADER = 1 << 20  # bytes; the header of a real model of 1,000 layers is a tenth of that
LARGEST_CONFIG, LARGEST_TOKENIZER = 1 << 24, 1 << 28  # bytes; 100,000 classes, some million tokens
LARGEST_WEIGHT = 1e6  # of a part in the mixture: far beyond what is ever fitted
LINEAR = "linear."  # before the names of the linear classifier's weights
LINEAR_WEIGHTS = ("frequent_token_ids", "feature_ids", "idf", "weights", "biases")
UNSEALED = b"0" * 64  # what stands in a weights file in place of its own hash while that is taken


def save_classifier(classifier: Classifier, folder: Path, *, dtype: str = "float32") -> None:
    """Write the folder, or replace the weights of the same classifier in it.

    Args:
        classifier: what is written.
        folder: where to.
        dtype: of the weights, see `weights_file`.

    Raises:
        EncoderClsError: the disk refused; a classifier that was there is still whole.
    """
    tokenizer = classifier.tokenizer.to_str(pretty=True).encode()
    config = to_json(_config(classifier, tokenizer_sha256=sha256(tokenizer)))
    for name, content in ((TOKENIZER_FILE, tokenizer), (CONFIG_FILE, config)):
        path = folder / name
        with reporting_os_errors(path):
            unchanged = path.is_file() and path.read_bytes() == content
        if not unchanged:
            write_file(path, content)
    weights: dict[str, Weight] = dict(classifier.encoder.weights()) if classifier.encoder else {}
    if classifier.linear:
        weights |= {f"{LINEAR}{name}": getattr(classifier.linear, name) for name in LINEAR_WEIGHTS}
    header = {
        "sha256": UNSEALED.decode(),
        "config_sha256": sha256(config),
        "parts": list(classifier.parts),
        "mixture_weights": dict(zip(classifier.parts, classifier.mixture_weights, strict=True)),
        "dtype": dtype,
        "thresholds": None,
        "promises": None,
    }
    # One entry: safetensors writes several in another order each time, and equal runs should give equal files.
    content = safetensors.numpy.save(pack(weights, dtype), {FORMAT: json.dumps(header)})
    write_file(folder / WEIGHTS_FILE, content.replace(UNSEALED, sha256(content).encode(), 1))


def load_classifier(path: str | Path, *, device: str = "auto", engine: str = "auto") -> Classifier:
    """Load a classifier from a run folder or a model folder, checking all its hashes.

    Args:
        path: of the folder.
        device: where the encoder is computed: `auto`, `cpu`, `cuda` or `cuda:N`.
        engine: by which it is computed: `numpy`, `torch` in float32, or `auto`: NumPy for a few texts, PyTorch for
            many where it is installed, in bfloat16 where the device is fast at it.

    Raises:
        ConfigError: there is no classifier at this path, or no such device or engine.
        EncoderClsError: the folder is damaged, or of another program.
    """
    found = _checked(model_folder(Path(path)))
    classifier = Classifier(
        # Outside of the check: where memory is short, the folder is not to blame.
        _encoder(found.encoder, found.encoder_weights, engine=engine, device=device) if found.encoder else None,
        found.tokenizer,
        found.label_names,
        max_seq_len=found.max_seq_len,
        linear=found.linear,
        mixture_weights=found.mixture_weights,
        text_columns=found.text_columns,
    )
    classifier.dtype, classifier.sha256 = found.dtype, found.sha256
    return classifier


def _encoder(architecture: EncoderArchitecture, weights: Mapping[str, Weight], *, engine: str, device: str) -> Encoder:
    if engine not in ENGINES:
        raise ConfigError(f"--engine {engine}: known engines are {', '.join(ENGINES)}")
    is_cpu = device in {"auto", "cpu"}
    if engine == "numpy":
        if not is_cpu:
            raise ConfigError(f"--device {device}: the engine numpy computes on the cpu")
        return NumpyEncoder(architecture, weights)
    if engine == "auto" and is_cpu:
        return AutoEncoder(architecture, weights, device=device)
    if not find_spec("torch"):
        raise ConfigError(f"--engine {engine} --device {device}: needs PyTorch: pip install encoder-cls")
    from encoder_cls.inference.torch_engine import TorchEncoder

    precision = "float32" if engine == "torch" else "auto"
    return TorchEncoder.from_weights(architecture, weights, device=device, precision=precision)


def read_encoder_weights(folder: Path) -> dict[str, NDArray[np.float32]]:
    """The weights of the encoder and its head in a model folder, by name.

    Raises:
        EncoderClsError: as `load_classifier`.
    """
    return dense(_checked(folder).encoder_weights)


def model_folder(path: Path) -> Path:
    """The model folder that a path to a run or to a model means.

    Raises:
        ConfigError: there is none.
    """
    for folder in (path / "model", path):
        if (folder / WEIGHTS_FILE).exists() and (folder / CONFIG_FILE).exists():
            return folder
    if not path.exists():
        raise ConfigError(f"{path}: no such folder")
    raise ConfigError(f"{path}: holds no model yet (a run has one after its first validation)")


def _config(classifier: Classifier, *, tokenizer_sha256: str) -> dict[str, Any]:
    encoder, linear = classifier.encoder, classifier.linear
    return {
        "format": FORMAT,
        "format_version": FORMAT_VERSION,
        "task": TASK,
        "text_columns": classifier.text_columns,
        "id2label": dict(enumerate(classifier.label_names)),
        "max_seq_len": classifier.max_seq_len,
        "tokenizer_sha256": tokenizer_sha256,
        "encoder": encoder and asdict(encoder.architecture),
        "linear": linear
        and {
            "max_tokens": linear.max_tokens,
            "frequent_tokens": len(linear.frequent_token_ids),
            "features": len(linear.feature_ids),
        },
    }


class _Described(NamedTuple):
    """What `config.json` says."""

    text_columns: tuple[str, ...]
    label_names: tuple[str, ...]
    max_seq_len: int
    tokenizer_sha256: str
    encoder: EncoderArchitecture | None
    linear: dict[str, Any] | None


class _Read(NamedTuple):
    """What a model folder holds; `encoder_weights` are those of the encoder and its head."""

    text_columns: tuple[str, ...]
    label_names: tuple[str, ...]
    max_seq_len: int
    tokenizer: Tokenizer
    encoder: EncoderArchitecture | None
    encoder_weights: dict[str, Weight]
    linear: LinearClassifier | None
    mixture_weights: tuple[float, ...]
    dtype: str
    sha256: str


def _checked(folder: Path) -> _Read:
    """What the folder holds.

    Raises:
        EncoderClsError: it is damaged, or of another program.
    """
    try:
        return _read(folder)
    except (ValueError, KeyError, TypeError, AttributeError, RuntimeError, safetensors.SafetensorError) as error:
        reason, _, _ = str(error).partition("\n")
        raise EncoderClsError(f"{folder}: damaged, or not a model folder of encoder-cls: {reason}") from None


def _read(folder: Path) -> _Read:
    """Read each file once, and check it against what vouches for it.

    What is read stays in proportion to what is there: the tokenizer bounds the vocabulary, the architecture and the
    vocabulary bound the weights.
    """
    config_bytes = read_file(folder / CONFIG_FILE, most_bytes=LARGEST_CONFIG)
    config = _described(json.loads(config_bytes))
    tokenizer_bytes = read_file(folder / TOKENIZER_FILE, most_bytes=LARGEST_TOKENIZER)
    if sha256(tokenizer_bytes) != config.tokenizer_sha256:
        raise ValueError(f"{TOKENIZER_FILE} is not the one the model was trained with")
    tokenizer = parse_tokenizer(tokenizer_bytes.decode())
    shapes = _shapes(config, vocab_size=tokenizer.get_vocab_size())

    most_bytes = 8 + LARGEST_HEADER
    for of_part in shapes.values():
        most_bytes += 4 * sum(map(math.prod, of_part.values()))  # no form takes more
    weights_bytes = read_file(folder / WEIGHTS_FILE, most_bytes=most_bytes)
    header = _sealed_header(weights_bytes)
    if header["config_sha256"] != sha256(config_bytes):
        raise ValueError(f"{WEIGHTS_FILE} and {CONFIG_FILE} do not belong together")
    parts = tuple(part for part in PARTS if part in header["parts"])
    if not parts or sorted(header["parts"]) != sorted(parts) or not set(parts) <= shapes.keys():
        raise ValueError(f"{WEIGHTS_FILE} says that it has the parts {header['parts']!r}")
    if header["dtype"] not in DTYPES or header["thresholds"] is not None or header["promises"] is not None:
        raise ValueError(f"{WEIGHTS_FILE} holds what only a newer version of encoder-cls can read")
    expected = {name: shape for part in parts for name, shape in shapes[part].items()}
    try:
        weights = unpack(safetensors.numpy.load(weights_bytes), expected, header["dtype"])
    except (ValueError, KeyError) as error:
        raise ValueError(f"{WEIGHTS_FILE} has other weights than {CONFIG_FILE} describes: {error}") from None
    return _Read(
        text_columns=config.text_columns,
        label_names=config.label_names,
        max_seq_len=config.max_seq_len,
        tokenizer=tokenizer,
        encoder=config.encoder if "encoder" in parts else None,
        encoder_weights={name: weight for name, weight in weights.items() if not name.startswith(LINEAR)},
        linear=_linear(config.linear["max_tokens"], weights)
        if config.linear is not None and "linear" in parts
        else None,
        mixture_weights=_mixture_weights(header["mixture_weights"], parts),
        dtype=header["dtype"],
        sha256=header["sha256"],
    )


def _described(config: Any) -> _Described:
    if not isinstance(config, dict) or config.get("format") != FORMAT:
        raise ValueError(f"{CONFIG_FILE} is of another program")
    if config["format_version"] != FORMAT_VERSION:
        raise ValueError(f"format version {config['format_version']}; this program reads {FORMAT_VERSION}")
    if config["task"] != TASK:
        raise ValueError(f"task {config['task']!r}, which only a newer version of encoder-cls knows")
    label_names = tuple(config["id2label"][str(number)] for number in range(len(config["id2label"])))
    if len(set(label_names)) < max(2, len(label_names)) or not all(isinstance(name, str) for name in label_names):
        raise ValueError(f"{CONFIG_FILE}: id2label needs two or more different names")
    columns = tuple(config["text_columns"])
    if not columns or not all(isinstance(name, str) for name in columns):
        raise ValueError(f"{CONFIG_FILE}: text_columns needs names of columns")
    encoder = None if config["encoder"] is None else EncoderArchitecture(**config["encoder"])
    max_seq_len = config["max_seq_len"]
    if type(max_seq_len) is not int or max_seq_len < 1 or (encoder and encoder.max_seq_len != max_seq_len):
        raise ValueError(f"{CONFIG_FILE}: max_seq_len is {max_seq_len!r}")
    return _Described(columns, label_names, max_seq_len, config["tokenizer_sha256"], encoder, config["linear"])


def _shapes(config: _Described, *, vocab_size: int) -> dict[str, dict[str, tuple[int, ...]]]:
    """The weights of each part that a config describes, once what it says of them is possible."""
    num_classes = len(config.label_names)
    shapes: dict[str, dict[str, tuple[int, ...]]] = {}
    if config.encoder:
        of_encoder = config.encoder.weight_shapes(vocab_size=vocab_size, num_classes=num_classes)
        shapes["encoder"] = of_encoder
    if config.linear is not None:
        most = {
            "max_tokens": KEPT_PER_TOKEN * config.max_seq_len,
            "frequent_tokens": MOST_FREQUENT,
            "features": NUM_FEATURE_IDS,
        }
        if config.linear.keys() != most.keys():
            raise ValueError(f"{CONFIG_FILE}: a linear classifier is described by {', '.join(most)}")
        for name, limit in most.items():
            value = config.linear[name]
            if type(value) is not int or not (name == "max_tokens") <= value <= limit:
                raise ValueError(f"{CONFIG_FILE}: {name} of the linear classifier is {value!r}")
        frequent, features = config.linear["frequent_tokens"], config.linear["features"]
        margins = num_one_vs_rest(num_classes)
        of_linear: dict[str, tuple[int, ...]] = {
            "frequent_token_ids": (frequent,),
            "feature_ids": (features,),
            "idf": (features,),
            "weights": (features, margins),
            "biases": (margins,),
        }
        shapes["linear"] = {f"{LINEAR}{name}": shape for name, shape in of_linear.items()}
    return shapes


def _linear(max_tokens: int, weights: Mapping[str, Weight]) -> LinearClassifier:
    arrays: dict[str, Any] = {name: weights[f"{LINEAR}{name}"] for name in LINEAR_WEIGHTS}
    linear = LinearClassifier(max_tokens=max_tokens, **arrays)
    ids = linear.feature_ids
    if len(ids) and not (ids[0] >= 0 and ids[-1] < NUM_FEATURE_IDS and (np.diff(ids) > 0).all()):
        raise ValueError(f"{WEIGHTS_FILE}: the feature ids of the linear classifier are not in order")
    return linear


def _mixture_weights(found: Any, parts: tuple[str, ...]) -> tuple[float, ...]:
    weights = tuple(float(found[part]) for part in parts)
    if len(found) != len(parts) or not all(1 / LARGEST_WEIGHT < weight < LARGEST_WEIGHT for weight in weights):
        raise ValueError(f"{WEIGHTS_FILE} has mixture weights that are none")
    return weights


def _sealed_header(content: bytes) -> dict[str, Any]:
    """What a weights file says of itself, once its own hash has vouched for all of it."""
    length = int.from_bytes(content[:8], "little")
    if length > min(LARGEST_HEADER, len(content)):
        raise ValueError(f"{WEIGHTS_FILE} has no sensible header")
    header = dict(json.loads(json.loads(content[8 : 8 + length])["__metadata__"][FORMAT]))
    if sha256(content.replace(header["sha256"].encode(), UNSEALED, 1)) != header["sha256"]:
        raise ValueError(f"{WEIGHTS_FILE} has changed since it was written")
    return header
