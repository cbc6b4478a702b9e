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
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import safetensors
import safetensors.numpy
from numpy.typing import NDArray
from tokenizers import Tokenizer

from encoder_cls.errors import ConfigError, EncoderClsError
from encoder_cls.inference.classifier import Classifier, Encoder
from encoder_cls.inference.classifier_config import FORMAT, ClassifierConfig
from encoder_cls.inference.encoder.architecture import EncoderArchitecture
from encoder_cls.inference.encoder.auto import AutoEncoder
from encoder_cls.inference.encoder.numpy import NumpyEncoder
from encoder_cls.inference.guarantees import Familiarity, Guarantees
from encoder_cls.inference.hub_models import SCHEME, download
from encoder_cls.inference.linear import PREFIX as LINEAR
from encoder_cls.inference.linear import LinearClassifier
from encoder_cls.inference.task import SINGLE_LABEL
from encoder_cls.inference.weights import DTYPES, Weight, dense, pack, unpack
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
from encoder_cls.system.installed import is_installed, log
from encoder_cls.text.ngrams import RARITY_NUMBERS
from encoder_cls.text.tokenizer import parse_tokenizer

CONFIG_FILE, TOKENIZER_FILE, WEIGHTS_FILE = "config.json", "tokenizer.json", "model.safetensors"
PARTS = ("encoder", "linear")
LARGEST_CONFIG, LARGEST_TOKENIZER = 1 << 24, 1 << 28  # bytes; 100,000 classes, some million tokens
LARGEST_HEADER = 2 * (LARGEST_CONFIG + LARGEST_TOKENIZER)  # bytes; quotes in JSON in JSON take two
SLACK = 1 << 20  # bytes beyond what the weights take: little more is refused with the name of the tensor
LARGEST_WEIGHT = 1e6  # of a part in the mixture: far beyond what is ever fitted
NO_HASH = b"0" * 64  # the placeholder of the file's own hash while that is computed


def model_folder(path: Path) -> Path:
    """The model folder that a path to a run or to a model means.

    Raises:
        ConfigError: there is none.
    """
    for folder in (path / "model", path):
        if (folder / WEIGHTS_FILE).exists():
            return folder
    if not path.exists():
        raise ConfigError(f"{path}: no such folder")
    raise ConfigError(f"{path}: holds no model yet (a run has one after its first validation)")


class ModelFiles(NamedTuple):
    """What a model folder holds; weights are those of each part that is there."""

    config: ClassifierConfig
    tokenizer: Tokenizer
    weights: dict[str, dict[str, Weight]]
    linear: LinearClassifier | None
    mixture_weights: tuple[float, ...]
    mixture_shares: dict[str, float] | None
    thresholds: tuple[float, ...]
    guarantees: Guarantees | None
    familiarity: Familiarity | None
    dtypes: dict[str, str]
    sha256: str


def read_model_files(folder: Path, *, of_hub: str = "") -> ModelFiles:
    """Read the folder, which may be of the Hub, by that name.

    Raises:
        EncoderClsError: it is damaged, or of another program.
    """
    try:
        return _read(folder, path_of if of_hub else Path)  # files in the cache of the Hub are links
    except (ValueError, KeyError, TypeError, AttributeError, RuntimeError, safetensors.SafetensorError) as error:
        reason, _, _ = str(error).partition("\n")
        raise EncoderClsError(f"{of_hub or folder}: damaged, or not a model folder of encoder-cls: {reason}") from None


