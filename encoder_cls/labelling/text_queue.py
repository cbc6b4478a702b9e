"""The queue: which text is asked next.

One text in ten is drawn at random, at a random place among the ten. These texts are a random sample
of the pool, so they give an honest accuracy. All other texts are those that the model suggests; if
it has none to suggest, as before its first fit, they are drawn at random, too.

The choice depends only on the number of texts that have been asked and on the suggestions. So the
same command continues after it was killed.
"""

from __future__ import annotations

import hashlib
from collections.abc import Collection, Sequence

from encoder_cls.labelling.pool import PoolText

RANDOM = "random"
SUGGESTED = "suggested"

# One in so many texts is drawn at random.
BLOCK = 10


class TextQueue:
    """Chooses texts of a pool.

    Attributes:
        suggestions: the indices of texts to ask, the most useful first.
    """

    def __init__(self, texts: Sequence[PoolText]) -> None:
        self.suggestions: Sequence[int] = ()
        self._texts = texts

    def next(self, asked: Collection[str]) -> tuple[PoolText, str] | None:
        """The next text, and how it was chosen: `RANDOM` or `SUGGESTED`; None if there is none.

        Args:
            asked: the keys of the texts that have been asked.
        """
        if not is_random_turn(len(asked)):
            for index in self.suggestions:
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
