"""How long to train and with how many teachers: decided from the amount of text, unless set."""

from __future__ import annotations

import itertools

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from encoder_cls.config import Config
from encoder_cls.recipe import (
    FEWEST_LABEL_STEPS,
    FEWEST_STEPS,
    LABEL_PASSES,
    MOST_LINEAR_TEXT,
    MOST_LINEAR_WORK,
    MUCH_SPELLING,
    MUCH_TEXT,
    PASSES,
    STEPS_BETWEEN_VALIDATIONS,
    Amount,
    Length,
    Recipe,
    decide,
)

SIZES = [1, 100, 20_000, 100_000, 300_000, 1_000_000, 1_000_001, 3_000_000, 3_000_001, 10**7, 10**8, 10**10]
MANY = 1000  # steps a pass: so many that no pass has to be repeated


def recipe(num_tokens: int, *, num_classes: int = 2, steps_per_epoch: int = MANY, **sections: object) -> Recipe:
    config = Config.model_validate({"name": "x", "data": {"train": "x"}, **sections})
    amount = Amount(num_tokens, steps_per_epoch)
    return decide(config, texts=amount, labelled=amount, num_classes=num_classes)


def test_more_text_is_never_seen_more_often_nor_by_more_teachers():
    """Every number falls or stays as the text grows, and some fall."""
    for less, more in itertools.pairwise([recipe(size) for size in SIZES]):
        assert more.length.epochs <= less.length.epochs
        assert more.teacher_length.epochs <= less.teacher_length.epochs
        assert more.teachers <= less.teachers
        assert more.char_ngrams <= less.char_ngrams
        assert more.linear <= less.linear
    smallest, largest = recipe(SIZES[0]), recipe(SIZES[-1])
    assert largest.length.epochs < smallest.length.epochs
    assert largest.teacher_length.epochs < smallest.teacher_length.epochs


@settings(max_examples=200, deadline=None, derandomize=True)
@given(
    num_tokens=st.integers(1, 10**11),
    num_classes=st.integers(2, 1000),
    steps_per_epoch=st.integers(1, 2000),
    teachers=st.integers(0, 2),
)
def test_automatic_lengths_stay_within_their_limits(num_tokens, num_classes, steps_per_epoch, teachers):
    """However much text there is: passes within limits, repeated as often as the fewest steps need, never oftener."""
    decided = recipe(
        num_tokens,
        num_classes=num_classes,
        steps_per_epoch=steps_per_epoch,
        distillation={"teachers": teachers},
    )
    by_labels = (decided.teacher_length, LABEL_PASSES, FEWEST_LABEL_STEPS)
    by_teachers = (decided.length, PASSES, FEWEST_STEPS)
    for length, limits, fewest in (by_labels, by_teachers if decided.distils else (decided.length, *by_labels[1:])):
        assert length.epochs * steps_per_epoch >= fewest
        repeated = (divmod(length.epochs, passes) for passes in range(limits[0], limits[1] + 1))
        assert any(
            rest == 0 and length.epochs * (times - 1) / times * steps_per_epoch < fewest for times, rest in repeated
        )


@settings(max_examples=100, deadline=None, derandomize=True)
@given(num_tokens=st.integers(1, 10**11), steps_per_epoch=st.integers(1, 2000), teachers=st.integers(0, 2))
def test_validations_are_no_more_than_worthwhile(num_tokens, steps_per_epoch, teachers):
    """One a pass where labels may be learnt by heart; elsewhere whole passes of so many steps together, and no more."""
    decided = recipe(num_tokens, steps_per_epoch=steps_per_epoch, distillation={"teachers": teachers})
    for length in (decided.pretraining, decided.length) if decided.distils else (decided.pretraining,):
        assert length.epochs_between_validations * steps_per_epoch >= STEPS_BETWEEN_VALIDATIONS
        assert (length.epochs_between_validations - 1) * steps_per_epoch < STEPS_BETWEEN_VALIDATIONS
    by_labels = decided.teacher_length
    assert by_labels.epochs % by_labels.epochs_between_validations == 0
    assert by_labels.epochs_between_validations == 1 or LABEL_PASSES[0] * steps_per_epoch < FEWEST_LABEL_STEPS


