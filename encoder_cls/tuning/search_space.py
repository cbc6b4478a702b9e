"""The values that a search tries for each setting."""

from __future__ import annotations

from typing import Any

from optuna.trial import Trial

from encoder_cls.config.loading import config_of
from encoder_cls.config.schema import Config, SearchRange
from encoder_cls.errors import ConfigError
from encoder_cls.run.run_folder import dotted_values

Choices = SearchRange | tuple[Any, ...]
"""A range of numbers, or a list of values."""

DEFAULT_SPACE: dict[str, Choices] = {
    "train.learning_rate": SearchRange(low=3e-4, high=3e-3, log=True),
    "train.batch_size": (32, 64, 128),
    "train.word_dropout": SearchRange(low=0.0, high=0.5),
    "train.rdrop_weight": (0.0, 1.0, 3.0),
    "model.dropout": SearchRange(low=0.0, high=0.3),
}


def search_space(config: Config) -> dict[str, Choices]:
    """The choices for each setting that is searched, which include the config's own value.

    Raises:
        ConfigError: a choice does not fit the config.
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
    """Add the config's own value to choices that lack it."""
    if not isinstance(choices, SearchRange):
        if own_value in choices:
            return choices
        return (own_value, *choices)

    if not isinstance(own_value, int | float):
        raise ConfigError(
            f"tune.{key}: a range is for numbers, and the config's own value is {own_value!r}; "
            "list values"
        )
    low = min(choices.low, own_value)
    high = max(choices.high, own_value)
    return choices.model_copy(update={"low": low, "high": high})


def _values_to_check(choices: Choices) -> tuple[Any, ...]:
    """All listed values, or both ends of a range."""
    if isinstance(choices, SearchRange):
        return (choices.low, choices.high)
    return choices


def suggested_values(trial: Trial, space: dict[str, Choices]) -> dict[str, Any]:
    """The values of a trial, chosen by Optuna."""
    return {key: _suggested_value(trial, key, choices) for key, choices in space.items()}


def _suggested_value(trial: Trial, key: str, choices: Choices) -> Any:
    """Let Optuna choose a listed value, an integer or a number of a range."""
    if not isinstance(choices, SearchRange):
        return trial.suggest_categorical(key, choices)
    if isinstance(choices.low, int) and isinstance(choices.high, int):
        return trial.suggest_int(key, choices.low, choices.high, log=choices.log)
    return trial.suggest_float(key, choices.low, choices.high, log=choices.log)
