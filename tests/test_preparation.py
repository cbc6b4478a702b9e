"""What is known before the first step."""

from __future__ import annotations

import pytest
import torch

from encoder_cls.config import Config
from encoder_cls.preparation import Preparation, prepare


def prepared(folder, *, max_seq_len: int = 64, **train_values: object) -> Preparation:
    """Ten training texts of one to ten words, and two for validation with a word that training lacks."""
    rows = [f"{' '.join(['word', 'and'] * 5)[: 9 * n].strip()},{'ab'[n % 2]}" for n in range(1, 11)]
    (folder / "train.csv").write_text("\n".join(["text,label", *rows]) + "\n")
    (folder / "validation.csv").write_text("text,label\nword unseen,a\nand word,b\n")
    return prepare(
        Config.model_validate(
            {
                "name": "test",
                "data": {"train": str(folder / "train.csv"), "validation": str(folder / "validation.csv")},
                "model": {"d_model": 8, "num_layers": 1, "num_heads": 1, "d_ff": 8, "max_seq_len": max_seq_len},
                "train": {"epochs": 3, "batch_size": 2, **train_values},
            }
        )
    )


def test_the_tokenizer_knows_the_training_texts_only(tmp_path):
    """A word of the validation texts alone stays unknown, and its rate is measured."""
    preparation = prepared(tmp_path)
    assert preparation.tokenizer.token_to_id("word") is not None
    assert preparation.tokenizer.token_to_id("unseen") is None
    assert preparation.facts["unknown_fraction"] == 0.25


@pytest.mark.parametrize(("many", "expected"), [(1, 5), (2, 3), (5, 1), (9, 1)])
def test_steps_are_counted_in_updates(tmp_path, many, expected):
    """Accumulated batches make one step; the last step of an epoch may have fewer."""
    preparation = prepared(tmp_path, accumulation_steps=many)
    assert preparation.schedule.batches_per_epoch == 5
    assert preparation.steps_per_epoch == expected
    assert preparation.total_steps == 3 * expected


def test_facts_are_measured_on_the_texts(tmp_path):
    """Cut texts and padding are counted, as a slow loop counts them."""
    preparation = prepared(tmp_path, max_seq_len=4)
    facts, texts, schedule = preparation.facts, preparation.train_texts, preparation.schedule
    words = [len(text.split()) + 1 for text in preparation.dataset.train.texts]
    assert facts["truncated_fraction"] == sum(length > 4 for length in words) / 10
    padded = sum(max(texts.lengths[i] for i in schedule.indices(b)) * len(schedule.indices(b)) for b in range(5))
    assert facts["padding_fraction"] == pytest.approx(1 - sum(min(length, 4) for length in words) / padded)


def test_the_first_weights_depend_on_the_seed_alone(tmp_path):
    """Whatever was drawn before, the model starts from the same weights."""
    preparation = prepared(tmp_path)
    one = preparation.new_model().state_dict()
    torch.randn(7)
    other = preparation.new_model().state_dict()
    assert all(torch.equal(one[name], other[name]) for name in one)


def test_parameters_are_counted_without_changing_the_first_weights(tmp_path):
    """The count is that of the real model."""
    preparation = prepared(tmp_path)
    assert preparation.num_parameters == sum(p.numel() for p in preparation.new_model().parameters())
    assert {p.device.type for p in preparation.new_model().parameters()} == {"cpu"}
