"""The search space: the values that a search tries for each setting."""

from __future__ import annotations

from collections.abc import Mapping

import pytest

from encoder_cls import Config, config_of
from encoder_cls.errors import ConfigError
from encoder_cls.extras.tune.search_space import DEFAULT_SPACE, search_space


def config_with(values: Mapping[str, object] | None = None) -> Config:
    return config_of({"name": "run", "data.train": "train.csv", **(values or {})})


def test_the_space_holds_the_configs_own_values():
    assert search_space(config_with()).keys() == DEFAULT_SPACE.keys()

    space = search_space(config_with({"train.learning_rate": 0.02, "train.batch_size": 8}))
    assert space["train.learning_rate"].high == 0.003  # a range stays as it is
    assert space["train.batch_size"] == (8, 32, 64, 128)


@pytest.mark.parametrize(
    ("space", "message"),
    [
        ({"train.lerning_rate": [1e-3]}, r"tune\.train\.lerning_rate: not a setting"),
        ({"data.train": ["a.csv"]}, r"tune\.data\.train: not a setting"),
        ({"train.batch_size": [0]}, r"tune\.train\.batch_size: train\.batch_size"),
        (
            {"train.epochs": {"low": 1, "high": 2_000_000}},
            r"tune\.train\.epochs: a range is for numbers",
        ),
        (
            {"train.gradient_shards": {"low": 1, "high": 2_000_000}},
            r"tune\.train\.gradient_shards: train\.gradient_shards: .*1024",
        ),
        ({"model.norm": {"low": 0, "high": 1}}, r"tune\.model\.norm: a range is for numbers"),
    ],
)
def test_a_space_that_cannot_be_searched_is_refused(space, message):
    with pytest.raises(ConfigError, match=message):
        search_space(config_with({"tune": space}))
