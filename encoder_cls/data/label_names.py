"""Turn the names of labels into texts to learn from."""

from __future__ import annotations

import re
from collections.abc import Sequence


def names_as_texts(names: Sequence[str]) -> list[str]:
    """The words of each class name; empty for a name without a letter."""
    texts = []
    for name in names:
        has_letters = any(character.isalpha() for character in name)
        texts.append(_words(name) if has_letters else "")
    return texts


def _words(name: str) -> str:
    spaced = ""
    before = ""
    for character in name:
        if before.islower() and character.isupper():
            spaced += " "
        spaced += character
        before = character
    return " ".join(re.sub(r"[\W_]+", " ", spaced).split())
