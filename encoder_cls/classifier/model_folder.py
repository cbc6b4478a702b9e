"""Save classifiers in model folders, and load them from folders or from the Hugging Face Hub.

A model folder has these files:

    model.safetensors   the weights of the parts; all other values are in the head of this file,
                        with a hash of the whole file
    config.json         task, columns, class names and sizes of the parts; a copy for other tools
    tokenizer.json      the tokenizer in the format of Hugging Face tokenizers; a copy, too
    README.md           the model card, written when training has finished

Loading reads only `model.safetensors`, so saving is atomic. Every value is checked, since a folder
may come from a stranger.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import asdict, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, BinaryIO

import safetensors
import safetensors.numpy
from numpy.typing import NDArray

from encoder_cls.classifier.classifier import PARTS, Classifier, TextFormat
from encoder_cls.classifier.familiarity import Familiarity
from encoder_cls.classifier.guarantees import Guarantees
from encoder_cls.classifier.hub_models import download_model
from encoder_cls.classifier.mixture import Mixture
from encoder_cls.config.reading_options import ReadingOptions
from encoder_cls.data.codes import Codes
from encoder_cls.encoder.architecture import EncoderArchitecture
from encoder_cls.encoder.engine_choice import ENGINES, new_encoder
from encoder_cls.errors import ConfigError, EncoderClsError
from encoder_cls.linear.linear_model import LINEAR, LinearModel, linear_shapes
from encoder_cls.metrics.tasks import SINGLE_LABEL, TASKS, Task
from encoder_cls.system.files import plain_file, read_file, sha256, to_json, write_file
from encoder_cls.system.hub import HUB
from encoder_cls.system.log import log
from encoder_cls.system.settings import own_settings
from encoder_cls.text.tokenizer import parse_tokenizer
from encoder_cls.weights import DTYPES, HIGH_HALVES_BYTES, Shapes, Weight, pack, unpack

if TYPE_CHECKING:
    from encoder_cls.encoder.transformer import EncoderClassifier

FORMAT = "encoder-cls"
FORMAT_VERSION = 1
CONFIG_FILE = "config.json"
TOKENIZER_FILE = "tokenizer.json"
WEIGHTS_FILE = "model.safetensors"

# The largest size of a head in bytes; the safetensors library refuses larger ones, too.
MAX_HEAD_BYTES = 100_000_000

# The largest whole number that is exact in the JSON of every program.
LARGEST_INT = 2**53

# The hash of a file is in its own head. While the hash is computed, the head has these zeros in its
# place.
NO_HASH = b"0" * 64


# --- Load -----------------------------------------------------------------------------------------


def model_folder(path: str | Path) -> Path:
    """Find the model folder of a run or at a path, or download `hub:owner/name[?revision=...]`.

    Raises:
        ConfigError: there is no model at this path.
        EncoderClsError: the Hub cannot be reached.
    """
    path = Path(path)
    if path.as_posix().startswith(HUB):
        files = (CONFIG_FILE, TOKENIZER_FILE, WEIGHTS_FILE)
        return download_model(path.as_posix(), files=files, marker=f'"{FORMAT}"')

    for folder in (path / "model", path):
        if (folder / WEIGHTS_FILE).exists():
            return folder
    if not path.exists():
        raise ConfigError(f"{path}: no such folder")
    if not path.is_dir():
        raise ConfigError(f"{path}: is a file; name the folder of a run or of a model")
    raise ConfigError(f"{path}: holds no model yet (a run has one after its first validation)")


@own_settings()
def load_classifier(
    path: str | Path,
    *,
    device: str = "auto",
    engine: str = "auto",
    model_class: type[EncoderClassifier] | None = None,
) -> Classifier:
    """Load a classifier from a run folder, a model folder or the Hugging Face Hub.

    Args:
        path: a folder, or `hub:owner/name[?revision=...]`.
        device: `auto`, `cpu`, `cuda` or `cuda:N`. With `auto`, a GPU is used if there is one and,
            unless the engine is `torch`, if a call has so many texts that starting it pays.
        engine: `numpy`, `torch` or `auto`, which takes NumPy for few texts, and PyTorch for many,
            if it is installed. Both compute in float32; their probabilities differ by at most 1e-5.
        model_class: the class of a user's own encoder.

    Raises:
        ConfigError: there is no classifier at this path, no such device or engine, or the encoder
            is of another class.
        EncoderClsError: the folder is damaged or comes from another program, or the Hub cannot be
            reached.
    """
    if engine not in ENGINES:
        raise ConfigError(f"--engine {engine}: known engines are {', '.join(ENGINES)}")

    named = Path(path).as_posix()
    folder = model_folder(path)
    source = named if named.startswith(HUB) else str(folder)
    with _reporting_damage(source):
        classifier, encoder_weights = _read(folder, model_class)
    classifier.folder = named

    if encoder_weights:
        # This is not within `_reporting_damage`, because a `RuntimeError` here means too little
        # memory, not a damaged folder.
        architecture = classifier.encoder_architecture
        assert architecture
        classifier.encoder = new_encoder(
            architecture, encoder_weights, engine=engine, device=device, model_class=model_class
        )
    log("info", f"loaded {path}: {classifier!r}")
    return classifier


def parts_of_model(folder: Path) -> tuple[str, ...]:
    """Read which parts a model has, without loading it.

    Raises:
        EncoderClsError: the folder is damaged or comes from another program.
    """
    with _reporting_damage(folder), plain_file(folder / WEIGHTS_FILE) as (file, size):
        head, _ = _read_head(file, size)
        return tuple(head["parts"])


@contextmanager
def _reporting_damage(source: str | Path) -> Iterator[None]:
    """Turn errors of reading a damaged or unknown file into an `EncoderClsError`."""
    try:
        yield
    except (
        ValueError,
        LookupError,
        ArithmeticError,
        TypeError,
        AttributeError,
        RuntimeError,
        safetensors.SafetensorError,
    ) as error:
        reason, _, _ = str(error).partition("\n")
        raise EncoderClsError(
            f"{source}: damaged, or not a model folder of encoder-cls: {reason}"
        ) from None


def _read(
    folder: Path, model_class: type[EncoderClassifier] | None
) -> tuple[Classifier, dict[str, Weight]]:
    """Read a classifier without its encoder, and the encoder's weights by name, if any."""
    with plain_file(folder / WEIGHTS_FILE) as (file, size):
        head, num_bytes = _read_head(file, size)
        classifier, shapes = _classifier_of(head, model_class)

        # Refuse a file that is too large before reading it into memory. It is largest if all
        # weights are float32, of 4 bytes; the ids of features are packed and need further bytes.
        max_bytes = HIGH_HALVES_BYTES
        for shapes_of_part in shapes.values():
            max_bytes += 4 * sum(math.prod(shape) for shape in shapes_of_part.values())
        if num_bytes > max_bytes:
            raise ValueError(f"{WEIGHTS_FILE} is larger than the weights that its head describes")
        content = _read_whole(file, head)

    try:
        weights = _weights(content, shapes, classifier.dtypes)
        if "linear" in weights:
            classifier.linear = LinearModel.from_weights(
                weights["linear"],
                max_tokens=head["config"]["linear"]["max_tokens"],
                task=classifier.task,
            )
    except (ValueError, KeyError) as error:
        raise ValueError(
            f"{WEIGHTS_FILE} has other weights than its head describes: {error}"
        ) from None
    return classifier, weights.get("encoder", {})


