"""The model that an export carries: the content of its weights file, after all checks."""

from __future__ import annotations

from pathlib import Path

from tokenizers import models

from encoder_cls.classifier.classifier import Classifier
from encoder_cls.classifier.model_folder import WEIGHTS_FILE, load_classifier, model_folder
from encoder_cls.errors import ConfigError
from encoder_cls.system.files import read_file

# The largest weights file in bytes that can be exported. Browsers refuse strings of 512 MB, and in
# base64 the file takes 4/3 of its size.
MAX_MODEL_BYTES = 300_000_000


def exportable_model(path: Path) -> tuple[Classifier, bytes]:
    """Load a classifier, and read its weights file, which holds all that predicting needs.

    Args:
        path: the path of a run or of a model folder, or the address of a model of the Hub.

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

    file = folder / WEIGHTS_FILE
    size = file.stat().st_size
    if size > MAX_MODEL_BYTES:
        raise ConfigError(
            f"{file}: has {size / 1e6:,.0f} MB, and browsers can open an export of at most "
            f"{MAX_MODEL_BYTES / 1e6:,.0f} MB; train with a smaller tokenizer.max_vocab_size or "
            "model.char_ngram_buckets"
        )
    return classifier, read_file(file)
