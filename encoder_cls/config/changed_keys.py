"""The values of a config by dotted key, and the keys that have changed since a run was started."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from encoder_cls.config.schema import Config


def dotted_values(config: Config) -> dict[str, Any]:
    """All values by dotted key, such as `train.epochs`."""
    flat: dict[str, Any] = {}

    def add(values: dict[str, Any], prefix: str) -> None:
        for key, value in values.items():
            if isinstance(value, dict):
                add(value, f"{prefix}{key}.")
            else:
                flat[prefix + key] = value

    add(config.model_dump(mode="json"), "")
    return flat


# The key of the path of the cache, which has no influence on the result of a run.
CACHE_KEY = "data.cache"
# The key of the share of rows to read, which a run decides if its config does not.
FRACTION_KEY = "data.train_fraction"


def changed_keys(started: Config, config: Config) -> list[str]:
    """The keys whose values have changed since a run was started, sorted.

    The path of data may change if it is no longer at the old one.
    """
    # Imported here, because `compare` also runs where the libraries of the schema are missing.
    from encoder_cls.config.data_paths import SOURCES, absolute_sources, source_exists

    values = dotted_values(absolute_sources(started))
    new_values = dotted_values(absolute_sources(config))

    may_change = {CACHE_KEY}
    if new_values[FRACTION_KEY] is None:
        may_change.add(FRACTION_KEY)
    for source_key in SOURCES:
        key = f"data.{source_key}"
        if values[key] and not source_exists(values[key]):
            may_change.add(key)

    changed = []
    for key in sorted(values.keys() | new_values.keys()):
        if key not in may_change and values.get(key) != new_values.get(key):
            changed.append(key)
    return changed
