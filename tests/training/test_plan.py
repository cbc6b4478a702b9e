"""The plan of a run, decided from the config and the size of the data."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from support.small_runs import NO_TECHNIQUES

from encoder_cls.config.schema import Config
from encoder_cls.errors import ConfigError
from encoder_cls.text.tokens import KEPT_PER_TOKEN
from encoder_cls.training import time_budget
from encoder_cls.training.plan import (
    FEWEST_STEPS,
    LINEAR_LENGTHS,
    MOST_LINEAR_DETAIL,
    MOST_LINEAR_TEXT,
    MOST_LINEAR_WORK,
    MOST_STREAMED_TEXT,
    MOST_STREAMED_WORK,
    TRAINING_EPOCHS,
    CorpusSize,
    Counts,
    Plan,
    Schedule,
    make_plan,
)
from encoder_cls.training.time_budget import TimeBudget

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
    """The plan of so much text with labels, and hardly more texts without; each text has so many tokens."""
    config = Config.model_validate({"name": "x", "data": {"train": "x"}} | (sections or {}))
    corpus = CorpusSize(num_tokens, steps_per_epoch)
    with_labels, max_seq_len = labelled_corpus or corpus, config.model.max_seq_len
    read = min(tokens_of_text, max_seq_len)
    lengths = [part * max_seq_len for part in LINEAR_LENGTHS]
    within = {
        length: with_labels.tokens * min(tokens_of_text, length) // read for length in lengths
    }
    values = {"labelled": 10**6, "unlabelled": 10**6 + 1, "validation": 0, "classes": 2} | counts
    return make_plan(
        config,
        Counts(corpus=corpus, linear_tokens=within, **values),
        model_corpus=lambda has_pseudo_labels: corpus if has_pseudo_labels else with_labels,
    )


FEW = {"labelled": 100, "unlabelled": 50, "validation": 10}


@pytest.mark.parametrize(
    ("counts", "train", "linear_fit", "refits", "pseudo_labels"),
    [
        pytest.param({"validation": 10}, {}, "plain", True, False, id="many labels"),
        pytest.param({}, {}, "plain", False, False, id="nothing held out"),
        pytest.param(
            {"validation": 10, "is_multi_label": True},
            {},
            "plain",
            False,
            False,
            id="several labels",
        ),
        pytest.param(
            {"validation": 10, "classes": 100}, {}, "stream", False, False, id="much work"
        ),
        pytest.param(FEW, {}, "few_labels", True, True, id="few labels"),
        pytest.param(
            FEW | {"unlabelled": 0},
            {},
            "few_labels",
            True,
            False,
            id="few labels and no other text",
        ),
        pytest.param(
            FEW | {"is_multi_label": True},
            {},
            "plain",
            False,
            False,
            id="few texts of several labels",
        ),
        pytest.param(
            FEW, {"pseudo_labels": False}, "few_labels", True, False, id="no pseudo-labels wanted"
        ),
        pytest.param(
            FEW, {"refit_on_validation": False}, "few_labels", False, True, id="no refit wanted"
        ),
        pytest.param(FEW, NO_TECHNIQUES, "plain", True, False, id="no techniques wanted"),
    ],
)
def test_the_parts_of_a_run_are_decided_once(counts, train, linear_fit, refits, pseudo_labels):
    decided = plan(MOST_LINEAR_DETAIL, sections={"train": train}, **counts)
    found = (decided.linear_fit, decided.refits_on_validation, decided.has_pseudo_labels)
    assert found == (linear_fit, refits, pseudo_labels)
    assert decided.has_encoder
    alone = plan(
        MOST_LINEAR_DETAIL, sections={"train": train, "model": {"encoder": False}}, **counts
    )
    assert alone == replace(
        decided, pretraining=None, training=None, has_pseudo_labels=False, has_word_vectors=False
    )
    assert str(linear_fit) in str(decided)


@pytest.mark.parametrize(
    ("counts", "epochs", "parts"),
    [
        ({"unlabelled": 9}, "auto", (False, False)),
        ({"unlabelled": 10}, "auto", (False, True)),
        ({"unlabelled": 10, "has_base_encoder": True}, "auto", (False, False)),
        ({"unlabelled": 10}, 0, (False, False)),
        ({"unlabelled": 9}, 1, (True, False)),
    ],
)
def test_the_encoder_starts_from_word_vectors_where_most_texts_have_no_label(counts, epochs, parts):
    """Pretraining has to be asked for, and takes their place."""
    decided = plan(
        MANY,
        labelled=9,
        sections={"pretrain": {"epochs": epochs}, "model": {"encoder": True}},
        **counts,
    )
    assert (decided.pretraining is not None, decided.has_word_vectors) == parts
    assert ("word vectors" in str(decided)) == decided.has_word_vectors


@pytest.mark.parametrize(
    ("counts", "encoder", "is_trained"),
    [
        ({"labelled": 100, "unlabelled": 101}, "auto", False),
        ({"labelled": 100, "unlabelled": 101}, True, True),
        ({"labelled": 100, "unlabelled": 100}, "auto", True),
        ({"labelled": 2001, "unlabelled": 9000}, "auto", True),
        ({"labelled": 2001, "unlabelled": 0}, False, False),
    ],
)
def test_few_labels_among_many_texts_train_no_encoder_unless_it_is_asked_for(
    counts, encoder, is_trained
):
    assert plan(MANY, sections={"model": {"encoder": encoder}}, **counts).has_encoder == is_trained


@settings(max_examples=200, deadline=None, derandomize=True)
@given(
    num_tokens=st.integers(1, 10**11),
    num_classes=st.integers(2, 1000),
    steps_per_epoch=st.integers(1, 2000),
)
def test_automatic_lengths_stay_within_their_limits(num_tokens, num_classes, steps_per_epoch):
    """However much text there is: epochs within limits, repeated as often as the fewest steps need, never oftener."""
    decided = plan(num_tokens, classes=num_classes, steps_per_epoch=steps_per_epoch)
    by_labels = decided.training
    assert by_labels.epochs * steps_per_epoch >= FEWEST_STEPS
    repeated = (
        divmod(by_labels.epochs, epochs)
        for epochs in range(TRAINING_EPOCHS[0], TRAINING_EPOCHS[1] + 1)
    )
    assert any(
        rest == 0 and by_labels.epochs * (times - 1) / times * steps_per_epoch < FEWEST_STEPS
        for times, rest in repeated
    )


def test_epochs_fall_with_the_tokens():
    """Between the limits, four times the text is seen half as often."""
    assert [plan(size).training.epochs for size in (130_000, 200_000, 460_000, 6_000_000)] == [
        8,
        6,
        4,
        1,
    ]
    assert tuple(plan(size).training.epochs for size in (10**9, 1)) == TRAINING_EPOCHS
    assert {plan(size).training.validate_every for size in SIZES} == {MANY}


def test_short_epochs_are_repeated_between_validations():
    """Where an epoch is a few steps, as of a hundred texts, labels are still learned for hundreds."""
    assert plan(1000, steps_per_epoch=2).training == Schedule(
        epochs=8 * 19, steps_per_epoch=2, validate_every=19 * 2
    )


def test_what_is_learnt_from_labels_goes_by_the_texts_that_have_them():
    """Pretraining goes by all texts; the length of the rest and the linear model by the labelled ones."""
    few, many, once = 100_000, 10**9, {"pretrain": {"epochs": 1}}
    decided = plan(many, labelled_corpus=CorpusSize(few, 10), sections=once)
    assert decided == replace(
        plan(few, steps_per_epoch=10, sections=once), pretraining=decided.pretraining
    )
    assert decided.training.validate_every == 4 * 10
    assert decided.pretraining == Schedule(epochs=1, steps_per_epoch=MANY, validate_every=MANY)


WHOLE = 512 * KEPT_PER_TOKEN


@pytest.mark.parametrize(
    ("most", "tokens_of_text", "classes", "within", "beyond"),
    [
        pytest.param(
            MOST_LINEAR_DETAIL,
            512,
            2,
            ("plain", WHOLE, True),
            ("plain", WHOLE, False),
            id="letters",
        ),
        pytest.param(
            MOST_LINEAR_TEXT, 512, 2, ("plain", WHOLE, False), ("stream", WHOLE, False), id="memory"
        ),
        *(
            pytest.param(
                MOST_LINEAR_TEXT // part,
                10**4,
                2,
                ("plain", part * 512, False),
                ("plain", part * 256, False) if part > 1 else ("stream", 2048 * 2, False),
                id=f"memory, and texts are {part} times as long",
            )
            for part in (4, 2, 1)
        ),
        pytest.param(
            MOST_LINEAR_WORK // 50,
            10,
            50,
            ("plain", WHOLE, None),
            ("stream", WHOLE, False),
            id="minutes",
        ),
        pytest.param(
            MOST_STREAMED_TEXT, 512, 2, ("stream", WHOLE, False), ("stream", 512, False), id="disk"
        ),
        pytest.param(
            MOST_STREAMED_TEXT // 4,
            10**4,
            2,
            ("stream", 2048, False),
            ("stream", 1024, False),
            id="disk, long texts",
        ),
        pytest.param(
            MOST_STREAMED_WORK // 50, 10, 50, ("stream", None, False), None, id="many minutes"
        ),
    ],
)
def test_the_linear_classifier_reads_and_learns_as_memory_and_time_allow(
    most, tokens_of_text, classes, within, beyond
):
    """Whole texts or a part of them, never less than the encoder; at once, from a stream, or not at all."""
    for size, expected in ((most, within), (most + 1, beyond)):
        decided = plan(size, tokens_of_text=tokens_of_text, classes=classes)
        found = decided.linear and (decided.linear_fit, *decided.linear)
        assert (found is None) == (expected is None)
        assert all(want in (it, None) for it, want in zip(found or (), expected or (), strict=True))


def test_what_is_not_wanted_changes_nothing_else():
    """No linear model, which is not refitted either, and no word vectors, however little text there is."""
    for num_tokens in SIZES:
        whole = plan(num_tokens)
        assert plan(num_tokens, sections={"model": {"linear": False}}) == replace(
            whole, linear=None, linear_fit=None
        )
        assert plan(num_tokens, sections={"pretrain": {"epochs": 0}}) == replace(
            whole, has_word_vectors=False
        )
    without = plan(1000, sections={"model": {"linear": False}}, **FEW)
    assert (without.linear, without.linear_fit, without.refits_on_validation) == (None, None, False)


def test_without_an_encoder_too_much_text_is_refused():
    with pytest.raises(ConfigError, match=r"model\.encoder=false: there is too much text"):
        plan(MOST_STREAMED_WORK, sections={"model": {"encoder": False}})


@pytest.mark.parametrize("counts", [{"validation": 10}, FEW])
def test_a_validation_file_is_not_learned_from(counts):
    assert not plan(
        1000, sections={"data": {"train": "x", "validation": "y"}}, **counts
    ).refits_on_validation


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
    assert plan(**size, sections={"pretrain": by_words}) == replace(
        auto, pretraining=words, has_word_vectors=False
    )
    assert plan(**size, sections={"train": by_labels}) == replace(auto, training=labels)
    assert plan(**size, sections={"pretrain": by_words, "train": by_labels}) == replace(
        auto, pretraining=words, training=labels, has_word_vectors=False
    )


@pytest.mark.parametrize(
    ("whole", "of_pretraining", "spent", "seconds"),
    [
        pytest.param(None, None, 99, (None, None), id="no limit"),
        pytest.param("100s", None, 40, (20, 50), id="of the whole run"),
        pytest.param("100s", "5s", 40, (5, 50), id="a lower one of pretraining"),
        pytest.param("100s", 2, 40, (20, 50), id="a higher one of pretraining"),
        pytest.param(None, 2, 45, (120, None), id="of pretraining alone, in minutes"),
        pytest.param("100s", None, 200, (0, 0), id="nothing left"),
    ],
)
def test_each_stage_has_its_part_of_the_time(monkeypatch, whole, of_pretraining, spent, seconds):
    """What was spent before counts, a tenth is kept back, and most of the rest is for learning from labels."""
    monkeypatch.setattr(time_budget.time, "monotonic", lambda: 7.0)
    monkeypatch.setattr(time_budget, "PRETRAINING_SHARE", 0.4)
    sections = {"train": {"time_budget": whole}, "pretrain": {"time_budget": of_pretraining}}
    budget = TimeBudget(Config.model_validate({"name": "x", "data": {"train": "x"}} | sections))
    monkeypatch.setattr(time_budget.time, "monotonic", lambda: 7.0 + spent)
    found = (budget.seconds_for(pretraining=True), budget.seconds_for(pretraining=False))
    assert found == (seconds if None in seconds else pytest.approx(seconds))
