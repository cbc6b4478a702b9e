"""Guarantees: the guaranteed precision and coverage hold on new texts."""

from __future__ import annotations

import numpy as np
import pytest
from scipy.stats import binomtest

from encoder_cls.classifier.guarantees import THRESHOLDS, Guarantees
from encoder_cls.data.codes import Codes
from encoder_cls.metrics.row_groups import RowGroups


def draw(random, texts: int) -> tuple[np.ndarray, np.ndarray]:
    """Draw probabilities of three classes, and labels that are distributed according to them."""
    probabilities = random.dirichlet([0.3, 0.3, 0.3], size=texts)
    labels = (probabilities.cumsum(axis=1) < random.random((texts, 1))).sum(axis=1)
    return probabilities, np.minimum(labels, 2)


def test_a_guarantee_fails_for_one_model_in_ten_at_most():
    """Many texts show the true precision. Without a test, half of the guarantees would fail."""
    random = np.random.default_rng(0)
    many = Guarantees.of(*draw(random, 200_000), groups=RowGroups.single(200_000))
    precision = dict(zip(THRESHOLDS, many.num_correct / many.num_confident, strict=True))

    num_guaranteed = 0
    num_broken = 0
    num_broken_without_bound = 0
    for _ in range(300):
        guarantees = Guarantees.of(*draw(random, 400), groups=RowGroups.single(400))
        threshold = guarantees.precision_threshold(0.9)
        if threshold is not None:
            num_guaranteed += 1
            num_broken += precision[threshold] < 0.9

        reached = np.flatnonzero(guarantees.num_correct >= 0.9 * guarantees.num_confident)
        num_broken_without_bound += precision[THRESHOLDS[reached[0]]] < 0.9

    standard_error = (0.1 * 0.9 / 300) ** 0.5
    assert num_broken <= 300 * (0.1 + 3 * standard_error)
    assert num_broken_without_bound > 100
    assert num_guaranteed > 200


@pytest.mark.parametrize("sharpness", [pytest.param(1, marks=pytest.mark.slow), 2])
def test_answers_with_back_off_fail_for_one_model_in_ten_at_most(sharpness):
    """All answers together have the precision, though probabilities may be far too high."""
    random = np.random.default_rng(0)
    codes = Codes(["11", "12", "21", "22", "31", "32"], (1, 2))

    def draw_codes(texts: int) -> tuple[np.ndarray, np.ndarray]:
        above = random.dirichlet([0.2] * 3, size=texts)
        within = random.dirichlet([0.5] * 2, size=(texts, 3))
        of_classes = (above[:, :, None] * within).reshape(texts, 6)
        labels = (of_classes.cumsum(axis=1) < random.random((texts, 1))).sum(axis=1)
        reported = of_classes**sharpness
        return reported / reported.sum(axis=1, keepdims=True), np.minimum(labels, 5)

    def count(texts: int) -> Guarantees:
        drawn = draw_codes(texts)
        groups = RowGroups.single(texts)
        return Guarantees.of(*drawn, groups=groups).with_levels(*drawn, codes, groups=groups)

    many = count(100_000)
    true = many.back_off.num_correct / np.maximum(1, many.back_off.num_confident)
    precision = dict(zip(THRESHOLDS, true, strict=True))
    num_guaranteed = 0
    num_broken = 0
    for _ in range(100):
        threshold = count(400).back_off.precision_threshold(0.9)
        if threshold is not None:
            num_guaranteed += 1
            num_broken += precision[threshold] < 0.9

    assert num_guaranteed > 60
    assert num_broken <= 10 + 3 * 3


def test_sets_have_the_label_as_often_as_guaranteed():
    """Over many samples, the mean coverage is the guaranteed one, and hardly more."""
    random = np.random.default_rng(1)
    many, labels = draw(random, 20_000)
    label_probabilities = many[np.arange(len(labels)), labels]

    coverages = []
    for _ in range(200):
        threshold = Guarantees.of(
            *draw(random, 99), groups=RowGroups.single(99)
        ).coverage_threshold(0.9)
        assert threshold is not None
        coverages.append((label_probabilities >= threshold).mean())
    assert 0.895 < np.mean(coverages) < 0.925


def test_few_texts_cannot_guarantee_a_high_coverage():
    few = Guarantees.of(*draw(np.random.default_rng(1), 9), groups=RowGroups.single(9))

    assert few.coverage_threshold(0.9) is not None
    assert few.coverage_threshold(0.91) is None
    assert few.highest_coverage == 0.9


