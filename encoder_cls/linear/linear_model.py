"""The linear model beside the encoder: a sum of weights for each word and n-gram of a text."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from itertools import pairwise
from typing import Any

import numpy as np
from numpy.typing import NDArray

from encoder_cls.linear.feature_sums import (
    NUM_EVIDENCE_FEATURES,
    NUM_RARITY_FEATURES,
    KnownFeatures,
    TextSums,
    WordSums,
)
from encoder_cls.linear.ngrams import (
    COLUMN_IDS,
    FEATURE_PAIR_IDS,
    MAX_FREQUENT,
    NUM_FEATURE_IDS,
    TEMPLATE_IDS,
    Counts,
    bounds_of_runs,
    count_features,
    count_in_chunk,
    ids_of_unknown_words,
    in_chunks,
)
from encoder_cls.metrics.logits import Logits
from encoder_cls.metrics.tasks import SINGLE_LABEL, Task
from encoder_cls.text.tokens import KEPT_PER_TOKEN, CharNgrams, TokenizedTexts
from encoder_cls.weights import (
    Shapes,
    SparseTable,
    Table,
    Weight,
    are_increasing,
    as_table,
)

# The prefix of the names of the linear model's weights in a model file.
LINEAR = "linear."
WEIGHTS = ("frequent_token_ids", "feature_ids", "idf", "weights", "biases")


def linear_shapes(description: Mapping[str, Any], *, max_seq_len: int, margins: int) -> Shapes:
    """The shapes of weights, from a model's `description`; `max_seq_len` is the encoder's.

    Raises:
        ValueError: a number is out of range.
    """
    limits = {
        "max_tokens": (1, KEPT_PER_TOKEN * max_seq_len),
        "frequent_tokens": (0, MAX_FREQUENT),
        "features": (0, NUM_FEATURE_IDS),
    }
    for name, (minimum, maximum) in limits.items():
        number = description[name]
        if type(number) is not int or not minimum <= number <= maximum:
            raise ValueError(
                f"linear: {name}: invalid value {number!r} "
                f"(expected a whole number from {minimum} to {maximum})"
            )

    frequent_tokens = description["frequent_tokens"]
    features = description["features"]
    return {
        f"{LINEAR}frequent_token_ids": (frequent_tokens,),
        f"{LINEAR}feature_ids": (features,),
        f"{LINEAR}idf": (features,),
        f"{LINEAR}weights": (features, margins),
        f"{LINEAR}biases": (margins,),
    }


@dataclass(frozen=True, kw_only=True)
class LinearModel:
    """A linear classifier of n-gram features: a binary classifier for each class.

    The margin of a class is a bias plus weighted TF-IDF values. Two single-label classes have one
    classifier, of the second.

    Attributes:
        max_tokens: read of a text, `[CLS]` included.
        frequent_token_ids: kept by n-gram templates, increasing; others become a wildcard.
        feature_ids: increasing, (features,).
        idf: (features,).
        weights: (features, classifiers).
        biases: (classifiers,).
    """

    max_tokens: int
    frequent_token_ids: NDArray[np.int32]
    feature_ids: NDArray[np.int32]
    idf: NDArray[np.float32]
    weights: Table
    biases: NDArray[np.float32]
    task: Task = SINGLE_LABEL

    @classmethod
    def from_weights(
        cls, weights: Mapping[str, Weight], *, max_tokens: int, task: Task = SINGLE_LABEL
    ) -> LinearModel:
        """Make a model from its `named_weights`.

        Raises:
            ValueError: feature ids do not increase, or are out of range.
        """
        fields: dict[str, Any] = {}
        for name in WEIGHTS:
            fields[name] = weights[f"{LINEAR}{name}"]
        if not are_increasing(fields["feature_ids"], NUM_FEATURE_IDS):
            raise ValueError("the feature ids of the linear model are not in order")

        fields["weights"] = as_table(fields["weights"])
        return cls(max_tokens=max_tokens, task=task, **fields)

    @property
    def description(self) -> dict[str, int]:
        """The numbers from which the `linear_shapes` follow."""
        return {
            "max_tokens": self.max_tokens,
            "frequent_tokens": len(self.frequent_token_ids),
            "features": len(self.feature_ids),
        }

    def named_weights(self) -> dict[str, Weight]:
        """The weights, by name in a model file."""
        return {f"{LINEAR}{name}": getattr(self, name) for name in WEIGHTS}

    def logits(self, texts: TokenizedTexts) -> Logits:
        """The logits, (texts, classes)."""
        logits, _ = self.logits_and_familiarity(texts, with_familiarity=False)
        return logits

    def count_features(self, texts: TokenizedTexts) -> Iterator[Counts]:
        """Count features chunk by chunk, only of the kinds that have weights."""
        return count_features(
            texts,
            max_tokens=self.max_tokens,
            frequent_token_ids=self.frequent_token_ids,
            use_char_ngrams=self._knows_char_ngrams,
            use_feature_pairs=self.knows_feature_pairs,
        )

    @property
    def _knows_char_ngrams(self) -> bool:
        first, end = np.searchsorted(self.feature_ids, (TEMPLATE_IDS, COLUMN_IDS))
        return bool(first < end)

    @property
    def knows_feature_pairs(self) -> bool:
        """Whether pairs of a word and a row's feature have weights."""
        return bool((self.feature_ids[-1:] >= FEATURE_PAIR_IDS).any())

    def logits_and_familiarity(
        self, texts: TokenizedTexts, *, with_familiarity: bool = True
    ) -> tuple[Logits, NDArray[np.float64] | None]:
        """Compute logits, and how familiar texts are.

        Returns:
            Logits, (texts, classes), then `TextSums.evidence` and `TextSums.rarity`, together
            (texts, features); None in their place without `with_familiarity`.
        """
        margins = [np.zeros((0, len(self.biases)))]
        familiarity_features = [np.zeros((0, NUM_EVIDENCE_FEATURES + NUM_RARITY_FEATURES))]
        for sums in self._sums(texts, self._known):
            margins.append(sums.margins)
            if with_familiarity:
                familiarity_features.append(np.hstack([sums.evidence(), sums.rarity()]))

        logits = self.task.margins_to_logits(np.concatenate(margins).astype(np.float32))
        if not with_familiarity:
            return logits, None
        return logits, np.concatenate(familiarity_features)

    def familiarity_before_refit(
        self, texts: TokenizedTexts, evidence: NDArray[np.float64] | None = None
    ) -> NDArray[np.float64]:
        """Compute the familiarity of texts that the model learned from as if they were new.

        Features of the lowest document frequency, which may occur in these texts alone, count as
        unknown. `evidence` is that of a model that has not learned from them; by default zeros,
        which do not count.
        """
        rarities = [np.zeros((0, NUM_RARITY_FEATURES))]
        for sums in self._sums(texts, self._known.without_rarest()):
            rarities.append(sums.rarity())

        if evidence is None:
            evidence = np.zeros((len(texts), NUM_EVIDENCE_FEATURES))
        return np.hstack([evidence, np.concatenate(rarities)])

    @cached_property
    def _known(self) -> KnownFeatures:
        return KnownFeatures(self.feature_ids, self.idf, self.weights)

    def _sums(self, texts: TokenizedTexts, known: KnownFeatures) -> Iterator[TextSums]:
        for part in _in_parts(texts, self._tokens_in_part):
            # Sum over the character n-grams of the distinct words.
            occurs = np.zeros(len(part.word_ids), dtype=bool)
            occurs[part.words] = True
            distinct_words = np.flatnonzero(occurs)
            word_sums = WordSums.of(self._char_ngrams(part, distinct_words), known)

            index = np.zeros(len(part.word_ids), dtype=np.int64)
            index[distinct_words] = np.arange(len(distinct_words))

            for tokens, offsets in in_chunks(part, self.max_tokens):
                counts = count_in_chunk(
                    part,
                    tokens,
                    offsets,
                    frequent_token_ids=self.frequent_token_ids,
                    use_char_ngrams=self._knows_char_ngrams,
                    use_feature_pairs=self.knows_feature_pairs,
                    only_repeated_char_ngrams=True,
                )
                unknown_ids = ids_of_unknown_words(part, tokens, offsets)
                yield TextSums(
                    counts,
                    known.look_up(counts.ids, unknown_ids),
                    biases=self.biases[: known.num_classifiers],
                    word_sums=word_sums,
                    words=index[part.words[tokens]],
                    offsets=offsets,
                )

    @property
    def _tokens_in_part(self) -> int:
        if isinstance(self.weights, SparseTable):
            return max(1, WEIGHTS_OF_SPARSE_PART // self.weights.num_columns)
        return TOKENS_IN_PART

    def _char_ngrams(self, texts: TokenizedTexts, words: NDArray[np.int64]) -> CharNgrams:
        if self._knows_char_ngrams:
            return texts.char_ngrams.take(words)
        return CharNgrams(
            ngrams=np.zeros(0, dtype=np.uint32),
            offsets=np.zeros(len(words) + 1, dtype=np.int64),
        )


# The approximate number of tokens whose distinct words are listed at a time. The more tokens, the
# fewer distinct words they have for their number, and the more memory the sums of words take.
TOKENS_IN_PART = 1 << 17
# A sparse table of weights has very many columns, and the rows of a part are looked up in full. The
# part has so many tokens times columns.
WEIGHTS_OF_SPARSE_PART = 1 << 22


def _in_parts(texts: TokenizedTexts, tokens_in_part: int) -> Iterator[TokenizedTexts]:
    # A text belongs to the part in which its last token lies.
    parts = (texts.offsets[1:] - 1) // tokens_in_part
    for first, end in pairwise(bounds_of_runs(parts)):
        yield texts[first:end]
