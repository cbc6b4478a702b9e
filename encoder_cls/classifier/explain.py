"""Explain answers by the weights of words, and by attention maps.

A text is classified again without each word, whose weight is the difference of the log odds
(occlusion; Zeiler and Fergus, "Visualizing and Understanding Convolutional Networks", 2014,
https://arxiv.org/abs/1311.2901, and for words Li et al., "Understanding Neural Networks through
Representation Erasure", 2016, https://arxiv.org/abs/1612.08220).
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from encoder_cls.classifier.classifier import Classifier
from encoder_cls.errors import ConfigError
from encoder_cls.text.tokenizer import UNSPACED_RANGES, Span, token_spans
from encoder_cls.text.tokens import TokenizedTexts

# The log odds from which a word has its full colour.
STRONG = 2.0

# The smallest weight of a word that is listed or coloured.
LEAST_WEIGHT = 0.1

# An explanation reads the text once for each word, up to this number of tokens: enough for a text
# of 2,048.
MOST_TOKENS = 1 << 22

_UNSPACED = re.compile(f"[{UNSPACED_RANGES}]")

Word = range
"""The tokens of a word, without [CLS]."""


@dataclass(frozen=True, kw_only=True)
class WordWeight:
    """A word of a text, `text[start:end]`, and its weight for a class.

    The weight is the log odds ln(p / (1 - p)) of the class, minus those without the word: above 0,
    evidence for it.
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


def explain(
    classifier: Classifier,
    texts: Sequence[str],
    tokenized: TokenizedTexts,
    labels: Sequence[str | None],
    *,
    batch_tokens: int | None = None,
    most_tokens: int | None = None,
) -> list[Explanation]:
    """Compute the weights of the words of each text for its label.

    In scripts without spaces, neighbours whose weights have the same sign are left out together, as
    one word. Words beyond the classifier's limit have no weights.

    Args:
        classifier: answers the texts.
        texts: to explain.
        tokenized: the same texts, by the classifier.
        labels: a class for each text; None if it is blank.
        batch_tokens: the most tokens in a batch.
        most_tokens: the most tokens that are read for a text; its last words get no weights where
            they would take more. By default `MOST_TOKENS`.
    """
    explanations = []
    for row, (text, label) in enumerate(zip(texts, labels, strict=True)):
        occlusion = _Occlusion(
            classifier,
            tokenized[row : row + 1],
            label=classifier.label_names.index(label) if label else 0,
            batch_tokens=batch_tokens,
        )
        spans = token_spans(classifier.tokenizer, text, max_seq_len=classifier.max_seq_len)
        words = _words(spans, text)

        # The text is read once for each of these words, and once as a whole.
        affordable = (most_tokens or MOST_TOKENS) // occlusion.num_tokens - 1
        explained = words[: max(1, affordable)]
        left_out = len(words) - len(explained)

        weights = occlusion.weights_of(explained)
        joined = _joined(explained, weights, spans, text)
        if len(joined) < len(explained):
            explained = joined
            weights = occlusion.weights_of(joined)

        weighted = []
        for word, weight in zip(explained, weights, strict=True):
            start = spans[word[0]].start
            end = spans[word[-1]].end
            weighted.append(WordWeight(word=text[start:end], start=start, end=end, weight=weight))
        explanations.append(Explanation(weighted, left_out=left_out))
    return explanations


class AttentionMaps(NamedTuple):
    """The tokens of a text and how they attend to each other.

    Attributes:
        tokens: `[CLS]` first.
        weights: as in `engines.Encoder.attention_maps`.
    """

    tokens: list[str]
    weights: NDArray[np.float32]


def attention_maps(classifier: Classifier, text: str) -> AttentionMaps:
    """The attention weights of all layers and heads for a text.

    Raises:
        ConfigError: there is no encoder.
    """
    if not classifier.encoder:
        raise ConfigError("the model has no encoder, so it has no attention")
    spans = token_spans(classifier.tokenizer, text, max_seq_len=classifier.max_seq_len)
    tokens = ["[CLS]", *(text[span.start : span.end] for span in spans)]
    weights = classifier.encoder.attention_maps(classifier.tokenize([text]))
    return AttentionMaps(tokens=tokens, weights=weights)


# --- Leave words out ------------------------------------------------------------------------------

