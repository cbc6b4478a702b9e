"""Validate the values of a config, and explain faults in the words of a config file."""

from __future__ import annotations

import difflib
from collections.abc import Mapping, Sequence
from typing import Any

from pydantic import ValidationError

from encoder_cls.config.schema import Config, SearchRange
from encoder_cls.errors import ConfigError

# The fields of each key at the top of a config. A key with a single value has no fields.
FIELDS: dict[str, Mapping[str, Any]] = {
    name: getattr(field.annotation, "model_fields", {})
    for name, field in Config.model_fields.items()
}


def validated_config(values: Mapping[str, Any], *, source: str) -> Config:
    """Make a config of nested values, which messages call `source`.

    Raises:
        ConfigError: the message has a line for each faulty key.
    """
    try:
        return Config.model_validate(values)
    except ValidationError as error:
        faults = error.errors()

    # Keep the first fault of each key: pydantic reports a fault for each type that a key may have.
    messages: dict[str, str] = {}
    for fault in faults:
        # The location is empty for a key that is not Unicode.
        path = [str(part) for part in fault["loc"]] or ["a key"]
        if not _is_about_other_form(fault, path):
            messages.setdefault(_key(path), _message(fault, path))

    lines = []
    for key, message in messages.items():
        shown_key = key if key.isprintable() else repr(key)
        lines.append(f"{source}: {shown_key}: {message}")
    raise ConfigError("\n".join(lines))


def _is_about_other_form(fault: Any, path: Sequence[str]) -> bool:
    """Whether a fault only says that a mapping is not one of the allowed words.

    The one to mend is inside the mapping, and reported later.
    """
    return fault["type"] == "literal_error" and isinstance(fault["input"], dict) and len(path) > 2


def _key(path: Sequence[str]) -> str:
    if path[0] in FIELDS:
        return ".".join(path[:2])
    return path[0]


# Plain messages, by the type of pydantic's error. They replace messages that name classes of
# pydantic, or a regular expression.
PLAIN_MESSAGES = {
    "model_type": "must be a section; write its values below it, each on an indented line",
    "tuple_type": "Input should be a list, such as [a, b]",
    "too_short": "Input should be a list of at least one item",
    "string_pattern_mismatch": (
        "Input should be letters, digits, `_`, `-` and `.`, and not begin with `-` or `.`"
    ),
}
# The number of characters of a value that a message shows.
LONGEST_VALUE = 60


def _message(fault: Any, path: Sequence[str]) -> str:
    if fault["type"] == "extra_forbidden":
        return f"unknown key{_suggestion(path)}"
    if fault["type"] == "missing":
        return "is required"

    message: str = PLAIN_MESSAGES.get(fault["type"], fault["msg"]).removeprefix("Value error, ")
    if isinstance(fault["input"], dict):
        return message
    found = str(fault["input"])[:LONGEST_VALUE]
    return f"{message} (found {found!r})"


def _suggestion(path: Sequence[str]) -> str:
    known_keys = _known_keys(path)
    meant_keys = _meant_keys(path[-1], known_keys)
    if meant_keys:
        return f"; did you mean {' or '.join(meant_keys)}?"
    return f"; known: {', '.join(known_keys)}"


def _known_keys(path: Sequence[str]) -> list[str]:
    if len(path) == 1:
        return list(FIELDS)
    if path[0] == "tune":
        return list(SearchRange.model_fields)
    return list(FIELDS[path[0]])


# Other names of keys: names in other libraries, and common short names.
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
    "train.naive_bayes": "naive_bayes_em multinomial_nb",
    "model.d_model": "dim hidden_size hidden_dim n_embd embedding_dim width",
    "model.num_layers": "layers n_layers n_layer num_hidden_layers depth",
    "model.num_heads": "heads n_heads n_head num_attention_heads",
    "model.d_ff": "intermediate_size ffn_dim dim_feedforward",
    "model.max_seq_len": "max_length max_len max_position_embeddings block_size",
    "tokenizer.max_vocab_size": "vocab_size max_features",
    "tokenizer.min_frequency": "min_df min_count",
    "pretrain.mask_probability": "mlm_probability masking_rate",
    "data.text_column": "text text_field text_col",
    "data.label_map": "label_mapping mapping rename_labels id2label",
    "data.weight_column": "sample_weight weight weights weight_col",
    "data.label_column": "label target label_field label_col",
    "seed": "random_state random_seed",
}
# The similarity from 0 to 1 from which on an unknown key counts as a misspelling of a known key.
# First only very similar keys are tried, and in the end also less similar keys.
VERY_SIMILAR = 0.7
SIMILAR = 0.5


def _meant_keys(key: str, known_keys: Sequence[str]) -> list[str]:
    # Look for the key in other sections.
    elsewhere = [f"{section}.{key}" for section, fields in FIELDS.items() if key in fields]
    if elsewhere:
        return elsewhere

    # Look for the key among the names in other libraries.
    usual_name = key.lower().replace("-", "_")
    for meant_key, aliases in _ALIASES.items():
        if usual_name in aliases.split():
            return [meant_key]

    # Look for a misspelt key of the same section.
    similar = difflib.get_close_matches(key, known_keys, 1, VERY_SIMILAR)
    if similar:
        return similar

    # Look for a misspelt key of another section.
    sections = {}
    for section, fields in FIELDS.items():
        for name in fields:
            sections[name] = section
    similar = difflib.get_close_matches(key, sections, 1, VERY_SIMILAR)
    if similar:
        return [f"{sections[name]}.{name}" for name in similar]

    return difflib.get_close_matches(key, known_keys, 1, SIMILAR)
