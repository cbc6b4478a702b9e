"""Fit and calibrate the linear classifier of a run."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple

import numpy as np

from encoder_cls.data.labels import names_as_texts
from encoder_cls.inference.classifier import Classifier
from encoder_cls.inference.folder import save_classifier
from encoder_cls.inference.linear import LinearClassifier
from encoder_cls.inference.task import softmax
from encoder_cls.system.disk_arrays import ConcatenatedTexts
from encoder_cls.system.stop import run_interruptibly, while_waited_for
from encoder_cls.text.tokenizer import tokenize
from encoder_cls.text.tokens import TokenizedTexts
from encoder_cls.tracking.run_dir import RunDir
from encoder_cls.tracking.validation_logits import write_validation_logits
from encoder_cls.training.encoder.validation import ValidationResult, judge
from encoder_cls.training.linear.folds import NO_TEXTS
from encoder_cls.training.linear.names import fit_linear_from_names
from encoder_cls.training.linear.stream import fit_linear_from_stream
from encoder_cls.training.linear.svm import (
    HeldOutTexts,
    fit_first_linear,
    fit_linear_with_choice,
    folds_of,
    refit_linear,
)
from encoder_cls.training.linear.techniques import FittedLinear, LinearAnswers, fit_linear_from_few_labels
from encoder_cls.training.prepared import Prepared


def fit_linear_classifier(
    prepared: Prepared, *, on_better: Callable[[FittedLinear], None] | None = None
) -> FittedLinear:
    """Fit the linear classifier to the texts with labels; with few of them, to whatever they show to help.

    Args:
        prepared: of the run.
        on_better: given what there is on the way, where validation texts calibrate it: that of `fit_first_linear`, then
            that of the first penalty; none: it is not wanted.
    """
    config, train, validation = prepared.config, prepared.dataset.train, prepared.dataset.selection
    labels, weights, read = train.labels, prepared.class_weights.numpy(), prepared.plan.linear
    assert read

    def fitted(classifier: LinearClassifier) -> FittedLinear:
        return FittedLinear(classifier, classifier.logits(prepared.validation_texts), None)

    if prepared.plan.linear_fit == "names":
        classifier = fit_linear_from_names(
            prepared.texts, len(labels), class_weights=weights, dimensions=config.train.lsa_dimensions, read=read
        )
        return fitted(classifier)
    held_out_texts = HeldOutTexts(prepared.validation_texts, validation.labels)
    if on_better and read.use_char_ngrams and len(validation):
        first = fit_first_linear(
            prepared.train_texts, labels, class_weights=weights, max_tokens=read.max_tokens, held_out=held_out_texts
        )
        on_better(fitted(first))
    if not prepared.plan.has_few_labels:
        if prepared.plan.linear_fit == "stream":
            classifier = fit_linear_from_stream(
                prepared.train_texts,
                labels,
                class_weights=weights,
                max_tokens=read.max_tokens,
                together=train.together,
            )
            return fitted(classifier)
        classifier, found = fit_linear_with_choice(
            prepared.train_texts,
            labels,
            class_weights=weights,
            max_tokens=read.max_tokens,
            use_char_ngrams=read.use_char_ngrams,
            held_out=held_out_texts,
            parts=folds_of(labels, train.together),
            on_first=lambda first: on_better(fitted(first)) if on_better else None,
        )
        if not prepared.plan.refits_on_validation:
            return fitted(classifier)
        refitted = refit_linear(
            _tokenized(prepared, train.texts, validation.texts),
            np.concatenate([labels, validation.labels]),
            found,
            class_weights=weights,
            max_tokens=read.max_tokens,
            use_char_ngrams=read.use_char_ngrams,
        )
        return FittedLinear(refitted, classifier.logits(prepared.validation_texts), None)
    texts, together, held_out = prepared.texts, train.together, NO_TEXTS
    if prepared.plan.refits_on_validation:
        texts = _tokenized(prepared, train.texts, validation.texts, prepared.dataset.unlabelled.texts)
        held_out = len(labels) + np.arange(len(prepared.validation_texts))
        labels = np.concatenate([labels, validation.labels])
        together = np.concatenate([together, validation.together])
    names = names_as_texts(prepared.dataset.label_names)
    result = fit_linear_from_few_labels(
        texts,
        labels,
        tokenize(prepared.tokenizer, names, max_seq_len=config.model.max_seq_len),
        held_out=held_out,
        config=config.train,
        class_weights=weights,
        together=together,
        read=read,
    )
    is_held_out = len(held_out) > 0
    logits = result.logits_held_out if is_held_out else result.classifier.logits(prepared.validation_texts)
    return FittedLinear(result.classifier, logits, result)


def _tokenized(prepared: Prepared, *texts: Sequence[str]) -> TokenizedTexts:
    """Texts one after the other, with one list of words."""
    return tokenize(prepared.tokenizer, ConcatenatedTexts(*texts), max_seq_len=prepared.config.model.max_seq_len)


class CalibratedLinear(NamedTuple):
    """A linear classifier that can be used.

    Attributes:
        classifier: without an encoder.
        fitted: what it was made of.
        result: of the validation texts; none where nobody has labelled one, so that it is not calibrated.
    """

    classifier: Classifier
    fitted: FittedLinear
    result: ValidationResult | None


def fit_calibrated_linear(prepared: Prepared, run: RunDir, *, saves_first: bool, saves: bool) -> CalibratedLinear:
    """Fit the linear classifier of a run and calibrate it; the same on the same data.

    Args:
        prepared: of the run.
        run: its folder, for the logits of validation texts that the classifier has learned from.
        saves_first: saves classifiers on the way as the model.
        saves: saves the result as the model.

    Raises:
        StoppedError: a signal asked to stop.
    """

    def on_better(fitted: FittedLinear) -> None:
        classifier = _calibrated(prepared, fitted).classifier
        with while_waited_for():  # later the run may be another process's
            save_classifier(classifier, run.model)

    fitted = run_interruptibly(lambda: fit_linear_classifier(prepared, on_better=on_better if saves_first else None))
    if prepared.plan.refits_on_validation:
        write_validation_logits(run.validation_logits, fitted.validation_logits, prepared.validation_texts)
    calibrated = _calibrated(prepared, fitted)
    if saves:
        save_classifier(calibrated.classifier, run.model)
    return calibrated


def answers_of(prepared: Prepared, fitted: FittedLinear) -> LinearAnswers:
    """The answers that the encoder gets: validation logits, and pseudo-labels where the linear classifier teaches.

    Soft labels: Hinton et al., "Distilling the Knowledge in a Neural Network", 2015,
    https://arxiv.org/abs/1503.02531.
    """
    if not prepared.plan.has_pseudo_labels or not fitted.few_labels:
        return LinearAnswers(fitted.validation_logits)
    unlabelled = prepared.texts.take(prepared.model_rows[len(prepared.dataset.train) :])
    pseudo_labels = softmax(fitted.few_labels.teacher.logits(unlabelled)).astype(np.float32)
    return LinearAnswers(fitted.validation_logits, pseudo_labels)


def _calibrated(prepared: Prepared, fitted: FittedLinear) -> CalibratedLinear:
    classifier = prepared.new_classifier(None)
    classifier.linear, classifier.mixture_weights = fitted.classifier, (1.0,)
    classifier.mixture_shares = {"linear": 1.0}
    if not len(prepared.validation_texts):
        return CalibratedLinear(classifier, fitted, None)
    result = judge(None, fitted.validation_logits, prepared.dataset, monitor=prepared.config.train.monitor)
    classifier.mixture_weights = result.mixture_weights or (1.0,)
    classifier.thresholds = result.thresholds
    return CalibratedLinear(classifier, fitted, result)
