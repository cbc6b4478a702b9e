"""The portable classifier: one folder holds the architecture, the class names, the tokenizer and the weights.

    config.json         architecture, class names, hash of the tokenizer
    tokenizer.json      Hugging Face tokenizers format
    model.safetensors   weights of the encoder and of the linear classifier; in the header the scales with which their
                        scores are added up, and the hashes of the config and of the file itself
    README.md           model card, written when training has finished

A running training replaces only `model.safetensors`, in one atomic rename. So whoever loads the folder at
any moment gets one complete classifier, and parts of two classifiers are refused.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import safetensors
import safetensors.torch
import torch
from numpy.typing import NDArray
from pydantic import ValidationError
from tokenizers import Tokenizer
from torch import Tensor

from encoder_cls.config import ModelConfig
from encoder_cls.errors import ConfigError, EncoderClsError
from encoder_cls.inference.calibration import Logits, add_up, softmax
from encoder_cls.inference.collate import Batch, by_length, pad
from encoder_cls.inference.linear import LinearClassifier, num_machines
from encoder_cls.model import EncoderClassifier, without_memory
from encoder_cls.system.device import products_in, resolve_device, resolve_precision
from encoder_cls.system.files import naming, read_file, sha256, to_json, write_file
from encoder_cls.text.ngram_features import ALL_NAMES, FREQUENT
from encoder_cls.text.token_arrays import KEPT_PER_TOKEN, TokenizedTexts
from encoder_cls.text.tokenizer import parse_tokenizer, tokenize

CONFIG_FILE, TOKENIZER_FILE, WEIGHTS_FILE = "config.json", "tokenizer.json", "model.safetensors"
FORMAT, FORMAT_VERSION = "encoder-cls", 7
# The most tokens in a batch where nobody has chosen: what keeps a GPU busy, or what fits a processor's caches, that is
# twice as many where numbers have half the bytes.
GPU_BATCH_TOKENS, CPU_BATCH_BYTES = 65_536, 8192
LARGEST_HEADER = 1 << 20  # bytes; the header of a real model of 1,000 layers is a tenth of that
LARGEST_CONFIG, LARGEST_TOKENIZER = 1 << 24, 1 << 28  # bytes; 100,000 classes, some million tokens
LARGEST_SCALE = 1e6  # far beyond what is ever fitted
LINEAR = "linear."  # before the names of the linear classifier's weights
LINEAR_WEIGHTS = ("frequent", "names", "idf", "weights", "biases")
UNSEALED = b"0" * 64  # what stands in a weights file in place of its own hash while that is taken


@dataclass(frozen=True, kw_only=True)
class Prediction:
    """What the classifier says of one text.

    Attributes:
        label: the most probable class.
        probability: its probability.
        probabilities: of all classes, by name.
        truncated: the text was longer than the encoder reads.
        unknown_words: how many of its tokens the classifier has never seen.
    """

    label: str
    probability: float
    probabilities: dict[str, float]
    truncated: bool
    unknown_words: int

    def top(self, k: int) -> list[tuple[str, float]]:
        """The `k` most probable classes with their probabilities, best first."""
        return sorted(self.probabilities.items(), key=lambda item: -item[1])[:k]


class Classifier:
    """A trained encoder, and perhaps a linear classifier beside it, with their tokenizer and class names.

    Wide and deep learning (Cheng et al., 2016, https://arxiv.org/abs/1606.07792): what a few words say by themselves is
    learnt best from their counts, what they say together by an encoder; the scores of both are added up.

    Attributes:
        linear: the linear classifier, if there is one.
        scales: by which scores are multiplied, the encoder's and the linear classifier's, so that probabilities are as
            often right as they say.
    """

    def __init__(
        self,
        model: EncoderClassifier,
        tokenizer: Tokenizer,
        config: ModelConfig,
        label_names: Sequence[str],
        *,
        linear: LinearClassifier | None = None,
        scales: tuple[float, ...] | None = None,
    ) -> None:
        self.model = model
        self.linear = linear
        self.scales = scales or (1.0,) * (2 if linear else 1)
        self.tokenizer = tokenizer
        self.config = config
        self.label_names = tuple(label_names)

    def __getstate__(self) -> dict[str, Any]:
        """What a copy is made of, also one for another process."""
        return self.__dict__ | {"tokenizer": self.tokenizer.to_str()}

    def __setstate__(self, state: dict[str, Any]) -> None:
        # A tokenizer that copied itself would take "[PAD]" in a text for the padding.
        self.__dict__.update(state | {"tokenizer": parse_tokenizer(state["tokenizer"])})

    def predict(self, texts: Sequence[str], *, batch_tokens: int | None = None) -> list[Prediction]:
        """Classify texts, any number and any length of them; the order is kept.

        Args:
            texts: the texts.
            batch_tokens: the most tokens in a batch, padding counted; none: what the device is fast with.

        Raises:
            TypeError: a single text, which would be taken for many of one character each.
        """
        if isinstance(texts, str):
            raise TypeError("predict takes several texts; put a single one in a list: predict([text])[0]")
        tokenized = self.tokenize(texts)
        logits = self.logits(tokenized, batch_tokens=batch_tokens)
        return [
            Prediction(
                label=self.label_names[row.argmax()],
                probability=float(row.max()),
                probabilities=dict(zip(self.label_names, row.tolist(), strict=True)),
                truncated=bool(truncated),
                unknown_words=int(unknown),
            )
            for row, truncated, unknown in zip(softmax(logits), tokenized.truncated, tokenized.unknown, strict=True)
        ]

    def tokenize(self, texts: Sequence[str]) -> TokenizedTexts:
        """Token ids of texts, cut where the classifier reads no further."""
        return tokenize(self.tokenizer, texts, max_seq_len=self.config.max_seq_len)

    def logits(
        self, texts: TokenizedTexts, *, batch_tokens: int | None, after_batch: Callable[[], None] | None = None
    ) -> Logits:
        """Calibrated logits of all texts, (texts, classes); arguments as in `in_batches`."""
        scores = [compute_logits(self.model, texts, batch_tokens=batch_tokens, after_batch=after_batch)]
        if self.linear:
            scores.append(self.linear.scores(texts))
        return add_up(scores, self.scales).astype(np.float32)

    def save(self, folder: Path) -> None:
        """Write the folder, or replace the weights of the same classifier in it.

        Raises:
            EncoderClsError: the disk refused; a classifier that was there is still whole.
        """
        tokenizer = self.tokenizer.to_str(pretty=True).encode()
        linear = self.linear and {
            "reach": self.linear.reach,
            "frequent": len(self.linear.frequent),
            "features": len(self.linear.names),
        }
        config = to_json(
            {
                "format": FORMAT,
                "format_version": FORMAT_VERSION,
                "architecture": self.config.model_dump(),
                "vocab_size": self.tokenizer.get_vocab_size(),
                "linear": linear,
                "id2label": dict(enumerate(self.label_names)),
                "tokenizer_sha256": sha256(tokenizer),
            }
        )
        for name, content in ((TOKENIZER_FILE, tokenizer), (CONFIG_FILE, config)):
            path = folder / name
            with naming(path):
                unchanged = path.is_file() and path.read_bytes() == content
            if not unchanged:
                write_file(path, content)
        weights = {name: tensor.detach().cpu().contiguous() for name, tensor in self.model.state_dict().items()}
        if self.linear:
            weights |= {f"{LINEAR}{name}": torch.from_numpy(getattr(self.linear, name)) for name in LINEAR_WEIGHTS}
        header = {"sha256": UNSEALED.decode(), "config_sha256": sha256(config), "scales": self.scales}
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


def compute_logits(
    model: EncoderClassifier,
    texts: TokenizedTexts,
    *,
    batch_tokens: int | None,
    after_batch: Callable[[], None] | None = None,
) -> Logits:
    """Logits of all texts, (texts, classes); arguments as in `in_batches`."""
    return in_batches(
        model,
        texts,
        lambda batch: model(*batch),
        width=model.head.linear.out_features,
        batch_tokens=batch_tokens,
        after_batch=after_batch,
    )


def in_batches(
    model: EncoderClassifier,
    texts: TokenizedTexts,
    compute: Callable[[Batch], Tensor],
    *,
    width: int,
    batch_tokens: int | None,
    after_batch: Callable[[], None] | None = None,
) -> NDArray[np.float32]:
    """What a model makes of all texts, (texts, width), without dropout.

    Matrix products are in bfloat16 where the device is fast at it, which moves probabilities by a thousandth.

    Args:
        model: the classifier; its training mode is put back afterwards.
        texts: the token ids.
        compute: from a batch on the model's device to its rows, (B, width).
        width: how many numbers a text gets.
        batch_tokens: the most tokens in a batch; none: what the device is fast with.
        after_batch: called after each batch; what it raises ends the work.
    """
    device = next(model.parameters()).device
    precision = resolve_precision("auto", device)
    fast_tokens = CPU_BATCH_BYTES // precision.itemsize if device.type == "cpu" else GPU_BATCH_TOKENS
    rows = np.zeros((len(texts), width), dtype=np.float32)
    was_training = model.training
    model.eval()
    try:
        with torch.inference_mode(), products_in(precision, device):
            for piece in by_length(texts.lengths, batch_tokens=batch_tokens or fast_tokens):
                rows[piece.indices] = compute(pad(texts, *piece).to(device)).cpu().numpy()
                if after_batch:
                    after_batch()
    finally:
        model.train(was_training)
    return rows


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
    expected = {name: (it.shape, it.dtype) for name, it in without_memory(architecture, **shape).state_dict().items()}
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
    machines = num_machines(num_classes)
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
