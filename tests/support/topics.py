"""Texts of three topics, and the config of a run that learns them in a second."""

from __future__ import annotations

import random
from pathlib import Path

import yaml
from support.tiny_encoder import SHAPE

# Each class has words of its own, which a tiny model soon learns.
TOPICS = {
    "küche": ["soup", "bread", "salt", "pan", "oven", "garlic"],
    "sport": ["ball", "goal", "team", "coach", "race", "medal"],
    "weather": ["rain", "snow", "cloud", "storm", "wind", "frost"],
}
FILLERS = ["the", "a", "of", "and", "with", "for", "today", "big"]


def labelled_texts(
    texts_per_class: int, *, seed: int, fillers_per_text: int = 2
) -> list[tuple[str, str]]:
    """Texts of three words of their class and some fillers, with their labels."""
    draw = random.Random(seed)
    rows = []
    for _ in range(texts_per_class):
        for label, words in TOPICS.items():
            chosen = draw.sample(words, 3) + draw.sample(FILLERS, fillers_per_text)
            rows.append((" ".join(chosen), label))
    return rows


def write_labelled_texts(path: Path, rows: list[tuple[str, str]]) -> None:
    """A CSV file of texts and labels."""
    path.parent.mkdir(exist_ok=True)
    lines = [f"{text},{label}\n" for text, label in rows]
    path.write_text("text,label\n" + "".join(lines), encoding="utf-8")


def write_tiny_config(path: Path) -> None:
    """The config of a tiny run of the files train.csv, validation.csv and test.csv beside it."""
    splits = ("train", "validation", "test")
    config = {
        "name": "tiny",
        "data": {split: str(path.parent / f"{split}.csv") for split in splits},
        "model": {**SHAPE, "cascade": False},
        "pretrain": {"epochs": 0},
        "train": {"epochs": 6, "batch_size": 12, "learning_rate": 0.01, "precision": "float32"},
    }
    path.write_text(yaml.safe_dump(config, sort_keys=False), encoding="utf-8")
