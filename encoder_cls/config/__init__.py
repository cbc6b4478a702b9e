"""Config: a YAML file to a frozen, validated `Config`."""

from __future__ import annotations

from encoder_cls.config.loading import (
    changed_config,
    config_of,
    is_there,
    load_config,
    missing_sources,
    with_absolute_sources,
)
from encoder_cls.config.schema import (
    Config,
    DataConfig,
    ModelConfig,
    PretrainConfig,
    SearchRange,
    TokenizerConfig,
    TrainConfig,
)

__all__ = [
    "Config",
    "DataConfig",
    "ModelConfig",
    "PretrainConfig",
    "SearchRange",
    "TokenizerConfig",
    "TrainConfig",
    "changed_config",
    "config_of",
    "is_there",
    "load_config",
    "missing_sources",
    "with_absolute_sources",
]
