"""The search space: the values that a search tries for each setting."""

from __future__ import annotations

from typing import Any

from optuna.trial import Trial

from encoder_cls.config.changed_keys import dotted_values
from encoder_cls.config.loading import config_of
from encoder_cls.config.schema import Config, SearchRange
from encoder_cls.errors import ConfigError

# The values of a setting to search: a range of numbers, or a list of values.
Choices = SearchRange | tuple[Any, ...]

# The settings to search by default, by config key.
DEFAULT_SPACE: dict[str, Choices] = {
    "train.learning_rate": SearchRange(low=3e-4, high=3e-3, log=True),
    "train.batch_size": (32, 64, 128),
    "train.word_dropout": SearchRange(low=0.0, high=0.5),
    "train.rdrop_weight": (0.0, 1.0, 3.0),
    "model.dropout": SearchRange(low=0.0, high=0.3),
}


def search_space(config: Config) -> dict[str, Choices]:
    """Return the values to search for each setting, by config key.

    A list of values always includes the value that the config has for the setting.

    Raises:
        ConfigError: a key is not a setting that can be searched, or a value does not fit the
            config.
    """
    own_values = dotted_values(config)
    space: dict[str, Choices] = {}
    for key, choices in (config.tune or DEFAULT_SPACE).items():
        is_searchable = key in own_values and not key.startswith(("data.", "tune."))
        if not is_searchable:
            raise ConfigError(
                f"tune.{key}: not a setting that can be searched; name one as section.key, such as "
                "train.learning_rate"
            )

        space[key] = _with_own_value(key, choices, own_values[key])
        for value in _values_to_check(space[key]):
            config_of({key: value}, source=f"tune.{key}", base=config)
    return space


def _with_own_value(key: str, choices: Choices, own_value: Any) -> Choices:
    """Add the value that the config has for a setting to a list of values to search.

    A range stays as it is: the first trial has the own value, even where it is outside. A range for
    a setting that is not a number is a `ConfigError`.
    """
    if not isinstance(choices, SearchRange):
        if own_value in choices:
            return choices
        return (own_value, *choices)

    if not isinstance(own_value, int | float):
        raise ConfigError(
            f"tune.{key}: a range is for numbers, but the config has the value {own_value!r}; "
            "name a list of values"
        )
    return choices


def _values_to_check(choices: Choices) -> tuple[Any, ...]:
    """All values of a list, or both ends of a range."""
    if isinstance(choices, SearchRange):
        return (choices.low, choices.high)
    return choices


def suggested_values(trial: Trial, space: dict[str, Choices]) -> dict[str, Any]:
    """Let Optuna choose a value for each setting of a trial, by config key."""
    return {key: _suggested_value(trial, key, choices) for key, choices in space.items()}


def _suggested_value(trial: Trial, key: str, choices: Choices) -> Any:
    if not isinstance(choices, SearchRange):
        return trial.suggest_categorical(key, choices)
    if isinstance(choices.low, int) and isinstance(choices.high, int):
        return trial.suggest_int(key, choices.low, choices.high, log=choices.log)
    return trial.suggest_float(key, choices.low, choices.high, log=choices.log)
