"""The model that an export carries: the content of its weights file, after all checks."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from tokenizers import models

from encoder_cls.classifier.classifier import Classifier
from encoder_cls.classifier.mixture import Mixture
from encoder_cls.classifier.model_folder import (
    WEIGHTS_FILE,
    content_of_linear_part,
    load_classifier,
    model_folder,
    parts_of_model,
)
from encoder_cls.errors import ConfigError
from encoder_cls.system.files import read_file

# The largest weights file in bytes that can be exported. Browsers refuse strings of 512 MB, and in
# base64 the file takes 4/3 of its size.
MAX_MODEL_BYTES = 300_000_000


def exportable_model(path: Path, *, linear_only: bool = False) -> tuple[Classifier, bytes]:
    """Load a classifier, and read its weights file, which holds all that predicting needs.

    Args:
        path: the path of a run or of a model folder, or the address of a model of the Hub.
        linear_only: whether the encoder, if there is one, is left out.

    Raises:
        ConfigError: there is no classifier at this path, or the engine in JavaScript cannot carry
            it.
        EncoderClsError: the folder is damaged, or comes from another program.
    """
    # Find the folder once: to find a model of the Hub takes a request.
    folder = model_folder(path)
    classifier = load_classifier(folder, engine="numpy")
    if not isinstance(classifier.tokenizer.model, models.WordLevel):
        raise ConfigError(
            f"{path}: its tokenizer splits words into sub-words "
            f"({type(classifier.tokenizer.model).__name__}), which the engine in JavaScript cannot "
            "do; train with tokenizer.type=word_level to export the model"
        )

    if linear_only and classifier.linear is None:
        raise ConfigError(
            f"{path}: is an encoder alone, without a linear part; leave out --linear-only"
        )

    file = folder / WEIGHTS_FILE
    if linear_only and classifier.encoder:
        classifier = _linear_part(classifier)
        content = content_of_linear_part(classifier, folder)
        _check_size(file, len(content))
        return classifier, content

    _check_size(file, file.stat().st_size)
    return classifier, read_file(file)


def is_part(classifier: Classifier) -> bool:
    """Whether a classifier to export is only a part of that in its folder."""
    return set(classifier.parts) != set(parts_of_model(Path(classifier.folder)))


def _linear_part(classifier: Classifier) -> Classifier:
    """The linear part alone of a classifier of two parts.

    Gate, guarantees and familiarity were measured on both parts, so they do not hold for one. The
    thresholds of several labels stay: by them, the report of a run scores its linear part.
    """
    weight = classifier.mixture.weight_alone("linear")
    return replace(
        classifier,
        encoder=None,
        encoder_architecture=None,
        mixture=Mixture(weights={"linear": weight}, shares={"linear": 1.0}),
        gate=None,
        guarantees=None,
        familiarity=None,
        dtypes={"linear": classifier.dtypes["linear"]},
    )


def _check_size(file: Path, size: int) -> None:
    """Raise a `ConfigError` if browsers cannot open an export of so many bytes."""
    if size > MAX_MODEL_BYTES:
        raise ConfigError(
            f"{file}: has {size / 1e6:,.0f} MB, and browsers can open an export of at most "
            f"{MAX_MODEL_BYTES / 1e6:,.0f} MB; train with a smaller tokenizer.max_vocab_size or "
            "model.char_ngram_buckets"
        )
