"""What is known before the first step."""

from __future__ import annotations

import signal
from threading import Event

import numpy as np
import pytest
import torch
from support.small_runs import make_config, make_training

from encoder_cls.config.schema import Config, TokenizerConfig
from encoder_cls.errors import ConfigError, StoppedError
from encoder_cls.system import stop as interruptible
from encoder_cls.system.stop import stopping_at
from encoder_cls.text import tokenizer_training
from encoder_cls.training.prepare import prepare
from encoder_cls.training.prepared import Prepared


def prepared(folder, *, max_seq_len: int = 64) -> Prepared:
    """Ten training texts of one to ten words, and two for validation with a word that training lacks."""
    rows = [f"{' '.join(['word', 'and'] * 5)[: 9 * n].strip()},{'ab'[n % 2]}" for n in range(1, 11)]
    (folder / "train.csv").write_text("\n".join(["text,label", *rows]) + "\n")
    (folder / "validation.csv").write_text("text,label\nword unseen,a\nand word,b\n")
    files = {name: str(folder / f"{name}.csv") for name in ("train", "validation")}
    return prepare(
        make_config(folder, data=files, model={"max_seq_len": max_seq_len}, batch_size=2)
    )


def test_the_tokenizer_knows_the_training_texts_only(tmp_path):
    """A word of the validation texts alone stays unknown, and its rate is measured."""
    setup = prepared(tmp_path)
    assert setup.tokenizer.token_to_id("word") is not None
    assert setup.tokenizer.token_to_id("unseen") is None
    assert setup.data_statistics["unknown_fraction"] == 0.25


def with_subwords(folder, **train_values: object) -> Config:
    config = make_config(folder, **train_values)
    return config.model_copy(update={"tokenizer": TokenizerConfig(type="bpe")})


def test_long_words_that_a_tokenizer_does_not_learn_from_are_in_a_warning(tmp_path):
    """Also where the tokens come from a cache."""
    config = with_subwords(tmp_path, data={"cache": str(tmp_path / "cache")})
    with (tmp_path / "train.csv").open("a") as file:
        file.write(f"{'x' * 501},red\n" * 30)
    for _ in range(2):
        assert any("more than 500 characters" in line for line in prepare(config).warnings())


@pytest.mark.parametrize(
    ("signal_number", "values", "error"),
    [(signal.SIGINT, {}, StoppedError), (None, {"time_budget": "0.01s"}, ConfigError)],
    ids=["signal", "time budget"],
)
def test_training_a_tokenizer_keeps_neither_a_signal_nor_the_time_budget_from_being_heard(
    tmp_path, monkeypatch, signal_number, values, error
):
    """The library for tokenizers answers nobody while it works, which may be for minutes."""
    done, begun = Event(), []
    monkeypatch.setattr(interruptible, "SECONDS_BETWEEN_LOOKS", 0.01)
    monkeypatch.setattr(interruptible, "SECONDS_TO_END", 0.01)
    monkeypatch.setattr(
        tokenizer_training, "train_subwords", lambda *_, **__: begun.append(1) or done.wait(60)
    )
    with pytest.raises(error), stopping_at(lambda: signal_number if begun else None):
        prepare(with_subwords(tmp_path, **values))
    done.set()


def test_statistics_are_measured_on_the_texts(tmp_path):
    """Cut texts and padding are counted, as a slow loop counts them."""
    setup = prepared(tmp_path, max_seq_len=4)
    statistics = setup.data_statistics
    texts = setup.train_texts
    sampler = setup.model_sampler
    words = [len(text.split()) + 1 for text in setup.dataset.train.texts]
    assert statistics["truncated_fraction"] == sum(length > 4 for length in words) / 10
    assert statistics["tokens"] == sum(min(length, 4) for length in words)
    padded = sum(
        max(texts.lengths[i] for i in sampler.indices(b)) * len(sampler.indices(b))
        for b in range(5)
    )
    assert statistics["padding_fraction"] == pytest.approx(
        1 - sum(min(length, 4) for length in words) / padded
    )


def test_parameters_are_counted_without_changing_the_first_weights(tmp_path):
    setup = prepared(tmp_path)
    before = make_training(setup).model.state_dict()
    model = setup.new_model(setup.config.seed)
    assert setup.num_parameters == sum(parameter.numel() for parameter in model.parameters())
    assert {parameter.device.type for parameter in model.parameters()} == {"cpu"}
    for name, weight in make_training(setup).model.state_dict().items():
        assert torch.equal(weight, before[name])


@pytest.mark.parametrize(
    ("choice", "expected"),
    [("none", [1, 1, 1]), ("balanced", [1.25, 2.5, 0.625]), ({"b": 4.0}, [1, 4, 1])],
    ids=["none", "balanced", "named"],
)
def test_class_weights(tmp_path, choice, expected):
    """Balanced weights are inverse frequencies with the mean 1 over examples; unnamed classes have 1."""
    rows = [
        "text,label",
        *(f"x {i},a" for i in range(8)),
        *(f"y {i},b" for i in range(4)),
        *(f"z {i},c" for i in range(16)),
    ]
    (tmp_path / "train.csv").write_text("\n".join(rows) + "\n")
    setup = prepare(make_config(tmp_path, class_weights=choice, data={"validation_fraction": 0.25}))
    counts = np.bincount(setup.dataset.train.labels)
    weights = setup.class_weights
    if choice == "balanced":
        assert (weights.numpy() * counts) == pytest.approx([counts.sum() / 3] * 3)
    else:
        assert weights.tolist() == expected


def test_another_seed_trains_on_the_same_texts_and_another_split_seed_on_others(tmp_path):
    """So that runs of several seeds differ by their training alone."""
    changed = ({}, {"seed": 1}, {"data": {"split_seed": 1}})
    first, other_seed, other_split = (
        list(prepare(make_config(tmp_path, **values)).dataset.validation.texts)
        for values in changed
    )
    assert first == other_seed != other_split
