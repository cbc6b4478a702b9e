"""Fit and calibrate the linear classifier of a run by its plan."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from itertools import chain
from typing import NamedTuple

import numpy as np

from encoder_cls.data.labels import names_as_texts
from encoder_cls.inference.classifier import Classifier, Numbers
from encoder_cls.inference.linear import EVIDENCE_NUMBERS, LinearClassifier
from encoder_cls.inference.task import Logits
from encoder_cls.text.tokens import TokenizedTexts
from encoder_cls.training.encoder.validation import ValidationResult, judge
from encoder_cls.training.linear.calibration import NO_TEXTS
from encoder_cls.training.linear.features import Reading
from encoder_cls.training.linear.few_labels import FewLabels, fit_linear_from_few_labels, fit_linear_from_names
from encoder_cls.training.linear.stream import fit_linear_from_stream
from encoder_cls.training.linear.svm import fit_linear
from encoder_cls.training.prepared import Prepared


class Fitted(NamedTuple):
    """The linear classifier of a run."""

    classifier: Classifier  # calibrated, without an encoder
    validation_logits: Logits  # of a linear classifier that has not learned from these texts
    validation: ValidationResult | None  # none without validation labels; then it is not calibrated
    learned: tuple[TokenizedTexts, Logits, Numbers] | None = None  # texts that validate, too; logits, evidence before
    few_labels: FewLabels | None = None  # where labels are few


def reading_of(prepared: Prepared) -> Reading:
    """What the linear classifier reads of texts, by the plan."""
    assert prepared.plan.linear
    return Reading(*prepared.plan.linear, prepared.class_weights.numpy())


def fit_linear_classifier(prepared: Prepared, *, on_better: Callable[[Fitted], None] | None = None) -> Fitted:
    """Fit the linear classifier to the texts with labels; with few of them, and to others by self-training.

    Where validation texts calibrate them, `on_better` receives preliminary ones: a quick one, then one of one penalty.
    Equal data give an equal classifier.
    """
    plan, reading, texts = prepared.plan, reading_of(prepared), prepared.train_texts
    train, validation = prepared.dataset.train, prepared.dataset.selection
    if plan.linear_fit == "names":
        dimensions = prepared.config.train.lsa_dimensions
        return _calibrated(prepared, fit_linear_from_names(prepared.texts, reading, dimensions=dimensions))
    held_out = (prepared.validation_texts, validation.labels)
    if on_better and reading.char_ngrams and len(validation):
        words_only = reading._replace(char_ngrams=False)
        first, _ = fit_linear(texts, train.labels, words_only, held_out=held_out, is_quick=True)
        on_better(_calibrated(prepared, first))
    if plan.linear_fit == "few_labels":
        return _fit_few_labels(prepared, reading)
    if plan.linear_fit == "stream":
        return _calibrated(prepared, fit_linear_from_stream(texts, train.labels, reading, together=train.together))
    linear, choice = fit_linear(
        texts,
        train.labels,
        reading,
        held_out=held_out,
        together=train.together,
        on_first=lambda first: on_better(_calibrated(prepared, first)) if on_better else None,
    )
    if not plan.refits_on_validation:
        return _calibrated(prepared, linear)
    before, numbers = linear.read(prepared.validation_texts)
    assert numbers is not None
    all_texts = _tokenized(prepared, train.texts, validation.texts)
    refitted, _ = fit_linear(all_texts, np.concatenate([train.labels, validation.labels]), reading, choice=choice)
    learned = (prepared.validation_texts, before, numbers[:, :EVIDENCE_NUMBERS])
    return _calibrated(prepared, refitted, before)._replace(learned=learned)


def _fit_few_labels(prepared: Prepared, reading: Reading) -> Fitted:
    train, validation = prepared.dataset.train, prepared.dataset.selection
    texts, labels, together, held_out = prepared.texts, train.labels, train.together, NO_TEXTS
    if prepared.plan.refits_on_validation:
        texts = _tokenized(prepared, train.texts, validation.texts, prepared.dataset.unlabelled.texts)
        held_out = len(labels) + np.arange(len(prepared.validation_texts))
        labels = np.concatenate([labels, validation.labels])
        together = np.concatenate([together, validation.together])
    linear, few_labels = fit_linear_from_few_labels(
        texts,
        labels,
        _tokenized(prepared, names_as_texts(prepared.dataset.label_names)),
        reading,
        config=prepared.config.train,
        together=together,
        held_out=held_out,
        with_teacher=prepared.plan.has_pseudo_labels,
    )
    if not len(held_out):
        return _calibrated(prepared, linear)._replace(few_labels=few_labels)
    fitted = _calibrated(prepared, linear, few_labels.logits[: len(held_out)])
    unmeasured = np.zeros((len(few_labels.rows), EVIDENCE_NUMBERS))  # so that it does not count
    return fitted._replace(learned=(texts.take(few_labels.rows), few_labels.logits, unmeasured), few_labels=few_labels)


def _tokenized(prepared: Prepared, *texts: Iterable[str]) -> TokenizedTexts:
    """Tokenize texts one after the other, with one list of words."""
    return prepared.new_classifier(None).tokenize(chain(*texts))


def _calibrated(prepared: Prepared, linear: LinearClassifier, logits: Logits | None = None) -> Fitted:
    """Calibrate by validation logits, by default the classifier's own."""
    logits = linear.logits(prepared.validation_texts) if logits is None else logits
    classifier = prepared.new_classifier(None)
    classifier.linear, classifier.mixture_weights = linear, (1.0,)
    classifier.mixture_shares = {"linear": 1.0}
    if not len(prepared.validation_texts):
        return Fitted(classifier, logits, None)
    result = judge(None, logits, prepared.dataset, monitor=prepared.config.train.monitor)
    classifier.mixture_weights = result.mixture_weights or (1.0,)
    classifier.thresholds = result.thresholds
    return Fitted(classifier, logits, result)
