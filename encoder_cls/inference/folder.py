"""Save and load the model folder.

    model.safetensors   weights of the parts; the metadata holds everything else, and a hash of the whole file
    config.json         task, columns, class names, shapes of the parts: a copy for people and other tools
    tokenizer.json      Hugging Face tokenizers format: a copy, too
    README.md           model card, written when training has finished

Only `model.safetensors` is read, and it is replaced in one atomic rename: so the folder holds one complete classifier
whenever a training is killed. Models of format 8, with config and tokenizer in their own files alone, are read as well.
"""

from __future__ import annotations

import json
import math
import os
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import safetensors
import safetensors.numpy
from numpy.typing import NDArray
from tokenizers import Tokenizer

from encoder_cls.errors import ConfigError, EncoderClsError
from encoder_cls.inference import metadata as description
from encoder_cls.inference.classifier import Classifier
from encoder_cls.inference.encoder.auto import ENGINES, new_encoder
from encoder_cls.inference.hub_models import SCHEME, download
from encoder_cls.inference.linear import LINEAR, LinearClassifier
from encoder_cls.inference.metadata import CONFIG_FILE, FORMAT, TOKENIZER_FILE, WEIGHTS_FILE
from encoder_cls.inference.weights import Shapes, Weight, dense, pack, unpack
from encoder_cls.system.files import (
    opened_plainly,
    path_of,
    read_file,
    read_rest,
    reporting_os_errors,
    sha256,
    to_json,
    write_file,
)
from encoder_cls.system.installed import log
from encoder_cls.text.tokenizer import parse_tokenizer

LARGEST_CONFIG, LARGEST_TOKENIZER = 1 << 24, 1 << 28  # bytes; 100,000 classes, some million tokens
LARGEST_HEADER = 2 * (LARGEST_CONFIG + LARGEST_TOKENIZER)  # bytes; quotes in JSON in JSON take two
SLACK = 1 << 20  # bytes beyond the weights: little more is refused with the name of the tensor
NO_HASH = b"0" * 64  # the placeholder of the file's own hash while that is computed


def model_folder(path: Path) -> Path:
    """The model folder of a path to a run or to a model.

    Raises:
        ConfigError: there is none.
    """
    for folder in (path / "model", path):
        if (folder / WEIGHTS_FILE).exists():
            return folder
    if not path.exists():
        raise ConfigError(f"{path}: no such folder")
    raise ConfigError(f"{path}: holds no model yet (a run has one after its first validation)")


def load_classifier(path: str | Path, *, device: str = "auto", engine: str = "auto") -> Classifier:
    """Load a classifier from a run folder, a model folder or the Hugging Face Hub, checking all its hashes.

    Args:
        path: of the folder, or `hub:owner/name[?revision=...]`.
        device: where the encoder is computed: `auto`, `cpu`, `cuda` or `cuda:N`.
        engine: by which it is computed: `numpy`, `torch` in float32, or `auto`: NumPy for a few texts, PyTorch for
            many where it is installed, in bfloat16 where the device is fast at it.

    Raises:
        ConfigError: there is no classifier at this path, or no such device or engine.
        EncoderClsError: the folder is damaged, or of another program; or the Hub cannot be reached.
    """
    if engine not in ENGINES:
        raise ConfigError(f"--engine {engine}: known engines are {', '.join(ENGINES)}")
    named = Path(path).as_posix()
    if named.startswith(SCHEME):
        folder = download(named, [CONFIG_FILE, TOKENIZER_FILE, WEIGHTS_FILE], mark=FORMAT)
        classifier, weights = _read(folder, of_hub=named)
    else:
        classifier, weights = _read(model_folder(Path(path)))
    classifier.folder = named
    if weights:
        # Not in `_read`, whose errors are the folder's: this is where memory may be short.
        architecture = classifier.encoder_architecture
        assert architecture
        classifier.encoder = new_encoder(architecture, weights, engine=engine, device=device)
    log("info", f"loaded {path}: {classifier!r}")
    return classifier


def read_encoder_weights(folder: Path) -> dict[str, NDArray[np.float32]]:
    """The weights of the encoder and its head in a model folder, by name; errors as of `load_classifier`."""
    return dense(_read(folder)[1])


def _read(folder: Path, *, of_hub: str = "") -> tuple[Classifier, dict[str, Weight]]:
    """Read a classifier that has no encoder yet, and the weights of that, from a folder, which may be of the Hub."""
    try:
        return _read_files(folder, path_of if of_hub else Path)  # files in the cache of the Hub are links
    except (ValueError, KeyError, TypeError, AttributeError, RuntimeError, safetensors.SafetensorError) as error:
        reason, _, _ = str(error).partition("\n")
        raise EncoderClsError(f"{of_hub or folder}: damaged, or not a model folder of encoder-cls: {reason}") from None


