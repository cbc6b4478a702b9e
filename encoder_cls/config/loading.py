"""The config of a run: load a YAML file and `--set` overrides as a frozen `Config`; locate its data."""

from __future__ import annotations

import difflib
import unicodedata
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from encoder_cls.config.schema import (
    Config,
    DataConfig,
    ModelConfig,
    SearchRange,
    TokenizerConfig,
    TrainConfig,
)
from encoder_cls.config.yaml import parse_setting, parse_yaml
from encoder_cls.errors import ConfigError, DataError
from encoder_cls.system.display import printable
from encoder_cls.system.files import fitting_paths

# Of `schema`.
__all__ = [
    "Config",
    "DataConfig",
    "ModelConfig",
    "SearchRange",
    "TokenizerConfig",
    "TrainConfig",
]

EXAMPLE = {"data": {split: f"example:{split}" for split in ("train", "validation", "test")}}
SOURCES = ("train", "validation", "test", "unlabelled", "corrections")
SCHEMES = ("hub:", "example:")
INHERITED = ("model", "tokenizer")  # sections that a run takes over from its base run
CONFIG_ENDINGS = (".yaml", ".yml", "")
# In place of messages of pydantic that name its own classes, or a pattern.
PLAIN_MESSAGES = {
    "model_type": "its values belong below it, each on a line of its own with spaces before it",
    "tuple_type": "Input should be a list, such as [a, b]",
    "string_pattern_mismatch": "Input should be letters, digits, `_`, `-` and `.`, the first no `-` or `.`",
}
# Names of other libraries, and common short ones.
_ALIASES = {
    "train.learning_rate": "lr learningrate learning_rate_init max_lr alpha",
    "train.batch_size": "bs batch per_device_train_batch_size train_batch_size",
    "train.epochs": "num_epochs n_epochs num_train_epochs max_epochs max_iter",
    "train.warmup_fraction": "warmup warmup_ratio warmup_steps",
    "train.weight_decay": "wd decay l2",
    "train.patience": "early_stopping early_stopping_patience n_iter_no_change",
    "train.max_grad_norm": "clip clip_grad_norm grad_clip gradient_clip_val",
    "train.accumulation_steps": "gradient_accumulation_steps accumulate_grad_batches",
    "train.class_weights": "class_weight",
    "model.d_model": "dim hidden_size hidden_dim n_embd embedding_dim width",
    "model.num_layers": "layers n_layers n_layer num_hidden_layers depth",
    "model.num_heads": "heads n_heads n_head num_attention_heads",
    "model.d_ff": "intermediate_size ffn_dim dim_feedforward",
    "model.max_seq_len": "max_length max_len max_position_embeddings block_size",
    "tokenizer.max_vocab_size": "vocab_size max_features",
    "tokenizer.min_frequency": "min_df min_count",
    "pretrain.mask_probability": "mlm_probability masking_rate",
    "data.text_column": "text text_field text_col",
    "data.label_column": "label target label_field label_col",
    "seed": "random_state random_seed",
}
USUAL_NAMES = {alias: key for key, aliases in _ALIASES.items() for alias in aliases.split()}
# The keys of each section.
FIELDS = {
    name: getattr(it.annotation, "model_fields", {}) for name, it in Config.model_fields.items()
}


def load_config(
    path: Path | None = None, overrides: Iterable[str] = (), *, from_run: Path | None = None
) -> Config:
    """Read a config file, or else that of the bundled example, and apply `section.key=value` overrides.

    An override of `data.train` replaces all data of the example. Paths in a file start at the current folder, or else
    at the file's. The base run's `model` and `tokenizer` fill in what is not set. A `ConfigError` names each fault.
    """
    changes = [_parsed_override(override) for override in overrides]
    data = _changed({}, changes).get("data")
    if path:
        source, name, values = (
            str(path),
            _run_name(path.stem),
            _located(_read_values(path), path.parent),
        )
    elif isinstance(data, dict) and "train" in data:
        source, name, values = (
            "--set",
            _run_name(Path(str(data["train"])).stem),
            {},
        )
    elif from_run:
        raise ConfigError(
            f"--from {from_run}: the new data is to be named, by --config or --set data.train=PATH"
        )
    else:
        source, name, values = "bundled example", "example", EXAMPLE
    values = _changed({"name": name} | values, changes)
    if from_run:
        values["from_run"] = str(from_run)
    if isinstance(values.get("from_run"), str):
        values = _with_inherited(values, source)
    return _validated(values, source)


