"""Load a config from YAML and `--set` overrides."""

from __future__ import annotations

import difflib
import unicodedata
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from encoder_cls.config.schema import Config, DataConfig, ModelConfig, TokenizerConfig
from encoder_cls.config.yaml import parse_setting, parse_yaml
from encoder_cls.errors import ConfigError
from encoder_cls.system.display import printable
from encoder_cls.system.files import fitting_paths

EXAMPLE: dict[str, Any] = {
    "name": "example",
    "data": {"train": "example:train", "validation": "example:validation", "test": "example:test"},
}


# What pydantic says of these would name its own classes, or a pattern.
IN_PLAIN_WORDS = {
    "model_type": "its values belong below it, each on a line of its own with spaces before it",
    "tuple_type": "Input should be a list, such as [a, b]",
    "string_pattern_mismatch": "Input should be letters, digits, `_`, `-` and `.`, the first no `-` or `.`",
}

# What other libraries call it, or people for short.
USUAL_NAMES = {
    **dict.fromkeys(("lr", "learningrate", "learning_rate_init", "max_lr", "alpha"), "train.learning_rate"),
    **dict.fromkeys(("bs", "batch", "per_device_train_batch_size", "train_batch_size"), "train.batch_size"),
    **dict.fromkeys(("num_epochs", "n_epochs", "num_train_epochs", "max_epochs", "max_iter"), "train.epochs"),
    **dict.fromkeys(("warmup", "warmup_ratio", "warmup_steps"), "train.warmup_fraction"),
    **dict.fromkeys(("wd", "decay", "l2"), "train.weight_decay"),
    **dict.fromkeys(("early_stopping", "early_stopping_patience", "n_iter_no_change"), "train.patience"),
    **dict.fromkeys(("clip", "clip_grad_norm", "grad_clip", "gradient_clip_val"), "train.max_grad_norm"),
    **dict.fromkeys(("gradient_accumulation_steps", "accumulate_grad_batches"), "train.accumulation_steps"),
    **dict.fromkeys(("class_weight",), "train.class_weights"),
    **dict.fromkeys(("dim", "hidden_size", "hidden_dim", "n_embd", "embedding_dim", "width"), "model.d_model"),
    **dict.fromkeys(("layers", "n_layers", "n_layer", "num_hidden_layers", "depth"), "model.num_layers"),
    **dict.fromkeys(("heads", "n_heads", "n_head", "num_attention_heads"), "model.num_heads"),
    **dict.fromkeys(("intermediate_size", "ffn_dim", "dim_feedforward"), "model.d_ff"),
    **dict.fromkeys(("max_length", "max_len", "max_position_embeddings", "block_size"), "model.max_seq_len"),
    **dict.fromkeys(("vocab_size", "max_features"), "tokenizer.max_vocab_size"),
    **dict.fromkeys(("min_df", "min_count"), "tokenizer.min_frequency"),
    **dict.fromkeys(("mlm_probability", "masking_rate"), "pretrain.mask_probability"),
    **dict.fromkeys(("text", "text_field", "text_col"), "data.text_column"),
    **dict.fromkeys(("label", "target", "label_field", "label_col"), "data.label_column"),
    **dict.fromkeys(("random_state", "random_seed"), "seed"),
}


INHERITED = ("model", "tokenizer")  # sections that a run has in common with the one that it goes on from
RUN_CONFIG = "config.yaml"  # in a run folder
CONFIG_ENDINGS = (".yaml", ".yml", "")


def load_config(path: Path | None = None, overrides: Iterable[str] = (), *, from_run: Path | None = None) -> Config:
    """Read a config file (none: the bundled example's config) and apply `section.key=value` overrides.

    Without a file an override of `data.train` names other data than the bundled: then nothing of that is left.
    Data that the current folder does not have is looked for beside the file; in overrides paths start at the former.
    Where a run goes on from another, what the file does not say of model and tokenizer is as that run has it.

    Args:
        path: of the file.
        overrides: the overrides.
        from_run: in place of the file's `from_run`.

    Raises:
        ConfigError: the file cannot be read, is no YAML mapping, or a field is unknown or out of range;
            the message names the file and each field. Or a run is to go on from another, and nothing names data.
    """
    overrides = tuple(overrides)
    named_after = path or _data_of(overrides)
    if path:
        source, values = str(path), found_beside(_read_values(path), path.parent)
    elif named_after:
        source, values = "--set", {}
    elif from_run:
        raise ConfigError(f"--from {from_run}: the new data is to be named, by --config or --set data.train=PATH")
    else:
        source, values = "bundled example", EXAMPLE
    values = {"name": _run_name(named_after.stem) if named_after else "example"} | values
    for override in overrides:
        values = _with_override(values, override)
    if from_run:
        values["from_run"] = str(from_run)
    if isinstance(values.get("from_run"), str) and not _says_all(values):
        former = load_config(Path(values["from_run"]) / RUN_CONFIG).model_dump(mode="json", include=set(INHERITED))
        said = {section: values.get(section) or {} for section in INHERITED}
        # What is no mapping stays, so that validation says so.
        values |= {name: _merged(former[name], it) for name, it in said.items() if isinstance(it, dict)}
    return _validated(values, source)


