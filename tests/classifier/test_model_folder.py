"""The portable model folder: what was saved is what is loaded, or nothing is."""

from __future__ import annotations

import copy
import json
import random
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import safetensors
import torch
from support.classifiers import (
    WORDS,
    labels_of,
    linear_alone,
    new_classifier,
    reseal,
    rewrite_config,
    tensors_of,
    with_linear,
)

import encoder_cls
from encoder_cls.classifier import model_folder as folder_module
from encoder_cls.classifier.classifier import Classifier, TextFormat
from encoder_cls.classifier.mixture import Mixture
from encoder_cls.classifier.model_folder import (
    CONFIG_FILE,
    FORMAT,
    TOKENIZER_FILE,
    WEIGHTS_FILE,
    load_classifier,
    model_folder,
    save_classifier,
)
from encoder_cls.encoder.transformer import EncoderClassifier
from encoder_cls.errors import ConfigError, EncoderClsError
from encoder_cls.linear.linear_model import LinearModel
from encoder_cls.linear.ngrams import NUM_FEATURE_IDS
from encoder_cls.weights import compress

# --- What is saved is what is loaded --------------------------------------------------------------


def contents(classifier: Classifier) -> dict[str, object]:
    """All that a model folder keeps of a classifier with both parts."""
    encoder = {}
    for name, weight in classifier.encoder.named_weights().items():
        encoder[name] = weight.tolist()

    linear = {}
    for name, value in vars(classifier.linear).items():
        if name == "weights":
            linear[name] = value.dense().tolist()
        else:
            linear[name] = np.array(value).tolist()

    return {
        "encoder": encoder,
        "linear": linear,
        "mixture": classifier.mixture,
        "tokenizer": classifier.tokenizer.to_str(),
        "architecture": classifier.encoder.architecture,
        "label_names": classifier.label_names,
        "text_format": classifier.text_format,
    }


@pytest.mark.parametrize("num_classes", [2, 3])
def test_a_classifier_with_both_parts_is_loaded_as_it_was_saved(tmp_path, num_classes):
    saved = with_linear(["weather", "food", "sport"][:num_classes])

    save_classifier(saved, tmp_path)

    assert contents(load_classifier(tmp_path)) == contents(saved)


def test_a_linear_model_alone_is_a_classifier(tmp_path):
    names = ["weather", "food", "sport"]
    alone = linear_alone(names)
    save_classifier(alone, tmp_path)

    loaded = load_classifier(tmp_path)

    assert loaded.encoder is None
    assert loaded.parts == ("linear",)
    assert loaded.predict([*WORDS, "zzz", ""]) == alone.predict([*WORDS, "zzz", ""])
    assert labels_of(loaded, WORDS) == names


def test_a_linear_model_predicts_beside_an_encoder_that_is_not_there_yet(tmp_path):
    """The config describes both parts, and the weights are those of one."""
    names = ["weather", "food", "sport"]
    save_classifier(with_linear(names), tmp_path)
    linear_tensors = {}
    for name, tensor in tensors_of(tmp_path).items():
        if name.startswith("linear."):
            linear_tensors[name] = tensor

    reseal(
        tmp_path,
        linear_tensors,
        parts=["linear"],
        mixture_weights={"linear": 3.0},
        dtypes={"linear": "float32"},
    )

    assert load_classifier(tmp_path).predict(WORDS) == linear_alone(names).predict(WORDS)


def test_class_names_keep_their_order(tmp_path):
    numbers = [str(number) for number in range(20, 5, -1)]
    names = ["zebra", "ä", "a", *numbers]
    save_classifier(new_classifier(names), tmp_path)

    loaded = load_classifier(tmp_path)

    assert loaded.label_names == tuple(names)
    assert list(loaded.predict(["some"])[0].probabilities) == names


