"""The model that an export carries: the content of its weights file, after all checks."""

from __future__ import annotations

from pathlib import Path
from tempfile import TemporaryDirectory
from typing import NamedTuple

from tokenizers import models

from encoder_cls import Classifier, load_classifier, model_folder, save_linear_part
from encoder_cls.errors import ConfigError
from encoder_cls.system.files import read_file

# The file of a model folder that holds all that predicting needs.
WEIGHTS_FILE = "model.safetensors"

# The largest weights file in bytes that can be exported. Browsers refuse strings of 512 MB, and in
# base64 the file takes 4/3 of its size.
MAX_MODEL_BYTES = 300_000_000


class ExportedModel(NamedTuple):
    """A model to export.

    Attributes:
        classifier: of the folder, whole.
        content: of the weights file to export.
        is_linear_part: whether that is the linear part alone.
    """

    folder: Path
    classifier: Classifier
    content: bytes
    is_linear_part: bool


def exported_model(path: Path, *, linear_only: bool = False) -> ExportedModel:
    """Load a model to export.

    Raises:
        ConfigError: there is no model, or the engine in JavaScript cannot carry it.
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

    is_linear_part = linear_only and classifier.encoder is not None
    if is_linear_part:
        with TemporaryDirectory() as part:
            save_linear_part(folder, part)
            content = _content(Path(part))
    else:
        content = _content(folder)
    return ExportedModel(folder, classifier, content, is_linear_part)


def _content(folder: Path) -> bytes:
    """Read the weights, if browsers can open an export of this size."""
    file = folder / WEIGHTS_FILE
    size = file.stat().st_size
    if size > MAX_MODEL_BYTES:
        raise ConfigError(
            f"{file}: has {size / 1e6:,.0f} MB, and browsers can open an export of at most "
            f"{MAX_MODEL_BYTES / 1e6:,.0f} MB; train with a smaller tokenizer.max_vocab_size or "
            "model.char_ngram_buckets"
        )
    return read_file(file)
