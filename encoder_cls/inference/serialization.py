"""The folder of a portable classifier; docs/format.md describes it.

    config.json         task, columns, class names, the architecture of the parts, hash of the tokenizer
    tokenizer.json      Hugging Face tokenizers format
    model.safetensors   weights of the parts; in the header which parts are there, their mixture weights, and the
                        hashes of the config and of the file itself
    README.md           model card, written when training has finished

A running training replaces `model.safetensors` alone, in one atomic rename, but where another linear classifier takes
the place of one: its sizes stand in `config.json`. Then `former_config.json` has those of the weights that are there,
until they are replaced, too. Parts of two classifiers are refused.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import safetensors
import safetensors.numpy
from numpy.typing import NDArray

from encoder_cls.errors import ConfigError
from encoder_cls.inference.auto_engine import AutoEncoder
from encoder_cls.inference.classifier import Classifier, Encoder
from encoder_cls.inference.classifier_config import FORMAT, ClassifierConfig
from encoder_cls.inference.encoder_architecture import EncoderArchitecture
from encoder_cls.inference.familiarity import Familiarity
from encoder_cls.inference.hub_models import SCHEME, download
from encoder_cls.inference.model_files import (
    CONFIG_FILE,
    FORMER_CONFIG_FILE,
    TOKENIZER_FILE,
    UNSEALED,
    WEIGHTS_FILE,
    config_file_of_weights,
    model_folder,
    read_model_files,
    sealed,
    sealed_header,
)
from encoder_cls.inference.numpy_engine import NumpyEncoder
from encoder_cls.inference.promises import Promises
from encoder_cls.inference.weights_file import Weight, dense, pack
from encoder_cls.system.files import reporting_os_errors, sha256, to_json, write_file
from encoder_cls.system.installed import is_installed
from encoder_cls.system.log import log

ENGINES = ("auto", "numpy", "torch")


def save_classifier(classifier: Classifier, folder: Path, *, dtypes: Mapping[str, str] | None = None) -> None:
    """Write the folder, or replace the weights of the same classifier in it.

    Args:
        classifier: what is written.
        folder: where to.
        dtypes: of the weights of each part, see `weights_file`; none: float32.

    Raises:
        EncoderClsError: the disk refused; a classifier that was there is still whole.
    """
    tokenizer = classifier.tokenizer.to_str(pretty=True).encode()
    config = to_json(ClassifierConfig.of(classifier, tokenizer_sha256=sha256(tokenizer)).to_json())
    for name, content in ((TOKENIZER_FILE, tokenizer), (CONFIG_FILE, config)):
        path = folder / name
        with reporting_os_errors(path):
            unchanged = path.is_file() and path.read_bytes() == content
        if not unchanged:
            # For the weights that are there, should this be killed; it may be that of a writer that was.
            if name == CONFIG_FILE and path.is_file() and config_file_of_weights(folder) == CONFIG_FILE:
                write_file(folder / FORMER_CONFIG_FILE, path.read_bytes())
            write_file(path, content)
    dtypes = dtypes or dict.fromkeys(classifier.parts, "float32")
    tensors: dict[str, NDArray[Any]] = {}
    for part in classifier.parts:
        tensors |= pack(weights_of_part(classifier, part), dtypes[part])
    shares = classifier.mixture_shares
    header = {
        "sha256": UNSEALED.decode(),
        "config_sha256": sha256(config),
        "parts": list(classifier.parts),
        "mixture_weights": dict(zip(classifier.parts, classifier.mixture_weights, strict=True)),
        "mixture_shares": shares if shares and shares.keys() == set(classifier.parts) else None,
        "dtypes": dict(dtypes),
        "thresholds": list(classifier.thresholds) if classifier.thresholds else None,
        "promises": classifier.promises and classifier.promises.to_json(),
        "familiarity": classifier.familiarity and classifier.familiarity.to_json(),
    }
    # One entry: safetensors writes several in another order each time, and equal runs should give equal files.
    content = safetensors.numpy.save(tensors, {FORMAT: json.dumps(header)})
    write_file(folder / WEIGHTS_FILE, sealed(content))
    with reporting_os_errors(folder / FORMER_CONFIG_FILE):
        (folder / FORMER_CONFIG_FILE).unlink(missing_ok=True)


def save_promises(folder: Path, promises: Promises | None, familiarity: Familiarity | None) -> None:
    """Put what held-out texts have told into a model folder; its weights stay as they are.

    Raises:
        EncoderClsError: the folder is damaged, or the disk refused; the classifier that was there is still whole.
    """
    read_model_files(folder)
    with reporting_os_errors(folder / WEIGHTS_FILE):
        content = (folder / WEIGHTS_FILE).read_bytes()
    header = sealed_header(content) | {
        "sha256": UNSEALED.decode(),
        "promises": promises and promises.to_json(),
        "familiarity": familiarity and familiarity.to_json(),
    }
    content = safetensors.numpy.save(safetensors.numpy.load(content), {FORMAT: json.dumps(header)})
    write_file(folder / WEIGHTS_FILE, sealed(content))


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
    classifier.promises, classifier.familiarity = found.promises, found.familiarity
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
    from encoder_cls.inference.torch_engine import TorchEncoder

    precision = "float32" if engine == "torch" else "auto"
    return TorchEncoder.from_weights(architecture, weights, device=device, precision=precision)


def read_encoder_weights(folder: Path) -> dict[str, NDArray[np.float32]]:
    """The weights of the encoder and its head in a model folder, by name.

    Raises:
        EncoderClsError: as `load_classifier`.
    """
    return dense(read_model_files(folder).weights["encoder"])