def _read_head(file: BinaryIO, size: int) -> tuple[dict[str, Any], int]:
    length = int.from_bytes(file.read(8), "little")
    if not 0 < length <= min(MAX_HEAD_BYTES, size):
        raise ValueError(f"{WEIGHTS_FILE} has no head")
    metadata = json.loads(file.read(length))["__metadata__"]
    return dict(json.loads(metadata[FORMAT], parse_int=_checked_int)), size - 8 - length


def _checked_int(digits: str) -> int:
    """Parse an integer; a `ValueError` if no size of a model is so large."""
    number = int(digits)
    if not -LARGEST_INT <= number <= LARGEST_INT:
        raise ValueError(f"a number of {len(digits)} digits")
    return number


def _read_whole(file: BinaryIO, head: Mapping[str, Any]) -> bytes:
    """Read the weights; a `ValueError` if the hash of the file is not that in the head."""
    file.seek(0)
    content = file.read()
    expected = head["sha256"]
    if sha256(content.replace(expected.encode(), NO_HASH, 1)) != expected:
        raise ValueError(f"{WEIGHTS_FILE} has changed since it was written")
    return content


def _weights(
    content: bytes, shapes: Mapping[str, Shapes], dtypes: Mapping[str, str]
) -> dict[str, dict[str, Weight]]:
    tensors_of_parts: dict[str, dict[str, NDArray[Any]]] = {}
    for name, tensor in safetensors.numpy.load(content).items():
        part = "encoder"
        if name.startswith(LINEAR):
            part = "linear"
        tensors_of_parts.setdefault(part, {})[name] = tensor

    if not tensors_of_parts.keys() <= dtypes.keys():
        raise ValueError("tensors of a part that the head does not name")

    weights = {}
    for part, dtype in dtypes.items():
        weights[part] = unpack(tensors_of_parts[part], shapes[part], dtype)
    return weights