def test_few_texts_guarantee_little():
    sure = np.tile([0.9, 0.1], (10, 1))

    guarantees = Guarantees.of(sure, np.zeros(10, dtype=int), groups=RowGroups.single(10))

    assert guarantees.precision_threshold(0.95) is None
    assert guarantees.highest_precision == pytest.approx(0.1**0.1, abs=0.001)
    assert guarantees.precision_threshold(guarantees.highest_precision) is not None


def test_wrong_predictions_guarantee_nothing():
    sure = np.tile([0.9, 0.1], (10, 1))

    wrong = Guarantees.of(sure, np.ones(10, dtype=int), groups=RowGroups.single(10))

    assert wrong.highest_precision == 0
    assert wrong.precision_threshold(0.5) is None


def test_a_label_that_training_never_shows_is_not_right_and_in_no_set():
    """Five of 100 texts have such a label, so at most 95 can be correct or covered."""
    labels = np.arange(100) % 2
    probabilities = np.where(np.arange(2) == labels[:, None], 0.99, 0.01)
    labels[:5] = 2

    guarantees = Guarantees.from_json(
        Guarantees.of(probabilities, labels, groups=RowGroups.single(len(labels))).to_json()
    )

    assert guarantees.num_texts == 100
    assert guarantees.num_correct[0] == 95
    assert guarantees.num_covered[0] == 95
    assert guarantees.precision_threshold(0.95) is None
    assert guarantees.coverage_threshold(0.94) is not None
    assert guarantees.coverage_threshold(0.95) is None
    assert guarantees.highest_coverage == 0.94


def test_one_wrong_label_among_the_surest_predictions_does_not_prevent_a_guarantee():
    confidence = np.linspace(0.999, 0.6, 2000)
    probabilities = np.stack([confidence, 1 - confidence], axis=1)
    labels = np.zeros(2000, dtype=int)
    labels[:3] = 1

    threshold = Guarantees.of(
        probabilities, labels, groups=RowGroups.single(len(labels))
    ).precision_threshold(0.98)

    assert threshold is not None
    assert threshold <= 0.6


def test_several_sequences_of_tests_share_the_permitted_error():
    """Four of them test a thousand predictions of one probability, so each may err less often."""

    def threshold(num_correct: int) -> float | None:
        labels = (np.arange(1000) >= num_correct).astype(int)
        probabilities = np.tile([0.9, 0.1], (1000, 1))
        guarantees = Guarantees.of(probabilities, labels, groups=RowGroups.single(1000))
        return guarantees.precision_threshold(0.8)

    assert 0.1 / 4 < binomtest(819, 1000, 0.8, alternative="greater").pvalue < 0.1
    assert threshold(819) is None
    assert binomtest(830, 1000, 0.8, alternative="greater").pvalue < 0.1 / 4
    assert threshold(830) is not None


def test_certainty_is_not_guaranteed():
    guarantees = Guarantees.of(*draw(np.random.default_rng(2), 400), groups=RowGroups.single(400))

    assert guarantees.precision_threshold(1.0) is None
    assert guarantees.coverage_threshold(1.0) is None


SAVED = Guarantees.of(*draw(np.random.default_rng(3), 50), groups=RowGroups.single(50)).to_json()
NUM_THRESHOLDS = len(THRESHOLDS)


@pytest.mark.parametrize(
    ("damaged", "message"),
    [
        ({"num_correct": SAVED["num_confident"][:-1]}, r"guarantees\.num_correct: .*whole numbers"),
        ({"num_correct": SAVED["num_covered"][::-1]}, r"guarantees\.num_correct: .*increasing"),
        (
            {"num_correct": [count + 1 for count in SAVED["num_confident"]]},
            r"guarantees\.num_correct: more texts than guarantees\.num_confident",
        ),
        (
            {"num_correct": SAVED["num_confident"], "num_covered": [1] * NUM_THRESHOLDS},
            r"guarantees\.num_correct: more texts than guarantees\.num_covered",
        ),
        ({"num_confident": [0.5] * NUM_THRESHOLDS}, r"guarantees\.num_confident: .*whole numbers"),
        ({"num_confident": [-1] * NUM_THRESHOLDS}, r"guarantees\.num_confident: .*counts"),
        ({"num_confident": [0] * NUM_THRESHOLDS}, r"guarantees\.num_confident: no text"),
        (
            {"num_covered": [count + 1 for count in SAVED["num_covered"]]},
            r"guarantees\.num_covered: more texts than there are",
        ),
        ({"more": []}, r"guarantees: unknown keys"),
    ],
    ids=range(9),
)
def test_counts_that_contradict_each_other_are_refused(damaged, message):
    with pytest.raises(ValueError, match=message):
        Guarantees.from_json(SAVED | damaged)