def test_the_run_and_its_model_folder_are_the_same_classifier(trained_run):
    texts = ["rain and snow", "salt", "the race"]
    for path in (str(trained_run.path), trained_run.path, trained_run.model):
        loaded = encoder_cls.load_classifier(path)
        assert labels_of(loaded, texts) == ["weather", "küche", "sport"]


@pytest.mark.parametrize(
    ("shares", "kept"),
    [
        ({"encoder": 1.0}, {"encoder": 1.0}),
        ({"encoder": 0.5, "linear": 0.5}, None),
        (None, None),
    ],
    ids=str,
)
def test_mixture_shares_are_kept_if_they_are_those_of_the_parts(tmp_path, shares, kept):
    classifier = new_classifier(["a", "b"])
    classifier.mixture = Mixture(shares=shares)

    save_classifier(classifier, tmp_path)

    assert load_classifier(tmp_path).mixture.shares == kept


def test_equal_classifiers_are_equal_files(tmp_path):
    files = []
    for name in ("a", "b"):
        save_classifier(new_classifier(["x", "y"]), tmp_path / name)
        files.append({path.name: path.read_bytes() for path in (tmp_path / name).iterdir()})
    assert files[0] == files[1]

    reseal(tmp_path / "a")
    assert (tmp_path / "a" / WEIGHTS_FILE).read_bytes() == files[1][WEIGHTS_FILE]


def other_classifier(classifier: Classifier) -> Classifier:
    """A copy that reads another column."""
    other = copy.copy(classifier)
    other.text_format = TextFormat(columns=("another",))
    return other


def test_the_copies_have_the_values_of_the_model(classifier, tmp_path):
    for model in (classifier, other_classifier(classifier)):
        save_classifier(model, tmp_path)

        with safetensors.safe_open(tmp_path / WEIGHTS_FILE, "np") as file:
            head = json.loads(file.metadata()[FORMAT])
        tokenizer = json.loads((tmp_path / TOKENIZER_FILE).read_bytes())
        assert head["config"] == json.loads((tmp_path / CONFIG_FILE).read_bytes())
        assert json.loads(head["tokenizer"]) == tokenizer


@pytest.mark.parametrize(
    ("last", "is_replaced"),
    [(WEIGHTS_FILE, False), (CONFIG_FILE, True), (TOKENIZER_FILE, True)],
)
def test_a_writer_that_is_killed_leaves_one_whole_model(
    classifier, tmp_path, monkeypatch, last, is_replaced
):
    """The weights decide which one it is, whatever their copies say."""
    other = other_classifier(classifier)
    save_classifier(classifier, tmp_path)
    # The tokenizer is written again only if its file is not there.
    (tmp_path / TOKENIZER_FILE).unlink()
    write_file = folder_module.write_file

    def write_or_die(path, content):
        if path.name == last:
            raise KeyboardInterrupt
        write_file(path, content)

    monkeypatch.setattr(folder_module, "write_file", write_or_die)
    with pytest.raises(KeyboardInterrupt):
        save_classifier(other, tmp_path)

    expected = classifier.text_format
    if is_replaced:
        expected = other.text_format
    assert load_classifier(tmp_path).text_format == expected


# --- What is damaged or forged is refused ---------------------------------------------------------


def test_a_changed_byte_is_refused(run_copy):
    path = run_copy.weights
    content = path.read_bytes()
    head = 8 + int.from_bytes(content[:8], "little")
    draw = random.Random(0)
    places = [draw.randrange(head) for _ in range(30)]
    places += [draw.randrange(len(content)) for _ in range(30)]

    for place in places:
        damaged = bytearray(content)
        damaged[place] ^= draw.randrange(1, 256)
        path.write_bytes(damaged)
        with pytest.raises(EncoderClsError, match="damaged") as error:
            load_classifier(run_copy.path, device="cpu")
        assert len(str(error.value).splitlines()) == 1