# --- What the head of a weights file says, checked ------------------------------------------------


def _classifier_of(
    head: Mapping[str, Any], model_class: type[EncoderClassifier] | None
) -> tuple[Classifier, dict[str, Shapes]]:
    config = head["config"]
    task = _task_of(config)
    label_names = _label_names_of(config, task)
    max_seq_len = config["max_seq_len"]
    _check("max_seq_len", type(max_seq_len) is int and max_seq_len >= 1, "a number of tokens")
    tokenizer = parse_tokenizer(head["tokenizer"])

    # The shapes of the parts that the config describes.
    shapes: dict[str, Shapes] = {}
    architecture = None
    if config["encoder"] is not None:
        architecture = EncoderArchitecture(**config["encoder"])
        is_equal = architecture.max_seq_len == max_seq_len
        _check("encoder", is_equal, "the max_seq_len of the config")
        shapes["encoder"] = _encoder_shapes(
            head,
            architecture,
            model_class,
            vocab_size=tokenizer.get_vocab_size(),
            num_classes=len(label_names),
        )
    if config["linear"] is not None:
        margins = task.num_one_vs_rest(len(label_names))
        shapes["linear"] = linear_shapes(config["linear"], max_seq_len=max_seq_len, margins=margins)

    # The parts whose weights are in the file. The config may describe an encoder that is not
    # trained yet.
    parts = _parts_of(head, shapes)

    codes = _codes_of(config, label_names)
    classifier = Classifier(
        None,
        tokenizer,
        label_names,
        max_seq_len=max_seq_len,
        task=task,
        mixture=_mixture_of(head, parts),
        gate=_gate_of(head, parts),
        thresholds=_thresholds_of(head, task, num_classes=len(label_names)),
        text_format=_text_format_of(config),
        codes=codes,
        none_label=_none_label_of(config, label_names),
        encoder_architecture=architecture,
        model_class=model_class,
        dtypes=_dtypes_of(head, parts),
        sha256=head["sha256"],
    )
    if head["guarantees"] is not None:
        classifier.guarantees = Guarantees.from_json(head["guarantees"])
        is_complete = len(classifier.guarantees.labels) == len(classifier.thresholds)
        _check("guarantees.labels", is_complete, "counts of each label of a multi-label model")
        num_levels = codes.num_levels if codes else 1
        is_complete = len(classifier.guarantees.levels) in {0, num_levels - 1}
        _check("guarantees.levels", is_complete, "counts of each level above the classes")
    if head["familiarity"] is not None:
        classifier.familiarity = Familiarity.from_json(
            head["familiarity"], has_linear="linear" in parts
        )
    return classifier, shapes


