"""Which of two validations has the better score."""

from __future__ import annotations

from encoder_cls.metrics.validation_score import ValidationScore


def score(
    monitored: float, *, is_sure: bool = True, loss: float = 1.0, lower_is_better: bool = False
) -> ValidationScore:
    return ValidationScore(
        is_sure=is_sure, monitored=monitored, loss=loss, lower_is_better=lower_is_better
    )


def test_any_score_is_better_than_none():
    assert score(0.0, is_sure=False).is_better_than(None)


def test_a_monitored_score_is_better_if_it_is_higher_or_as_a_loss_lower():
    assert score(0.9).is_better_than(score(0.8))
    assert not score(0.8).is_better_than(score(0.9))

    assert score(0.8, lower_is_better=True).is_better_than(score(0.9, lower_is_better=True))
    assert not score(0.9, lower_is_better=True).is_better_than(score(0.8, lower_is_better=True))


def test_of_equal_scores_the_one_with_the_lower_loss_is_better():
    """Equal scores are frequent with few texts. With equal losses, too, neither is better."""
    assert score(0.9, loss=0.3).is_better_than(score(0.9, loss=0.4))
    assert not score(0.9, loss=0.4).is_better_than(score(0.9, loss=0.3))
    assert not score(0.9, loss=0.3).is_better_than(score(0.9, loss=0.3))


def test_an_encoder_that_surely_helps_is_better_than_one_that_may_not():
    """Its monitored score and its loss do not matter then."""
    sure = score(0.8, is_sure=True, loss=2.0)
    unsure = score(0.9, is_sure=False, loss=0.1)

    assert sure.is_better_than(unsure)
    assert not unsure.is_better_than(sure)
