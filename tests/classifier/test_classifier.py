"""The portable model folder: what was saved is what is loaded, or nothing is."""

from __future__ import annotations

import copy
import json
import pickle
import random
from pathlib import Path

import numpy as np
import pytest
import safetensors.torch
import torch
from support.tiny_encoder import tiny_model_config
from support.tokenizer import train_tokenizer

import encoder_cls
from encoder_cls.classifier.attention_maps import attention_maps
from encoder_cls.classifier.classifier import Classifier, Mixture, TextFormat
from encoder_cls.classifier.model_folder import (
    FORMAT,
    NO_HASH,
    load_classifier,
    model_folder,
    save_classifier,
)
from encoder_cls.config.schema import TokenizerConfig
from encoder_cls.encoder.torch_encoder import TorchEncoder
from encoder_cls.encoder.transformer import EncoderClassifier
from encoder_cls.errors import ConfigError, EncoderClsError
from encoder_cls.linear.features import CountedTexts, LinearOptions
from encoder_cls.linear.linear_model import LinearModel
from encoder_cls.linear.nb_svm import fit_linear
from encoder_cls.linear.ngrams import NUM_FEATURE_IDS
from encoder_cls.metrics.logits import softmax
from encoder_cls.system.files import sha256
from encoder_cls.weights import compress

TEXTS = ["rain and snow today", "", "a big soup with zzz", "ball " * 40]


def contents(classifier) -> dict[str, object]:
    """All that a model folder keeps of a classifier."""
    encoder = classifier.encoder.named_weights()
    linear = None
    if classifier.linear:
        linear = {
            name: value.dense().tolist() if name == "weights" else np.array(value).tolist()
            for name, value in vars(classifier.linear).items()
        }
    return {
        "encoder": {name: weight.tolist() for name, weight in encoder.items()},
        "linear": linear,
        "mixture": classifier.mixture,
        "tokenizer": classifier.tokenizer.to_str(),
        "architecture": classifier.encoder.architecture,
        "label_names": classifier.label_names,
        "text_format": classifier.text_format,
    }


def new_classifier(
    label_names, *, seed=0, texts=("some words to know",), kind="word_level"
) -> Classifier:
    torch.manual_seed(seed)
    config = tiny_model_config(max_seq_len=8)
    tokenizer = train_tokenizer(texts, TokenizerConfig(type=kind))
    model = EncoderClassifier(
        config, vocab_size=tokenizer.get_vocab_size(), num_classes=len(label_names)
    )
    encoder = TorchEncoder(model, config)
    return Classifier(
        encoder,
        tokenizer,
        tuple(label_names),
        max_seq_len=config.max_seq_len,
        text_format=TextFormat(columns=("title", "body")),
    )


def test_too_little_memory_is_not_a_damaged_folder(trained_run, monkeypatch):
    """Torch's error is not hidden."""

    def refuse(*args, **kwargs):
        raise RuntimeError("can't allocate memory")

    monkeypatch.setattr(EncoderClassifier, "to", refuse)
    with pytest.raises(RuntimeError, match="allocate"):
        load_classifier(trained_run.path, engine="torch")


def pickled_copy(classifier: Classifier) -> Classifier:
    return pickle.loads(pickle.dumps(classifier))  # noqa: S301 - its own


@pytest.mark.parametrize("make_copy", [copy.deepcopy, pickled_copy])
@pytest.mark.parametrize("kind", ["word_level", "bpe"])
def test_a_copy_predicts_the_same(make_copy, kind):
    """The names of special tokens stay ordinary characters of a text."""
    original = new_classifier(["a", "b"], texts=["rain [ PAD ]", "snow"], kind=kind)
    copied = make_copy(original)
    texts = ["[PAD]", "rain [CLS] [MASK]", "snow"]
    assert copied.predict(texts) == original.predict(texts)

    found = copied.tokenize(texts)
    expected = original.tokenize(texts)
    assert found.input_ids().tolist() == expected.input_ids().tolist()
    assert found.offsets.tolist() == expected.offsets.tolist()


def test_class_names_keep_their_order(tmp_path):
    names = ["zebra", "ä", "a", *(str(number) for number in range(20, 5, -1))]
    save_classifier(new_classifier(names), tmp_path)
    loaded = load_classifier(tmp_path)
    assert loaded.label_names == tuple(names)
    assert list(loaded.predict(["some"])[0].probabilities) == names


def test_the_run_and_its_model_folder_are_the_same_classifier(trained_run):
    for path in (str(trained_run.path), trained_run.path, trained_run.model):
        predictions = encoder_cls.load_classifier(path).predict(
            ["rain and snow", "salt", "the race"]
        )
        assert [prediction.label for prediction in predictions] == ["weather", "küche", "sport"]