def _read(folder: Path, file_of: Callable[[Path], Path]) -> ModelFiles:
    """Read the weights and their metadata.

    What is read stays in proportion to what is there: the tokenizer bounds the vocabulary, the architecture and the
    vocabulary bound the weights.
    """
    path = file_of(folder / WEIGHTS_FILE)
    with opened_plainly(path) as file:
        start = file.read(8)
        length = int.from_bytes(start, "little")
        if length > min(LARGEST_HEADER, os.fstat(file.fileno()).st_size):
            raise ValueError(f"{WEIGHTS_FILE} has no sensible header")
        start += file.read(length)
        header = _metadata(start)
        if "config" in header:
            config, tokenizer = ClassifierConfig.from_json(header["config"]), parse_tokenizer(header["tokenizer"])
        else:
            config, tokenizer = _read_format_8(folder, file_of, header)
        shapes = config.weight_shapes(vocab_size=tokenizer.get_vocab_size())
        most_weights = 4 * sum(math.prod(shape) for part in shapes.values() for shape in part.values())
        content = start + read_rest(file, path, most_bytes=len(start) + most_weights + SLACK)  # no data type takes more
    if sha256(content.replace(header["sha256"].encode(), NO_HASH, 1)) != header["sha256"]:
        raise ValueError(f"{WEIGHTS_FILE} has changed since it was written")
    parts = tuple(part for part in PARTS if part in header["parts"])
    if not parts or sorted(header["parts"]) != sorted(parts) or not set(parts) <= shapes.keys():
        raise ValueError(f"{WEIGHTS_FILE} says that it has the parts {header['parts']!r}")
    known_dtypes = sorted(header["dtypes"]) == sorted(parts) and set(header["dtypes"].values()) <= set(DTYPES)
    if not known_dtypes:
        raise ValueError(f"{WEIGHTS_FILE} holds what only a newer version of encoder-cls can read")
    weights = _unpacked(safetensors.numpy.load(content), shapes, header["dtypes"])
    linear = None
    if config.linear is not None and "linear" in weights:
        with _described_by_config():
            linear = LinearClassifier.from_weights(
                weights["linear"], max_tokens=config.linear["max_tokens"], task=config.task
            )
    return ModelFiles(
        config=config,
        tokenizer=tokenizer,
        weights=weights,
        linear=linear,
        mixture_weights=_mixture_weights(header["mixture_weights"], parts),
        mixture_shares=_mixture_shares(header.get("mixture_shares"), parts),
        thresholds=_thresholds(header["thresholds"], config),
        promises=None if header["promises"] is None else Guarantees.from_json(header["promises"]),
        familiarity=_familiarity(header.get("familiarity"), has_linear=linear is not None),
        dtypes=header["dtypes"],
        sha256=header["sha256"],
    )


def _metadata(start: bytes) -> dict[str, Any]:
    """The metadata in the beginning of a weights file, up to its tensors."""
    return dict(json.loads(json.loads(start[8:])["__metadata__"][FORMAT]))


def _read_format_8(
    folder: Path, file_of: Callable[[Path], Path], header: Mapping[str, Any]
) -> tuple[ClassifierConfig, Tokenizer]:
    """Config and tokenizer from their own files, which the weights file vouches for."""
    config = read_file(file_of(folder / CONFIG_FILE), most_bytes=LARGEST_CONFIG)
    tokenizer = read_file(file_of(folder / TOKENIZER_FILE), most_bytes=LARGEST_TOKENIZER)
    values = json.loads(config)
    if (header["config_sha256"], values["tokenizer_sha256"]) != (sha256(config), sha256(tokenizer)):
        raise ValueError(f"{WEIGHTS_FILE}, {CONFIG_FILE} and {TOKENIZER_FILE} do not belong together")
    return ClassifierConfig.from_json(values), parse_tokenizer(tokenizer.decode())


def _unpacked(
    tensors: Mapping[str, NDArray[Any]], shapes: Mapping[str, dict[str, tuple[int, ...]]], dtypes: Mapping[str, str]
) -> dict[str, dict[str, Weight]]:
    """The weights of each part that a file has."""
    weights = {}
    with _described_by_config():
        for part, dtype in dtypes.items():
            is_linear = part == "linear"
            of_part = {name: tensor for name, tensor in tensors.items() if name.startswith(LINEAR) == is_linear}
            weights[part] = unpack(of_part, shapes[part], dtype)
        if len(dtypes) < len({name.startswith(LINEAR) for name in tensors}):
            raise ValueError("there are tensors of a part that is not named")
    return weights