def test_saved_counts_are_read():
    assert Guarantees.from_json(SAVED).to_json() == SAVED


def draw_several(random, texts: int) -> tuple[np.ndarray, np.ndarray]:
    """Draw probabilities of four labels, and labels that are distributed according to them."""
    probabilities = random.beta(0.3, [0.6, 0.6, 2.0, 8.0], size=(texts, 4))
    return probabilities, random.random((texts, 4)) < probabilities


SEVERAL_THRESHOLDS = (0.5, 0.4, 0.3, 0.2)


def test_guarantees_of_labels_and_of_whole_texts_fail_for_one_model_in_ten_at_most():
    random = np.random.default_rng(0)
    many = Guarantees.of(
        *draw_several(random, 100_000), SEVERAL_THRESHOLDS, groups=RowGroups.single(100_000)
    )
    counts_of_all = [*many.labels, many]
    num_guaranteed = np.zeros(5)
    num_broken = np.zeros(5)
    for _ in range(200):
        found = Guarantees.of(
            *draw_several(random, 600), SEVERAL_THRESHOLDS, groups=RowGroups.single(600)
        )
        for number, counts in enumerate([*found.labels, found]):
            threshold = counts.precision_threshold(0.8)
            if threshold is not None:
                place = np.flatnonzero(threshold == THRESHOLDS)[0]
                true_counts = counts_of_all[number]
                precision = true_counts.num_correct[place] / true_counts.num_confident[place]
                num_guaranteed[number] += 1
                num_broken[number] += precision < 0.8

    standard_error = (0.1 * 0.9 / 200) ** 0.5
    assert (num_broken <= 200 * (0.1 + 3 * standard_error)).all()
    assert (num_guaranteed[[0, 1, 4]] > 150).all()


def test_only_the_texts_that_get_a_label_count_for_it():
    """A text is correct with exactly its labels; a label without a column is in no set."""
    probabilities = np.array([[0.9, 0.2], [0.8, 0.6], [0.3, 0.1]])
    labels = np.array([[1, 0, 0], [0, 1, 0], [0, 0, 1]])

    guarantees = Guarantees.of(
        probabilities, labels, (0.5, 0.5), groups=RowGroups.single(len(labels))
    )

    first, second = guarantees.labels
    assert (first.num_texts, first.num_correct[0]) == (2, 1)
    assert (second.num_texts, second.num_correct[0]) == (1, 1)
    assert guarantees.num_texts == 3
    assert guarantees.num_correct[0] == 1
    assert guarantees.num_covered[0] == 2

    saved = guarantees.to_json()
    assert Guarantees.from_json(saved).to_json() == saved


def test_a_label_that_no_text_gets_cannot_be_guaranteed():
    probabilities = np.full((50, 1), 0.1)
    labels = np.zeros((50, 1))
    guarantees = Guarantees.of(probabilities, labels, (0.5,), groups=RowGroups.single(len(labels)))
    assert guarantees.labels[0].highest_precision == 0
    assert guarantees.labels[0].precision_threshold(0.5) is None


def test_copies_of_a_held_out_text_count_once():
    """A precision that is guaranteed with twenty copies of each text is that of one of each."""
    probabilities, labels = draw(np.random.default_rng(5), 60)
    once = Guarantees.of(probabilities, labels, groups=RowGroups.single(60))

    copies = RowGroups(np.repeat(np.arange(60), 20))
    copied = Guarantees.of(
        np.repeat(probabilities, 20, axis=0), np.repeat(labels, 20), groups=copies
    )

    assert copied.to_json() == once.to_json()


def test_large_groups_of_mistakes_are_not_outweighed_by_small_groups():
    """One customer sends half of the texts, and most of them are predicted wrongly."""
    groups = RowGroups(np.repeat(np.arange(201), [200, *[1] * 200]))
    labels = np.zeros(400, dtype=int)
    labels[:160] = 1
    probabilities = np.tile([0.9, 0.1], (400, 1))

    guarantees = Guarantees.of(probabilities, labels, groups=groups)

    assert guarantees.num_texts < 210
    assert guarantees.highest_precision < 240 / 400
