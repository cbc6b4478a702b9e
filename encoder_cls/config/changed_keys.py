"""The values of a config by dotted key, and the keys that have changed since a run was started."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from encoder_cls.config.schema import Config


def dotted_values(config: Config) -> dict[str, Any]:
    """Return all values of a config by dotted key, such as `train.epochs`."""
    flat: dict[str, Any] = {}

    def add(values: dict[str, Any], prefix: str) -> None:
        for key, value in values.items():
            if isinstance(value, dict):
                add(value, f"{prefix}{key}.")
            else:
                flat[prefix + key] = value

    add(config.model_dump(mode="json"), "")
    return flat


# The keys of the paths of the data, which may have been moved since the run was started.
DATA_KEYS = ("data.train", "data.validation", "data.test", "data.unlabelled")
# The key of the path of the cache, which has no influence on the result of a run.
CACHE_KEY = "data.cache"
# The key of the share of rows to read, which a run decides if its config does not.
FRACTION_KEY = "data.train_fraction"


def changed_keys(started: Config, config: Config) -> list[str]:
    """List the dotted keys whose values have changed since a run was started, sorted.

    The path of data may change if the data is no longer at its old path.

    Args:
        started: the config that the run was started with.
        config: the config to continue it with.
    """
    from encoder_cls.config.data_paths import absolute_sources, source_exists

    absolute_config = absolute_sources(started)
    values = dotted_values(absolute_config)
    new_values = dotted_values(absolute_sources(config))

    moved_keys = set()
    for key, source in absolute_config.data:
        if isinstance(source, str) and not source_exists(source):
            moved_keys.add(f"data.{key}")

    changed = []
    for key in sorted(values.keys() | new_values.keys()):
        may_differ = key == CACHE_KEY or (key in DATA_KEYS and key in moved_keys)
        if key == FRACTION_KEY and new_values[key] is None:
            may_differ = True
        if values.get(key) != new_values.get(key) and not may_differ:
            changed.append(key)
    return changed