@contextmanager
def _described_by_config() -> Iterator[None]:
    """Tell of weights that are not in order as of weights that the config does not describe."""
    try:
        yield
    except (ValueError, KeyError) as error:
        raise ValueError(f"{WEIGHTS_FILE} has other weights than {CONFIG_FILE} describes: {error}") from None


def _mixture_weights(found: Any, parts: tuple[str, ...]) -> tuple[float, ...]:
    weights = tuple(float(found[part]) for part in parts)
    if len(found) != len(parts) or not all(1 / LARGEST_WEIGHT < weight < LARGEST_WEIGHT for weight in weights):
        raise ValueError(f"{WEIGHTS_FILE} has mixture weights that are none")
    return weights


def _mixture_shares(found: Any, parts: tuple[str, ...]) -> dict[str, float] | None:
    """Each part's share; none where a file does not tell, which is no more than something not to be shown."""
    if found is None:
        return None
    shares = {part: float(found[part]) for part in parts}
    if len(found) != len(parts) or not all(0 <= share <= 1 for share in shares.values()):
        raise ValueError(f"{WEIGHTS_FILE} has mixture shares that are none")
    return shares


def _thresholds(found: Any, config: ClassifierConfig) -> tuple[float, ...]:
    """The threshold of each label; single-label there are none."""
    if config.task is SINGLE_LABEL:
        if found is not None:
            raise ValueError(f"{WEIGHTS_FILE} holds what only a newer version of encoder-cls can read")
        return ()
    thresholds = tuple(map(float, found))
    if len(thresholds) != len(config.label_names) or not all(0 <= threshold <= 1 for threshold in thresholds):
        raise ValueError(f"{WEIGHTS_FILE} has thresholds that are none")
    return thresholds


def _familiarity(found: Any, *, has_linear: bool) -> Familiarity | None:
    """What is usual in held-out texts; none where a file does not tell."""
    if found is None:
        return None
    return Familiarity.from_json(found, num_numbers=2 + (RARITY_NUMBERS if has_linear else 0))


ENGINES = ("auto", "numpy", "torch")


def save_classifier(classifier: Classifier, folder: Path, *, dtypes: Mapping[str, str] | None = None) -> None:
    """Write the folder, or replace the classifier in it.

    Args:
        classifier: what is written.
        folder: where to.
        dtypes: of the weights of each part, see `weights`; none: float32.

    Raises:
        EncoderClsError: the disk refused; a classifier that was there is still whole.
    """
    dtypes = dtypes or dict.fromkeys(classifier.parts, "float32")
    tensors: dict[str, NDArray[Any]] = {}
    for part in classifier.parts:
        tensors |= pack(weights_of_part(classifier, part), dtypes[part])
    shares = classifier.mixture_shares
    config = ClassifierConfig.of(classifier).to_json()
    header = {
        "config": config,
        "tokenizer": classifier.tokenizer.to_str(),
        "parts": list(classifier.parts),
        "mixture_weights": dict(zip(classifier.parts, classifier.mixture_weights, strict=True)),
        "mixture_shares": shares if shares and shares.keys() == set(classifier.parts) else None,
        "dtypes": dict(dtypes),
        "thresholds": list(classifier.thresholds) if classifier.thresholds else None,
        "promises": classifier.guarantees and classifier.guarantees.to_json(),
        "familiarity": classifier.familiarity and classifier.familiarity.to_json(),
    }
    _write_weights(folder, tensors, header)
    for name, content in (
        (CONFIG_FILE, to_json(config)),
        (TOKENIZER_FILE, classifier.tokenizer.to_str(pretty=True).encode()),
    ):
        with reporting_os_errors(folder / name):
            unchanged = (folder / name).is_file() and (folder / name).read_bytes() == content
        if not unchanged:
            write_file(folder / name, content)