def test_a_blank_text_has_no_label(classifier):
    texts = ["", " \t\n\u00a0", "\u3000"]
    for prediction in classifier.predict(texts):
        assert prediction.reason == "blank"
        assert prediction.label is None
        assert prediction.probability is None
        assert prediction.label_from(0.0) is None


def test_a_label_is_withheld_below_a_threshold(classifier):
    (prediction,) = classifier.predict(["rain"])
    assert prediction.reason is None
    assert prediction.label_from(0.0) == "weather"
    assert prediction.label_from(1.0) is None


def test_predictions_have_the_probabilities_of_all_classes(classifier):
    texts = ["", "rain", "\u3000"]
    found = [list(prediction.probabilities.values()) for prediction in classifier.predict(texts)]
    assert found == classifier.predict_proba(texts).tolist()


def with_linear(label_names, **options) -> Classifier:
    """An encoder that knows nothing, and a linear model that knows one word of each class."""
    classifier = new_classifier(label_names, texts=WORDS[: len(label_names)])
    texts = classifier.tokenize(WORDS[: len(label_names)] * 3)
    weights = np.ones(len(label_names), dtype=np.float32)
    labels = np.arange(len(texts)) % len(label_names)
    texts_of_labels = CountedTexts.of(texts, labels, LinearOptions(9, True, weights))
    classifier.linear, _ = fit_linear(texts_of_labels)
    classifier.mixture = Mixture(weights={"encoder": 0.5, "linear": 3.0})
    return classifier


WORDS = ["rain", "soup", "ball"]


@pytest.mark.parametrize("num_classes", [2, 3])
def test_logits_are_a_weighted_sum_of_both_parts(tmp_path, num_classes):
    names = ["weather", "food", "sport"][:num_classes]
    saved = with_linear(names)
    save_classifier(saved, tmp_path)
    loaded = load_classifier(tmp_path)
    assert contents(loaded) == contents(saved)

    texts = loaded.tokenize(TEXTS)
    expected = 0.5 * loaded.encoder.logits(texts) + 3 * loaded.linear.logits(texts)
    np.testing.assert_allclose(loaded.logits(texts), expected, rtol=1e-5)
    np.testing.assert_allclose(loaded.predict_proba(TEXTS), softmax(expected), rtol=1e-4)
    assert labels_of(loaded, WORDS[:num_classes]) == names


def labels_of(classifier: Classifier, texts: list[str]) -> list[str | None]:
    return [prediction.label for prediction in classifier.predict(texts)]


@pytest.mark.parametrize(
    "weights",
    [
        {"linear.feature_ids": torch.tensor([5, 4], dtype=torch.int32)},
        {"linear.feature_ids": torch.tensor([4, 4], dtype=torch.int32)},
        {"linear.feature_ids": torch.tensor([-1, 4], dtype=torch.int32)},
        {"linear.feature_ids": torch.tensor([4, NUM_FEATURE_IDS], dtype=torch.int32)},
        {"linear.biases": torch.ones(2)},
    ],
    ids=str,
)
def test_a_linear_classifier_that_is_none_is_refused(tmp_path, weights):
    """Its ids are out of order or out of range, or it has another shape; the hash fits."""
    classifier = with_linear(["a", "b"])
    linear = classifier.linear
    kept = {
        name: getattr(linear, name)[:2] for name in ("frequent_token_ids", "feature_ids", "idf")
    }
    kept |= {
        "max_tokens": 9,
        "weights": compress(linear.weights.dense()[:2], "float32"),
        "biases": linear.biases,
    }
    classifier.linear = LinearModel(**kept)
    save_classifier(classifier, tmp_path)
    assert load_classifier(tmp_path).linear is not None
    reseal(tmp_path, weights)
    with pytest.raises(EncoderClsError, match="damaged"):
        load_classifier(tmp_path)


def invalid_linear_descriptions():
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
def test_an_invalid_description_of_a_linear_classifier_is_refused(tmp_path, changed, reason):
    save_classifier(with_linear(["a", "b"]), tmp_path)
    config = json.loads((tmp_path / "config.json").read_bytes())
    rewrite_config(tmp_path, linear=config["linear"] | changed)
    with pytest.raises(EncoderClsError, match=rf"damaged.*{reason}"):
        load_classifier(tmp_path)


@pytest.mark.parametrize(
    ("text", "truncated", "unknown_words"),
    [
        ("", False, 0),
        ("rain " * 15, False, 0),
        ("rain " * 16, True, 0),
        ("zzz rain yyy", False, 2),
        ("x" * 2000, True, 1),
    ],
)
def test_what_is_not_read_is_flagged(classifier, text, truncated, unknown_words):
    prediction = classifier.predict([text])[0]
    assert (prediction.truncated, prediction.unknown_words) == (truncated, unknown_words)


def test_a_changed_byte_is_refused(run_copy):
    path = run_copy.model / "model.safetensors"
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