def _says_all(values: Mapping[str, Any]) -> bool:
    """Whether nothing is left to take over, as in the config of a run folder: the other run may be gone by then."""
    defaults = {"model": ModelConfig(), "tokenizer": TokenizerConfig()}
    return all(
        isinstance(said := values.get(section), Mapping) and defaults[section].model_dump().keys() <= said.keys()
        for section in INHERITED
    )


def config_of(values: Mapping[str, Any], *, source: str) -> Config:
    """The config of values by dotted key, such as `{"train.epochs": 5}`.

    Args:
        values: by key.
        source: what to call them in a message.

    Raises:
        ConfigError: a field is unknown or out of range; the message names each.
    """
    nested: dict[str, Any] = {}
    for dotted, value in values.items():
        keys = dotted.split(".") if isinstance(dotted, str) else [""]
        if not all(keys):
            raise ConfigError(f"{source}: {dotted!r} is no key; write it as section.key, such as train.epochs")
        nested = _with_value(nested, keys, value)
    return _validated(nested, source)


def _validated(values: dict[str, Any], source: str) -> Config:
    try:
        return Config.model_validate(values)
    except ValidationError as error:
        raise ConfigError("\n".join(_explain(error, source))) from None


def changed_config(config: Config, values: Mapping[str, Any], *, source: str) -> Config:
    """A config in which some values, by dotted key, are others.

    Raises:
        ConfigError: a field is unknown or out of range; the message names each.
    """
    nested = config.model_dump(mode="json")
    for dotted, value in values.items():
        nested = _with_value(nested, dotted.split("."), value)
    return _validated(nested, source)


def _run_name(stem: str) -> str:
    """A name for a run, made of a file's: what no name may hold becomes a dash."""
    allowed = (c if c in "-." or unicodedata.category(c) in _NAME_CATEGORIES else " " for c in stem)
    return "-".join("".join(allowed).split()).strip("-.")[:100] or "run"


# Letters with their marks, digits, underscores: of all that pydantic's pattern for a name matches, in any script.
_NAME_CATEGORIES = {"Lu", "Ll", "Lt", "Lm", "Lo", "Mn", "Mc", "Me", "Nd", "Pc"}


def _read_values(path: Path) -> dict[str, Any]:
    """The sections of a config file."""
    try:
        values = parse_yaml(_read_text(path), source=str(path))
    except ConfigError as error:
        values, wrong = None, str(error)
    else:
        found = "nothing" if values is None else type(values).__name__
        wrong = f"{path}: expected sections such as `data:` and `model:`, found {found}"
    if isinstance(values, dict):
        return values
    if path.is_dir() or (path.is_file() and path.suffix.lower() not in CONFIG_ENDINGS):
        wrong = f"{path}: this is no config; to train on its texts: --set data.train={path}"
    raise ConfigError(wrong)


