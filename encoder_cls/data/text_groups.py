"""Numbers of groups of rows: those that the data names, and texts that are alike."""

from __future__ import annotations

import hashlib
import unicodedata
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

# The number of rows that belong to no group.
NO_GROUP = 0

# Texts that differ in punctuation and digits alone are alike, unless they are more than this number
# and this share of all texts.
MAX_ALIKE = 10
MAX_ALIKE_SHARE = 0.01


def group_number(group: str, *, kind: bytes = b"") -> int:
    """The number of a group: 64 bits of a hash of its name and kind, the same at any time."""
    name = group.encode("utf-8", "surrogatepass")
    digest = hashlib.blake2b(name, digest_size=8, person=kind).digest()
    return int.from_bytes(digest, "little", signed=True)


def equal_texts(texts: Sequence[str]) -> NDArray[np.int64]:
    """A number for each text, (texts,): equal for texts that differ in case and white space alone.

    It is never that of a group.
    """
    numbers = (group_number(" ".join(text.casefold().split()), kind=b"text") for text in texts)
    return np.fromiter(numbers, dtype=np.int64, count=len(texts))


def texts_alike(texts: Sequence[str]) -> NDArray[np.int64]:
    """A number for each text, (texts,): equal for texts with the same letters.

    Case, white space, punctuation and digits do not count. Texts without letters, and frequent
    patterns such as "order 1", "order 2", are numbered as by `equal_texts`.
    """
    equal = equal_texts(texts)
    numbers = (_number_of_letters(text) for text in texts)
    alike = np.fromiter(numbers, dtype=np.int64, count=len(texts))

    # Count the different texts of each pattern of letters.
    different = np.unique(equal, return_index=True)[1]
    patterns, counts = np.unique(alike[different], return_counts=True)

    most_texts = max(MAX_ALIKE, MAX_ALIKE_SHARE * len(different))
    joins_texts = (counts > 1) & (counts <= most_texts) & (patterns != NO_GROUP)
    return np.where(np.isin(alike, patterns[joins_texts]), alike, equal)


def _number_of_letters(text: str) -> int:
    """A number for the letters of a text; that of no group without letters."""
    letters = " ".join(text.casefold().translate(_LETTERS).split())
    if not letters:
        return NO_GROUP
    return group_number(letters, kind=b"alike")


class _Letters(dict[int, int | str]):
    """A table for `str.translate` that keeps letters with their marks; all else becomes a space."""

    def __missing__(self, code: int) -> int | str:
        is_letter = unicodedata.category(chr(code))[0] in "LM"
        self[code] = code if is_letter else " "
        return self[code]


_LETTERS = _Letters()
