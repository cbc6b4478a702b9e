"""Rows with columns beside the text, of which only word and column together tell the class."""

from __future__ import annotations

import csv
from pathlib import Path
from random import Random

from support.small_runs import NO_TECHNIQUES, make_config

from encoder_cls.config.schema import Config

FEATURES = ["channel", "size"]
LETTERS = "bdfgklmnprst"


def rows(number: int, *, seed: int = 0) -> list[dict[str, str]]:
    """Rows whose class is whether the text says yes, if the channel is email; else whether no."""
    random = Random(seed)
    words = [f"{one}{vowel}{two}" for one in LETTERS for vowel in "aeio" for two in LETTERS]
    written = []
    for _ in range(number):
        answer = random.choice(["yes", "no"])
        channel = random.choice(["email", "phone"])
        text = " ".join(random.sample([answer, *random.sample(words, 6)], 7))
        label = "right" if (answer == "yes") == (channel == "email") else "wrong"
        size = random.choice(["", str(random.randrange(500))])
        written.append({"text": text, "channel": channel, "size": size, "label": label})
    return written


def write_csv(path: Path, written: list[dict[str, str]]) -> Path:
    with path.open("w", newline="") as file:
        table = csv.DictWriter(file, written[0])
        table.writeheader()
        table.writerows(written)
    return path


def config_of(folder: Path, *, encoder: bool = False, **data: object) -> Config:
    path = folder / "rows.csv"
    if not path.exists():
        write_csv(path, rows(900))
    return make_config(
        folder,
        linear=True,
        data={"train": str(path), "features": FEATURES} | data,
        model={"encoder": encoder, "max_seq_len": 64},
        **NO_TECHNIQUES,
    )


def quick_encoder(config: Config) -> Config:
    """The same run with an encoder that learns for a few steps."""
    train = config.train.model_copy(update={"epochs": 1, "batch_size": 64})
    return config.model_copy(update={"train": train})
