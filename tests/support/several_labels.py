"""Data in which a text has any number of labels, and runs on it."""

from __future__ import annotations

import csv
import json
import random
from pathlib import Path

import torch

from encoder_cls.config.loading import config_of
from encoder_cls.run.run_folder import RunDir
from encoder_cls.training.prepare import prepare
from encoder_cls.training.train import train

# The words of each label.
WORDS = {
    "food": ["soup", "bread", "salt"],
    "sport": ["ball", "goal", "team"],
    "weather": ["rain", "snow", "wind"],
}
FILLERS = ["the", "a", "of", "and", "with", "for"]
# A text of food and of sport.
TWO_LABELS = "soup with salt, goal of the team"

TextWithLabels = tuple[str, list[str]]


def labelled_texts(number: int, seed: int) -> list[TextWithLabels]:
    """Texts with words of each of their labels; a quarter has none."""
    draw = random.Random(seed)
    found = []
    for index in range(number):
        labels = []
        if index % 4:
            num_labels = draw.choice([1, 1, 2])
            labels = sorted(draw.sample(list(WORDS), num_labels))

        words = []
        for label in labels:
            words += draw.sample(WORDS[label], 2)
        words += draw.sample(FILLERS, 2)
        words.append(f"n{index}")
        found.append((" ".join(words), labels))
    return found


def write_json_lines(path: Path, texts: list[TextWithLabels]) -> Path:
    """Write texts with lists of labels as JSON lines; returns the file."""
    lines = []
    for text, labels in texts:
        lines.append(json.dumps({"text": text, "label": labels}))
    write_lines(path, lines)
    return path


def write_lines(path: Path, lines: list[str]) -> None:
    path.write_text("".join(f"{line}\n" for line in lines))


def json_objects(lines: str) -> list[dict]:
    """The objects of JSON lines."""
    return [json.loads(line) for line in lines.splitlines()]


def csv_rows(path: Path) -> list[dict[str, str]]:
    """The rows of a CSV file, by the names of its columns."""
    with path.open(encoding="utf-8-sig", newline="") as file:
        return list(csv.DictReader(file))


def trained(folder: Path, texts: list[TextWithLabels], **settings: object) -> RunDir:
    """A finished run on texts, in a folder."""
    source = write_json_lines(folder / "train.jsonl", texts)
    return train_on(source, **settings)


def train_on(source: Path, **settings: object) -> RunDir:
    """A finished run on a file, beside it, by default of the linear model alone."""
    values = {"name": "several", "data.train": str(source), "model.encoder": False} | settings
    run = RunDir(source.parent / "run")
    train(prepare(config_of(values, source="test")), run, device=torch.device("cpu"))
    return run
