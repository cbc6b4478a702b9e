"""The description of a classifier without its weights: written as JSON, checked value by value when it is read.

`config.json` is for people and other tools; the metadata of the weights file has the same values and those that change
with the weights.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import asdict
from typing import Any

from encoder_cls.inference.classifier import PARTS, Classifier
from encoder_cls.inference.encoder.architecture import EncoderArchitecture
from encoder_cls.inference.guarantees import FEWEST_NUMBERS, Familiarity, Guarantees
from encoder_cls.inference.linear import EVIDENCE_NUMBERS, linear_shapes
from encoder_cls.inference.task import SINGLE_LABEL, TASKS
from encoder_cls.inference.weights import DTYPES, Shapes
from encoder_cls.system.encodings import UTF8, delimiter_named, encoding_named
from encoder_cls.text.ngrams import MOST_FREQUENT, NUM_FEATURE_IDS, RARITY_NUMBERS
from encoder_cls.text.tokens import KEPT_PER_TOKEN

FORMAT, FORMAT_VERSION = "encoder-cls", 9
READABLE_VERSIONS = (8, FORMAT_VERSION)
CONFIG_FILE, TOKENIZER_FILE, WEIGHTS_FILE = "config.json", "tokenizer.json", "model.safetensors"
LARGEST_WEIGHT = 1e6  # of a part in the mixture: far beyond what is ever fitted


def config_of(classifier: Classifier) -> dict[str, Any]:
    """The values of `config.json`."""
    encoder, linear = classifier.encoder, classifier.linear
    architecture = encoder.architecture if encoder else classifier.encoder_architecture
    return {
        "format": FORMAT,
        "format_version": FORMAT_VERSION,
        "task": classifier.task.name,
        "text_columns": classifier.text_columns,
        # Defaults are left out: so a run that an older version began goes on with the same bytes.
        **({"delimiter": classifier.delimiter} if classifier.delimiter else {}),
        **({} if classifier.encoding == UTF8 else {"encoding": classifier.encoding}),
        "id2label": dict(enumerate(classifier.label_names)),
        "max_seq_len": classifier.max_seq_len,
        "encoder": architecture and asdict(architecture),
        "linear": linear
        and {
            "max_tokens": linear.max_tokens,
            "frequent_tokens": len(linear.frequent_token_ids),
            "features": len(linear.feature_ids),
        },
    }


def state_of(classifier: Classifier, dtypes: Mapping[str, str]) -> dict[str, Any]:
    """The metadata that changes with the weights."""
    shares = classifier.mixture_shares
    return {
        "parts": list(classifier.parts),
        "mixture_weights": dict(zip(classifier.parts, classifier.mixture_weights, strict=True)),
        "mixture_shares": shares if shares and shares.keys() == set(classifier.parts) else None,
        "dtypes": dict(dtypes),
        "thresholds": list(classifier.thresholds) if classifier.thresholds else None,
        **measured(classifier),
    }


def measured(classifier: Classifier) -> dict[str, Any]:
    """The metadata that is measured on held-out texts."""
    guarantees, familiarity = classifier.guarantees, classifier.familiarity
    return {
        "gate": classifier.gate,
        "promises": guarantees and guarantees.to_json(),
        "familiarity": familiarity and familiarity.to_json(),
    }


def read_config(values: Any, *, vocab_size: int) -> tuple[dict[str, Any], dict[str, Shapes]]:
    """Check the values of `config.json`.

    Returns:
        Arguments of `Classifier`, and the shapes of the weights of each part.

    Raises:
        ValueError: they are of another program or version, or none that a classifier can have.
        KeyError: one is missing.
        TypeError: one is of another type.
    """
    if not isinstance(values, dict) or values.get("format") != FORMAT:
        raise ValueError(f"{CONFIG_FILE} is of another program")
    if values["format_version"] not in READABLE_VERSIONS:
        known = " and ".join(map(str, READABLE_VERSIONS))
        raise ValueError(f"format version {values['format_version']}; this program reads {known}")
    task = TASKS.get(values["task"])
    if task is None:
        raise ValueError(f"task {values['task']!r}, which only a newer version of encoder-cls knows")
    names = tuple(values["id2label"][str(number)] for number in range(len(values["id2label"])))
    columns, max_seq_len, linear = tuple(values["text_columns"]), values["max_seq_len"], values["linear"]
    encoder = None if values["encoder"] is None else EncoderArchitecture(**values["encoder"])
    _check(
        CONFIG_FILE,
        id2label=len(set(names)) == len(names) >= task.fewest_classes and _are_texts(names),
        text_columns=bool(columns) and _are_texts(columns),
        max_seq_len=_is_within(max_seq_len, 1, encoder.max_seq_len if encoder else None)
        and (encoder is None or encoder.max_seq_len == max_seq_len),
    )
    shapes: dict[str, Shapes] = {}
    if encoder:
        shapes["encoder"] = encoder.weight_shapes(vocab_size=vocab_size, num_classes=len(names))
    if linear is not None:
        _check(
            f"{CONFIG_FILE}: linear",
            keys=linear.keys() == {"max_tokens", "frequent_tokens", "features"},
            max_tokens=_is_within(linear["max_tokens"], 1, KEPT_PER_TOKEN * max_seq_len),
            frequent_tokens=_is_within(linear["frequent_tokens"], 0, MOST_FREQUENT),
            features=_is_within(linear["features"], 0, NUM_FEATURE_IDS),
        )
        shapes["linear"] = linear_shapes(
            frequent_tokens=linear["frequent_tokens"],
            features=linear["features"],
            margins=task.num_one_vs_rest(len(names)),
        )
    arguments = {
        "label_names": names,
        "text_columns": columns,
        "max_seq_len": max_seq_len,
        "encoder_architecture": encoder,
        "task": task,
        "delimiter": delimiter_named(values["delimiter"]) if "delimiter" in values else None,
        "encoding": encoding_named(values.get("encoding", UTF8)),
    }
    return arguments, shapes


def read_state(values: Mapping[str, Any], config: Mapping[str, Any], *, described: Collection[str]) -> dict[str, Any]:
    """Check the metadata that changes with the weights, of a `read_config` that describes these parts.

    Returns:
        Arguments of `Classifier`.

    Raises:
        ValueError: they are none that a classifier can have.
        KeyError: one is missing.
        TypeError, AttributeError: one is of another type.
    """
    is_single, num_classes = config["task"] is SINGLE_LABEL, len(config["label_names"])
    parts = [part for part in PARTS if part in values["parts"]]
    dtypes, thresholds = values["dtypes"], values["thresholds"]
    mixture_weights, shares, gate = values["mixture_weights"], values.get("mixture_shares"), values.get("gate")
    _check(
        WEIGHTS_FILE,
        parts=bool(parts) and sorted(values["parts"]) == sorted(parts) and set(parts) <= set(described),
        dtypes=sorted(dtypes) == sorted(parts) and set(dtypes.values()) <= set(DTYPES),
        mixture_weights=sorted(mixture_weights) == sorted(parts)
        and all(1 / LARGEST_WEIGHT < float(weight) < LARGEST_WEIGHT for weight in mixture_weights.values()),
        mixture_shares=shares is None
        or (sorted(shares) == sorted(parts) and all(0 <= float(share) <= 1 for share in shares.values())),
        gate=gate is None or (len(parts) > 1 and 0 <= float(gate) <= 1),
        thresholds=thresholds is None
        if is_single
        else len(thresholds) == num_classes and all(0 <= float(it) <= 1 for it in thresholds),
    )
    guarantees, familiarity = values["promises"], values.get("familiarity")
    num_numbers = FEWEST_NUMBERS + (EVIDENCE_NUMBERS + RARITY_NUMBERS if "linear" in parts else 0)
    return {
        "dtypes": dtypes,
        "mixture_weights": tuple(float(mixture_weights[part]) for part in parts),
        "mixture_shares": shares and {part: float(shares[part]) for part in parts},
        "gate": None if gate is None else float(gate),
        "thresholds": tuple(map(float, thresholds or ())),
        "guarantees": None if guarantees is None else Guarantees.from_json(guarantees),
        "familiarity": None if familiarity is None else Familiarity.from_json(familiarity, num_numbers=num_numbers),
        "sha256": values["sha256"],
    }


def _check(where: str, **are_valid: bool) -> None:
    for name, is_valid in are_valid.items():
        if not is_valid:
            raise ValueError(f"{where}: {name} is not one of a classifier that this version knows")


def _is_within(value: Any, least: int, most: int | None) -> bool:
    return type(value) is int and least <= value and (most is None or value <= most)


def _are_texts(values: tuple[Any, ...]) -> bool:
    return all(isinstance(value, str) for value in values)
