"""The search space: the values that a search tries for each setting."""

from __future__ import annotations

import pytest

from encoder_cls.config.schema import Config, DataConfig, SearchRange, TrainConfig
from encoder_cls.errors import ConfigError
from encoder_cls.tuning.search_space import DEFAULT_SPACE, search_space


def test_the_space_holds_the_configs_own_values():
    config = Config(name="run", data=DataConfig(train="train.csv"))
    assert search_space(config) == DEFAULT_SPACE

    other_values = TrainConfig(learning_rate=0.02, batch_size=8)
    space = search_space(config.model_copy(update={"train": other_values}))
    assert space["train.learning_rate"].high == 0.003  # a range stays as it is
    assert space["train.batch_size"] == (8, 32, 64, 128)


@pytest.mark.parametrize(
    ("space", "message"),
    [
        ({"train.lerning_rate": (1e-3,)}, r"tune\.train\.lerning_rate: not a setting"),
        ({"data.train": ("a.csv",)}, r"tune\.data\.train: not a setting"),
        ({"train.batch_size": (0,)}, r"tune\.train\.batch_size: train\.batch_size"),
        (
            {"train.epochs": SearchRange(low=1, high=2_000_000)},
            r"tune\.train\.epochs: a range is for numbers",
        ),
        (
            {"train.gradient_shards": SearchRange(low=1, high=2_000_000)},
            r"tune\.train\.gradient_shards: train\.gradient_shards: .*1024",
        ),
        ({"model.norm": SearchRange(low=0, high=1)}, r"tune\.model\.norm: a range is for numbers"),
    ],
)
def test_a_space_that_cannot_be_searched_is_refused(space, message):
    config = Config(name="run", data=DataConfig(train="train.csv"), tune=space)
    with pytest.raises(ConfigError, match=message):
        search_space(config)
