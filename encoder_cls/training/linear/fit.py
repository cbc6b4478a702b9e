"""Fit and calibrate the linear classifier of a run."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple

import numpy as np

from encoder_cls.data.labels import names_as_texts
from encoder_cls.inference.classifier import Classifier, Numbers
from encoder_cls.inference.folder import save_classifier
from encoder_cls.inference.linear import EVIDENCE_NUMBERS, LinearClassifier
from encoder_cls.inference.task import Logits, softmax
from encoder_cls.system.disk_arrays import ConcatenatedTexts
from encoder_cls.system.stop import run_interruptibly, while_waited_for
from encoder_cls.text.tokenizer import tokenize
from encoder_cls.text.tokens import TokenizedTexts
from encoder_cls.tracking.run_dir import RunDir, write_validation_logits
from encoder_cls.training.encoder.validation import ValidationResult, judge
from encoder_cls.training.linear.features import Reading
from encoder_cls.training.linear.few_labels import (
    FewLabels,
    LinearAnswers,
    fit_linear_from_few_labels,
    fit_linear_from_names,
)
from encoder_cls.training.linear.folds import NO_TEXTS, folds
from encoder_cls.training.linear.stream import fit_linear_from_stream
from encoder_cls.training.linear.svm import ENOUGH_HELD_OUT, fit_linear
from encoder_cls.training.prepared import Prepared


class Fitted(NamedTuple):
    """The linear classifier of a run."""

    classifier: Classifier  # calibrated, without an encoder
    validation_logits: Logits  # of a linear classifier that has not learned from these texts
    validation: ValidationResult | None  # none without validation labels; then it is not calibrated
    learned: tuple[TokenizedTexts, Logits, Numbers] | None = None  # texts that validate, too; logits, evidence before
    few_labels: FewLabels | None = None  # where labels are few


def fit(prepared: Prepared, run: RunDir, *, saves_first: bool, saves: bool) -> Fitted:
    """Fit the linear classifier of a run; equal data give an equal classifier.

    Preliminary classifiers are saved as the model if `saves_first`, the result if `saves`. Where the classifier learns
    from validation texts, the run keeps its logits from before.
    """

    def save(fitted: Fitted) -> None:
        with while_waited_for():  # later the run may be another process's
            save_classifier(fitted.classifier, run.model)

    fitted = run_interruptibly(lambda: fit_linear_classifier(prepared, on_better=save if saves_first else None))
    if fitted.learned:
        texts, logits, evidence = fitted.learned
        write_validation_logits(run.validation_logits, logits, evidence, texts)
    if saves:
        save_classifier(fitted.classifier, run.model)
    return fitted


def answers_of(prepared: Prepared, fitted: Fitted) -> LinearAnswers:
    """The answers that the encoder gets: validation logits, and pseudo-labels where the linear classifier teaches.

    Soft labels: Hinton et al., "Distilling the Knowledge in a Neural Network", 2015, https://arxiv.org/abs/1503.02531.
    """
    teacher = fitted.few_labels and fitted.few_labels.teacher
    if not teacher:
        return LinearAnswers(fitted.validation_logits)
    unlabelled = prepared.texts.take(prepared.model_rows[len(prepared.dataset.train) :])
    pseudo_labels = softmax(teacher.logits(unlabelled)).astype(np.float32)
    return LinearAnswers(fitted.validation_logits, pseudo_labels)


def fit_linear_classifier(prepared: Prepared, *, on_better: Callable[[Fitted], None] | None = None) -> Fitted:
    """Fit the linear classifier to the texts with labels; with few of them, and to others by self-training.

    Where validation texts calibrate them, `on_better` receives preliminary ones: a quick one, then one of one penalty.
    """
    config, train, validation, read = (
        prepared.config,
        prepared.dataset.train,
        prepared.dataset.selection,
        prepared.plan.linear,
    )
    assert read
    labels = train.labels
    reading = Reading(read.max_tokens, read.use_char_ngrams, prepared.class_weights.numpy())
    if prepared.plan.linear_fit == "names":
        return _calibrated(
            prepared, fit_linear_from_names(prepared.texts, reading, dimensions=config.train.lsa_dimensions)
        )
    held_out = (prepared.validation_texts, validation.labels)
    if on_better and reading.char_ngrams and len(validation):
        words_only = reading._replace(char_ngrams=False)
        first, _ = fit_linear(prepared.train_texts, labels, words_only, held_out=held_out, is_quick=True)
        on_better(_calibrated(prepared, first))
    if prepared.plan.linear_fit == "few_labels":
        return _fit_few_labels(prepared, reading)
    if prepared.plan.linear_fit == "stream":
        return _calibrated(
            prepared, fit_linear_from_stream(prepared.train_texts, labels, reading, together=train.together)
        )
    linear, choice = fit_linear(
        prepared.train_texts,
        labels,
        reading,
        held_out=held_out,
        parts=folds(train.together, enough=ENOUGH_HELD_OUT[prepared.task]),
        on_first=lambda first: on_better(_calibrated(prepared, first)) if on_better else None,
    )
    if not prepared.plan.refits_on_validation:
        return _calibrated(prepared, linear)
    texts, all_labels = _tokenized(prepared, train.texts, validation.texts), np.concatenate([labels, validation.labels])
    refitted, _ = fit_linear(texts, all_labels, reading, choice=choice)
    before, numbers = linear.read(prepared.validation_texts)
    assert numbers is not None
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
    names = _tokenized(prepared, names_as_texts(prepared.dataset.label_names))
    linear, few_labels = fit_linear_from_few_labels(
        texts,
        labels,
        names,
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


def _tokenized(prepared: Prepared, *texts: Sequence[str]) -> TokenizedTexts:
    """Tokenize texts one after the other, with one list of words."""
    return tokenize(prepared.tokenizer, ConcatenatedTexts(*texts), max_seq_len=prepared.config.model.max_seq_len)


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
