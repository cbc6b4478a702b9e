"""Preparation: the data, tokens and warnings of a run before its first step."""

from __future__ import annotations

import signal
from threading import Event

import numpy as np
import pytest
import torch
from support.small_runs import make_config, make_training

from encoder_cls.config.schema import Config, TokenizerConfig
from encoder_cls.data.dataset import Dataset
from encoder_cls.errors import ConfigError, DataError, StoppedError
from encoder_cls.linear_training.class_weights import class_weights
from encoder_cls.system import stop
from encoder_cls.system.stop import stopping_at
from encoder_cls.text import tokenizer_training
from encoder_cls.training.data_statistics import data_statistics, num_parameters
from encoder_cls.training.encoder_stage import untrained_encoder
from encoder_cls.training.prepare import prepare
from encoder_cls.training.prepared import Prepared
from encoder_cls.training.run_warnings import run_warnings

VALIDATION = """\
text,label
word unseen,a
and word,b
"""


def prepared(folder, *, max_seq_len: int = 64) -> Prepared:
    """Prepare ten training texts of two to ten words, and two validation texts.

    The validation texts have a word that the training texts lack.
    """
    words = ["word", "and"] * 5
    lines = ["text,label"]
    for number in range(1, 11):
        text = " ".join(words)[: 9 * number].strip()
        lines.append(f"{text},{'ab'[number % 2]}")

    train_file = folder / "train.csv"
    train_file.write_text("\n".join(lines) + "\n")
    validation_file = folder / "validation.csv"
    validation_file.write_text(VALIDATION)

    config = make_config(
        folder,
        data={"train": str(train_file), "validation": str(validation_file)},
        model={"max_seq_len": max_seq_len},
        batch_size=2,
    )
    return prepare(config)


def test_a_validation_text_that_is_in_train_chooses_nothing(tmp_path):
    """One among others is left out; without others, there is nothing to choose by."""
    (tmp_path / "learned.csv").write_text("text,label\nword and,a\nand word,b\n")
    data = {"validation": str(tmp_path / "learned.csv")}
    (tmp_path / "train.csv").write_text("text,label\nword and,a\nword,b\n")
    setup = prepare(make_config(tmp_path, data=data))

    assert list(setup.dataset.known_validation.texts) == ["and word"]
    assert len(setup.validation_texts) == 1
    assert list(setup.dataset.validation.texts) == ["word and", "and word"]
    (warning,) = [line for line in run_warnings(setup) if "validation text" in line]
    assert warning.startswith("1 of 2 validation texts is among the training texts, too")
    assert warning.endswith("such texts select no weights, calibrate nothing and guarantee nothing")

    config = make_config(tmp_path, data={"validation": str(tmp_path / "train.csv")})
    with pytest.raises(DataError, match="each of its 2 texts is in train, too"):
        prepare(config)


def test_the_tokenizer_knows_the_training_texts_only(tmp_path):
    """A word that only validation texts have is unknown, and counts in the unknown fraction."""
    setup = prepared(tmp_path)

    assert setup.tokenizer.token_to_id("word") is not None
    assert setup.tokenizer.token_to_id("unseen") is None
    assert data_statistics(setup)["unknown_fraction"] == 0.25


def with_subwords(folder, **train_values: object) -> Config:
    """A config whose tokenizer is BPE."""
    config = make_config(folder, **train_values)
    return config.model_copy(update={"tokenizer": TokenizerConfig(type="bpe")})


def test_long_words_that_a_tokenizer_does_not_learn_from_are_in_a_warning(tmp_path):
    """There is a warning even if the tokens are read from a cache."""
    config = with_subwords(tmp_path, data={"cache": str(tmp_path / "cache")})
    long_word = "x" * 501
    with (tmp_path / "train.csv").open("a") as file:
        file.write(f"{long_word},red\n" * 30)

    for _ in range(2):
        warnings = list(run_warnings(prepare(config)))
        assert any("more than 500 characters" in warning for warning in warnings)


