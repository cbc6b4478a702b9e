"""Checkpoints: they are restored exactly, and damaged ones are noticed."""

from __future__ import annotations

import math
import random
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest
import torch

from encoder_cls.config.schema import ModelConfig, TrainConfig
from encoder_cls.encoder.transformer import CharNgramBatch, EncoderClassifier
from encoder_cls.encoder_training.optimizer import load_moments, make_optimizers, moments_of
from encoder_cls.encoder_training.training_state import TrainingState
from encoder_cls.errors import DivergedError
from encoder_cls.linear_training.cost import LinearWork, StreamWork
from encoder_cls.metrics.validation_score import ValidationScore
from encoder_cls.run.checkpoint_files import Checkpoint, load_newest, save_checkpoint
from encoder_cls.run.run_state import RunState

pytestmark = pytest.mark.usefixtures("bare_trainings", "usual_c")

STATE = RunState(
    linear_score=ValidationScore(is_sure=True, monitored=0.25, loss=1.5, lower_is_better=False),
    linear_work=LinearWork(
        "words_alone", StreamWork(chunks_counted=2, times_features=4, chunks_learned=5), 20
    ),
    training=TrainingState(
        step=3,
        first_step=1,
        validated_step=2,
        best_score=ValidationScore(is_sure=False, monitored=0.5, loss=1.25, lower_is_better=False),
        best_step=2,
        stale_validations=1,
        sums={"loss": 0.1, "steps": 3.0},
        outcome="patience",
    ),
)
FINGERPRINT = {"threads": 2}


MODEL_CONFIG = ModelConfig(
    d_model=4,
    num_layers=1,
    num_heads=1,
    d_ff=4,
    max_seq_len=4,
    char_ngram_buckets=5,
    bigram_buckets=5,
    dropout=0,
    head_dropout=0,
)


class TinyTraining:
    """A tiny model and its optimizers with moments, after two steps by default."""

    def __init__(self, *, tokens=(1, 2)) -> None:
        torch.manual_seed(0)
        self.model = EncoderClassifier(MODEL_CONFIG, vocab_size=6, num_classes=2)
        self.optimizers = make_optimizers(self.model, TrainConfig())
        for token in tokens:
            self.take_step(token)

    def take_step(self, token: int) -> None:
        """Take one step on a batch in which all tokens have this id."""
        input_ids = torch.full((2, 3), token)
        attention_mask = torch.ones_like(input_ids, dtype=torch.bool)
        char_ngrams = CharNgramBatch(
            torch.zeros_like(input_ids), torch.tensor([token, 7]), torch.tensor([0, 2])
        )
        for optimizer in self.optimizers:
            optimizer.zero_grad()

        logits = self.model(input_ids, attention_mask, char_ngrams)
        loss = (logits * torch.tensor([1.0, -2.0])).sum()
        loss.backward()

        for optimizer in self.optimizers:
            optimizer.step()

    def save(self, folder: Path, *, step: int = 3) -> None:
        """Save a checkpoint of a step, and keep the two newest checkpoints."""
        checkpoint = Checkpoint(
            state=replace(STATE, training=replace(STATE.training, step=step)),
            fingerprint=FINGERPRINT,
            weights=self.model.state_dict(),
            moments=moments_of(self.optimizers),
        )
        save_checkpoint(folder, checkpoint, keep=2)


def newest_step(folder: Path) -> int:
    """Return the step of the newest checkpoint."""
    checkpoint, _ = load_newest(folder)
    return checkpoint.state.step


def test_a_checkpoint_restores_everything_and_the_next_step_is_the_same(tmp_path):
    """State, weights and moments are restored exactly, so the next step is the same."""
    training = TinyTraining()
    training.save(tmp_path)

    checkpoint, warnings = load_newest(tmp_path)
    assert checkpoint.state == STATE
    assert checkpoint.fingerprint == FINGERPRINT
    assert warnings == []

    restored = TinyTraining(tokens=())
    restored.model.load_state_dict(checkpoint.weights)
    load_moments(restored.optimizers, checkpoint.moments)

    training.take_step(3)
    restored.take_step(3)
    parameters = training.model.parameters()
    restored_parameters = restored.model.parameters()
    for parameter, restored_parameter in zip(parameters, restored_parameters, strict=True):
        assert torch.equal(parameter, restored_parameter)


def damaged_copies(content: bytes) -> Iterator[bytes]:
    """Yield ten copies that end too early, then sixty copies with a flipped bit."""
    chance = random.Random(0)
    for _ in range(10):
        yield content[: chance.randrange(len(content))]

    for _ in range(60):
        flipped = bytearray(content)
        flipped[chance.randrange(len(content))] ^= 1 << chance.randrange(8)
        yield bytes(flipped)


@pytest.mark.parametrize(
    "name",
    [
        "model.safetensors",
        pytest.param("optimizer.safetensors", marks=pytest.mark.slow),
        "state.json",
        "manifest.json",
    ],
)
def test_every_flipped_bit_and_every_cut_is_noticed(tmp_path, name):
    """The damaged checkpoint is passed over, and the older one is used."""
    training = TinyTraining()
    training.save(tmp_path, step=2)
    training.save(tmp_path, step=3)
    path = tmp_path / "step-3" / name

    for content in damaged_copies(path.read_bytes()):
        path.write_bytes(content)

        checkpoint, warnings = load_newest(tmp_path)

        assert checkpoint.state.step == 2
        (warning,) = warnings
        assert "step-3" in warning

    path.unlink()
    assert newest_step(tmp_path) == 2


def test_a_kill_while_a_checkpoint_is_replaced_loses_nothing(tmp_path):
    """The replaced folder is read under its temporary name; an incomplete folder is not."""
    TinyTraining().save(tmp_path, step=3)

    (tmp_path / "step-3").rename(tmp_path / "step-3.old")
    (tmp_path / ".tmp-1-step-3").mkdir()

    assert newest_step(tmp_path) == 3


def test_the_newest_few_are_kept(tmp_path):
    """Steps are compared as numbers, not as text."""
    training = TinyTraining()

    for step in (8, 9, 10, 11):
        training.save(tmp_path, step=step)

    assert sorted(path.name for path in tmp_path.iterdir()) == ["step-10", "step-11"]


def test_weights_that_are_not_finite_are_not_saved(tmp_path):
    """A training that has diverged does not replace its last good checkpoint."""
    training = TinyTraining()
    training.save(tmp_path, step=3)

    training.model.head.linear.bias.data[1] = math.nan
    with pytest.raises(DivergedError, match=r"step 4: .* not finite"):
        training.save(tmp_path, step=4)

    assert newest_step(tmp_path) == 3
