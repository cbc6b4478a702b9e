"""A pool of texts of which a person labels a few."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import cached_property
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray
from tokenizers import Tokenizer

from encoder_cls.config.schema import TokenizerConfig
from encoder_cls.linear.representative_texts import Vectors, choose_representatives, text_vectors
from encoder_cls.system.settings import own_settings
from encoder_cls.text.checked_texts import checked_texts
from encoder_cls.text.tokenizer import tokenize
from encoder_cls.text.tokens import TokenizedTexts

if TYPE_CHECKING:
    from encoder_cls.linear_training.pool_fit import PoolFit

# The maximum number of tokens that are read of a text.
MAX_TOKENS = 1024
# The number of texts among which representative ones are chosen.
AMONG = 3000


class TextPool:
    """Texts of which a person labels a few; a text is named by its number, from 0.

    `further_texts` have labels but are not in the pool; their numbers come after its own. A
    tokenizer is trained on all texts unless one, such as that of a classifier, is given. Equal
    texts and labels give equal choices and predictions on every computer.
    """

    def __init__(
        self,
        texts: Sequence[str],
        further_texts: Sequence[str] = (),
        *,
        tokenizer: Tokenizer | None = None,
    ) -> None:
        self._tokenizer = tokenizer
        self._pool = list(checked_texts(texts, "TextPool"))
        self._further_texts = list(further_texts)
        self._vectors: Vectors | None = None

    @own_settings()
    def representatives(
        self,
        number: int,
        *,
        weights: NDArray[np.float64] | None = None,
        labelled: Sequence[int] = (),
        among: int = AMONG,
    ) -> list[int]:
        """Choose texts that represent many others, and are unlike labelled ones.

        Args:
            number: the most texts to choose.
            weights: how much each text matters, such as its uncertainty; by default, all alike.
            among: how many of the first texts are chosen from, and represented.

        Returns:
            Their numbers, the most useful first.
        """
        size = min(among, len(self._pool))
        if self._vectors is None or len(self._vectors) != size:
            _, tokenized = self._tokenized
            self._vectors = text_vectors(tokenized[:size])

        if weights is None:
            weights = np.ones(size)
        known = [text for text in labelled if text < size]
        return choose_representatives(self._vectors, weights[:size], known, number)

    @own_settings()
    def fit(
        self,
        labels: Mapping[int, str] | Mapping[int, Sequence[str]],
        class_names: Sequence[str] | None = None,
    ) -> PoolFit:
        """Learn from some labels, and from all texts without labels; predict the whole pool.

        Args:
            labels: by the number of the text; where a text may have several, a list.
            class_names: the classes in their order; by default those of the labels, sorted.

        Raises:
            ValueError: there are too few classes to tell apart.
        """
        # Imported here, because it needs SciPy, which the runtime does not have.
        from encoder_cls.linear_training.pool_fit import FewLabels, fit_pool

        tokenizer, tokenized = self._tokenized
        few_labels = FewLabels.of(labels, class_names)
        return fit_pool(tokenizer, tokenized, few_labels, pool_size=len(self._pool))

    @cached_property
    def _tokenized(self) -> tuple[Tokenizer, TokenizedTexts]:
        texts = [*self._pool, *self._further_texts]
        if self._tokenizer:
            return self._tokenizer, tokenize(self._tokenizer, texts, max_seq_len=MAX_TOKENS)

        # Imported here, because it needs PyArrow, which the runtime does not have.
        from encoder_cls.text.tokenizer_training import train_and_tokenize

        tokenizer, tokenized, _ = train_and_tokenize(
            texts, TokenizerConfig(), max_seq_len=MAX_TOKENS
        )
        return tokenizer, tokenized
