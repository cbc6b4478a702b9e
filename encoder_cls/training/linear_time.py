"""The time that a run has for its linear model, and how many texts it learns from then."""

from __future__ import annotations

import time
from dataclasses import replace

import numpy as np

from encoder_cls.linear.features import LinearOptions
from encoder_cls.linear.stream import fit_linear_from_stream
from encoder_cls.system.stop import run_interruptibly
from encoder_cls.training.prepared import Prepared

# The texts to estimate the time by; fewer are never learned from.
SAMPLE = 5000

# The part of the time left, where an encoder follows.
SHARE = 0.5
# The part of the time left, where only scores and the report follow.
ALONE_SHARE = 0.6


def end_of_fit(prepared: Prepared) -> float | None:
    """When the fit should end, by `time.monotonic`.

    Returns:
        None without a limit, and where `affordable_texts` keeps it.
    """
    plan = prepared.plan
    seconds = prepared.budget.seconds_for(pretraining=False)
    if seconds is None:
        return None

    is_plain_of_few_texts = plan.linear_fit == "plain" and len(prepared.dataset.train) <= SAMPLE
    if plan.linear_fit != "few_labels" and not is_plain_of_few_texts:
        return None

    share = SHARE if plan.has_encoder else ALONE_SHARE
    return time.monotonic() + share * seconds


# The time of each fit, relative to a stream. A plain one tries all penalties, and is repeated with
# the validation texts; one in detail also has character n-grams.
STREAM = 1.0
PLAIN = 3.0
DETAILED = 12.0
# The time to score a text, relative to learning from one in a stream: calibration, the smallest
# types, guarantees, report.
SCORING = 0.6


def affordable_texts(prepared: Prepared) -> int | None:
    """The number of texts that a stream has time for; None if there is time for the planned fit."""
    plan = prepared.plan
    dataset = prepared.dataset
    num_texts = len(dataset.train)
    seconds = prepared.budget.seconds_for(pretraining=False)
    if seconds is None or plan.linear_fit not in ("plain", "stream") or num_texts <= SAMPLE:
        return None

    # What is left after a sample is the time of so many texts, some of which are scored.
    sample_seconds = _seconds_of_sample(prepared)
    num_scored = len(dataset.validation) + len(dataset.test or ())
    most = (seconds - sample_seconds) / (sample_seconds / SAMPLE) - SCORING * num_scored
    if plan.has_encoder:
        most *= SHARE

    if _planned_cost(prepared) * num_texts <= most:
        return None
    return min(num_texts, max(SAMPLE, int(most)))


def _seconds_of_sample(prepared: Prepared) -> float:
    """Measure how long a stream of the sample takes."""
    # The time of the import is not to be measured.
    import sklearn.linear_model  # noqa: F401

    sample = streamed(prepared, SAMPLE)
    train = sample.dataset.train
    began = time.monotonic()
    run_interruptibly(
        lambda: fit_linear_from_stream(
            sample.train_texts,
            train.labels,
            linear_options(sample),
            split_groups=train.split_groups,
        )
    )
    return time.monotonic() - began


def _planned_cost(prepared: Prepared) -> float:
    """The time of the planned fit, relative to a stream."""
    plan = prepared.plan
    assert plan.linear
    if plan.linear_fit == "stream":
        return STREAM
    if plan.linear.use_char_ngrams:
        return DETAILED
    return PLAIN


def streamed(prepared: Prepared, num_texts: int) -> Prepared:
    """Replace data and plan by a stream of random labelled texts, with all classes among them."""
    train = prepared.dataset.train
    plan = prepared.plan
    assert plan.linear

    # The first text of each class, and texts drawn at random.
    if train.is_multi_label:
        first_rows = train.labels.argmax(axis=0)
    else:
        _, first_rows = np.unique(train.labels, return_index=True)
    drawn = np.random.default_rng(0).permutation(len(train))[:num_texts]
    rows = np.union1d(drawn, first_rows)

    words_only = plan.linear._replace(use_char_ngrams=False)
    return replace(
        prepared,
        dataset=replace(prepared.dataset, train=train.subset(rows)),
        texts=prepared.train_texts.take(rows),
        plan=replace(plan, linear=words_only, linear_fit="stream", refits_on_validation=False),
    )


def linear_options(prepared: Prepared) -> LinearOptions:
    """What the linear model of a run reads of texts, and the weight of each class."""
    plan = prepared.plan
    assert plan.linear
    return LinearOptions(
        plan.linear.max_tokens, plan.linear.use_char_ngrams, prepared.class_weights.numpy()
    )
