"""The values of the config that an estimator is given: as arguments, settings and parameters."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from difflib import get_close_matches
from typing import Any

from encoder_cls.errors import ConfigError
from encoder_cls.system.display import kind, listed
from encoder_cls.system.json_values import label_name
from encoder_cls.system.reporter import warn_caller

# The keys of the config that are arguments of the estimator, with the names of the arguments.
ARGUMENTS = {
    "data.features": "features",
    "seed": "seed",
    "train.epochs": "epochs",
    "train.learning_rate": "learning_rate",
    "train.time_budget": "time_budget",
    "train.class_weights": "class_weight",
}
# The keys of `data` that cannot be set, because the arguments of `fit` replace them.
REPLACED_KEYS = (
    "train",
    "test",
    "label_names",
    "label_separator",
    "group_column",
    "weight_column",
    "corrections",
)
# How the names of the values of `settings` begin in `get_params`.
SETTINGS_PREFIX = "settings__"


def key_named(name: str) -> str:
    """The dotted key that a parameter such as `model__d_model` names.

    Raises:
        ValueError: no section has it, or several do.
    """
    from encoder_cls.config.schema import Config, Section

    keys = []
    for section, field in Config.model_fields.items():
        kind_of_section = field.annotation
        if isinstance(kind_of_section, type) and issubclass(kind_of_section, Section):
            keys += [f"{section}.{key}" for key in kind_of_section.model_fields]
        else:
            keys.append(section)

    wanted = name.removeprefix(SETTINGS_PREFIX).replace("__", ".")
    if wanted in keys:
        return wanted

    named_so = [key for key in keys if key.partition(".")[2] == wanted]
    if len(named_so) == 1:
        return named_so[0]
    if named_so:
        names = " or ".join(key.replace(".", "__") for key in named_so)
        raise ValueError(f"parameter {name!r} of TextClassifier has several meanings; give {names}")

    last_names = [key.rpartition(".")[2] for key in keys]
    hint = ""
    similar = get_close_matches(wanted.rpartition(".")[2], last_names, n=1)
    if similar:
        hint = f"; did you mean {similar[0]!r}?"
    raise ValueError(
        f"Invalid parameter {name!r} for TextClassifier: it is neither an argument nor a key of "
        f"the config{hint}"
    )


def class_weights(class_weight: Any, labels: Sequence[Any]) -> Any:
    """The value of `train.class_weights` for `class_weight`.

    Weights of labels that no text has, as in a fold of cross-validation, are left out with a
    warning; a training refuses weights of which none is left.
    """
    if class_weight is None:
        return "none"
    if not isinstance(class_weight, Mapping):
        return class_weight

    # Equal values are equal labels, such as 1 and True.
    names = {label: label_name(label) for label in labels}
    weights = {names.get(label, label_name(label)): class_weight[label] for label in class_weight}

    known = {name: weight for name, weight in weights.items() if name in names.values()}
    others = [name for name in weights if name not in known]
    if not known or not others:
        return weights
    warn_caller(f"class_weight: no text has the label {listed(others)}")
    return known


def check_settings(settings: Any) -> None:
    """Raise a `ConfigError` for a key that may not be set here."""
    if not isinstance(settings, Mapping):
        raise ConfigError(
            f"settings: {kind(settings)} is given; give a mapping such as {{'model.d_model': 64}}"
        )

    for key in settings:
        if key in ARGUMENTS:
            raise ConfigError(f"settings: {key!r}: give it as TextClassifier({ARGUMENTS[key]}=...)")

        section, dot, name = str(key).partition(".")
        if section == "data" and name in REPLACED_KEYS:
            raise ConfigError(
                f"settings: {key!r}: cannot be set, because the texts and labels of fit replace it"
            )
        if not isinstance(key, str) or not dot:
            raise ConfigError(
                f"settings: {key!r}: not a key; write it as section.key, such as model.d_model"
            )