def contents_of_other_lengths(content: bytes) -> Iterator[bytes]:
    """The content of a file cut at several places, and with a further byte."""
    for num_bytes in (1, 7, 9, len(content) // 2, len(content) - 1):
        yield content[:num_bytes]
    yield content + b" "


def test_a_file_of_another_length_is_refused(run_copy):
    for content in contents_of_other_lengths(run_copy.weights.read_bytes()):
        run_copy.weights.write_bytes(content)
        with pytest.raises(EncoderClsError, match="damaged"):
            load_classifier(run_copy.path)


def test_an_empty_file_has_no_head(run_copy):
    run_copy.weights.write_bytes(b"")

    with pytest.raises(EncoderClsError, match=r"damaged.*model\.safetensors has no head"):
        load_classifier(run_copy.path)


def test_a_file_larger_than_its_weights_is_refused_by_its_head(classifier, tmp_path, monkeypatch):
    """A forged file of some GB would fill the memory."""
    save_classifier(classifier, tmp_path)
    with (tmp_path / WEIGHTS_FILE).open("ab") as file:
        file.truncate(1 << 34)
    monkeypatch.setattr(folder_module, "_read_whole", lambda *_: pytest.fail("read"))

    with pytest.raises(EncoderClsError, match="is larger than the weights"):
        load_classifier(tmp_path)


def test_too_little_memory_is_not_a_damaged_folder(trained_run, monkeypatch):
    """Torch's error is not hidden."""

    def refuse(*args, **kwargs):
        raise RuntimeError("can't allocate memory")

    monkeypatch.setattr(EncoderClassifier, "to", refuse)

    with pytest.raises(RuntimeError, match="allocate"):
        load_classifier(trained_run.path, engine="torch")


def invalid_heads() -> Iterator[dict[str, Any]]:
    """Values of a head that no classifier with an encoder alone has."""
    for weight in (0.0, -1.5, 1e300, 1e-300, float("nan"), float("inf"), "loud", None, [1.0]):
        yield {"mixture_weights": {"encoder": weight}}
    for weights in ({}, {"linear": 1.0}, {"encoder": 1.0, "linear": 1.0}, [1.0], 1.0, None):
        yield {"mixture_weights": weights}
    yield {"mixture_weights": {"encoder": 10**400}}
    for shares in ({"encoder": 1.5}, {"encoder": "nan"}, {"linear": 1.0}, {}, [1.0], "much"):
        yield {"mixture_shares": shares}
    for parts in ([], ["linear"], ["encoder", "linear"], ["encoder"] * 2, "encoder", None):
        yield {"parts": parts}
    for dtypes in ({"encoder": "int4"}, {"linear": "float32"}, {}, "float32"):
        yield {"dtypes": dtypes}
    for config in ({"model_type": "bert"}, [], None, "x"):
        yield {"config": config}
    yield {"thresholds": [0.5, 0.5]}
    yield {"guarantees": {"0.95": 0.7}}

    # A gate is between two parts.
    yield {"gate": 0.9}


@pytest.mark.parametrize("head", list(invalid_heads()), ids=str)
def test_a_head_that_no_classifier_has_is_refused(tmp_path, head):
    """It is refused where the hash fits, too."""
    save_classifier(new_classifier(["a", "b"]), tmp_path)
    reseal(tmp_path, **head)

    with pytest.raises(EncoderClsError, match="damaged"):
        load_classifier(tmp_path)


@pytest.mark.parametrize(
    ("values", "reason"),
    [
        ({"format": "other"}, "of another program"),
        ({"format_version": 2}, "format version 2; this program reads 1"),
        (
            {"task": "regression"},
            r"task: invalid value 'regression' \(expected single-label and multi-label\)",
        ),
        ({"text_columns": []}, "text_columns"),
        ({"text_columns": [1]}, "text_columns"),
        ({"max_seq_len": 10**400}, "a number of 401 digits"),
        ({"max_seq_len": 17}, r"encoder: invalid value \(expected the max_seq_len of the config\)"),
        ({"encoder": {}}, "missing 10 required"),
        ({"encoder": {"d_model": 16}}, "missing 9 required"),
    ],
)
def test_a_foreign_or_altered_config_is_refused(run_copy, values, reason):
    rewrite_config(run_copy.model, **values)

    with pytest.raises(EncoderClsError, match=reason):
        load_classifier(run_copy.path)


def test_the_tokenizer_of_another_model_is_refused(run_copy, tmp_path):
    save_classifier(new_classifier(["a", "b"]), tmp_path / "other")
    reseal(run_copy.model, tokenizer=(tmp_path / "other" / TOKENIZER_FILE).read_text())

    with pytest.raises(EncoderClsError, match="damaged"):
        load_classifier(run_copy.path)


def linear_model_of_two_features() -> Classifier:
    """A classifier whose linear model has two features."""
    classifier = with_linear(["a", "b"])
    linear = classifier.linear
    classifier.linear = LinearModel(
        max_tokens=9,
        frequent_token_ids=linear.frequent_token_ids[:2],
        feature_ids=linear.feature_ids[:2],
        idf=linear.idf[:2],
        weights=compress(linear.weights.dense()[:2], "float32"),
        biases=linear.biases,
    )
    return classifier


@pytest.mark.parametrize(
    "tensors",
    [
        {"linear.feature_ids": torch.tensor([5, 4], dtype=torch.int32)},
        {"linear.feature_ids": torch.tensor([4, 4], dtype=torch.int32)},
        {"linear.feature_ids": torch.tensor([-1, 4], dtype=torch.int32)},
        {"linear.feature_ids": torch.tensor([4, NUM_FEATURE_IDS], dtype=torch.int32)},
        {"linear.biases": torch.ones(2)},
    ],
    ids=str,
)
def test_weights_that_no_linear_model_has_are_refused(tmp_path, tensors):
    """Ids are out of order or out of range, or biases have another shape; the hash fits."""
    save_classifier(linear_model_of_two_features(), tmp_path)
    assert load_classifier(tmp_path).linear is not None

    reseal(tmp_path, tensors_of(tmp_path) | tensors)

    with pytest.raises(EncoderClsError, match="damaged"):
        load_classifier(tmp_path)


def invalid_linear_descriptions() -> Iterator[tuple[dict[str, Any], str]]:
    """Values of the description of a linear model, each with a part of the message."""
    too_many = 1 << 40
    for value in (-1, 1.0, True, "2", [2], too_many):
        yield {"features": value}, "linear: features"
    for value in (-1, 0, 9.0, True, "9", None, too_many):
        yield {"max_tokens": value}, "linear: max_tokens"
    for value in (-1, 2.0, True, "2", [2], too_many):
        yield {"frequent_tokens": value}, "linear: frequent_tokens"

    # The weights have other shapes.
    for value in (0, 3):
        yield {"features": value}, "other weights"
        yield {"frequent_tokens": value}, "other weights"


@pytest.mark.parametrize(("changed", "reason"), list(invalid_linear_descriptions()), ids=str)
def test_an_invalid_description_of_a_linear_model_is_refused(tmp_path, changed, reason):
    save_classifier(with_linear(["a", "b"]), tmp_path)
    config = json.loads((tmp_path / CONFIG_FILE).read_bytes())
    rewrite_config(tmp_path, linear=config["linear"] | changed)

    with pytest.raises(EncoderClsError, match=rf"damaged.*{reason}"):
        load_classifier(tmp_path)


@pytest.mark.parametrize(
    ("path", "reason"),
    [
        ("nowhere", "no such folder"),
        (".", "holds no model yet"),
        (__file__, "is a file; name the folder of a run or of a model"),
    ],
)
def test_a_path_without_a_model_is_refused(path, reason):
    with pytest.raises(ConfigError, match=reason):
        model_folder(Path(path))