def _encoder_shapes(
    head: Mapping[str, Any],
    architecture: EncoderArchitecture,
    model_class: type[EncoderClassifier] | None,
    *,
    vocab_size: int,
    num_classes: int,
) -> Shapes:
    """The shapes of the encoder's weights; a `ConfigError` if it is not a `model_class`."""
    saved_class = head["config"].get("model_class", "")
    given_class = model_class.__name__ if model_class else ""
    if saved_class != given_class and "encoder" in head["parts"]:
        raise ConfigError(
            f"the model's encoder is of the class {saved_class or 'EncoderClassifier'}, not of "
            f"{given_class or 'EncoderClassifier'}; load it in Python by "
            "load_classifier(path, model_class=...)"
        )

    if model_class:
        from encoder_cls.encoder.torch_encoder import weight_shapes

        return weight_shapes(
            model_class, architecture, vocab_size=vocab_size, num_classes=num_classes
        )
    return architecture.weight_shapes(vocab_size=vocab_size, num_classes=num_classes)


def _task_of(config: Any) -> Task:
    if not isinstance(config, dict) or config.get("format") != FORMAT:
        raise ValueError("its config is of another program")
    version = config["format_version"]
    if version != FORMAT_VERSION:
        raise ValueError(f"format version {version}; this program reads {FORMAT_VERSION}")

    task = TASKS.get(config["task"])
    if task is None:
        known = " and ".join(TASKS)
        raise ValueError(f"task: invalid value {config['task']!r} (expected {known})")
    return task


def _label_names_of(config: Mapping[str, Any], task: Task) -> tuple[str, ...]:
    id2label = config["id2label"]
    names = tuple(id2label[str(number)] for number in range(len(id2label)))
    has_enough = len(set(names)) == len(names) >= task.min_classes
    _check("id2label", has_enough and _are_texts(names), "different names of classes")
    return names


def _text_format_of(config: Mapping[str, Any]) -> TextFormat:
    columns = tuple(config["text_columns"])
    _check("text_columns", columns and _are_texts(columns), "names of columns")

    # Models that were saved before these two keys lack them.
    label_column = config.get("label_column", "label")
    _check("label_column", isinstance(label_column, str), "the name of a column")
    label_separator = config.get("label_separator")
    is_text = isinstance(label_separator, str) and label_separator != ""
    _check("label_separator", label_separator is None or is_text, "null or a separator")

    return TextFormat(
        columns=columns,
        reading=ReadingOptions(
            delimiter=config["delimiter"], encoding=config["encoding"], is_encoding_sure=False
        ),
        label_column=label_column,
        label_separator=label_separator,
    )


def _codes_of(config: Mapping[str, Any], label_names: tuple[str, ...]) -> Codes | None:
    levels = config.get("levels")
    names = config.get("code_names", {})
    are_names = isinstance(names, dict) and _are_texts((*names, *names.values()))
    _check("code_names", are_names, "names by code")
    if isinstance(levels, list):
        is_valid = bool(levels) and all(type(length) is int and length > 0 for length in levels)
        levels = tuple(levels)
    elif isinstance(levels, dict):
        is_valid = _are_texts((*levels, *levels.values()))
    else:
        is_valid = levels is None or (isinstance(levels, str) and levels != "")
    _check("levels", is_valid, "lengths of prefixes, a separator, or the code above each code")

    if levels is None and not names:
        return None
    codes = Codes(label_names, levels, names)
    _check("levels", codes.num_levels >= 1, "codes with an end")
    return codes


def _none_label_of(config: Mapping[str, Any], label_names: tuple[str, ...]) -> str | None:
    none_label: str | None = config.get("none_label")
    _check("none_label", none_label is None or none_label in label_names, "the name of a class")
    return none_label


def _parts_of(head: Mapping[str, Any], shapes: Mapping[str, Shapes]) -> list[str]:
    parts = [part for part in PARTS if part in head["parts"]]
    are_parts = sorted(head["parts"]) == sorted(parts) and set(parts) <= shapes.keys()
    _check("parts", parts and are_parts, "parts that the config describes")
    return parts


def _dtypes_of(head: Mapping[str, Any], parts: list[str]) -> dict[str, str]:
    dtypes: dict[str, str] = head["dtypes"]
    are_dtypes = sorted(dtypes) == sorted(parts) and set(dtypes.values()) <= set(DTYPES)
    _check("dtypes", are_dtypes, f"one of {', '.join(DTYPES)} for each part")
    return dtypes


