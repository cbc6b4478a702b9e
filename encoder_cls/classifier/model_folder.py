"""Save and load the model folder, also from the Hugging Face Hub.

    model.safetensors   weights of the parts; the metadata holds everything else, and a hash of the whole file
    config.json         task, columns, class names, shapes of the parts: a copy for people and other tools
    tokenizer.json      Hugging Face tokenizers format: a copy, too
    README.md           model card, written when training has finished

Only `model.safetensors` is read, and it is replaced in one atomic rename. In format 8, config and tokenizer are only in
their own files. Every value is checked, since a folder may come from a stranger.
"""

from __future__ import annotations

import json
import math
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import asdict
from pathlib import Path
from typing import Any, BinaryIO

import safetensors
import safetensors.numpy
from numpy.typing import NDArray
from tokenizers import Tokenizer

from encoder_cls.classifier.classifier import PARTS, Classifier
from encoder_cls.classifier.guarantees import Familiarity, Guarantees
from encoder_cls.encoder.architecture import EncoderArchitecture
from encoder_cls.encoder.numpy_encoder import ENGINES, new_encoder
from encoder_cls.errors import ConfigError, EncoderClsError
from encoder_cls.linear.linear_model import LINEAR, LinearClassifier, linear_shapes
from encoder_cls.metrics.logits import SINGLE_LABEL, TASKS
from encoder_cls.system.display import shown
from encoder_cls.system.files import plain_file, read_file, sha256, to_json, write_file
from encoder_cls.system.machine import check_installed, log
from encoder_cls.text.tokenizer import parse_tokenizer
from encoder_cls.weights import DTYPES, TABLE_OF_IDS, Shapes, Weight, pack, unpack

FORMAT, FORMAT_VERSION = "encoder-cls", 9
READABLE_VERSIONS = (8, FORMAT_VERSION)
CONFIG_FILE, TOKENIZER_FILE, WEIGHTS_FILE = "config.json", "tokenizer.json", "model.safetensors"
LARGEST_HEAD = 100_000_000  # bytes; safetensors reads no larger one
NO_HASH = b"0" * 64  # in place of the file's own hash while that is computed
HUB = "hub:"
HUB_TIMEOUT = 10.0  # seconds
LARGEST_WEIGHT = 1e6  # of a part in the mixture: far more than is ever fitted


def model_folder(path: Path) -> Path:
    """The model folder of a run, or of a model's own path; a `ConfigError` if there is none."""
    for folder in (path / "model", path):
        if (folder / WEIGHTS_FILE).exists():
            return folder
    if not path.exists():
        raise ConfigError(f"{path}: no such folder")
    raise ConfigError(f"{path}: holds no model yet (a run has one after its first validation)")


def load_classifier(path: str | Path, *, device: str = "auto", engine: str = "auto") -> Classifier:
    """Load a classifier from a run folder, a model folder or the Hugging Face Hub, checking its hash.

    Args:
        path: of the folder, or `hub:owner/name[?revision=...]`.
        device: that computes the encoder: `auto`, `cpu`, `cuda` or `cuda:N`.
        engine: that computes the encoder: `numpy`, `torch` in float32, or `auto`: NumPy for a few texts, PyTorch (if
            installed) for many, in bfloat16 if the device is fast at it.

    Raises:
        ConfigError: there is no classifier at this path, or no such device or engine.
        EncoderClsError: the folder is damaged, or of another program; or the Hub cannot be reached.
    """
    if engine not in ENGINES:
        raise ConfigError(f"--engine {engine}: known engines are {', '.join(ENGINES)}")
    named = Path(path).as_posix()
    is_of_hub = named.startswith(HUB)
    folder = _download(named) if is_of_hub else model_folder(Path(path))
    with _reporting_damage(named if is_of_hub else folder):
        classifier, weights = _read(folder)
    classifier.folder = named
    if weights:
        # Not in the block above: here a `RuntimeError` means too little memory, not a damaged folder.
        architecture = classifier.encoder_architecture
        assert architecture
        classifier.encoder = new_encoder(architecture, weights, engine=engine, device=device)
    log("info", f"loaded {path}: {classifier!r}")
    return classifier


