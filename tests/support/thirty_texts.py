"""A small run of an encoder, on texts that all have other words."""

from __future__ import annotations

from pathlib import Path

import numpy as np
from support.small_runs import make_config

from encoder_cls.config.loading import config_of
from encoder_cls.encoder_training.batch_sampler import BatchSampler
from encoder_cls.encoder_training.training_loop import EncoderTraining
from encoder_cls.training.encoder_stage import PRETRAINING
from encoder_cls.training.prepare import prepare
from encoder_cls.training.prepared import Prepared

CLASSES = ["a", "b", "c"]
TRAIN_VALUES = {
    "epochs": 2,
    "batch_size": 4,
    "accumulation_steps": 2,
    "learning_rate": 0.001,
}


def prepare_thirty_texts(
    folder: Path, pretrain: dict[str, object] | None = None, **train_values: object
) -> Prepared:
    """Prepare a run on thirty texts of five words each, which validation has in reverse order.

    No word is in two texts of a split.
    """
    train = ["text,label"]
    validation = ["text,label"]
    for number in range(30):
        words = [f"w{number}x{position}" for position in range(5)]
        train.append(f"{' '.join(words)},{CLASSES[number % 3]}")
        validation.append(f"{' '.join(reversed(words))},{CLASSES[number % 3]}")

    paths = {}
    for split, lines in (("train", train), ("validation", validation)):
        path = folder / f"{split}.csv"
        path.write_text("\n".join(lines) + "\n")
        paths[split] = str(path)

    config = make_config(
        folder,
        data=paths,
        pretrain=pretrain,
        linear=True,
        **TRAIN_VALUES | train_values,
    )
    return prepare(config_of({"tokenizer.min_frequency": 1}, base=config))


def rows_of_step(setup: Prepared, training: EncoderTraining, step: int) -> list[np.ndarray]:
    """The texts of each batch of a step."""
    texts = setup.texts if training.name == PRETRAINING else setup.encoder_texts
    sampler = BatchSampler(texts.lengths, setup.config.train, seed=training.trainer.seed)
    return sampler.batches_of_step(step)
