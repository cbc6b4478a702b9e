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
    from encoder_cls.config.loading import config_of, load_config, parse_setting
    from encoder_cls.config.reading_options import ReadingOptions
    from encoder_cls.config.schema import Config, ModelConfig, TokenizerConfig
    from encoder_cls.data.data_warnings import data_warnings
    from encoder_cls.data.dataset import Dataset
    from encoder_cls.data.label_name_warnings import several_labels
    from encoder_cls.data.load_dataset import load_data
    from encoder_cls.data.reading.columns import Columns
    from encoder_cls.data.reading.options import Reading
    from encoder_cls.data.similar_labels import similar_labels
    from encoder_cls.data.source_form import SourceForm, source_form
    from encoder_cls.data.sources import read_rows
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
    from encoder_cls.training.expected_time import expected_time
    from encoder_cls.training.from_python import train

__version__ = "0.1.0"
__all__ = [
    "Classifier",
    "ClassifierHead",
    "Columns",
    "Config",
    "Dataset",
    "Encoder",
    "EncoderClassifier",
    "ModelConfig",
    "MultiHeadAttention",
    "Prediction",
    "Predictor",
    "Reading",
    "ReadingOptions",
    "Report",
    "SourceForm",
    "TokenizerConfig",
    "__version__",
    "check_outputs",
    "config_of",
    "data_warnings",
    "evaluate",
    "expected_time",
    "load_classifier",
    "load_config",
    "load_data",
    "make_batch",
    "parse_setting",
    "read_metrics",
    "read_rows",
    "several_labels",
    "similar_labels",
    "source_form",
    "tokenize",
    "train",
    "train_tokenizer",
]


# The module of each public name. A module is imported when its name is first used, so that
# `import encoder_cls` is fast.
_MODULES = {
    "Classifier": "classifier.classifier",
    "ClassifierHead": "encoder.transformer",
    "Columns": "data.reading.columns",
    "Config": "config.schema",
    "Dataset": "data.dataset",
    "Encoder": "encoder.transformer",
    "EncoderClassifier": "encoder.transformer",
    "ModelConfig": "config.schema",
    "MultiHeadAttention": "encoder.transformer",
    "Prediction": "classifier.prediction",
    "Predictor": "bulk.predictor",
    "Reading": "data.reading.options",
    "ReadingOptions": "config.reading_options",
    "Report": "evaluation.report",
    "SourceForm": "data.source_form",
    "TokenizerConfig": "config.schema",
    "check_outputs": "run.output_checks",
    "config_of": "config.loading",
    "data_warnings": "data.data_warnings",
    "evaluate": "run.evaluate",
    "expected_time": "training.expected_time",
    "load_classifier": "classifier.model_folder",
    "load_config": "config.loading",
    "load_data": "data.load_dataset",
    "make_batch": "encoder.torch_encoder",
    "parse_setting": "config.loading",
    "read_metrics": "run.run_folder",
    "read_rows": "data.sources",
    "several_labels": "data.label_name_warnings",
    "similar_labels": "data.similar_labels",
    "source_form": "data.source_form",
    "tokenize": "text.tokenizer",
    "train": "training.from_python",
    "train_tokenizer": "text.tokenizer_training",
}


def __getattr__(name: str) -> object:
    if name not in _MODULES:
        raise AttributeError(f"module 'encoder_cls' has no attribute {name!r}")

    from importlib import import_module

    return getattr(import_module(f"encoder_cls.{_MODULES[name]}"), name)