def _download(source: str) -> Path:
    """Download a model into the Hub's cache; if the Hub cannot be reached, an earlier download is used.

    Weights of another program are not downloaded. Errors as of `load_classifier`.
    """
    name, question, query = source.removeprefix(HUB).partition("?")
    key, _, escaped = query.partition("=")
    badly_written = ConfigError(f"{source}: write it as hub:owner/name[?revision=...]")
    if not name or (question and (key != "revision" or not escaped)):
        raise badly_written
    check_installed("huggingface_hub", needed_by=source)
    from urllib.parse import unquote

    from huggingface_hub import errors

    try:
        folder, missing = _downloaded(name, unquote(escaped) or None)
    except errors.HFValidationError:
        raise badly_written from None
    except errors.RevisionNotFoundError:
        raise ConfigError(
            f"{source}: this model has no revision {shown(unquote(escaped))}"
        ) from None
    except errors.RepositoryNotFoundError:
        raise ConfigError(
            f"{source}: the Hub has no such model, or does not show it to you"
        ) from None
    except Exception as error:
        reason = next(
            (line for line in str(error).splitlines() if line.strip()), type(error).__name__
        )
        raise EncoderClsError(
            f"{source}: cannot be downloaded: {reason} (check the network, or download the folder and name it instead)"
        ) from None
    if missing:
        raise ConfigError(f"{source}: not a model of {FORMAT}: it has no {missing}")
    return folder


def _downloaded(name: str, revision: str | None) -> tuple[Path, str]:
    """Download the files; returns their folder, and the name of a missing file, if any."""
    from huggingface_hub import HfApi, errors, hf_hub_download
    from huggingface_hub.utils.tqdm import disable_progress_bars

    if not sys.stderr.isatty():
        disable_progress_bars()
    unreachable: Exception | None = None
    try:  # first, since this has a time limit: behind some firewalls downloads would be retried, or wait for ever
        HfApi().model_info(name, revision=revision, timeout=HUB_TIMEOUT)
    except (errors.HfHubHTTPError, ValueError):
        raise
    except Exception as error:
        unreachable = error
        log(
            "warning",
            f"{name}: the Hub cannot be reached; what was downloaded before is used ({error})",
        )
    folder, file = Path(), CONFIG_FILE
    try:
        for file in (CONFIG_FILE, TOKENIZER_FILE, WEIGHTS_FILE):
            path = Path(
                hf_hub_download(
                    name, file, revision=revision, local_files_only=unreachable is not None
                )
            )
            folder, revision = (
                path.parent,
                path.parent.name,
            )  # all of one commit, whatever is published meanwhile
            if file == CONFIG_FILE and f'"{FORMAT}"'.encode() not in path.read_bytes():
                return folder, f'"{FORMAT}" in its {file}'
    except errors.LocalEntryNotFoundError as error:
        raise unreachable or error from None
    except errors.EntryNotFoundError:
        return folder, file
    return folder, ""


def save_classifier(
    classifier: Classifier, folder: Path, *, dtypes: Mapping[str, str] | None = None
) -> None:
    """Write the folder, or replace the classifier in it; `dtypes` are those of the weights of each part.

    Raises:
        EncoderClsError: the disk refused; the folder still holds the whole classifier that it had, if any.
    """
    dtypes = dtypes or dict.fromkeys(classifier.parts, "float32")
    tensors: dict[str, NDArray[Any]] = {}
    for part in classifier.parts:
        tensors |= pack(getattr(classifier, part).named_weights(), dtypes[part])
    config, tokenizer, shares = (
        _config_of(classifier),
        classifier.tokenizer,
        classifier.mixture_shares,
    )
    metadata = {
        "config": config,
        "tokenizer": tokenizer.to_str(),
        "parts": classifier.parts,
        "mixture_weights": dict(zip(classifier.parts, classifier.mixture_weights, strict=True)),
        "mixture_shares": shares if shares and shares.keys() == set(classifier.parts) else None,
        "dtypes": dtypes,
        "thresholds": classifier.thresholds or None,
    }
    _write_weights(folder, tensors, metadata | _measured(classifier))
    copies = {CONFIG_FILE: to_json(config), TOKENIZER_FILE: tokenizer.to_str(pretty=True).encode()}
    for path, content in ((folder / name, content) for name, content in copies.items()):
        if not path.is_file() or read_file(path) != content:
            write_file(path, content)


def save_measured(classifier: Classifier, folder: Path) -> None:
    """Replace gate and guarantees in a model folder, and keep its weights. Errors as of `save_classifier`."""
    with _reporting_damage(folder), plain_file(folder / WEIGHTS_FILE) as (file, size):
        metadata, _ = _read_head(file, size)
        content = _read_whole(file, metadata)
    del metadata["sha256"]
    _write_weights(folder, safetensors.numpy.load(content), metadata | _measured(classifier))


def parts_of_model(folder: Path) -> tuple[str, ...]:
    """The parts of the classifier in a model folder, `linear`, `encoder` or both, without loading it.

    Errors as of `load_classifier`.
    """
    with _reporting_damage(folder), plain_file(folder / WEIGHTS_FILE) as (file, size):
        metadata, _ = _read_head(file, size)
        return tuple(metadata["parts"])


