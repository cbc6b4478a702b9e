"""The config of a run: a YAML file and overrides to a frozen, validated `Config`."""

from __future__ import annotations

from encoder_cls.config.loading import (
    absolute_sources,
    check_sources,
    config_of,
    load_config,
    missing_sources,
    source_exists,
)
from encoder_cls.config.schema import Config, DataConfig, ModelConfig, SearchRange, TokenizerConfig, TrainConfig

__all__ = [
    "Config",
    "DataConfig",
    "ModelConfig",
    "SearchRange",
    "TokenizerConfig",
    "TrainConfig",
    "absolute_sources",
    "check_sources",
    "config_of",
    "load_config",
    "missing_sources",
    "source_exists",
]
