"""The plan of a run, made from the config and the size of the data."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from support.small_runs import NO_TECHNIQUES

from encoder_cls.config.schema import Config
from encoder_cls.errors import ConfigError
from encoder_cls.metrics.tasks import MULTI_LABEL
from encoder_cls.text.tokens import KEPT_PER_TOKEN
from encoder_cls.training import time_budget
from encoder_cls.training.plan import (
    LINEAR_LENGTHS,
    MAX_LINEAR_TEXT,
    MAX_LINEAR_WORK,
    MAX_STREAMED_TEXT,
    MAX_STREAMED_WORK,
    MIN_STEPS,
    TRAINING_EPOCHS,
    CorpusSize,
    Counts,
    Plan,
    TrainingLength,
    make_plan,
)
from encoder_cls.training.time_budget import TimeBudget

# Numbers of tokens, from almost none to more than any run reads.
SIZES = [
    1,
    100,
    20_000,
    100_000,
    300_000,
    1_000_000,
    1_000_001,
    3_000_000,
    3_000_001,
    10**7,
    10**8,
    10**10,
]

# A number of steps per epoch that is so large that no epoch has to be repeated.
MANY_STEPS = 1000


def config_of(sections: dict[str, Any]) -> Config:
    """Make a config with these values in its sections."""
    return Config.model_validate({"name": "x", "data": {"train": "x"}} | sections)


def plan(
    num_tokens: int,
    *,
    labelled_corpus: CorpusSize | None = None,
    steps_per_epoch: int = MANY_STEPS,
    tokens_of_text: int = 10,
    sections: dict[str, Any] | None = None,
    **counts: Any,
) -> Plan:
    """Make the plan of a run on this many tokens.

    By default, the labelled texts have all of them; with `labelled_corpus`, they have fewer. Each
    text has `tokens_of_text` tokens. `counts` are values of `Counts`.
    """
    config = config_of(sections or {})
    corpus = CorpusSize(num_tokens, steps_per_epoch)
    labelled_corpus = labelled_corpus or corpus

    # The encoder reads as many tokens of each text as fit; the linear model may read more.
    tokens_read = min(tokens_of_text, config.model.max_seq_len)
    linear_tokens = {}
    for multiple in LINEAR_LENGTHS:
        max_tokens = multiple * config.model.max_seq_len
        tokens_within = min(tokens_of_text, max_tokens)
        linear_tokens[max_tokens] = labelled_corpus.tokens * tokens_within // tokens_read

    def encoder_corpus(has_pseudo_labels: bool) -> CorpusSize:
        if has_pseudo_labels:
            return corpus
        return labelled_corpus

    default_counts = {
        "labelled": 10**6,
        "unlabelled": 10**6 + 1,
        "validation": 10,
        "classes": 2,
    }
    all_counts = Counts(corpus=corpus, linear_tokens=linear_tokens, **default_counts | counts)
    return make_plan(config, all_counts, encoder_corpus=encoder_corpus)


# The models of a run

FEW = {"labelled": 100, "unlabelled": 50}

# Counts, values of the section `train`, and what is decided: the fit of the linear model, whether
# it is fitted again with the validation texts, and whether the encoder learns from pseudo-labels.
DECISIONS = {
    "many labels": ({}, {}, "plain", True, False),
    "several labels": ({"task": MULTI_LABEL}, {}, "plain", False, False),
    "much work": ({"classes": 100}, {}, "stream", False, False),
    "few labels": (FEW, {}, "few_labels", True, True),
    "few labels and no other text": (FEW | {"unlabelled": 0}, {}, "few_labels", True, False),
    "few texts of several labels": (FEW | {"task": MULTI_LABEL}, {}, "plain", False, False),
    "no pseudo-labels wanted": (FEW, {"pseudo_labels": False}, "few_labels", True, False),
    "no refit wanted": (FEW, {"refit_on_validation": False}, "few_labels", False, True),
    "no techniques wanted": (FEW, NO_TECHNIQUES, "plain", True, False),
}


@pytest.mark.parametrize(
    ("counts", "train", "linear_fit", "refits", "has_pseudo_labels"),
    DECISIONS.values(),
    ids=DECISIONS.keys(),
)
def test_the_plan_decides_on_the_models_of_a_run(
    counts, train, linear_fit, refits, has_pseudo_labels
):
    decided = plan(MAX_LINEAR_TEXT, sections={"train": train}, **counts)

    assert decided.has_encoder
    assert decided.linear_fit == linear_fit
    assert decided.refits_on_validation == refits
    assert decided.has_pseudo_labels == has_pseudo_labels
    assert linear_fit in str(decided)


@pytest.mark.parametrize(
    ("counts", "train"),
    [(counts, train) for counts, train, *_ in DECISIONS.values()],
    ids=DECISIONS.keys(),
)
def test_without_an_encoder_the_linear_model_has_the_same_plan(counts, train):
    with_encoder = plan(MAX_LINEAR_TEXT, sections={"train": train}, **counts)

    sections = {"train": train, "model": {"encoder": False}}
    without = plan(MAX_LINEAR_TEXT, sections=sections, **counts)

    assert without == replace(
        with_encoder,
        pretraining=None,
        training=None,
        has_pseudo_labels=False,
        has_word_vectors=False,
    )


@pytest.mark.parametrize(
    ("counts", "epochs", "has_pretraining", "has_word_vectors"),
    [
        ({"unlabelled": 9}, "auto", False, False),
        ({"unlabelled": 10}, "auto", False, True),
        ({"unlabelled": 10, "has_base_encoder": True}, "auto", False, False),
        ({"unlabelled": 10}, 0, False, False),
        ({"unlabelled": 9}, 1, True, False),
    ],
)
def test_the_encoder_starts_from_word_vectors_if_most_texts_have_no_label(
    counts, epochs, has_pretraining, has_word_vectors
):
    """Pretraining takes the place of word vectors, and is off by default."""
    sections = {"pretrain": {"epochs": epochs}, "model": {"encoder": True}}

    decided = plan(1000, labelled=9, sections=sections, **counts)

    assert (decided.pretraining is not None) == has_pretraining
    assert decided.has_word_vectors == has_word_vectors
    assert ("word vectors" in str(decided)) == has_word_vectors


@pytest.mark.parametrize(
    ("labelled", "unlabelled", "encoder", "is_trained"),
    [
        (100, 101, "auto", False),
        (100, 101, True, True),
        (100, 100, "auto", True),
        (2001, 9000, "auto", True),
        (2001, 0, False, False),
    ],
)
def test_few_labels_among_many_texts_train_no_encoder_by_default(
    labelled, unlabelled, encoder, is_trained
):
    sections = {"model": {"encoder": encoder}}

    decided = plan(1000, labelled=labelled, unlabelled=unlabelled, sections=sections)

    assert decided.has_encoder == is_trained


def test_without_an_encoder_too_much_text_is_refused():
    with pytest.raises(ConfigError, match=r"model\.encoder=false: there is too much text"):
        plan(MAX_STREAMED_WORK, sections={"model": {"encoder": False}})


@pytest.mark.parametrize("counts", [{}, FEW])
def test_a_validation_file_is_not_learned_from(counts):
    sections = {"data": {"train": "x", "validation": "y"}}

    assert not plan(1000, sections=sections, **counts).refits_on_validation


# The length of the encoder's trainings


@settings(max_examples=80, deadline=None, derandomize=True)
@given(
    num_tokens=st.integers(1, 10**11),
    num_classes=st.integers(2, 1000),
    steps_per_epoch=st.integers(1, 2000),
)
def test_automatic_lengths_stay_within_their_limits(num_tokens, num_classes, steps_per_epoch):
    """The number of epochs has limits; epochs are repeated only to reach the minimum of steps."""
    decided = plan(num_tokens, classes=num_classes, steps_per_epoch=steps_per_epoch)

    total_epochs = decided.training.epochs
    assert total_epochs * steps_per_epoch >= MIN_STEPS

    fewest, most = TRAINING_EPOCHS
    is_within_limits = []
    for epochs in range(fewest, most + 1):
        repetitions, rest = divmod(total_epochs, epochs)
        steps_of_one_less = epochs * (repetitions - 1) * steps_per_epoch
        is_within_limits.append(rest == 0 and steps_of_one_less < MIN_STEPS)
    assert any(is_within_limits)


@pytest.mark.parametrize(
    ("num_tokens", "epochs"),
    [
        (1, 8),
        (130_000, 8),
        (200_000, 6),
        (460_000, 4),
        (6_000_000, 1),
        (10**9, 1),
    ],
)
def test_epochs_fall_with_the_tokens(num_tokens, epochs):
    """Between the limits, four times as much text has half as many epochs."""
    assert plan(num_tokens).training.epochs == epochs


@pytest.mark.parametrize("num_tokens", SIZES)
def test_long_epochs_are_validated_one_by_one(num_tokens):
    assert plan(num_tokens).training.validate_every == MANY_STEPS


def test_short_epochs_are_repeated_between_validations():
    """A hundred labelled texts have a few steps per epoch, but hundreds of steps in all."""
    length = plan(1000, steps_per_epoch=2).training

    assert length == TrainingLength(epochs=8 * 19, steps_per_epoch=2, validate_every=19 * 2)


def test_the_length_of_pretraining_depends_on_all_texts_and_that_of_training_on_labelled_ones():
    once = {"pretrain": {"epochs": 1}}
    of_labelled = plan(100_000, steps_per_epoch=10, sections=once)

    decided = plan(10**9, labelled_corpus=CorpusSize(100_000, 10), sections=once)

    assert decided == replace(of_labelled, pretraining=decided.pretraining)
    assert decided.training.validate_every == 4 * 10
    assert decided.pretraining == TrainingLength(
        epochs=1, steps_per_epoch=MANY_STEPS, validate_every=MANY_STEPS
    )


@settings(max_examples=30, deadline=None, derandomize=True)
@given(
    num_tokens=st.sampled_from(SIZES),
    steps_per_epoch=st.sampled_from([1, 30, MANY_STEPS]),
    pretraining_epochs=st.integers(1, 99),
    training_epochs=st.integers(1, 99),
)
def test_epochs_of_the_config_are_used(
    num_tokens, steps_per_epoch, pretraining_epochs, training_epochs
):
    """Epochs of the config replace those of `auto`, also outside of the limits of `auto`."""

    def plan_with(**sections: dict[str, int]) -> Plan:
        return plan(num_tokens, steps_per_epoch=steps_per_epoch, sections=sections)

    def length_of(epochs: int) -> TrainingLength:
        return TrainingLength(
            epochs=epochs, steps_per_epoch=steps_per_epoch, validate_every=steps_per_epoch
        )

    auto = plan_with()
    pretrain = {"epochs": pretraining_epochs}
    train = {"epochs": training_epochs}
    pretraining = length_of(pretraining_epochs)
    training = length_of(training_epochs)

    with_pretraining = replace(auto, pretraining=pretraining, has_word_vectors=False)
    assert plan_with(pretrain=pretrain) == with_pretraining
    assert plan_with(train=train) == replace(auto, training=training)
    both = replace(with_pretraining, training=training)
    assert plan_with(pretrain=pretrain, train=train) == both


# The linear model

# The maximum number of tokens that a linear model reads of a text.
WHOLE = 512 * KEPT_PER_TOKEN


def assert_linear(decided: Plan, linear_fit: str, *, max_tokens: int) -> None:
    """Assert how the linear model is fitted, and how much of a text it reads."""
    assert decided.linear_fit == linear_fit
    assert decided.linear_max_tokens == max_tokens


def test_more_text_than_fits_in_memory_is_learned_from_a_stream():
    within = plan(MAX_LINEAR_TEXT, tokens_of_text=512)
    beyond = plan(MAX_LINEAR_TEXT + 1, tokens_of_text=512)

    assert_linear(within, "plain", max_tokens=WHOLE)
    assert_linear(beyond, "stream", max_tokens=WHOLE)


def test_very_many_classes_have_a_fit_of_their_own():
    many = plan(30_000, labelled=3000, classes=1000)
    less_work = plan(30_000, labelled=2001, classes=999)
    longest = plan(MAX_LINEAR_TEXT, labelled=300_000, classes=1000)
    few_classes = plan(30_000, labelled=30_000, classes=199)

    assert_linear(many, "many_classes", max_tokens=WHOLE)
    assert many.refits_on_validation
    assert_linear(less_work, "plain", max_tokens=WHOLE)
    assert_linear(longest, "many_classes", max_tokens=WHOLE)
    assert_linear(few_classes, "plain", max_tokens=WHOLE)


def test_a_fit_that_would_take_minutes_is_a_stream():
    within = plan(MAX_LINEAR_WORK // 100, classes=100)
    beyond = plan(MAX_LINEAR_WORK // 100 + 1, classes=100)

    assert_linear(within, "plain", max_tokens=WHOLE)
    assert_linear(beyond, "stream", max_tokens=WHOLE)


@pytest.mark.parametrize(
    ("num_tokens", "tokens_of_text", "max_tokens", "max_tokens_beyond"),
    [
        pytest.param(MAX_STREAMED_TEXT, 512, WHOLE, 512, id="texts as the encoder reads"),
        pytest.param(MAX_STREAMED_TEXT // 4, 10**4, 2048, 1024, id="long texts"),
    ],
)
def test_a_stream_reads_as_much_of_a_text_as_the_disk_allows(
    num_tokens, tokens_of_text, max_tokens, max_tokens_beyond
):
    within = plan(num_tokens, tokens_of_text=tokens_of_text)
    beyond = plan(num_tokens + 1, tokens_of_text=tokens_of_text)

    assert_linear(within, "stream", max_tokens=max_tokens)
    assert_linear(beyond, "stream", max_tokens=max_tokens_beyond)


def test_a_stream_that_would_take_too_long_is_not_planned():
    within = plan(MAX_STREAMED_WORK // 50, classes=50)
    beyond = plan(MAX_STREAMED_WORK // 50 + 1, classes=50)

    assert within.linear_fit == "stream"
    assert beyond.linear_fit is None


# Models and techniques that are turned off


@pytest.mark.parametrize("num_tokens", SIZES)
def test_what_is_turned_off_does_not_change_the_rest_of_the_plan(num_tokens):
    """A plan without a linear model, or without word vectors, is otherwise the same."""
    whole = plan(num_tokens)

    without_linear = plan(num_tokens, sections={"model": {"linear": False}})
    assert without_linear == replace(
        whole, linear_max_tokens=None, linear_fit=None, refits_on_validation=False
    )

    without_word_vectors = plan(num_tokens, sections={"pretrain": {"epochs": 0}})
    assert without_word_vectors == replace(whole, has_word_vectors=False)


# Time budgets


@pytest.mark.parametrize(
    ("whole", "of_pretraining", "spent", "for_pretraining", "for_training"),
    [
        pytest.param(None, None, 99, None, None, id="no limit"),
        pytest.param("100s", None, 40, 20, 50, id="of the whole run"),
        pytest.param("100s", "5s", 40, 5, 50, id="a lower one of pretraining"),
        pytest.param("100s", 2, 40, 20, 50, id="a higher one of pretraining"),
        pytest.param(None, 2, 45, 120, None, id="of pretraining alone, in minutes"),
        pytest.param("100s", None, 200, 0, 0, id="nothing left"),
    ],
)
def test_each_training_has_its_share_of_the_time(
    monkeypatch, whole, of_pretraining, spent, for_pretraining, for_training
):
    """A tenth of the time is reserved; pretraining gets less than half of the remaining time."""
    config = config_of(
        {"train": {"time_budget": whole}, "pretrain": {"time_budget": of_pretraining}}
    )
    monkeypatch.setattr(time_budget, "PRETRAINING_SHARE", 0.4)

    monkeypatch.setattr(time_budget.time, "monotonic", lambda: 7.0)
    budget = TimeBudget(config)
    monkeypatch.setattr(time_budget.time, "monotonic", lambda: 7.0 + spent)

    assert budget.seconds_for(pretraining=True) == approximate(for_pretraining)
    assert budget.seconds_for(pretraining=False) == approximate(for_training)


def approximate(seconds: float | None) -> object:
    """Expect about this many seconds, or no limit."""
    if seconds is None:
        return None
    return pytest.approx(seconds)
