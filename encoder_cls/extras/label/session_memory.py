"""What a session keeps beside its table of labels, in `labels-session.json`.

These are the classes in the order of their keys, the names that were changed, and the last guesses.
Nothing is lost with this file: the labels are in the table, and the next fit makes new guesses.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from threading import Lock
from typing import Any, Self

from pydantic import BaseModel, ValidationError, model_validator

from encoder_cls.errors import EncoderClsError
from encoder_cls.system.files import read_file, to_json, write_file


class RememberedGuess(BaseModel, strict=True, extra="forbid"):
    """A guess: the most probable classes by number, predicted ones first."""

    classes: list[int]
    probabilities: list[float]
    num_predicted: int


class Remembered(BaseModel, strict=True, extra="forbid"):
    """The content of the file.

    Attributes:
        classes: the place of a class is its number for ever.
        renamed: names of today, by names of before.
        suggested: keys of texts, the most useful first.
        guesses: of the next texts, by key.
    """

    classes: list[str] = []
    renamed: dict[str, str] = {}
    is_multi_label: bool = False
    suggested: list[str] = []
    guesses: dict[str, RememberedGuess] = {}

    @model_validator(mode="after")
    def _check_guesses(self) -> Self:
        """Refuse guesses of unknown classes: a person may have edited the file."""
        for guess in self.guesses.values():
            is_of_classes = all(0 <= number < len(self.classes) for number in guess.classes)
            if not is_of_classes or len(guess.probabilities) != len(guess.classes):
                raise ValueError("a guess is not one of the classes")
        return self


class SessionMemory:
    """What is remembered, `now`; the page and the model's thread write it."""

    def __init__(self, output: Path) -> None:
        """A damaged file is as good as none."""
        self._path = session_file(output)
        self._lock = Lock()
        self.now = Remembered()
        with suppress(EncoderClsError, ValidationError):
            self.now = Remembered.model_validate_json(read_file(self._path))

    def name_today(self, name: str) -> str:
        """The name of a class that may have been renamed."""
        return self.now.renamed.get(name, name)

    def keep(self, **changes: Any) -> None:
        """Keep new values; no action fails if the disk is full."""
        with self._lock:
            self.now = self.now.model_copy(update=changes)
            with suppress(EncoderClsError):
                write_file(self._path, to_json(self.now.model_dump()))

    def keep_classes(self, classes: Sequence[str]) -> None:
        """Keep classes; a new one is no longer a name of before."""
        renamed = {old: new for old, new in self.now.renamed.items() if old not in classes}
        self.keep(classes=list(classes), renamed=renamed)

    def keep_new_name(self, old: str, new: str, classes: Sequence[str]) -> None:
        """Keep the new name of a class."""
        renamed = {name: new if today == old else today for name, today in self.now.renamed.items()}
        renamed[old] = new
        self.keep(
            classes=list(classes),
            renamed={name: today for name, today in renamed.items() if name not in classes},
        )


def session_file(output: Path) -> Path:
    """The file of a session, beside its table."""
    return output.with_name(f"{output.stem}-session.json")


def torn_file(table: Path) -> Path:
    """The file with the torn last line of a table."""
    return table.with_name(f"{table.stem}-torn.txt")


def skipped_file(output: Path) -> Path:
    """The file with the skipped texts."""
    return output.with_name(f"{output.stem}-skipped{output.suffix}")


def files_of_session(output: Path) -> list[Path]:
    """The files that a session may write, none of which is a part of the pool."""
    tables = [output, skipped_file(output)]
    return [*tables, *map(torn_file, tables), curve_file(output), session_file(output)]


def curve_file(output: Path) -> Path:
    """The file with the accuracy after each fit."""
    return output.with_name(f"{output.stem}-curve.jsonl")


def order_of_keys(names: Sequence[str], like: Sequence[str]) -> list[str]:
    """Names in the order of others, then new ones."""
    return [name for name in like if name in names] + [name for name in names if name not in like]
