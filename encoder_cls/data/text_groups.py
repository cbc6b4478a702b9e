"""Give rows group numbers: rows of a group that the data names, and near-duplicates."""

from __future__ import annotations

import hashlib
import unicodedata
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from encoder_cls.system.row_text import plain_text

# The group number of a row that belongs to no group.
NO_GROUP = 0


def group_number(group: str, *, kind: bytes = b"") -> int:
    """Hash a name to 64 bits, so that a group has the same number in all data.

    Groups of two kinds differ; that of `data.group_column` is empty.
    """
    name = group.encode("utf-8", "surrogatepass")
    digest = hashlib.blake2b(name, digest_size=8, person=kind).digest()
    return int.from_bytes(digest, "little", signed=True)


def equal_texts(texts: Sequence[str]) -> NDArray[np.int64]:
    """Number texts: those that differ only in case and white space have equal numbers.

    No group of `data.group_column` has the same number.
    """
    numbers = (group_number(" ".join(text.casefold().split()), kind=b"text") for text in texts)
    return np.fromiter(numbers, dtype=np.int64, count=len(texts))


# Texts with the same letters count as similar only if they are at most this many different texts,
# or at most this share of all different texts.
MAX_ALIKE = 10
MAX_ALIKE_SHARE = 0.01


def texts_alike(texts: Sequence[str]) -> NDArray[np.int64]:
    """Give similar texts equal numbers, (texts,).

    They are similar if they have the same letters in the same order. Texts without letters, and
    frequent patterns such as "order 1", "order 2", are numbered by `equal_texts` instead.

    The features of rows do not count, so that no text is in train and test with different features,
    except for frequent texts.
    """
    equal = equal_texts(texts)
    numbers = (_number_of_letters(plain_text(text)) for text in texts)
    alike = np.fromiter(numbers, dtype=np.int64, count=len(texts))

    # Count how many different texts have each sequence of letters.
    different = np.unique(equal, return_index=True)[1]
    patterns, counts = np.unique(alike[different], return_counts=True)

    max_texts = max(MAX_ALIKE, MAX_ALIKE_SHARE * len(different))
    joins_texts = (counts > 1) & (counts <= max_texts) & (patterns != NO_GROUP)
    return np.where(np.isin(alike, patterns[joins_texts]), alike, equal)


def _number_of_letters(text: str) -> int:
    if text.isascii():
        # Bytes are translated several times as fast as characters.
        letters = text.encode().translate(_ASCII_LETTERS).decode()
    else:
        letters = text.casefold().translate(_LETTERS)

    parts = letters.split()
    if not parts:
        return NO_GROUP
    return group_number(" ".join(parts), kind=b"alike")


def _lower_case_or_space(code: int) -> int:
    character = chr(code)
    if character.isascii() and character.isalpha():
        return ord(character.lower())
    return ord(" ")


# A table for `bytes.translate` that keeps the letters of ASCII texts, in lower case.
_ASCII_LETTERS = bytes(_lower_case_or_space(code) for code in range(256))


class _Letters(dict[int, int | str]):
    """A table for `str.translate` that keeps letters and their marks, filled as they occur."""

    def __missing__(self, code: int) -> int | str:
        is_letter = unicodedata.category(chr(code))[0] in "LM"
        self[code] = code if is_letter else " "
        return self[code]


_LETTERS = _Letters()
