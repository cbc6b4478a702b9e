"""Batches of labelled texts: what a model learns of each text, and how much it counts."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from support.tokenizer import train_tokenizer

from encoder_cls.config.schema import TokenizerConfig, TrainConfig
from encoder_cls.encoder_training.classification_loss import Targets, make_labelled_batch
from encoder_cls.text.tokenizer import tokenize

TEXTS = ["red", "blue sky", "green grass"]


def batch_of(targets: Targets, rows: list[int], **train_values: Any) -> Any:
    texts = tokenize(train_tokenizer(TEXTS, TokenizerConfig()), TEXTS, max_seq_len=8)
    config = TrainConfig(word_dropout=0.0, **train_values)
    return make_labelled_batch(texts, np.array(rows), targets, config, generator=None)


def test_an_unlabelled_text_has_its_pseudo_label_and_the_weight_1():
    """The rows of unlabelled texts follow those of the labelled ones."""
    targets = Targets(
        labels=np.array([0, 2]),
        class_weights=torch.tensor([1.0, 1.0, 3.0]),
        text_weights=np.array([0.5, 1.5], dtype=np.float32),
        pseudo_labels=np.array([[0.25, 0.5, 0.25]], dtype=np.float32),
    )

    batch = batch_of(targets, [2, 1], label_smoothing=0.0, rdrop_weight=0.0)

    assert batch.targets.tolist() == [[0.25, 0.5, 0.25], [0, 0, 1]]
    assert batch.text_weights.tolist() == [1.0, 1.5]
    assert batch.weights.tolist() == [1, 1, 3]


def test_smoothing_moves_a_part_of_a_label_to_all_classes():
    targets = Targets(labels=np.array([0, 2, 1]), class_weights=torch.ones(3))

    batch = batch_of(targets, [1], label_smoothing=0.3, rdrop_weight=0.0)

    assert batch.targets[0].tolist() == pytest.approx([0.1, 0.1, 0.8])


def test_smoothing_moves_a_part_of_each_label_to_having_and_to_lacking_it():
    """The weights of several labels are those of the labels that a text has, times its own."""
    targets = Targets(
        labels=np.array([[1, 0, 0], [0, 1, 1], [0, 0, 0]], dtype=np.float32),
        class_weights=torch.tensor([2.0, 3.0, 4.0]),
        text_weights=np.array([1.0, 0.5, 1.5], dtype=np.float32),
    )

    batch = batch_of(targets, [1, 2], label_smoothing=0.2, rdrop_weight=0.0)

    expected = torch.tensor([[0.1, 0.9, 0.9], [0.1, 0.1, 0.1]])
    torch.testing.assert_close(batch.targets, expected)
    assert batch.weights.tolist() == [[0.5, 1.5, 2.0], [1.5, 1.5, 1.5]]


def test_r_drop_has_each_text_in_both_halves_of_a_batch():
    targets = Targets(labels=np.array([0, 2, 1]), class_weights=torch.ones(3))

    batch = batch_of(targets, [2, 0], label_smoothing=0.0, rdrop_weight=1.0)

    assert batch.targets.argmax(dim=1).tolist() == [1, 0, 1, 0]
    first, second = batch.inputs.input_ids.chunk(2)
    assert torch.equal(first, second)
    assert not torch.equal(first[0], first[1])
