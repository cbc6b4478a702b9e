"""Fit and calibrate the linear classifier of a run."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple

import numpy as np

from encoder_cls.data.labels import names_as_texts
from encoder_cls.inference.classifier import Classifier
from encoder_cls.inference.folder import save_classifier
from encoder_cls.inference.linear import LinearClassifier
from encoder_cls.system.disk_arrays import ConcatenatedTexts
from encoder_cls.text.tokenizer import tokenize
from encoder_cls.text.tokens import TokenizedTexts
from encoder_cls.tracking.run_dir import RunDir, write_validation_logits
from encoder_cls.training.encoder.validation import ValidationResult, judge
from encoder_cls.training.interruptible import run_interruptibly, while_waited_for
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
from encoder_cls.training.linear.techniques import FittedLinear, fit_linear_from_few_labels
from encoder_cls.training.recipe import LinearInput
from encoder_cls.training.setup import TrainingSetup


def fit_linear_classifier(
    setup: TrainingSetup, read: LinearInput, *, on_better: Callable[[FittedLinear], None] | None = None
) -> FittedLinear:
    """Fit the linear classifier to the texts with labels; with few of them, to whatever they show to help.

    Args:
        setup: of the run.
        read: what of the texts is looked at.
        on_better: given what there is on the way, where validation texts calibrate it: that of `fit_first_linear`, then
            that of the first penalty; none: it is not wanted.
    """
    config, train, validation = setup.config, setup.dataset.train, setup.dataset.selection
    labels, weights = train.labels, setup.class_weights.numpy()

    def fitted(classifier: LinearClassifier) -> FittedLinear:
        return FittedLinear(classifier, classifier.logits(setup.validation_texts), None)

    if setup.dataset.has_names_alone:
        classifier = fit_linear_from_names(
            setup.texts, len(labels), class_weights=weights, dimensions=config.train.lsa_dimensions, read=read
        )
        return fitted(classifier)
    held_out_texts = HeldOutTexts(setup.validation_texts, validation.labels)
    if on_better and read.use_char_ngrams and len(validation):
        first = fit_first_linear(
            setup.train_texts, labels, class_weights=weights, max_tokens=read.max_tokens, held_out=held_out_texts
        )
        on_better(fitted(first))
    if not setup.has_few_labels:
        if read.is_streamed:
            classifier = fit_linear_from_stream(
                setup.train_texts,
                labels,
                class_weights=weights,
                max_tokens=read.max_tokens,
                together=train.together,
            )
            return fitted(classifier)
        classifier, found = fit_linear_with_choice(
            setup.train_texts,
            labels,
            class_weights=weights,
            max_tokens=read.max_tokens,
            use_char_ngrams=read.use_char_ngrams,
            held_out=held_out_texts,
            parts=folds_of(labels, train.together),
            on_first=lambda first: on_better(fitted(first)) if on_better else None,
        )
        if not setup.refits_on_validation:
            return fitted(classifier)
        refitted = refit_linear(
            _tokenized(setup, train.texts, validation.texts),
            np.concatenate([labels, validation.labels]),
            found,
            class_weights=weights,
            max_tokens=read.max_tokens,
            use_char_ngrams=read.use_char_ngrams,
        )
        return FittedLinear(refitted, classifier.logits(setup.validation_texts), None)
    texts, together, held_out = setup.texts, train.together, NO_TEXTS
    if setup.refits_on_validation:
        texts = _tokenized(setup, train.texts, validation.texts, setup.dataset.unlabelled.texts)
        held_out = len(labels) + np.arange(len(setup.validation_texts))
        labels = np.concatenate([labels, validation.labels])
        together = np.concatenate([together, validation.together])
    names = names_as_texts(setup.dataset.label_names)
    result = fit_linear_from_few_labels(
        texts,
        labels,
        tokenize(setup.tokenizer, names, max_seq_len=config.model.max_seq_len),
        held_out=held_out,
        config=config.train,
        class_weights=weights,
        together=together,
        read=read,
    )
    is_held_out = len(held_out) > 0
    logits = result.logits_held_out if is_held_out else result.classifier.logits(setup.validation_texts)
    return FittedLinear(result.classifier, logits, result)


def _tokenized(setup: TrainingSetup, *texts: Sequence[str]) -> TokenizedTexts:
    """Texts one after the other, with one list of words."""
    return tokenize(setup.tokenizer, ConcatenatedTexts(*texts), max_seq_len=setup.config.model.max_seq_len)


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


def fit_calibrated_linear(
    setup: TrainingSetup, run: RunDir, read: LinearInput, *, save_first: bool, stop_if_asked: Callable[[], None]
) -> CalibratedLinear:
    """Fit the linear classifier of a run and calibrate it; the same on the same data.

    Args:
        setup: of the run.
        run: its folder, where the logits of validation texts are kept that it has learned from.
        read: what of the texts it looks at.
        save_first: whether what there is on the way is saved as the model.
        stop_if_asked: called now and then; what it raises ends the work.
    """

    def on_better(fitted: FittedLinear) -> None:
        classifier = _calibrated(setup, fitted).classifier
        with while_waited_for():  # later the run may be another process's
            save_classifier(classifier, run.model)

    fitted = run_interruptibly(
        lambda: fit_linear_classifier(setup, read, on_better=on_better if save_first else None), stop_if_asked
    )
    if setup.refits_on_validation:
        write_validation_logits(run.validation_logits, fitted.validation_logits, setup.validation_texts)
    return _calibrated(setup, fitted)


def _calibrated(setup: TrainingSetup, fitted: FittedLinear) -> CalibratedLinear:
    classifier = setup.new_classifier(None)
    classifier.linear, classifier.mixture_weights = fitted.classifier, (1.0,)
    classifier.mixture_shares = {"linear": 1.0}
    if not len(setup.validation_texts):
        return CalibratedLinear(classifier, fitted, None)
    result = judge(None, fitted.validation_logits, setup.dataset, monitor=setup.config.train.monitor)
    classifier.mixture_weights = result.mixture_weights or (1.0,)
    classifier.thresholds = result.thresholds
    return CalibratedLinear(classifier, fitted, result)
