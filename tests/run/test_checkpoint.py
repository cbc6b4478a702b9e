"""Checkpoints: what is saved comes back, and what is damaged is noticed."""

from __future__ import annotations

import random
from dataclasses import replace

import pytest
import torch

from encoder_cls.config.schema import ModelConfig, TrainConfig
from encoder_cls.encoder.optimizer import load_moments, make_optimizers, moments_of
from encoder_cls.encoder.training_state import TrainingState
from encoder_cls.encoder.transformer import CharNgramBatch, EncoderClassifier
from encoder_cls.errors import DivergedError
from encoder_cls.metrics.score import Score
from encoder_cls.run.checkpoint import Checkpoint, RunState, load_newest, save_checkpoint

pytestmark = pytest.mark.usefixtures("bare_trainings")

STATE = RunState(
    linear_score=Score(is_sure=True, monitored=0.25, loss=1.5, lower_is_better=False),
    linear_texts=20,
    linear_effort="one_penalty",
    training=TrainingState(
        step=3,
        first_step=1,
        validated_step=2,
        best_score=Score(is_sure=False, monitored=0.5, loss=1.25, lower_is_better=False),
        best_step=2,
        stale_validations=1,
        sums={"loss": 0.1, "steps": 3.0},
        outcome="patience",
    ),
)
FINGERPRINT = {"threads": 2}


def make_config():
    shape = {"d_model": 4, "num_layers": 1, "num_heads": 1, "d_ff": 4, "max_seq_len": 4}
    return ModelConfig(**shape, char_ngram_buckets=5, bigram_buckets=5, dropout=0, head_dropout=0)


def make_trained(seed=0):
    """A tiny model and its optimizers with moments."""
    torch.manual_seed(seed)
    model = EncoderClassifier(make_config(), vocab_size=6, num_classes=2)
    optimizers = make_optimizers(model, TrainConfig())
    for token in (1, 2):
        update(model, optimizers, token)
    return model, optimizers


def update(model, optimizers, token):
    """Take one step on a batch in which each token is this one."""
    ids = torch.full((2, 3), token)
    char_ngrams = CharNgramBatch(
        torch.zeros_like(ids), torch.tensor([token, 7]), torch.tensor([0, 2])
    )
    for optimizer in optimizers:
        optimizer.zero_grad()

    logits = model(ids, ids > 0, char_ngrams)
    loss = (logits * torch.tensor([1.0, -2.0])).sum()
    loss.backward()

    for optimizer in optimizers:
        optimizer.step()


def save(folder, *, step=3, keep=2, seed=0, weight=None):
    model, optimizers = make_trained(seed)
    if weight is not None:
        model.head.linear.bias.data[1] = weight

    checkpoint = Checkpoint(
        state=replace(STATE, training=replace(STATE.training, step=step)),
        fingerprint=FINGERPRINT,
        weights=model.state_dict(),
        moments=moments_of(optimizers),
    )
    save_checkpoint(folder, checkpoint, keep=keep)
    return model, optimizers


def test_everything_comes_back_and_training_goes_on_alike(tmp_path):
    """State, weights and moments are restored exactly, so the next update is the same."""
    model, optimizers = save(tmp_path)
    checkpoint, warnings = load_newest(tmp_path)
    assert checkpoint.state == STATE
    assert checkpoint.fingerprint == FINGERPRINT
    assert warnings == []

    restored = EncoderClassifier(make_config(), vocab_size=6, num_classes=2)
    restored_optimizers = make_optimizers(restored, TrainConfig())
    restored.load_state_dict(checkpoint.weights)
    load_moments(restored_optimizers, checkpoint.moments)

    update(model, optimizers, token=3)
    update(restored, restored_optimizers, token=3)
    for left, right in zip(model.parameters(), restored.parameters(), strict=True):
        assert torch.equal(left, right)


@pytest.mark.parametrize(
    "name", ["model.safetensors", "optimizer.safetensors", "state.json", "manifest.json"]
)
def test_every_flipped_bit_and_every_cut_is_noticed(tmp_path, name):
    """The damaged checkpoint is passed over, and the older one is used."""
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
        (warning,) = warnings
        assert "step-3" in warning

    path.unlink()
    assert load_newest(tmp_path)[0].state.step == 2


def test_a_kill_while_a_checkpoint_is_replaced_loses_nothing(tmp_path):
    """The replaced folder is read under its temporary name; a half written one is not."""
    save(tmp_path, step=3)
    (tmp_path / "step-3").rename(tmp_path / "step-3.old")
    (tmp_path / ".tmp-1-step-3").mkdir()
    assert load_newest(tmp_path)[0].state.step == 3


def test_the_newest_few_are_kept(tmp_path):
    """Steps are compared as numbers."""
    for step in (8, 9, 10, 11):
        save(tmp_path, step=step)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["step-10", "step-11"]


def test_weights_that_are_not_finite_are_not_saved(tmp_path):
    """Training has diverged, and the checkpoint before stays the newest."""
    save(tmp_path, step=3)
    with pytest.raises(DivergedError, match=r"step 4: .* not finite"):
        save(tmp_path, step=4, weight=float("nan"))
    assert load_newest(tmp_path)[0].state.step == 3
