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
    from encoder_cls.bulk.predicted_rows import predicted_rows
    from encoder_cls.bulk.predictor import Predictor
    from encoder_cls.classifier.classifier import Classifier
    from encoder_cls.classifier.model_folder import (
        load_classifier,
        model_folder,
        save_linear_part,
    )
    from encoder_cls.classifier.prediction import Prediction
    from encoder_cls.config.loading import config_of, load_config, parse_setting
    from encoder_cls.config.reading_options import ReadingOptions
    from encoder_cls.config.schema import Config, ModelConfig, TokenizerConfig
    from encoder_cls.data.data_warnings import data_warnings
    from encoder_cls.data.dataset import Dataset
    from encoder_cls.data.key_of_text import key_of_text
    from encoder_cls.data.label_name_warnings import several_labels
    from encoder_cls.data.load_dataset import load_data
    from encoder_cls.data.random_sample import drawn_rank
    from encoder_cls.data.reading.columns import Columns
    from encoder_cls.data.reading.csv_form import csv_form
    from encoder_cls.data.reading.reading import Reading
    from encoder_cls.data.reading.rows import Row
    from encoder_cls.data.similar_labels import similar_labels
    from encoder_cls.data.source_form import SourceForm, source_form
    from encoder_cls.data.sources import column_names, read_rows
    from encoder_cls.data.text_groups import texts_alike
    from encoder_cls.encoder.torch_encoder import make_batch
    from encoder_cls.encoder.transformer import (
        ClassifierHead,
        Encoder,
        EncoderClassifier,
        MultiHeadAttention,
    )
    from encoder_cls.evaluation.label_tables import LabelRow
    from encoder_cls.evaluation.report import Report
    from encoder_cls.linear_training.pool_fit import AccuracyEstimate, PoolFit, estimate_accuracy
    from encoder_cls.linear_training.text_pool import TextPool
    from encoder_cls.run.evaluate import evaluate
    from encoder_cls.run.labelled_texts import labelled_texts
    from encoder_cls.run.output_checks import check_outputs
    from encoder_cls.run.reference import Reference, read_reference
    from encoder_cls.run.review import Review, review
    from encoder_cls.run.run_folder import read_metrics
    from encoder_cls.text.tokenizer import tokenize
    from encoder_cls.text.tokenizer_training import train_tokenizer
    from encoder_cls.text.word_pattern import CHARACTER_CLASSES, continues_character
    from encoder_cls.training.expected_time import expected_time
    from encoder_cls.training.from_python import train

__version__ = "1.0.0"
__all__ = [
    "CHARACTER_CLASSES",
    "AccuracyEstimate",
    "Classifier",
    "ClassifierHead",
    "Columns",
    "Config",
    "Dataset",
    "Encoder",
    "EncoderClassifier",
    "LabelRow",
    "ModelConfig",
    "MultiHeadAttention",
    "PoolFit",
    "Prediction",
    "Predictor",
    "Reading",
    "ReadingOptions",
    "Reference",
    "Report",
    "Review",
    "Row",
    "SourceForm",
    "TextPool",
    "TokenizerConfig",
    "__version__",
    "check_outputs",
    "column_names",
    "config_of",
    "continues_character",
    "csv_form",
    "data_warnings",
    "drawn_rank",
    "estimate_accuracy",
    "evaluate",
    "expected_time",
    "key_of_text",
    "labelled_texts",
    "load_classifier",
    "load_config",
    "load_data",
    "make_batch",
    "model_folder",
    "parse_setting",
    "predicted_rows",
    "read_metrics",
    "read_reference",
    "read_rows",
    "review",
    "save_linear_part",
    "several_labels",
    "similar_labels",
    "source_form",
    "texts_alike",
    "tokenize",
    "train",
    "train_tokenizer",
]


# The module of each public name. A module is imported when its name is first used, so that
# `import encoder_cls` is fast.
_MODULES = {
    "AccuracyEstimate": "linear_training.pool_fit",
    "CHARACTER_CLASSES": "text.word_pattern",
    "Classifier": "classifier.classifier",
    "ClassifierHead": "encoder.transformer",
    "Columns": "data.reading.columns",
    "Config": "config.schema",
    "Dataset": "data.dataset",
    "Encoder": "encoder.transformer",
    "EncoderClassifier": "encoder.transformer",
    "LabelRow": "evaluation.label_tables",
    "ModelConfig": "config.schema",
    "MultiHeadAttention": "encoder.transformer",
    "PoolFit": "linear_training.pool_fit",
    "Prediction": "classifier.prediction",
    "Predictor": "bulk.predictor",
    "Reading": "data.reading.reading",
    "ReadingOptions": "config.reading_options",
    "Reference": "run.reference",
    "Report": "evaluation.report",
    "Review": "run.review",
    "Row": "data.reading.rows",
    "SourceForm": "data.source_form",
    "TextPool": "linear_training.text_pool",
    "TokenizerConfig": "config.schema",
    "check_outputs": "run.output_checks",
    "column_names": "data.sources",
    "config_of": "config.loading",
    "continues_character": "text.word_pattern",
    "csv_form": "data.reading.csv_form",
    "data_warnings": "data.data_warnings",
    "drawn_rank": "data.random_sample",
    "estimate_accuracy": "linear_training.pool_fit",
    "evaluate": "run.evaluate",
    "expected_time": "training.expected_time",
    "key_of_text": "data.key_of_text",
    "labelled_texts": "run.labelled_texts",
    "load_classifier": "classifier.model_folder",
    "load_config": "config.loading",
    "load_data": "data.load_dataset",
    "make_batch": "encoder.torch_encoder",
    "model_folder": "classifier.model_folder",
    "parse_setting": "config.loading",
    "predicted_rows": "bulk.predicted_rows",
    "read_metrics": "run.run_folder",
    "read_reference": "run.reference",
    "read_rows": "data.sources",
    "review": "run.review",
    "save_linear_part": "classifier.model_folder",
    "several_labels": "data.label_name_warnings",
    "similar_labels": "data.similar_labels",
    "source_form": "data.source_form",
    "texts_alike": "data.text_groups",
    "tokenize": "text.tokenizer",
    "train": "training.from_python",
    "train_tokenizer": "text.tokenizer_training",
}


def __getattr__(name: str) -> object:
    if name not in _MODULES:
        raise AttributeError(f"module 'encoder_cls' has no attribute {name!r}")

    from importlib import import_module

    return getattr(import_module(f"encoder_cls.{_MODULES[name]}"), name)
