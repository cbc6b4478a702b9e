"""The plan of a run, decided from the config and the size of the data."""

from __future__ import annotations

import itertools
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from small_runs import NO_TECHNIQUES

from encoder_cls.config import Config
from encoder_cls.text.tokens import KEPT_PER_TOKEN
from encoder_cls.training.plan import (
    FEWEST_STEPS,
    LINEAR_LENGTHS,
    MOST_LINEAR_DETAIL,
    MOST_LINEAR_TEXT,
    MOST_LINEAR_WORK,
    MOST_STREAMED_TEXT,
    MOST_STREAMED_WORK,
    PRETRAINING_EPOCHS,
    STEPS_BETWEEN_VALIDATIONS,
    TRAINING_EPOCHS,
    CorpusSize,
    Counts,
    LinearInput,
    Plan,
    Schedule,
    make_plan,
)

SIZES = [1, 100, 20_000, 100_000, 300_000, 1_000_000, 1_000_001, 3_000_000, 3_000_001, 10**7, 10**8, 10**10]
MANY = 1000  # steps an epoch: so many that no epoch has to be repeated


def plan(
    num_tokens: int,
    *,
    labelled_corpus: CorpusSize | None = None,
    steps_per_epoch: int = MANY,
    tokens_of_text: int = 10,
    sections: dict[str, Any] | None = None,
    **counts: Any,
) -> Plan:
    """The plan of so much text, all of it labelled unless another part is; each text has so many tokens."""
    config = Config.model_validate({"name": "x", "data": {"train": "x"}} | (sections or {}))
    corpus = CorpusSize(num_tokens, steps_per_epoch)
    with_labels, max_seq_len = labelled_corpus or corpus, config.model.max_seq_len
    read = min(tokens_of_text, max_seq_len)
    within = (with_labels.tokens * min(tokens_of_text, part * max_seq_len) // read for part in LINEAR_LENGTHS)
    values = {"labelled": 10**6, "unlabelled": 0, "validation": 0, "classes": 2} | counts
    return make_plan(
        config,
        Counts(corpus=corpus, linear_tokens=tuple(within), **values),
        model_corpus=lambda has_pseudo_labels: corpus if has_pseudo_labels else with_labels,
    )


FEW = {"labelled": 100, "unlabelled": 50, "validation": 10}
NAMES = FEW | {"names_only": True, "validation": 0}


@pytest.mark.parametrize(
    ("counts", "train", "linear_fit", "refits", "pseudo_labels"),
    [
        pytest.param({"validation": 10}, {}, "plain", True, False, id="many labels"),
        pytest.param({}, {}, "plain", False, False, id="nothing held out"),
        pytest.param({"validation": 10, "is_multi_label": True}, {}, "plain", False, False, id="several labels"),
        pytest.param({"validation": 10, "classes": 100}, {}, "stream", False, False, id="much work"),
        pytest.param(FEW, {}, "few_labels", True, True, id="few labels"),
        pytest.param(FEW | {"unlabelled": 0}, {}, "few_labels", True, False, id="few labels and no other text"),
        pytest.param(FEW | {"is_multi_label": True}, {}, "plain", False, False, id="few texts of several labels"),
        pytest.param(FEW, {"pseudo_labels": False}, "few_labels", True, False, id="no pseudo-labels wanted"),
        pytest.param(FEW, {"refit_on_validation": False}, "few_labels", False, True, id="no refit wanted"),
        pytest.param(FEW, NO_TECHNIQUES, "plain", True, False, id="no techniques wanted"),
        pytest.param(NAMES, {}, "names", False, False, id="names alone"),
    ],
)
def test_the_parts_of_a_run_are_decided_once(counts, train, linear_fit, refits, pseudo_labels):
    """By the config and by how much of what there is."""
    decided = plan(MOST_LINEAR_DETAIL, sections={"train": train}, **counts)
    assert (decided.linear_fit, decided.refits_on_validation, decided.has_pseudo_labels) == (
        linear_fit,
        refits,
        pseudo_labels,
    )
    assert decided.has_few_labels == (linear_fit == "few_labels")
    assert decided.has_encoder == (linear_fit != "names")
    alone = plan(MOST_LINEAR_DETAIL, sections={"train": train, "model": {"encoder": False}}, **counts)
    assert alone == replace(decided, pretraining=None, training=None, has_pseudo_labels=False)
    assert str(linear_fit) in str(decided)


@pytest.mark.parametrize("data", [{"train": "x", "validation": "y"}])
def test_a_validation_file_is_not_learned_from(data):
    """Whoever names one wants its texts to stay unseen."""
    for counts in ({"validation": 10}, FEW):
        assert not plan(1000, sections={"data": data}, **counts).refits_on_validation


def test_without_a_linear_classifier_none_is_refitted():
    """However few labels there are."""
    decided = plan(1000, sections={"model": {"linear": False}}, **FEW)
    assert (decided.linear, decided.linear_fit, decided.refits_on_validation) == (None, None, False)


def test_more_text_is_never_seen_more_often():
    """Every number falls or stays as the text grows, and each falls somewhere."""

    def numbers(size: int) -> tuple[int, ...]:
        decided = plan(size)
        linear = decided.linear or LinearInput(0, use_char_ngrams=False)
        return decided.training.epochs, decided.pretraining.epochs, linear.use_char_ngrams, linear.max_tokens

    for less, more in itertools.pairwise([numbers(size) for size in SIZES]):
        assert all(after <= before for before, after in zip(less, more, strict=True))
    smallest, largest = numbers(SIZES[0]), numbers(SIZES[-1])
    assert all(after < before for before, after in zip(smallest, largest, strict=True))


@settings(max_examples=200, deadline=None, derandomize=True)
@given(num_tokens=st.integers(1, 10**11), num_classes=st.integers(2, 1000), steps_per_epoch=st.integers(1, 2000))
def test_automatic_lengths_stay_within_their_limits(num_tokens, num_classes, steps_per_epoch):
    """However much text there is: epochs within limits, repeated as often as the fewest steps need, never oftener."""
    decided = plan(num_tokens, classes=num_classes, steps_per_epoch=steps_per_epoch)
    by_labels, by_words = decided.training, decided.pretraining
    assert by_labels.epochs * steps_per_epoch >= FEWEST_STEPS
    repeated = (divmod(by_labels.epochs, epochs) for epochs in range(TRAINING_EPOCHS[0], TRAINING_EPOCHS[1] + 1))
    assert any(
        rest == 0 and by_labels.epochs * (times - 1) / times * steps_per_epoch < FEWEST_STEPS
        for times, rest in repeated
    )
    assert PRETRAINING_EPOCHS[0] <= by_words.epochs <= PRETRAINING_EPOCHS[1]


@settings(max_examples=100, deadline=None, derandomize=True)
@given(num_tokens=st.integers(1, 10**11), steps_per_epoch=st.integers(1, 2000))
def test_validations_are_no_more_than_worthwhile(num_tokens, steps_per_epoch):
    """One an epoch where labels may be overfitted; of words whole epochs of so many steps together, and no more."""
    decided = plan(num_tokens, steps_per_epoch=steps_per_epoch)
    by_labels, by_words = decided.training, decided.pretraining
    assert by_words.validate_every >= STEPS_BETWEEN_VALIDATIONS
    assert by_words.validate_every - steps_per_epoch < STEPS_BETWEEN_VALIDATIONS
    assert by_labels.total_steps % by_labels.validate_every == 0
    assert TRAINING_EPOCHS[0] <= by_labels.total_steps // by_labels.validate_every <= TRAINING_EPOCHS[1]
    assert by_labels.validate_every == steps_per_epoch or TRAINING_EPOCHS[0] * steps_per_epoch < FEWEST_STEPS


def test_epochs_fall_with_the_tokens():
    """Between the limits, four times the text is seen half as often with its labels, a quarter as often without."""
    assert [plan(size).pretraining.epochs for size in (50_000, 78_125, 156_250, 312_500, 625_000)] == [
        20,
        16,
        8,
        4,
        2,
    ]
    assert [plan(size).training.epochs for size in (130_000, 200_000, 460_000, 6_000_000)] == [8, 6, 4, 1]
    for name, limits in (("training", TRAINING_EPOCHS), ("pretraining", PRETRAINING_EPOCHS)):
        assert tuple(getattr(plan(size), name).epochs for size in (10**9, 1)) == limits
        assert {getattr(plan(size), name).validate_every for size in SIZES} == {MANY}


def test_short_epochs_are_repeated_between_validations():
    """Where an epoch is a few steps, as of a hundred texts, labels are still learned for hundreds; words are not."""
    tiny = plan(1000, steps_per_epoch=2)
    assert tiny.training == Schedule(epochs=8 * 19, steps_per_epoch=2, validate_every=19 * 2)
    assert tiny.pretraining == Schedule(epochs=20, steps_per_epoch=2, validate_every=300)


def test_what_is_learnt_from_labels_goes_by_the_texts_that_have_them():
    """Pretraining goes by all texts; the length of the rest and the linear classifier by the labelled ones."""
    few, many = 100_000, 10**9
    decided = plan(many, labelled_corpus=CorpusSize(few, 10))
    assert decided == replace(plan(few, steps_per_epoch=10), pretraining=plan(many).pretraining)
    assert decided.training.validate_every == 4 * 10
    assert decided.pretraining == Schedule(epochs=1, steps_per_epoch=MANY, validate_every=MANY)
    assert decided.linear.use_char_ngrams


def test_the_linear_classifier_looks_at_letters_where_memory_allows():
    """Up to `MOST_LINEAR_DETAIL` tokens."""
    assert plan(MOST_LINEAR_DETAIL).linear.use_char_ngrams
    assert not plan(MOST_LINEAR_DETAIL + 1).linear.use_char_ngrams


def test_the_linear_classifier_reads_as_far_as_memory_allows():
    """Whole texts, or a part of them: never less than the encoder, nor more than is kept."""
    assert plan(MOST_LINEAR_TEXT, tokens_of_text=512).linear.max_tokens == 512 * KEPT_PER_TOKEN
    parts = [plan(MOST_LINEAR_TEXT // part, tokens_of_text=10**4).linear for part in (KEPT_PER_TOKEN, 4, 2, 1)]
    assert [it.max_tokens for it in parts] == [512 * KEPT_PER_TOKEN, 2048, 1024, 512]
    assert plan(MOST_LINEAR_TEXT + 1, tokens_of_text=10**4).linear_fit == "stream"


def test_letters_are_read_by_what_the_linear_classifier_reads_of_words():
    """A text that the encoder reads a small part of is much text all the same."""
    assert plan(MOST_LINEAR_DETAIL // 4, tokens_of_text=2048).linear.use_char_ngrams
    assert not plan(MOST_LINEAR_DETAIL // 4 + 1, tokens_of_text=2048).linear.use_char_ngrams


def test_the_linear_classifier_learns_from_a_stream_where_it_would_take_much_memory():
    """Which grows with the tokens, however few the classes."""
    assert plan(MOST_LINEAR_TEXT, classes=2).linear_fit == "plain"
    assert plan(MOST_LINEAR_TEXT + 1, classes=2).linear_fit == "stream"


def test_a_stream_has_whole_texts_where_the_disk_has_room_for_them():
    """Else no more of each than the encoder reads."""
    assert plan(MOST_STREAMED_TEXT, tokens_of_text=512).linear.max_tokens == 512 * KEPT_PER_TOKEN
    parts = [plan(MOST_STREAMED_TEXT // part, tokens_of_text=10**4).linear for part in (KEPT_PER_TOKEN, 4, 2, 1)]
    assert [it.max_tokens for it in parts] == [512 * KEPT_PER_TOKEN, 2048, 1024, 512]
    assert plan(10 * MOST_STREAMED_TEXT, tokens_of_text=10**4).linear.max_tokens == 512


@pytest.mark.parametrize("num_classes", [20, 50, 1000])
def test_the_linear_classifier_learns_from_a_stream_where_it_would_take_minutes(num_classes):
    """Its time is that of tokens times classes."""
    most = MOST_LINEAR_WORK // num_classes
    assert plan(most, classes=num_classes).linear_fit == "plain"
    assert plan(most + 1, classes=num_classes).linear_fit == "stream"


@pytest.mark.parametrize("num_classes", [20, 50, 1000])
def test_there_is_no_linear_classifier_where_a_stream_would_take_many_minutes(num_classes):
    """Its time is that of tokens times classes, too."""
    most = MOST_STREAMED_WORK // num_classes
    assert plan(most, classes=num_classes).linear
    assert not plan(most + 1, classes=num_classes).linear


@pytest.mark.parametrize("num_tokens", SIZES)
def test_there_is_no_linear_classifier_where_none_is_wanted(num_tokens):
    """However little text there is; nothing else depends on that."""
    assert plan(num_tokens, sections={"model": {"linear": False}}) == replace(
        plan(num_tokens), linear=None, linear_fit=None
    )


@settings(max_examples=60, deadline=None, derandomize=True)
@given(
    num_tokens=st.sampled_from(SIZES),
    steps_per_epoch=st.sampled_from([1, 30, MANY]),
    word_epochs=st.integers(1, 99),
    epochs=st.integers(1, 99),
)
def test_what_is_set_is_what_is_done(num_tokens, steps_per_epoch, word_epochs, epochs):
    """Numbers in the config win over the data, also outside of the limits of `auto`, and each for itself."""
    size = {"num_tokens": num_tokens, "steps_per_epoch": steps_per_epoch}
    auto, by_words, by_labels = plan(**size), {"epochs": word_epochs}, {"epochs": epochs}
    steps = {"steps_per_epoch": steps_per_epoch, "validate_every": steps_per_epoch}
    words, labels = Schedule(epochs=word_epochs, **steps), Schedule(epochs=epochs, **steps)
    assert plan(**size, sections={"pretrain": by_words}) == replace(auto, pretraining=words)
    assert plan(**size, sections={"train": by_labels}) == replace(auto, training=labels)
    assert plan(**size, sections={"pretrain": by_words, "train": by_labels}) == replace(
        auto, pretraining=words, training=labels
    )


@pytest.mark.parametrize("num_tokens", SIZES)
def test_no_epochs_are_no_pretraining(num_tokens):
    """Nothing else depends on that."""
    assert plan(num_tokens, sections={"pretrain": {"epochs": 0}}) == replace(plan(num_tokens), pretraining=None)
