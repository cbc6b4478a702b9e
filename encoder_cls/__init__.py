"""Train a Transformer-encoder text classifier from scratch on your own labelled text.

>>> from encoder_cls import load_classifier
>>> classifier = load_classifier("runs/example")
>>> classifier.predict(["where is my parcel?"])[0].label
'track_order'
"""

from __future__ import annotations

# As `typing` has it. Nothing is imported here, since Ctrl-C during an import ends in a traceback
# until `__main__` handles it.
TYPE_CHECKING = False

if TYPE_CHECKING:
    from encoder_cls.bulk.predictor import Predictor
    from encoder_cls.classifier.classifier import Classifier
    from encoder_cls.classifier.model_folder import load_classifier
    from encoder_cls.classifier.prediction import Prediction
    from encoder_cls.config.loading import config_of, load_config
    from encoder_cls.config.reading_options import ReadingOptions
    from encoder_cls.config.schema import Config, ModelConfig, TokenizerConfig
    from encoder_cls.encoder.torch_encoder import make_batch
    from encoder_cls.encoder.transformer import (
        ClassifierHead,
        Encoder,
        EncoderClassifier,
        MultiHeadAttention,
    )
    from encoder_cls.evaluation.report import Report
    from encoder_cls.run.evaluate import evaluate
    from encoder_cls.run.output_checks import check_outputs
    from encoder_cls.run.run_folder import read_metrics
    from encoder_cls.text.tokenizer import tokenize
    from encoder_cls.text.tokenizer_training import train_tokenizer
    from encoder_cls.training.from_python import train

__version__ = "0.1.0"
__all__ = [
    "Classifier",
    "ClassifierHead",
    "Config",
    "Encoder",
    "EncoderClassifier",
    "ModelConfig",
    "MultiHeadAttention",
    "Prediction",
    "Predictor",
    "ReadingOptions",
    "Report",
    "TokenizerConfig",
    "__version__",
    "check_outputs",
    "config_of",
    "evaluate",
    "load_classifier",
    "load_config",
    "make_batch",
    "read_metrics",
    "tokenize",
    "train",
    "train_tokenizer",
]


# The module of each public name. A module is imported when its name is first used, so that
# `import encoder_cls` is fast.
_MODULES = {
    "Classifier": "classifier.classifier",
    "ClassifierHead": "encoder.transformer",
    "Config": "config.schema",
    "Encoder": "encoder.transformer",
    "EncoderClassifier": "encoder.transformer",
    "ModelConfig": "config.schema",
    "MultiHeadAttention": "encoder.transformer",
    "Prediction": "classifier.prediction",
    "Predictor": "bulk.predictor",
    "ReadingOptions": "config.reading_options",
    "Report": "evaluation.report",
    "TokenizerConfig": "config.schema",
    "config_of": "config.loading",
    "evaluate": "run.evaluate",
    "check_outputs": "run.output_checks",
    "load_classifier": "classifier.model_folder",
    "load_config": "config.loading",
    "make_batch": "encoder.torch_encoder",
    "read_metrics": "run.run_folder",
    "tokenize": "text.tokenizer",
    "train": "training.from_python",
    "train_tokenizer": "text.tokenizer_training",
}


def __getattr__(name: str) -> object:
    if name not in _MODULES:
        raise AttributeError(f"module 'encoder_cls' has no attribute {name!r}")

    from importlib import import_module

    return getattr(import_module(f"encoder_cls.{_MODULES[name]}"), name)
