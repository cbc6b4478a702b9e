"""The linear classifier as the first part of a run: within its time, saved, and with answers for the encoder."""

from __future__ import annotations

import time
from dataclasses import replace

import numpy as np

from encoder_cls.inference.folder import save_classifier
from encoder_cls.inference.task import softmax
from encoder_cls.system.stop import check_stop, run_interruptibly
from encoder_cls.tracking.run_dir import RunDir, write_validation_logits
from encoder_cls.training.linear.few_labels import LinearAnswers
from encoder_cls.training.linear.fit import Fitted, fit_linear_classifier, reading_of
from encoder_cls.training.linear.stream import fit_linear_from_stream
from encoder_cls.training.prepared import Prepared

SAMPLE = 5000  # texts, whose time shows that of all: no fewer are learned from
# The time of each fit, in times of the stream: `plain` with its penalties and once more with the validation texts.
STREAM, PLAIN, DETAILED = 1.0, 3.0, 12.0
SCORING = 0.6  # the time of a text that is scored: calibration, the smallest types, guarantees, report
SHARE = 0.5  # of the time that is left, where an encoder is to follow


def affordable_texts(prepared: Prepared) -> int | None:
    """The number of texts for a stream in place of the plan's fit; None where there is time for that."""
    plan, dataset, seconds = prepared.plan, prepared.dataset, prepared.budget.seconds_for(pretraining=False)
    texts = len(dataset.train)
    if seconds is None or plan.linear is None or plan.linear_fit not in ("plain", "stream") or texts <= SAMPLE:
        return None
    import sklearn.linear_model  # noqa: F401 - its import is none of the measured time

    sample, began = streamed(prepared, SAMPLE), time.monotonic()
    train = sample.dataset.train
    fit_linear_from_stream(sample.train_texts, train.labels, reading_of(sample), together=train.together)
    taken = time.monotonic() - began
    scored = len(dataset.validation) + len(dataset.test or ())
    affordable = (seconds - taken) / (taken / SAMPLE) - SCORING * scored
    affordable *= SHARE if plan.has_encoder else 1
    of_plan = STREAM if plan.linear_fit == "stream" else DETAILED if plan.linear.use_char_ngrams else PLAIN
    return None if of_plan * texts <= affordable else min(texts, max(SAMPLE, int(affordable)))


def streamed(prepared: Prepared, num_texts: int) -> Prepared:
    """The same data and plan with a stream of so many labelled texts, drawn at random; one of each class at least."""
    train, plan = prepared.dataset.train, prepared.plan
    assert plan.linear
    labels = train.labels
    of_classes = labels.argmax(axis=0) if train.is_multi_label else np.unique(labels, return_index=True)[1]
    drawn = np.random.default_rng(0).permutation(len(train))[:num_texts]
    rows = np.union1d(drawn, of_classes)
    words_only = plan.linear._replace(use_char_ngrams=False)
    return replace(
        prepared,
        dataset=replace(prepared.dataset, train=train.subset(rows)),
        texts=prepared.train_texts.take(rows),
        plan=replace(plan, linear=words_only, linear_fit="stream", refits_on_validation=False),
    )


def fit(prepared: Prepared, run: RunDir, *, saves_first: bool, saves: bool) -> Fitted:
    """Fit the linear classifier of a run.

    Preliminary classifiers are saved as the model if `saves_first`, the result if `saves`. Where the classifier learns
    from validation texts, the run keeps its logits from before.
    """

    def save(fitted: Fitted) -> None:
        check_stop()  # later the run may be another process's
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
