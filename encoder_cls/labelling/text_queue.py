"""The queue: which text is asked next.

One text in ten is drawn at random, at a random place among the ten. These texts are a random sample
of the pool, so they give an honest accuracy. The others are, in turns, those that the model
suggests because it is unsure of them, and those that are spread over the pool, unlike the rest. If
there are neither, as in the first seconds, they are drawn at random, too.

The choice depends only on the number of texts that have been asked, on the suggestions and on the
spread. So the same command continues after it was killed.
"""

from __future__ import annotations

import hashlib
from collections.abc import Collection, Sequence
from typing import Protocol

from encoder_cls.labelling.pool import PoolText

RANDOM = "random"
SUGGESTED = "suggested"

# One in so many texts is drawn at random.
BLOCK = 10


class Queue(Protocol):
    """What decides which text is asked next."""

    def next(self, asked: Collection[str]) -> tuple[PoolText, str] | None:
        """The next text, and how it was chosen; None if there is none.

        Args:
            asked: the keys of the texts that have been asked.
        """


class TextQueue:
    """Chooses texts of a pool.

    Attributes:
        suggestions: the indices of texts that the model suggests, the most useful first.
        spread: the indices of texts that are unlike each other, the first ones first.
    """

    def __init__(self, texts: Sequence[PoolText]) -> None:
        self.suggestions: Sequence[int] = ()
        self.spread: Sequence[int] = ()
        self._texts = texts

    def next(self, asked: Collection[str]) -> tuple[PoolText, str] | None:
        """The next text, and how it was chosen: `RANDOM` or `SUGGESTED`; None if there is none.

        Args:
            asked: the keys of the texts that have been asked.
        """
        if not is_random_turn(len(asked)):
            indices = [*self.suggestions, *self.spread]
            if len(asked) % 2:
                indices = [*self.spread, *self.suggestions]
            for index in indices:
                if self._texts[index].key not in asked:
                    return self._texts[index], SUGGESTED

        for text in self._texts:
            if text.key not in asked:
                return text, RANDOM
        return None


def is_random_turn(number: int) -> bool:
    """Whether the text is drawn at random that is asked after `number` other texts."""
    block, place = divmod(number, BLOCK)
    # The first text is always drawn at random, because there is nothing to suggest yet.
    if block == 0:
        return place == 0
    digest = hashlib.sha256(f"block {block}".encode()).digest()
    return place == digest[0] % BLOCK
