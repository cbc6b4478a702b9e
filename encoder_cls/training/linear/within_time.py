"""Decide by the time of a sample from how many texts the linear classifier can learn within a time limit."""

from __future__ import annotations

import time
from dataclasses import replace

import numpy as np

from encoder_cls.training.linear.features import Reading
from encoder_cls.training.linear.stream import fit_linear_from_stream
from encoder_cls.training.plan import LinearInput
from encoder_cls.training.prepared import Prepared

SAMPLE = 5000  # texts: no fewer are learned from
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
    reading = Reading(plan.linear.max_tokens, char_ngrams=False, class_weights=sample.class_weights.numpy())
    fit_linear_from_stream(
        sample.train_texts, sample.dataset.train.labels, reading, together=sample.dataset.train.together
    )
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
    return replace(
        prepared,
        dataset=replace(prepared.dataset, train=train.subset(rows)),
        texts=prepared.train_texts.take(rows),
        plan=replace(
            plan,
            linear=LinearInput(plan.linear.max_tokens, use_char_ngrams=False),
            linear_fit="stream",
            refits_on_validation=False,
        ),
    )
