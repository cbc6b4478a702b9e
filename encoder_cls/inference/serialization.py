"""The folder of a portable classifier: it holds the architecture, the class names, the tokenizer and the weights.

    config.json         architecture, class names, hash of the tokenizer
    tokenizer.json      Hugging Face tokenizers format
    model.safetensors   weights of the encoder and of the linear classifier; in the header the scales with which their
                        logits are combined, and the hashes of the config and of the file itself
    README.md           model card, written when training has finished

A running training replaces only `model.safetensors`, in one atomic rename. So whoever loads the folder at
any moment gets one complete classifier, and parts of two classifiers are refused.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import safetensors
import safetensors.torch
import torch
from pydantic import ValidationError
from tokenizers import Tokenizer
from torch import Tensor

from encoder_cls.config import ModelConfig
from encoder_cls.errors import ConfigError, EncoderClsError
from encoder_cls.inference.classifier import Classifier
from encoder_cls.inference.linear import LinearClassifier, num_one_vs_rest
from encoder_cls.model import EncoderClassifier, meta_model
from encoder_cls.system.device import resolve_device
from encoder_cls.system.files import read_file, reporting_os_errors, sha256, to_json, write_file
from encoder_cls.text.ngram_features import ALL_NAMES, FREQUENT
from encoder_cls.text.token_arrays import KEPT_PER_TOKEN
from encoder_cls.text.tokenizer import parse_tokenizer

CONFIG_FILE, TOKENIZER_FILE, WEIGHTS_FILE = "config.json", "tokenizer.json", "model.safetensors"
FORMAT, FORMAT_VERSION = "encoder-cls", 7
LARGEST_HEADER = 1 << 20  # bytes; the header of a real model of 1,000 layers is a tenth of that
LARGEST_CONFIG, LARGEST_TOKENIZER = 1 << 24, 1 << 28  # bytes; 100,000 classes, some million tokens
LARGEST_SCALE = 1e6  # far beyond what is ever fitted
LINEAR = "linear."  # before the names of the linear classifier's weights
LINEAR_WEIGHTS = ("frequent", "names", "idf", "weights", "biases")
UNSEALED = b"0" * 64  # what stands in a weights file in place of its own hash while that is taken


def save_classifier(classifier: Classifier, folder: Path) -> None:
    """Write the folder, or replace the weights of the same classifier in it.

    Raises:
        EncoderClsError: the disk refused; a classifier that was there is still whole.
    """
    tokenizer = classifier.tokenizer.to_str(pretty=True).encode()
    linear = classifier.linear and {
        "reach": classifier.linear.reach,
        "frequent": len(classifier.linear.frequent),
        "features": len(classifier.linear.names),
    }
    config = to_json(
        {
            "format": FORMAT,
            "format_version": FORMAT_VERSION,
            "architecture": classifier.config.model_dump(),
            "vocab_size": classifier.tokenizer.get_vocab_size(),
            "linear": linear,
            "id2label": dict(enumerate(classifier.label_names)),
            "tokenizer_sha256": sha256(tokenizer),
        }
    )
    for name, content in ((TOKENIZER_FILE, tokenizer), (CONFIG_FILE, config)):
        path = folder / name
        with reporting_os_errors(path):
            unchanged = path.is_file() and path.read_bytes() == content
        if not unchanged:
            write_file(path, content)
    weights = {name: tensor.detach().cpu().contiguous() for name, tensor in classifier.model.state_dict().items()}
    if classifier.linear:
        weights |= {f"{LINEAR}{name}": torch.from_numpy(getattr(classifier.linear, name)) for name in LINEAR_WEIGHTS}
    header = {"sha256": UNSEALED.decode(), "config_sha256": sha256(config), "scales": classifier.scales}
    # One entry: safetensors writes several in another order each time, and equal runs should give equal files.
    content = safetensors.torch.save(weights, {FORMAT: json.dumps(header)})
    write_file(folder / WEIGHTS_FILE, content.replace(UNSEALED, sha256(content).encode(), 1))


def load_classifier(path: str | Path, *, device: str = "auto") -> Classifier:
    """Load a classifier from a run folder or a model folder, checking all its hashes.

    Raises:
        ConfigError: there is no classifier at this path.
        EncoderClsError: the folder is damaged, or of another program.
    """
    folder = model_folder(Path(path))
    torch_device = resolve_device(device)
    try:
        found = _read(folder)
    except (ValueError, KeyError, TypeError, AttributeError, RuntimeError, safetensors.SafetensorError) as error:
        if isinstance(error, ValidationError):
            error = ValueError(f"{CONFIG_FILE}: {error.errors()[0]['msg']}")
        reason, _, _ = str(error).partition("\n")
        raise EncoderClsError(f"{folder}: damaged, or not a model folder of encoder-cls: {reason}") from None
    # Outside: where memory is short, the folder is not to blame.
    model = EncoderClassifier(
        found.architecture, vocab_size=found.tokenizer.get_vocab_size(), num_classes=len(found.label_names)
    )
    model.load_state_dict(found.weights)
    return Classifier(
        model.to(torch_device).eval(),
        found.tokenizer,
        found.architecture,
        found.label_names,
        linear=found.linear,
        scales=found.scales,
    )


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


class _Read(NamedTuple):
    """What a model folder holds; `weights` are the encoder's and its head's."""

    architecture: ModelConfig
    tokenizer: Tokenizer
    label_names: list[str]
    weights: dict[str, Tensor]
    linear: LinearClassifier | None
    scales: tuple[float, ...]


def _read(folder: Path) -> _Read:
    """Read each file once, and check it against what vouches for it.

    What is read stays in proportion to what is there: the tokenizer bounds the vocabulary, the architecture and the
    vocabulary bound the weights.
    """
    config_bytes = read_file(folder / CONFIG_FILE, most_bytes=LARGEST_CONFIG)
    config = json.loads(config_bytes)
    if not isinstance(config, dict) or config.get("format") != FORMAT:
        raise ValueError(f"{CONFIG_FILE} is of another program")
    if config["format_version"] != FORMAT_VERSION:
        raise ValueError(f"format version {config['format_version']}; this program reads {FORMAT_VERSION}")
    architecture = ModelConfig.model_validate(config["architecture"])
    label_names = [config["id2label"][str(number)] for number in range(len(config["id2label"]))]
    if len(set(label_names)) < max(2, len(label_names)) or not all(isinstance(name, str) for name in label_names):
        raise ValueError(f"{CONFIG_FILE}: id2label needs two or more different names")

    tokenizer_bytes = read_file(folder / TOKENIZER_FILE, most_bytes=LARGEST_TOKENIZER)
    if sha256(tokenizer_bytes) != config["tokenizer_sha256"]:
        raise ValueError(f"{TOKENIZER_FILE} is not the one the model was trained with")
    tokenizer = parse_tokenizer(tokenizer_bytes.decode())
    shape: dict[str, Any] = {"vocab_size": tokenizer.get_vocab_size(), "num_classes": len(label_names)}
    expected = {name: (it.shape, it.dtype) for name, it in meta_model(architecture, **shape).state_dict().items()}
    beside = config["linear"]
    if beside is not None:
        most_tokens = KEPT_PER_TOKEN * architecture.max_seq_len
        expected |= _linear_shapes(
            beside["reach"],
            beside["frequent"],
            beside["features"],
            most_tokens=most_tokens,
            num_classes=len(label_names),
        )

    most_bytes = 8 + LARGEST_HEADER + sum(size.numel() * dtype.itemsize for size, dtype in expected.values())
    weights_bytes = read_file(folder / WEIGHTS_FILE, most_bytes=most_bytes)
    header = _sealed_header(weights_bytes)
    if header["config_sha256"] != sha256(config_bytes):
        raise ValueError(f"{WEIGHTS_FILE} and {CONFIG_FILE} do not belong together")
    weights = safetensors.torch.load(weights_bytes)
    if {name: (tensor.shape, tensor.dtype) for name, tensor in weights.items()} != expected:
        raise ValueError(f"{WEIGHTS_FILE} has other weights than {CONFIG_FILE} describes")
    if not all(tensor.isfinite().all() for tensor in weights.values()):
        raise ValueError(f"{WEIGHTS_FILE} holds numbers that are not finite")
    linear = beside and _linear(beside["reach"], {name: weights.pop(f"{LINEAR}{name}") for name in LINEAR_WEIGHTS})
    scales = tuple(float(scale) for scale in header["scales"])
    if len(scales) != (2 if linear else 1) or not all(1 / LARGEST_SCALE < it < LARGEST_SCALE for it in scales):
        raise ValueError(f"{WEIGHTS_FILE} has scales that are none")
    return _Read(architecture, tokenizer, label_names, weights, linear, scales)


def _linear_shapes(
    reach: int, frequent: int, features: int, *, most_tokens: int, num_classes: int
) -> dict[str, tuple[torch.Size, torch.dtype]]:
    """The shapes and types of a linear classifier's weights, once what the config says of it is possible."""
    if type(reach) is not int or not 0 < reach <= most_tokens:
        raise ValueError(f"{CONFIG_FILE}: a linear classifier that reads {reach!r} tokens")
    if type(frequent) is not int or not 0 <= frequent <= FREQUENT:
        raise ValueError(f"{CONFIG_FILE}: {frequent!r} frequent words")
    if type(features) is not int or not 0 <= features < ALL_NAMES:
        raise ValueError(f"{CONFIG_FILE}: {features!r} linear features")
    machines = num_one_vs_rest(num_classes)
    weights = {
        "frequent": ((frequent,), torch.int32),
        "names": ((features,), torch.int32),
        "idf": ((features,), torch.float32),
        "weights": ((features, machines), torch.float32),
        "biases": ((machines,), torch.float32),
    }
    return {f"{LINEAR}{name}": (torch.Size(shape), dtype) for name, (shape, dtype) in weights.items()}


def _linear(reach: int, weights: dict[str, Tensor]) -> LinearClassifier:
    linear = LinearClassifier(reach=reach, **{name: tensor.numpy() for name, tensor in weights.items()})
    names = linear.names
    if len(names) and not (names[0] >= 0 and names[-1] < ALL_NAMES and (np.diff(names) > 0).all()):
        raise ValueError(f"{WEIGHTS_FILE}: the names of linear features are not in order")
    return linear


def _sealed_header(content: bytes) -> dict[str, Any]:
    """What a weights file says of itself, once its own hash has vouched for all of it."""
    length = int.from_bytes(content[:8], "little")
    if length > min(LARGEST_HEADER, len(content)):
        raise ValueError(f"{WEIGHTS_FILE} has no sensible header")
    header = dict(json.loads(json.loads(content[8 : 8 + length])["__metadata__"][FORMAT]))
    if sha256(content.replace(header["sha256"].encode(), UNSEALED, 1)) != header["sha256"]:
        raise ValueError(f"{WEIGHTS_FILE} has changed since it was written")
    return header