def reseal(folder: Path, weights=None, *, keep: bool = True, **header) -> None:
    """Write other weights or another head with the hash that belongs to them, as a forger would."""
    path = folder / "model.safetensors"
    with safetensors.safe_open(path, "pt") as file:
        former = json.loads(file.metadata()[FORMAT])
        kept = {name: file.get_tensor(name) for name in file.keys()} if keep else {}  # noqa: SIM118
        weights = kept | (weights or {})
    header = former | header | {"sha256": NO_HASH.decode()}
    content = safetensors.torch.save(weights, {FORMAT: json.dumps(header, ensure_ascii=False)})
    path.write_bytes(content.replace(NO_HASH, sha256(content).encode(), 1))


def test_equal_classifiers_are_equal_files(tmp_path):
    files = []
    for name in ("a", "b"):
        save_classifier(new_classifier(["x", "y"]), tmp_path / name)
        files.append({path.name: path.read_bytes() for path in (tmp_path / name).iterdir()})
    assert files[0] == files[1]
    reseal(tmp_path / "a")
    assert (tmp_path / "a" / "model.safetensors").read_bytes() == files[1]["model.safetensors"]


def invalid_heads():
    for weight in (0.0, -1.5, 1e300, 1e-300, float("nan"), float("inf"), "loud", None, [1.0]):
        yield {"mixture_weights": {"encoder": weight}}
    for weights in ({}, {"linear": 1.0}, {"encoder": 1.0, "linear": 1.0}, [1.0], 1.0, None):
        yield {"mixture_weights": weights}
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


@pytest.mark.parametrize("metadata", list(invalid_heads()), ids=str)
def test_metadata_that_no_classifier_has_is_refused(tmp_path, metadata):
    """It is refused where the hash fits, too."""
    save_classifier(new_classifier(["a", "b"]), tmp_path)
    reseal(tmp_path, **metadata)
    with pytest.raises(EncoderClsError, match="damaged"):
        load_classifier(tmp_path)


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


def linear_alone(names: list[str]) -> Classifier:
    both = with_linear(names)
    return Classifier(
        None,
        both.tokenizer,
        both.label_names,
        max_seq_len=8,
        linear=both.linear,
        mixture=Mixture(weights={"linear": 3.0}),
    )


def test_a_linear_classifier_alone_is_a_classifier(tmp_path):
    names = ["weather", "food", "sport"]
    alone = linear_alone(names)
    save_classifier(alone, tmp_path)
    loaded = load_classifier(tmp_path)
    assert loaded.encoder is None
    assert loaded.parts == ("linear",)
    assert loaded.predict([*WORDS, "zzz", ""]) == alone.predict([*WORDS, "zzz", ""])
    assert labels_of(loaded, WORDS) == names

    with pytest.raises(ConfigError, match="no encoder"):
        loaded.embed(["rain"])
    with pytest.raises(ConfigError, match="no encoder"):
        attention_maps(loaded, "rain")


def test_a_linear_classifier_predicts_beside_an_encoder_that_is_not_there_yet(tmp_path):
    """The config describes both parts, and the weights are those of one."""
    names = ["weather", "food", "sport"]
    save_classifier(with_linear(names), tmp_path)
    weights = safetensors.torch.load_file(tmp_path / "model.safetensors")
    kept = {name: weight for name, weight in weights.items() if name.startswith("linear.")}
    reseal(
        tmp_path,
        kept,
        keep=False,
        parts=["linear"],
        mixture_weights={"linear": 3.0},
        dtypes={"linear": "float32"},
    )
    assert load_classifier(tmp_path).predict(WORDS) == linear_alone(names).predict(WORDS)


@pytest.mark.parametrize("keep", [0, 1, 7, 9, 0.5, -1, None])
def test_a_cut_or_extended_file_is_refused(run_copy, keep):
    path = run_copy.model / "model.safetensors"
    content = path.read_bytes()
    end = int(len(content) * keep) if isinstance(keep, float) else keep
    path.write_bytes(content + b" " if keep is None else content[:end])
    with pytest.raises(EncoderClsError, match="damaged"):
        load_classifier(run_copy.path)


def rewrite_config(folder: Path, **values) -> None:
    """Write other values of the config, with the hash that belongs to them."""
    reseal(folder, config=json.loads((folder / "config.json").read_bytes()) | values)


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
    reseal(run_copy.model, tokenizer=(tmp_path / "other" / "tokenizer.json").read_text())
    with pytest.raises(EncoderClsError, match="damaged"):
        load_classifier(run_copy.path)


def test_an_empty_file_of_weights_is_damaged(run_copy):
    run_copy.weights.write_bytes(b"")
    with pytest.raises(EncoderClsError, match=r"damaged.*model\.safetensors has no head"):
        load_classifier(run_copy.path)


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
