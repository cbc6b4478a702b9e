"""The explanation of a prediction: the words of a text with their weights."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

# The weight, in log odds, from which a word is shown in the strongest colour.
STRONG = 2.0

# The smallest weight of a word that is listed or coloured.
MIN_WEIGHT = 0.1


@dataclass(frozen=True, kw_only=True)
class WordWeight:
    """A word, `text[start:end]`, and how much the log odds of a class fall without it."""

    word: str
    start: int
    end: int
    weight: float


class Explanation(list[WordWeight]):
    """The words of a text in their order; explaining the last `left_out` would take too long."""

    def __init__(self, words: Iterable[WordWeight] = (), *, left_out: int = 0) -> None:
        super().__init__(words)
        self.left_out = left_out

    def words_for(self) -> list[str]:
        """The different words with a positive weight, the strongest first."""
        found = [word.word for word in self._by_weight() if word.weight >= MIN_WEIGHT]
        return list(dict.fromkeys(found))

    def words_against(self) -> list[str]:
        """The different words with a negative weight, the strongest first."""
        found = [word.word for word in self._by_weight()[::-1] if word.weight <= -MIN_WEIGHT]
        return list(dict.fromkeys(found))

    def _by_weight(self) -> list[WordWeight]:
        return sorted(self, key=lambda word: -word.weight)


def marked(text: str, weights: Sequence[WordWeight]) -> list[tuple[str, float]]:
    """Split a text into its words, with their weights, and what is between them, with 0."""
    pieces = []
    end = 0
    for word in weights:
        pieces.append((text[end : word.start], 0.0))
        pieces.append((text[word.start : word.end], word.weight))
        end = word.end
    pieces.append((text[end:], 0.0))
    return [(piece, weight) for piece, weight in pieces if piece]