def config_of(values: Mapping[str, Any], *, source: str, base: Config | None = None) -> Config:
    """Apply values by dotted key, such as `{"train.epochs": 5}`, to a base config or the defaults."""
    for key in values:
        if not (isinstance(key, str) and all(key.split("."))):
            raise ConfigError(
                f"{source}: {key!r} is no key; write it as section.key, such as train.epochs"
            )
    changes = [(key.split("."), value) for key, value in values.items()]
    return _validated(_changed(base.model_dump(mode="json") if base else {}, changes), source)


def absolute_sources(config: Config) -> Config:
    """Make the paths of data, cache and base run absolute."""
    named = {key: it for key in (*SOURCES, "cache") if (it := getattr(config.data, key))}
    paths = {
        key: str(Path(it).absolute()) for key, it in named.items() if not it.startswith(SCHEMES)
    }
    run = config.from_run and str(Path(config.from_run).absolute())
    return config.model_copy(update={"data": config.data.model_copy(update=paths), "from_run": run})


def missing_sources(data: DataConfig) -> list[tuple[str, str]]:
    """List the key and path of each source that does not exist."""
    return [
        (f"data.{key}", it)
        for key in SOURCES
        if (it := getattr(data, key)) and not source_exists(it)
    ]


def check_sources_of_run(data: DataConfig, run: Path | str, hint: str) -> None:
    """Raise a `DataError` if data of a run is gone; `KEY` in the hint is replaced by its key."""
    for key, source in missing_sources(data):
        what = f"{key}: {source}: no such file or folder, where the run's data was"
        raise DataError(run, what, hint.replace("KEY", key))


def check_sources(data: DataConfig, *, config_file: Path | None, of_run: Path | None) -> None:
    """Raise a `DataError` if a file does not exist; `of_run` is the config of the run that is resumed."""
    if of_run:
        check_sources_of_run(data, of_run, "if it has been moved, add --set KEY=PATH")
    for key, source in missing_sources(data):
        beside = f", and beside {config_file}" if config_file else ""
        places = (
            ""
            if Path(source).is_absolute()
            else f" (looked for in the current folder, {Path.cwd()}{beside})"
        )
        raise DataError(f"{source}: no such file or folder{places}; {key} names it")


def source_exists(source: str) -> bool:
    """Whether a path or pattern names an existing file or folder; data of the Hub and the example is assumed to."""
    if source.startswith(SCHEMES):
        return True
    with suppress(OSError, ValueError):  # a name that no file can have
        return Path(source).exists() or next(fitting_paths(source), None) is not None
    return False


def _located(values: dict[str, Any], folder: Path) -> dict[str, Any]:
    """Change the paths of data to those beside the config file, where only there it exists."""
    data = values.get("data")
    if not isinstance(data, dict):
        return values
    named = {
        key: it for key in SOURCES if isinstance(it := data.get(key), str) and not source_exists(it)
    }
    beside = {key: place for key, it in named.items() if source_exists(place := str(folder / it))}
    return {**values, "data": data | beside}


def _read_values(path: Path) -> dict[str, Any]:
    """Read the sections of a config file."""
    try:
        values = parse_yaml(path.read_text(encoding="utf-8-sig"), source=str(path))
        if isinstance(values, dict):
            return values
        content = "nothing" if values is None else type(values).__name__
        problem = f"{path}: expected sections such as `data:` and `model:`, found {content}"
    except ConfigError as error:
        problem = str(error)
    except (OSError, ValueError) as error:  # the latter: no UTF-8, or a name that no file can have
        reason = getattr(error, "strerror", None) or error
        problem = f"{printable(str(path))}: cannot read the config: {reason}"
    with suppress(OSError, ValueError):
        if path.is_dir() or (path.is_file() and path.suffix.lower() not in CONFIG_ENDINGS):
            problem = f"{path}: this is no config; to train on its texts: --set data.train={path}"
    raise ConfigError(problem)


