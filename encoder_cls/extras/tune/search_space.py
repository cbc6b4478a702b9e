"""The search space: the values that a search tries for each setting."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from optuna.trial import Trial

from encoder_cls import Config, config_of
from encoder_cls.errors import ConfigError

# The settings to search by default, as the section `tune` of a config.
DEFAULT_SPACE: dict[str, Any] = {
    "train.learning_rate": {"low": 3e-4, "high": 3e-3, "log": True},
    "train.batch_size": [32, 64, 128],
    "train.word_dropout": {"low": 0.0, "high": 0.5},
    "train.rdrop_weight": [0.0, 1.0, 3.0],
    "model.dropout": {"low": 0.0, "high": 0.3},
}

# The values to search of each setting, by its key: a tuple of values, or a range, which has `low`,
# `high` and `log`.
Space = dict[str, Any]


def search_space(config: Config) -> Space:
    """The values to search; the config's own value is added to a list.

    Raises:
        ConfigError: a key cannot be searched, or a value does not fit.
    """
    if not config.tune:
        config = config_of({"tune": DEFAULT_SPACE}, base=config)

    space: Space = {}
    for key, choices in config.tune.items():
        own_value = _own_value(config, key)
        if isinstance(choices, tuple):
            space[key] = choices if own_value in choices else (own_value, *choices)
            _check_values(config, key, space[key])
        elif isinstance(own_value, int | float):
            # The first trial has the own value, even where that is outside of the range.
            space[key] = choices
            _check_values(config, key, (choices.low, choices.high))
        else:
            raise ConfigError(
                f"tune.{key}: a range is for numbers, but the config has the value {own_value!r}; "
                "name a list of values"
            )
    return space


def own_values(config: Config, space: Space) -> dict[str, Any]:
    """The config's values for a space."""
    return {key: _own_value(config, key) for key in space}


def _own_value(config: Config, key: str) -> Any:
    value: Any = config.model_dump(mode="json", exclude={"data", "tune"})
    for name in key.split("."):
        value = value.get(name, {}) if isinstance(value, dict) else {}

    if isinstance(value, dict):
        raise ConfigError(
            f"tune.{key}: not a setting that can be searched; name one as section.key, such as "
            "train.learning_rate"
        )
    return value


def _check_values(config: Config, key: str, values: Iterable[Any]) -> None:
    for value in values:
        config_of({key: value}, base=config, source=f"tune.{key}")


def suggested_values(trial: Trial, space: Space) -> dict[str, Any]:
    """Let Optuna choose the values of a trial."""
    return {key: _suggested_value(trial, key, choices) for key, choices in space.items()}


def _suggested_value(trial: Trial, key: str, choices: Any) -> Any:
    if isinstance(choices, tuple):
        return trial.suggest_categorical(key, choices)
    if isinstance(choices.low, int) and isinstance(choices.high, int):
        return trial.suggest_int(key, choices.low, choices.high, log=choices.log)
    return trial.suggest_float(key, choices.low, choices.high, log=choices.log)
