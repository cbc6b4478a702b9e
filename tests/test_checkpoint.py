"""Checkpoints: what is saved comes back, and what is damaged is noticed."""

from __future__ import annotations

import random

import pytest
import torch

from encoder_cls.checkpoint import TrainingState, load_newest, save_checkpoint
from encoder_cls.config import ModelConfig, TrainConfig
from encoder_cls.model import EncoderClassifier
from encoder_cls.optimization import make_optimizer

STATE = TrainingState(
    step=3,
    validated_step=2,
    best_score=(0.5, -1.25),
    best_step=2,
    stale_validations=1,
    sums={"loss": 0.1, "steps": 3.0},
)
FACTS = {"threads": 2}


def make_trained(seed=0):
    """A tiny model and an optimizer with moments."""
    torch.manual_seed(seed)
    config = ModelConfig(d_model=4, num_layers=1, num_heads=1, d_ff=4, max_seq_len=4)
    model = EncoderClassifier(config, vocab_size=6, num_classes=2)
    optimizer = make_optimizer(model, TrainConfig())
    for _ in range(2):
        for parameter in model.parameters():
            parameter.grad = torch.randn_like(parameter)
        optimizer.step()
    return model, optimizer


def save(folder, *, step=3, keep=2, seed=0):
    from dataclasses import replace

    model, optimizer = make_trained(seed)
    save_checkpoint(folder, model, optimizer, replace(STATE, step=step), facts=FACTS, keep=keep)
    return model, optimizer


def test_everything_comes_back_and_training_goes_on_alike(tmp_path):
    """State, weights and moments are restored exactly: the next update is the same."""
    model, optimizer = save(tmp_path)
    checkpoint, warnings = load_newest(tmp_path)
    assert (checkpoint.state, checkpoint.facts, warnings) == (STATE, FACTS, [])
    restored, restored_optimizer = make_trained(seed=9)
    checkpoint.restore(restored, restored_optimizer)
    for one, other in ((model, optimizer), (restored, restored_optimizer)):
        for parameter in one.parameters():
            parameter.grad = torch.ones_like(parameter)
        other.step()
    for left, right in zip(model.parameters(), restored.parameters(), strict=True):
        assert torch.equal(left, right)


@pytest.mark.parametrize("name", ["model.safetensors", "optimizer.safetensors", "state.json", "manifest.json"])
def test_every_flipped_bit_and_every_cut_is_noticed(tmp_path, name):
    """One wrong bit or a missing end, anywhere: the checkpoint is passed over and the older one is used."""
    save(tmp_path, step=2)
    save(tmp_path, step=3)
    path = tmp_path / "step-3" / name
    original = path.read_bytes()
    chance = random.Random(0)
    damaged = [original[: chance.randrange(len(original))] for _ in range(10)]
    for _ in range(60):
        content = bytearray(original)
        content[chance.randrange(len(content))] ^= 1 << chance.randrange(8)
        damaged.append(bytes(content))
    for content in damaged:
        path.write_bytes(content)
        checkpoint, warnings = load_newest(tmp_path)
        assert checkpoint.state.step == 2
        assert len(warnings) == 1
        assert "step-3" in warnings[0]
    path.unlink()
    assert load_newest(tmp_path)[0].state.step == 2


def test_a_kill_while_a_checkpoint_is_replaced_loses_nothing(tmp_path):
    """The former folder under its temporary name is found; what was half written is removed."""
    save(tmp_path, step=3)
    (tmp_path / "step-3").rename(tmp_path / "step-3.old")
    (tmp_path / ".tmp-1-step-3").mkdir()
    assert load_newest(tmp_path)[0].state.step == 3
    assert [path.name for path in tmp_path.iterdir()] == ["step-3.old"]


def test_the_newest_few_are_kept(tmp_path):
    """Older ones go once a newer one is on disk; numbers are compared as numbers."""
    for step in (8, 9, 10, 11):
        save(tmp_path, step=step)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["step-10", "step-11"]


def test_without_checkpoints_there_is_none(tmp_path):
    """A folder that does not exist is no error."""
    assert load_newest(tmp_path / "missing") == (None, [])