def _with_inherited(values: dict[str, Any], source: str) -> dict[str, Any]:
    """Fill in the settings that the shared sections leave out from the base run."""
    own = {section: values.get(section) or {} for section in INHERITED}
    if all(
        isinstance(it, dict) and FIELDS[section].keys() <= it.keys() for section, it in own.items()
    ):
        return values  # as in a run folder, whose base run may be gone by now
    try:
        base = load_config(Path(values["from_run"]) / "config.yaml").model_dump(
            mode="json", include=set(INHERITED)
        )
    except ConfigError as error:
        raise ConfigError(f"{source}: from_run: {error}") from None
    # Validation refuses a section that is not a mapping.
    return values | {
        section: _with_value(base[section], (), it)
        for section, it in own.items()
        if isinstance(it, dict)
    }


def _run_name(stem: str) -> str:
    """Make a file's name a valid run name: all but letters with their marks, digits, `_`, `-` and `.` become dashes."""
    allowed = (
        c if c in "_-." or c.isdecimal() or unicodedata.category(c)[0] in "LM" else " "
        for c in stem
    )
    return "-".join("".join(allowed).split()).strip("-.")[:100] or "run"


def _parsed_override(override: str) -> tuple[list[str], Any]:
    """Split `section.key=value` into keys and value."""
    dotted, equals, text = override.partition("=")
    keys = dotted.strip().split(".")
    if not equals or not all(keys):
        raise ConfigError(
            f"--set {override}: write it as section.key=value, such as train.epochs=5"
        )
    return keys, parse_setting(text, source=f"--set {dotted}", keys=keys)


def _changed(
    values: dict[str, Any], changes: Iterable[tuple[Sequence[str], Any]]
) -> dict[str, Any]:
    for keys, value in changes:
        values = _with_value(values, keys, value)
    return values


def _with_value(values: Any, keys: Sequence[str], value: Any) -> Any:
    """A copy of nested values in which one is replaced, or merged where the old and the new one are mappings."""
    nested = values if isinstance(values, dict) else {}
    if keys:
        return {**nested, keys[0]: _with_value(nested.get(keys[0]), keys[1:], value)}
    if not isinstance(value, dict) or not isinstance(values, dict):
        return value
    return {**values, **{key: _with_value(values.get(key), (), it) for key, it in value.items()}}


def _validated(values: dict[str, Any], source: str) -> Config:
    """The config with these values; a `ConfigError` has a line for each faulty field."""
    try:
        return Config.model_validate(values)
    except ValidationError as error:
        messages: dict[str, str] = {}
        for fault in error.errors():
            # A key that is not Unicode is not named.
            path = [str(part) for part in fault["loc"]] or ["a key"]
            if (
                fault["type"] == "literal_error"
                and isinstance(fault["input"], dict)
                and len(path) > 2
            ):
                continue  # class_weights by name: the fault is in the mapping, and follows
            # Each member of a union reports its own fault under its own name; the field is what the user wrote.
            where = ".".join(path[:2]) if path[0] in FIELDS else path[0]
            messages.setdefault(where, _message(fault, path))
        lines = (
            f"{source}: {it if it.isprintable() else repr(it)}: {message}"
            for it, message in messages.items()
        )
        raise ConfigError("\n".join(lines)) from None


def _message(fault: Any, path: Sequence[str]) -> str:
    """Explain a fault that pydantic reports in the words of the config file."""
    if fault["type"] == "extra_forbidden":
        return f"unknown key{_hint(path)}"
    if fault["type"] == "missing":
        return "is required"
    message: str = PLAIN_MESSAGES.get(fault["type"]) or fault["msg"].removeprefix("Value error, ")
    return (
        message
        if isinstance(fault["input"], dict)
        else f"{message} (found {str(fault['input'])[:60]!r})"
    )


def _hint(path: Sequence[str]) -> str:
    """Suggest keys for an unknown one: of another section, of the same meaning in other libraries, or similar."""
    key, known = path[-1], list(FIELDS if len(path) == 1 else FIELDS[path[0]])
    elsewhere = {name: f"{section}.{name}" for section, fields in FIELDS.items() for name in fields}
    usual = USUAL_NAMES.get(key.lower().replace("-", "_"))
    meant = (
        [f"{section}.{key}" for section, fields in FIELDS.items() if key in fields]
        or ([usual] if usual else [])
        or difflib.get_close_matches(key, known, 1, 0.7)
        or [elsewhere[name] for name in difflib.get_close_matches(key, elsewhere, 1, 0.7)]
        or difflib.get_close_matches(key, known, 1, 0.5)
    )
    return f"; did you mean {' or '.join(meant)}?" if meant else f"; known: {', '.join(known)}"