# The tokens of the variants of a text that are made at a time, in some 100 MB.
TOKENS_AT_ONCE = 1 << 22


class _Occlusion:
    """A text that is classified again without some of its words.

    Args:
        classifier: answers the text.
        text: a single one.
        label: the number of the class.
        batch_tokens: the most tokens in a batch.
    """

    def __init__(
        self,
        classifier: Classifier,
        text: TokenizedTexts,
        *,
        label: int,
        batch_tokens: int | None,
    ) -> None:
        self._classifier = classifier
        self._text = text
        self._label = label
        self._batch_tokens = batch_tokens

    @property
    def num_tokens(self) -> int:
        """The number of tokens of the text."""
        return int(self._text.lengths[0])

    def weights_of(self, words: Sequence[Word]) -> list[float]:
        """The weight of each word: by how much the log odds fall without it."""
        # The same parts answer all variants, so that no weight is the difference between two parts.
        classifier = self._classifier.with_parts_of(self._text)
        logits = [
            classifier.logits(variants, batch_tokens=self._batch_tokens)
            for variants in self._variants(words)
        ]
        log_odds = classifier.task.log_odds(np.concatenate(logits).astype(np.float64), self._label)
        whole, *without_words = log_odds
        return [float(whole - without_word) for without_word in without_words]

    def _variants(self, words: Sequence[Word]) -> Iterator[TokenizedTexts]:
        """The whole text, then the text without each word, in batches that fit in memory."""
        text = self._text
        tokens = np.arange(len(text.words))

        # The first token that is left out, and the one after the last. [CLS] is before the words.
        bounds = [(0, 0)]
        bounds += [(1 + word.start, 1 + word.stop) for word in words]
        starts_and_ends = np.array(bounds)

        variants_at_once = max(1, TOKENS_AT_ONCE // len(tokens))
        for first in range(0, len(bounds), variants_at_once):
            some = starts_and_ends[first : first + variants_at_once]
            starts = some[:, 0, None]
            ends = some[:, 1, None]
            variants, kept = np.nonzero((tokens < starts) | (tokens >= ends))
            yield replace(
                text,
                words=text.words[kept],
                offsets=np.searchsorted(variants, np.arange(len(some) + 1)),
                truncated=text.truncated.repeat(len(some)),
            )


# --- Words ----------------------------------------------------------------------------------------


def _words(spans: Sequence[Span], text: str) -> list[Word]:
    """Group tokens into whole words.

    A token of no word, or of a script without spaces, is a word by itself. Tokens that share a
    character, as those of a ligature do, are in one word: so words are disjoint.
    """
    words: list[Word] = []
    for token, span in enumerate(spans):
        before = spans[token - 1] if token else None
        if before is not None and _are_of_one_word(before, span, text):
            words[-1] = range(words[-1].start, token + 1)
        else:
            words.append(range(token, token + 1))
    return words


def _are_of_one_word(before: Span, span: Span, text: str) -> bool:
    if span.start < before.end:
        return True
    if span.word is None or _UNSPACED.match(text, span.start):
        return False
    return span.word == before.word and not _UNSPACED.match(text, before.start)


def _joined(
    words: Sequence[Word], weights: Sequence[float], spans: Sequence[Span], text: str
) -> list[Word]:
    """Join neighbours in a script without spaces whose weights have the same sign."""
    joined: list[Word] = []
    sign_before = 0
    for word, weight in zip(words, weights, strict=True):
        sign = _sign(weight)
        has_same_sign = sign != 0 and sign == sign_before
        if has_same_sign and _are_unspaced_neighbours(joined[-1], word, spans, text):
            joined[-1] = range(joined[-1].start, word.stop)
        else:
            joined.append(word)
        sign_before = sign
    return joined


def _sign(weight: float) -> int:
    """The sign of a weight; 0 if it is too small to count."""
    if weight >= LEAST_WEIGHT:
        return 1
    if weight <= -LEAST_WEIGHT:
        return -1
    return 0


def _are_unspaced_neighbours(before: Word, word: Word, spans: Sequence[Span], text: str) -> bool:
    start_before = spans[before[0]].start
    start = spans[word[0]].start
    if spans[before[-1]].end != start:
        return False
    return bool(_UNSPACED.match(text, start_before) and _UNSPACED.match(text, start))