def _write_weights(folder: Path, tensors: dict[str, NDArray[Any]], header: Mapping[str, Any]) -> None:
    """Replace the weights file."""
    # One entry: safetensors writes several in another order each time, and equal runs should give equal files.
    metadata = json.dumps({"sha256": NO_HASH.decode(), **header}, ensure_ascii=False)
    content = safetensors.numpy.save(tensors, {FORMAT: metadata})
    write_file(folder / WEIGHTS_FILE, content.replace(NO_HASH, sha256(content).encode(), 1))


def save_guarantees(folder: Path, guarantees: Guarantees | None, familiarity: Familiarity | None) -> None:
    """Put what held-out texts have told into a model folder; its weights stay as they are.

    Raises:
        EncoderClsError: the folder is damaged, or the disk refused; the classifier that was there is still whole.
    """
    read_model_files(folder)
    with reporting_os_errors(folder / WEIGHTS_FILE):
        content = (folder / WEIGHTS_FILE).read_bytes()
    header = _metadata(content[: 8 + int.from_bytes(content[:8], "little")])
    del header["sha256"]
    header["promises"] = guarantees and guarantees.to_json()
    header["familiarity"] = familiarity and familiarity.to_json()
    _write_weights(folder, safetensors.numpy.load(content), header)


def weights_of_part(classifier: Classifier, part: str) -> dict[str, Weight]:
    """The weights of one of the `Classifier.parts`, by name."""
    if part == "linear":
        assert classifier.linear
        return classifier.linear.named_weights()
    assert classifier.encoder
    return dict(classifier.encoder.weights())


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
        found = read_model_files(folder, of_hub=named)
    else:
        found = read_model_files(model_folder(Path(path)))
    config, weights = found.config, found.weights
    encoder = None  # made outside of the check: where memory is short, the folder is not to blame
    if config.encoder and "encoder" in weights:
        encoder = _encoder(config.encoder, weights["encoder"], engine=engine, device=device)
    classifier = Classifier(
        encoder,
        found.tokenizer,
        config.label_names,
        max_seq_len=config.max_seq_len,
        linear=found.linear,
        mixture_weights=found.mixture_weights,
        text_columns=config.text_columns,
        dtypes=found.dtypes,
        task=config.task,
    )
    classifier.thresholds, classifier.encoder_architecture = found.thresholds, config.encoder
    classifier.sha256, classifier.folder, classifier.mixture_shares = found.sha256, named, found.mixture_shares
    classifier.guarantees, classifier.familiarity = found.guarantees, found.familiarity
    classifier.delimiter, classifier.encoding = config.delimiter, config.encoding
    log("info", f"loaded {path}: {classifier!r}")
    return classifier


def _encoder(architecture: EncoderArchitecture, weights: Mapping[str, Weight], *, engine: str, device: str) -> Encoder:
    is_cpu = device in {"auto", "cpu"}
    if engine == "numpy":
        if not is_cpu:
            raise ConfigError(f"--device {device}: the engine numpy computes on the cpu")
        return NumpyEncoder(architecture, weights)
    if engine == "auto" and is_cpu:
        return AutoEncoder(architecture, weights, device=device)
    if not is_installed("torch"):
        raise ConfigError(f"--engine {engine} --device {device}: needs PyTorch: pip install encoder-cls")
    from encoder_cls.inference.encoder.torch import TorchEncoder

    precision = "float32" if engine == "torch" else "auto"
    return TorchEncoder.from_weights(architecture, weights, device=device, precision=precision)


def read_encoder_weights(folder: Path) -> dict[str, NDArray[np.float32]]:
    """The weights of the encoder and its head in a model folder, by name.

    Raises:
        EncoderClsError: as `load_classifier`.
    """
    return dense(read_model_files(folder).weights["encoder"])
