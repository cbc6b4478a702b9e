"""The queue: which text is asked next.

One text in ten, at a random place among them, is drawn at random: a random sample of the pool, with
hidden guesses, gives an honest accuracy. The others alternate between suggested texts and the
random order: suggested texts alone are not better than random ones. Without suggestions, as at
first, all texts count as drawn at random.

The choice depends only on the number of texts asked and on the suggestions, so a killed session
continues.
"""

from __future__ import annotations

import hashlib
from collections.abc import Collection, Iterable, Sequence
from typing import NamedTuple, Protocol

from encoder_cls.extras.label.pool import PoolText

RANDOM = "random"
SUGGESTED = "suggested"

# One in so many texts is drawn at random.
BLOCK = 10


class ChosenText(NamedTuple):
    """A text that is asked, and how it was chosen."""

    text: PoolText
    how: str


class Queue(Protocol):
    """What decides which text is asked next."""

    def next(self, asked: Collection[str]) -> ChosenText | None:
        """The next text whose key has not been asked, if any."""


class TextQueue:
    """Chooses texts of a pool; `suggestions` are the most useful first."""

    def __init__(self, texts: Sequence[PoolText]) -> None:
        self.suggestions: Sequence[int] = ()
        self._texts = texts

    def next(self, asked: Collection[str]) -> ChosenText | None:
        """See `Queue`."""
        suggested = _first([self._texts[index] for index in self.suggestions], asked)
        drawn = _first(self._texts, asked)
        if drawn is None:
            return None
        if suggested is None or is_random_turn(len(asked)):
            return ChosenText(drawn, RANDOM)

        # Between suggestions, the text drawn next is asked with its guess. So it must not count in
        # the accuracy, which is that of hidden guesses.
        if len(asked) % 2:
            return ChosenText(drawn, SUGGESTED)
        return ChosenText(suggested, SUGGESTED)


def _first(texts: Iterable[PoolText], asked: Collection[str]) -> PoolText | None:
    for text in texts:
        if text.key not in asked:
            return text
    return None


def is_random_turn(number: int) -> bool:
    """Whether the text asked after `number` others is drawn at random."""
    block, place = divmod(number, BLOCK)
    # The first text is always drawn at random, because there is nothing to suggest yet.
    if block == 0:
        return place == 0
    digest = hashlib.sha256(f"block {block}".encode()).digest()
    return place == digest[0] % BLOCK