def test_passes_fall_with_the_square_root_of_the_tokens():
    """Between the limits, four times the text is seen half as often."""
    assert [recipe(size).length.epochs for size in (250_000, 1_000_000, 4_000_000)] == [24, 12, 6]
    assert [recipe(size).teacher_length.epochs for size in (1, 200_000, 10**9)] == [8, 6, 4]
    assert (recipe(10**9).length.epochs, recipe(1).length.epochs) == PASSES
    assert {recipe(size).length.epochs_between_validations for size in SIZES} == {1}


def test_short_passes_are_repeated_between_validations():
    """Where a pass is a few steps, as of a hundred texts, the model still takes a thousand."""
    tiny = recipe(1000, steps_per_epoch=2)
    assert tiny.length == Length(epochs=40 * 18, epochs_between_validations=150)
    assert tiny.teacher_length == Length(epochs=8 * 19, epochs_between_validations=19)


def test_teachers_are_fewer_where_there_is_much_text():
    """Three encoders up to `MUCH_TEXT`, then two."""
    assert [recipe(size).teachers for size in (1, MUCH_TEXT, MUCH_TEXT + 1, 10**10)] == [3, 3, 2, 2]


def test_the_linear_teacher_looks_at_letters_where_memory_allows():
    """Up to `MUCH_SPELLING` tokens."""
    assert recipe(MUCH_SPELLING).char_ngrams
    assert not recipe(MUCH_SPELLING + 1).char_ngrams


def test_there_is_no_linear_teacher_where_it_would_take_much_memory():
    """Which grows with the tokens, however few the classes."""
    assert recipe(MOST_LINEAR_TEXT, num_classes=2).linear
    assert not recipe(MOST_LINEAR_TEXT + 1, num_classes=2).linear


@pytest.mark.parametrize("num_classes", [20, 50, 1000])
def test_there_is_no_linear_teacher_where_it_would_take_minutes(num_classes):
    """Its time is that of tokens times classes."""
    most = MOST_LINEAR_WORK // num_classes
    assert recipe(most, num_classes=num_classes).linear
    assert not recipe(most + 1, num_classes=num_classes).linear
    assert not recipe(1, distillation={"linear": False}).linear


@settings(max_examples=60, deadline=None, derandomize=True)
@given(
    num_tokens=st.sampled_from(SIZES),
    steps_per_epoch=st.sampled_from([1, 30, MANY]),
    teachers=st.integers(0, 9),
    teacher_epochs=st.integers(1, 99),
    epochs=st.integers(1, 99),
)
def test_what_is_set_is_what_is_done(num_tokens, steps_per_epoch, teachers, teacher_epochs, epochs):
    """Numbers in the config win over the data, also outside of the limits of `auto`, and each for itself."""
    distillation = {"teachers": teachers, "epochs": teacher_epochs}
    size = {"num_tokens": num_tokens, "steps_per_epoch": steps_per_epoch}
    decided = recipe(**size, train={"epochs": epochs}, distillation=distillation)
    assert decided.teachers == teachers
    assert decided.teacher_length == Length(epochs=teacher_epochs)
    assert decided.length == Length(epochs=epochs)
    auto = recipe(**size, distillation={"teachers": teachers})
    assert recipe(**size, distillation=distillation).length == auto.length
    assert recipe(**size, train={"epochs": epochs}).teacher_length == auto.teacher_length


@pytest.mark.parametrize("steps_per_epoch", [1, MANY])
@pytest.mark.parametrize("num_tokens", SIZES)
def test_without_any_teacher_the_model_is_trained_as_a_teacher_is(num_tokens, steps_per_epoch):
    """No encoders and no linear model: it learns from labels, for as few passes as a teacher."""
    size = {"num_tokens": num_tokens, "steps_per_epoch": steps_per_epoch}
    alone = recipe(**size, distillation={"teachers": 0, "linear": False})
    assert not alone.distils
    assert alone.length == alone.teacher_length == recipe(**size).teacher_length


def test_without_encoders_the_linear_model_is_teacher_enough_unless_it_is_left_out():
    """The passes are those of distillation as long as there is a teacher, and those of labels when it is too big."""
    with_linear = recipe(100_000, distillation={"teachers": 0})
    assert with_linear.distils
    assert with_linear.length == recipe(100_000).length != with_linear.teacher_length
    left_out = recipe(100_000, num_classes=10_000, distillation={"teachers": 0})
    assert not left_out.linear
    assert not left_out.distils
    assert left_out.length == left_out.teacher_length
    assert recipe(100_000, distillation={"teachers": 1, "linear": False}).distils
