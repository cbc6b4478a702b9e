"""The time limit of the linear model, and the number of texts that it allows."""

from __future__ import annotations

import time
from dataclasses import replace

import numpy as np

from encoder_cls.linear.features import LinearOptions
from encoder_cls.linear.stream import fit_linear_from_stream
from encoder_cls.system.stop import run_interruptibly
from encoder_cls.training.prepared import Prepared

# The number of texts that are fitted to estimate the time. The linear model learns from at least as
# many, if there are as many.
SAMPLE = 5000

# The share of the remaining time for the linear model, if an encoder follows.
SHARE = 0.5
# The share of the remaining time for the linear model, if only the scores and the report follow.
ALONE_SHARE = 0.6


def end_of_fit(prepared: Prepared) -> float | None:
    """Return when the fit should end, a time of `time.monotonic`.

    Returns:
        None without a time limit, and for fits that keep the limit by the number of texts instead
        (`affordable_texts`).
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


# The time of each kind of fit, relative to a stream of the same texts. A plain fit tries several C
# values and is repeated with the validation texts. A detailed fit is a plain fit that also has
# character n-grams.
STREAM = 1.0
PLAIN = 3.0
DETAILED = 12.0
# The time to score a text, relative to learning from a text in a stream. Texts are scored for the
# calibration, the smallest number types, the guarantees and the report.
SCORING = 0.6


def affordable_texts(prepared: Prepared) -> int | None:
    """Compute how many texts there is time for, if the linear model learns from a stream.

    Returns:
        The number of training texts; None if the planned fit keeps the time limit, or limits its
        work in another way (`end_of_fit`).
    """
    plan = prepared.plan
    dataset = prepared.dataset
    num_texts = len(dataset.train)
    seconds = prepared.budget.seconds_for(pretraining=False)
    if seconds is None or plan.linear_fit not in ("plain", "stream") or num_texts <= SAMPLE:
        return None

    # Time a sample. The remaining time, in texts of a stream, is for learning and for scoring.
    sample_seconds = _seconds_of_sample(prepared)
    num_scored = len(dataset.validation) + len(dataset.test or ())
    max_texts = (seconds - sample_seconds) / (sample_seconds / SAMPLE) - SCORING * num_scored
    if plan.has_encoder:
        max_texts *= SHARE

    if _planned_cost(prepared) * num_texts <= max_texts:
        return None
    return min(num_texts, max(SAMPLE, int(max_texts)))


def _seconds_of_sample(prepared: Prepared) -> float:
    """Measure how long it takes to learn from a stream of `SAMPLE` texts."""
    # Import it here, so that the time of the import is not measured.
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
    """Return the time of the planned fit, relative to a stream of the same texts."""
    plan = prepared.plan
    assert plan.linear
    if plan.linear_fit == "stream":
        return STREAM
    if plan.linear.use_char_ngrams:
        return DETAILED
    return PLAIN


def streamed(prepared: Prepared, num_texts: int) -> Prepared:
    """Return a copy whose plan is to learn from a stream of a random sample of the training texts.

    The sample has `num_texts` texts, and at least one text of each class beside them.
    """
    train = prepared.dataset.train
    plan = prepared.plan
    assert plan.linear

    # Take the first text of each class, and texts drawn at random.
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
    """Return the planned features of the linear model, and the weight of each class."""
    plan = prepared.plan
    assert plan.linear
    return LinearOptions(
        plan.linear.max_tokens, plan.linear.use_char_ngrams, prepared.class_weights.numpy()
    )