def _mixture_of(head: Mapping[str, Any], parts: list[str]) -> Mixture:
    weights = head["mixture_weights"]
    has_all_parts = sorted(weights) == sorted(parts)
    are_weights = all(_is_mixture_weight(weight) for weight in weights.values())
    _check("mixture_weights", has_all_parts and are_weights, "a positive number for each part")

    shares = head["mixture_shares"]
    if shares is not None:
        has_all_parts = sorted(shares) == sorted(parts)
        are_shares = all(_is_fraction(share) for share in shares.values())
        _check("mixture_shares", has_all_parts and are_shares, "0 to 1 for each part")
        shares = {part: float(shares[part]) for part in parts}

    return Mixture(weights={part: float(weights[part]) for part in parts}, shares=shares)


def _gate_of(head: Mapping[str, Any], parts: list[str]) -> float | None:
    gate = head["gate"]
    if gate is None:
        return None
    _check("gate", len(parts) > 1 and _is_fraction(gate), "0 to 1, for two parts")
    return float(gate)


def _thresholds_of(head: Mapping[str, Any], task: Task, *, num_classes: int) -> tuple[float, ...]:
    thresholds = head["thresholds"]
    if task is SINGLE_LABEL:
        _check("thresholds", thresholds is None, "none for one label a text")
        return ()
    are_fractions = all(_is_fraction(threshold) for threshold in thresholds)
    is_valid = len(thresholds) == num_classes and are_fractions
    _check("thresholds", is_valid, "0 to 1 for each label")
    return tuple(float(threshold) for threshold in thresholds)


def _check(name: str, is_valid: object, expected: str) -> None:
    """Raise a `ValueError` that says what is expected of a value of the head."""
    if not is_valid:
        raise ValueError(f"{name}: invalid value (expected {expected})")


def _are_texts(values: tuple[Any, ...]) -> bool:
    return all(isinstance(value, str) for value in values)


def _is_fraction(value: Any) -> bool:
    return 0 <= float(value) <= 1


# The largest weight of a part in the mixture, far larger than any weight that is fitted.
MAX_MIXTURE_WEIGHT = 1e6


def _is_mixture_weight(value: Any) -> bool:
    return 1 / MAX_MIXTURE_WEIGHT < float(value) < MAX_MIXTURE_WEIGHT


# --- Save -----------------------------------------------------------------------------------------


def save_classifier(
    classifier: Classifier, folder: Path, *, dtypes: Mapping[str, str] | None = None
) -> None:
    """Save a classifier in a model folder, in place of an earlier one.

    Weights are stored in the data type of `dtypes` for their part, by default float32.

    Raises:
        EncoderClsError: a file cannot be written. An earlier classifier is undamaged.
    """
    dtypes = dtypes or dict.fromkeys(classifier.parts, "float32")
    tensors: dict[str, NDArray[Any]] = {}
    for part in classifier.parts:
        tensors |= pack(getattr(classifier, part).named_weights(), dtypes[part])

    _save(classifier, tensors, dtypes, folder)


def save_linear_part(model: str | Path, folder: str | Path) -> None:
    """Save the linear part of a model, without its encoder, as a model of its own.

    Gate, guarantees and familiarity were measured on both parts, and go. The thresholds of labels
    stay: by them, the report of a run scores its linear part.

    Raises:
        ConfigError: the model has no linear part.
        EncoderClsError: the model is damaged, or a file cannot be written.
    """
    source = model_folder(model)
    classifier = load_classifier(source, engine="numpy")
    if classifier.linear is None:
        raise ConfigError(f"{model}: is an encoder alone, without a linear part")

    if classifier.encoder:
        weight = classifier.mixture.weight_alone("linear")
        classifier = replace(
            classifier,
            encoder=None,
            encoder_architecture=None,
            mixture=Mixture(weights={"linear": weight}, shares={"linear": 1.0}),
            gate=None,
            guarantees=None,
            familiarity=None,
            dtypes={"linear": classifier.dtypes["linear"]},
        )

    # Copy the packed weights: to pack the unpacked ones again would round them twice.
    with _reporting_damage(source):
        every = safetensors.numpy.load(read_file(source / WEIGHTS_FILE))
    tensors = {name: tensor for name, tensor in every.items() if name.startswith(LINEAR)}
    _save(classifier, tensors, classifier.dtypes, Path(folder))


