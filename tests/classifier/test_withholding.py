"""What is withheld of a prediction: labels, or all of a text, by thresholds."""

from __future__ import annotations

import pytest

from encoder_cls.classifier.prediction import Prediction
from encoder_cls.classifier.withholding import Withholding

PROBABILITIES = {"a": 0.9, "b": 0.6, "c": 0.2}


def predicted(labels: tuple[str, ...] | None, *, probability_of_all: float = 0.5) -> Prediction:
    """A prediction of these labels; None is that of a single-label task."""
    return Prediction(
        label="a",
        probability=0.9,
        probabilities=PROBABILITIES,
        truncated=False,
        unknown_words=0,
        labels=labels,
        prediction_probability=0.9 if labels is None else probability_of_all,
    )


ONE = predicted(None)
SEVERAL = predicted(("a", "b"))


@pytest.mark.parametrize(
    ("thresholds", "kept", "withheld"),
    [
        ({}, ("a",), ()),
        ({"threshold": 0.9}, ("a",), ()),
        ({"threshold": 0.91}, (), ("a",)),
        ({"label_thresholds": {"a": 0.95, "b": 0.1}}, (), ("a",)),
        ({"text_threshold": 0.95}, (), ("a",)),
        ({"set_threshold": 0.95}, ("a",), ()),
    ],
)
def test_a_single_label_is_withheld_below_any_threshold(thresholds, kept, withheld):
    answer = Withholding(**thresholds).answer(ONE)

    assert answer == (kept, withheld, bool(withheld))


@pytest.mark.parametrize(
    ("thresholds", "kept", "withheld"),
    [
        ({}, ("a", "b"), ()),
        # This threshold is in place of those of the model, so nothing counts as withheld.
        ({"threshold": 0.0}, ("a", "b", "c"), ()),
        ({"threshold": 0.7}, ("a",), ()),
        # A label without a threshold is withheld.
        ({"label_thresholds": {"a": 0.9}}, ("a",), ("b",)),
        ({"text_threshold": 0.5}, ("a", "b"), ()),
        ({"text_threshold": 0.51}, (), ("a", "b")),
    ],
)
def test_labels_are_withheld_below_their_threshold_or_that_of_the_text(thresholds, kept, withheld):
    answer = Withholding(**thresholds).answer(SEVERAL)

    assert answer == (kept, withheld, bool(withheld))


def test_that_a_text_has_no_label_can_be_withheld():
    without_labels = predicted(())

    assert Withholding(text_threshold=0.6).answer(without_labels).is_withheld
    assert not Withholding(text_threshold=0.5).answer(without_labels).is_withheld
    assert not Withholding(label_thresholds={}).answer(without_labels).is_withheld


@pytest.mark.parametrize("prediction", [ONE, SEVERAL])
@pytest.mark.parametrize("thresholds", [{}, {"threshold": 0.0}, {"text_threshold": 0.9}])
def test_a_blank_text_has_no_labels_of_which_any_is_withheld(prediction, thresholds):
    labels = None if prediction.labels is None else ()
    blank = prediction._replace(label=None, probability=None, labels=labels, reason="blank")

    assert Withholding(**thresholds).answer(blank) == ((), (), False)


def test_no_threshold_hides_another():
    with pytest.raises(ValueError, match="give one of them"):
        Withholding(threshold=0.5, text_threshold=0.5)