def _read_files(folder: Path, file_of: Callable[[Path], Path]) -> tuple[Classifier, dict[str, Weight]]:
    """Read no more than the tokenizer and the architecture allow for: these bound the size of the weights."""
    path = file_of(folder / WEIGHTS_FILE)
    with opened_plainly(path) as file:
        start = file.read(8)
        length = int.from_bytes(start, "little")
        if length > min(LARGEST_HEADER, os.fstat(file.fileno()).st_size):
            raise ValueError(f"{WEIGHTS_FILE} has no sensible header")
        start += file.read(length)
        metadata = _metadata(start)
        if "config" in metadata:
            values, tokenizer = metadata["config"], parse_tokenizer(metadata["tokenizer"])
        else:
            values, tokenizer = _read_format_8(folder, file_of, metadata)
        config, shapes = description.read_config(values, vocab_size=tokenizer.get_vocab_size())
        most_weights = 4 * sum(math.prod(shape) for part in shapes.values() for shape in part.values())
        content = start + read_rest(file, path, most_bytes=len(start) + most_weights + SLACK)  # no data type takes more
    if sha256(content.replace(metadata["sha256"].encode(), NO_HASH, 1)) != metadata["sha256"]:
        raise ValueError(f"{WEIGHTS_FILE} has changed since it was written")
    state = description.read_state(metadata, config, described=shapes)
    try:
        weights = _weights(safetensors.numpy.load(content), shapes, state["dtypes"])
        linear = None
        if "linear" in weights:
            max_tokens = values["linear"]["max_tokens"]
            linear = LinearClassifier.from_weights(weights["linear"], max_tokens=max_tokens, task=config["task"])
    except (ValueError, KeyError) as error:
        raise ValueError(f"{WEIGHTS_FILE} has other weights than {CONFIG_FILE} describes: {error}") from None
    return Classifier(None, tokenizer, linear=linear, **config, **state), weights.get("encoder", {})


def _weights(
    tensors: Mapping[str, NDArray[Any]], shapes: Mapping[str, Shapes], dtypes: Mapping[str, str]
) -> dict[str, dict[str, Weight]]:
    """The weights of each part."""
    by_part: dict[str, dict[str, NDArray[Any]]] = {}
    for name, tensor in tensors.items():
        by_part.setdefault("linear" if name.startswith(LINEAR) else "encoder", {})[name] = tensor
    if not by_part.keys() <= dtypes.keys():
        raise ValueError("there are tensors of a part that is not named")
    return {part: unpack(by_part[part], shapes[part], dtype) for part, dtype in dtypes.items()}


def _metadata(start: bytes) -> dict[str, Any]:
    """The metadata in the beginning of a weights file, up to its tensors."""
    return dict(json.loads(json.loads(start[8:])["__metadata__"][FORMAT]))


def _read_format_8(folder: Path, file_of: Callable[[Path], Path], metadata: Mapping[str, Any]) -> tuple[Any, Tokenizer]:
    """Config and tokenizer from their own files, whose hashes the weights file holds."""
    config = read_file(file_of(folder / CONFIG_FILE), most_bytes=LARGEST_CONFIG)
    tokenizer = read_file(file_of(folder / TOKENIZER_FILE), most_bytes=LARGEST_TOKENIZER)
    values = json.loads(config)
    if (metadata["config_sha256"], values["tokenizer_sha256"]) != (sha256(config), sha256(tokenizer)):
        raise ValueError(f"{WEIGHTS_FILE}, {CONFIG_FILE} and {TOKENIZER_FILE} do not belong together")
    return values, parse_tokenizer(tokenizer.decode())


def save_classifier(classifier: Classifier, folder: Path, *, dtypes: Mapping[str, str] | None = None) -> None:
    """Write the folder, or replace the classifier in it; `dtypes` are of the weights of each part, see `weights`.

    Raises:
        EncoderClsError: the disk refused; the folder still holds the whole classifier that it had, if any.
    """
    dtypes = dtypes or dict.fromkeys(classifier.parts, "float32")
    tensors: dict[str, NDArray[Any]] = {}
    for part in classifier.parts:
        tensors |= pack(weights_of_part(classifier, part), dtypes[part])
    config, tokenizer = description.config_of(classifier), classifier.tokenizer
    metadata = {"config": config, "tokenizer": tokenizer.to_str(), **description.state_of(classifier, dtypes)}
    _write_weights(folder, tensors, metadata)
    copies = {CONFIG_FILE: to_json(config), TOKENIZER_FILE: tokenizer.to_str(pretty=True).encode()}
    for path, content in ((folder / name, content) for name, content in copies.items()):
        with reporting_os_errors(path):
            is_unchanged = path.is_file() and path.read_bytes() == content
        if not is_unchanged:
            write_file(path, content)


def save_measured(classifier: Classifier, folder: Path) -> None:
    """Replace gate and guarantees in a model folder; its weights stay as they are. Errors as of `save_classifier`."""
    _read(folder)
    with reporting_os_errors(folder / WEIGHTS_FILE):
        content = (folder / WEIGHTS_FILE).read_bytes()
    metadata = _metadata(content[: 8 + int.from_bytes(content[:8], "little")])
    del metadata["sha256"]
    metadata |= description.measured(classifier)
    _write_weights(folder, safetensors.numpy.load(content), metadata)


def _write_weights(folder: Path, tensors: dict[str, NDArray[Any]], metadata: Mapping[str, Any]) -> None:
    # One entry: safetensors writes several in another order each time, and equal runs should give equal files.
    values = json.dumps({"sha256": NO_HASH.decode(), **metadata}, ensure_ascii=False)
    content = safetensors.numpy.save(tensors, {FORMAT: values})
    write_file(folder / WEIGHTS_FILE, content.replace(NO_HASH, sha256(content).encode(), 1))


def weights_of_part(classifier: Classifier, part: str) -> dict[str, Weight]:
    """The weights of one of the `Classifier.parts`, by name."""
    if part == "linear":
        assert classifier.linear
        return classifier.linear.named_weights()
    assert classifier.encoder
    return dict(classifier.encoder.weights())