@pytest.fixture
def tokenizer_begun(monkeypatch):
    """An event that is set when a tokenizer's training begins, which ends with the test."""
    begun = Event()
    ended = Event()

    def train_until_ended(*_, **__) -> None:
        begun.set()
        ended.wait(60)

    monkeypatch.setattr(tokenizer_training, "train_subwords", train_until_ended)
    monkeypatch.setattr(stop, "SECONDS_BETWEEN_LOOKS", 0.01)
    monkeypatch.setattr(stop, "SECONDS_TO_END", 0.01)
    yield begun
    ended.set()


def test_a_signal_stops_the_training_of_a_tokenizer(tmp_path, tokenizer_begun):
    """The tokenizer library itself may not check for signals for minutes."""

    def stop_signal() -> int | None:
        if tokenizer_begun.is_set():
            return signal.SIGINT
        return None

    with pytest.raises(StoppedError), stopping_at(stop_signal):
        prepare(with_subwords(tmp_path))


def test_the_time_budget_ends_the_training_of_a_tokenizer(tmp_path, tokenizer_begun):
    with pytest.raises(ConfigError, match=r"train\.time_budget"), stopping_at(lambda: None):
        prepare(with_subwords(tmp_path, time_budget="1s"))

    assert tokenizer_begun.is_set()


def test_statistics_count_truncated_texts_and_padding(tmp_path):
    """A slow loop over all texts gives the same statistics."""
    setup = prepared(tmp_path, max_seq_len=4)

    # Each text also has the token [CLS].
    lengths = [len(text.split()) + 1 for text in setup.dataset.train.texts]
    truncated_lengths = [min(length, 4) for length in lengths]

    # Each batch is padded to the length of its longest text.
    num_padded = 0
    for number in range(5):
        rows = setup.encoder_sampler.indices(number)
        longest = max(truncated_lengths[row] for row in rows)
        num_padded += longest * len(rows)

    statistics = data_statistics(setup)
    assert statistics["truncated_fraction"] == sum(length > 4 for length in lengths) / 10
    assert statistics["tokens"] == sum(truncated_lengths)
    padding_fraction = 1 - sum(truncated_lengths) / num_padded
    assert statistics["padding_fraction"] == pytest.approx(padding_fraction)


def test_parameters_are_counted_without_changing_the_first_weights(tmp_path):
    setup = prepared(tmp_path)
    before = make_training(setup).trainer.model.state_dict()
    parameters = list(untrained_encoder(setup, setup.config.seed).parameters())

    assert num_parameters(setup) == sum(parameter.numel() for parameter in parameters)

    assert {parameter.device.type for parameter in parameters} == {"cpu"}
    after = make_training(setup).trainer.model.state_dict()
    for name, weight in after.items():
        assert torch.equal(weight, before[name])


def dataset_of_three_classes(folder) -> Dataset:
    """Eight texts of the class a, four of b and sixteen of c."""
    lines = ["text,label"]
    for label, size in {"a": 8, "b": 4, "c": 16}.items():
        lines += [f"{label}x {number},{label}" for number in range(size)]
    (folder / "train.csv").write_text("\n".join(lines) + "\n")

    data = {"validation_fraction": 0.25}
    return prepare(make_config(folder, data=data)).dataset


@pytest.mark.parametrize(
    ("setting", "expected"),
    [
        ("none", [1, 1, 1]),
        ({"b": 4.0}, [1, 4, 1]),
    ],
)
def test_classes_without_a_weight_of_their_own_have_1(tmp_path, setting, expected):
    dataset = dataset_of_three_classes(tmp_path)

    assert class_weights(setting, dataset).tolist() == expected


def test_balanced_class_weights_are_inverse_frequencies_with_the_mean_1_over_texts(tmp_path):
    dataset = dataset_of_three_classes(tmp_path)

    counts = np.bincount(dataset.train.labels)
    weighted_counts = class_weights("balanced", dataset) * counts
    assert weighted_counts == pytest.approx([counts.sum() / 3] * 3)


def test_another_seed_trains_on_the_same_texts_and_another_split_seed_on_others(tmp_path):
    """The split does not depend on the seed, so runs of several seeds have the same data."""

    def validation_texts(**values: object) -> list[str]:
        return list(prepare(make_config(tmp_path, **values)).dataset.validation.texts)

    texts = validation_texts()
    assert validation_texts(seed=1) == texts
    assert validation_texts(data={"split_seed": 1}) != texts
