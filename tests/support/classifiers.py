"""Small classifiers that are built, not trained, and the files of their folders."""

from __future__ import annotations

import json
from collections.abc import Sequence
from copy import deepcopy
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import safetensors.torch
import torch
from support.tiny_encoder import tiny_model_config
from support.tokenizer import train_tokenizer

from encoder_cls.classifier.classifier import Classifier, TextFormat
from encoder_cls.classifier.mixture import Mixture
from encoder_cls.classifier.model_folder import FORMAT, NO_HASH, WEIGHTS_FILE
from encoder_cls.config.schema import TokenizerConfig
from encoder_cls.encoder.torch_encoder import TorchEncoder
from encoder_cls.encoder.transformer import EncoderClassifier
from encoder_cls.linear.linear_model import LinearModel
from encoder_cls.linear_training.features import CountedTexts, LinearOptions
from encoder_cls.linear_training.model_selection import fit_linear
from encoder_cls.system.files import sha256

# A word of each class that `with_linear` knows.
WORDS = ["rain", "soup", "ball"]


def new_classifier(
    label_names: Sequence[str],
    *,
    texts: Sequence[str] = ("some words to know",),
    kind: str = "word_level",
) -> Classifier:
    """A classifier with an encoder that is not trained, whose tokenizer knows some texts."""
    torch.manual_seed(0)
    config = tiny_model_config(max_seq_len=8)
    tokenizer = train_tokenizer(texts, TokenizerConfig(type=kind, min_frequency=1))
    model = EncoderClassifier(
        config, vocab_size=tokenizer.get_vocab_size(), num_classes=len(label_names)
    )
    return Classifier(
        TorchEncoder(model, config),
        tokenizer,
        tuple(label_names),
        max_seq_len=config.max_seq_len,
        text_format=TextFormat(columns=("title", "body")),
    )


def with_linear(label_names: Sequence[str]) -> Classifier:
    """An encoder that knows nothing, and a linear model that knows one word of each class."""
    classifier = new_classifier(label_names, texts=WORDS[: len(label_names)])
    classifier.linear = deepcopy(_linear_model(len(label_names)))
    classifier.mixture = Mixture(weights={"encoder": 0.5, "linear": 3.0})
    return classifier


@cache
def _linear_model(num_classes: int) -> LinearModel:
    words = WORDS[:num_classes]
    return linear_model(new_classifier(words, texts=words), words * 3)


def linear_model(classifier: Classifier, texts: Sequence[str]) -> LinearModel:
    """A linear model of texts, whose labels are the classes of a classifier by turns."""
    num_classes = len(classifier.label_names)
    tokenized = classifier.tokenize(texts)
    labels = np.arange(len(texts)) % num_classes
    class_weights = np.ones(num_classes, dtype=np.float32)
    counted = CountedTexts.of(tokenized, labels, LinearOptions(9, True, class_weights))
    linear, _ = fit_linear(counted)
    return linear


def linear_alone(label_names: Sequence[str]) -> Classifier:
    """The linear model of `with_linear` without the encoder."""
    both = with_linear(label_names)
    return Classifier(
        None,
        both.tokenizer,
        both.label_names,
        max_seq_len=8,
        linear=both.linear,
        mixture=Mixture(weights={"linear": 3.0}),
    )


def labels_of(classifier: Classifier, texts: Sequence[str]) -> list[str | None]:
    """The labels that a classifier predicts."""
    return [prediction.label for prediction in classifier.predict(texts)]


def tensors_of(folder: Path) -> dict[str, torch.Tensor]:
    """The tensors of the weights file in a model folder."""
    return safetensors.torch.load_file(folder / WEIGHTS_FILE)


def reseal(folder: Path, tensors: dict[str, torch.Tensor] | None = None, **head: Any) -> None:
    """Write other tensors or other values of the head, with a hash that fits, as a forger would."""
    path = folder / WEIGHTS_FILE
    if tensors is None:
        tensors = tensors_of(folder)
    with safetensors.safe_open(path, "pt") as file:
        former = json.loads(file.metadata()[FORMAT])

    values = former | head | {"sha256": NO_HASH.decode()}
    content = safetensors.torch.save(tensors, {FORMAT: json.dumps(values, ensure_ascii=False)})
    path.write_bytes(content.replace(NO_HASH, sha256(content).encode(), 1))


def rewrite_config(folder: Path, **values: Any) -> None:
    """Write other values of the config, with a hash that fits."""
    config = json.loads((folder / "config.json").read_bytes())
    reseal(folder, config=config | values)
