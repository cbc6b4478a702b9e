"""The classifier of a run, made of the parts that are trained so far."""

from __future__ import annotations

from encoder_cls.classifier.classifier import Classifier, TextFormat
from encoder_cls.classifier.validation_result import ValidationResult
from encoder_cls.data.codes import codes_of
from encoder_cls.encoder.architecture import EncoderArchitecture
from encoder_cls.encoder.predicting_encoder import PredictingEncoder
from encoder_cls.linear.linear_model import LinearModel
from encoder_cls.metrics.tasks import task_of
from encoder_cls.training.prepared import Prepared


def make_classifier(
    prepared: Prepared,
    *,
    encoder: PredictingEncoder | None = None,
    linear: LinearModel | None,
    result: ValidationResult,
) -> Classifier:
    """Make a classifier of one part or both, with the mixture and thresholds of a validation."""
    data = prepared.config.data
    architecture = None
    if prepared.plan.has_encoder:
        architecture = EncoderArchitecture.of(prepared.config.model)

    return Classifier(
        encoder,
        prepared.tokenizer,
        prepared.dataset.label_names,
        max_seq_len=prepared.config.model.max_seq_len,
        linear=linear,
        task=task_of(prepared.dataset.train.labels),
        mixture=result.mixture,
        thresholds=result.thresholds,
        text_format=TextFormat(
            columns=data.text_column,
            reading=data.reading_options.for_other_files(),
            label_column=data.label_column,
            label_separator=data.label_separator,
        ),
        codes=codes_of(data, prepared.dataset.label_names),
        none_label=data.none_label,
        encoder_architecture=architecture,
        model_class=prepared.model_class,
    )