def _config_of(classifier: Classifier) -> dict[str, Any]:
    encoder, linear = classifier.encoder, classifier.linear
    architecture = encoder.architecture if encoder else classifier.encoder_architecture
    return {
        "format": FORMAT,
        "format_version": FORMAT_VERSION,
        "task": classifier.task.name,
        "text_columns": classifier.text_columns,
        # Without defaults, so that resuming a run of an older version writes the same bytes.
        **({"delimiter": classifier.delimiter} if classifier.delimiter else {}),
        **({} if classifier.encoding == Classifier.encoding else {"encoding": classifier.encoding}),
        "id2label": dict(enumerate(classifier.label_names)),
        "max_seq_len": classifier.max_seq_len,
        "encoder": architecture and asdict(architecture),
        "linear": linear and linear.description,
    }


def _measured(classifier: Classifier) -> dict[str, Any]:
    """The metadata measured on held-out texts."""
    guarantees, familiarity = classifier.guarantees, classifier.familiarity
    return {
        "gate": classifier.gate,
        "promises": guarantees and guarantees.to_json(),
        "familiarity": familiarity and familiarity.to_json(),
    }


def _write_weights(
    folder: Path, tensors: dict[str, NDArray[Any]], metadata: Mapping[str, Any]
) -> None:
    # One entry, so that equal runs give equal files: safetensors writes several in random order.
    values = json.dumps({"sha256": NO_HASH.decode(), **metadata}, ensure_ascii=False)
    content = safetensors.numpy.save(tensors, {FORMAT: values})
    write_file(folder / WEIGHTS_FILE, content.replace(NO_HASH, sha256(content).encode(), 1))


@contextmanager
def _reporting_damage(source: str | Path) -> Iterator[None]:
    try:
        yield
    except (
        ValueError,
        KeyError,
        TypeError,
        AttributeError,
        RuntimeError,
        safetensors.SafetensorError,
    ) as error:
        reason, _, _ = str(error).partition("\n")
        raise EncoderClsError(
            f"{source}: damaged, or not a model folder of encoder-cls: {reason}"
        ) from None


def _read_head(file: BinaryIO, size: int) -> tuple[dict[str, Any], int]:
    """The metadata of a weights file, and the number of bytes after its head."""
    length = int.from_bytes(file.read(8), "little")
    if length > min(LARGEST_HEAD, size):
        raise ValueError(f"{WEIGHTS_FILE} has no head")
    return dict(
        json.loads(json.loads(file.read(length))["__metadata__"][FORMAT])
    ), size - 8 - length


def _read_whole(file: BinaryIO, metadata: Mapping[str, Any]) -> bytes:
    """The content of a weights file; a `ValueError` if its hash is another."""
    file.seek(0)
    content = file.read()
    if sha256(content.replace(metadata["sha256"].encode(), NO_HASH, 1)) != metadata["sha256"]:
        raise ValueError(f"{WEIGHTS_FILE} has changed since it was written")
    return content


def _read(folder: Path) -> tuple[Classifier, dict[str, Weight]]:
    """A classifier without its encoder, and the weights of that; errors as `_reporting_damage` catches them."""
    with plain_file(folder / WEIGHTS_FILE) as (file, size):
        metadata, num_bytes = _read_head(file, size)
        if "config" in metadata:
            config, tokenizer = metadata["config"], parse_tokenizer(metadata["tokenizer"])
        else:
            config, tokenizer = _read_format_8(folder, metadata)
        classifier, shapes = _checked(config, metadata, tokenizer)
        # Checked before the whole file is in memory.
        largest = 4 * sum(
            math.prod(shape) for of_part in shapes.values() for shape in of_part.values()
        )
        if num_bytes > largest + TABLE_OF_IDS:
            raise ValueError(
                f"{WEIGHTS_FILE} is larger than the weights that {CONFIG_FILE} describes"
            )
        content = _read_whole(file, metadata)
    try:
        weights = _weights(content, shapes, classifier.dtypes)
        if "linear" in weights:
            max_tokens = config["linear"]["max_tokens"]
            linear = LinearClassifier.from_weights(
                weights["linear"], max_tokens=max_tokens, task=classifier.task
            )
            classifier.linear = linear
    except (ValueError, KeyError) as error:
        raise ValueError(
            f"{WEIGHTS_FILE} has other weights than {CONFIG_FILE} describes: {error}"
        ) from None
    return classifier, weights.get("encoder", {})


def _read_format_8(folder: Path, metadata: Mapping[str, Any]) -> tuple[Any, Tokenizer]:
    """Config and tokenizer from their own files, whose hashes are in the weights file."""
    config, tokenizer = read_file(folder / CONFIG_FILE), read_file(folder / TOKENIZER_FILE)
    values = json.loads(config)
    if (metadata["config_sha256"], values["tokenizer_sha256"]) != (
        sha256(config),
        sha256(tokenizer),
    ):
        raise ValueError(
            f"{WEIGHTS_FILE}, {CONFIG_FILE} and {TOKENIZER_FILE} do not belong together"
        )
    return values, parse_tokenizer(tokenizer.decode())


