"""What of the time of a run its stages may take, by a clock that stands still."""

from __future__ import annotations

import pytest

from encoder_cls.config import Config
from encoder_cls.training import plan as time_budget
from encoder_cls.training.plan import TimeBudget


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
    config = Config.model_validate(
        {
            "name": "test",
            "data": {"train": "texts.csv"},
            "train": {"time_budget": whole},
            "pretrain": {"time_budget": of_pretraining},
        }
    )
    budget = TimeBudget(config)
    monkeypatch.setattr(time_budget.time, "monotonic", lambda: 7.0 + spent)
    found = (budget.seconds_for(pretraining=True), budget.seconds_for(pretraining=False))
    assert found == (seconds if None in seconds else pytest.approx(seconds))
