"""The explanation of a prediction: the words of a text with their weights."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

# The log odds from which a word has its full colour.
STRONG = 2.0

# The smallest weight of a word that is listed or coloured.
MIN_WEIGHT = 0.1


@dataclass(frozen=True, kw_only=True)
class WordWeight:
    """A word of a text, `text[start:end]`, and its weight for a class.

    The weight is the log odds ln(p / (1 - p)) of the class, minus those without the word. Above 0,
    the word is evidence for the class.
    """

    word: str
    start: int
    end: int
    weight: float


class Explanation(list[WordWeight]):
    """The words of a text with their weights, in order.

    `left_out` is the number of words that are not explained, since it would take too long.
    """

    def __init__(self, words: Iterable[WordWeight] = (), *, left_out: int = 0) -> None:
        super().__init__(words)
        self.left_out = left_out


def marked(text: str, weights: Sequence[WordWeight]) -> list[tuple[str, float]]:
    """Split a text into pieces, each with its weight, which is 0 between words."""
    pieces = []
    end = 0
    for word in weights:
        pieces.append((text[end : word.start], 0.0))
        pieces.append((text[word.start : word.end], word.weight))
        end = word.end
    pieces.append((text[end:], 0.0))
    return [(piece, weight) for piece, weight in pieces if piece]