def _checked(
    config: Any, metadata: Mapping[str, Any], tokenizer: Tokenizer
) -> tuple[Classifier, dict[str, Shapes]]:
    """A classifier without its parts, and the shapes of the weights of each part."""
    if not isinstance(config, dict) or config.get("format") != FORMAT:
        raise ValueError(f"{CONFIG_FILE} is of another program")
    if config["format_version"] not in READABLE_VERSIONS:
        known = " and ".join(map(str, READABLE_VERSIONS))
        raise ValueError(f"format version {config['format_version']}; this program reads {known}")
    task = TASKS.get(config["task"])
    if task is None:
        raise ValueError(
            f"task {config['task']!r}, which only a newer version of encoder-cls knows"
        )
    names = tuple(config["id2label"][str(number)] for number in range(len(config["id2label"])))
    columns, max_seq_len = tuple(config["text_columns"]), config["max_seq_len"]
    shapes: dict[str, Shapes] = {}
    encoder = None if config["encoder"] is None else EncoderArchitecture(**config["encoder"])
    if encoder:
        shapes["encoder"] = encoder.weight_shapes(
            vocab_size=tokenizer.get_vocab_size(), num_classes=len(names)
        )
    if config["linear"] is not None:
        margins = task.num_one_vs_rest(len(names))
        shapes["linear"] = linear_shapes(config["linear"], max_seq_len=max_seq_len, margins=margins)
    parts = [part for part in PARTS if part in metadata["parts"]]
    dtypes, mixture_weights, thresholds = (
        metadata[key] for key in ("dtypes", "mixture_weights", "thresholds")
    )
    shares, gate = metadata.get("mixture_shares"), metadata.get("gate")
    are_valid = {
        "id2label": len(set(names)) == len(names) >= task.fewest_classes
        and all(isinstance(it, str) for it in names),
        "text_columns": bool(columns) and all(isinstance(it, str) for it in columns),
        "max_seq_len": type(max_seq_len) is int and max_seq_len >= 1,
        "encoder": not encoder or encoder.max_seq_len == max_seq_len,
        "parts": bool(parts)
        and sorted(metadata["parts"]) == sorted(parts)
        and set(parts) <= shapes.keys(),
        "dtypes": sorted(dtypes) == sorted(parts) and set(dtypes.values()) <= set(DTYPES),
        "mixture_weights": sorted(mixture_weights) == sorted(parts)
        and all(
            1 / LARGEST_WEIGHT < float(weight) < LARGEST_WEIGHT
            for weight in mixture_weights.values()
        ),
        "mixture_shares": shares is None
        or (sorted(shares) == sorted(parts) and all(map(_is_fraction, shares.values()))),
        "gate": gate is None or (len(parts) > 1 and _is_fraction(gate)),
        "thresholds": thresholds is None
        if task is SINGLE_LABEL
        else len(thresholds) == len(names) and all(map(_is_fraction, thresholds)),
    }
    for name, is_valid in are_valid.items():
        if not is_valid:
            raise ValueError(f"{name} is not one of a classifier that this version knows")
    guarantees, familiarity, has_linear = (
        metadata["promises"],
        metadata.get("familiarity"),
        "linear" in parts,
    )
    classifier = Classifier(
        None,
        tokenizer,
        names,
        text_columns=columns,
        max_seq_len=max_seq_len,
        encoder_architecture=encoder,
        task=task,
        delimiter=config.get("delimiter"),
        encoding=config.get("encoding", Classifier.encoding),
        dtypes=dtypes,
        mixture_weights=tuple(float(mixture_weights[part]) for part in parts),
        mixture_shares=shares and {part: float(shares[part]) for part in parts},
        gate=None if gate is None else float(gate),
        thresholds=tuple(map(float, thresholds or ())),
        guarantees=None if guarantees is None else Guarantees.from_json(guarantees),
        familiarity=None
        if familiarity is None
        else Familiarity.from_json(familiarity, has_linear=has_linear),
        sha256=metadata["sha256"],
    )
    return classifier, shapes


def _is_fraction(value: Any) -> bool:
    return 0 <= float(value) <= 1


def _weights(
    content: bytes, shapes: Mapping[str, Shapes], dtypes: Mapping[str, str]
) -> dict[str, dict[str, Weight]]:
    """The weights of each part."""
    by_part: dict[str, dict[str, NDArray[Any]]] = {}
    for name, tensor in safetensors.numpy.load(content).items():
        by_part.setdefault("linear" if name.startswith(LINEAR) else "encoder", {})[name] = tensor
    if not by_part.keys() <= dtypes.keys():
        raise ValueError("tensors of a part that the metadata does not name")
    return {part: unpack(by_part[part], shapes[part], dtype) for part, dtype in dtypes.items()}