def _read_text(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8-sig")
    except UnicodeDecodeError as error:
        raise ConfigError(f"{path}: not UTF-8 text (byte {error.start})") from None
    except (OSError, ValueError) as error:  # the latter of a name that no file can have
        reason = error.strerror if isinstance(error, OSError) else error
        raise ConfigError(f"{printable(str(path))}: cannot read the config: {reason}") from None


def _data_of(overrides: Iterable[str]) -> Path | None:
    """The data that overrides name, after which a run is called: of training, else without labels; none: neither."""
    values: dict[str, Any] = {}
    for override in overrides:
        values = _with_override(values, override)
    data = values.get("data")
    if not isinstance(data, dict) or "train" not in data:
        return None
    return Path(str(data["train"] or data.get("unlabelled")))


def _with_override(values: dict[str, Any], override: str) -> dict[str, Any]:
    """A copy of nested values in which `section.key=value` holds."""
    dotted, equals, text = override.partition("=")
    keys = dotted.strip().split(".")
    if not equals or not all(keys):
        raise ConfigError(f"--set {override}: write it as section.key=value, such as train.epochs=5")
    return _with_value(values, keys, parse_setting(text, source=f"--set {dotted}", keys=keys))


def _with_value(values: dict[str, Any], keys: Sequence[str], value: Any) -> dict[str, Any]:
    """A copy of nested values in which one has another value."""
    for key in reversed(keys[1:]):
        value = {key: value}
    return _merged(values, {keys[0]: value})


def _merged(values: Any, changes: dict[str, Any]) -> dict[str, Any]:
    merged = dict(values) if isinstance(values, dict) else {}
    for key, change in changes.items():
        nested = isinstance(change, dict) and isinstance(merged.get(key), dict)
        merged[key] = _merged(merged[key], change) if nested else change
    return merged


def _explain(error: ValidationError, source: str) -> Iterator[str]:
    """One line for each faulty field, naming the nearest right key where one was misspelt."""
    explained: set[str] = set()
    for fault in error.errors():
        path = [str(part) for part in fault["loc"]] or ["a key"]  # one that is no Unicode is not named
        if fault["type"] == "literal_error" and isinstance(fault["input"], dict) and len(path) > 2:
            continue  # class_weights by name: the fault is in the mapping, and follows
        # Each member of a union reports its own fault under its own name; the field is what the user wrote.
        where = ".".join(path[:2]) if path[0] in Config.model_fields else path[0]
        if where in explained:
            continue
        explained.add(where)
        if fault["type"] == "extra_forbidden":
            message = f"unknown key{_nearest(path)}"
        elif fault["type"] == "missing":
            message = "is required"
        else:
            message = IN_PLAIN_WORDS.get(fault["type"]) or fault["msg"].removeprefix("Value error, ")
            if not isinstance(fault["input"], dict):
                message += f" (found {str(fault['input'])[:60]!r})"
        yield f"{source}: {where if where.isprintable() else repr(where)}: {message}"


def _nearest(path: list[str]) -> str:
    """What a key may have been meant to be: one of another section, what other programs call so, one much like it."""
    section: Any = Config
    for part in path[:-1]:
        section = section.model_fields[part].annotation
    homes = [f"{name}.{path[-1]}" for name, field in _sections() if path[-1] in field]
    usual = USUAL_NAMES.get(path[-1].lower().replace("-", "_"))
    nearest = homes or ([usual] if usual else []) or difflib.get_close_matches(path[-1], section.model_fields, 1, 0.7)
    if not nearest:
        elsewhere = {key: f"{name}.{key}" for name, field in _sections() for key in field}
        nearest = [elsewhere[key] for key in difflib.get_close_matches(path[-1], elsewhere, 1, 0.7)]
    nearest = nearest or difflib.get_close_matches(path[-1], section.model_fields, 1, 0.5)
    return f"; did you mean {' or '.join(nearest)}?" if nearest else f"; known: {', '.join(section.model_fields)}"


def _sections() -> Iterator[tuple[str, Mapping[str, Any]]]:
    """Each section's name, and its fields."""
    for name, field in Config.model_fields.items():
        yield name, getattr(field.annotation, "model_fields", {})


SOURCES = ("train", "validation", "test", "unlabelled", "corrections")
SCHEMES = ("hub:", "example:")


def found_beside(values: Mapping[str, Any], folder: Path) -> dict[str, Any]:
    """The values of a config file in this folder, its data found there where the current folder does not have it."""
    data = values.get("data")
    if not isinstance(data, dict):
        return dict(values)
    found = {
        key: str(folder / source)
        for key in SOURCES
        if isinstance(source := data.get(key), str)
        and not (source.startswith(SCHEMES) or is_there(source))
        and is_there(str(folder / source))
    }
    return {**values, "data": data | found}


def with_absolute_sources(config: Config) -> Config:
    """A config that names the same data, cache and former run from any folder."""
    named = {key: _absolute(source) for key, source in _sources(config.data)}
    cache, run = (path and str(Path(path).absolute()) for path in (config.data.cache, config.from_run))
    data = config.data.model_copy(update={**named, "cache": cache})
    return config.model_copy(update={"data": data, "from_run": run})


def missing_sources(data: DataConfig) -> list[tuple[str, str]]:
    """The key and the source of all files and folders that are not there."""
    return [
        (f"data.{key}", source)
        for key, source in _sources(data)
        if not source.startswith(SCHEMES) and not is_there(source)
    ]


def is_there(source: str) -> bool:
    """Whether a path or a pattern names a file or a folder."""
    with suppress(OSError, ValueError):  # a name that no file can have
        return Path(source).exists() or next(fitting_paths(source), None) is not None
    return False


def _sources(data: DataConfig) -> Iterator[tuple[str, str]]:
    found = ((key, getattr(data, key)) for key in SOURCES)
    return ((key, source) for key, source in found if source is not None)


def _absolute(source: str) -> str:
    if source.startswith(SCHEMES) or Path(source).is_absolute() or not source:
        return source
    return str(Path.cwd() / source)