def _save(
    classifier: Classifier,
    tensors: dict[str, NDArray[Any]],
    dtypes: Mapping[str, str],
    folder: Path,
) -> None:
    head = _head_of(classifier, dtypes)
    _write_weights(folder, tensors, head)

    copies = {
        CONFIG_FILE: to_json(head["config"]),
        TOKENIZER_FILE: classifier.tokenizer.to_str(pretty=True).encode(),
    }
    for name, content in copies.items():
        path = folder / name
        if not path.is_file() or read_file(path) != content:
            write_file(path, content)


def _head_of(classifier: Classifier, dtypes: Mapping[str, str]) -> dict[str, Any]:
    # Shares are unknown if a part was added to the classifier since they were fitted.
    shares = classifier.mixture.shares
    if shares is not None and shares.keys() != set(classifier.parts):
        shares = None

    weights = classifier.mixture.weights_of(classifier.parts)
    values = {
        "config": _config_of(classifier),
        "tokenizer": classifier.tokenizer.to_str(),
        "parts": classifier.parts,
        "mixture_weights": dict(zip(classifier.parts, weights, strict=True)),
        "mixture_shares": shares,
        "dtypes": dtypes,
        "thresholds": classifier.thresholds or None,
    }
    return values | _measurements_of(classifier)


def save_measurements(classifier: Classifier, folder: Path) -> None:
    """Save the gate, guarantees and familiarity in the folder, whose weights stay as they are.

    Raises:
        EncoderClsError: the folder is damaged, or cannot be written.
    """
    with _reporting_damage(folder), plain_file(folder / WEIGHTS_FILE) as (file, size):
        head, _ = _read_head(file, size)
        content = _read_whole(file, head)
    del head["sha256"]
    _write_weights(folder, safetensors.numpy.load(content), head | _measurements_of(classifier))


def _config_of(classifier: Classifier) -> dict[str, Any]:
    architecture = classifier.encoder_architecture
    if classifier.encoder:
        architecture = classifier.encoder.architecture

    encoder = None
    if architecture is not None:
        encoder = asdict(architecture)
    linear = None
    if classifier.linear is not None:
        linear = classifier.linear.description

    values = {
        "format": FORMAT,
        "format_version": FORMAT_VERSION,
        "task": classifier.task.name,
        "text_columns": classifier.text_format.columns,
        "delimiter": classifier.text_format.reading.delimiter,
        "encoding": classifier.text_format.reading.encoding,
        "label_column": classifier.text_format.label_column,
        "label_separator": classifier.text_format.label_separator,
        "id2label": dict(enumerate(classifier.label_names)),
        "max_seq_len": classifier.max_seq_len,
        "encoder": encoder,
        "linear": linear,
    }
    if classifier.codes:
        values["levels"] = classifier.codes.rule
        values["code_names"] = dict(classifier.codes.names)
    if classifier.none_label is not None:
        values["none_label"] = classifier.none_label
    if classifier.model_class:
        values["model_class"] = classifier.model_class.__name__
    return values


def _measurements_of(classifier: Classifier) -> dict[str, Any]:
    guarantees = None
    if classifier.guarantees is not None:
        guarantees = classifier.guarantees.to_json()
    familiarity = None
    if classifier.familiarity is not None:
        familiarity = classifier.familiarity.to_json()

    return {
        "gate": classifier.gate,
        "guarantees": guarantees,
        "familiarity": familiarity,
    }


def _write_weights(folder: Path, tensors: dict[str, NDArray[Any]], head: Mapping[str, Any]) -> None:
    write_file(folder / WEIGHTS_FILE, _weights_content(tensors, head))


def _weights_content(tensors: dict[str, NDArray[Any]], head: Mapping[str, Any]) -> bytes:
    # All values are in one entry of the metadata. safetensors writes several entries in random
    # order, so that equal runs would have different files.
    values = json.dumps({"sha256": NO_HASH.decode(), **head}, ensure_ascii=False)
    content = safetensors.numpy.save(tensors, {FORMAT: values})
    return content.replace(NO_HASH, sha256(content).encode(), 1)
