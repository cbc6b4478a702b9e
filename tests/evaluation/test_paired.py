"""Two classifiers on the same texts: the difference, how sure it is, and what is said of it."""

from __future__ import annotations

import numpy as np
import pytest
from sklearn.metrics import f1_score

from encoder_cls.evaluation.scores import compare_answers, comparison_lines, macro_f1_interval, paired_macro_f1_interval

LABELS = np.arange(200) % 3


def answers(right: int, *, skip: int = 0) -> np.ndarray:
    """Answers of which so many are right, from the text with this number on."""
    found = (LABELS + 1) % 3
    found[skip : skip + right] = LABELS[skip : skip + right]
    return found


def test_the_numbers_are_those_of_the_texts_on_which_one_is_right():
    """By hand: the other alone is right 20 times, the first 5; p of a fair coin that shows 5, or 20, or further out."""
    this, other = answers(100), answers(115, skip=5)
    found = compare_answers(LABELS, this, other, run="b")
    assert (found.only_this, found.only_other) == (5, 20)
    assert found.accuracy_difference == pytest.approx(15 / 200)
    assert found.scores.accuracy == pytest.approx(115 / 200)
    assert found.p_value == pytest.approx(2 * 68406 / 2**25)  # sum of C(25, k), k up to 5
    low, high = found.accuracy_difference_interval
    assert 0 < low < 15 / 200 < high
    assert found.is_sure
    of_both = [f1_score(LABELS, it, average="macro") for it in (this, other)]
    assert found.macro_f1_difference == pytest.approx(of_both[1] - of_both[0])
    low, high = found.macro_f1_difference_interval
    assert low < found.macro_f1_difference < high
    assert found.to_dict().keys() >= {
        "run",
        "accuracy",
        "accuracy_interval",
        "macro_f1",
        "accuracy_difference",
        "p_value",
    }


def test_what_is_said_follows_the_interval():
    """Better, worse, or no sure difference; a worse one has the signs of what it is worse by."""
    better, worse = (comparison_lines(compare_answers(LABELS, *pair, run="b"), name="b") for pair in (
        (answers(100), answers(115, skip=5)), (answers(115, skip=5), answers(100))
    ))  # fmt: skip
    assert better[0].startswith("b is better by 7.5 points of accuracy, 95% interval 2.")
    assert worse[0].startswith("b is worse by 7.5 points of accuracy, 95% interval 2.")
    assert "20 texts it alone gets right, 5 it alone gets wrong" in better[0]
    assert "p = 0.004" in better[0]
    assert better[1].startswith("b is better by ")
    unsure = comparison_lines(compare_answers(LABELS, answers(100), answers(101), run="b"), name="b")
    assert unsure[0].startswith("no sure difference: b is better by 0.5 points of accuracy, 95% interval -")
    same = comparison_lines(compare_answers(LABELS, answers(100), answers(100), run="b"), name="b")
    assert same[0].startswith("no sure difference: 0.0 points of accuracy, 95% interval -")
    assert "p = 1.000" in same[0]


def test_pairs_say_more_than_two_intervals():
    """The interval of a difference of like answers is narrower than either's own; of equal answers it is nothing."""
    random = np.random.default_rng(1)
    labels = random.integers(0, 4, size=400)
    first = np.where(random.random(400) < 0.3, random.integers(0, 4, size=400), labels)
    second = np.where(random.random(400) < 0.03, labels, first)
    low, high = paired_macro_f1_interval(labels, second, first)
    own_low, own_high = macro_f1_interval(labels, first)
    assert high - low < (own_high - own_low) / 2
    assert paired_macro_f1_interval(labels, first, first) == (0, 0)
    swapped = paired_macro_f1_interval(labels, first, second)
    assert swapped == pytest.approx((-high, -low), abs=0.003)
